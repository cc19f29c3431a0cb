"""Streams for the reader: well-formed, sloppy, random and mutated; and what is read of them."""

import json
import random
from typing import Any

from hypothesis import strategies as st

from flashrt.chat.reader import Reader
from flashrt.chat.reads import Reads
from tests.chat.transcript import Transcript
from tests.chat.vocabulary import THINK, TOOLS, tokenizer

Event = tuple[str, bool]
"""Text, or a control token (True)."""

BLOCKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CALL = (
    "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
)
JSON_CALL = '<tool_call>\n{"name": "run", "arguments": {"command": "ls"}}\n</tool_call>'

PIECES = (
    *BLOCKS,
    "<|im_start|>",
    "<function=run>",
    "<function=look>",
    '<function name="run">',
    "<function=stranger>",
    "</function>",
    "<parameter=command>",
    "<parameter=limit>",
    "<parameter=note>",
    "</parameter>",
    "</ parameter >",
    "<tools>",
    "</tools>",
    "<function_invocation>",
    "</function_invocation>",
    "<function=",
    "<parameter=x",
    "</",
    "<",
    ">",
    "\n",
    "\n\n",
    " ",
    "```\n",
    "5",
    "null",
    "x",
    '{"name": "run", ',
    '{"name": "look"}',
    '"arguments": {',
    '"arguments": "{\\"command\\": ',
    '"command": "a\\u00e9',
    '\\n"',
    '"limit": NaN',
    '"parameters": ',
    "}",
    '}"',
    "{",
    "[",
    "]",
    ",",
    '"',
    "\\",
    "<function= >",
    "<function=" + "n" * 300 + ">",
    "東",
)
FRAGMENTS = st.one_of(
    st.sampled_from(PIECES),
    st.text("<>/=\nfunctionparameter ", max_size=6),
    st.text('{}[]":,\\ uname1', max_size=6),
)


def marked(pieces: list[str]) -> list[Event]:
    """Pieces, of which those that the vocabulary knows as control tokens are control tokens."""
    return [(text, text in tokenizer().control) for text in pieces]


STREAMS = st.lists(FRAGMENTS, max_size=14).map(marked)

WRITTEN = (
    f"\nFirst,\n\nlook.\n</think>\n\nI look.\n\n{CALL}\n<tool_call>\n<function=look>\n</function>\n"
    "</tool_call>",
    f"hm</think>a\n\n{JSON_CALL}\n{JSON_CALL}",
    f"maybe {CALL}</think>no",
    f"\nI know.\n{CALL}\n{JSON_CALL}\n",
    f"{CALL} but not yet",
    "</think>\n<function_invocation>\n<function=run>\n<parameter=command>\nls < a && b\n"
    "</parameter>\n</function>\n</function_invocation>\ndone",
    "</think>In code:\n```xml\n<function=run>\n</function>\n```\n<function=look>\n</function>\n",
    '</think><tool_call>{"arguments": {"command": "a\\ud83c\\udf88\\u00e9\\n\\d", "limit": NaN, '
    '"flags": ["x", {"y": null},], }, "name": "run"',
    '</think><tool_call>{"name": "run", "arguments": "{\\"command\\": \\"</tool_call>\\"}"}',
    "</think><tools>\n" + '{"type": "function", "function": {"name": "run"}}\n</tools>',
    "</think>" + CALL.replace("ls", "</parameter>\n</function>\n</tool_call>x 東 <think>"),
    "</think>" + CALL.replace("<parameter=command>", '<parameter name = "limit" >'),
    '</think><tool_call>\n<function=run>\n{"command": "ls", "limit": 5}\n</function>\n</tool_call>',
)
"""Whole answers as models write them, thinking open."""


def events(text: str) -> list[Event]:
    """What the ids of `text` come to: text, and control tokens told apart."""
    found: list[Event] = []
    for token_id in tokenizer().encode(text):
        literal = tokenizer().control_literal(token_id)
        if literal is not None:
            found.append((literal, True))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0] + tokenizer().decode([token_id]), False)
        else:
            found.append((tokenizer().decode([token_id]), False))
    return found


def cut(stream: list[Event], size: int) -> list[Event]:
    """The same stream, its text in pieces of `size` characters."""
    return [
        (text[i : i + (len(text) if control else size)], control)
        for text, control in stream
        for i in range(0, len(text), len(text) if control else size)
    ]


def new_reader(*, control: Any = None, tools: Any = TOOLS, **options: Any) -> Reader:
    """A reader as the tests' vocabulary and tools have it."""
    return Reader(
        control=tokenizer().control if control is None else control,
        tools=tools,
        new_call_id=lambda: "id",
        **options,
    )


def read(what: str | list[Event], *, cut_off: bool = False, **options: Any) -> Transcript:
    """Everything that a reader says of a text, or of events."""
    reader: Reads = new_reader(**options)
    transcript = Transcript()
    for text, is_control in events(what) if isinstance(what, str) else what:
        said = reader.control(text) if is_control else reader.text(text)
        transcript.add(one.delta for one in said)
    transcript.add(one.delta for one in reader.finish(cut_off=cut_off))
    assert reader.complete_calls == len(transcript.complete)
    return transcript


def is_whole(arguments: str) -> bool:
    """Whether a client would take it for a call's whole arguments."""
    try:
        return isinstance(json.loads(arguments), dict)
    except json.JSONDecodeError:
        return False


def require_honest(stream: list[Event], transcript: Transcript) -> None:
    """No marker of thinking or turns shows, and the calls that look whole are those that are."""
    spelled = "".join(text for text, is_control in stream if not is_control)
    shown = transcript.text + transcript.thinking
    for marker in (*THINK, "<|im_start|>"):
        assert marker in spelled or marker not in shown, f"{marker} of {stream} is shown"
    whole = [i for i, (_, arguments) in enumerate(transcript.calls) if is_whole(arguments)]
    assert whole == transcript.complete, f"{transcript} of {stream}"


def mutated(dice: random.Random) -> list[Event]:
    """A written answer with pieces dropped, doubled, swapped, put in or cut; or a random one."""
    if dice.random() < 0.3:
        return marked(dice.choices(PIECES, k=dice.randrange(14)))
    stream = cut(list(dice.choice(EVENTS)), dice.randrange(1, 30))
    for _ in range(dice.randrange(5)):
        at = dice.randrange(len(stream) + 1)
        match dice.randrange(5):
            case 0:
                del stream[at : at + 1]
            case 1:
                stream[at:at] = stream[at : at + 1]
            case 2:
                stream[at : at + 2] = reversed(stream[at : at + 2])
            case 3:
                stream[at:at] = marked([dice.choice(PIECES)])
            case _:
                del stream[max(at, 1) :]
    return stream


EVENTS = tuple(events(text) for text in WRITTEN)
