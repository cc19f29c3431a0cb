"""The input items of a Responses request as the messages of one conversation."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flashrt.chat.messages import TEXT_PARTS, unread_result
from flashrt.chat.request import Json
from flashrt.errors import BadRequest
from flashrt.protocols.responses_thought import thought_of
from flashrt.protocols.responses_tools import INPUT, ToolName

ROLES = ("user", "assistant", "system", "developer")

COMPACTED = "[An earlier part of this conversation was compacted by another server; it is lost.]"

LEFT_OUT = (
    *("_call", "_output", "_request", "_response", "_tools", "_trigger", "_update", "program"),
)
"""How the kinds of items end that belong to tools which the API itself would run."""

Lookup = Callable[[str], Json | None]
"""An item of an earlier answer by its id; None if it is not held."""


def resolved(items: Sequence[Any], lookup: Lookup) -> list[Json]:
    """The items, with what references stand for; raises BadRequest that names one."""
    found = []
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadRequest(f"`input[{i}]` must be an object.", param=f"input[{i}]")
        found.append(_referred(item, lookup, f"input[{i}]"))
    return found


def messages_of(items: Sequence[Json], known: int = 0) -> list[Json]:
    """Messages as `chat.messages` reads them; raises BadRequest that names the item.

    The first `known` items are of answers before; `input` has those behind them. What an answer
    came back as (thinking, text, calls) is one message of the assistant's, whatever number of items
    it is. Ids of items are never shown to the model.
    """
    conversation = _Conversation()
    answered = _answered(items)
    for i, item in enumerate(items, start=-known):
        conversation.add(item, answered, f"input[{i}]" if i >= 0 else "previous_response_id")
    return conversation.messages


def tools_in(items: Iterable[Json]) -> list[Json]:
    """Tools that items bring along, in the middle of a conversation."""
    kinds = ("additional_tools", "tool_search_output")
    groups = [item.get("tools") for item in items if item.get("type") in kinds]
    lists = [group for group in groups if isinstance(group, list)]
    return [tool for group in lists for tool in group if isinstance(tool, dict)]


def _answered(items: Sequence[Json]) -> frozenset[str]:
    """The calls that have a result."""
    ids = [item.get("call_id") for item in items if str(item.get("type")).endswith("_output")]
    return frozenset(call_id for call_id in ids if isinstance(call_id, str))


def _referred(item: Json, lookup: Lookup, path: str) -> Json:
    """The item itself; what a reference stands for, if it is one."""
    kind = item.get("type")
    if kind != "item_reference" and not (kind is None and set(item) == {"id"}):
        return item
    found = lookup(item["id"]) if isinstance(item.get("id"), str) else None
    if found is None:
        raise BadRequest(
            f"`{path}` refers to the item {json.dumps(item.get('id'), default=str)[:80]}, which is "
            "not held here: its answer was asked for with `store` false, was deleted, or is too "
            "old. Send the item itself.",
            param=f"{path}.id",
        )
    return found


class _Conversation:
    """Messages as they are put together."""

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def add(self, item: Mapping[str, Any], answered: frozenset[str], path: str) -> None:
        kind = item.get("type") or "message"
        match kind:
            case "message":
                self._message(item, path)
            case "reasoning":
                self._more(reasoning_content=thought_of(item))
            case "function_call" | "custom_tool_call":
                # What a cut left open was never executed, and nobody will answer it.
                if item.get("status") != "incomplete" or item.get("call_id") in answered:
                    self._call(item, kind == "custom_tool_call", path)
            case "function_call_output" | "custom_tool_call_output":
                self._result(item, path)
            case "agent_message":
                self.messages.append({"role": "user", "content": _readable(item.get("content"))})
            case "compaction" | "context_compaction" | "compaction_summary":
                self.messages.append({"role": "user", "content": COMPACTED})
            case str() if kind.endswith(LEFT_OUT):
                pass
            case _:
                raise BadRequest(
                    f"`{path}.type` is {json.dumps(kind, default=str)[:80]}; it must be message, "
                    "reasoning, function_call, function_call_output, custom_tool_call, "
                    "custom_tool_call_output or item_reference.",
                    param=f"{path}.type",
                )

    def _message(self, item: Mapping[str, Any], path: str) -> None:
        role = item.get("role")
        if role not in ROLES:
            raise BadRequest(
                f"`{path}.role` is {json.dumps(role, default=str)[:80]}; it must be one of "
                f"{', '.join(ROLES)}.",
                param=f"{path}.role",
            )
        content = _text(item.get("content"), f"{path}.content")
        if role == "assistant":
            self._more(content=content)
        else:
            self.messages.append({"role": role, "content": content})

    def _call(self, item: Mapping[str, Any], custom: bool, path: str) -> None:
        name, group = item.get("name"), item.get("namespace")
        if not isinstance(name, str):
            raise BadRequest(f"`{path}.name` must be a string.", param=f"{path}.name")
        flat = ToolName(name, group if isinstance(group, str) else None).flat
        arguments = {INPUT: item.get("input", "")} if custom else item.get("arguments")
        call: Json = {"type": "function", "function": {"name": flat, "arguments": arguments}}
        if isinstance(item.get("call_id"), str):
            call["id"] = item["call_id"]
        self._assistant().setdefault("tool_calls", []).append(call)

    def _result(self, item: Mapping[str, Any], path: str) -> None:
        result: Json = {"role": "tool", "content": _output(item.get("output"), f"{path}.output")}
        if isinstance(item.get("call_id"), str):
            result["tool_call_id"] = item["call_id"]
        self.messages.append(result)

    def _more(self, **texts: str) -> None:
        """The assistant's message goes on."""
        message = self._assistant()
        for field, text in texts.items():
            message[field] = message.get(field, "") + text

    def _assistant(self) -> Json:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]


def _text(content: Any, where: str) -> str:
    """Content as one string; parts stand together without a gap, as in chat."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadRequest(f"`{where}` must be a string or a list of text parts.", param=where)
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    field = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part if isinstance(part, str) else part.get(field) if field else None
    if not isinstance(text, str):
        raise BadRequest(
            f"`{where}` is of type {json.dumps(kind, default=str)[:80]}; this model reads text "
            'only: {"type": "input_text", "text": ...}.',
            param=where,
        )
    return text


def _readable(content: Any) -> str:
    """What one agent of a client tells another: its texts, without what is sealed."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _output(output: Any, where: str) -> str:
    """A tool's result; some clients send other JSON than a text or a list of parts."""
    if isinstance(output, list):
        return _text([unread_result(part) or part for part in output], where)
    if output is None or isinstance(output, str):
        return output or ""
    return msgspec.json.encode(output).decode()
