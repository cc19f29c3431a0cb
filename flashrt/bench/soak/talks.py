"""What the clients talk about: conversations and the wishes of single requests, drawn from dice."""

import random
from collections.abc import Mapping
from typing import Any

import attrs

Message = dict[str, Any]

TEXT = (
    "the shelf north south look up where is a book that nobody has read since winter tell me which "
    "file holds it and why every second line of this report comes late again please check twice"
)
WORDS = TEXT.split()

SYSTEMS = 5
"""Different system prompts of all clients: fresh conversations often share their opening."""

TALK_MESSAGES_MAX = 14

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks something up",
        "parameters": {
            "type": "object",
            "properties": {
                "shelf": {"type": "string", "enum": ["north", "south"]},
                "deep": {"type": "boolean"},
            },
            "required": ["shelf", "deep"],
        },
    },
}
OTHER_TOOL = {"type": "function", "function": {"name": "list_files", "parameters": {}}}


def words(rng: random.Random, least: int, most: int) -> str:
    """A text without sense."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


@attrs.define
class Talk:
    """A conversation. `fields`: what all of its requests have in common, such as tools."""

    messages: list[Message]
    fields: Mapping[str, Any]

    def turns(self) -> list[int]:
        """Where the user speaks."""
        return [i for i, message in enumerate(self.messages) if message["role"] == "user"]

    @property
    def full(self) -> bool:
        """Whether it is long enough."""
        return len(self.messages) >= TALK_MESSAGES_MAX

    def cut(self, length: int) -> "Talk":
        """Another conversation that begins with the first `length` messages."""
        return Talk(list(self.messages[:length]), self.fields)

    def body(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """The request for its next answer."""
        return {"model": "any", "messages": self.messages, **self.fields, **wish}


def new_talk(rng: random.Random) -> Talk:
    """A conversation before its first question."""
    opening = random.Random(rng.randrange(SYSTEMS))
    system = {"role": "system", "content": words(opening, 20, 90)}
    fields: dict[str, Any] = {"enable_thinking": rng.random() < 0.4}
    if rng.random() < 0.5:
        fields["tools"] = [TOOL, OTHER_TOOL][: rng.randint(1, 2)]
    return Talk([system], fields)


def question(rng: random.Random) -> Message:
    """What a user says."""
    return {"role": "user", "content": words(rng, 2, 25)}


def wish(rng: random.Random) -> dict[str, Any]:
    """How one request wants its answer: length, streaming, stops, logprobs, drafts, sampling."""
    asked: dict[str, Any] = {
        "max_tokens": rng.randint(1, 12),
        "temperature": 0,
        "stream": rng.random() < 0.6,
        "flashrt_return_token_ids": True,
    }
    odds: tuple[tuple[float, dict[str, Any]], ...] = (
        (0.15, {"stop": rng.sample(["e", "a", "st", " the", "\n"], 2)}),
        (0.10, {"logprobs": True, "top_logprobs": rng.randint(0, 5)}),
        (0.15, {"flashrt_draft_tokens": rng.randint(0, 8)}),
        (0.10, {"temperature": 1, "seed": rng.randrange(1000)}),
        (0.15, {"cache_salt": rng.choice(["one", "two"])}),
        (0.05, {"flashrt_pin_prefix": rng.choice([True, False])}),
    )
    for chance, fields in odds:
        if rng.random() < chance:
            asked |= fields
    if asked["stream"] and rng.random() < 0.5:
        asked["stream_options"] = {"include_usage": True}
    return asked


def structured_wish(rng: random.Random) -> dict[str, Any]:
    """A request whose answer has a shape that is enforced."""
    shape = {"type": "json_schema", "json_schema": {"name": "place", "schema": SHELF}}
    forms: tuple[dict[str, Any], ...] = (
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL, OTHER_TOOL], "tool_choice": {"type": "function", "function": CHOSEN}},
        {"response_format": shape},
    )
    return {**wish(rng), "enable_thinking": False, "max_tokens": 80, **rng.choice(forms)}


SHELF = TOOL["function"]["parameters"]  # type: ignore[index]
CHOSEN = {"name": "look_up"}


def is_comparable(body: Mapping[str, Any]) -> bool:
    """Whether the ids of the answer follow from those of the prompt alone."""
    free = body.get("tool_choice") is None and body.get("response_format") is None
    return free and body["temperature"] == 0
