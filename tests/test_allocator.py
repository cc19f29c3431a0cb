"""What is freed goes back to the system; what is there to stay is left alone."""

import gc
import platform
import subprocess
import sys

import pytest

from flashrt.allocator import settle

CHURN = """
import sys
from pathlib import Path
from flashrt.allocator import give_back

def rss_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

del_me = bytearray(30 << 20)  # large blocks are no mappings of their own from here on
del del_me
before = rss_mib()
pairs = [(bytearray(b"x" * (1 << 20)), bytearray(b"y" * 2000)) for _ in range(100)]
small = [pair[1] for pair in pairs]
del pairs
kept = rss_mib() - before
assert give_back()
print(kept, rss_mib() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own way")
def test_freed_blocks_go_back_though_small_ones_lie_between_them():
    """As saved states come and go: without it the process keeps a good part of them."""
    run = subprocess.run([sys.executable, "-c", CHURN], capture_output=True, text=True, check=True)
    kept_mib, held_mib = map(float, run.stdout.split())
    assert kept_mib > 25
    assert held_mib < 5


def test_a_collection_looks_past_what_was_there_before():
    """And still finds garbage that came later."""
    before: list[object] = []
    settle()
    try:
        later: list[object] = []
        later.append(later)
        watched = {id(one) for one in gc.get_objects()}
        assert id(before) not in watched
        assert id(later) in watched
        del later
        assert gc.collect() >= 1
    finally:
        gc.unfreeze()
