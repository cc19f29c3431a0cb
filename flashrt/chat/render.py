"""From a request to a prompt: the template's text, cut at its control tokens, as cached segments."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flashrt.chat.messages import normalized
from flashrt.chat.probes import find_late_system, find_turn_marks, require_whole_control
from flashrt.chat.prompt import Prompt, Segment
from flashrt.chat.request import AgentRequest, Json
from flashrt.chat.template import CLOSE, MARKS, OPEN, Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.errors import BadRequest

CACHED_TOKENS_MAX = 500_000
"""Ids that the segment cache may hold, with their text: a few dozen long histories."""

PRIVATE_USE = (*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE), *range(0xE000, 0xF900))

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


class Renderer:
    """Renders requests to prompts. Called from several helper threads at a time.

    `turn_marks` bounds the system turn for the prefill cuts (`probes.TurnMarks`).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template,
        cached_tokens_max: int = CACHED_TOKENS_MAX,
    ) -> None:
        """Renders a few probes. Raises CannotServe for a template that cannot be served safely."""
        self._tokenizer = tokenizer
        self._template = template
        self._segments = SegmentCache(tokenizer, cached_tokens_max)
        require_whole_control(self._probe, tokenizer.control)
        self._late_system = find_late_system(self._probe)
        self.turn_marks = find_turn_marks(self._probe_segments)

    def render(self, request: AgentRequest) -> Prompt:
        """The canonical ids of a request. Raises BadRequest; nothing of it is kept then."""
        if request.ids is not None:
            return Prompt.from_ids(self._checked(request.ids))
        if request.text is not None:
            return Prompt.from_ids(self._not_empty(self._tokenizer.encode(request.text)))
        return self.to_prompt(self.to_text(request))

    def to_text(self, request: AgentRequest) -> "Marked":
        """The template's text. `render` is this and `to_prompt`; apart, so each can be measured."""
        messages = normalized(request.messages or (), late_system=self._late_system)
        return _rendered(self._template, messages, request.tools, request.template_args)

    def to_prompt(self, marked: "Marked") -> Prompt:
        """The segments and ids of a rendered text."""
        segments = [self._segments.of(text, control) for text, control in pieces(marked)]
        return Prompt.from_segments(segments, opens_thinking=opens_thinking(marked))

    def _checked(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        self._not_empty(ids)
        for token_id in (min(ids), max(ids)):
            if not 0 <= token_id < self._tokenizer.vocab_size:
                raise BadRequest(
                    f"The prompt has the token id {token_id}; this model's vocabulary has the ids "
                    f"0 to {self._tokenizer.vocab_size - 1}.",
                    param="prompt",
                )
        return ids

    def _not_empty(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        if not ids:
            raise BadRequest("The prompt is empty; it needs at least one token.", param="prompt")
        return ids

    def _probe(self, messages: Sequence[Json], tools: Sequence[Json] = ()) -> list[tuple[str, bool]]:
        return list(pieces(_rendered(self._template, messages, tools, {})))

    def _probe_segments(
        self, messages: Sequence[Json], tools: Sequence[Json] = ()
    ) -> list[tuple[str, Segment]]:
        found = self._probe(messages, tools)
        return [(text, self._segments.of(text, control)) for text, control in found]
