"""`flashrt chat` as a newcomer meets it: a real process against a real server."""

import subprocess

import trio

from tests.client.terminal import ListeningEngine, command, environment, piped, terminal
from tests.gate import GatedPerformer
from tests.whole.server import VOICE, running_server
from tests.whole.watch import MANY, leaving, until, until_states

DIM = "\x1b[2m"
ANSWER = "hi was printed. README.md describes a tiny repo used for a test."
TOLD = "It printed: hi. README.md says: A tiny repo used for a test."
STEPS_TO_FIRST_WORDS = 3
"""Reset, prefill, and the first burst of decode."""

NO_SUCH_MODEL = 'The model "another" does not exist here; "fake" does.'
FREE_PORT = 9
"""`discard`: nobody listens there."""


def engine() -> ListeningEngine:
    """Speaks the plot of tests/scripted.py."""
    return ListeningEngine(VOICE.tokenizer)


async def test_text_is_shown_as_it_comes():
    """The first words stand on the screen while the engine still waits for its next step."""
    gate = GatedPerformer(engine())
    async with (
        running_server(gate.engine, performer=gate) as server,
        terminal(server.url, "--no-tools", "hello") as person,
    ):
        gate.allow(STEPS_TO_FIRST_WORDS)
        await person.until("hi was")
        assert "test" not in person.shown
        gate.allow(MANY)
        await person.until(ANSWER)
        assert await person.ended() == 0


async def test_thinking_is_dimmed_on_a_terminal():
    """Thinking is dim and the answer is not."""
    async with (
        running_server(engine()) as server,
        terminal(server.url, "--no-tools", "--think", "hello") as person,
    ):
        await person.until(ANSWER)
        assert f"{DIM}The" in person.shown
        assert f"{DIM}hi" not in person.shown


async def test_a_pipe_gets_the_answer_alone_without_colours():
    """Thinking, calls and figures are on stderr; nothing has an escape sequence."""
    async with running_server(engine()) as server:
        ran = await piped(server.url, "--no-tools", "--think", "hello")
    assert ran.stdout.decode() == ANSWER + "\n"
    assert ran.stderr.startswith(b"The user wants something done.\n")
    assert b"\x1b" not in ran.stderr
    assert ran.returncode == 0


async def test_tools_run_and_their_results_go_back(tmp_path):
    """The whole loop: a command that was allowed, a file, and an answer about both."""
    (tmp_path / "README.md").write_text("A tiny repo.\n")
    listening = engine()
    async with (
        running_server(listening) as server,
        terminal(server.url, "Run echo hi, read README.md.", cwd=tmp_path) as person,
    ):
        await person.until("[y/N] ")
        await person.type("y\n")
        await person.until(TOLD)
        assert await person.ended() == 0
    assert "-> run_command \x1b[0m" in person.shown
    assert '{"path":"README.md"}' in "".join(person.shown.split("\x1b[0m\x1b[36m"))
    assert "exit status 0\nhi\n" in listening.prompts[1]
    assert "A tiny repo.\n" in listening.prompts[2]


async def test_a_refused_command_is_told_to_the_model():
    """Anything but yes is a no; the answer goes on."""
    listening = engine()
    async with (
        running_server(listening) as server,
        terminal(server.url, "Run echo hi.") as person,
    ):
        await person.until("[y/N] ")
        await person.type("\n")
        await person.until(TOLD)
    assert "the user did not allow this" in listening.prompts[1]
    assert "exit status" not in listening.prompts[1]


async def test_without_a_terminal_no_command_runs_unless_yes_is_given(tmp_path):
    """What comes through a pipe is not an answer to a question."""
    listening = engine()
    async with running_server(listening) as server:
        await piped(server.url, typed="Run it.\ny\n", cwd=tmp_path)
        assert "the user did not allow this" in listening.prompts[1]
        await piped(server.url, "--yes", "Run it again.", cwd=tmp_path)
    assert "exit status 0\nhi\n" in listening.prompts[-2]


async def test_ctrl_c_cancels_and_the_server_is_free_again():
    """The turn is dropped on both sides; the next one is served, and never hears of it."""
    gate = GatedPerformer(engine())
    async with (
        running_server(gate.engine, performer=gate) as server,
        terminal(server.url, "--no-tools") as person,
    ):
        await person.until("> ")
        await person.type("unwanted\n")
        gate.allow(STEPS_TO_FIRST_WORDS)
        await person.until("hi was")
        await person.interrupt()
        await person.until("cancelled")
        await until(lambda: leaving(server))
        gate.allow(MANY)
        await until_states(server, CANCELLED=1)
        await person.type("wanted\n")
        await person.until(ANSWER)
        await person.type("/quit\n")
        assert await person.ended() == 0
    assert "wanted" in gate.engine.prompts[-1]
    assert "unwanted" not in gate.engine.prompts[-1]


