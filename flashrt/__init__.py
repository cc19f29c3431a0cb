"""FlashRT: a latency-first, OpenAI-compatible server for coding agents."""

__version__ = "0.1.0"
