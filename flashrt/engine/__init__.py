"""The engine room: token ids in, token ids out. The only room that knows torch."""
