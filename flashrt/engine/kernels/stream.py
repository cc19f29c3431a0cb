"""From a mixer's rows to what the next one reads in one launch, whose weights never stop arriving.

A launch of its own for each product costs the memory about 4 us: it must wait for the rows, and has
nothing under way until then. Here every program goes through its share of four matrices with a
ring of tiles in shared memory, filled by the copy engine ahead of the rows: while all wait for the
norm between two products, the next tiles arrive.

- Tiles [TILE, BOXES * 128 bytes] of a matrix are counted along K, then along N, and cut into LANES
  equal runs; a program has EACH of them. So a tile row's sum has a part for each lane that it lies
  in, whatever the number of rows or programs: that is what keeps a row's bits its own.
- Two warps let tiles and rows arrive (`streamring`); all others multiply, and wait for both.
- Parts go to memory, over the mark of an empty place. Behind its share of a matrix, a program makes
  what the next product reads of some units of BLOCK columns (`streamrows`): it reads their parts
  until none is missing, and leaves the places empty. So a part costs one store and no fence.
- All await all units, behind each product but the last, by a counter of each. So all programs must
  run at once: `streamed` launches no more than fit, and the kernels before end without them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from flashrt.engine.kernels.e4m3 import HIGH, LOW, UNIT
from flashrt.engine.kernels.streamring import (
    BF16,
    BLOCK,
    FP8,
    INT4,
    ahead,
    await_all,
    kept_scales,
    ring_of,
    row_of,
    rows_arrive,
    scale_columns,
    sorts_of,
    weights_arrive,
)
from flashrt.engine.kernels.streamrows import (
    divided,
    half_norm,
    items_of,
    never_empty,
    silu_mul,
    tail,
)


@gluon.jit
def _keep_scales(
    ring, SCALE, SCALES_K, WHICH: gl.constexpr, KB: gl.constexpr, WIDE: gl.constexpr,
    PERS: gl.constexpr, EACH: gl.constexpr,
):  # fmt: skip
    """Of FP8, the scales of all this program's tiles of one matrix: they wait for nothing."""
    L: gl.constexpr = gl.BlockedLayout([1], [32], [ring.WARPS], [0])
    j = gl.arange(0, kept_scales(PERS, EACH), layout=L)
    t = ring.firsts[WHICH] + j
    at = row_of(t // KB, WIDE, ring.TILE) // BLOCK * SCALES_K + t % KB
    found = gl.load(SCALE + at, mask=j < ring.counts[WHICH], other=0.0)
    ring.weight_scales.index(WHICH).store(found)


@gluon.jit
def _of_rows(ring, place, block: gl.constexpr, ACC: gl.constexpr):
    """What a stage knows of its rows [COLUMNS], in the layout of sums."""
    SORTS: gl.constexpr = sorts_of(ring.FORM)
    COLUMNS: gl.constexpr = scale_columns(ring.COLUMNS)
    line = ring.row_scales.index(place).reshape([SORTS * COLUMNS])
    return line.slice(block * COLUMNS, ring.COLUMNS).load(gl.SliceLayout(0, ACC))


@gluon.jit
def _of_weights(ring, place, ACC: gl.constexpr):
    """Of int4, scales and zeros of a group of a stage [TILE], in the layout of sums."""
    line = ring.weight_scales.index(place).reshape([ring.TILE])
    return line.load(gl.SliceLayout(1, ACC))


@gluon.jit
def _kept(ring, j, KEPT: gl.constexpr, ACC: gl.constexpr):
    """Of FP8, the scale [1] of one of this program's tiles."""
    LINE: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    singles = ring.weight_scales._reinterpret(gl.float32, [4 * KEPT, 1], LINE)
    return singles.index(j).load(gl.SliceLayout(0, ACC))


@gluon.jit
def _both(d, TILE: gl.constexpr, COLUMNS: gl.constexpr, ACC: gl.constexpr):
    """The sums with HIGH and with LOW, which are neighbours in d, together."""
    high, low = d.reshape([TILE, 2, COLUMNS]).permute([0, 2, 1]).split()
    high = gl.convert_layout(high, ACC, assert_trivial=True)
    return high + gl.convert_layout(low, ACC, assert_trivial=True)


@gluon.jit
def less_zeros(d, pair, of_row, row_sum, HALF: gl.constexpr):
    """As `e4m3._less_zeros`."""
    if HALF:
        scale = (pair >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
    else:
        scale = (pair & -65536).to(gl.float32, bitcast=True)
    zero = (pair << 16).to(gl.float32, bitcast=True)
    return (d * (of_row * UNIT)[None, :] - zero[:, None] * row_sum[None, :]) * scale[:, None]


@gluon.jit
def halves(packed, UPPER: gl.constexpr):
    """The lower or upper half of each byte, as e4m3."""
    ASM: gl.constexpr = HIGH if UPPER else LOW
    v = gl.inline_asm_elementwise(ASM, "=r,r", [packed], dtype=gl.uint8, is_pure=True, pack=4)
    return v.to(gl.float8e4nv, bitcast=True)


@gluon.jit
def _met(ring, place):
    """Rows of one box, both terms below each other, as the right side of a product."""
    TERMS: gl.constexpr = 1 if ring.FORM == BF16 else 2
    place = ring.places.index(place)
    return place.reshape([TERMS * ring.COLUMNS, place.shape[2]]).permute((1, 0))


@gluon.jit
def _step(ring, total, stage, j, KEPT: gl.constexpr, HALF: gl.constexpr, ACC: gl.constexpr):
    """total [TILE, COLUMNS] += the products of one step, scaled."""
    TILE: gl.constexpr = ring.TILE
    COLUMNS: gl.constexpr = ring.COLUMNS
    BOTH: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [ring.WARPS, 1], [16, 2 * COLUMNS, 32])
    zero = gl.zeros([TILE, 2 * COLUMNS], gl.float32, BOTH)
    if ring.FORM == BF16:
        for box in gl.static_range(ring.BOXES):
            w = ring.weights.index(stage * ring.BOXES + box)
            x = _met(ring, stage * ring.BOXES + box)
            total = warpgroup_mma(w, x, total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    elif ring.FORM == FP8:
        w, x = ring.weights.index(stage), _met(ring, stage)
        d = warpgroup_mma(w, x, zero, use_acc=False, is_async=True)
        scale = _of_rows(ring, stage, 0, ACC) * _kept(ring, j, KEPT, ACC)
        d = warpgroup_mma_wait(0, deps=[d])
        total += _both(d, TILE, COLUMNS, ACC) * scale[None, :]
    else:
        packed = ring.weights.index(stage).load(gl.DotOperandLayout(0, BOTH, 4))
        x = _met(ring, 2 * stage)
        y = _met(ring, 2 * stage + 1)
        d = warpgroup_mma(halves(packed, False), x, zero, use_acc=False, is_async=True)
        # One after the other: registers do not hold both halves on their way.
        d = warpgroup_mma_wait(0, deps=[d])
        e = warpgroup_mma(halves(packed, True), y, zero, use_acc=False, is_async=True)
        e = warpgroup_mma_wait(0, deps=[e])
        for half in gl.static_range(2):
            sums = _both(d if half == 0 else e, TILE, COLUMNS, ACC)
            pair = _of_weights(ring, 2 * stage + half, ACC)
            of_row = _of_rows(ring, 2 * stage, half, ACC)
            row_sum = _of_rows(ring, 2 * stage + 1, half, ACC)
            total += less_zeros(sums, pair, of_row, row_sum, HALF)
    return total


@gluon.jit
def _put(ring, total, PARTS, n, segment, m, r, N: gl.constexpr, WIDE: gl.constexpr):
    """A lane's part of a row of tiles."""
    column = row_of(n, WIDE, ring.TILE) + r
    at = (segment * ring.rows + m)[None, :] * N + column[:, None]
    live = (m < ring.rows)[None, :] & (column < N)[:, None]
    gl.store(PARTS + at, never_empty(total), mask=live)


@gluon.jit
def _product(
    ring, at, PARTS, WHICH: gl.constexpr, N: gl.constexpr, KB: gl.constexpr, WIDE: gl.constexpr,
    PERS: gl.constexpr, EACH: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    """Parts of the sums of this program's tiles of one matrix. `at`, and the result: the next stage
    of the ring, and the parity of what arrives there."""
    ACC: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [ring.WARPS, 1], [16, ring.COLUMNS, 16 if ring.FORM == BF16 else 32]
    )
    PER: gl.constexpr = PERS[WHICH]
    KEPT: gl.constexpr = kept_scales(PERS, EACH)
    m = gl.arange(0, ring.COLUMNS, layout=gl.SliceLayout(0, ACC))
    r = gl.arange(0, ring.TILE, layout=gl.SliceLayout(1, ACC))
    stage, parity = at
    first, count = ring.firsts[WHICH], ring.counts[WHICH]
    n = first // KB
    k = first % KB
    total = gl.zeros([ring.TILE, ring.COLUMNS], gl.float32, ACC)
    for j in range(count):
        mbarrier.wait(ring.full.index(stage), parity)
        total = _step(ring, total, stage, WHICH * KEPT + j, KEPT, HALF, ACC)
        gl.thread_barrier()
        mbarrier.arrive(ring.empty.index(stage))
        ends_row = k == KB - 1
        ends_part = ends_row | (j == count - 1)
        if EACH > 1:
            ends_part = ends_part | ((j + 1) % PER == 0)
        if ends_part:
            _put(ring, total, PARTS, n, (first + j) // PER - n * KB // PER, m, r, N, WIDE)
            total = gl.zeros([ring.TILE, ring.COLUMNS], gl.float32, ACC)
        n = gl.where(ends_row, n + 1, n)
        k = gl.where(ends_row, 0, k + 1)
        stage, parity = ahead(stage, parity, ring.STAGES)
    return stage, parity


@gluon.jit
def _multiply(
    ring, scales, steps, RESIDUAL, POST, NEXT, PARTS, WIDE_PARTS, MIDDLE, MIDDLE_TERMS,
    MIDDLE_SCALES, MIDDLE_SQUARES, INNER, INNER_TERMS, INNER_SCALES, Y, TERMS, SCALES, SQUARES,
    PROJECTED, TAIL, COUNTERS, rows, STRIDE, eps, H: gl.constexpr, WIDE: gl.constexpr,
    N: gl.constexpr, TAIL_N: gl.constexpr, HALF: gl.constexpr, PERS: gl.constexpr,
    EACH: gl.constexpr,
):  # fmt: skip
    """All that the other warps do."""
    FORM: gl.constexpr = ring.FORM
    TILE: gl.constexpr = ring.TILE
    WARPS: gl.constexpr = ring.WARPS
    narrow = items_of(H // BLOCK, rows, WARPS)
    if FORM == FP8:
        _keep_scales(ring, scales[0], steps[0], 0, ring.KB0, 0, PERS, EACH)
        _keep_scales(ring, scales[1], steps[1], 1, ring.KB1, WIDE, PERS, EACH)
        _keep_scales(ring, scales[2], steps[2], 2, ring.KB2, 0, PERS, EACH)
        if N > 0:
            _keep_scales(ring, scales[3], steps[3], 3, ring.KB1, 0, PERS, EACH)
        gl.thread_barrier()
    gdc_wait()
    stage = 0
    parity = 0
    at = _product(ring, (stage, parity), PARTS, 0, H, ring.KB0, 0, PERS, EACH, HALF)
    half_norm(COUNTERS, rows, PARTS, RESIDUAL, POST, MIDDLE, MIDDLE_TERMS, MIDDLE_SCALES,
              MIDDLE_SQUARES, STRIDE, H, ring.KB0, PERS[0], TILE, FORM, False, WARPS)  # fmt: skip
    await_all(COUNTERS, narrow)
    at = _product(ring, at, WIDE_PARTS, 1, 2 * WIDE, ring.KB1, WIDE, PERS, EACH, HALF)
    silu_mul(COUNTERS + 1, rows, WIDE_PARTS, INNER, INNER_TERMS, INNER_SCALES, MIDDLE_SQUARES,
             STRIDE, eps, H, WIDE, ring.KB1, PERS[1], TILE, FORM, WARPS)  # fmt: skip
    at = _product(ring, at, PARTS, 2, H, ring.KB2, 0, PERS, EACH, HALF)
    half_norm(COUNTERS + 2, rows, PARTS, RESIDUAL, NEXT, Y, TERMS, SCALES, SQUARES, STRIDE, H,
              ring.KB2, PERS[2], TILE, FORM, TAIL_N > 0, WARPS)  # fmt: skip
    if N > 0:
        await_all(COUNTERS + 2, narrow)
        _product(ring, at, WIDE_PARTS, 3, N, ring.KB1, 0, PERS, EACH, HALF)
        gdc_launch_dependents()
        if TAIL_N > 0:
            tail(rows, Y, TAIL, PROJECTED, SQUARES, eps, H, N, TAIL_N, WARPS)
        divided(rows, WIDE_PARTS, PROJECTED, SQUARES, eps, H, N, N + TAIL_N, ring.KB1, PERS[3],
                TILE, WARPS)  # fmt: skip


@gluon.jit(do_not_specialize=["rows"])
def stream(
    OUT, GATE_UP, DOWN, PROJECT, OUT_SCALE, GATE_UP_SCALE, DOWN_SCALE, PROJECT_SCALE, MET_OUT,
    MET_GATE_UP, MET_DOWN, MET_PROJECT, OUT_MET, GATE_UP_MET, DOWN_MET, PROJECT_MET, TAIL, RESIDUAL,
    POST, NEXT, PARTS, WIDE_PARTS, MIDDLE, MIDDLE_TERMS, MIDDLE_SCALES, MIDDLE_SQUARES, INNER,
    INNER_TERMS, INNER_SCALES, Y, TERMS, SCALES, SQUARES, PROJECTED, COUNTERS, rows, STRIDE,
    OUT_STEP, GATE_UP_STEP, DOWN_STEP, PROJECT_STEP, eps, H: gl.constexpr, K: gl.constexpr,
    WIDE: gl.constexpr, N: gl.constexpr, TAIL_N: gl.constexpr, SHARES: gl.constexpr,
    HALF: gl.constexpr, FORM: gl.constexpr, PERS: gl.constexpr, EACH: gl.constexpr,
    TILE: gl.constexpr, BOXES: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """RESIDUAL += X out^T; RESIDUAL += (silu * up of its norm) down^T; PROJECTED: the norm of that
    times N rows of PROJECT and TAIL_N of TAIL. H: columns of RESIDUAL; K: of X; WIDE: between.

    MET_*: descriptors of the rows that meet each matrix, *_MET of the scales of their terms;
    *_SCALE: of int4 descriptors, of FP8 pointers. SHARES, PERS: of each matrix."""
    scales = (OUT_SCALE, GATE_UP_SCALE, DOWN_SCALE, PROJECT_SCALE)
    ring = ring_of(
        (
            (OUT, GATE_UP, DOWN, PROJECT), scales if FORM == INT4 else (OUT,),
            (MET_OUT, MET_GATE_UP, MET_DOWN, MET_PROJECT),
            (OUT_MET, GATE_UP_MET, DOWN_MET, PROJECT_MET),
        ),
        rows, H, K, WIDE, N, SHARES, FORM, PERS, EACH, TILE, BOXES, COLUMNS, STAGES, WARPS,
    )  # fmt: skip
    narrow = items_of(H // BLOCK, rows, WARPS)
    wide = items_of(WIDE // BLOCK, rows, WARPS)
    steps = (OUT_STEP, GATE_UP_STEP, DOWN_STEP, PROJECT_STEP)
    gl.warp_specialize(
        [
            (_multiply, (
                ring, scales, steps, RESIDUAL, POST, NEXT, PARTS, WIDE_PARTS, MIDDLE, MIDDLE_TERMS,
                MIDDLE_SCALES, MIDDLE_SQUARES, INNER, INNER_TERMS, INNER_SCALES, Y, TERMS, SCALES,
                SQUARES, PROJECTED, TAIL, COUNTERS, rows, STRIDE, eps, H, WIDE, N, TAIL_N, HALF,
                PERS, EACH,
            )),
            (weights_arrive, (ring,)),
            (rows_arrive, (ring, COUNTERS, narrow, wide)),
        ],
        [1, 1],
        [24, 24],
    )  # fmt: skip
