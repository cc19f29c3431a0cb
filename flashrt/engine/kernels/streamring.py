"""What keeps a streamed launch fed and in step: a ring of tiles, and counters of units made.

Two warps beside those that multiply do nothing but let tiles arrive: one the weights, as soon as
there is room; one the rows that meet them, as soon as they are made.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.language.core import _aggregate as aggregate
from triton.language.extra.cuda import gdc_wait

from flashrt.engine.forms import BLOCK as _BLOCK
from flashrt.engine.kernels.described import ROW_BYTES

BF16, FP8, INT4 = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2)
"""How the weights lie: plain, FP8 blocks, int4 that lies wide."""

BLOCK = gl.constexpr(_BLOCK)

BOX_BYTES = gl.constexpr(ROW_BYTES)

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

_AWAIT_TO_COPY = gl.constexpr("""
{
.reg .pred p;
.reg .b32 now;
AGAIN:
ld.acquire.gpu.global.u32 now, [$1];
setp.lt.u32 p, now, $2;
@p bra AGAIN;
fence.proxy.async;
mov.u32 $0, 0;
}
""")
"""By all threads of a warp; then the copy engine sees what was written too."""


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
def _await_to_copy(COUNTER, count):
    """The same for the copy engine, by a warp that has no other work."""
    at = COUNTER.to(gl.int64, bitcast=True)
    gl.inline_asm_elementwise(
        _AWAIT_TO_COPY, "=r,l,r", [at, count], dtype=gl.int32, is_pure=False, pack=1
    )


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


@gluon.jit
def ahead(stage, parity, STAGES: gl.constexpr):
    """The next place of a ring, and the parity of what it waits for."""
    wraps = stage == STAGES - 1
    return gl.where(wraps, 0, stage + 1), gl.where(wraps, parity ^ 1, parity)


@gluon.constexpr_function
def sorts_of(FORM):
    """What a step needs to know of a row's blocks, and how many of these it has: of int4 scales and
    sums of two blocks, of FP8 the scale of one."""
    return {BF16.value: 0, FP8.value: 1, INT4.value: 2}[FORM]


@gluon.constexpr_function
def kept_scales(PERS, EACH):
    """Of FP8, places for the scales of a program's tiles of one matrix."""
    return triton.next_power_of_2(max(PERS) * EACH)


@gluon.constexpr_function
def scale_columns(COLUMNS):
    """Rows whose scales come together: at least as many as the copy engine aligns to."""
    return max(COLUMNS, 32)


