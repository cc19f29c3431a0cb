"""Messages as clients send them, brought into the one shape that chat templates read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flashrt.chat.request import Json
from flashrt.errors import BadRequest

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

TEXT_PARTS = ("text", "input_text", "output_text")

INLINE_THINKING = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)


def normalized(messages: Sequence[Json], *, late_system: bool = True) -> list[Json]:
    """Fresh messages with `role`, `content` as a string, and what else templates read.

    Leading system messages become one. A later one stays where it is; without `late_system` (the
    template refuses it there) it becomes a user message in its place, so the prompt before it
    stays the same. Unknown fields are dropped. Normalising twice changes nothing.

    Raises BadRequest that names the message.
    """
    if not messages:
        raise BadRequest("`messages` is empty; it needs at least one message.", param="messages")
    plain = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    leading = next((i for i, m in enumerate(plain) if m["role"] != "system"), len(plain))
    if leading > 1:
        joined = "\n\n".join(m["content"] for m in plain[:leading])
        plain[:leading] = [{"role": "system", "content": joined}]
    if not late_system:
        for message in plain[1:]:
            if message["role"] == "system":
                message["role"] = "user"
    return plain


def _message(message: Any, where: str) -> Json:
    if not isinstance(message, Mapping):
        raise BadRequest(f"`{where}` must be an object.", param=where)
    role = _role(message.get("role"), where)
    plain: Json = {"role": role, "content": _text(message.get("content"), f"{where}.content")}
    if role == "assistant":
        _add_thinking(plain, message)
        calls = message.get("tool_calls")
        if calls:
            plain["tool_calls"] = [
                _call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)
            ]
    if role == "tool":
        for name in ("tool_call_id", "name"):
            if isinstance(message.get(name), str):
                plain[name] = message[name]
    return plain


def _role(given: Any, where: str) -> str:
    role = ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise BadRequest(
            f"`{where}.role` is {json.dumps(given, default=str)}; it must be one of "
            f"{', '.join(ROLES)}.",
            param=f"{where}.role",
        )
    return role


def _text(content: Any, where: str) -> str:
    """Content as one string; templates join text parts without a gap."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise BadRequest(f"`{where}` must be a string or a list of text parts.", param=where)
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if kind in TEXT_PARTS else None
    if not isinstance(text, str):
        raise BadRequest(
            f"`{where}` is of type {json.dumps(kind, default=str)}; this model reads text only: "
            '{"type": "text", "text": ...}.',
            param=where,
        )
    return text


def _add_thinking(plain: Json, message: Mapping[str, Any]) -> None:
    """From either field, or from a think block that the client left in front of the content.

    The template would look for such a block itself, but what it is given is text to it, never a
    control token.
    """
    thinking = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thinking, str) and thinking:
        plain["reasoning_content"] = thinking
        return
    inline = INLINE_THINKING.match(plain["content"])
    if inline:
        plain["reasoning_content"] = inline[1].strip("\n")
        plain["content"] = plain["content"][inline.end() :].lstrip("\n")


def _call(call: Any, where: str) -> Json:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadRequest(
            f'`{where}` must be {{"function": {{"name": ..., "arguments": ...}}}}.', param=where
        )
    plain = {"name": function["name"], "arguments": _arguments(function.get("arguments"))}
    given_id = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**given_id, "type": "function", "function": plain}


def _arguments(arguments: Any) -> Json:
    """Arguments as an object.

    Text that is none is what a call leaves behind that was cut short. The client sends it with
    every further turn, so it is shown to the model as it stands instead of ending the session.
    """
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": arguments}
