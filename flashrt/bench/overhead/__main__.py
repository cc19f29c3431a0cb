"""Runs the measurement: python -m flashrt.bench.overhead."""

import sys

from flashrt.bench.overhead.run import main

if __name__ == "__main__":
    sys.exit(main())
