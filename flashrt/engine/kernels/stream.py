"""From a mixer's rows to the next layer's norm in one launch, whose weights never stop arriving.

A launch of its own for each product costs the memory about 4 us: it must wait for the rows, and has
nothing under way until then. Here every program goes through its share of three matrices with a
ring of tiles in shared memory, filled by the copy engine ahead of the rows: while all wait for the
norm between two products, the next tiles arrive.

- Tiles [TILE, BOXES * 128 bytes] of a matrix are counted along K, then along N, and cut into LANES
  equal runs; a program has EACH of them. So a tile row's sum has a part for each lane that it lies
  in, whatever the number of rows or programs: that is what keeps a row's bits its own.
- Parts go to memory, over the mark of an empty place. Behind its share of a matrix, a program makes
  what the next product reads of some units of BLOCK columns (`streamrows`): it reads their parts
  until none is missing, and leaves the places empty. So a part costs one store and no fence.
- All await all units, behind the first and the second product, by a counter of each. So all
  programs must run at once: `streamed` launches no more than fit, and the kernels before end
  without them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from flashrt.engine.kernels.streamring import (
    BF16,
    BLOCK,
    BOX_BYTES,
    FP8,
    INT4,
    Ring,
    await_all,
    row_of,
)
from flashrt.engine.kernels.streamrows import half_norm, never_empty, silu_mul

_UNIT = gl.constexpr(512.0)
"""As `e4m3._UNIT`."""

_LOW = gl.constexpr("and.b32 $0, $1, 0x0F0F0F0F;")
_HIGH = gl.constexpr("{.reg .b32 t; shr.u32 t, $1, 4; and.b32 $0, t, 0x0F0F0F0F;}")


@gluon.jit
def _fetch(
    X, places, slot, k, live, rows, K: gl.constexpr, TERMS: gl.constexpr, COLUMNS: gl.constexpr,
    WIDTH: gl.constexpr, PIECES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Let what of the rows meets step k begin to arrive: PIECES times [TERMS * COLUMNS, WIDTH]."""
    L: gl.constexpr = gl.BlockedLayout([1, WIDTH // 8], [4, 8], [WARPS, 1], [1, 0])
    r = gl.arange(0, TERMS * COLUMNS, layout=gl.SliceLayout(1, L))
    c = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, L))
    m = r % COLUMNS
    at = ((r // COLUMNS * rows + m) * K)[:, None] + (k * (PIECES * WIDTH) + c)[None, :]
    ok = (live & (m < rows))[:, None] & (c >= 0)[None, :]
    for piece in gl.static_range(PIECES):
        place = places.index(slot * PIECES + piece)
        async_copy.async_copy_global_to_shared(place, X + at + piece * WIDTH, mask=ok)


@gluon.jit
def _scales(
    SCALE, XS, n, k, m, r, SCALES_K, STRIDE, WIDE: gl.constexpr, KB: gl.constexpr,
    SHARE: gl.constexpr, FORM: gl.constexpr, TILE: gl.constexpr,
):  # fmt: skip
    """What the sums of a step are scaled with, of its weights and of the rows. Read a step ahead,
    so nothing is computed with it here."""
    if FORM == FP8:
        weight = gl.load(SCALE + row_of(n, WIDE, TILE) // BLOCK * SCALES_K + k)
        found = (gl.load(XS + k * STRIDE + m, cache_modifier=".cg"), weight)
    elif FORM == INT4:
        at = row_of(n, WIDE, TILE) + r
        b = 2 * k
        found = (  # type: ignore[assignment]
            gl.load(SCALE + b // SHARE * SCALES_K + at),
            gl.load(SCALE + (b + 1) // SHARE * SCALES_K + at),
            gl.load(XS + b * STRIDE + m, cache_modifier=".cg"),
            gl.load(XS + (b + 1) * STRIDE + m, cache_modifier=".cg"),
            gl.load(XS + (2 * KB + b) * STRIDE + m, cache_modifier=".cg"),
            gl.load(XS + (2 * KB + b + 1) * STRIDE + m, cache_modifier=".cg"),
        )
    else:
        found = (0,)  # type: ignore[assignment]
    return found


@gluon.jit
def _both(d, TILE: gl.constexpr, COLUMNS: gl.constexpr, ACC: gl.constexpr):
    """The sums with HIGH and with LOW, which are neighbours in d, together."""
    high, low = d.reshape([TILE, 2, COLUMNS]).permute([0, 2, 1]).split()
    high = gl.convert_layout(high, ACC, assert_trivial=True)
    return high + gl.convert_layout(low, ACC, assert_trivial=True)


@gluon.jit
def _less_zeros(d, pair, of_row, row_sum, HALF: gl.constexpr):
    """As `e4m3._less_zeros`."""
    if HALF:
        scale = (pair >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)
    else:
        scale = (pair & -65536).to(gl.float32, bitcast=True)
    zero = (pair << 16).to(gl.float32, bitcast=True)
    return (d * (of_row * _UNIT)[None, :] - zero[:, None] * row_sum[None, :]) * scale[:, None]


@gluon.jit
def _halves(packed, HIGH: gl.constexpr):
    """The lower or upper half of each byte, as e4m3."""
    ASM: gl.constexpr = _HIGH if HIGH else _LOW
    v = gl.inline_asm_elementwise(ASM, "=r,r", [packed], dtype=gl.uint8, is_pure=True, pack=4)
    return v.to(gl.float8e4nv, bitcast=True)


@gluon.jit
def _step(
    total, scales, weights, rows, stage, slot, BOXES: gl.constexpr, FORM: gl.constexpr,
    TILE: gl.constexpr, COLUMNS: gl.constexpr, WARPS: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    """total [TILE, COLUMNS] += one step's products, scaled."""
    DEEP: gl.constexpr = 16 if FORM == BF16 else 32
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, COLUMNS, DEEP])
    BOTH: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, 2 * COLUMNS, 32])
    zero = gl.zeros([TILE, 2 * COLUMNS], gl.float32, BOTH)
    if FORM == BF16:
        for box in gl.static_range(BOXES):
            x = rows.index(slot * BOXES + box).permute((1, 0))
            total = warpgroup_mma(weights.index(stage * BOXES + box), x, total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    elif FORM == FP8:
        x = rows.index(slot).permute((1, 0))
        d = warpgroup_mma(weights.index(stage), x, zero, use_acc=False, is_async=True)
        d = warpgroup_mma_wait(0, deps=[d])
        total += _both(d, TILE, COLUMNS, ACC) * (scales[0] * scales[1])[None, :]
    else:
        packed = weights.index(stage).load(gl.DotOperandLayout(0, BOTH, 4))
        x, y = rows.index(2 * slot).permute((1, 0)), rows.index(2 * slot + 1).permute((1, 0))
        d = warpgroup_mma(_halves(packed, False), x, zero, use_acc=False, is_async=True)
        if COLUMNS > 32:
            # Registers do not hold both sums.
            d = warpgroup_mma_wait(0, deps=[d])
        e = warpgroup_mma(_halves(packed, True), y, zero, use_acc=False, is_async=True)
        if COLUMNS > 32:
            e = warpgroup_mma_wait(0, deps=[e])
        else:
            d, e = warpgroup_mma_wait(0, deps=[d, e])
        total += _less_zeros(_both(d, TILE, COLUMNS, ACC), scales[0], scales[2], scales[4], HALF)
        total += _less_zeros(_both(e, TILE, COLUMNS, ACC), scales[1], scales[3], scales[5], HALF)
    return total


@gluon.jit
def _product(
    ring, i, stage, parity, first, count, X, XS, SCALE, PARTS, rows, places,
    SCALES_K, STRIDE, N: gl.constexpr, K: gl.constexpr, KB: gl.constexpr, PER: gl.constexpr,
    WIDE: gl.constexpr, SHARE: gl.constexpr, HALF: gl.constexpr, FORM: gl.constexpr,
    COLUMNS: gl.constexpr, DEPTH: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Parts of sums over tiles [first, first + count) of one matrix, the i-th and following of the
    ring; -> where the ring is then."""
    TILE: gl.constexpr = ring.TILE
    BOXES: gl.constexpr = ring.BOXES
    TERMS: gl.constexpr = 1 if FORM == BF16 else 2
    PIECES: gl.constexpr = 2 if FORM == INT4 else BOXES
    WIDTH: gl.constexpr = BLOCK // 2 if FORM == BF16 else BLOCK
    ACC: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [WARPS, 1], [16, COLUMNS, 16 if FORM == BF16 else 32]
    )
    m = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, ACC))
    r = gl.arange(0, TILE, layout=gl.SliceLayout(1, ACC))
    n = first // KB
    k = first % KB
    ahead = k
    for early in gl.static_range(DEPTH - 1):
        _fetch(
            X, places, early, ahead, early < count, rows, K, TERMS, COLUMNS, WIDTH, PIECES, WARPS
        )
        async_copy.commit_group()
        ahead = gl.where(ahead == KB - 1, 0, ahead + 1)
    scales = _scales(SCALE, XS, n, k, m, r, SCALES_K, STRIDE, WIDE, KB, SHARE, FORM, TILE)
    total = gl.zeros([TILE, COLUMNS], gl.float32, ACC)
    slot = 0
    for j in range(count):
        free = gl.where(stage == 0, ring.STAGES - 1, stage - 1)
        after = gl.where(i > 0, i - 1 + ring.STAGES, -1)
        ring.arm(after, free)
        async_copy.wait_group(DEPTH - 2)
        # Behind it, all have left the step before, whose places may be filled again.
        gl.thread_barrier()
        fence_async_shared()
        ring.fill(after, free)
        _fetch(X, places, gl.where(slot == 0, DEPTH - 1, slot - 1), ahead, j + DEPTH - 1 < count,
               rows, K, TERMS, COLUMNS, WIDTH, PIECES, WARPS)  # fmt: skip
        async_copy.commit_group()
        ahead = gl.where(ahead == KB - 1, 0, ahead + 1)
        ends_row = k == KB - 1
        ends_lane = (j == count - 1) | ((j + 1) % PER == 0)
        last = j == count - 1
        next_n = gl.where(ends_row & (j < count - 1), n + 1, n)
        next_k = gl.where(last, k, gl.where(ends_row, 0, k + 1))
        coming = _scales(SCALE, XS, next_n, next_k, m, r, SCALES_K, STRIDE, WIDE, KB, SHARE, FORM,
                         TILE)  # fmt: skip
        mbarrier.wait(ring.full.index(stage), parity)
        total = _step(
            total, scales, ring.places, places, stage, slot, BOXES, FORM, TILE, COLUMNS, WARPS, HALF
        )
        if ends_row | ends_lane:
            segment = (first + j) // PER - n * KB // PER
            at = (segment * rows + m)[None, :] * N + (row_of(n, WIDE, TILE) + r)[:, None]
            gl.store(PARTS + at, never_empty(total), mask=(m < rows)[None, :] & (r >= 0)[:, None])
            total = gl.zeros([TILE, COLUMNS], gl.float32, ACC)
        scales = coming
        n = next_n
        k = next_k
        i += 1
        slot = gl.where(slot == DEPTH - 1, 0, slot + 1)
        wraps = stage == ring.STAGES - 1
        parity = gl.where(wraps, parity ^ 1, parity)
        stage = gl.where(wraps, 0, stage + 1)
    async_copy.wait_group(0)
    return i, stage, parity


@gluon.jit(do_not_specialize=["rows"])
def stream(
    OUT, GATE_UP, DOWN, OUT_SCALE, GATE_UP_SCALE, DOWN_SCALE, X, X_SCALES, RESIDUAL, POST, NEXT,
    PARTS, WIDE_PARTS, MIDDLE, MIDDLE_TERMS, MIDDLE_SCALES, MIDDLE_SQUARES, INNER, INNER_TERMS,
    INNER_SCALES, Y, TERMS, SCALES, SQUARES, COUNTERS, rows, STRIDE, OUT_STEP, GATE_UP_STEP,
    DOWN_STEP, eps, H: gl.constexpr, K: gl.constexpr, WIDE: gl.constexpr, SHARE0: gl.constexpr,
    SHARE1: gl.constexpr, SHARE2: gl.constexpr, HALF: gl.constexpr, FORM: gl.constexpr,
    PER0: gl.constexpr, PER1: gl.constexpr, PER2: gl.constexpr, EACH: gl.constexpr,
    TILE: gl.constexpr, BOXES: gl.constexpr, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """RESIDUAL += X out^T; RESIDUAL += (silu * up of its norm) down^T; Y, TERMS, SQUARES: the norm
    of that. H: columns of RESIDUAL; K: of X; WIDE: between."""
    BOX: gl.constexpr = BOX_BYTES // (2 if FORM == BF16 else 1)
    SPAN: gl.constexpr = BOXES * BOX * (2 if FORM == INT4 else 1)
    PIECES: gl.constexpr = 2 if FORM == INT4 else BOXES
    TERMS_EACH: gl.constexpr = 1 if FORM == BF16 else 2
    BITS: gl.constexpr = 16 if FORM == BF16 else 8
    ROWS: gl.constexpr = gl.bfloat16 if FORM == BF16 else gl.float8e4nv
    LAID: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=BOX_BYTES, element_bitwidth=BITS, rank=2
    )
    KB0: gl.constexpr = K // SPAN
    KB1: gl.constexpr = H // SPAN
    KB2: gl.constexpr = WIDE // SPAN
    UNITS0: gl.constexpr = H // BLOCK
    UNITS1: gl.constexpr = WIDE // BLOCK

    weights = gl.allocate_shared_memory(OUT.dtype, [STAGES * BOXES, TILE, BOX], LAID)
    places = gl.allocate_shared_memory(ROWS, [DEPTH * PIECES, TERMS_EACH * COLUMNS, BOX], LAID)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gl.thread_barrier()
    lane = gl.program_id(0) * EACH
    first0 = lane * PER0
    first1 = lane * PER1
    first2 = lane * PER2
    count0 = gl.maximum(gl.minimum(H // TILE * KB0 - first0, EACH * PER0), 0)
    count1 = gl.maximum(gl.minimum(2 * WIDE // TILE * KB1 - first1, EACH * PER1), 0)
    count2 = gl.maximum(gl.minimum(H // TILE * KB2 - first2, EACH * PER2), 0)
    ends = (count0, count0 + count1, count0 + count1 + count2)
    ring = Ring((OUT, GATE_UP, DOWN), weights, full, (first0, first1, first2), ends, KB0, KB1, KB2,
                WIDE, TILE, BOXES, STAGES)  # fmt: skip
    for early in gl.static_range(STAGES):
        ring.arm(early, early)
    gl.thread_barrier()
    for early in gl.static_range(STAGES):
        ring.fill(early, early)
    gdc_wait()
    i = 0
    place = 0
    parity = 0
    i, place, parity = _product(
        ring, i, place, parity, first0, count0, X, X_SCALES, OUT_SCALE, PARTS, rows, places,
        OUT_STEP, STRIDE, H, K, KB0, PER0, 0, SHARE0, HALF, FORM, COLUMNS, DEPTH, WARPS,
    )  # fmt: skip
    half_norm(
        COUNTERS, rows, PARTS, RESIDUAL, POST, MIDDLE, MIDDLE_TERMS, MIDDLE_SCALES, MIDDLE_SQUARES,
        STRIDE, H, KB0, PER0, TILE, FORM, False, WARPS,
    )  # fmt: skip
    await_all(COUNTERS, UNITS0)
    met = MIDDLE if FORM == BF16 else MIDDLE_TERMS
    i, place, parity = _product(
        ring, i, place, parity, first1, count1, met, MIDDLE_SCALES, GATE_UP_SCALE, WIDE_PARTS, rows,
        places, GATE_UP_STEP, STRIDE, 2 * WIDE, H, KB1, PER1, WIDE, SHARE1, HALF, FORM, COLUMNS,
        DEPTH, WARPS,
    )  # fmt: skip
    silu_mul(
        COUNTERS + 1, rows, WIDE_PARTS, INNER, INNER_TERMS, INNER_SCALES, MIDDLE_SQUARES, STRIDE,
        eps, H, WIDE, KB1, PER1, TILE, FORM, WARPS,
    )  # fmt: skip
    await_all(COUNTERS + 1, UNITS1)
    met = INNER if FORM == BF16 else INNER_TERMS
    _product(
        ring, i, place, parity, first2, count2, met, INNER_SCALES, DOWN_SCALE, PARTS, rows, places,
        DOWN_STEP, STRIDE, H, WIDE, KB2, PER2, 0, SHARE2, HALF, FORM, COLUMNS, DEPTH, WARPS,
    )  # fmt: skip
    gdc_launch_dependents()
    half_norm(
        COUNTERS, rows, PARTS, RESIDUAL, NEXT, Y, TERMS, SCALES, SQUARES, STRIDE, H, KB2, PER2,
        TILE, FORM, True, WARPS,
    )  # fmt: skip
