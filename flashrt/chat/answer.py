"""From sampled ids to deltas, and where the answer ends. Walked token by token."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import attrs

from flashrt.chat.deltas import (
    Delta,
    Ending,
    Fed,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
)
from flashrt.chat.drafts import CallsInThinking
from flashrt.chat.heard import Heard
from flashrt.chat.reader import Reader
from flashrt.chat.reads import PlainReader, Reads, Said
from flashrt.chat.request import Json
from flashrt.chat.stops import StopStrings
from flashrt.chat.tokenizer import IdsToText, Tokenizer
from flashrt.chat.visible import Visible


class Answer:
    """One answer as it grows. Lives on the engine thread.

    Of several endings the first in the order of tokens wins; of those that one token brings, a stop
    id wins over a stop string, and that over the length.
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        stop_ids: frozenset[int],
        stop_strings: Sequence[str] = (),
        max_tokens: int | None = None,
        reads_structure: bool,
        opens_thinking: bool = False,
        calls_in_thinking: CallsInThinking = CallsInThinking.TAKE_LAST,
        tools: Sequence[Json] = (),
        new_call_id: Callable[[], str],
        strips_content: bool = True,
    ) -> None:
        """`reads_structure` False: all text is text, and control tokens are not shown.

        `strips_content`: the template leaves out blanks around this text when it comes back.
        """
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids
        self._stop_strings = frozenset(stop_strings)
        self._max_tokens = max_tokens
        self._ids_to_text = IdsToText(tokenizer)
        self._stops = StopStrings(stop_strings)
        self._reader: Reads = PlainReader()
        if reads_structure:
            self._reader = Reader(
                control=tokenizer.control,
                tools=tools,
                new_call_id=new_call_id,
                opens_thinking=opens_thinking,
                calls_in_thinking=calls_in_thinking,
            )
        self._ends: list[int] = []  # for each token, the position at which its text ends
        self._whole: list[bool] = []  # for each token, whether it ends with a whole character
        self._texts: list[str] = []  # the answer's text by positions, where it may be cut
        self._heard = Heard(strips=strips_content)
        self._reasoning_tokens = 0
        self._deltas: list[Delta] = []
        self._ending: Ending | None = None
        self._stop_string: str | None = None

    def feed(self, tokens: Sequence[int]) -> Fed:
        """Take one burst; what lies behind an ending in it is ignored."""
        for token in tokens:
            if self._ending is not None:
                break
            self._ending = self._walk(token)
        return self._fed()

    def window_end(self) -> Fed:
        """The engine has no more room."""
        if self._ending is None:
            self._ending = self._finish(FinishReason.LENGTH)
        return self._fed()

    @property
    def visible(self) -> Visible:
        """What was said so far, as the client has it."""
        return self._heard.visible

    def _walk(self, token: int) -> Ending | None:
        if token in self._stop_ids:
            self._ends.append(self._reader.position)
            self._whole.append(True)
            return self._finish(FinishReason.STOP)
        cut = self._read(token)
        if cut is not None:
            return self._stopped(cut)
        if self._max_tokens is not None and len(self._ends) >= self._max_tokens:
            return self._finish(FinishReason.LENGTH)
        return None

    def _read(self, token: int) -> int | None:
        """Read one token; the position of a cut if it completes a stop string."""
        was_thinking = self._reader.is_thinking
        decoded = self._ids_to_text.feed(token)
        if self._stop_strings:
            self._texts += (decoded.text, decoded.control or "")
        cut = self._say(self._reader.text(decoded.text))
        if decoded.control is not None and cut is None:
            if decoded.control in self._stop_strings and self._reader.is_text:
                cut = self._reader.position
                self._stop_string = decoded.control
                self._reader.position += len(decoded.control)
                self._show_held()
            else:
                cut = self._say(self._reader.control(decoded.control))
        if was_thinking and self._reader.is_thinking:
            self._reasoning_tokens += 1
        self._ends.append(self._reader.position + self._ids_to_text.holds_part)
        self._whole.append(not self._ids_to_text.holds_part)
        return cut

    def _say(self, said: Sequence[Said]) -> int | None:
        """Let deltas out, visible text through the stop strings; the cut if one is complete."""
        for one in said:
            if not isinstance(one.delta, TextDelta):
                self._show_held()
                self._add(one.delta)
                continue
            shown = self._stops.feed(one.delta.text, one.at)
            self._add(TextDelta(shown.text))
            if shown.cut is not None:
                self._stop_string = shown.string
                return shown.cut
        return None

    def _show_held(self) -> None:
        self._add(TextDelta(self._stops.flush()))

    # -- endings --------------------------------------------------------------------------------

    def _finish(self, reason: FinishReason) -> Ending:
        """An ending that was not asked for by a stop string: what was held back as text comes out.

        Not so what the length left undecided (half a character, half a marker): every shorter
        answer is the beginning of the longer one.
        """
        said: list[Said] = []
        if reason is not FinishReason.LENGTH:
            rest = self._ids_to_text.flush()
            self._texts.append(rest)
            said = self._reader.text(rest)
        said += self._reader.finish(cut_off=reason is FinishReason.LENGTH)
        cut = self._say(said)
        if cut is not None:
            return self._stopped(cut)
        self._show_held()
        if reason is FinishReason.STOP and self._reader.complete_calls:
            reason = FinishReason.TOOL_CALLS
        return self._end(reason, len(self._ends))

    def _stopped(self, cut: int) -> Ending:
        """A stop string begins at `cut`: only tokens that end in front of it may stay.

        None of them may end inside a character whose rest is in a token that goes.
        """
        shown = bisect_right(self._ends, cut)
        while shown and not self._whole[shown - 1]:
            shown -= 1
        start = self._ends[shown - 1] if shown else 0
        text = "".join(self._texts)[start:cut]
        tail = self._tokenizer.encode_exactly(text) if text else ()
        return attrs.evolve(
            self._end(FinishReason.STOP, max(1, shown)),
            tail=tail,
            shown_tokens=shown,
            stop_string=self._stop_string,
        )

    def _end(self, reason: FinishReason, kept: int) -> Ending:
        return Ending(reason, len(self._ends), kept, self._reasoning_tokens)

    # -- deltas ---------------------------------------------------------------------------------

    def _add(self, delta: Delta) -> None:
        """Append a delta, or let the one before it grow."""
        self._heard.take(delta)
        before = self._deltas[-1] if self._deltas else None
        match before, delta:
            case _, TextDelta(""):
                pass
            case TextDelta(old), TextDelta(new):
                self._deltas[-1] = TextDelta(old + new)
            case ThinkingDelta(old), ThinkingDelta(new):
                self._deltas[-1] = ThinkingDelta(old + new)
            case ToolCallArguments(i, old), ToolCallArguments(j, new) if i == j:
                self._deltas[-1] = ToolCallArguments(i, old + new)
            case _:
                self._deltas.append(delta)

    def _fed(self) -> Fed:
        deltas, self._deltas = tuple(self._deltas), []
        return Fed(deltas, self._ending)
