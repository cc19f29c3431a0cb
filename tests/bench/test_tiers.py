"""The measuring command for tiers."""

import re

from flashrt.bench import tiers


def test_it_prints_every_tier_against_cold_and_what_decode_pays(capsys):
    """In few tokens of the demo checkpoint; each state is restored from where it should lie."""
    tiers.main(["--prefix", "96", "160", "--repeat", "1", "--tokens", "12"])

    head, *lines = capsys.readouterr().out.splitlines()
    assert re.findall(r"[a-z]+(?= ms)", head) == ["cold", "device", "host", "disk"]
    table, shares = lines[:2], lines[2:]
    assert [line.split()[0] for line in table] == ["96", "160"]
    assert all(float(word) > 0 for line in table for word in line.split()[1:])
    assert all(re.search(r"ms a token, [\d.]+ beside .*: [\d.]+% of its time", s) for s in shares)
    assert len(shares) == 2
