"""A server's worth of work on a directory of capsules that another one works on too.

    python -m tests.disk.neighbour DIR SEED COUNT IDENTITY

Writes, reads, deletes and prunes by chance; prints what was refused. Whatever is read must be what
was written under its key, by whichever process.
"""

import random
import sys
from collections import Counter
from pathlib import Path

from flashrt.disk import CapsuleDirectory, DiskFault
from tests.disk.capsules import Made, holds, made, put

LINEAGES, LENGTHS = 4, 4


def capsule(lineage: int, length: int) -> Made:
    """Those of one lineage share their rows."""
    return made(f"{lineage}-{length}", seed=lineage, blocks=length)


def main(folder: Path, seed: int, count: int, identity: str) -> Counter[str]:
    """How often what was done, and what was refused."""
    directory = CapsuleDirectory(folder, identity, 60_000)
    dice, done = random.Random(seed), Counter[str]()
    for _ in range(count):
        one = capsule(dice.randrange(LINEAGES), dice.randrange(1, LENGTHS + 1))
        key = one.filed.key
        action = dice.choice(["write", "write", "write", "read", "read", "delete", "prune", "note"])
        try:
            match action:
                case "write":
                    put(directory, one)
                case "read":
                    assert holds(directory, one), key
                case "delete":
                    directory.delete(key)
                case "prune":
                    directory.prune()
                case "note":
                    directory.write_note("replay", bytes(dice.randrange(2000)))
                    assert set(directory.read_note("replay") or b"\0") <= {0}
            done[action] += 1
        except DiskFault as refusal:
            done[f"{action}_refused"] += 1
            harm = [word for word in ("damaged", "checksum", "shorter") if word in str(refusal)]
            if harm:
                raise AssertionError("one did the other harm") from refusal
    return done


if __name__ == "__main__":
    done = main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    print(*(f"{name}={count}" for name, count in sorted(done.items())))
