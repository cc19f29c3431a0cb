"""Two servers keep their saved states in one directory."""

import signal

import httpx
import pytest

from flashrt.disk import CapsuleDirectory
from tests.whole.talk import PathRun, demo_engine
from tests.whole.test_kill import FLAGS, Load, ask, begun, identity_of
from tests.whole.test_process import process


def stopped(child):
    """Its saved states are on disk then."""
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0


def capsules(url):
    return httpx.get(f"{url}/health").json()["capsules"]


@pytest.mark.slow
@pytest.mark.parametrize("budget_mb", [1024, 16], ids=["room", "little room"])
def test_two_servers_do_each_other_no_harm_and_share_what_is_whole(tmp_path, budget_mb):
    """Under load at the same time; then each of two new ones goes on with what the other had."""
    directory, oracle = tmp_path / "capsules", PathRun(demo_engine("float32", 2048))
    size = ("--disk-capsule-dir", str(directory), "--disk-capsule-budget-mb", str(budget_mb))
    mine, theirs = begun(), begun()
    theirs = [[{"role": "system", "content": f"other {talk[0]['content']}"}] for talk in theirs]

    with process(*FLAGS, *size) as (one, url), process(*FLAGS, *size) as (other, other_url):
        loads = [Load(url, mine), Load(other_url, theirs)]
        for load in loads:
            while len(load.answers) < 12:
                load.answered.wait(60)
                load.threads[0].join(0.05)
            load.end()
        for load in loads:
            oracle.meets(*load.answers[-3:])
        for at in (url, other_url):
            held = capsules(at)
            assert held["damaged"] == 0
            # In little room what one server has just filed may leave none for the other.
            assert not held["file_faults"] or budget_mb < 1000
        stopped(one)
        stopped(other)

    whole = list(CapsuleDirectory(directory, identity_of(directory), None).filed())
    assert whole
    assert sum(file.stat().st_size for file in directory.iterdir()) <= budget_mb << 20

    with process(*FLAGS, *size) as (one, url), process(*FLAGS, *size) as (other, other_url):
        answers = [ask(url, talk, "and now?") for talk in theirs]
        answers += [ask(other_url, talk, "and now?") for talk in mine]
        oracle.meets(*answers)
        restored = [answer.action == "restore" for answer in answers]
        assert all(restored) if budget_mb > 1000 else any(restored)
        for at in (url, other_url):
            assert capsules(at)["damaged"] == 0
