"""Dialogues to ids and loss weights, as the server renders them, only faster.

`tests/demo` compares the ids with those of the server's own renderer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from flashrt.demo.template import CHAT_TEMPLATE
from flashrt.demo.training.dialogue import Dialogue, Json

START, END = "<|im_start|>", "<|im_end|>"
Piece = tuple[str, bool]
"""Text, and whether the model has to say it."""


def _instructions() -> tuple[str, str]:
    """What the template says before and behind the tools."""
    quoted = [part.split("' -}}")[0] for part in CHAT_TEMPLATE.split("{{- '")[1:]]
    unescaped = [part.replace("\\n", "\n") for part in quoted]
    first = next(i for i, part in enumerate(unescaped) if "# Tools" in part)
    behind = next(i for i, part in enumerate(unescaped) if part.startswith("</tools>"))
    last = next(i for i, part in enumerate(unescaped) if "answer without a call" in part)
    return "".join(unescaped[first : first + 3]), "".join(unescaped[behind : last + 1])


BEFORE, BEHIND = _instructions()


def pieces(dialogue: Dialogue) -> Iterator[Piece]:
    """The whole of it."""
    messages = dialogue.messages
    first = messages[0] if messages[0]["role"] == "system" else None
    if dialogue.tools:
        lines = "".join(map(_offered, dialogue.tools))
        system = "\n\n" + first["content"].strip() if first else ""
        yield BEFORE + lines + BEHIND + system + END + "\n", False
        messages = messages[1:] if first else messages
    for i, message in enumerate(messages):
        match message["role"]:
            case "assistant":
                yield from _answer(message, dialogue.thinking)
            case "tool":
                before = i and messages[i - 1]["role"] == "tool"
                behind = i + 1 < len(messages) and messages[i + 1]["role"] == "tool"
                text = f"\n<tool_response>\n{message['content'].strip()}\n</tool_response>"
                yield (
                    ("" if before else START + "user") + text + ("" if behind else END + "\n"),
                    False,
                )
            case role:
                yield f"{START}{role}\n{message['content'].strip()}{END}\n", False


def _offered(tool: Json) -> str:
    function = tool["function"]
    names = "".join(f"<parameter={name}>\n" for name in function["parameters"]["properties"])
    schema = json.dumps(tool, ensure_ascii=False)
    return f"{schema}\n<function={function['name']}>\n{names}</function>\n"


def _answer(message: Json, thinking: bool) -> Iterator[Piece]:
    yield f"{START}assistant\n<think>\n", False
    if thinking:
        yield message["reasoning_content"].strip() + "\n</think>\n\n", True
    else:
        yield "\n</think>\n\n", False
    content = message["content"].strip()
    calls = "\n".join(_call(call["function"]) for call in message.get("tool_calls", ()))
    yield content + ("\n\n" if content and calls else "") + calls + END, True
    yield "\n", False


def _call(function: Json) -> str:
    parts = "".join(
        f"<parameter={name}>\n{_value(value)}\n</parameter>\n"
        for name, value in function["arguments"].items()
    )
    return f"<tool_call>\n<function={function['name']}>\n{parts}</function>\n</tool_call>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def joined(parts: Iterator[Piece]) -> list[Piece]:
    """Neighbours of one kind as one: they are cut into tokens together."""
    out: list[Piece] = []
    for text, said in parts:
        if out and out[-1][1] == said:
            out[-1] = (out[-1][0] + text, said)
        else:
            out.append((text, said))
    return out


def encode(tokenizer: Tokenizer, parts: list[Piece]) -> tuple[list[int], list[int]]:
    """Ids, and for each 1 where the model has to say it, else 0."""
    ids: list[int] = []
    said: list[int] = []
    for text, mine in parts:
        more = tokenizer.encode(text, add_special_tokens=False).ids
        ids += more
        said += [int(mine)] * len(more)
    return ids, said


def load_tokenizer(file: Path) -> Tokenizer:
    """From a tokenizer.json."""
    return Tokenizer.from_file(str(file))
