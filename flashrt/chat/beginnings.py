"""What earlier prompts began with: a turn that goes on from one is cut and named from there on.

A text that goes on with the same words is cut at the same control tokens. So of a prompt that is
rendered to the same letters up to a place where the template opens a turn, all in front of it is
known: its segments, its ids, and, while the client sends the same messages, the parts of its
outline.
"""

import sys
import threading
from collections import deque

import attrs

from flashrt.chat.marked import Marked
from flashrt.chat.outline import Outline
from flashrt.chat.outliner import Known, Talk
from flashrt.chat.prompt import ID_BYTES, PLACE_BYTES, Prompt, Segment
from flashrt.chat.template import CLOSE, OPEN

BEGINNINGS_MAX = 16
"""Conversations that go on at a time; another one is cut from its start."""


@attrs.frozen(eq=False)
class Beginning:
    """A prompt up to the turn that its answer was to stand in.

    `text` is as rendered, marks and all. `outline` has the parts up to there, and `talk` is what
    they were made of.
    """

    text: str
    segments: tuple[Segment, ...]
    packed: bytes
    outline: Outline
    talk: Talk

    @property
    def size_bytes(self) -> int:
        """What it holds by itself; segments and messages are held, and counted, elsewhere."""
        places = PLACE_BYTES * (len(self.segments) + len(self.talk.messages))
        return sys.getsizeof(self.text) + sys.getsizeof(self.packed) + places

    def known(self, talk: Talk) -> Known | None:
        """Its parts, if they are those of `talk` too: of the same messages, and then an answer."""
        before, count = self.talk, len(self.talk.messages)
        same = (
            talk.tools is before.tools
            and talk.args is before.args
            and talk.joined == before.joined
            and len(talk.messages) > count
            and talk.messages[count]["role"] == "assistant"
            and all(
                one is other for one, other in zip(before.messages, talk.messages, strict=False)
            )
        )
        return Known(self.outline.parts, count, self.outline.head) if same else None


class Beginnings:
    """The newest ones. Safe to use from several threads."""

    def __init__(self, opening: str, bytes_max: int) -> None:
        """`opening`: the control token that opens a turn."""
        self._opening = OPEN + opening + CLOSE
        self._bytes_max = bytes_max
        self._bytes = 0
        self._newest: deque[Beginning] = deque()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What they hold."""
        return self._bytes

    def of(self, marked: Marked) -> Beginning | None:
        """The longest one that a rendered text goes on from."""
        if marked.stand_ins is not None:
            return None
        with self._lock:
            newest = list(self._newest)
        found = [one for one in newest if self._goes_on(marked.text, one.text)]
        return max(found, key=lambda one: len(one.text), default=None)

    def keep(self, marked: Marked, prompt: Prompt, talk: Talk, after: Beginning | None) -> None:
        """Remember what a prompt begins with, in the stead of what it went on from."""
        made = self._made(marked, prompt, talk)
        if made is None or made.size_bytes > self._bytes_max:
            return
        with self._lock:
            if after is not None and after in self._newest:
                self._drop(after)
            self._newest.append(made)
            self._bytes += made.size_bytes
            while len(self._newest) > BEGINNINGS_MAX or self._bytes > self._bytes_max:
                self._drop(self._newest[0])

    # -- inside ----------------------------------------

    def _goes_on(self, text: str, before: str) -> bool:
        """Whether the turn that was open is open here."""
        return text.startswith(self._opening, len(before)) and text.startswith(before)

    def _made(self, marked: Marked, prompt: Prompt, talk: Talk) -> Beginning | None:
        """None: nobody can go on from there."""
        if marked.stand_ins is not None or talk.open_field is not None or prompt.outline is None:
            return None
        parts = prompt.outline.parts[:-1]
        stop = marked.text.rfind(self._opening)
        if not parts or stop < 0:
            return None
        tail = Marked(marked.text[stop:]).pieces()
        if len(prompt.segments) - len(tail) != parts[-1].stop_segment:
            return None  # the answer's turn is not the last one that is opened
        segments = prompt.segments[: parts[-1].stop_segment]
        packed = prompt.packed[: parts[-1].stop * ID_BYTES]
        outline = attrs.evolve(prompt.outline, parts=parts)
        return Beginning(marked.text[:stop], segments, packed, outline, talk)

    def _drop(self, one: Beginning) -> None:
        self._newest.remove(one)
        self._bytes -= one.size_bytes
