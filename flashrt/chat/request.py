"""The one internal request that every protocol is translated into."""

from collections.abc import Mapping
from typing import Any

import attrs

from flashrt.chat.shape import AnswerShape

Json = dict[str, Any]


@attrs.frozen
class SamplingWish:
    """What the client asked for; None means 'the model's default'."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = attrs.field(factory=dict)
    seed: int | None = None
    logprobs: int | None = None
    """How many of the likeliest ids are told with each id; None: nothing is told."""


@attrs.frozen
class CacheHints:
    """What the client said about reuse. A namespace never depends on a session.

    `session`: how the client calls the conversation. `flashrt_session`: how this server does.
    """

    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    session: str | None = None
    flashrt_session: str | None = None


@attrs.frozen
class AgentRequest:
    """A request for one answer. Exactly one of `messages`, `text` and `ids` is given.

    `messages` are objects as the client spells them; `chat.messages` brings them into one shape.
    `tools` are function schemas in the OpenAI shape. `max_tokens` None: up to the window.
    `draft_tokens`: ids drafted a step; None leaves it to the engine.
    `continues_last`: where the last message is the assistant's own, the answer goes on inside it.
    `thinking_tokens`: ids that a think block may have; None is no limit.
    `shape`: what the answer must look like; None is free. `reads_calls`: whether a call in the
    answer is one, or just text; the tools are shown to the model either way.
    `pin_prefix`: keep the state at the last cut at or below so many tokens (True: the system
    turn's), or let go of what this prompt has pinned (False, 0).
    """

    model: str
    messages: tuple[Json, ...] | None = None
    text: str | None = None
    ids: tuple[int, ...] | None = None
    tools: tuple[Json, ...] = ()
    template_args: Json = attrs.field(factory=dict)
    sampling: SamplingWish = SamplingWish()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    draft_tokens: int | None = None
    continues_last: bool = True
    thinking_tokens: int | None = None
    shape: AnswerShape | None = None
    reads_calls: bool = True
    return_token_ids: bool = False
    pin_prefix: int | bool | None = None
    hints: CacheHints = CacheHints()

    @property
    def is_chat(self) -> bool:
        """Whether thinking and tool calls are read out of the answer."""
        return self.messages is not None