@aggregate
class Ring:
    """The tiles that a program multiplies, of four matrices in turn, and the rows that meet them:
    where they come from and where they arrive."""

    matrices: gl.tuple
    """Descriptors of weights [N, K], in boxes [TILE, BOX]."""
    pairs: gl.tuple
    """Of int4, of scales with zeros [groups, N], in boxes [1, TILE]; of others anything."""
    met: gl.tuple
    """The same of rows [TERMS, M, K], in boxes [TERMS, COLUMNS, BOX]; plain ones have no terms."""
    met_scales: gl.tuple
    """And of the scales of terms [2 blocks of K, M], a step's; of plain rows anything."""
    weights: gl.shared_memory_descriptor
    places: gl.shared_memory_descriptor
    weight_scales: gl.shared_memory_descriptor
    """Of int4 two groups a stage [2 STAGES, TILE], of FP8 all that the program needs, which are
    there from the beginning; of others anything."""
    row_scales: gl.shared_memory_descriptor
    """[STAGES * sorts, blocks, columns]: of int4 those of two blocks, and their rows' sums."""
    full: gl.shared_memory_descriptor
    """Barriers: that the weights of a stage and their rows have arrived,"""
    empty: gl.shared_memory_descriptor
    """and that they have been multiplied."""
    rows: gl.tensor
    firsts: gl.tuple
    counts: gl.tuple
    """Of tiles of each matrix: this program's first one, and how many it has."""
    KB0: gl.constexpr
    KB1: gl.constexpr
    KB2: gl.constexpr
    WIDE: gl.constexpr
    SHARES: gl.constexpr
    FORM: gl.constexpr
    TILE: gl.constexpr
    BOXES: gl.constexpr
    COLUMNS: gl.constexpr
    STAGES: gl.constexpr
    WARPS: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, given, memory, rows, firsts, counts, KB0, KB1, KB2, WIDE, SHARES, FORM, TILE, BOXES,
        COLUMNS, STAGES, WARPS,
    ):  # fmt: skip
        self.matrices, self.pairs, self.met, self.met_scales = given
        self.weights, self.places, self.weight_scales, self.row_scales = memory[:4]
        self.full, self.empty = memory[4:]
        self.rows, self.firsts, self.counts = rows, firsts, counts
        self.KB0, self.KB1, self.KB2 = gl.constexpr(KB0), gl.constexpr(KB1), gl.constexpr(KB2)
        self.WIDE, self.SHARES = gl.constexpr(WIDE), gl.constexpr(SHARES)
        self.FORM = gl.constexpr(FORM)
        self.TILE, self.BOXES = gl.constexpr(TILE), gl.constexpr(BOXES)
        self.COLUMNS = gl.constexpr(COLUMNS)
        self.STAGES, self.WARPS = gl.constexpr(STAGES), gl.constexpr(WARPS)

    @gluon.jit
    def fill(self, at, WHICH: gl.constexpr, KB: gl.constexpr, WIDE: gl.constexpr):
        """Let the tiles of one matrix arrive. `at`, and the result: the next place, and the parity
        of its being empty."""
        size: gl.constexpr = self.BOXES * self.TILE * BOX_BYTES
        scales_size: gl.constexpr = 2 * self.TILE * 4 if self.FORM == INT4 else 0
        SHARE: gl.constexpr = self.SHARES[WHICH]
        matrix = self.matrices[WHICH]
        stage, parity = at
        n = self.firsts[WHICH] // KB
        k = self.firsts[WHICH] % KB
        for _ in range(self.counts[WHICH]):
            mbarrier.wait(self.empty.index(stage), parity)
            full = self.full.index(stage)
            mbarrier.expect(full, size + scales_size)
            row = row_of(n, WIDE, self.TILE)
            for box in gl.static_range(self.BOXES):
                column = (k * self.BOXES + box) * matrix.block_type.shape[1]
                place = self.weights.index(stage * self.BOXES + box)
                tma.async_copy_global_to_shared(matrix, [row, column], full, place)
            if self.FORM == INT4:
                for half in gl.static_range(2):
                    place = self.weight_scales.index(2 * stage + half)
                    at = [(2 * k + half) // SHARE, row]
                    tma.async_copy_global_to_shared(self.pairs[WHICH], at, full, place)
            ends_row = k == KB - 1
            n = gl.where(ends_row, n + 1, n)
            k = gl.where(ends_row, 0, k + 1)
            stage, parity = ahead(stage, parity, self.STAGES)
        return stage, parity

    @gluon.jit
    def fetch(self, at, WHICH: gl.constexpr, KB: gl.constexpr):
        """The same of the rows that meet them."""
        TERMS: gl.constexpr = 1 if self.FORM == BF16 else 2
        PIECES: gl.constexpr = 2 if self.FORM == INT4 else self.BOXES
        SORTS: gl.constexpr = sorts_of(self.FORM)
        size: gl.constexpr = PIECES * TERMS * self.COLUMNS * BOX_BYTES
        scales_size: gl.constexpr = SORTS * SORTS * scale_columns(self.COLUMNS) * 4
        met = self.met[WHICH]
        stage, parity = at
        k = self.firsts[WHICH] % KB
        for _ in range(self.counts[WHICH]):
            mbarrier.wait(self.empty.index(stage), parity)
            full = self.full.index(stage)
            mbarrier.expect(full, size + scales_size)
            for piece in gl.static_range(PIECES):
                column = (k * PIECES + piece) * met.block_type.shape[2]
                place = self.places.index(stage * PIECES + piece)
                tma.async_copy_global_to_shared(met, [0, 0, column], full, place)
            for sort in gl.static_range(SORTS):
                place = self.row_scales.index(stage * SORTS + sort)
                at = [SORTS * k + sort * (2 * KB), 0]
                tma.async_copy_global_to_shared(self.met_scales[WHICH], at, full, place)
            k = gl.where(k == KB - 1, 0, k + 1)
            stage, parity = ahead(stage, parity, self.STAGES)
        return stage, parity


@gluon.jit
def weights_arrive(ring):
    """All that a warp does: let weights arrive, which wait for nothing but room."""
    stage = 0
    parity = 1
    at = ring.fill((stage, parity), 0, ring.KB0, 0)
    at = ring.fill(at, 1, ring.KB1, ring.WIDE)
    at = ring.fill(at, 2, ring.KB2, 0)
    ring.fill(at, 3, ring.KB1, 0)


@gluon.jit
def rows_arrive(ring, COUNTERS, narrow, wide):
    """The same for rows, each product's once all of them are made. `narrow`, `wide`: units of
    hidden columns and of those between, in all rows."""
    gdc_wait()
    stage = 0
    parity = 1
    at = ring.fetch((stage, parity), 0, ring.KB0)
    _await_to_copy(COUNTERS, narrow)
    at = ring.fetch(at, 1, ring.KB1)
    _await_to_copy(COUNTERS + 1, wide)
    at = ring.fetch(at, 2, ring.KB2)
    _await_to_copy(COUNTERS + 2, narrow)
    ring.fetch(at, 3, ring.KB1)


@gluon.jit
def ring_of(
    given, rows, H: gl.constexpr, K: gl.constexpr, WIDE: gl.constexpr, N: gl.constexpr,
    SHARES: gl.constexpr, FORM: gl.constexpr, PERS: gl.constexpr, EACH: gl.constexpr,
    TILE: gl.constexpr, BOXES: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """This program's, nothing in it. `given`: its four tuples of descriptors."""
    BOX: gl.constexpr = BOX_BYTES // (2 if FORM == BF16 else 1)
    SPAN: gl.constexpr = BOXES * BOX * (2 if FORM == INT4 else 1)
    PIECES: gl.constexpr = 2 if FORM == INT4 else BOXES
    SORTS: gl.constexpr = sorts_of(FORM)
    FLAT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    LINE: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    KB: gl.constexpr = (K // SPAN, H // SPAN, WIDE // SPAN)
    matrices, met = given[0], given[2]
    weights = gl.allocate_shared_memory(
        matrices[0].dtype, [STAGES * BOXES, TILE, BOX], matrices[0].layout
    )
    places = gl.allocate_shared_memory(
        met[0].dtype, [STAGES * PIECES, 1 if FORM == BF16 else 2, COLUMNS, BOX], met[0].layout
    )
    if FORM == INT4:
        weight_scales = gl.allocate_shared_memory(gl.int32, [2 * STAGES, 1, TILE], FLAT)
    else:
        KEPT: gl.constexpr = kept_scales(PERS, EACH) if FORM == FP8 else 1
        weight_scales = gl.allocate_shared_memory(gl.float32, [4, KEPT], LINE)
    row_scales = gl.allocate_shared_memory(
        gl.float32,
        [max(1, STAGES * SORTS), max(1, SORTS), scale_columns(COLUMNS) if SORTS > 0 else 4],
        FLAT,
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=2)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    lane = gl.program_id(0) * EACH
    firsts = (lane * PERS[0], lane * PERS[1], lane * PERS[2], lane * PERS[3])
    counts = (
        _share(H // TILE * KB[0], lane, PERS[0], EACH),
        _share(2 * WIDE // TILE * KB[1], lane, PERS[1], EACH),
        _share(H // TILE * KB[2], lane, PERS[2], EACH),
        _share((N + TILE - 1) // TILE * KB[1], lane, PERS[3], EACH),
    )
    return Ring(
        given, (weights, places, weight_scales, row_scales, full, empty), rows, firsts, counts,
        KB[0], KB[1], KB[2], WIDE, SHARES, FORM, TILE, BOXES, COLUMNS, STAGES, WARPS,
    )  # fmt: skip


@gluon.jit
def _share(tiles: gl.constexpr, lane, PER: gl.constexpr, EACH: gl.constexpr):
    """Tiles of a matrix that EACH lanes from `lane` on have."""
    return gl.maximum(gl.minimum(tiles - lane * PER, EACH * PER), 0)
