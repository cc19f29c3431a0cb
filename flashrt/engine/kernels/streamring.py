"""What keeps a streamed launch fed and in step: a ring of tiles, and counters of units made."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
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
    """The tiles that a program multiplies, of four matrices in turn, and where they and the rows
    that meet them arrive."""

    out: tma.tensor_descriptor
    gate_up: tma.tensor_descriptor
    down: tma.tensor_descriptor
    project: tma.tensor_descriptor
    weights: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    places: gl.shared_memory_descriptor
    rows: gl.tensor
    firsts: gl.tuple
    ends: gl.tuple
    KB0: gl.constexpr
    KB1: gl.constexpr
    KB2: gl.constexpr
    INNER: gl.constexpr
    FORM: gl.constexpr
    TILE: gl.constexpr
    BOXES: gl.constexpr
    COLUMNS: gl.constexpr
    STAGES: gl.constexpr
    DEPTH: gl.constexpr
    WARPS: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, matrices, memory, rows, firsts, ends, KB0, KB1, KB2, INNER, FORM, TILE, BOXES,
        COLUMNS, STAGES, DEPTH, WARPS,
    ):  # fmt: skip
        self.out, self.gate_up, self.down, self.project = matrices
        self.weights, self.full, self.places = memory
        self.rows, self.firsts, self.ends = rows, firsts, ends
        self.KB0, self.KB1, self.KB2 = gl.constexpr(KB0), gl.constexpr(KB1), gl.constexpr(KB2)
        self.INNER = gl.constexpr(INNER)
        self.FORM = gl.constexpr(FORM)
        self.TILE, self.BOXES = gl.constexpr(TILE), gl.constexpr(BOXES)
        self.COLUMNS = gl.constexpr(COLUMNS)
        self.STAGES, self.DEPTH = gl.constexpr(STAGES), gl.constexpr(DEPTH)
        self.WARPS = gl.constexpr(WARPS)

    @gluon.jit
    def arm(self, i, stage):
        """Say how many bytes will arrive as tile i."""
        size: gl.constexpr = self.BOXES * self.TILE * BOX_BYTES
        mbarrier.expect(self.full.index(stage), size, pred=(i >= 0) & (i < self.ends[3]))

    @gluon.jit
    def fill(self, i, stage):
        """Let it begin to arrive, where there is a tile i."""
        if (i >= 0) & (i < self.ends[3]):
            if i < self.ends[0]:
                t = self.firsts[0] + i
                self.copy(self.out, row_of(t // self.KB0, 0, self.TILE), t % self.KB0, stage)
            elif i < self.ends[1]:
                t = self.firsts[1] + i - self.ends[0]
                row = row_of(t // self.KB1, self.INNER, self.TILE)
                self.copy(self.gate_up, row, t % self.KB1, stage)
            elif i < self.ends[2]:
                t = self.firsts[2] + i - self.ends[1]
                self.copy(self.down, row_of(t // self.KB2, 0, self.TILE), t % self.KB2, stage)
            else:
                t = self.firsts[3] + i - self.ends[2]
                self.copy(self.project, row_of(t // self.KB1, 0, self.TILE), t % self.KB1, stage)

    @gluon.jit
    def copy(self, matrix, row, k, stage):
        """The tile of a row and a step."""
        for box in gl.static_range(self.BOXES):
            column = (k * self.BOXES + box) * matrix.block_type.shape[1]
            place = self.weights.index(stage * self.BOXES + box)
            tma.async_copy_global_to_shared(matrix, [row, column], self.full.index(stage), place)

    @gluon.jit
    def fetch(self, X, slot, k, live, K: gl.constexpr):
        """Let what of the rows meets step k begin to arrive: pieces [terms * COLUMNS, WIDTH]."""
        TERMS: gl.constexpr = 1 if self.FORM == BF16 else 2
        PIECES: gl.constexpr = 2 if self.FORM == INT4 else self.BOXES
        WIDTH: gl.constexpr = BLOCK // 2 if self.FORM == BF16 else BLOCK
        L: gl.constexpr = gl.BlockedLayout([1, WIDTH // 8], [4, 8], [self.WARPS, 1], [1, 0])
        r = gl.arange(0, TERMS * self.COLUMNS, layout=gl.SliceLayout(1, L))
        c = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, L))
        m = r % self.COLUMNS
        at = ((r // self.COLUMNS * self.rows + m) * K)[:, None] + (k * (PIECES * WIDTH) + c)[
            None, :
        ]
        ok = (live & (m < self.rows))[:, None] & (c >= 0)[None, :]
        for piece in gl.static_range(PIECES):
            place = self.places.index(slot * PIECES + piece)
            async_copy.async_copy_global_to_shared(place, X + at + piece * WIDTH, mask=ok)
        async_copy.commit_group()


@gluon.jit
def ring_of(
    OUT, GATE_UP, DOWN, PROJECT, rows, H: gl.constexpr, K: gl.constexpr, WIDE: gl.constexpr,
    N: gl.constexpr, FORM: gl.constexpr, PER0: gl.constexpr, PER1: gl.constexpr,
    PER2: gl.constexpr, PER3: gl.constexpr, EACH: gl.constexpr, TILE: gl.constexpr,
    BOXES: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr, DEPTH: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """This program's, with the first weights on their way."""
    BOX: gl.constexpr = BOX_BYTES // (2 if FORM == BF16 else 1)
    SPAN: gl.constexpr = BOXES * BOX * (2 if FORM == INT4 else 1)
    PIECES: gl.constexpr = 2 if FORM == INT4 else BOXES
    TERMS: gl.constexpr = 1 if FORM == BF16 else 2
    ROWS: gl.constexpr = gl.bfloat16 if FORM == BF16 else gl.float8e4nv
    LAID: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=BOX_BYTES, element_bitwidth=16 if FORM == BF16 else 8, rank=2
    )
    weights = gl.allocate_shared_memory(OUT.dtype, [STAGES * BOXES, TILE, BOX], LAID)
    places = gl.allocate_shared_memory(ROWS, [DEPTH * PIECES, TERMS * COLUMNS, BOX], LAID)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.thread_barrier()
    lane = gl.program_id(0) * EACH
    firsts = (lane * PER0, lane * PER1, lane * PER2, lane * PER3)
    end0 = _share(H // TILE * (K // SPAN), lane, PER0, EACH)
    end1 = end0 + _share(2 * WIDE // TILE * (H // SPAN), lane, PER1, EACH)
    end2 = end1 + _share(H // TILE * (WIDE // SPAN), lane, PER2, EACH)
    end3 = end2 + _share((N + TILE - 1) // TILE * (H // SPAN), lane, PER3, EACH)
    ring = Ring(
        (OUT, GATE_UP, DOWN, PROJECT), (weights, full, places), rows, firsts,
        (end0, end1, end2, end3), K // SPAN, H // SPAN, WIDE // SPAN, WIDE, FORM, TILE, BOXES,
        COLUMNS, STAGES, DEPTH, WARPS,
    )  # fmt: skip
    for early in gl.static_range(STAGES):
        ring.arm(early, early)
    gl.thread_barrier()
    for early in gl.static_range(STAGES):
        ring.fill(early, early)
    return ring


@gluon.jit
def _share(tiles: gl.constexpr, lane, PER: gl.constexpr, EACH: gl.constexpr):
    """Tiles of a matrix that EACH lanes from `lane` on have."""
    return gl.maximum(gl.minimum(tiles - lane * PER, EACH * PER), 0)
