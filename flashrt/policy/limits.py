"""What is refused before it can cost anything (the mission's Seam 4)."""

import attrs

from flashrt.errors import PromptTooLong, QueueFull


@attrs.frozen
class Limits:
    """Bounds of one server. Consulted before a request is queued.

    `max_seq` is the engine's window: prompt and answer together.
    """

    max_seq: int = attrs.field(validator=attrs.validators.ge(2))
    max_output_tokens: int = attrs.field(validator=attrs.validators.ge(1))
    max_queue_depth: int = attrs.field(validator=attrs.validators.ge(1))
    draft_tokens_max: int = attrs.field(default=0, validator=attrs.validators.ge(0))

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that leaves room for one token of answer."""
        return self.max_seq - 1

    def admit(self, prompt_tokens: int, queue_depth: int) -> None:
        """Raise the refusal for a request of this size, or return."""
        if prompt_tokens > self.max_prompt_tokens:
            raise PromptTooLong(
                f"This model's maximum context length is {self.max_seq} tokens. However, your "
                f"messages resulted in {prompt_tokens} tokens. Shorten them, or start the server "
                "with a larger --max-seq."
            )
        if queue_depth >= self.max_queue_depth:
            raise QueueFull(
                f"{queue_depth} requests are waiting, which is the limit (--max-queue-depth); "
                "try again later."
            )

    def output_tokens(self, prompt_tokens: int, wish: int | None) -> int:
        """How long the answer may get: the wish, clipped to the window and the limit."""
        room = min(self.max_output_tokens, self.max_seq - prompt_tokens)
        return room if wish is None else min(wish, room)

    def draft_tokens(self, wish: int | None) -> int | None:
        """Ids to draft a step: the wish, clipped to the limit; None: as acceptance tells."""
        if wish is None and self.draft_tokens_max > 0:
            return None
        return min(wish or 0, self.draft_tokens_max)
