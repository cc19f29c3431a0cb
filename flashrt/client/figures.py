"""The line of figures behind an answer."""

from flashrt.client.chunks import Block, Usage


def figures(usage: Usage, block: Block, *, seconds: float) -> str:
    """What an answer took, in words. `seconds`: from the request sent to the last byte.

    The rate is the server's own, of the answer without its prompt; others do not tell one.
    """
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else 0
    new = usage.prompt_tokens - cached
    parts = [
        f"{usage.prompt_tokens} prompt tokens ({cached} cached, {new} new)",
        f"{usage.completion_tokens} answer tokens",
        f"{seconds:.2f} s",
    ]
    if block.decode_tok_per_s is not None:
        parts.append(f"{block.decode_tok_per_s:.1f} tokens/s")
    return ", ".join(parts)
