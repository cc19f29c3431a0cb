"""Pieces of rendered text to ids, remembered by content."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from flashrt.chat.marked import Piece
from flashrt.chat.prompt import CONTROL, Segment
from flashrt.chat.tokenizer import Tokenizer


class SegmentCache:
    """Least recently used first out, bounded by its bytes. Safe to use from several threads.

    Text between two control tokens is encoded by itself, as the tokenizer would do inside a longer
    text, so a piece's ids depend on nothing but the piece.
    """

    def __init__(self, tokenizer: Tokenizer, bytes_max: int) -> None:
        self._tokenizer = tokenizer
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[str, Segment] = OrderedDict()
        self._lock = threading.Lock()
        self._control = {
            literal: Segment(key=f"{CONTROL}{literal}", ids=(token_id,), text=literal)
            for literal, token_id in tokenizer.control.items()
        }

    def segments(self, pieces: Sequence[Piece]) -> list[Segment]:
        """One segment for each piece."""
        with self._lock:
            found = [self._find(piece) for piece in pieces]
        made = {p.text: self._make(p.text) for s, p in zip(found, pieces, strict=True) if s is None}
        if made:
            with self._lock:
                for text, segment in made.items():
                    self._keep(text, segment)
        return [s or made[p.text] for s, p in zip(found, pieces, strict=True)]

    @property
    def held_bytes(self) -> int:
        """What the cache holds: texts, ids, and the objects around them."""
        return self._bytes

    def _find(self, piece: Piece) -> Segment | None:
        text, is_control = piece
        if is_control:
            return self._control[text]
        segment = self._known.get(text)
        if segment is not None:
            self._known.move_to_end(text)
        return segment

    def _make(self, text: str) -> Segment:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        return Segment(key=f"text:{digest}", ids=self._tokenizer.encode_text(text), text=text)

    def _keep(self, text: str, segment: Segment) -> None:
        if text in self._known or segment.size_bytes > self._bytes_max:
            return
        self._known[text] = segment
        self._bytes += segment.size_bytes
        while self._bytes > self._bytes_max:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.size_bytes
