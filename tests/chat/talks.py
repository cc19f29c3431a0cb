"""Conversations of one agent, and short ways to render them."""

from typing import Any

from flashrt.chat.outline import PartKind
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from tests.chat.foreign import renderer
from tests.chat.vocabulary import TOOLS

Message = dict[str, Any]


def call(arguments: Any = '{"command": "ls", "limit": 1}', **more: Any) -> Message:
    """A call of `run`, as a message has it."""
    function = {"name": "run", "arguments": arguments}
    return {"id": "c1", "type": "function", "function": function, **more}


SYSTEM = {"role": "system", "content": "Rules."}
ASK = {"role": "user", "content": "Go."}
LOOK = {
    "role": "assistant",
    "content": "I look.",
    "reasoning_content": "Hm",
    "tool_calls": [call()],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
SAID = {"role": "assistant", "content": "It is there.", "reasoning_content": "Ah"}
AGAIN = {"role": "user", "content": "More."}
TALK = (SYSTEM, ASK, LOOK, RESULT, SAID, AGAIN)


def prompt(*messages: Message, by: str = "demo", tools: Any = TOOLS, **args: Any) -> Prompt:
    """A rendered conversation."""
    continues = args.pop("continues_last", False)
    request = AgentRequest(
        "m", messages, tools=tuple(tools), template_args=args, continues_last=continues
    )
    return renderer(by).render(request)


def keys(*messages: Message, **options: Any) -> list[str]:
    """The keys of all parts but the generation prompt."""
    outline = prompt(*messages, **options).outline
    assert outline is not None
    return [part.key for part in outline.parts if part.kind is not PartKind.GENERATION]


def with_one(at: int, **fields: Any) -> tuple[Message, ...]:
    """The conversation with some fields of one message set; `...` takes a field out."""
    changed = {**TALK[at], **fields}
    changed = {name: value for name, value in changed.items() if value is not ...}
    return (*TALK[:at], changed, *TALK[at + 1 :])
