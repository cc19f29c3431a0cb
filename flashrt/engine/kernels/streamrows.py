"""What becomes of sums inside the one launch of `stream`: each unit of BLOCK columns has a program
that reads its parts as they come, leaves their places empty, and makes what the next product reads.

References: `flashrt.engine.kernels.norm` and `terms`, whose numbers these are.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashrt.engine.kernels.streamring import BF16, BLOCK, count_one

EMPTY = gl.constexpr(-1)
"""The bits of a place for a part that is not there: of a NaN that no arithmetic makes."""


@gluon.jit
def never_empty(value):
    """The number, but no NaN whose bits mark an empty place."""
    bits = value.to(gl.int32, bitcast=True)
    return gl.where(bits == EMPTY, 0x7FFFFFFF, bits).to(gl.float32, bitcast=True)


@gluon.jit
def _look(PARTS, m, first, columns, rows, N, ok, KB: gl.constexpr, PER: gl.constexpr,
          L: gl.constexpr):  # fmt: skip
    """The sum of all parts of `columns` [U, BLOCK] of rows m [U], in order, and where one is still
    missing. `first` [U, BLOCK]: the columns' tiles."""
    SEGMENTS: gl.constexpr = (KB + PER - 2) // PER + 1
    start = first * KB
    segments = (start + KB - 1) // PER - start // PER + 1
    at = m[:, None] * N + columns
    total = gl.zeros([m.shape[0], BLOCK], gl.float32, L)
    missing = gl.zeros([m.shape[0], BLOCK], gl.int32, L)
    for s in gl.static_range(SEGMENTS):
        live = ok & (segments > s)
        part = gl.load(PARTS + s * rows * N + at, mask=live, other=0.0, volatile=True)
        missing = gl.where(part.to(gl.int32, bitcast=True) == EMPTY, 1, missing)
        total += part
    return total, missing


@gluon.jit
def _leave_empty(PARTS, m, first, columns, rows, N, ok, KB: gl.constexpr, PER: gl.constexpr,
                 L: gl.constexpr):  # fmt: skip
    """The places of parts that were read."""
    SEGMENTS: gl.constexpr = (KB + PER - 2) // PER + 1
    start = first * KB
    segments = (start + KB - 1) // PER - start // PER + 1
    at = m[:, None] * N + columns
    nothing = gl.full([m.shape[0], BLOCK], EMPTY, gl.int32, L).to(gl.float32, bitcast=True)
    for s in gl.static_range(SEGMENTS):
        gl.store(PARTS + s * rows * N + at, nothing, mask=ok & (segments > s))


@gluon.jit
def _any(missing):
    """Whether one is 1, told to all threads."""
    return gl.max(gl.max(missing, 1), 0)


