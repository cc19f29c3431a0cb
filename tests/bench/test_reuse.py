"""The measuring command for reuse."""

from flashrt.bench import reuse


def test_it_prints_all_three_ways_and_what_a_plan_takes(capsys):
    """Each line's actions are checked by the command itself; reuse is quicker than reading."""
    reuse.main(["--prefix", "600", "--tail", "20", "--repeat", "1"])

    lines = capsys.readouterr().out.splitlines()
    prefix, cold, append, restore, *_ = lines[1].split()
    assert prefix == "600"
    assert max(float(append), float(restore)) < float(cold)
    assert "over 1000 capsules" in lines[-1]
