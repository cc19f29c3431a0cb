"""The checkpoint that is served when no model is named: small, of the real architecture."""

from pathlib import Path

DEMO_PATH = Path(__file__).parent / "checkpoint"
"""A Hugging Face folder like any other. Made as docs/demo.md says."""
