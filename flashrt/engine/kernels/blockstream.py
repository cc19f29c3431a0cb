"""The product of a block of rows with a matrix of 8-bit or 4-bit weights, fed by the copy engine.

What limits it is how much L2 gives: every tile of weights meets all rows, which come from there
again. So a tile is high (SUBS * BLOCK rows of weights) and as wide as the block, up to COLUMNS, and
weights, rows and the scales of rows arrive in one ring in shared memory.

- Steps of a matrix are counted along K, then along tiles, and cut into runs, one for a program. A
  tile has a part for each run that it lies in. Cuts follow from the matrix alone (`tiles.Runs`), so
  a row's bits do not depend on how many rows its block has.
- An item of a step is BLOCK rows of the tile and BLOCK columns of K: LOW's sums, then HIGH's in the
  same registers, which are scaled in float32. With AHEAD that is done while the matrix unit makes
  those of the next item; without, registers do not hold two of them beside the totals.
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
from flashrt.engine.kernels.streamring import BLOCK, BOX_BYTES, FP8, INT4

WARPS = gl.constexpr(8)
"""Of a program: each group of four has half of BLOCK rows of weights."""


@aggregate
class Feed:
    """What a program multiplies, step by step, and where it arrives."""

    w: tma.tensor_descriptor
    x: tma.tensor_descriptor
    xs: tma.tensor_descriptor
    SCALE: gl.tensor
    Y: gl.tensor
    weights: gl.shared_memory_descriptor
    places: gl.shared_memory_descriptor
    pairs: gl.shared_memory_descriptor
    """The same memory, HIGH and LOW of a block together."""
    scales: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    start: gl.tensor
    """The first of its rows."""
    rows: gl.tensor
    first: gl.tensor
    count: gl.tensor
    N: gl.tensor
    KB: gl.tensor
    """Steps of a tile."""
    SCALES_K: gl.tensor
    XS_STEP: gl.tensor
    STRIDE: gl.tensor
    FORM: gl.constexpr
    HALF: gl.constexpr
    SHARE: gl.constexpr
    SUBS: gl.constexpr
    COLUMNS: gl.constexpr
    STAGES: gl.constexpr
    AHEAD: gl.constexpr
    PIECES: gl.constexpr
    """Blocks of K in a step."""
    ACC: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, tensors, memory, start, rows, first, count, N, KB, SCALES_K, XS_STEP, STRIDE, FORM,
        HALF, SHARE, SUBS, COLUMNS, STAGES, AHEAD,
    ):  # fmt: skip
        self.w, self.x, self.xs, self.SCALE, self.Y = tensors
        self.weights, self.places, self.pairs, self.scales, self.full = memory
        self.start, self.rows, self.first, self.count = start, rows, first, count
        self.N, self.KB, self.SCALES_K = N, KB, SCALES_K
        self.XS_STEP, self.STRIDE = XS_STEP, STRIDE
        self.FORM, self.HALF, self.SHARE = (
            gl.constexpr(FORM),
            gl.constexpr(HALF),
            gl.constexpr(SHARE),
        )
        self.SUBS, self.COLUMNS = gl.constexpr(SUBS), gl.constexpr(COLUMNS)
        self.STAGES, self.AHEAD = gl.constexpr(STAGES), gl.constexpr(AHEAD)
        self.PIECES = gl.constexpr(2 if FORM == INT4 else 1)
        self.ACC = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, COLUMNS, 32]))

    @gluon.jit
    def arm(self, i, stage):
        """Say how many bytes will arrive as step i."""
        WEIGHTS: gl.constexpr = self.SUBS * BLOCK * BOX_BYTES
        ROWS: gl.constexpr = self.PIECES * 2 * self.COLUMNS * BOX_BYTES
        SCALES: gl.constexpr = self.PIECES * self.PIECES * self.COLUMNS * 4
        size: gl.constexpr = WEIGHTS + ROWS + SCALES
        mbarrier.expect(self.full.index(stage), size, pred=i < self.count)

    @gluon.jit
    def fill_weights(self, i, stage, live):
        """Let those of step i begin to arrive, if it is one."""
        tile = (self.first + i) // self.KB
        k = (self.first + i) % self.KB
        at = [tile * self.SUBS * BLOCK, k * BOX_BYTES]
        place = self.weights.index(stage)
        full = self.full.index(stage)
        tma.async_copy_global_to_shared(self.w, at, full, place, pred=live)

    @gluon.jit
    def fill_rows(self, i, stage, live):
        """The same of the rows: HIGH and LOW of each block, scales, and of int4 sums."""
        k = (self.first + i) % self.KB
        full = self.full.index(stage)
        for piece in gl.static_range(self.PIECES):
            b = k * self.PIECES + piece
            place = self.pairs.index(stage * self.PIECES + piece)
            at = [0, self.start, b * BLOCK]
            tma.async_copy_global_to_shared(self.x, at, full, place, pred=live)
            for which in gl.static_range(self.PIECES):
                line = which * self.KB * self.PIECES + b
                place = self.scales.index((stage * self.PIECES + piece) * self.PIECES + which)
                at_line = [line * self.XS_STEP + self.start]
                tma.async_copy_global_to_shared(self.xs, at_line, full, place, pred=live)

    @gluon.jit
    def refill(self, i, stage):
        """Step i into a stage that this thread has left. Once all have."""
        gl.thread_barrier()
        self.arm(i, stage)
        # At a branch the matrix unit would be awaited, where its weights come from registers; else
        # one leaves more of those.
        if self.FORM == INT4 or i < self.count:
            self.fill_weights(i, stage, i < self.count)
            self.fill_rows(i, stage, i < self.count)

    @gluon.jit
    def after(self, at):
        """Behind a step's stage, parity, tile and k: those of the next."""
        stage, parity, tile, k = at
        wraps = stage == self.STAGES - 1
        ends = k == self.KB - 1
        return (
            gl.where(wraps, 0, stage + 1), gl.where(wraps, parity ^ 1, parity),
            gl.where(ends, tile + 1, tile), gl.where(ends, 0, k + 1),
        )  # fmt: skip


