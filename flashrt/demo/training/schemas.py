"""Tools in the dress of real clients: schema keywords, parameters and tools that nobody asked for."""

import random
from typing import Any

from flashrt.demo.training.dialogue import Json, function

TEXT: Json = {"type": "string"}
EXTRA: list[tuple[str, Json]] = [
    ("metadata", {"type": "object", "additionalProperties": True}),
    ("options", {"type": "object", "properties": {"verbose": {"type": "boolean"}, "depth": {"type": "integer", "minimum": 0}}}),
    ("extra_args", {"type": "array", "items": TEXT, "description": "Anything else"}),
    ("page_cursor", {"type": ["string", "null"], "default": None}),
    ("output_format", {"type": "string", "enum": ["text", "json", "markdown"], "default": "text"}),
    ("retry_limit", {"type": "integer", "minimum": 0, "maximum": 10, "default": 3}),
    ("edits", {"type": "array", "items": {"type": "object", "properties": {"line": {"type": "number"}, "what": TEXT}, "required": ["line"]}}),
    ("encoding", {"type": "string", "description": "Optional, utf-8 if left out"}),
    ("sandbox", {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["strict", "off"]}]}),
]  # fmt: skip
"""Optional parameters that no request speaks of."""

DECOYS: list[tuple[str, str, Json, list[str]]] = [
    ("todowrite|todo_write|TodoWrite", "Keeps the list of tasks of this session", {"todos": {"type": "array", "items": {"type": "object", "properties": {"content": TEXT, "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}, "id": TEXT}, "required": ["content", "status"]}}}, ["todos"]),
    ("update_plan", "Updates the plan, step by step", {"explanation": TEXT, "plan": {"type": "array", "items": {"type": "object", "properties": {"step": TEXT, "status": TEXT}, "additionalProperties": False}}}, ["plan"]),
    ("task|Task|agent|Agent|spawn_agent", "Starts a helper that does a large task by itself", {"description": TEXT, "prompt": TEXT, "subagent_type": {"type": "string", "enum": ["general", "explore"]}}, ["prompt"]),
    ("question|ask_user_question|AskUserQuestion", "Asks the user to choose when something is unclear", {"questions": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"question": TEXT, "options": {"type": "array", "items": TEXT}}}}}, ["questions"]),
    ("skill|Skill", "Loads a skill by its name", {"name": TEXT}, ["name"]),
    ("exit_plan_mode|ExitPlanMode", "Ends planning once the plan is ready", {"plan": TEXT}, ["plan"]),
    ("save_memory", "Remembers a fact about the user for later sessions", {"fact": TEXT, "scope": {"type": "string", "enum": ["global", "project"]}}, ["fact"]),
    ("view_image", "Attaches a picture from the disk", {"path": TEXT}, ["path"]),
    ("write_stdin", "Types characters into a running session", {"session_id": {"type": "number"}, "chars": TEXT}, ["session_id"]),
    ("kill_shell|KillShell|TaskStop", "Ends a job in the background", {"shell_id": TEXT}, ["shell_id"]),
    ("NotebookEdit|notebook_edit", "Replaces a cell of a notebook", {"notebook_path": TEXT, "cell_id": TEXT, "new_source": TEXT}, ["notebook_path", "new_source"]),
    ("list_mcp_resources|ListMcpResources", "Lists what the connected servers offer", {"server": TEXT}, []),
    ("send_message|SendMessage", "Sends a message to a helper that runs", {"to": TEXT, "message": TEXT}, ["to", "message"]),
    ("lsp", "Asks the language server about a symbol", {"operation": {"type": "string", "enum": ["definition", "references", "hover"]}, "line": {"type": "integer", "exclusiveMinimum": 0}}, ["operation"]),
    ("multi_edit|apply_patch", "Applies several changes to files at once", {"patch": TEXT}, ["patch"]),
]  # fmt: skip
"""What agents offer beside the tools of a dialogue: names, description, parameters, required."""

SCHEMA = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]


def decoy(r: random.Random) -> Json:
    """One that is never the right one."""
    names, said, properties, required = r.choice(DECOYS)
    return function(r.choice(names.split("|")), said, dict(properties), list(required))


class Dress:
    """How one client writes all its tools."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        plain = r.random() < 0.4
        self.schema = "" if plain or r.random() < 0.6 else r.choice(SCHEMA)
        self.closed = not plain and r.random() < 0.6
        self.strict = not plain and r.random() < 0.25
        self.said_first = r.random() < 0.3
        self.required_first = not plain and r.random() < 0.2
        self.extra = 0.0 if plain else 0.3

    def put_on(self, tool: Json) -> Json:
        """The same function, dressed."""
        body = tool["function"]
        old = body["parameters"]
        properties = {name: self._ordered(part) for name, part in old["properties"].items()}
        if self.r.random() < self.extra:
            name, part = self.r.choice(EXTRA)
            properties.setdefault(name, part)
        parameters: Json = {"type": "object", "properties": properties}
        if old["required"] or self.r.random() < 0.5:
            parameters["required"] = old["required"]
        if self.required_first:
            parameters = dict(sorted(parameters.items(), key=lambda item: item[0] == "properties"))
        if self.closed:
            parameters["additionalProperties"] = False
        if self.schema:
            parameters = {"$schema": self.schema, **parameters}
        dressed: Json = {**body, "parameters": parameters}
        if self.strict:
            dressed["strict"] = False
        return {"type": "function", "function": dressed}

    def _ordered(self, part: dict[str, Any]) -> dict[str, Any]:
        if self.said_first and "description" in part:
            return {"description": part["description"], **part}
        return part


# ruff: noqa: E501 - tables of phrases
