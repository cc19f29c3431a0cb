"""The way of events from the engine thread to the trio loop."""

import threading
import weakref
from collections.abc import Callable

import trio

from flashrt.outbox import Outbox


async def delivered(work: Callable[[Outbox[int]], None], deliver: Callable[[int], None]) -> None:
    """Do `work` with an outbox, on a thread, to its end."""
    token = trio.lowlevel.current_trio_token()

    def thread() -> None:
        outbox = Outbox(token, deliver)
        work(outbox)
        outbox.close()

    await trio.to_thread.run_sync(thread)


async def test_batches_are_delivered_in_their_order_on_the_loop():
    """None is lost, none overtakes another, whatever the loop does meanwhile."""
    seen: list[tuple[int, int]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        await delivered(
            lambda outbox: [outbox.post(number) for number in range(500)] and None,
            lambda number: seen.append((number, threading.get_ident())),
        )

    assert seen == [(number, threading.get_ident()) for number in range(500)]


async def test_what_was_posted_is_delivered_when_a_flush_returns():
    """Whoever comes next finds the loop as the last batch has left it."""
    seen: list[int] = []
    found: list[int] = []

    def work(outbox: Outbox[int]) -> None:
        for number in range(50):
            outbox.post(number)
            outbox.flush()
            found.append(len(seen))

    await delivered(work, seen.append)

    assert found == list(range(1, 51))


async def test_at_most_one_batch_is_under_way():
    """A loop that has fallen behind is waited for: no queue builds up."""
    posted: list[int] = []
    ahead: list[int] = []

    def work(outbox: Outbox[int]) -> None:
        for number in range(100):
            outbox.post(number)
            posted.append(number)

    await delivered(work, lambda number: ahead.append(len(posted) - number))

    assert max(ahead) <= 1


async def test_a_close_ends_its_thread():
    """Nothing is left behind by a server that stops."""
    before = {thread for thread in threading.enumerate() if thread.name == "flashrt-outbox"}
    await delivered(lambda outbox: outbox.post(1), lambda number: None)

    assert {t for t in threading.enumerate() if t.name == "flashrt-outbox"} <= before


def test_a_loop_that_is_over_holds_nobody_up():
    """Its batches are dropped; posting, flushing and closing come back."""
    seen: list[int] = []
    token = trio.run(_own_token)
    outbox = Outbox(token, seen.append)

    outbox.post(1)
    outbox.post(2)
    outbox.flush()
    outbox.close()

    assert seen == []


async def _own_token() -> trio.lowlevel.TrioToken:
    return trio.lowlevel.current_trio_token()


async def test_nothing_refers_to_a_batch_that_is_delivered():
    """An idle server holds no answer of an earlier request."""

    class Batch:
        pass

    def work(outbox: Outbox[Batch]) -> None:
        batch = Batch()
        watched = weakref.ref(batch)
        outbox.post(batch)
        del batch
        outbox.flush()
        while watched() is not None:  # the thread and the loop are on their way to let go
            trio.from_thread.run(trio.lowlevel.checkpoint)

    with trio.fail_after(10):
        await delivered(work, lambda batch: None)
