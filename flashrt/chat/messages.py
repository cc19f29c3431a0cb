"""Messages as clients send them, brought into the one shape that chat templates read."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from flashrt.chat.billing import without_billing
from flashrt.chat.nesting import too_deep
from flashrt.chat.request import Json
from flashrt.chat.seen import Reading
from flashrt.errors import BadRequest

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Kinds of parts that are text, and the field that has it."""

THINKING_PARTS = {"thinking": "thinking", "reasoning": "text", "reasoning_text": "text"}
"""The same for an assistant's thinking."""

IMAGE = "[An image, which this model cannot see.]"
FILE = "[A file that is no text, which this model cannot read.]"
SOUND = "[A recording, which this model cannot hear.]"

UNREAD_RESULTS = {
    **dict.fromkeys(("image", "image_url", "input_image"), IMAGE),
    **dict.fromkeys(("document", "file", "input_file"), FILE),
    **dict.fromkeys(("audio", "input_audio"), SOUND),
}
"""What the model is told in the place of a part that it cannot read, in the result of a tool. It is
the model that asked for it, and the client sends it again with every turn: a refusal would end the
session. Users are refused instead; they can say it in words."""

INLINE_THINKING = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)


def normalized(
    messages: Sequence[Json], *, late_system: bool = True, seen: Reading | None = None
) -> list[Json]:
    """Messages with `role`, `content` as a string, and what else templates read.

    Leading system messages become one. A later one stays where it is; without `late_system` (the
    template refuses it there) it becomes a user message in its place, so the prompt before it
    stays the same. Results stand in the order of the calls that they answer, where that is clear:
    some clients send them as they finish. Unknown fields are dropped, and so is a billing line in
    the first system text. Normalising twice changes
    nothing. With `seen` equal messages are one object, which nobody may change.

    Raises BadRequest that names the message.
    """
    if not messages:
        raise BadRequest("`messages` is empty; it needs at least one message.", param="messages")
    read = _message if seen is None else partial(_seen_message, seen)
    same: Callable[[Json], Json] = (lambda message: message) if seen is None else seen.same
    plain = [read(message, f"messages[{i}]") for i, message in enumerate(messages)]
    leading = next((i for i, m in enumerate(plain) if m["role"] != "system"), len(plain))
    if leading:
        texts = [m["content"] for m in plain[:leading]]
        joined = "\n\n".join([without_billing(texts[0]), *texts[1:]])
        plain[:leading] = [same({"role": "system", "content": joined})]
    if not late_system:
        plain[1:] = [same({**m, "role": "user"}) if m["role"] == "system" else m for m in plain[1:]]
    return _with_results_in_order(plain)


def _seen_message(seen: Reading, message: Any, where: str) -> Json:
    return seen.read(message, lambda: _message(message, where))


def _message(message: Any, where: str) -> Json:
    if not isinstance(message, Mapping):
        raise BadRequest(f"`{where}` must be an object.", param=where)
    role = _role(message.get("role"), where)
    content = message.get("content")
    thought = ""
    if role == "assistant" and isinstance(content, list):
        content, thought = _thinking_apart(content)
    if role == "tool" and isinstance(content, list):
        content = [unread_result(part) or part for part in content]
    plain: Json = {"role": role, "content": _text(content, f"{where}.content")}
    if role == "assistant":
        _add_thinking(plain, message, thought)
        calls = _calls(message, where)
        if calls:
            plain["tool_calls"] = calls
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


def unread_result(part: Any) -> str | None:
    """What the model is told of a part of a tool's result that it cannot read; None: it can."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return UNREAD_RESULTS.get(kind) if isinstance(kind, str) else None


def _part(part: Any, where: str) -> str:
    text = part if isinstance(part, str) else _text_of(part, TEXT_PARTS)
    if text is None:
        kind = part.get("type") if isinstance(part, Mapping) else None
        raise BadRequest(
            f"`{where}` is of type {json.dumps(kind, default=str)}; this model reads text only: "
            '{"type": "text", "text": ...}.',
            param=where,
        )
    return text


def _text_of(part: Any, kinds: Mapping[str, str]) -> str | None:
    """What a part says, if it is one of `kinds`."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    field = kinds.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field else None
    return text if isinstance(text, str) else None


def _thinking_apart(parts: list[Any]) -> tuple[list[Any], str]:
    """Parts without those of thinking, and what these say."""
    thought = [_text_of(part, THINKING_PARTS) for part in parts]
    rest = [part for part, text in zip(parts, thought, strict=True) if text is None]
    return rest, "".join(text for text in thought if text is not None)


def _add_thinking(plain: Json, message: Mapping[str, Any], thought: str) -> None:
    """From either field, from `thought` in parts, or from a think block in front of the content.

    The template would look for such a block itself, but what it is given is text to it, never a
    control token.
    """
    thinking = message.get("reasoning_content") or message.get("reasoning") or thought
    if isinstance(thinking, str) and thinking:
        plain["reasoning_content"] = thinking
        return
    inline = INLINE_THINKING.match(plain["content"])
    if inline:
        plain["reasoning_content"] = inline[1].strip("\n")
        plain["content"] = plain["content"][inline.end() :].lstrip("\n")


def _calls(message: Mapping[str, Any], where: str) -> list[Json]:
    """The message's calls; `function_call` is how they were written before there were several."""
    calls = message.get("tool_calls")
    if not calls and message.get("function_call"):
        return [_call({"function": message["function_call"]}, f"{where}.function_call")]
    if not isinstance(calls, list | tuple | None):
        raise BadRequest(f"`{where}.tool_calls` must be a list.", param=f"{where}.tool_calls")
    return [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls or ())]


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
    every further turn, so it is shown to the model as it stands instead of ending the session. So
    is text that is nested too deep to be written again.
    """
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError, RecursionError):
        return {"arguments": arguments}
    whole = isinstance(value, dict) and not too_deep(value)
    return value if whole else {"arguments": arguments}


def _with_results_in_order(messages: list[Json]) -> list[Json]:
    ordered: list[Json] = []
    for is_result, run in groupby(messages, lambda message: message["role"] == "tool"):
        group = list(run)
        if is_result and ordered:
            group = _in_order(group, ordered[-1].get("tool_calls", []))
        ordered += group
    return ordered


def _in_order(results: list[Json], calls: list[Json]) -> list[Json]:
    """Results in the order of their calls, if each names another one; else as they are."""
    places = {call["id"]: i for i, call in enumerate(calls) if "id" in call}
    ids = [result.get("tool_call_id") for result in results]
    if len(set(ids)) < len(ids) or not places.keys() >= set(ids):
        return results
    return sorted(results, key=lambda result: places[result["tool_call_id"]])
