"""What the server adds to the engine's own time: python -m flashrt.bench.overhead."""
