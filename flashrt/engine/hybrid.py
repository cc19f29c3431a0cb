"""The real engine: the protocol over a Qwen3.5-type model on one device.

Ids, boundaries and refusals are here; tensors are in the live state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from flashrt.engine.ahead import Likeliest
from flashrt.engine.checkpoint import load_checkpoint
from flashrt.engine.choices import Choices, best_is_all
from flashrt.engine.config import ModelConfig
from flashrt.engine.drafting.depth import LOOKUP, MTP
from flashrt.engine.drafting.lookup import PromptLookup
from flashrt.engine.hostcopy import HostCopies, from_bytes, to_bytes
from flashrt.engine.identity import identity_of
from flashrt.engine.kernels import graphs_captured
from flashrt.engine.kvcache import check_served
from flashrt.engine.live import LiveState
from flashrt.engine.placement import is_out_of_memory
from flashrt.engine.protocol import (
    ROLLBACK_MAX,
    Capsule,
    Constraint,
    ContextFull,
    DecodeChunk,
    EngineInfo,
    EngineMisuse,
    HostCopy,
    RawBuffer,
    RowBlock,
    RowConstraint,
    SamplingParams,
    TokenLogprobs,
)
from flashrt.engine.sampler import Sampler, Shortlist
from flashrt.engine.selfcheck import check_rows
from flashrt.engine.speculate import Draft, Drafting, NoDrafts, accept, drafts_for, limits_of
from flashrt.engine.weights import ModelWeights
from flashrt.errors import CannotServe, EngineFailed, OutOfMemory

T = TypeVar("T")

DRAFT_TOKENS_MAX = 8


class HybridEngine:
    """One hot model; device and dtype are those of its weights."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        *,
        max_seq: int,
        model_name: str,
        kv_dtype: torch.dtype | None = None,
        unused: tuple[str, ...] = (),
        threads: int | None = None,
        sampleable: int | None = None,
        draft_tokens_max: int = DRAFT_TOKENS_MAX,
    ) -> None:
        """`kv_dtype`: what K and V are kept in, if not the weights' own; one of `kvcache`.
        `sampleable`: ids from here on belong to no token and are never chosen.
        `draft_tokens_max`: the MTP layer drafts at most so many a step; 0: nothing drafts.

        Fixes torch's thread count (of the process) to `threads`, or to what it is now: a sum's bits
        depend on it. Raises CannotServe where `max_seq` passes the model's own window, where the
        device has no such `kv_dtype`, or where this machine does not keep the bits of a row.
        """
        if not 1 < max_seq <= config.max_positions:
            raise CannotServe(
                f"max_seq = {max_seq}: the model's window is {config.max_positions} tokens; "
                "ask for that or less, and at least 2"
            )
        torch.set_num_threads(threads or torch.get_num_threads())
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        embed = weights.embed
        kv_dtype = kv_dtype or embed.dtype
        check_served(kv_dtype, embed.device)
        drafters = (LOOKUP,) if weights.mtp is None else (MTP, LOOKUP)
        self._info = EngineInfo(
            model_name=model_name,
            vocab_size=config.vocab_size,
            max_seq=max_seq,
            device=str(embed.device),
            dtype=str(embed.dtype).removeprefix("torch."),
            kv_dtype=str(kv_dtype).removeprefix("torch."),
            identity=identity_of(config, weights, kv_dtype),
            unused=unused,
            draft_tokens_max=draft_tokens_max,
            drafters=drafters if draft_tokens_max else (),
        )
        self._live = LiveState.allocate(config, weights, max_seq, kv_dtype)
        self._sampler = Sampler(config.vocab_size, sampleable)
        self._likeliest = Likeliest(embed.device)
        self._lookup = PromptLookup()
        self._copies = HostCopies(embed.device)
        self._journal: list[int] = []
        self._epoch = 0
        check_rows(self._live)
        self._captured_at_start = graphs_captured()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype | None = None,
        max_seq: int | None = None,
        threads: int | None = None,
        sampleable: int | None = None,
        draft_tokens_max: int = DRAFT_TOKENS_MAX,
        progress: bool = True,
    ) -> "HybridEngine":
        """From a checkpoint folder; without `max_seq`, the model's whole window."""
        loaded = load_checkpoint(path, device=device, dtype=dtype, progress=progress)
        return cls(
            loaded.config,
            loaded.weights,
            max_seq=max_seq or loaded.config.max_positions,
            model_name=loaded.model_name,
            kv_dtype=kv_dtype,
            unused=loaded.unused,
            threads=threads,
            sampleable=sampleable,
            draft_tokens_max=draft_tokens_max,
        )

    @property
    def info(self) -> EngineInfo:
        """Facts that never change."""
        return self._info

    @property
    def graph_capture_count(self) -> int:
        """Graphs that the process has captured since this engine was there."""
        return graphs_captured() - self._captured_at_start

    @property
    def position(self) -> int:
        """Tokens the live state has processed."""
        return self._live.position

    @property
    def journal(self) -> Sequence[int]:
        """Processed ids, and the pending one."""
        return tuple(self._journal)

    def reset(self) -> None:
        """Forget everything."""
        self._epoch += 1
        self._forget()

    def prefill(self, tokens: Sequence[int], cuts: Sequence[int] = ()) -> Iterator[int]:
        """Extend the live state by `tokens`, one block per piece."""
        self._epoch += 1
        return self._alone(lambda: self._prefill(tuple(tokens), tuple(cuts)))

    def decode(
        self, params: SamplingParams, constraint: Constraint | None = None
    ) -> Iterator[DecodeChunk]:
        """Produce ids in bursts as long as drafts are right."""
        self._epoch += 1
        return self._alone(lambda: self._decode(params, constraint))

    def drop_pending(self) -> None:
        """Forget the pending id, if there is one."""
        self._epoch += 1
        del self._journal[self.position :]

    def rollback(self, n: int) -> None:
        """Drop the newest n journal ids."""
        left = len(self._journal) - n
        if not 0 <= n <= ROLLBACK_MAX:
            raise EngineMisuse(f"rollback of {n} ids; 0 to {ROLLBACK_MAX} are possible")
        if left < 1 or left - 1 < self._live.floor:
            raise EngineMisuse(
                f"rollback of {n} of {len(self._journal)} ids would leave {left - 1} processed; "
                f"the floor is {self._live.floor}, and one id must be left"
            )
        self._epoch += 1
        del self._journal[left:]
        self._live.truncate(left - 1)

    def snapshot(self, length: int | None = None) -> Capsule:
        """A copy of the state here, or as it stood at `length` processed ids; rows are shared."""
        at = self._reachable(length)
        state = self._live.saved_state(at)
        pending = self._journal[at:] if length is None else []
        return Capsule(
            position=at,
            pending=next(iter(pending), None),
            identity=self._info.identity,
            state=MappingProxyType(state),
            state_bytes=sum(buffer.nbytes for buffer in state.values()),
            rows=self._live.rows.covering(at, self._journal, self._live.saved_rows),
        )

    def snapshot_bytes(self, length: int | None = None) -> int:
        """By shapes, see `Buffers.state_bytes` and `Buffers.row_bytes`; nothing is copied."""
        at = self._reachable(length)
        return self._live.new_bytes(at)

    def restore(self, capsule: Capsule) -> None:
        """Become the state of `capsule`."""
        if capsule.identity != self._info.identity:
            raise EngineMisuse(
                f"a capsule of engine {capsule.identity!r}; this is {self._info.identity!r}"
            )
        tokens = capsule.tokens
        if len(tokens) > self._info.max_seq:
            raise EngineMisuse(f"a capsule of {len(tokens)} ids; max_seq is {self._info.max_seq}")
        self._epoch += 1
        try:
            self._live.become(capsule)
        except Exception as error:
            self._forget()
            raise EngineFailed(f"the capsule's buffers do not fit: {error}") from error
        finally:
            for buffers in (capsule.state, *(block.buffers for block in capsule.rows)):
                self._copies.arrived(buffers)
        self._journal = list(tokens)

    def take_host(self, size_bytes: int, /) -> int:
        """Pinned memory beside a GPU."""
        return self._copies.take(size_bytes)

    def host_bytes(self, size_bytes: int, /) -> int:
        """In whole pages of what was taken."""
        return self._copies.rounded(size_bytes)

    def to_host(self, buffers: Mapping[str, Any], /) -> HostCopy:
        """On a side stream of a GPU, into pinned memory if some was taken."""
        return self._copies.begin(buffers)

    def for_file(self, buffers: Mapping[str, Any], /) -> HostCopy:
        """By a thread beside a GPU."""
        return self._copies.apart(buffers)

    def to_device(self, buffers: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Once over the bus; on a CPU the buffers are where they should be."""
        return self._copies.back(buffers)

    def to_bytes(self, buffers: Mapping[str, Any], /) -> Mapping[str, RawBuffer]:
        """Nothing is copied."""
        return to_bytes(buffers)

    def from_bytes(self, raw: Mapping[str, RawBuffer], /) -> Mapping[str, Any]:
        """Nothing is copied that may be written to."""
        return from_bytes(raw)

    def refill(self, block: RowBlock, /) -> Mapping[str, Any]:
        """Within the memory of the device."""
        if not self._live.rows.equal_to(block):
            raise EngineMisuse(f"the live rows are not those of [{block.start}, {block.stop})")
        return MappingProxyType(self._live.saved_rows(block.start, block.stop))

    # -- inside ------------------------------------------------------------------------------------

    def _reachable(self, length: int | None) -> int:
        """The position of a snapshot at `length`. Raises EngineMisuse if it is out of reach."""
        at = self.position if length is None else length
        oldest = max(self._live.floor, self.position - ROLLBACK_MAX, 1)
        if not oldest <= at <= self.position:
            raise EngineMisuse(f"snapshot at {at}; {oldest} to {self.position} can be reached")
        return at

    def _forget(self) -> None:
        self._journal = []
        self._live.reset()

    def _alone(self, begin: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Resume only while nothing else has changed the state since the first resume."""
        self._epoch += 1
        epoch, steps = self._epoch, begin()
        while True:
            if self._epoch != epoch:
                raise EngineMisuse("the state was changed while this generator stood at a boundary")
            try:
                value = next(steps)
            except StopIteration:
                return
            yield value

    def _prefill(self, tokens: tuple[int, ...], cuts: tuple[int, ...]) -> Iterator[int]:
        start, end = self.position, self.position + len(tokens)
        self._check_ids(tokens)
        if list(cuts) != sorted(set(cuts)) or not all(start < cut < end for cut in cuts):
            raise EngineMisuse(f"cuts {cuts} do not rise strictly inside ({start}, {end})")
        if end > self._info.max_seq:
            raise ContextFull(f"{end} tokens; max_seq is {self._info.max_seq}")
        del self._journal[start:]
        for stop in (*cuts, end):
            piece = tokens[self.position - start : stop - start]
            self._guard(self._live.process_block, piece)
            self._journal += piece
            yield stop

    def _check_ids(self, tokens: tuple[int, ...]) -> None:
        if not tokens:
            raise EngineMisuse("prefill of no tokens")
        low, high = min(tokens), max(tokens)
        if low < 0 or high >= self._info.vocab_size:
            odd = low if low < 0 else high
            raise EngineMisuse(f"id {odd} is outside the vocabulary of {self._info.vocab_size}")

    def _decode(
        self, params: SamplingParams, constraint: Constraint | None
    ) -> Iterator[DecodeChunk]:
        if self.position == 0:
            raise EngineMisuse("decode before any prefill or restore")
        pending = self._journal[self.position :]
        if params.stop_ids.intersection(pending):
            raise EngineMisuse(f"the pending id {pending[0]} is a stop id")
        drafting = self._drafting(params)
        ahead = isinstance(drafting, NoDrafts)
        accepted: tuple[int, ...] = ()
        while len(self._journal) < self._info.max_seq:
            draft = self._drafted(drafting)
            allowed = limits_of(constraint, accepted, draft.ids)
            accepted, told = self._verified(draft, params, allowed, ahead)
            drafting.observe(draft, accepted)
            yield DecodeChunk(accepted, len(draft.ids), draft.drafter if draft.ids else "", told)
            if params.stop_ids.intersection(accepted):
                return

    def _drafting(self, params: SamplingParams) -> Drafting:
        """What drafts in one call of decode."""
        most, drafters = self._info.draft_tokens_max, self._info.drafters
        return drafts_for(self._live, self._sampler, self._lookup, params, most, drafters)

    def _drafted(self, drafting: Drafting) -> Draft:
        """Something that the window has room for, one id of the model's own behind it included."""
        room = min(self._info.max_seq - len(self._journal), self._live.rows_max) - 1
        if room < 1 or len(self._journal) == self.position:
            return Draft()
        return self._guard(drafting.propose, self._journal, room)

    def _verified(
        self,
        draft: Draft,
        params: SamplingParams,
        allowed: Sequence[RowConstraint] | None,
        ahead: bool,
    ) -> tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]:
        """Process the pending id, if there is one, and the draft; keep what the rows choose, and
        tell what they say of it."""
        start, journal = len(self._journal), self._journal
        rows = (*journal[self.position :], *draft.ids)
        if rows:
            self._guard(self._live.process_rows, rows)
        ahead = bool(ahead and rows and len(journal) + 1 < self._info.max_seq)
        choices = self._choices(1 + len(draft.ids), params, allowed is None, ahead)

        def choose(row: int) -> int:
            return choices.of(row, journal, None if allowed is None else allowed[row])

        try:
            accept(choose, draft.ids, params.stop_ids, journal)
        finally:
            # The newest id is pending; without any, all but the draft is processed.
            self._live.take_back(max(start, len(journal) - 1))
        accepted = tuple(journal[start:])
        return accepted, choices.told(accepted)

    def _choices(self, count: int, params: SamplingParams, free: bool, ahead: bool) -> Choices:
        """What the newest rows are chosen by. `free`: no constraint has a say; `ahead`: the device
        may go on with the row behind the one there is, if it can tell which."""
        shortlists: list[Shortlist | None] = [None] * count
        if free and best_is_all(params):
            most, ahead = self._sampler.sampleable, ahead and self._live.may_run_ahead
            shortlists = self._guard(self._likeliest.of, self._live, count, most, ahead)
            if None not in shortlists:
                return Choices(self._sampler, params, None, shortlists)
        logits = self._guard(self._live.logits_of, count)  # of a broken row to say what is wrong
        if free and not best_is_all(params):
            shortlists = self._sampler.shortlists(logits, params)
        return Choices(self._sampler, params, logits, shortlists)

    def _guard(self, step: Callable[..., T], *arguments: Any) -> T:
        """Run a step of the forward pass. One that fails half-way leaves no state to go on from."""
        try:
            return step(*arguments)
        except Exception as error:
            self._forget()
            kind = OutOfMemory if is_out_of_memory(error) else EngineFailed
            raise kind(f"a step of the forward pass failed: {error}") from error
