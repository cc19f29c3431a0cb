"""How each weight matrix is cut for the kernels, as data: measured offline, never while serving.

`depth` and `parts` fix the order of a sum, hence bits, so a shape keeps them for every number of
rows. Knows no Triton.
"""

from collections.abc import Mapping

import attrs

from flashrt.engine.forms import BLOCK

PROGRAMS_WANTED = 240
"""Programs that keep a large GPU's memory busy; fewer ask for split sums."""


@attrs.frozen
class Tile:
    """One program's share of a weight matrix [N, K], and how it is run."""

    rows: int
    """Of N, a power of two."""
    depth: int
    """Of K per step, a power of two."""
    warps: int
    stages: int
    parts: int = 1
    """Slices of K that are summed apart, where the reader adds them in order."""
    columns: int = 128
    """Rows of a block that meet the weights together, at most."""


MEASURED: Mapping[tuple[int, int], Tile] = {
    # (N, K), the 27B shape on an H200.
    (16480, 5120): Tile(64, 128, 4, 3),
    (14336, 5120): Tile(64, 128, 4, 4),
    (34816, 5120): Tile(64, 64, 4, 3),
    (248320, 5120): Tile(64, 128, 4, 3),
    (5120, 6144): Tile(64, 128, 4, 3, parts=3),
    (5120, 17408): Tile(64, 128, 4, 4, parts=3),
}


TAIL_ROWS = 128
"""Rows of a matrix that is computed beside another: gates of heads, behind packed projections."""

TAIL = Tile(16, 128, 4, 6)
"""Its tile beside one of 8 bits: with more shared memory, fewer programs would run at once."""


