"""Conversations by content; a client's name for one is only a hint."""

from flashrt.engine.protocol import pack_ids
from flashrt.policy.journal import Journal
from flashrt.policy.sessions import SessionRegistry


def test_the_registry_is_bounded_and_the_oldest_goes_first():
    """A session that is used again stays."""
    registry = SessionRegistry(sessions_max=2)
    first, second = registry.open("a"), registry.open("a")
    registry.use(first)
    registry.open("a")
    assert len(registry) == 2
    assert registry.get(first.name) is first
    assert registry.get(second.name) is None


def test_who_is_idle_for_too_long_is_forgotten():
    """Use begins the time anew; at the limit itself a session still lives."""
    now = [0.0]
    registry = SessionRegistry(idle_ttl_s=10, clock=lambda: now[0])
    idle, used = registry.open("a"), registry.open("a")
    now[0] = 6.0
    registry.use(used)
    now[0] = 10.0
    assert registry.expire() == []
    now[0] = 10.5
    assert registry.expire() == [idle]
    assert registry.get(idle.name) is None
    assert registry.get(used.name) is used
    now[0] = 1e9
    assert SessionRegistry(clock=lambda: now[0]).expire() == []


def test_a_hint_finds_only_sessions_of_its_namespace():
    """Two namespaces may use one name (G10)."""
    registry = SessionRegistry()
    mine, other = registry.open("a"), registry.open("b")
    mine.hint = other.hint = "chat"
    assert registry.hinted("a", "chat") is mine
    assert registry.hinted("b", "chat") is other
    assert registry.hinted("c", "chat") is None
    assert registry.hinted("a", None) is None


def test_the_newest_of_a_name_is_found():
    """Names are reused by clients."""
    registry = SessionRegistry()
    old, new = registry.open("a"), registry.open("a")
    old.hint = new.hint = "chat"
    assert registry.hinted("a", "chat") is new
    registry.use(old)
    assert registry.hinted("a", "chat") is old


def test_names_are_never_used_twice():
    """Capsules carry them longer than the registry may know them."""
    registry = SessionRegistry(sessions_max=1)
    assert len({registry.open("a").name for _ in range(5)}) == 5


def test_shared_counts_pending_ids_too():
    """A prompt may go on with the pending id."""
    session = SessionRegistry().open("a")
    session.journal = Journal.of((1, 2, 3), 2, ())
    assert session.shared(pack_ids((1, 2, 3, 4))) == 3
    assert session.shared(pack_ids((1, 9))) == 1
