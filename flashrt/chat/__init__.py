"""From messages to token ids, and from token ids back to text, thinking and tool calls."""
