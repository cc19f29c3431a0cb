"""Protocols at the edge: JSON to our request, our deltas to JSON. Pure; no logic of their own."""
