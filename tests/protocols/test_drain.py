"""`/admin/drain`: what it takes."""

import pytest

from flashrt.errors import BadRequest
from flashrt.protocols.drain import read_drain


@pytest.mark.parametrize(
    ("body", "undo"),
    [(b"{}", False), (b'{"undo": false}', False), (b'{"undo": true, "x": 1}', True)],
)
def test_nothing_said_begins_a_drain_and_undo_ends_it(body, undo):
    """Fields that nobody knows are ignored."""
    assert read_drain(body).undo is undo


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"undo": 1}', b'{"undo": "yes"}', b'{"undo": null}']
)
def test_what_is_neither_is_refused(body):
    """A drain is not begun by a guess."""
    with pytest.raises(BadRequest):
        read_drain(body)
