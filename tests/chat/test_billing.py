"""A billing line in the first system text is gone, and nothing else is."""

from typing import Any

import pytest

from flashrt.chat.billing import without_billing
from flashrt.chat.messages import normalized
from tests.chat.talks import ASK, SAID, keys, prompt

LINE = "x-anthropic-billing-header: cc_version=2.1.332.31a; cc_entrypoint=cli; cch=abc12;"
OTHER = "x-anthropic-billing-header: cc_version=2.1.332.04c; cc_entrypoint=sdk-cli; cch=0f7e1;"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (LINE, ""),
        (f"{LINE}\n", ""),
        (f"{LINE}\nRules.", "Rules."),
        (f"{LINE}Rules.", "Rules."),
        (f"{LINE} Rules; a=b;", " Rules; a=b;"),
        (f"Rules.\n{LINE}\nMore.", "Rules.\nMore."),
        (f"{LINE}\n{OTHER}\nRules.", "Rules."),
        (f"{LINE}{OTHER}\n\nRules.", "\nRules."),
        ("x-anthropic-billing-header: cc_version=2.1.332.31a;", ""),
    ],
)
def test_the_line_is_left_out(text: str, left: str):
    """Alone, in front of text with a break or without, and between lines."""
    assert without_billing(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Never send x-anthropic-billing-header: cc_version=1; at all.",
        "x-anthropic-billing-header: is a header.",
        "The x-anthropic-billing-header: line\nis dropped.",
        "x-anthropic-billing-header",
        f" {LINE}",
        f"> {LINE}",
    ],
)
def test_text_about_the_line_stays(text: str):
    """To the byte."""
    assert without_billing(text) == text


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("shape", [str, lambda text: [part(text)], lambda text: text.split("|")])
def test_two_sessions_share_their_opening(shape: Any):
    """As a string, as parts, and where the line is a part of its own."""
    texts = (f"{line}|Rules." for line in (LINE, OTHER))
    if shape is str:
        texts = (text.replace("|", "\n") for text in texts)
    a, b = ({"role": "system", "content": shape(text)} for text in texts)

    assert prompt(a, ASK).ids == prompt(b, ASK).ids
    assert keys(a, ASK) == keys(b, ASK)


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_who_quotes_the_line_keeps_it(role: str):
    """Only the first system text is the client's own."""
    quoted = {"role": role, "content": f"{LINE}\nWhat is this?"}

    for head in ([ASK], [{"role": "system", "content": "Rules."}, ASK, SAID]):
        assert normalized([*head, quoted])[-1]["content"] == quoted["content"]


def test_the_first_message_of_a_user_keeps_it():
    """There is no system text then."""
    assert normalized([{"role": "user", "content": LINE}])[0]["content"] == LINE
