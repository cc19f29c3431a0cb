"""The conversation of a Messages request, in the shape that `chat.messages` reads."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from flashrt.chat.billing import without_billing
from flashrt.chat.messages import unread_result
from flashrt.chat.request import Json
from flashrt.errors import BadRequest
from flashrt.protocols.fields import shown
from flashrt.protocols.messages_thinking import thought_of

ROLES = ("user", "assistant", "system")

NOT_THE_ASSISTANTS = frozenset({"image", "document", "search_result", "tool_result"})
"""Blocks that say nothing in the mouth of an assistant. Others that are unknown are what the tools
of another server left behind; they are left out."""

EMPTY_FAILURE = "The tool failed and said nothing."
"""What a failed tool said, if that is nothing: the model would take it for a success."""


def conversation(system: str | Sequence[Any] | None, messages: Sequence[Json]) -> tuple[Json, ...]:
    """The system text and all messages; raises BadRequest that names the block.

    Each block of the system text is a message, so several are joined as several messages are.
    """
    told = [{"role": "system", "content": text} for text in _system_texts(system)]
    for i, message in enumerate(messages):
        told += _message(message, f"messages[{i}]")
    return tuple(told)


def _system_texts(system: str | Sequence[Any] | None) -> list[str]:
    """Without a client's billing line in the first: a block that is nothing else goes."""
    blocks = [system] if isinstance(system, str) else system or ()
    texts = [_text(block, f"system[{i}]") for i, block in enumerate(blocks)]
    texts[:1] = [without_billing(text) for text in texts[:1]]
    return [text for text in texts if text]


def _message(message: Json, where: str) -> list[Json]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise BadRequest(
            f"`{where}.role` is {shown(role)}; it must be one of {', '.join(ROLES)}. Tools and "
            'their results are blocks: "tool_use" of the assistant, "tool_result" of the user.',
            param=f"{where}.role",
        )
    if content is None or isinstance(content, str):
        return [{"role": role, "content": content or ""}]
    if not isinstance(content, list):
        raise BadRequest(
            f"`{where}.content` must be a string or a list of blocks.", param=f"{where}.content"
        )
    if role == "assistant":
        return [_assistant(content, f"{where}.content")]
    return _told(role, content, f"{where}.content")


def _told(role: str, blocks: Sequence[Any], where: str) -> list[Json]:
    """Results become messages of their own; the text around them stays in its place."""
    messages: list[Json] = []
    for is_result, run in groupby(enumerate(blocks), lambda placed: _is_result(role, placed[1])):
        if is_result:
            messages += [_result(block, f"{where}[{i}]") for i, block in run]
            continue
        text = "".join(_text(block, f"{where}[{i}]") for i, block in run)
        if text:
            messages.append({"role": role, "content": text})
    return messages or [{"role": role, "content": ""}]


def _is_result(role: str, block: Any) -> bool:
    return role == "user" and _kind(block) == "tool_result"


def _result(block: Mapping[str, Any], where: str) -> Json:
    content = block.get("content")
    if not isinstance(content, str | list | None):
        raise BadRequest(
            f"`{where}.content` must be a string or a list of text blocks.",
            param=f"{where}.content",
        )
    blocks = content if isinstance(content, list) else [content or ""]
    text = _texts((unread_result(block) or block for block in blocks), f"{where}.content")
    if not text and block.get("is_error") is True:
        text = EMPTY_FAILURE
    call_id = _named(block, "tool_use_id", where)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _assistant(blocks: Sequence[Any], where: str) -> Json:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for i, block in enumerate(blocks):
        match _kind(block):
            case "thinking":
                thoughts.append(thought_of(block))
            case "tool_use":
                calls.append(_call(block, f"{where}[{i}]"))
            case None | "text":
                texts.append(_text(block, f"{where}[{i}]"))
            case kind if kind in NOT_THE_ASSISTANTS:
                raise _unread(block, f"{where}[{i}]")
    message: Json = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any], where: str) -> Json:
    function = {"name": _named(block, "name", where), "arguments": block.get("input") or {}}
    return {"id": _named(block, "id", where), "type": "function", "function": function}


def _named(block: Mapping[str, Any], field: str, where: str) -> str:
    name = block.get(field)
    if not isinstance(name, str) or not name:
        raise BadRequest(
            f"`{where}.{field}` is {shown(name)}; it must be a text that is not empty.",
            param=f"{where}.{field}",
        )
    return name


def _texts(blocks: Iterable[Any], where: str) -> str:
    """Templates join text parts without a gap, and so are these."""
    return "".join(_text(block, f"{where}[{i}]") for i, block in enumerate(blocks))


def _text(block: Any, where: str) -> str:
    if isinstance(block, str):
        return block
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_reference", "tool_name": str(name)}:
            # What a search for tools found. All tools are shown to the model from the beginning.
            return f"{name}\n"
        case {"type": "text"}:
            raise BadRequest(f"`{where}.text` must be a string.", param=f"{where}.text")
    raise _unread(block, where)


def _unread(block: Any, where: str) -> BadRequest:
    return BadRequest(
        f"`{where}` is of type {shown(_kind(block))}, which cannot be read there; this model "
        'reads text only: {"type": "text", "text": ...}. Leave the block out, or say it in words.',
        param=where,
    )


def _kind(block: Any) -> str | None:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else None
