"""How weight matrices are cut."""

import itertools

import pytest

from flashrt.engine.forms import BLOCK
from flashrt.engine.kernels.tiles import (
    BLOCK_STREAM,
    BLOCK_STREAM_PARTS,
    E4M3,
    E4M3_MEASURED,
    MEASURED,
    PACKED,
    STREAM,
    STREAM_PARTS,
    TAIL_ROWS,
    Runs,
    e4m3_block_tile,
    e4m3_tile,
    expert_tile,
    lane_steps,
    packed_block_tile,
    packed_expert_tile,
    packed_tile,
    tile_for,
)


@pytest.mark.parametrize("shape", sorted(MEASURED), ids=str)
def test_measured_tiles_divide_their_shape(shape: tuple[int, int]):
    """No step of K is ragged, and every part has steps."""
    tile = MEASURED[shape]

    assert shape[1] % tile.depth == 0
    assert tile.parts <= shape[1] // tile.depth


@pytest.mark.parametrize("n", [1, 48, 96, 5120, 16480])
@pytest.mark.parametrize("k", [16, 33, 128, 5120, 17408])
@pytest.mark.parametrize("size", [2, 4])
def test_any_shape_has_a_tile_that_the_units_take(n: int, k: int, size: int):
    """Rows and depth are powers of two of at least 16, and no part is empty."""
    tile = tile_for(n, k, size)

    for side in (tile.rows, tile.depth):
        assert side >= 16
        assert side & (side - 1) == 0
    assert 1 <= tile.parts <= max(1, k // tile.depth)


@pytest.mark.parametrize("k", [16, 24, 64, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_any_expert_has_a_tile_that_the_units_take(k: int, size: int, block: bool, gated: bool):
    """And the shapes of the family have no ragged step."""
    tile = expert_tile(k, size, block=block, gated=gated)

    assert tile.rows >= 32
    assert tile.depth >= 16
    assert tile.rows & (tile.rows - 1) == tile.depth & (tile.depth - 1) == 0
    assert tile.depth <= max(k, 32)
    assert k < 512 or k % tile.depth == 0


@pytest.mark.parametrize("form", sorted(PACKED))
def test_any_packed_shape_has_a_tile_that_the_units_take(form: str):
    """Of few rows and of blocks; no part is empty."""
    for n, k in itertools.product((1, 96, 5120, 34816, 248320), (16, 80, 160, 5120, 17408)):
        blocks = [packed_block_tile(form, n, k, rows) for rows in (1, 32, 100, 512)]
        for tile in (packed_tile(form, n, k), *blocks):
            assert tile.rows in (32, 64, 128, 256)
            assert tile.depth in (64, 128, 256)
            assert 1 <= tile.parts <= max(1, k // tile.depth)


def test_any_packed_expert_has_a_tile_that_the_units_take():
    """Plain ones beside packed ones included; it depends on nothing but forms."""
    for form, block, gated in itertools.product((*PACKED, "Tensor"), (False, True), (False, True)):
        tile = packed_expert_tile(form, block=block, gated=gated)
        assert tile.rows in (32, 64, 128, 256)
        assert tile.depth in (64, 128, 256)
        assert tile.parts == 1


@pytest.mark.parametrize("form", sorted(E4M3))
def test_any_matrix_of_8_bits_has_a_tile_that_the_units_take(form: str):
    """Few rows and blocks alike; each part has a step."""
    for n, k in itertools.product((1, 96, 5120, 34816, 248320), (256, 5120, 17408)):
        for tile in (e4m3_tile(form, n, k), *(e4m3_block_tile(form, n, k, r) for r in (1, 100))):
            assert tile.rows in (64, 128)
            assert tile.depth == E4M3[form].depth
            assert 1 <= tile.parts <= max(1, k // tile.depth)


def test_measured_tiles_of_8_bits_have_steps_in_every_part():
    """And no ragged one."""
    for (_, _, k), tile in E4M3_MEASURED.items():
        assert k % tile.depth == 0
        assert tile.parts <= k // tile.depth


def test_a_tail_is_cut_into_more_programs_than_a_matrix():
    """Each of them reads more at a time: there are few."""
    assert tile_for(TAIL_ROWS, 5120).rows < tile_for(TAIL_ROWS + 1, 5120).rows
    assert tile_for(TAIL_ROWS, 5120).depth > tile_for(TAIL_ROWS + 1, 5120).depth


@pytest.mark.parametrize("steps", [1, 2, 10, 40, 48, 68, 136])
@pytest.mark.parametrize("tiles", [1, 2, 40, 80, 128, 272])
@pytest.mark.parametrize("lanes", [1, 264, 396])
def test_lanes_hold_a_whole_matrix_in_few_parts(steps: int, tiles: int, lanes: int):
    """No tile is left over, no row of tiles lies in more than a few lanes, and with tiles enough no
    lane has more than its share."""
    each = lane_steps(steps, tiles, lanes)

    assert lanes * each >= steps * tiles
    assert max(len({(n * steps + k) // each for k in range(steps)}) for n in range(tiles)) <= (
        STREAM_PARTS + 1
    )
    assert each <= max(-(-steps * tiles // lanes), -(-steps // STREAM_PARTS))


@pytest.mark.parametrize("form", sorted(STREAM))
def test_every_number_of_rows_streams_in_the_same_lanes(form: str):
    """Lanes fix bits: programs divide them, and the widest takes all rows."""
    tile = STREAM[form]

    assert list(tile.flows) == sorted(tile.flows)
    assert max(tile.flows) == 64
    for flow in tile.flows.values():
        assert tile.lanes % flow.lanes == 0
        assert flow.stages >= 2
        # As many warps that multiply as a processor has registers for beside the copying ones.
        assert flow.warps * tile.lanes // flow.lanes <= 12


def runs_of(n: int, steps: int, processors: int) -> list[Runs]:
    """Of a matrix, by each way to cut it."""
    return [
        Runs.whole(n, steps),
        Runs.alike(n, steps, processors),
        Runs.even(n, steps, processors),
    ]


CUTS = pytest.mark.parametrize(
    ("n", "steps", "processors"),
    list(
        itertools.product(
            (128, 384, 5120, 17664, 34816), (1, 2, 7, 20, 40, 48, 136), (1, 78, 114, 132)
        )
    ),
)


@CUTS
def test_runs_hold_every_step_once(n: int, steps: int, processors: int):
    """In order, and none is empty: each leaves its part of a tile."""
    for runs in runs_of(n, steps, processors):
        found = [runs.run(p) for p in range(runs.count)]

        assert [step for run in found for step in run] == list(range(runs.total))
        assert all(found)
        assert runs.tiles * BLOCK == n
        assert runs.longest == max(map(len, found))


@CUTS
def test_readers_find_the_parts_that_runs_leave(n: int, steps: int, processors: int):
    """A tile's parts are numbered from the run of its first step on, without a gap."""
    for runs in runs_of(n, steps, processors):
        left: dict[int, list[int]] = {}
        for p in range(runs.count):
            for tile in sorted({step // steps for step in runs.run(p)}):
                left.setdefault(tile, []).append(p - runs.holder(tile * steps))

        wanted = {tile: list(range(runs.parts(tile))) for tile in range(runs.tiles)}
        assert left == wanted
        assert runs.most == max(map(len, left.values()))


@CUTS
def test_runs_are_no_more_than_their_readers_want(n: int, steps: int, processors: int):
    """One part where it is stored as it is, as many for each tile where a norm adds them, and few
    where gates do; even runs differ by no more than a step."""
    whole, alike, even = runs_of(n, steps, processors)

    assert whole.most == 1
    assert {alike.parts(tile) for tile in range(alike.tiles)} == {alike.most}
    assert alike.most <= BLOCK_STREAM_PARTS
    assert alike.count <= max(processors, alike.tiles)
    assert even.count <= max(processors, 1)
    assert even.most <= (3 if 2 * even.tiles > processors else BLOCK_STREAM_PARTS)
    lengths = {len(even.run(p)) for p in range(even.count)}
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("form", sorted(BLOCK_STREAM))
def test_what_a_block_streams_through_fits_in_shared_memory(form: str):
    """Weights, both terms of rows, scales and sums of all stages; with two stages at least, one
    arrives while the other is multiplied."""
    flows = BLOCK_STREAM[form]
    assert list(flows) == sorted(flows)
    for columns, stages in flows.items():
        pieces = 2 if form == "Int4" else 1
        held = stages // pieces + pieces - 1
        piece = 2 * columns * BLOCK + 4 * pieces * columns + 4 * (BLOCK if pieces > 1 else 0) + 8
        assert stages >= 2
        assert stages * piece + held * BLOCK * BLOCK <= 226 * 1024


def test_a_block_of_fp8_has_no_more_programs_than_run_at_once():
    """Of the 27B shape at 128 rows; a fourth part would wait for a processor."""
    for k in (6144, 17408):
        assert e4m3_block_tile("Fp8Blocks", 5120, k, 128).parts == 3
        assert e4m3_block_tile("Int4", 5120, k, 128).parts == 4