@gluon.jit
def _taken(PARTS, m, columns, rows, N, ok, KB: gl.constexpr, PER: gl.constexpr, TILE: gl.constexpr,
           L: gl.constexpr):  # fmt: skip
    """The sum of all parts of `columns`, once they are there; their places are empty then."""
    total = gl.zeros([m.shape[0], BLOCK], gl.float32, L)
    waits = 1
    while waits > 0:
        total, missing = _look(PARTS, m, columns // TILE, columns, rows, N, ok, KB, PER, L)
        waits = _any(missing)
    _leave_empty(PARTS, m, columns // TILE, columns, rows, N, ok, KB, PER, L)
    return total


@gluon.jit
def _to_4_digits(value):
    """As `terms._to_4_digits`."""
    bits = value.to(gl.int32, bitcast=True)
    rounded = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(gl.float32, bitcast=True)
    small = (value + 24576.0) - 24576.0
    return gl.where(gl.abs(value) < 0.015625, small, rounded)


@gluon.jit
def _store_terms(y, TERMS, SCALES, m, unit, rows, live, c, UNITS, STRIDE):
    """As `terms.store_terms`, of one block of rows m [U]: y [U, BLOCK] bfloat16."""
    x = y.to(gl.float32)
    top = gl.max(gl.abs(x), 1)
    exponent = gl.maximum((top.to(gl.int32, bitcast=True) >> 23) - 134, -100)
    scale = ((exponent + 127) << 23).to(gl.float32, bitcast=True)
    value = x * ((127 - exponent) << 23).to(gl.float32, bitcast=True)[:, None]
    high = _to_4_digits(value)
    low = (value - high).to(gl.float8e4nv)
    at = ((m * UNITS + unit) * BLOCK)[:, None] + c[None, :]
    ok = live[:, None] & (c >= 0)[None, :]
    gl.store(TERMS + at, high.to(gl.float8e4nv), mask=ok)
    gl.store(TERMS + rows * UNITS * BLOCK + at, low, mask=ok)
    gl.store(SCALES + unit * STRIDE + m, scale, mask=live)
    gl.store(SCALES + (UNITS + unit) * STRIDE + m, gl.sum(x, 1), mask=live)


@gluon.jit
def _inverse(SQUARES, m, live, c, eps, H: gl.constexpr, L: gl.constexpr):
    """One over the rms of rows m [U]."""
    total = gl.zeros([m.shape[0], BLOCK], gl.float32, L)
    for b in gl.static_range(0, H // BLOCK, BLOCK):
        at = m[:, None] * (H // BLOCK) + b + c[None, :]
        in_row = live[:, None] & (b + c < H // BLOCK)[None, :]
        total += gl.load(SQUARES + at, mask=in_row, other=0.0, cache_modifier=".cg")
    return gl.rsqrt(gl.sum(total, 1) / H + eps)


@gluon.jit
def items_of(UNITS: gl.constexpr, rows, WARPS: gl.constexpr):
    """What programs share out among them: so many units of rows at a time, each by a warp."""
    return (UNITS * rows + WARPS - 1) // WARPS


@gluon.jit
def _places(item, UNITS: gl.constexpr, rows, WARPS: gl.constexpr, L: gl.constexpr):
    """Rows and units of one item, both [WARPS]; which there are; and their columns [WARPS,
    BLOCK]."""
    at = item * WARPS + gl.arange(0, WARPS, layout=gl.SliceLayout(1, L))
    c = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, L))
    unit = at // rows
    return at % rows, unit, at < UNITS * rows, unit[:, None] * BLOCK + c[None, :]


@gluon.jit
def half_norm(
    COUNTER, rows, PARTS, X, SCALE, Y, TERMS, SCALES, SQUARES, STRIDE, H: gl.constexpr,
    KB: gl.constexpr, PER: gl.constexpr, TILE: gl.constexpr, FORM: gl.constexpr,
    KEEP: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """This program's units of some rows, a warp a row: X += the parts in their order;
    Y = X * SCALE, or its terms, or with KEEP both; and the unit's squares. As
    `norm.add_half_norm`."""
    L: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    UNITS: gl.constexpr = H // BLOCK
    c = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, L))
    for item in range(gl.program_id(0), items_of(UNITS, rows, WARPS), gl.num_programs(0)):
        m, unit, live, columns = _places(item, UNITS, rows, WARPS, L)
        ok = live[:, None] & (columns >= 0)
        scale = gl.load(SCALE + columns, mask=ok, other=0.0)
        at = m[:, None] * H + columns
        x = gl.load(X + at, mask=ok, other=0.0, cache_modifier=".cg").to(gl.float32)
        total = _taken(PARTS, m, columns, rows, H, ok, KB, PER, TILE, L)
        rounded = (x + total).to(gl.bfloat16)
        gl.store(X + at, rounded, mask=ok)
        x = rounded.to(gl.float32)
        gl.store(SQUARES + m * UNITS + unit, gl.sum(x * x, 1), mask=live)
        y = (x * scale).to(gl.bfloat16)
        if KEEP or FORM == BF16:
            gl.store(Y + at, y, mask=ok)
        if FORM != BF16:
            _store_terms(y, TERMS, SCALES, m, unit, rows, live, c, UNITS, STRIDE)
        count_one(COUNTER)


@gluon.jit
def silu_mul(
    COUNTER, rows, PARTS, Y, TERMS, SCALES, SQUARES, STRIDE, eps, H: gl.constexpr,
    INNER: gl.constexpr, KB: gl.constexpr, PER: gl.constexpr, TILE: gl.constexpr,
    FORM: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """This program's units of some rows: silu(gate) * up of sums that are divided by their rms
    here, rounded once -> Y or its terms."""
    L: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    UNITS: gl.constexpr = INNER // BLOCK
    HALF: gl.constexpr = BLOCK // TILE
    c = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, L))
    for item in range(gl.program_id(0), items_of(UNITS, rows, WARPS), gl.num_programs(0)):
        m, unit, live, columns = _places(item, UNITS, rows, WARPS, L)
        ok = live[:, None] & (columns >= 0)
        first = unit[:, None] * (2 * HALF) + columns % BLOCK // TILE
        inverse = _inverse(SQUARES, m, live, c, eps, H, L)[:, None]
        gate = gl.zeros([WARPS, BLOCK], gl.float32, L)
        up = gl.zeros([WARPS, BLOCK], gl.float32, L)
        waits = 1
        while waits > 0:
            gate, missing = _look(PARTS, m, first, columns, rows, 2 * INNER, ok, KB, PER, L)
            up, also = _look(
                PARTS, m, first + HALF, columns + INNER, rows, 2 * INNER, ok, KB, PER, L
            )  # fmt: skip
            waits = _any(missing | also)
        _leave_empty(PARTS, m, first, columns, rows, 2 * INNER, ok, KB, PER, L)
        _leave_empty(
            PARTS, m, first + HALF, columns + INNER, rows, 2 * INNER, ok, KB, PER, L
        )  # fmt: skip
        gate = gate * inverse
        y = (gate / (1.0 + gl.exp(-gate)) * (up * inverse)).to(gl.bfloat16)
        if FORM == BF16:
            gl.store(Y + m[:, None] * INNER + columns, y, mask=ok)
        else:
            _store_terms(y, TERMS, SCALES, m, unit, rows, live, c, UNITS, STRIDE)
        count_one(COUNTER)


@gluon.jit
def divided(
    rows, PARTS, Y, SQUARES, eps, H: gl.constexpr, N: gl.constexpr, STRIDE: gl.constexpr,
    KB: gl.constexpr, PER: gl.constexpr, TILE: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """This program's units of some rows of Y [M, STRIDE], its first N columns: sums over their
    rms."""
    L: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    UNITS: gl.constexpr = (N + BLOCK - 1) // BLOCK
    c = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, L))
    for item in range(gl.program_id(0), items_of(UNITS, rows, WARPS), gl.num_programs(0)):
        m, _, live, columns = _places(item, UNITS, rows, WARPS, L)
        ok = live[:, None] & (columns < N)
        inverse = _inverse(SQUARES, m, live, c, eps, H, L)[:, None]
        total = _taken(PARTS, m, columns, rows, N, ok, KB, PER, TILE, L)
        at = m[:, None] * STRIDE + columns
        gl.store(Y + at, (total * inverse).to(gl.bfloat16), mask=ok)


