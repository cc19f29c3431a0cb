"""Chooses the next id from a row of logits. The noise is a function of (seed, position, id) only.

A sampled id is the argmax of `score / temperature + G(seed, position, id)` over the ids that the
limits leave (the Gumbel-max trick: this draws from the softmax). So the text depends on the seed
and the logits, never on which other ids were candidates, on drafts, or on how a position was
reached. Order of the limits: penalties and biases; padding rows and the constraint; temperature;
top_k; top_p; min_p. Ties always go to the lowest id.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flashrt.engine.protocol import EngineMisuse, RowConstraint, SamplingParams, TokenLogprobs

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Shortlist = tuple[Ids, Floats]
"""Ids, ascending, and their scores."""

MASK64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB

TIES = 16
"""Ids beyond those that a shortlist needs: whether more are equal to its last one is seen there."""

NUCLEUS_FIRST_TRY = 1024
"""Sorting a whole vocabulary for top_p is slow; so many of the likeliest ids mostly suffice."""


class NoFiniteLogits(ArithmeticError):
    """The forward pass produced logits that nothing can be chosen from."""


class Sampler:
    """The choice of ids for one engine. Remembers id counts of the last journal it was shown."""

    def __init__(self, vocab_size: int, sampleable: int | None = None) -> None:
        """`sampleable`: ids from here on belong to no token and are never chosen."""
        self.vocab_size = vocab_size
        self.sampleable = vocab_size if sampleable is None else sampleable
        if not 0 < self.sampleable <= vocab_size:
            raise EngineMisuse(f"{sampleable} sampleable ids of {vocab_size}")
        self._counts = JournalCounts(vocab_size)

    def choose(
        self,
        logits: Tensor,
        params: SamplingParams,
        *,
        journal: Sequence[int],
        allowed: RowConstraint,
        shortlist: Shortlist | None = None,
    ) -> int:
        """The id for position len(journal), given its row `logits` [V] float32 on any device.

        `shortlist`: the row's own, if it has been made already. Raises EngineMisuse for a
        constraint that allows nothing, NoFiniteLogits for a broken row.
        """
        if logits.shape != (self.vocab_size,):
            raise EngineMisuse(f"logits of shape {tuple(logits.shape)}, not ({self.vocab_size},)")
        if allowed is not None and not isinstance(allowed, np.ndarray):
            return self._forced(int(allowed))
        if allowed is None:
            shortlist = shortlist or self.shortlists(logits[None], params)[0]
        if allowed is not None or shortlist is None:
            shortlist = self._shortlist(logits, params, journal, allowed)
        ids, values = shortlist
        if params.temperature <= 0:
            return int(ids[0])
        with np.errstate(over="ignore"):  # at a tiny temperature all but the best become -inf
            scaled = (values - values.max()) / params.temperature
        ids, scaled = _limited(ids, scaled, params)
        return int(ids[np.argmax(scaled + gumbel(params.seed, len(journal), ids))])

    def shortlists(self, logits: Tensor, params: SamplingParams) -> list[Shortlist | None]:
        """Per row [R, V] the ids that its choice is made of, in one transfer for all rows.

        None where the journal has a say in it, where too many ids are left to send, and for a row
        that is broken or has too many equals.
        """
        scores, count = logits[:, : self.sampleable], _asked(params)
        if _changes_scores(params) or not 0 < count + TIES <= self.sampleable:
            return [None] * len(logits)
        greedy = params.temperature <= 0  # of equals, `max` takes the first
        found = scores.max(-1, keepdim=True) if greedy else torch.topk(scores, count + TIES)
        values, ids = torch.stack((found.values.double(), found.indices.double())).cpu().numpy()
        pairs = zip(values, ids.astype(np.int64), strict=True)
        if greedy:
            return [(ids, values) if np.isfinite(values[0]) else None for values, ids in pairs]
        return [_shortened(ids, values, count) for values, ids in pairs]

    def _shortlist(
        self,
        logits: Tensor,
        params: SamplingParams,
        journal: Sequence[int],
        allowed: NDArray[np.bool_] | None,
    ) -> Shortlist:
        """Of one row, with all that may limit it."""
        scores = logits[: self.sampleable]
        if _changes_scores(params):
            scores = self._penalised(scores, params, journal)
        if allowed is not None:
            mask = torch.from_numpy(self._mask(allowed)).to(scores.device)
            scores = scores.masked_fill(~mask, -torch.inf)
        best = torch.argmax(scores)
        _check_finite(float(scores[best]), allowed)
        if params.temperature <= 0:
            return best.reshape(1).cpu().numpy(), scores[best].reshape(1).double().cpu().numpy()
        return _likeliest(scores, params.top_k)

    def logprobs(self, logits: Tensor, chosen: int, count: int) -> TokenLogprobs:
        """What row `logits` [V] says of the id chosen from it, and of its `count` likeliest ids.

        Of the raw row: nothing that limits the choice counts.
        """
        scores = logits[: self.sampleable].double()
        total = float(torch.logsumexp(scores, 0))
        if not count:
            return TokenLogprobs(float(scores[chosen]) - total)
        ids, values = _likeliest(scores, count)
        best = _descending(values)[:count]
        top = tuple((int(ids[i]), float(values[i]) - total) for i in best)
        return TokenLogprobs(float(scores[chosen]) - total, top)

    def _forced(self, token: int) -> int:
        if not 0 <= token < self.sampleable:
            raise EngineMisuse(f"forced id {token} is not one of {self.sampleable} tokens")
        return token

    def _mask(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if allowed.shape != (self.vocab_size,) or allowed.dtype != np.bool_:
            raise EngineMisuse(
                f"a mask of {allowed.dtype} {allowed.shape}, not bool ({self.vocab_size},)"
            )
        mask = allowed[: self.sampleable]
        if not mask.any():
            raise EngineMisuse("the constraint allows no token")
        return mask

    def _penalised(self, row: Tensor, params: SamplingParams, journal: Sequence[int]) -> Tensor:
        """A float64 copy with the repetition, then the presence and frequency penalty, then biases.

        Only ids that are in the journal or have a bias are touched.
        """
        scores = row.double()
        if _penalises(params):
            self._counts.show(journal, params.output_start)
        if params.repetition_penalty != 1.0:
            ids = self._on(scores, self._counts.seen())
            old, factor = scores[ids], params.repetition_penalty
            scores[ids] = torch.where(old > 0, old / factor, old * factor)
        if params.presence_penalty or params.frequency_penalty:
            answered, counts = self._counts.answered()
            ids = self._on(scores, answered)
            times = torch.from_numpy(counts[: len(ids)]).to(scores)
            scores[ids] -= params.presence_penalty + params.frequency_penalty * times
        known = {i: b for i, b in params.logit_bias.items() if 0 <= i < self.sampleable}
        if known:
            ids = self._on(scores, np.fromiter(known, np.int64))
            scores[ids] += torch.tensor(list(known.values()), dtype=torch.float64).to(scores.device)
        return scores

    def _on(self, scores: Tensor, ids: Ids) -> Tensor:
        """Ids that can be chosen at all, on the device of the scores; they are ascending."""
        if len(ids) and ids[-1] >= self.sampleable:
            ids = ids[ids < self.sampleable]
        return torch.from_numpy(ids).to(scores.device)


class JournalCounts:
    """How often each id is in a journal, and in its part from `output_start` on.

    Counts follow a journal that grows or shrinks by steps proportional to the difference; telling
    what the difference is costs one comparison of lists (30,000 ids: about 0.1 ms).
    """

    def __init__(self, vocab_size: int) -> None:
        self._known: list[int] = []
        self._start = 0
        self._all = np.zeros(vocab_size, np.int32)
        self._answer = np.zeros(vocab_size, np.int32)

    def show(self, journal: Sequence[int], output_start: int) -> None:
        """Count `journal` from now on."""
        now = journal if isinstance(journal, list) else list(journal)
        common = _common_length(self._known, now)
        if output_start != self._start:
            self._answer[:] = 0
            self._start = output_start
            np.add.at(self._answer, np.array(self._known[output_start:], np.int64), 1)
        self._move(self._known[common:], common, -1)
        self._move(now[common:], common, +1)
        self._known[common:] = now[common:]

    def seen(self) -> Ids:
        """The ids of the journal, ascending."""
        return np.flatnonzero(self._all > 0)  # of bools: five times as fast as of counts

    def answered(self) -> tuple[Ids, NDArray[np.int32]]:
        """The ids from `output_start` on, ascending, and how often each is there."""
        ids = np.flatnonzero(self._answer > 0)
        return ids, self._answer[ids]

    def _move(self, tail: Sequence[int], at: int, step: int) -> None:
        ids = np.array(tail, np.int64)
        np.add.at(self._all, ids, step)
        np.add.at(self._answer, ids[max(0, self._start - at) :], step)


def gumbel(seed: int, position: int, ids: Ids) -> Floats:
    """Standard Gumbel noise [n] for `ids` at `position`: SplitMix64 at counter `id`, keyed anew
    for each (seed, position).

    52 bits make the uniform number, so it is never 0 or 1 (Steele, Lea, Flood 2014, for the mix).
    """
    key = _mixed((_mixed(seed & MASK64) + position * GOLDEN) & MASK64)
    bits = np.uint64(key) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(MIX_1)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(MIX_2)
    bits ^= bits >> np.uint64(31)
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -np.log(-np.log(uniform))


def _mixed(x: int) -> int:
    """The finaliser of SplitMix64 on one number."""
    x = ((x ^ (x >> 30)) * MIX_1) & MASK64
    x = ((x ^ (x >> 27)) * MIX_2) & MASK64
    return x ^ (x >> 31)


def takes_likeliest(params: SamplingParams) -> bool:
    """Whether the choice of an unconstrained row is its best id, whatever the journal says."""
    return params.temperature <= 0 and not _changes_scores(params)


def _asked(params: SamplingParams) -> int:
    """How many of the likeliest ids a choice is made of; 0: of all."""
    return 1 if params.temperature <= 0 else params.top_k


def _shortened(ids: Ids, values: Floats, count: int) -> Shortlist | None:
    """The likeliest `count` of ids that come with TIES more, from the best down.

    Of equals the lowest ids are taken; None where there may be equals beyond those that came.
    """
    border = values[count - 1]
    if not np.isfinite(values[0]) or values[-1] >= border:
        return None
    order = np.argsort(ids[values >= border])
    ids, values = ids[order], values[order]
    kept = np.sort(_descending(values)[:count])
    return ids[kept], values[kept]


def _penalises(params: SamplingParams) -> bool:
    return bool(
        params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    )


def _changes_scores(params: SamplingParams) -> bool:
    return _penalises(params) or bool(params.logit_bias)


def _check_finite(best: float, allowed: RowConstraint) -> None:
    if np.isfinite(best):
        return
    if best == -np.inf and allowed is not None:
        raise EngineMisuse("every id that the constraint allows has probability 0")
    raise NoFiniteLogits(f"the best logit of the row is {best}")


def _likeliest(scores: Tensor, top_k: int) -> tuple[Ids, Floats]:
    """The candidates that top_k leaves, ascending by id, on the host."""
    if not 0 < top_k < len(scores):
        values = scores.double().cpu().numpy()
        ids = np.arange(len(values))
        return ids, values
    border = torch.topk(scores, top_k).values[-1]
    found = torch.nonzero(scores >= border).squeeze(1)  # ascending; with ties, more than top_k
    ids, values = found.cpu().numpy(), scores[found].double().cpu().numpy()
    kept = np.sort(_descending(values)[:top_k])
    return ids[kept], values[kept]


def _limited(ids: Ids, scaled: Floats, params: SamplingParams) -> tuple[Ids, Floats]:
    """What top_p, then min_p leave of the candidates, ascending by id; the best one scores 0."""
    if params.top_p < 1.0:
        kept = _nucleus(scaled, params.top_p)
        ids, scaled = ids[kept], scaled[kept]
    if params.min_p > 0.0:
        kept = np.flatnonzero(scaled >= np.log(min(params.min_p, 1.0)))
        ids, scaled = ids[kept], scaled[kept]
    return ids, scaled


def _nucleus(scaled: Floats, top_p: float) -> Ids:
    """Indices, ascending, of the fewest likeliest candidates whose probabilities reach top_p."""
    weights = np.exp(scaled)
    goal = top_p * weights.sum()
    first = np.arange(len(scaled))
    if len(scaled) > NUCLEUS_FIRST_TRY:
        border = np.partition(scaled, -NUCLEUS_FIRST_TRY)[-NUCLEUS_FIRST_TRY]
        likely = np.flatnonzero(scaled >= border)
        if weights[likely].sum() >= goal:
            first = likely
    order = first[_descending(scaled[first])]
    reached = np.cumsum(weights[order])
    kept = 1 + np.count_nonzero(reached[:-1] < goal)
    return np.sort(order[:kept])


def _descending(values: Floats) -> Ids:
    """Indices from the largest value to the smallest; equal values keep their order."""
    return np.argsort(-values, kind="stable")


def _common_length(a: list[int], b: list[int]) -> int:
    """Length of the common prefix. Lists are compared in C; usually one extends the other."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
