"""The product of a block of rows with a matrix of 8-bit or 4-bit weights, fed by the copy engine.

What limits it is how much L2 gives: every tile of weights meets all rows, which come from there
again. So a program takes all rows of a block, up to COLUMNS; and weights, rows and the scales of
both arrive in one ring in shared memory.

- Steps of a matrix (128 bytes of each of a tile's BLOCK rows) are counted along K, then along
  tiles, and cut into runs, one for a program. A tile has a part for each run that it lies in. Cuts
  follow from the matrix alone (`tiles.Runs`), so a row's bits do not depend on how many rows its
  block has.
- A step is one piece of FP8 and two of int4, BLOCK columns of K each: LOW's sums, then HIGH's in
  the same registers, which are scaled in float32.
- Two groups of warps have half of a tile's rows each and do not wait for each other: while one
  scales, the matrix unit is the other's. A warp beside them does nothing but let pieces arrive.
- More rows than COLUMNS are further programs beside the first: they find its weights in L2.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.core import _aggregate as aggregate
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from flashrt.engine.kernels.stream import halves, less_zeros
from flashrt.engine.kernels.streamring import BLOCK, BOX_BYTES, FP8, INT4, ahead

WARPS = gl.constexpr(4)
"""Of each of the two groups that multiply."""

GROUP_ROWS = gl.constexpr(64)
"""Rows of a tile that a group has."""

GROUP_REGISTERS, COPYING_REGISTERS = gl.constexpr(240), gl.constexpr(24)
"""Of a thread: a processor has no more for twelve warps, of which four only copy."""


@aggregate
class Feed:
    """What a program multiplies, piece by piece, and where it arrives."""

    w: tma.tensor_descriptor
    x: tma.tensor_descriptor
    xs: tma.tensor_descriptor
    groups: tma.tensor_descriptor
    """Of int4, scales with zeros [groups, N]; of FP8 anything."""
    Y: gl.tensor
    weights: gl.shared_memory_descriptor
    places: gl.shared_memory_descriptor
    pairs: gl.shared_memory_descriptor
    """The same memory, HIGH and LOW of a piece together."""
    scales: gl.shared_memory_descriptor
    """Of rows, and of int4 their sums."""
    weight_scales: gl.shared_memory_descriptor
    """Of int4 a line for each piece; of FP8 one number for each step of the program's."""
    full: gl.shared_memory_descriptor
    """Barriers: that a piece has arrived,"""
    empty: gl.shared_memory_descriptor
    """and that both groups have multiplied it."""
    start: gl.tensor
    """The first of its rows."""
    rows: gl.tensor
    first: gl.tensor
    count: gl.tensor
    """Of its steps."""
    N: gl.tensor
    KB: gl.tensor
    """Steps of a tile."""
    XS_STEP: gl.tensor
    STRIDE: gl.tensor
    FORM: gl.constexpr
    HALF: gl.constexpr
    SHARE: gl.constexpr
    COLUMNS: gl.constexpr
    STAGES: gl.constexpr
    """Pieces under way,"""
    HELD: gl.constexpr
    """and the steps that they may lie in."""
    PIECES: gl.constexpr
    ACC: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, tensors, memory, start, rows, first, count, N, KB, XS_STEP, STRIDE, FORM, HALF,
        SHARE, COLUMNS, STAGES,
    ):  # fmt: skip
        self.w, self.x, self.xs, self.groups, self.Y = tensors
        self.weights, self.places, self.pairs, self.scales = memory[:4]
        self.weight_scales, self.full, self.empty = memory[4:]
        self.start, self.rows, self.first, self.count = start, rows, first, count
        self.N, self.KB, self.XS_STEP, self.STRIDE = N, KB, XS_STEP, STRIDE
        self.FORM, self.HALF = gl.constexpr(FORM), gl.constexpr(HALF)
        self.SHARE, self.COLUMNS = gl.constexpr(SHARE), gl.constexpr(COLUMNS)
        self.STAGES, self.PIECES = gl.constexpr(STAGES), gl.constexpr(pieces_of(FORM))
        self.HELD = gl.constexpr(held_steps(FORM, STAGES))
        self.ACC = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, COLUMNS, 32]))

    @gluon.jit
    def arm(self, q, stage):
        """Say how many bytes will arrive as piece q."""
        LINES: gl.constexpr = BLOCK * 4 if self.FORM == INT4 else 0
        ROWS: gl.constexpr = 2 * self.COLUMNS * BOX_BYTES + self.PIECES * self.COLUMNS * 4 + LINES
        WEIGHTS: gl.constexpr = BLOCK * BOX_BYTES
        live = q < self.count * self.PIECES
        full = self.full.index(stage)
        begins = q % self.PIECES == 0
        mbarrier.expect(full, ROWS + WEIGHTS, pred=live & begins)
        if self.PIECES > 1:
            mbarrier.expect(full, ROWS, pred=live & (q % self.PIECES > 0))

    @gluon.jit
    def fill_weights(self, q, stage, live):
        """Let those of piece q begin to arrive, if it is one: those of a step with its first."""
        step = self.first + q // self.PIECES
        tile = step // self.KB
        k = step % self.KB
        full = self.full.index(stage)
        at = [tile * BLOCK, k * BOX_BYTES]
        place = self.weights.index(q // self.PIECES % self.HELD)
        begins = q % self.PIECES == 0
        tma.async_copy_global_to_shared(self.w, at, full, place, pred=live & begins)
        if self.FORM == INT4:
            of = [(self.PIECES * k + q % self.PIECES) // self.SHARE, tile * BLOCK]
            place = self.weight_scales.index(stage)
            tma.async_copy_global_to_shared(self.groups, of, full, place, pred=live)

    @gluon.jit
    def fill_rows(self, q, stage, live):
        """The same of the rows: HIGH and LOW, scales, and of int4 sums."""
        b = (self.first + q // self.PIECES) % self.KB * self.PIECES + q % self.PIECES
        full = self.full.index(stage)
        at = [0, self.start, b * BLOCK]
        place = self.pairs.index(stage)
        tma.async_copy_global_to_shared(self.x, at, full, place, pred=live)
        for which in gl.static_range(self.PIECES):
            line = which * self.KB * self.PIECES + b
            place = self.scales.index(stage * self.PIECES + which)
            at_line = [line * self.XS_STEP + self.start]
            tma.async_copy_global_to_shared(self.xs, at_line, full, place, pred=live)


@gluon.constexpr_function
def pieces_of(form):
    """Blocks of K in a step."""
    return 2 if form == INT4.value else 1


@gluon.constexpr_function
def held_steps(form, stages):
    """Steps that so many pieces in a row may lie in."""
    return stages // 2 + 1 if form == INT4.value else stages


@gluon.jit
def _arrive(feed):
    """All that one warp does. The first weights need not wait for the rows."""
    total = feed.count * feed.PIECES
    for early in gl.static_range(feed.STAGES):
        feed.arm(early, early)
        feed.fill_weights(early, early, early < total)
    gdc_wait()
    for early in gl.static_range(feed.STAGES):
        feed.fill_rows(early, early, early < total)
    stage = 0
    parity = 0
    for q in range(feed.STAGES, total):
        mbarrier.wait(feed.empty.index(stage), parity)
        feed.arm(q, stage)
        feed.fill_weights(q, stage, True)
        feed.fill_rows(q, stage, True)
        stage, parity = ahead(stage, parity, feed.STAGES)


@gluon.jit
def _sums(feed, stage, held, piece: gl.constexpr, group: gl.constexpr):
    """Of one piece and a group's rows, under way."""
    w = feed.weights.index(held).slice(group * GROUP_ROWS, GROUP_ROWS)
    if feed.FORM == INT4:
        w = halves(w.load(gl.DotOperandLayout(0, feed.ACC, 4)), piece == 1)
    low = feed.places.index(2 * stage + 1).permute((1, 0))
    high = feed.places.index(2 * stage).permute((1, 0))
    d = gl.zeros([GROUP_ROWS, feed.COLUMNS], gl.float32, feed.ACC)
    d = warpgroup_mma(w, low, d, use_acc=False, is_async=True)
    return warpgroup_mma(w, high, d, is_async=True)


@gluon.jit
def _keep_scales(feed, SCALE, SCALES_K):
    """Of FP8, those of all steps of the program: they wait for nothing."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    j = gl.arange(0, feed.weight_scales.shape[0], layout=L)
    step = feed.first + j
    at = step // feed.KB * SCALES_K + step % feed.KB
    feed.weight_scales.store(gl.load(SCALE + at, mask=j < feed.count, other=0.0))


@gluon.jit
def _scale(feed, j, stage, group: gl.constexpr):
    """Of a piece's weights, in FP8; in int4 of each row, with its zero."""
    if feed.FORM == FP8:
        LINE: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        KEPT: gl.constexpr = feed.weight_scales.shape[0]
        singles = feed.weight_scales._reinterpret(gl.float32, [KEPT, 1], LINE)
        scale = singles.index(j).load(gl.SliceLayout(0, feed.ACC))
    else:
        line = feed.weight_scales.index(stage).reshape([BLOCK])
        scale = line.slice(group * GROUP_ROWS, GROUP_ROWS).load(gl.SliceLayout(1, feed.ACC))
    return scale


@gluon.jit
def _of_rows(feed, stage, which: gl.constexpr):
    """Scales of the rows' block (0), or its sums (1)."""
    return feed.scales.index(stage * feed.PIECES + which).load(gl.SliceLayout(0, feed.ACC))


@gluon.jit
def _scaled(feed, d, scale, stage):
    """The sums of a piece, scaled."""
    of_row = _of_rows(feed, stage, 0)
    if feed.FORM == FP8:
        scaled = d * (of_row * scale)[None, :]
    else:
        scaled = less_zeros(d, scale, of_row, _of_rows(feed, stage, 1), feed.HALF)
    return scaled


@gluon.jit
def _put(feed, total, tile, group: gl.constexpr):
    """This run's part of a tile."""
    steps = feed.N // BLOCK * feed.KB
    earliest = ((tile * feed.KB + 1) * gl.num_programs(1) - 1) // steps
    part = gl.program_id(1) - earliest
    m = feed.start + gl.arange(0, feed.COLUMNS, layout=gl.SliceLayout(0, feed.ACC))
    r = gl.arange(0, GROUP_ROWS, layout=gl.SliceLayout(1, feed.ACC))
    n = tile * BLOCK + group * GROUP_ROWS + r
    at = (part * feed.rows + m)[None, :] * feed.STRIDE + n[:, None]
    live = (m < feed.rows)[None, :] & (n < feed.N)[:, None]
    gl.store(feed.Y + at, total.to(feed.Y.dtype.element_ty), mask=live)


@gluon.jit
def _multiply(feed, group: gl.constexpr):
    """All that a group does."""
    gdc_wait()
    total = gl.zeros([GROUP_ROWS, feed.COLUMNS], gl.float32, feed.ACC)
    stage = 0
    parity = 0
    tile = feed.first // feed.KB
    k = feed.first % feed.KB
    for j in range(feed.count):
        for piece in gl.static_range(feed.PIECES):
            mbarrier.wait(feed.full.index(stage), parity)
            d = _sums(feed, stage, j % feed.HELD, piece, group)
            scale = _scale(feed, j, stage, group)
            d = warpgroup_mma_wait(0, deps=[d])
            total += _scaled(feed, d, scale, stage)
            gl.thread_barrier()
            mbarrier.arrive(feed.empty.index(stage))
            stage, parity = ahead(stage, parity, feed.STAGES)
        ends = k == feed.KB - 1
        if ends | (j == feed.count - 1):
            if j == feed.count - 1:
                gdc_launch_dependents()
            _put(feed, total, tile, group)
            total = gl.zeros([GROUP_ROWS, feed.COLUMNS], gl.float32, feed.ACC)
        tile = gl.where(ends, tile + 1, tile)
        k = gl.where(ends, 0, k + 1)


@gluon.jit
def _multiply_lower(feed):
    """The first rows of each tile."""
    _multiply(feed, 0)


@gluon.jit
def _multiply_upper(feed):
    """The others."""
    _multiply(feed, 1)


@gluon.jit(do_not_specialize=["rows", "N", "KB", "SCALES_K", "XS_STEP", "STRIDE"])
def block_stream(
    W, X, XS, SCALE, Y, rows, N, KB, SCALES_K, XS_STEP, STRIDE, FORM: gl.constexpr,
    HALF: gl.constexpr, SHARE: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    KEPT: gl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over the part's steps of X[m, k] W[n, k]: a program for COLUMNS rows and
    a run of steps. W [N, bytes]; X [2, M, K] terms; XS their scales, flat; SCALE: of int4 a
    descriptor [groups, N], of FP8 a pointer, SCALES_K from one row of blocks to the next; KB: steps
    of a tile; KEPT: of FP8, at least the steps of a run."""
    PIECES: gl.constexpr = pieces_of(FORM)
    HELD: gl.constexpr = held_steps(FORM, STAGES)
    LAID: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=BOX_BYTES, element_bitwidth=8, rank=2
    )
    FLAT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    weights = gl.allocate_shared_memory(W.dtype, [HELD, BLOCK, BOX_BYTES], LAID)
    places = gl.allocate_shared_memory(X.dtype, [STAGES * 2, COLUMNS, BOX_BYTES], LAID)
    pairs = places._reinterpret(X.dtype, [STAGES, 2, COLUMNS, BOX_BYTES], X.layout)
    scales = gl.allocate_shared_memory(gl.float32, [STAGES * PIECES, COLUMNS], FLAT)
    if FORM == INT4:
        weight_scales = gl.allocate_shared_memory(gl.int32, [STAGES, 1, BLOCK], SCALE.layout)
    else:
        LINE: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        weight_scales = gl.allocate_shared_memory(gl.float32, [KEPT], LINE)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    steps = N // BLOCK * KB
    run = gl.program_id(1)
    first = run * steps // gl.num_programs(1)
    count = (run + 1) * steps // gl.num_programs(1) - first
    feed = Feed(
        (W, X, XS, SCALE if FORM == INT4 else W, Y),
        (weights, places, pairs, scales, weight_scales, full, empty), gl.program_id(0) * COLUMNS,
        rows, first, count, N, KB, XS_STEP, STRIDE, FORM, HALF, SHARE, COLUMNS, STAGES,
    )  # fmt: skip
    if FORM == FP8:
        _keep_scales(feed, SCALE, SCALES_K)
    gl.thread_barrier()
    gl.warp_specialize(
        [(_multiply_lower, (feed,)), (_multiply_upper, (feed,)), (_arrive, (feed,))],
        [4, 1],
        [GROUP_REGISTERS, COPYING_REGISTERS],
    )
