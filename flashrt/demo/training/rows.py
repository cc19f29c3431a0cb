"""Batches: rows of packed dialogues and texts, each a function of seed, length and number alone.

Rows are made by worker processes ahead of time; which process makes one does not matter.
"""

import multiprocessing
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from flashrt.demo.training.corpus import corpus
from flashrt.demo.training.dialogues import Maker
from flashrt.demo.training.rendering import Piece, encode, joined, load_tokenizer, pieces

TEXT, PROMPT = 0.4, 0.03
"""Loss weights of natural text and of what others say, beside the 1 of the model's own words."""

OWN = 0.2
"""Weights above it are of language that the model may be asked for."""

Row = tuple[np.ndarray, np.ndarray]
"""Ids uint16 [T] and loss weights float16 [T]: of being predicted, not of predicting."""

Job = tuple[int, int, int]
"""Seed, number of the row, length."""

CHARACTERS_PER_TOKEN = 2.9
TEXT_SHARE = 0.12


class Rows:
    """Makes rows."""

    def __init__(self, tokenizer: Path) -> None:
        self.tokenizer = load_tokenizer(tokenizer)
        self.stop = self.tokenizer.token_to_id("<|endoftext|>")

    def row(self, job: Job) -> Row:
        """Dialogues one behind another, the last one cut; or, some times, a text."""
        seed, number, length = job
        r = random.Random(f"{seed}/{length}/{number}")
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            room = length - len(ids)
            if r.random() < TEXT_SHARE:
                more, said = self._text(r, min(room, 1024))
            else:
                more, said = self._dialogue(r, room)
            ids += more
            weights += said
        return np.array(ids[:length], np.uint16), np.array(weights[:length], np.float16)

    def _dialogue(self, r: random.Random, room: int) -> tuple[list[int], list[float]]:
        most = room * CHARACTERS_PER_TOKEN
        long = (
            int(r.uniform(0.2, 0.75) * most)
            if room >= 1024 and r.random() < (0.25 if room < 2048 else 0.5)
            else 0
        )
        dialogue = Maker(str(r.getrandbits(64)), long).dialogue()
        ids, said = encode(self.tokenizer, joined(pieces(dialogue)))
        if len(ids) > room and long:  # the answers would be cut off: do without the reading matter
            return self._dialogue(r, min(room, 1023))
        return ids, [1.0 if one else PROMPT for one in said]

    def _text(self, r: random.Random, room: int) -> tuple[list[int], list[float]]:
        kind = "code" if r.random() < 0.25 else "prose"
        text = r.choice(corpus()[kind])
        size = int(room * CHARACTERS_PER_TOKEN)
        at = r.randrange(max(1, len(text) - size // 2))
        parts: list[Piece] = [(text[at : at + size] + "<|endoftext|>", True)]
        ids, _ = encode(self.tokenizer, parts)
        return ids, [TEXT] * len(ids)


_rows: Rows | None = None


def _begin(tokenizer: Path) -> None:
    global _rows
    _rows = Rows(tokenizer)
    corpus()


def _make(job: Job) -> Row:
    assert _rows is not None
    return _rows.row(job)


class Loader:
    """Rows in order from `workers` processes (0: made on the spot)."""

    def __init__(self, tokenizer: Path, workers: int) -> None:
        self.pool = None
        if workers:
            context = multiprocessing.get_context("fork")  # before a GPU is touched
            self.pool = context.Pool(workers, _begin, (tokenizer,))
        else:
            _begin(tokenizer)

    def batches(self, plans: Iterator[list[Job]], ahead: int) -> Iterator[Row]:
        """For each plan its rows, stacked; `ahead` plans are in work beyond the present one."""
        waiting: deque = deque()
        for plan in plans:
            if self.pool is None:
                yield _stacked([_make(job) for job in plan])
                continue
            waiting.append(self.pool.map_async(_make, plan, chunksize=max(1, 2048 // plan[0][2])))
            if len(waiting) > ahead:
                yield _stacked(waiting.popleft().get())

    def close(self) -> None:
        """End the processes."""
        if self.pool is not None:
            self.pool.terminate()
            self.pool.join()


def _stacked(rows: list[Row]) -> Row:
    return np.stack([ids for ids, _ in rows]), np.stack([w for _, w in rows])
