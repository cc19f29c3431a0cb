"""From a request to a prompt: the template's text, cut at control tokens, as cached segments."""

from collections.abc import Sequence

import attrs

from flashrt.chat.beginnings import Beginnings
from flashrt.chat.continuing import open_field, render_open, without_empty_end
from flashrt.chat.loops import KnownRounds, Rounds
from flashrt.chat.marked import Marked, Piece, holds_mark, opens_thinking, render_marked
from flashrt.chat.messages import normalized
from flashrt.chat.outliner import (
    HISTORY,
    HISTORY_TOOLS,
    Outliner,
    Talk,
    until_generation,
)
from flashrt.chat.probes import find_turn_marks, require_whole_control, takes_late_system
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest, Json
from flashrt.chat.seen import Seen
from flashrt.chat.segments import SegmentCache
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.chat.turns import find_answer_turn, strips_content, strips_system
from flashrt.errors import BadRequest

CACHED_BYTES_MAX = 32 << 20
"""What each cache may hold: two million ids with their text, some dozens of histories."""


class Renderer:
    """Renders requests to prompts. Called from several helper threads at a time.

    `turn_marks` are the ids that bound a system turn, for the prefill cuts. `strips_content`: the
    template leaves out blanks around an assistant's text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> None:
        """Renders a few probes. Raises CannotServe for a template that cannot be served safely."""
        self._tokenizer = tokenizer
        self._template = template
        self._cache = SegmentCache(tokenizer, cached_bytes_max)
        self._seen = Seen(holds_mark, cached_bytes_max)
        self._rounds = KnownRounds(cached_bytes_max)
        self._cached_bytes_max = cached_bytes_max
        self._late_system = True
        require_whole_control(self._show, tokenizer.control)
        self._late_system = takes_late_system(self._show)
        self.turn_marks = find_turn_marks(self._show, self._cache.segments)
        self.strips_content = strips_content(self._show)
        self._beginnings: Beginnings | None = None
        self._outliner = self._find_outliner()

    @property
    def cache_bytes(self) -> dict[str, int]:
        """What its caches hold, by name."""
        beginnings = 0 if self._beginnings is None else self._beginnings.held_bytes
        return {
            "beginnings": beginnings,
            "messages": self._seen.held_bytes,
            "rounds": self._rounds.held_bytes,
            "segments": self._cache.held_bytes,
        }

    def render(self, request: AgentRequest) -> Prompt:
        """The canonical ids of a request. Raises BadRequest."""
        if request.ids is not None:
            return Prompt.from_ids(self._checked(request.ids))
        if request.text is not None:
            return Prompt.from_ids(_not_empty(self._tokenizer.encode(request.text)))
        talk = self._talk(request)
        return self.to_prompt(self._marked(talk), talk)

    def to_text(self, request: AgentRequest) -> Marked:
        """The first half of `render` for messages: through the template."""
        return self._marked(self._talk(request))

    def to_prompt(self, marked: Marked, talk: Talk | None = None) -> Prompt:
        """The second half: to segments and ids, and with `talk` to an outline."""
        after = None if self._beginnings is None else self._beginnings.of(marked)
        rest = marked if after is None else marked.behind(after.text)
        pieces = rest.pieces()
        new = Prompt.from_segments(
            self._cache.segments(pieces),
            opens_thinking=opens_thinking(pieces, self._tokenizer.control),
        )
        if after is not None:
            packed, segments = after.packed + new.packed, after.segments + new.segments
            new = Prompt(packed, segments, new.opens_thinking)
        if talk is None or self._outliner is None or self._beginnings is None:
            return new
        known = None if after is None else after.known(talk)
        prompt = attrs.evolve(new, outline=self._outliner.outline(new.segments, talk, known))
        self._beginnings.keep(marked, prompt, talk, after)
        return prompt

    def _talk(self, request: AgentRequest) -> Talk:
        sent, reading = request.messages or (), self._seen.reading()
        messages = normalized(sent, late_system=self._late_system, seen=reading)
        tools, args = reading.same(request.tools), reading.same(request.template_args)
        joined = len(sent) - len(messages)
        field = None
        if request.continues_last:
            messages = without_empty_end(messages)
            field = open_field(messages)
        plain = not reading.asked
        return Talk(messages, tools, args, joined, len(sent), field, plain)

    def _marked(self, talk: Talk) -> Marked:
        values = {
            **talk.args,
            "messages": talk.messages,
            "tools": list(talk.tools) or None,
            "add_generation_prompt": True,
        }
        if talk.open_field is not None:
            return render_open(self._template, values, talk.open_field)
        rounds = Rounds(self._rounds, (talk.args, talk.tools))
        return render_marked(self._template, values, rounds, plain=talk.plain)

    def _find_outliner(self) -> Outliner | None:
        turn = find_answer_turn(self._show)
        if turn is None:
            return None

        def history(args: Json) -> str | None:
            request = AgentRequest("", HISTORY, tools=HISTORY_TOOLS, template_args=args)
            try:
                pieces = self.to_text(request).pieces()
            except BadRequest:
                return None
            return until_generation(self._cache.segments(pieces), turn)

        self._beginnings = Beginnings(turn.opening, self._cached_bytes_max)
        return Outliner(
            turn,
            self.turn_marks,
            strips_content=self.strips_content,
            strips_system=strips_system(self._show),
            history=history,
            tells_time="strftime_now" in self._template.source,
        )

    def _show(self, messages: Sequence[Json], tools: Sequence[Json]) -> list[Piece]:
        return self.to_text(
            AgentRequest(model="", messages=tuple(messages), tools=tuple(tools))
        ).pieces()

    def _checked(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        _not_empty(ids)
        for token_id in (min(ids), max(ids)):
            if not 0 <= token_id < self._tokenizer.vocab_size:
                raise BadRequest(
                    f"The prompt has the token id {token_id}; this model's vocabulary has the ids "
                    f"0 to {self._tokenizer.vocab_size - 1}.",
                    param="prompt",
                )
        return ids


def _not_empty(ids: tuple[int, ...]) -> tuple[int, ...]:
    if not ids:
        raise BadRequest("The prompt is empty; it needs at least one token.", param="prompt")
    return ids