def tile_for(n: int, k: int, element_size: int = 2) -> Tile:
    """The tile of a weight matrix [n, k]; one that fits any shape where none was measured."""
    if element_size > 2:
        # float32 products run on the plain units: small tiles keep them in registers.
        return Tile(32, 32, 4, 2)
    if (tile := MEASURED.get((n, k))) is not None:
        return tile
    if n <= TAIL_ROWS:
        # So few programs that each must have much under way.
        return Tile(16, max(32, min(256, 1 << k.bit_length() - 1)), 4, 4)
    depth = 128 if k >= 512 else 64 if k >= 128 else 32
    rows = 64
    programs, steps = -(-n // rows), k // depth
    parts = max(1, min(4, PROGRAMS_WANTED // programs, steps // 8))
    return Tile(rows, depth, 4, 3, parts)


NARROW: Mapping[int, Tile] = {
    16: Tile(128, 128, 4, 4),
    32: Tile(128, 128, 4, 4),
    64: Tile(128, 128, 8, 4),
}
"""Of a head in 8 bits, by the columns that meet it: the first that has room for the rows. With
fewer than 16, Triton 3.6 takes the older instruction. Not measured yet."""

BEST_STAGES = 6
"""Of the few programs that multiply rows of the head here and there: what each waits for is not
hidden by others. Stages fix no bits."""


EXPERTS: Mapping[bool, Mapping[bool, Tile]] = {
    # Of few rows: as many programs as one row's experts have tiles must fill the device.
    False: {True: Tile(32, 256, 4, 4), False: Tile(64, 128, 4, 3)},
    # Of a block.
    True: {True: Tile(128, 64, 8, 4), False: Tile(128, 64, 8, 4)},
}
"""By whether they are for a block, and whether gates and ups are computed; not measured yet."""


def expert_tile(k: int, element_size: int, *, block: bool, gated: bool = False) -> Tile:
    """The tile of an expert's matrix [n, k]; of a gated one, half of its rows are gates."""
    if element_size > 2:
        return Tile(32, 32, 4, 2)
    tile = EXPERTS[block][gated]
    return tile if k >= tile.depth else attrs.evolve(tile, depth=max(32, 1 << k.bit_length() - 1))


PACKED: Mapping[str, Tile] = {
    "Fp8Blocks": Tile(64, 128, 4, 5),
    "Fp8Rows": Tile(64, 128, 4, 5),
    "Int4": Tile(128, 128, 4, 5),
    "Nvfp4": Tile(128, 128, 4, 5),
}
"""Of few rows by the form, and of a block below. Parts follow from the shape; a step is cut to what
shares a scale. A guess: matrices that are large lie as `e4m3` takes them, or in NVFP4."""

PACKED_BLOCK = Tile(128, 64, 8, 4)

PACKED_EXPERTS: Mapping[tuple[str, bool, bool], Tile] = {
    # Of few rows, gates and ups.
    ("Fp8Blocks", False, True): Tile(64, 128, 4, 5),
    ("Fp8Rows", False, True): Tile(64, 128, 4, 5),
    ("Int4", False, True): Tile(64, 128, 4, 5),
    ("Nvfp4", False, True): Tile(64, 128, 4, 5),
    ("Tensor", False, True): Tile(64, 128, 4, 4),
    # Of few rows, down.
    ("Fp8Blocks", False, False): Tile(64, 128, 4, 4),
    ("Fp8Rows", False, False): Tile(64, 128, 4, 4),
    ("Int4", False, False): Tile(128, 128, 4, 3),
    ("Nvfp4", False, False): Tile(64, 128, 4, 4),
    ("Tensor", False, False): Tile(64, 128, 4, 3),
    # Of a block.
    **{(form, True, gated): Tile(128, 64, 8, 4) for form in (*PACKED, "Tensor")
       for gated in (False, True)},
}  # fmt: skip
"""By form, whether for a block, and whether gates and ups are computed, where any expert is packed:
that of the routed ones says how many rows, that of the shared one how deep its own steps are. Few
rows of int4 were measured; the others are guesses from it."""

HIGH_FROM = 32768
"""Rows of a matrix from which tiles of 128 rows are programs enough; fewer get tiles of 64."""

PACKED_PROGRAMS, PACKED_BLOCK_PROGRAMS = 320, 132
"""As PROGRAMS_WANTED; packed tiles are fewer bytes each, and those of a block fill a processor."""

FUSED_ROWS = 256
"""Rows of a block up to which packed weights are made bfloat16 inside the product. Above, slices of
them are made so once, and the library multiplies."""


def packed_tile(form: str, n: int, k: int) -> Tile:
    """The tile of a packed matrix [n, k]."""
    tile = PACKED[form]
    if n < HIGH_FROM:
        tile = attrs.evolve(tile, rows=64)
    return _split(tile, k, -(-n // tile.rows), PACKED_PROGRAMS)


def packed_expert_tile(form: str, *, block: bool, gated: bool) -> Tile:
    """The tile of experts in a form, packed or beside packed ones."""
    return PACKED_EXPERTS[form, block, gated]


def packed_block_tile(form: str, n: int, k: int, rows: int) -> Tile:
    """The same for a block of `rows`."""
    tile = PACKED_BLOCK
    programs = -(-n // tile.rows) * -(-rows // tile.columns)
    return _split(tile, k, programs, PACKED_BLOCK_PROGRAMS)


def _split(tile: Tile, k: int, programs: int, wanted: int) -> Tile:
    """With parts so that there are about as many programs, each of at least five steps."""
    return attrs.evolve(tile, parts=max(1, min(8, wanted // programs, k // tile.depth // 5)))


E4M3: Mapping[str, Tile] = {
    "Fp8Blocks": Tile(64, BLOCK, 4, 5),
    "Fp8Rows": Tile(64, BLOCK, 4, 5),
    "Int4": Tile(64, 2 * BLOCK, 4, 4),
}
"""Of few rows by the form; the depth is what one step takes. Parts follow from the shape."""

E4M3_HIGH = {"Fp8Blocks": HIGH_FROM, "Fp8Rows": HIGH_FROM, "Int4": 0}
"""Rows of a matrix from which a tile has 128 of them, with three stages."""

E4M3_MEASURED: Mapping[tuple[str, int, int], Tile] = {
    # (form, N, K), the 27B shape on an H200.
    ("Fp8Blocks", 34816, 5120): Tile(64, BLOCK, 4, 3),
    ("Fp8Blocks", 5120, 6144): Tile(128, BLOCK, 4, 4, parts=6),
    ("Fp8Blocks", 5120, 17408): Tile(64, BLOCK, 4, 6, parts=3),
    ("Int4", 16384, 5120): Tile(64, 2 * BLOCK, 4, 4),
    ("Int4", 14336, 5120): Tile(64, 2 * BLOCK, 4, 4),
    ("Int4", 5120, 6144): Tile(128, 2 * BLOCK, 4, 3, parts=6),
    ("Int4", 5120, 17408): Tile(128, 2 * BLOCK, 4, 3, parts=6),
}

E4M3_BLOCK_COLUMNS = {"Fp8Blocks": 64, "Fp8Rows": 64, "Int4": 32}
"""Rows of a block that meet a tile together; of int4 a step has two sums under way."""

E4M3_BLOCK_PARTS = {"Fp8Blocks": 3, "Fp8Rows": 3, "Int4": 4}
"""Parts of a block's product at most, each a float32 result that is written and read again. Of FP8
a fourth would be programs that wait for a processor."""

E4M3_BLOCK_PROGRAMS = 640
"""As PROGRAMS_WANTED."""


def e4m3_tile(form: str, n: int, k: int) -> Tile:
    """The tile of a matrix [n, k] of few rows."""
    if (tile := E4M3_MEASURED.get((form, n, k))) is not None:
        return tile
    tile = E4M3[form]
    if n >= E4M3_HIGH[form]:
        tile = attrs.evolve(tile, rows=128, stages=3)
    return _split(tile, k, -(-n // tile.rows), PACKED_PROGRAMS)


def e4m3_block_tile(form: str, n: int, k: int, rows: int) -> Tile:
    """The same of a block of `rows`."""
    tile = Tile(128, E4M3[form].depth, 4, 3, columns=E4M3_BLOCK_COLUMNS[form])
    programs = -(-n // tile.rows) * -(-rows // tile.columns)
    tile = _split(tile, k, programs, E4M3_BLOCK_PROGRAMS)
    return attrs.evolve(tile, parts=min(tile.parts, E4M3_BLOCK_PARTS[form]))


@attrs.frozen
class Flow:
    """How one launch of `stream` is run for so many columns."""

    warps: int
    """That multiply."""
    lanes: int
    """That one program has. Lanes fix bits, programs do not."""
    stages: int
    """Tiles under way."""


@attrs.frozen
class StreamTile:
    """How a form's matrices are cut for `stream`."""

    rows: int
    boxes: int
    """Copies of 128 bytes of each row in a step."""
    lanes: int
    """For each processor of the device."""
    flows: Mapping[int, Flow]
    """By columns: the first that has room for the rows."""


STREAM: Mapping[str, StreamTile] = {
    "Tensor": StreamTile(
        64, 2, 2, {8: Flow(4, 2, 12), 16: Flow(4, 2, 11), 32: Flow(4, 2, 9), 64: Flow(4, 2, 6)}
    ),
    "Fp8Blocks": StreamTile(
        128, 1, 3, {8: Flow(8, 3, 12), 16: Flow(8, 3, 10), 32: Flow(8, 3, 8), 64: Flow(8, 3, 6)}
    ),
    "Int4": StreamTile(
        128, 1, 3, {8: Flow(8, 3, 10), 16: Flow(8, 3, 8), 32: Flow(8, 3, 6), 64: Flow(8, 3, 4)}
    ),
}
"""By the form of all matrices. One program a processor, which takes nearly all of its registers: it
begins where nothing else is left, so none can be kept out for ever by what the small kernels before
leave between the registers of others, while those that have begun wait for it."""

STREAM_PARTS = 16
"""Lanes that K is cut into at most, about: each leaves a part that is written and read again."""


def lane_steps(steps: int, tiles: int, lanes: int) -> int:
    """How many tiles one lane has of a matrix of `tiles` rows of tiles, `steps` in each."""
    return max(-(-tiles * steps // lanes), -(-steps // STREAM_PARTS))


BLOCK_STREAM: Mapping[str, Mapping[int, int]] = {
    "Fp8Blocks": {32: 8, 64: 6, 128: 4},
    "Int4": {32: 10, 64: 7, 128: 5},
}
"""Pieces of K under way in `blockstream`, by the form; by columns, the first that has room for the
rows, or the last. What fits in shared memory. Tiles of 256 rows of weights were measured too: of
FP8 3 % faster for gates and ups and slower elsewhere, of int4 slower."""

BLOCK_STREAM_PARTS, BLOCK_STREAM_STEPS = 3, 4
"""Parts of a sum at most where the reader adds them, and steps of each at least."""


@attrs.frozen
class Runs:
    """How the steps of a matrix, counted along K and then along tiles of BLOCK rows, are cut for
    `blockstream`: run p has those from p * total // count on."""

    tiles: int
    steps: int
    """Of each tile."""
    count: int

    @classmethod
    def whole(cls, n: int, steps: int) -> "Runs":
        """A tile each: sums have one part."""
        return cls(n // BLOCK, steps, n // BLOCK)

    @classmethod
    def alike(cls, n: int, steps: int, processors: int) -> "Runs":
        """As many for each tile as leave no processor two of them, so sums have as many parts."""
        tiles = n // BLOCK
        parts = min(processors // tiles, BLOCK_STREAM_PARTS, steps // BLOCK_STREAM_STEPS)
        return cls(tiles, steps, tiles * max(1, parts))

    @classmethod
    def even(cls, n: int, steps: int, processors: int) -> "Runs":
        """One for each processor, across the borders of tiles, so that all have as much to do; sums
        have different parts. Few tiles are cut alike."""
        alike = cls.alike(n, steps, processors)
        if 2 * alike.tiles <= processors:
            return alike
        return attrs.evolve(alike, count=min(processors, alike.total))

    @property
    def total(self) -> int:
        """Steps of all tiles."""
        return self.tiles * self.steps

    @property
    def longest(self) -> int:
        """Steps of a run at most."""
        return -(-self.total // self.count)

    def run(self, p: int) -> range:
        """Its steps."""
        return range(p * self.total // self.count, (p + 1) * self.total // self.count)

    def holder(self, step: int) -> int:
        """The run of a step."""
        return ((step + 1) * self.count - 1) // self.total

    def parts(self, tile: int) -> int:
        """Of a tile's sums: one for each run from that of its first step to that of its last."""
        last = (tile + 1) * self.steps - 1
        return self.holder(last) - self.holder(tile * self.steps) + 1

    @property
    def most(self) -> int:
        """Parts at most."""
        return max(self.parts(tile) for tile in range(self.tiles))
