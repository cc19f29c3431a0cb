"""docs/clients.md can be taken as it is: every block is in order and points at the right URL."""

import json
import re
import subprocess
import tomllib

import pytest
import yaml

from tests.external.snippets import (
    CLIENTS,
    HOW_TO_TRY,
    PAGE,
    SECTIONS,
    URL,
    WINDOW_TOKENS,
    Block,
    Section,
    read_sections,
)
from tests.source import ROOT

V1, BARE, BOTH = {"/v1"}, {""}, {"/v1", ""}
ENDINGS = {
    "Codex": V1,
    "Claude Code": BARE,
    "OpenCode": V1,
    "OpenCode over Responses": V1,
    "OpenCode over Messages": V1,
    "Qwen Code": V1,
    "Qwen Code over Messages": BARE,
    "pi": V1,
    "pi over Responses": V1,
    "pi over Messages": BARE,
    "Cline": V1,
    "Continue": V1,
    "Mistral Vibe": V1,
    "OpenHands": V1,
    "mini-swe-agent": V1,
    "gptme": V1,
    "aider": V1,
    "openai for Python": V1,
    "openai for Node": V1,
    "anthropic for Python": BARE,
    "anthropic for Node": BARE,
    "LiteLLM": BOTH,
    "LangChain": V1,
    "Pydantic AI": BOTH,
    "smolagents": V1,
    "OpenAI Agents SDK": V1,
}
"""What stands behind the address: each client adds the rest of the path by itself."""

KNOWS_THE_WINDOW = (
    *("Codex", "Claude Code", "OpenCode", "OpenCode over Responses", "OpenCode over Messages"),
    *("Qwen Code", "Qwen Code over Messages", "pi", "pi over Responses", "pi over Messages"),
    *("Continue", "gptme", "aider"),
)


def check_syntax(block: Block) -> None:
    """Fails unless the block can be read as what it says it is."""
    match block.language:
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            assert isinstance(yaml.safe_load(block.text), dict)
        case "python":
            compile(block.text, "snippet", "exec")
        case "sh":
            said = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
            assert (said.returncode, said.stderr) == (0, "")
        case "js":
            assert block.text.count("(") == block.text.count(")")
        case other:
            raise AssertionError(f"{other} is no language of this page")


@pytest.mark.parametrize("section", SECTIONS.values(), ids=lambda section: section.title)
def test_every_block_is_in_order(section: Section):
    """TOML, JSON, YAML, Python and shell can be read."""
    for block in section.blocks:
        check_syntax(block)


@pytest.mark.parametrize("section", CLIENTS.values(), ids=lambda section: section.title)
def test_the_address_ends_as_the_client_needs_it(section: Section):
    """With `/v1` or without, in every block; and no other address is named."""
    text = "".join(block.text for block in section.blocks)
    found = re.findall(r"https?://[\w.:]+([\w/.]*)", text.replace("https://opencode.ai", ""))

    assert set(found) == ENDINGS[section.title]
    assert text.count(URL) == len(found)


def test_the_page_and_its_tests_have_the_same_clients():
    """A new section needs to say how its address ends."""
    assert list(ENDINGS) == list(CLIENTS)


@pytest.mark.parametrize("title", KNOWS_THE_WINDOW)
def test_a_client_that_can_know_the_window_is_told(title: str):
    """In a file or a variable, as the number that the reader replaces."""
    assert str(WINDOW_TOKENS) in "".join(block.text for block in CLIENTS[title].blocks)


def test_codex_compacts_before_its_window_is_full():
    """It gives up when it is refused, so its own limit must leave room for an answer."""
    settings = tomllib.loads(CLIENTS["Codex"].files[0].text)

    assert settings["model_context_window"] == WINDOW_TOKENS
    assert settings["model_auto_compact_token_limit"] <= 0.9 * WINDOW_TOKENS
    (provider,) = settings["model_providers"].values()
    assert (provider["wire_api"], provider["env_key"]) == ("responses", "LOCAL_API_KEY")
    assert f"export {provider['env_key']}=any" in CLIENTS["Codex"].run.text


def test_a_section_gives_its_program_and_its_version():
    """The version that it was run with stands behind the name; both protocols of one have one."""
    told = [
        title
        for title in CLIENTS
        if re.search(r"`[@\w/.\[\],-]+` \d+\.\d+\.\d+", CLIENTS[title].prose)
    ]

    assert [title for title in CLIENTS if title not in told and " over " not in title] == []
    assert {CLIENTS[t].program for t in ("Codex", "Cline", "mini-swe-agent")} == {
        *("codex", "cline", "mini")
    }
    assert CLIENTS["LiteLLM"].program == "litellm"
    assert CLIENTS["anthropic for Node"].program == "@anthropic-ai/sdk"


def test_ci_installs_the_versions_of_the_page():
    """The script and the page's last section name the same packages, with the page's versions."""
    package = r"(@?[\w/-]+)@(\d[\d.]*)"
    here = dict(re.findall(package, SECTIONS[HOW_TO_TRY].run.text))
    there = dict(re.findall(package, (ROOT / ".ci" / "run").read_text()))
    page = dict(re.findall(r"`(@?[\w/-]+)` (\d+\.\d+\.\d+)", PAGE.read_text()))

    assert here == there
    assert [
        (name, version, page[name])
        for name, version in here.items()
        if name != "node" and not f"{page[name]}.".startswith(f"{version}.")
    ] == []


def test_every_client_of_the_page_is_in_its_table():
    """Each section is linked from the table at the top, in its first column or as a protocol."""
    links = set(re.findall(r"\]\(#([\w-]+)\)", PAGE.read_text()))
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in CLIENTS}

    assert anchors - links == {"openai-for-node", "anthropic-for-node"}


def test_what_is_replaced_is_replaced_everywhere():
    """A filled section has the address, the window and the task that it is given, and no other."""
    page = (
        f'## x\n\n`~/a.json`:\n\n```json\n{{"a": {WINDOW_TOKENS}}}\n```\n\n```sh\nx {URL}/v1\n```\n'
    )
    filled = read_sections(page)["x"].filled("http://h:1", 5)

    assert [block.text for block in filled.blocks] == ['{"a": 5}\n', "x http://h:1/v1\n"]
    assert [block.path for block in filled.blocks] == ["~/a.json", None]
