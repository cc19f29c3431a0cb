"""Decisions over token lists and sizes. Pure: no tensors, no I/O, no clock."""
