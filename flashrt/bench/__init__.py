"""Commands that measure: `python -m flashrt.bench.kernels`."""
