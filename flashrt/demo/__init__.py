"""The checkpoint that is served when no model is named: the real architecture, random weights."""

from pathlib import Path

DEMO_PATH = Path(__file__).parent / "checkpoint"
"""A Hugging Face folder like any other. Made by `python -m flashrt.demo.make`."""
