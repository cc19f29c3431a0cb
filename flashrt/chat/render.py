"""From a request to a prompt: the template's text, cut at control tokens, as cached segments."""

from collections.abc import Sequence

from flashrt.chat.continuing import open_field, render_open, without_empty_end
from flashrt.chat.marked import Marked, Piece, opens_thinking, render_marked
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
from flashrt.chat.segments import SegmentCache
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.chat.turns import find_answer_turn, strips_content, strips_system
from flashrt.errors import BadRequest

CACHED_BYTES_MAX = 32 << 20
"""What the segment cache may hold: two million ids with their text, some dozens of histories."""


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
        self._late_system = True
        require_whole_control(self._show, tokenizer.control)
        self._late_system = takes_late_system(self._show)
        self.turn_marks = find_turn_marks(self._show, self._cache.segments)
        self.strips_content = strips_content(self._show)
        self._outliner = self._find_outliner()

    @property
    def held_bytes(self) -> int:
        """What its cache holds."""
        return self._cache.held_bytes

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
        pieces = marked.pieces()
        segments = self._cache.segments(pieces)
        outline = None
        if talk is not None and self._outliner is not None:
            outline = self._outliner.outline(segments, talk)
        return Prompt.from_segments(
            segments,
            opens_thinking=opens_thinking(pieces, self._tokenizer.control),
            outline=outline,
        )

    def _talk(self, request: AgentRequest) -> Talk:
        sent = request.messages or ()
        messages = normalized(sent, late_system=self._late_system)
        joined = len(sent) - len(messages)
        field = None
        if request.continues_last:
            messages = without_empty_end(messages)
            field = open_field(messages)
        return Talk(messages, request.tools, request.template_args, joined, len(sent), field)

    def _marked(self, talk: Talk) -> Marked:
        values = {
            **talk.args,
            "messages": talk.messages,
            "tools": list(talk.tools) or None,
            "add_generation_prompt": True,
        }
        if talk.open_field is not None:
            return render_open(self._template, values, talk.open_field)
        return render_marked(self._template, values)

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
