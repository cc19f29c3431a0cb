"""How much memory serving takes, before anything is allocated: pure arithmetic over a shape.

Whatever a request can make the engine hold is counted for the worst case: the longest prompt, its
longest block, the deepest draft. So it is known at start whether a window fits, and which is the
longest that does.
"""

from pathlib import Path

import attrs
import torch

from flashrt.engine.activations import Activations
from flashrt.engine.attention import SPLIT
from flashrt.engine.buffers import CHUNK, Buffers
from flashrt.engine.checkpoint import opened
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import head_copy_bytes
from flashrt.engine.kvcache import FP8, has_fp8
from flashrt.engine.linear import GROUP
from flashrt.engine.placement import Placement, free_bytes
from flashrt.engine.tensor_plan import Layout, allocate_all
from flashrt.errors import CannotServe

META = torch.device("meta")

LIBRARIES = {"cuda": 1 << 30, "cpu": 128 << 20}
"""By kind of device: kernels' code, the workspaces of libraries, and what the allocator cannot use.
An allowance, not a measurement."""

GRAPHS = {"cuda": 1 << 30, "cpu": 0}
"""What captured graphs keep for themselves; an allowance too (0.8 GB seen, for the 27B shape). The
room for saved states is counted when they are there."""

GB = 1e9


@attrs.frozen
class Memory:
    """Bytes that a window of `max_seq` tokens takes, and how many are free before."""

    max_seq: int
    weights: int
    state: int
    """The live state, with rotary tables."""
    step: int
    """Activations of the longest block of a prompt, or of the longest draft."""
    graphs: int
    libraries: int
    capsules: int
    """Saved states that must have room."""
    free: int

    @property
    def needed(self) -> int:
        """All parts together."""
        parts = (self.weights, self.state, self.step, self.graphs, self.libraries, self.capsules)
        return sum(parts)

    @property
    def fits(self) -> bool:
        """Whether there is room for all of it."""
        return self.needed <= self.free

    def words(self) -> str:
        """The numbers, as a person reads them."""
        parts = {
            "weights": self.weights,
            f"the state of {self.max_seq} tokens": self.state,
            "a step": self.step,
            "graphs": self.graphs,
            "libraries": self.libraries,
            "saved states": self.capsules,
        }
        told = [f"{size / GB:.2f} for {name}" for name, size in parts.items() if size]
        return f"{self.needed / GB:.2f} GB ({', '.join(told)}) of {self.free / GB:.2f} GB free"


@attrs.frozen
class Needs:
    """What memory depends on, but for the length of the window."""

    config: ModelConfig
    placement: Placement
    layout: Layout
    block_tokens: int
    """Tokens of a prompt that are processed together at most."""
    capsules: int | None
    """Bytes of saved states that were asked for; None: one of the whole window in an `auto` window,
    nothing in one that was asked for."""
    weights: int = attrs.field(init=False)

    @weights.default
    def _weights(self) -> int:
        made = allocate_all(self.config, META, self.placement.dtype, self.layout)
        return made.nbytes + head_copy_bytes(self.config, made.weights, self.placement.device)

    def of(self, max_seq: int, free: int, *, auto: bool = False) -> Memory:
        """Of one window."""
        kind, config, dtype = self.placement.device.type, self.config, self.placement.dtype
        kept = self.placement.kv_dtype
        buffers = Buffers.allocate(config, max_seq, META, dtype, kv_dtype=kept, mtp=self.layout.mtp)
        fixed = buffers.state_bytes(CHUNK - 1, config.conv_kernel)
        capsule = fixed + buffers.row_bytes(0, max_seq)
        packed, converted = bool(self.layout.quantized), kept != dtype
        activations = Activations(config, dtype.itemsize, packed=packed, converted=converted)
        return Memory(
            max_seq=max_seq,
            weights=self.weights,
            state=buffers.nbytes + self._tables(max_seq),
            step=activations.step_bytes(min(self.block_tokens, max_seq), max_seq),
            graphs=GRAPHS[kind],
            libraries=LIBRARIES[kind],
            capsules=(capsule if auto else 0) if self.capsules is None else self.capsules,
            free=free,
        )

    def longest(self, free: int) -> Memory | None:
        """The longest window that fits, in steps of what the buffers are rounded to; None: none.

        Longer never takes less, so halving finds it.
        """
        most = self.config.max_positions
        if (whole := self.of(most, free, auto=True)).fits:
            return whole
        fits, above = 0, -(-most // SPLIT)
        while above - fits > 1:
            middle = (fits + above) // 2
            if self.of(middle * SPLIT, free, auto=True).fits:
                fits = middle
            else:
                above = middle
        return self.of(fits * SPLIT, free, auto=True) if fits else None

    def _tables(self, max_seq: int) -> int:
        """cos and sin for each row and a group beyond the last."""
        rows = -(-max_seq // SPLIT) * SPLIT + GROUP
        return rows * self.config.rotary_dim * torch.float32.itemsize


def planned(
    folder: Path,
    placement: Placement,
    *,
    max_seq: int | None,
    block_tokens: int,
    capsules: int | None,
) -> Memory:
    """The memory of the checkpoint in `folder` with a window of `max_seq`, or for None with the
    longest that fits. Reads no weights. Raises CannotServe, with the numbers, where none does."""
    checkpoint = opened(folder)
    needs = Needs(checkpoint.config, placement, checkpoint.layout, block_tokens, capsules)
    return chosen(needs, max_seq, free_bytes(str(placement.device)))


def chosen(needs: Needs, max_seq: int | None, free: int) -> Memory:
    """See `planned`; `free` bytes are there."""
    if max_seq is None:
        longest = needs.longest(free)
        if longest is None:
            shortest = needs.of(SPLIT, free, auto=True)
            raise CannotServe(_refusal("no window fits", shortest, None, needs))
        return longest
    asked = needs.of(min(max_seq, needs.config.max_positions), free)
    if not asked.fits:
        what = f"--max-seq {max_seq} does not fit"
        raise CannotServe(_refusal(what, asked, needs.longest(free), needs))
    return attrs.evolve(asked, max_seq=max_seq)


def _narrow(needs: Needs) -> Needs:
    """The same with keys and values of 8 bits."""
    return attrs.evolve(needs, placement=attrs.evolve(needs.placement, kv_dtype=FP8))


def _refusal(what: str, memory: Memory, longest: Memory | None, needs: Needs) -> str:
    """Every number, and the ways out."""
    lacking = (memory.needed - memory.free) / GB
    ways = [f"--max-seq {longest.max_seq} fits"] if longest else []
    if has_fp8(needs.placement.device) and _narrow(needs).of(memory.max_seq, memory.free).fits:
        ways.append("--kv-cache-dtype fp8 makes it fit")
    if needs.capsules:
        ways.append("a smaller --capsule-budget-mb asks for less")
    ways.append("a smaller --chunk-tokens makes a step smaller")
    if not longest:
        ways.append("a smaller model takes less")
    return (
        f"{what} on {needs.placement.device}: it takes {memory.words()}, {lacking:.2f} GB too "
        f"much; {', '.join(ways)}"
    )