@gluon.jit
def _begin(feed, stage, item: gl.constexpr, d):
    """Sums of one block of K and BLOCK rows of the tile, into d's registers."""
    w = feed.weights.index(stage).slice(item % feed.SUBS * BLOCK, BLOCK)
    if feed.FORM == INT4:
        w = halves(w.load(gl.DotOperandLayout(0, feed.ACC, 4)), item // feed.SUBS == 1)
    place = (stage * feed.PIECES + item // feed.SUBS) * 2
    low = feed.places.index(place + 1).permute((1, 0))
    high = feed.places.index(place).permute((1, 0))
    d = warpgroup_mma(w, low, d, use_acc=False, is_async=True)
    return warpgroup_mma(w, high, d, is_async=True)


@gluon.jit
def _scale(feed, at, item: gl.constexpr):
    """Of such a block's weights, in FP8; in int4 of each row, with its zero."""
    _, _, tile, k = at
    # The last tile may be half behind the matrix.
    n = gl.minimum((tile * feed.SUBS + item % feed.SUBS) * BLOCK, feed.N - BLOCK)
    if feed.FORM == FP8:
        scale = gl.load(feed.SCALE + n // BLOCK * feed.SCALES_K + k)
    else:
        r = gl.arange(0, BLOCK, layout=gl.SliceLayout(1, feed.ACC))
        group = (2 * k + item // feed.SUBS) // feed.SHARE
        scale = gl.load(feed.SCALE + group * feed.SCALES_K + n + r)
    return scale


@gluon.jit
def _nothing(feed, scale):
    """A scale with which sums that are 0 add nothing: in int4 without a zero."""
    return scale * 0 if feed.FORM == INT4 else scale


@gluon.jit
def _of_rows(feed, stage, item: gl.constexpr, which: gl.constexpr):
    """Scales of the rows' block (0), or its sums (1)."""
    place = (stage * feed.PIECES + item // feed.SUBS) * feed.PIECES + which
    return feed.scales.index(place).load(gl.SliceLayout(0, feed.ACC))


@gluon.jit
def _scaled(feed, total, d, before, item: gl.constexpr):
    """Add sums, of a scale and a stage."""
    of_row = _of_rows(feed, before[1], item, 0)
    if feed.FORM == FP8:
        total += d * (of_row * before[0])[None, :]
    else:
        row_sum = _of_rows(feed, before[1], item, 1)
        total += less_zeros(d, before[0], of_row, row_sum, feed.HALF)
    return total


@gluon.jit
def _put(feed, total, tile, sub: gl.constexpr):
    """This run's part of a tile."""
    steps = (feed.N + feed.SUBS * BLOCK - 1) // (feed.SUBS * BLOCK) * feed.KB
    earliest = ((tile * feed.KB + 1) * gl.num_programs(1) - 1) // steps
    part = gl.program_id(1) - earliest
    m = feed.start + gl.arange(0, feed.COLUMNS, layout=gl.SliceLayout(0, feed.ACC))
    r = gl.arange(0, BLOCK, layout=gl.SliceLayout(1, feed.ACC))
    n = (tile * feed.SUBS + sub) * BLOCK + r
    at = (part * feed.rows + m)[None, :] * feed.STRIDE + n[:, None]
    live = (m < feed.rows)[None, :] & (n < feed.N)[:, None]
    gl.store(feed.Y + at, total.to(feed.Y.dtype.element_ty), mask=live)


@gluon.constexpr_function
def _scaled_at(item, ITEMS, AHEAD):
    """Whose sums are scaled while an item's are made, or behind them."""
    return (item + ITEMS - 1) % ITEMS if AHEAD else item


@gluon.jit
def _item(feed, j, at, item: gl.constexpr, total, d, last, before):
    """Sums of an item of step j in d, and those that are scaled meanwhile, in total: `last`, of a
    scale and stage `before`. Without AHEAD its own."""
    stage = at[0]
    scale = _scale(feed, at, item)
    d = _begin(feed, stage, item, d)
    ITEMS: gl.constexpr = feed.SUBS * feed.PIECES
    SCALED: gl.constexpr = _scaled_at(item, ITEMS, feed.AHEAD)
    if feed.AHEAD:
        total = _scaled(feed, total, last, before, SCALED)
    if item == 0:
        free = gl.where(stage == 0, feed.STAGES - 1, stage - 1)
        feed.refill(gl.where(j > 0, j - 1 + feed.STAGES, feed.count), free)
    d = warpgroup_mma_wait(0, deps=[d])
    before = (scale, stage)
    if not feed.AHEAD:
        total = _scaled(feed, total, d, before, SCALED)
    return total, d, before


@gluon.jit
def _step(feed, j, at, total0, total1, d, e, before):
    """Step j: its items' sums in d, with AHEAD in e in turn. At the end of a tile all are scaled,
    and nothing is left."""
    stage, parity, tile, k = at
    ITEMS: gl.constexpr = feed.SUBS * feed.PIECES
    mbarrier.wait(feed.full.index(stage), parity)
    for item in gl.static_range(ITEMS):
        total = total0 if _scaled_at(item, ITEMS, feed.AHEAD) % feed.SUBS == 0 else total1
        if feed.AHEAD and item % 2 == 1:
            total, e, before = _item(feed, j, at, item, total, e, d, before)
        else:
            total, d, before = _item(feed, j, at, item, total, d, e, before)
        if _scaled_at(item, ITEMS, feed.AHEAD) % feed.SUBS == 0:
            total0 = total
        else:
            total1 = total
    if (k == feed.KB - 1) | (j == feed.count - 1):
        if j == feed.count - 1:
            gdc_launch_dependents()
        zero = gl.zeros([BLOCK, feed.COLUMNS], gl.float32, feed.ACC)
        if feed.AHEAD:
            last = d if ITEMS == 1 else e
            if feed.SUBS == 1:
                total0 = _scaled(feed, total0, last, before, ITEMS - 1)
            else:
                total1 = _scaled(feed, total1, last, before, ITEMS - 1)
            if ITEMS == 1:
                d = zero
            else:
                e = zero
            before = (_nothing(feed, before[0]), stage)
        _put(feed, total0, tile, 0)
        total0 = zero
        if feed.SUBS == 2:
            _put(feed, total1, tile, 1)
            total1 = zero
    return feed.after(at), total0, total1, d, e, before


@gluon.jit
def _run(feed):
    """All steps of a program."""
    zero = gl.zeros([BLOCK, feed.COLUMNS], gl.float32, feed.ACC)
    total0, total1, d, e = zero, zero, zero, zero
    stage = 0
    parity = 0
    at = (stage, parity, feed.first // feed.KB, feed.first % feed.KB)
    before = (_nothing(feed, _scale(feed, at, 0)), stage)
    PAIRED: gl.constexpr = feed.AHEAD and feed.SUBS * feed.PIECES == 1
    for j in range(0, feed.count, 2 if PAIRED else 1):
        at, total0, total1, d, e, before = _step(feed, j, at, total0, total1, d, e, before)
        if PAIRED and j + 1 < feed.count:
            at, total0, total1, e, d, before = _step(
                feed, j + 1, at, total0, total1, e, d, before
            )  # fmt: skip


@gluon.jit(do_not_specialize=["rows", "N", "KB", "SCALES_K", "XS_STEP", "STRIDE"])
def block_stream(
    W, X, XS, SCALE, Y, rows, N, KB, SCALES_K, XS_STEP, STRIDE, FORM: gl.constexpr,
    HALF: gl.constexpr, SHARE: gl.constexpr, SUBS: gl.constexpr, COLUMNS: gl.constexpr,
    STAGES: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over the part's steps of X[m, k] W[n, k]: a program for COLUMNS rows and
    a run of steps. W [N, bytes]; X [2 M, K] terms; XS their scales, flat; KB: steps of a tile."""
    PIECES: gl.constexpr = 2 if FORM == INT4 else 1
    LAID: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=BOX_BYTES, element_bitwidth=8, rank=2
    )
    FLAT: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
    weights = gl.allocate_shared_memory(W.dtype, [STAGES, SUBS * BLOCK, BOX_BYTES], LAID)
    places = gl.allocate_shared_memory(X.dtype, [STAGES * PIECES * 2, COLUMNS, BOX_BYTES], LAID)
    pairs = places._reinterpret(X.dtype, [STAGES * PIECES, 2, COLUMNS, BOX_BYTES], X.layout)
    scales = gl.allocate_shared_memory(gl.float32, [STAGES * PIECES * PIECES, COLUMNS], FLAT)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.thread_barrier()
    steps = (N + SUBS * BLOCK - 1) // (SUBS * BLOCK) * KB
    run = gl.program_id(1)
    first = run * steps // gl.num_programs(1)
    count = (run + 1) * steps // gl.num_programs(1) - first
    feed = Feed(
        (W, X, XS, SCALE, Y), (weights, places, pairs, scales, full), gl.program_id(0) * COLUMNS,
        rows, first, count, N, KB, SCALES_K, XS_STEP, STRIDE, FORM, HALF, SHARE, SUBS, COLUMNS,
        STAGES, AHEAD,
    )  # fmt: skip
    for early in gl.static_range(STAGES):
        feed.arm(early, early)
        feed.fill_weights(early, early, early < count)
    gdc_wait()
    for early in gl.static_range(STAGES):
        feed.fill_rows(early, early, early < count)
    _run(feed)
