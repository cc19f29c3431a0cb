"""A soak: random clients, polite and rude, and a server whose guarantees they check."""
