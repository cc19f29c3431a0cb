"""What the engine thread does between two requests, and at the end; over a real directory."""

from flashrt.disk import CapsuleDirectory
from flashrt.policy.tiers import Tier
from flashrt.shelf import DiskShelf
from flashrt.tending import NOTE, Tending
from tests.policy.turns import Server, opening, said

PROMPT = opening(*range(1, 9)) + said(*range(10, 40))
WITHIN_S = 20


class Process:
    """A server's core, from a start to a stop or a kill."""

    def __init__(self, path, **wish):
        self.shelf = DiskShelf(CapsuleDirectory(path, "fake", None), wait_s=WITHIN_S)
        self.server = Server(shelf=self.shelf, **wish)
        self.store = self.server.policy.store
        self.tending = Tending(self.server.loop, self.shelf, identity="fake")

    def write(self):
        """All states that there are to write."""
        self.tending.between_requests()
        while self.store.write_behind():
            self.shelf.wait_for_one(WITHIN_S)

    def stop(self):
        self.tending.park(self.server.performer.perform, WITHIN_S)


def test_after_a_stop_the_next_turn_restores(tmp_path):
    """All states, and the session by its name."""
    first = Process(tmp_path)
    answer = first.server.serve(PROMPT)
    first.stop()
    second = Process(tmp_path)
    held = {entry.key for entry in first.store.entries()}
    assert {entry.key for entry in second.store.entries()} == held
    again = second.server.serve((*PROMPT, *answer.ids, *said(9)))
    assert (again.action, again.plan.session.name) == ("restore", "s1")
    assert again.ids == Server().serve((*PROMPT, *answer.ids, *said(9))).ids
    assert again.plan.cached_tokens == len(PROMPT) + len(answer.ids) - 1


def test_a_stop_saves_what_is_live(tmp_path):
    """Though the state of its end has gone meanwhile."""
    first = Process(tmp_path)
    answer = first.server.serve(PROMPT)
    for entry in first.store.entries():
        first.store.drop(entry)
    first.stop()
    second = Process(tmp_path)
    (entry,) = second.store.entries()
    assert entry.position == len(PROMPT) + len(answer.ids) - 1


def test_a_kill_costs_what_was_not_written_yet(tmp_path):
    """What is written behind a turn is there, without any stop."""
    first = Process(tmp_path)
    first.server.serve(PROMPT)
    first.write()
    first.server.serve(said(41, 42))
    second = Process(tmp_path)
    assert len(second.store.entries()) == 3
    assert second.server.serve(PROMPT).action == "restore"


def test_what_is_dropped_leaves_no_file(tmp_path):
    """A session that is deleted, or has expired."""
    first = Process(tmp_path, idle_ttl_s=10.0)
    first.server.serve(PROMPT)
    first.write()
    first.server.now = 100.0
    first.server.serve(said(41, 42))
    first.write()
    first.stop()
    second = Process(tmp_path)
    assert {entry.session for entry in second.store.entries()} == {"s2"}
    assert all(entry.tier is Tier.DISK for entry in second.store.entries())


def test_a_session_that_is_forgotten_is_in_no_note_any_more(tmp_path):
    """At once: a kill right behind its deletion does not bring it back."""
    first = Process(tmp_path)
    first.server.serve(PROMPT)
    first.stop()
    second = Process(tmp_path)
    second.server.policy.sessions.forget(second.server.policy.sessions.get("s1"))
    second.write()
    assert second.shelf.flush(WITHIN_S)
    third = Process(tmp_path)
    assert len(third.server.policy.sessions) == 0


def test_what_expired_while_no_server_ran_is_deleted(tmp_path):
    """By the time at which it was filed."""
    first = Process(tmp_path)
    first.server.serve(PROMPT)
    first.stop()
    shelf = DiskShelf(CapsuleDirectory(tmp_path, "fake", None, clock=lambda: 1e12))
    Tending(Server(shelf=shelf).loop, shelf, identity="fake", idle_ttl_s=1e-9)
    assert shelf.flush(WITHIN_S)
    assert list(shelf.filed()) == []


def test_a_note_that_cannot_be_read_costs_no_more_than_itself(tmp_path, caplog):
    """The states are found all the same; the log says why the rest is not."""
    first = Process(tmp_path)
    first.server.serve(PROMPT)
    first.stop()
    CapsuleDirectory(tmp_path, "fake", None).write_note(NOTE, b"junk")
    second = Process(tmp_path)
    assert "earlier conversations is not used" in caplog.text
    assert len(second.store.entries()) == 3
    assert second.server.serve(PROMPT).action == "restore"


def test_a_directory_that_breaks_costs_no_answer(tmp_path):
    """It is taken away under the server, and every turn reads as without one."""
    first = Process(tmp_path / "capsules", budget=300)
    first.server.serve(PROMPT)
    first.write()
    for file in (tmp_path / "capsules").iterdir():
        file.unlink()
    (tmp_path / "capsules").rmdir()
    for prompt in (said(41, 42), PROMPT, said(43), PROMPT):
        assert first.server.serve(prompt).ids == Server().serve(prompt).ids
        first.write()
    first.stop()
