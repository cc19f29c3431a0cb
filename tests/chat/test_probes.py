"""What is found out about a template at load."""

import pytest

from flashrt.chat.probes import TurnMarks
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.template import Template
from flashrt.errors import CannotServe
from tests.chat.vocabulary import TEMPLATE, TOOLS, ids, template, tokenizer

SIMPLE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
DEFAULTED = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}"
) + SIMPLE
UNENDED = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' if m.role == 'user' else '<|im_end|>' }}\n{{ m.content }}\n"
    "{% endfor %}"
)
ALIKE = "{% for m in messages %}<|im_start|>\n{{ m.content }}<|im_end|>\n{% endfor %}"


def renderer(source: str) -> Renderer:
    return Renderer(tokenizer(), Template(source, tokenizer().control))


@pytest.mark.parametrize("source", [TEMPLATE, SIMPLE, DEFAULTED])
def test_the_ids_that_bound_a_system_turn_are_found(source: str):
    """With tools or without, and where the template has a system turn of its own."""
    assert renderer(source).turn_marks == TurnMarks(
        system_open=ids("<|im_start|>system\n"), turn_end=ids("<|im_end|>\n")
    )


@pytest.mark.parametrize("tools", [(), TOOLS])
@pytest.mark.parametrize("text", ["Be brief.", "\n\n# Rules\n1. x", "東京", "<|im_end|>\n", "(a)"])
def test_a_system_turn_starts_and_ends_with_them(text: str, tools: tuple):
    """Whatever the system text is: behind the first turn's end stands the user's turn."""
    marks = Renderer(tokenizer(), template()).turn_marks
    messages = ({"role": "system", "content": text}, {"role": "user", "content": "Go"})

    prompt = Renderer(tokenizer(), template()).render(AgentRequest("m", messages, tools=tools))

    assert marks.system_open is not None
    assert marks.turn_end is not None
    assert prompt[: len(marks.system_open)] == marks.system_open
    ends = [i for i in range(len(prompt)) if prompt[i : i + len(marks.turn_end)] == marks.turn_end]
    rest = prompt[ends[0] + len(marks.turn_end) :]
    assert tokenizer().decode(rest).startswith("<|im_start|>user\nGo<|im_end|>")


def test_a_template_without_turn_ends_has_no_marks():
    """Then there is only the grid."""
    assert renderer(UNENDED).turn_marks == TurnMarks(None, None)


def test_a_template_that_writes_all_roles_alike_has_no_system_opening():
    """A user's turn must not pass for the system's."""
    assert renderer(ALIKE).turn_marks == TurnMarks(None, ids("<|im_end|>\n"))


@pytest.mark.parametrize(
    ("source", "role"), [(SIMPLE, "system"), (TEMPLATE, "user")], ids=["takes it", "raises"]
)
def test_a_late_system_message_is_rendered_as_the_template_takes_it(source: str, role: str):
    """In its place either way; as a user's where the template raises."""
    messages = tuple(
        {"role": r, "content": c} for r, c in [("user", "a"), ("system", "b"), ("user", "c")]
    )

    prompt = renderer(source).render(AgentRequest("m", messages))

    assert f"<|im_start|>{role}\nb<|im_end|>" in tokenizer().decode(prompt.ids)


def test_a_late_system_message_that_is_swallowed_is_not_taken():
    """A template may drop it silently; the model would never see it."""
    swallowing = SIMPLE.replace(
        "{% for m in messages %}",
        "{% for m in messages if loop is undefined or true %}"
        "{% if m.role == 'system' and not loop.first %}{% continue %}{% endif %}",
    )
    messages = tuple({"role": r, "content": c} for r, c in [("user", "a"), ("system", "b")])

    prompt = renderer(swallowing).render(AgentRequest("m", messages))

    assert "user\nb" in tokenizer().decode(prompt.ids)


def test_a_late_system_message_that_is_moved_is_not_taken():
    """A template may hoist it, which would change the start of the prompt."""
    hoisting = (
        "{% for m in messages if m.role == 'system' %}<|im_start|>system\n{{ m.content }}"
        "<|im_end|>\n{% endfor %}"
        + SIMPLE.replace("in messages", "in messages if m.role != 'system'")
    )
    messages = tuple({"role": r, "content": c} for r, c in [("user", "a"), ("system", "b")])

    prompt = renderer(hoisting).render(AgentRequest("m", messages))

    assert "user\na<|im_end|>\n<|im_start|>user\nb" in tokenizer().decode(prompt.ids)


def test_a_template_that_assembles_control_tokens_is_refused_at_start():
    """They could not be told from text; the message names the token."""
    with pytest.raises(CannotServe, match=r"'<\|im_end\|>' from parts"):
        renderer(SIMPLE.replace("<|im_end|>", "{{ '<|im_' ~ 'end|>' }}"))
