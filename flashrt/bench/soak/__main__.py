"""Runs the soak: python -m flashrt.bench.soak."""

import sys

from flashrt.bench.soak.run import main

if __name__ == "__main__":
    sys.exit(main())