@gluon.jit
def tail(
    rows, X, W, Y, SQUARES, eps, H: gl.constexpr, N: gl.constexpr, TAIL_N: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Y's columns behind the first N: rows X over their rms times W [TAIL_N, H], plain. By the last
    programs, a column each, since they have the fewest tiles; a warp a row."""
    L: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [WARPS, 1], [1, 0])
    CHUNK: gl.constexpr = 256
    c = gl.arange(0, CHUNK, layout=gl.SliceLayout(0, L))
    b = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, L))
    for column in range(gl.num_programs(0) - 1 - gl.program_id(0), TAIL_N, gl.num_programs(0)):
        for start in range(0, rows, WARPS):
            m = start + gl.arange(0, WARPS, layout=gl.SliceLayout(1, L))
            live = m < rows
            inverse = _inverse(SQUARES, m, live, b, eps, H, L)
            total = gl.zeros([WARPS, CHUNK], gl.float32, L)
            for at in gl.static_range(0, H, CHUNK):
                k = (at + c)[None, :]
                ok = live[:, None] & (k < H)
                x = gl.load(X + m[:, None] * H + k, mask=ok, other=0.0, cache_modifier=".cg")
                w = gl.load(W + column * H + k, mask=k < H, other=0.0)
                total += x.to(gl.float32) * w.to(gl.float32)
            y = (gl.sum(total, 1) * inverse).to(gl.bfloat16)
            gl.store(Y + m * (N + TAIL_N) + N + column, y, mask=live)
