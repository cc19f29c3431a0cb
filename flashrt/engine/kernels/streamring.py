"""What keeps a streamed launch fed and in step: a ring of tiles, and counters of units made."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.core import _aggregate as aggregate

from flashrt.engine.forms import BLOCK as _BLOCK

BF16, FP8, INT4 = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2)
"""How the weights lie: plain, FP8 blocks, int4 that lies wide."""

BLOCK = gl.constexpr(_BLOCK)

BOX_BYTES = gl.constexpr(128)
"""Of a row, in one copy: what shared memory takes in one piece."""

_COUNT = gl.constexpr("""
{
.reg .pred p;
.reg .b32 t;
mov.u32 t, %tid.x;
setp.eq.u32 p, t, 0;
@p red.release.gpu.global.add.u32 [$1], 1;
mov.u32 $0, 0;
}
""")

_AWAIT = gl.constexpr("""
{
.reg .pred p;
.reg .b32 t, now;
mov.u32 t, %tid.x;
setp.ne.u32 p, t, 0;
@p bra MET;
AGAIN:
ld.acquire.gpu.global.u32 now, [$1];
setp.lt.u32 p, now, $2;
@p bra AGAIN;
MET:
mov.u32 $0, 0;
}
""")


@gluon.jit
def count_one(COUNTER):
    """Say that this program has made a unit: what it wrote is seen by whoever awaits the count."""
    gl.thread_barrier()
    at = COUNTER.to(gl.int64, bitcast=True)
    gl.inline_asm_elementwise(_COUNT, "=r,l", [at], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def await_all(COUNTER, count):
    """Until so many units are made; then all of them are seen."""
    at = COUNTER.to(gl.int64, bitcast=True)
    gl.inline_asm_elementwise(_AWAIT, "=r,l,r", [at, count], dtype=gl.int32, is_pure=False, pack=1)
    gl.thread_barrier()


@gluon.jit
def row_of(n, WIDE: gl.constexpr, TILE: gl.constexpr):
    """Tile n's first row of the matrix. WIDE > 0: a unit is BLOCK gates and their ups, which lie
    WIDE rows apart."""
    HALF: gl.constexpr = BLOCK // TILE
    if WIDE > 0:
        row = n % (2 * HALF) // HALF * WIDE + n // (2 * HALF) * BLOCK + n % HALF * TILE
    else:
        row = n * TILE
    return row


@aggregate
class Ring:
    """The tiles that a program multiplies, of three matrices in turn, and where they arrive."""

    out: tma.tensor_descriptor
    gate_up: tma.tensor_descriptor
    down: tma.tensor_descriptor
    places: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    first0: gl.tensor
    first1: gl.tensor
    first2: gl.tensor
    end0: gl.tensor
    end1: gl.tensor
    end2: gl.tensor
    KB0: gl.constexpr
    KB1: gl.constexpr
    KB2: gl.constexpr
    INNER: gl.constexpr
    TILE: gl.constexpr
    BOXES: gl.constexpr
    STAGES: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, matrices, places, full, firsts, ends, KB0, KB1, KB2, INNER, TILE, BOXES, STAGES
    ):
        self.out, self.gate_up, self.down = matrices
        self.places = places
        self.full = full
        self.first0, self.first1, self.first2 = firsts
        self.end0, self.end1, self.end2 = ends
        self.KB0 = gl.constexpr(KB0)
        self.KB1 = gl.constexpr(KB1)
        self.KB2 = gl.constexpr(KB2)
        self.INNER = gl.constexpr(INNER)
        self.TILE = gl.constexpr(TILE)
        self.BOXES = gl.constexpr(BOXES)
        self.STAGES = gl.constexpr(STAGES)

    @gluon.jit
    def arm(self, i, stage):
        """Say how many bytes will arrive as tile i."""
        size: gl.constexpr = self.BOXES * self.TILE * BOX_BYTES
        mbarrier.expect(self.full.index(stage), size, pred=(i >= 0) & (i < self.end2))

    @gluon.jit
    def fill(self, i, stage):
        """Let it begin to arrive, where there is a tile i."""
        if (i >= 0) & (i < self.end2):
            if i < self.end0:
                t = self.first0 + i
                self.copy(self.out, row_of(t // self.KB0, 0, self.TILE), t % self.KB0, stage)
            elif i < self.end1:
                t = self.first1 + i - self.end0
                row = row_of(t // self.KB1, self.INNER, self.TILE)
                self.copy(self.gate_up, row, t % self.KB1, stage)
            else:
                t = self.first2 + i - self.end1
                self.copy(self.down, row_of(t // self.KB2, 0, self.TILE), t % self.KB2, stage)

    @gluon.jit
    def copy(self, matrix, row, k, stage):
        """The tile of a row and a step."""
        for box in gl.static_range(self.BOXES):
            column = (k * self.BOXES + box) * matrix.block_type.shape[1]
            place = self.places.index(stage * self.BOXES + box)
            tma.async_copy_global_to_shared(matrix, [row, column], self.full.index(stage), place)