async def test_ctrl_c_works_while_nothing_has_come():
    """The engine has not begun, and the client waits without a word to show."""
    gate = GatedPerformer(engine())
    async with (
        running_server(gate.engine, performer=gate) as server,
        terminal(server.url, "hello") as person,
    ):
        await until(lambda: is_busy(server))
        await person.interrupt()
        await person.until("cancelled")
        assert await person.ended() == 130
        gate.allow(MANY)
        await until_states(server, CANCELLED=1)


async def is_busy(server) -> bool:
    """Whether a request is being served."""
    return (await server.http.get("/health")).json()["running"] is not None


async def test_ctrl_c_at_the_prompt_says_how_to_leave_and_leaves_at_the_second():
    """One key pressed too often does not end a conversation."""
    async with running_server(engine()) as server, terminal(server.url) as person:
        await person.until("> ")
        await person.interrupt()
        await person.until("Ctrl-D or /quit leaves")
        await person.until("> ", after=person.shown.index("leaves"))
        await person.interrupt()
        assert await person.ended() == 0


async def test_ctrl_d_leaves():
    """The end of the input is the end of the conversation."""
    async with running_server(engine()) as server, terminal(server.url) as person:
        await person.until("> ")
        await person.type("\x04")
        assert await person.ended() == 0


async def test_lines_are_one_conversation_until_a_new_one_begins():
    """What was said goes along; /new forgets it, /think turns thinking on, a typing mistake is
    not sent."""
    listening = engine()
    lines = "first\nsecond\n/new\n/thnik\n/think\nthird\n"
    async with running_server(listening) as server:
        ran = await piped(server.url, "--no-tools", "--system", "Be brief.", typed=lines)
    _, second, third = listening.prompts
    assert ran.stdout.decode() == f"{ANSWER}\n" * 3
    assert "first" in second
    assert "second" not in third
    assert "Be brief." in third
    assert third.endswith("<think>\n")
    assert b"/thnik is no command; there are /new, /think, /quit" in ran.stderr


async def test_no_server_is_status_1_and_says_how_to_start_one():
    """The message names the URL."""
    ran = await piped(f"http://127.0.0.1:{FREE_PORT}", "hello")
    assert ran.returncode == 1
    assert ran.stdout == b""
    assert ran.stderr.decode() == (
        f"flashrt: no server answers at http://127.0.0.1:{FREE_PORT}/v1 (Connection refused); "
        "`flashrt serve` starts one\n"
    )


async def test_a_refusal_shows_the_servers_words():
    """Between pipes it ends the program; in a terminal it ends the turn."""
    wish = ["--model", "another", "--no-tools"]
    async with running_server(engine(), strict_model_name=True) as server:
        ran = await piped(server.url, *wish, typed="hello\nagain\n")
        async with terminal(server.url, *wish) as person:
            await person.until("> ")
            await person.type("hello\n")
            await person.until("(HTTP 404)")
            await person.until("> ", after=person.shown.index("404"))
    assert ran.returncode == 1
    assert ran.stderr.decode() == f"flashrt: {NO_SUCH_MODEL} (HTTP 404)\n"
    assert NO_SUCH_MODEL in person.shown


async def test_a_key_opens_the_door(tmp_path):
    """Without it the server says what is missing."""
    (tmp_path / "keys").write_text("sesame\n")
    async with running_server(engine(), api_key_file=tmp_path / "keys") as server:
        refused = await piped(server.url, "hello")
        served = await piped(server.url, "--no-tools", "--api-key", "sesame", "hello")
    assert refused.stderr.endswith(b"(HTTP 401)\n")
    assert (refused.returncode, served.returncode) == (1, 0)


async def test_a_reader_that_has_enough_ends_it_without_a_complaint():
    """As with `flashrt chat ... | head -c 2`: the pipe is closed before the answer is over."""
    gate = GatedPerformer(engine())
    async with running_server(gate.engine, performer=gate) as server:
        child = await trio.lowlevel.open_process(
            command(server.url, "--no-tools", "hello"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        gate.allow(STEPS_TO_FIRST_WORDS)
        assert (await child.stdout.receive_some()).startswith(b"hi")
        await child.stdout.aclose()
        gate.allow(MANY)
        assert await child.wait() == 1
        assert await child.stderr.receive_some() == b""
        await child.stderr.aclose()
