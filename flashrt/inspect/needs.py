"""What a checkpoint will need in memory, by windows: the arithmetic of `flashrt serve`."""

from collections.abc import Sequence

import attrs

from flashrt.engine.checkpoint import OpenedCheckpoint
from flashrt.engine.memory import Memory, Needs
from flashrt.engine.placement import Placement, block_tokens
from flashrt.errors import CannotServe

WINDOWS = (32768, 131072)
"""Looked at if nothing is asked for, and the model's own."""


@attrs.frozen
class Window:
    """Bytes, by what takes them; see `Memory`."""

    max_seq: int
    weights_bytes: int
    state_bytes: int
    step_bytes: int
    graphs_and_libraries_bytes: int
    needed_bytes: int
    fits: bool

    @classmethod
    def of(cls, memory: Memory) -> "Window":
        """Without saved states, which have what is left."""
        return cls(
            max_seq=memory.max_seq,
            weights_bytes=memory.weights,
            state_bytes=memory.state,
            step_bytes=memory.step,
            graphs_and_libraries_bytes=memory.graphs + memory.libraries,
            needed_bytes=memory.needed,
            fits=memory.fits,
        )


@attrs.frozen
class Demand:
    """On one device."""

    device: str
    dtype: str
    kv_dtype: str
    """Of keys and values."""
    available_bytes: int
    prompt_block_tokens: int
    windows: tuple[Window, ...]
    longest: int | None
    """What `--max-seq auto` would choose: with room for one saved state; None: nothing fits."""


def demand(
    checkpoint: OpenedCheckpoint, place: Placement, available: int, asked: Sequence[int] = ()
) -> Demand:
    """Of each window asked for; none: of WINDOWS and the model's own. Allocates nothing.

    Raises CannotServe for a window that the model does not have.
    """
    own = checkpoint.config.max_positions
    if too_long := [window for window in asked if window > own]:
        raise CannotServe(
            f"--max-seq {too_long[0]}: the model's window is {own} tokens; ask for that or less"
        )
    block = block_tokens(str(place.device), 0)
    needs = Needs(checkpoint.config, place, checkpoint.layout, block, capsules=None)
    windows = asked or (*(window for window in WINDOWS if window < own), own)
    longest = needs.longest(available)
    return Demand(
        device=str(place.device),
        dtype=str(place.dtype).removeprefix("torch."),
        kv_dtype=str(place.kv_dtype).removeprefix("torch."),
        available_bytes=available,
        prompt_block_tokens=block,
        windows=tuple(Window.of(needs.of(window, available)) for window in windows),
        longest=longest.max_seq if longest else None,
    )
