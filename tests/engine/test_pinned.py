"""Memory that is taken at start."""

import logging

import numpy as np
import pytest
import torch

from flashrt.engine import pinned
from flashrt.engine.pinned import LEFT_FREE_BYTES, pinned_pieces, taken

PIECE = 1 << 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pinned, "PIECE_BYTES", PIECE)


def test_memory_is_taken_piece_by_piece_each_pinned_when_it_is_there():
    """All pages are zeros that may be written; the last piece may be smaller."""
    seen = []
    pieces = list(taken(2 * PIECE + 4096, seen.append))
    assert list(map(len, pieces)) == [PIECE, PIECE, 4096]
    assert all(one is other for one, other in zip(pieces, seen, strict=True))
    for piece in pieces:
        assert not piece.any()
        piece[:] = 1


def test_it_ends_with_what_the_driver_does_not_pin_and_says_why(caplog):
    """What was pinned before stays."""
    count = 0

    def pin(_: np.ndarray) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise RuntimeError("a planned refusal")

    with caplog.at_level(logging.WARNING, "flashrt"):
        assert len(list(taken(9 * PIECE, pin))) == 2
    assert "a planned refusal" in caplog.text
    assert count == 3


def test_it_ends_before_the_system_has_nothing_left(monkeypatch, caplog):
    """A system without memory ends processes, and asks none of them."""
    free = [LEFT_FREE_BYTES + 2 * PIECE]

    def pin(piece: np.ndarray) -> None:
        free[0] -= len(piece)

    monkeypatch.setattr(pinned, "free_bytes", lambda _: free[0])
    with caplog.at_level(logging.WARNING, "flashrt"):
        assert len(list(taken(9 * PIECE, pin))) == 2
    assert f"{LEFT_FREE_BYTES >> 20} MiB of host memory are free" in caplog.text


@pytest.mark.gpu
def test_what_is_taken_for_a_gpu_is_pinned_until_nobody_refers_to_it():
    """The same addresses may be pinned again then."""
    for _ in range(3):
        pieces = pinned_pieces(3 * PIECE, torch.device("cuda"))
        assert len(pieces) == 3
        assert all(torch.from_numpy(piece[5:]).is_pinned() for piece in pieces)
        del pieces


@pytest.mark.gpu
def test_a_refusal_of_the_driver_leaves_no_error_behind():
    """Memory that is pinned already; the next kernel runs as if nothing had been."""
    piece = pinned_pieces(PIECE, torch.device("cuda"))[0]
    with pytest.raises(RuntimeError):
        pinned._pin(piece)
    assert torch.ones(3, device="cuda").sum().item() == 3
    assert torch.from_numpy(piece).is_pinned()
