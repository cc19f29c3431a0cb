"""The tools of a Responses request, and by which names the model and the client call them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from flashrt.chat.request import Json
from flashrt.errors import BadRequest
from flashrt.protocols.chat import TOOL_NAME

FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
"""What the model is shown of a function, in the order in which chat clients write it."""

INPUT = "input"
"""The one parameter of a custom tool as the model sees it."""

BETWEEN = "__"
"""Between the name of a group and that of a tool in it."""


@attrs.frozen
class ToolName:
    """How the client calls a tool. `custom`: it takes a text, and no JSON."""

    name: str
    namespace: str | None = None
    custom: bool = False

    @property
    def flat(self) -> str:
        """How the model calls it."""
        return self.name if self.namespace is None else f"{self.namespace}{BETWEEN}{self.name}"


@attrs.frozen
class Offer:
    """What the model may call: functions in the shape of chat, and whose they are by their names.

    `left_out`: kinds of tools that are the API's own and not served here.
    """

    tools: tuple[Json, ...]
    names: Mapping[str, ToolName]
    left_out: frozenset[str]

    def called(self, flat: str) -> ToolName:
        """The tool that the model means; one that nobody offered is a function of that name."""
        return self.names.get(flat, ToolName(flat))


def offer(tools: Sequence[Json], where: str = "tools") -> Offer:
    """The tools on offer, groups flattened; raises BadRequest that names one.

    Of two with one name the first counts. Tools that the API itself would run are left out.
    """
    names: dict[str, ToolName] = {}
    functions: list[Json] = []
    left_out: set[str] = set()
    for tool, namespace, path in _flattened(tools, where):
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            left_out.add(_kind(kind, path))
            continue
        name = ToolName(_name(tool, namespace, path), namespace, kind == "custom")
        if name.flat in names:
            continue
        names[name.flat] = name
        shown = _custom(tool) if name.custom else _function(tool, path)
        functions.append({"type": "function", "function": {**shown, "name": name.flat}})
    return Offer(tuple(functions), names, frozenset(left_out))


def _flattened(tools: Sequence[Json], where: str) -> Iterator[tuple[Json, str | None, str]]:
    """Each tool with the group that it is in, and its path. A group's words go to its first."""
    for i, tool in enumerate(tools):
        path = f"{where}[{i}]"
        if tool.get("type") != "namespace":
            yield tool, None, path
            continue
        group = _name(tool, None, path)
        inside = tool.get("tools")
        if not isinstance(inside, list) or not all(isinstance(one, dict) for one in inside):
            raise BadRequest(f"`{path}.tools` must be a list of tools.", param=f"{path}.tools")
        for j, one in enumerate(inside):
            about = [said.get("description") for said in ((tool, one) if j == 0 else (one,))]
            words = "\n\n".join(text for text in about if isinstance(text, str) and text)
            yield {**one, "description": words or None}, group, f"{path}.tools[{j}]"


def _kind(kind: object, path: str) -> str:
    if isinstance(kind, str):
        return kind
    raise BadRequest(f"`{path}.type` must be a string.", param=f"{path}.type")


def _name(tool: Json, namespace: str | None, path: str) -> str:
    name = tool.get("name")
    # The model writes the name inside a tag, from which it must be readable again.
    if isinstance(name, str) and re.fullmatch(TOOL_NAME, ToolName(name, namespace).flat):
        return name
    raise BadRequest(
        f'`{path}.name` must be a string of 1 to 256 characters without spaces, "<" or ">".',
        param=f"{path}.name",
    )


def _function(tool: Json, path: str) -> Json:
    if not isinstance(tool.get("parameters"), dict | None):
        raise BadRequest(
            f"`{path}.parameters` must be an object: a JSON schema.", param=f"{path}.parameters"
        )
    return {field: tool[field] for field in FUNCTION_FIELDS if tool.get(field) is not None}


def _custom(tool: Json) -> Json:
    """A tool that takes a text, as a function with one. Its grammar is shown, and not enforced."""
    about: dict[str, Any] = {"type": "string"}
    form = tool.get("format")
    if isinstance(form, Mapping) and form.get("type") == "grammar":
        # Both of OpenAI's spellings: flat, and with the grammar in a field of its own.
        inner = form.get("grammar")
        found = inner if isinstance(inner, Mapping) else form
        about["description"] = (
            f"It must match this {found.get('syntax')} grammar:\n{found.get('definition')}"
        )
    parameters = {"type": "object", "properties": {INPUT: about}, "required": [INPUT]}
    described = tool.get("description")
    shown: Json = {"name": tool["name"], "description": described, "parameters": parameters}
    return shown if isinstance(described, str) else {**shown, "description": ""}


def choice(wish: str | Json | None, on_offer: Offer) -> tuple[str | Json | None, tuple[Json, ...]]:
    """`tool_choice` as chat has it, and the tools that it speaks of; raises BadRequest.

    All stay on offer: the prompt must not change with the choice.
    """
    match wish:
        case None | str():
            return wish, on_offer.tools
        case {"type": "function" | "custom", "name": str(name)}:
            chosen = _chosen(wish, name, on_offer, "tool_choice.name")
            return {"type": "function", "function": {"name": chosen}}, on_offer.tools
        case {"type": "allowed_tools", "tools": list(allowed)}:
            return _allowed(wish, allowed, on_offer)
        case {"type": str(kind)} if kind in on_offer.left_out:
            raise BadRequest(
                f'`tool_choice` is "{kind}", a tool that the API itself would run. It is not '
                "served here: offer a function for it.",
                param="tool_choice",
            )
    raise BadRequest(
        '`tool_choice` must be "none", "auto", "required", {"type": "function" or "custom", '
        '"name": ...} or {"type": "allowed_tools", "mode": ..., "tools": [...]}.',
        param="tool_choice",
    )


def _allowed(
    wish: Json, allowed: list[Any], on_offer: Offer
) -> tuple[str | Json | None, tuple[Json, ...]]:
    """Some of the tools: the model must call one of them, or may, where they are all."""
    mode = wish.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise BadRequest(
            '`tool_choice.mode` must be "auto" or "required".', param="tool_choice.mode"
        )
    names = {
        _chosen(one, one["name"], on_offer, f"tool_choice.tools[{i}].name")
        for i, one in enumerate(allowed)
        if isinstance(one, Mapping) and isinstance(one.get("name"), str)
    }
    some = tuple(tool for tool in on_offer.tools if tool["function"]["name"] in names)
    if mode == "required":
        return "required", some
    if not some:
        return "none", on_offer.tools
    if len(some) < len(on_offer.tools):
        raise BadRequest(
            '`tool_choice` allows some of the tools with `mode` "auto"; here that is served with '
            '"required", or for all of them. Leave the others out of `tools`.',
            param="tool_choice",
        )
    return "auto", on_offer.tools


def _chosen(wish: Mapping[str, Any], name: str, on_offer: Offer, path: str) -> str:
    """The flat name of a tool that the client names; in a group, with the group's or its flat."""
    group = wish.get("namespace")
    flat = ToolName(name, group if isinstance(group, str) else None).flat
    if flat in on_offer.names:
        return flat
    offered = ", ".join(on_offer.names) or "none"
    raise BadRequest(f'`{path}` is "{name}", which is not among `tools` ({offered}).', param=path)
