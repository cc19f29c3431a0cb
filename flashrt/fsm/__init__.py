"""Transition tables: which state follows which, and nothing else. Imports nothing of ours."""
