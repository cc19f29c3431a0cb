"""The facts of a filed capsule."""

import attrs

from flashrt.disk.filed import FiledRow
from flashrt.engine.protocol import ID_BYTES, pack_ids
from tests.disk.capsules import facts


def test_packed_ids_are_those_of_the_engine():
    """The rows' ids up to the position; what the last block has beyond is left out."""
    rows = (FiledRow(pack_ids([1, 2]), "a", 10), FiledRow(pack_ids([3, 4]), "b", 20))
    filed = attrs.evolve(facts("k", position=3), rows=rows, state_bytes=5)

    assert filed.packed == pack_ids([1, 2, 3])
    assert len(filed.packed) == 3 * ID_BYTES
    assert filed.size_bytes == 35
