"""The tiers that the settings ask for."""

import attrs
import pytest

from flashrt.engine.fake import FakeEngine
from flashrt.errors import CannotServe
from flashrt.policy.limits import Limits
from flashrt.settings import load
from flashrt.storing import (
    HEADROOM_SHARE,
    capsule_store,
    disk_shelf,
    headroom_bytes,
    refuse_conflicts,
)

LIMITS = Limits(max_seq=256, max_output_tokens=1, max_queue_depth=1, capsule_budget_bytes=16 << 20)
INFO = FakeEngine().info
ON_GPU = attrs.evolve(INFO, device="cuda:0")


def settings(**wish):
    return load({name: str(value) for name, value in wish.items()}, environ={})


def test_without_a_wish_there_is_one_tier_on_a_cpu():
    """The host's memory is the engine's, and nothing is written anywhere."""
    report = capsule_store(settings(), LIMITS, FakeEngine(), None).report()
    assert report["budget_bytes"] == 16 << 20
    assert report["host_budget_bytes"] == report["disk_budget_bytes"] == 0
    assert disk_shelf(settings(), INFO) is None


def test_a_wish_is_taken_as_it_is(tmp_path):
    """In MiB; the directory is made, for this user alone."""
    wish = settings(
        host_capsule_budget_mb=3, disk_capsule_dir=tmp_path / "c", disk_capsule_budget_mb=5
    )
    shelf = disk_shelf(wish, INFO)
    report = capsule_store(wish, LIMITS, FakeEngine(), shelf).report()
    assert report["host_budget_bytes"] == 3 << 20
    assert report["disk_budget_bytes"] == 5 << 20
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    shelf.close()


def test_without_a_size_the_directory_takes_a_share_of_what_is_free(tmp_path):
    """What lies there already is its own."""
    shelf = disk_shelf(settings(disk_capsule_dir=tmp_path), INFO)
    assert shelf.budget_bytes > 0
    shelf.close()


def test_a_directory_that_cannot_be_used_ends_the_start(tmp_path):
    """With a sentence that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotServe, match="file"):
        disk_shelf(settings(disk_capsule_dir=tmp_path / "file"), INFO)


def test_a_size_without_a_directory_ends_the_start():
    """It would mean nothing; the way out is named."""
    with pytest.raises(CannotServe, match="--disk-capsule-dir"):
        refuse_conflicts(settings(disk_capsule_budget_mb=5))
    refuse_conflicts(settings())


class BesideAGpu(FakeEngine):
    """Whose host pins at most `most` bytes."""

    def __init__(self, most):
        super().__init__()
        self._info, self.most = ON_GPU, most

    def take_host(self, size_bytes, /):
        return super().take_host(min(size_bytes, self.most))


def test_beside_a_gpu_the_hosts_memory_is_taken_at_start(capsys):
    """And told, before and behind: it takes its time."""
    engine = BesideAGpu(1 << 40)
    store = capsule_store(settings(host_capsule_budget_mb=3), LIMITS, engine, None)
    assert store.report()["host_budget_bytes"] == 3 << 20
    list(engine.prefill([1] * 9))
    assert engine.host_bytes(1) > 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "host      pinning 3 MiB for saved states"
    assert second.startswith("host      3 MiB in ")


@pytest.mark.parametrize(("wish", "most"), [(3, 2 << 20), (1 << 24, 1 << 60)])
def test_host_memory_that_is_not_to_be_had_ends_the_start(wish, most):
    """What there is is named, with the way out."""
    asked = settings(host_capsule_budget_mb=wish)
    with pytest.raises(CannotServe, match=rf"--host-capsule-budget-mb {wish}: .*less") as refused:
        capsule_store(asked, LIMITS, BesideAGpu(most), None)
    assert "only" in str(refused.value)


def test_where_nothing_was_asked_for_less_will_do(capsys):
    """The budget is what was pinned, whole pages of it."""
    store = capsule_store(settings(), LIMITS, BesideAGpu(5 << 20), None)
    assert store.report()["host_budget_bytes"] == 5 << 20
    assert "all that the system pins of" in capsys.readouterr().out


def test_a_gpu_keeps_some_of_its_budget_free():
    """Copies run beside its work; on a CPU there is no beside."""
    assert headroom_bytes(LIMITS, INFO) == 0
    assert headroom_bytes(LIMITS, ON_GPU) == (16 << 20) // HEADROOM_SHARE
