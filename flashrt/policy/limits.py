"""What is refused before it can cost anything (the mission's Seam 4)."""

import math
import statistics
from collections.abc import Sequence

import attrs
from attrs.validators import ge

from flashrt.errors import PromptTooLong, QueueFull

RETRY_AFTER_MAX_S = 60
NOTHING_SERVED_YET_S = 1.0


@attrs.frozen
class Limits:
    """Bounds of one server. Consulted before a request is queued, and at a pin.

    `max_seq` is the engine's window: prompt and answer together. 0 means no limit for
    `queue_timeout_s`, `max_decode_ms` and `session_idle_ttl_s`.
    """

    max_seq: int = attrs.field(validator=ge(2))
    max_output_tokens: int = attrs.field(validator=ge(1))
    max_queue_depth: int = attrs.field(validator=ge(1))
    max_prompt_tokens: int = attrs.field(validator=ge(1))
    """The longest prompt; by itself, what leaves room for one token of answer."""
    queue_per_client: int = attrs.field(default=10_000, validator=ge(1))
    queue_timeout_s: float = attrs.field(default=0.0, validator=ge(0))
    max_decode_ms: float = attrs.field(default=0.0, validator=ge(0))
    max_active_sessions: int = attrs.field(default=256, validator=ge(1))
    session_idle_ttl_s: float = attrs.field(default=0.0, validator=ge(0))
    capsule_budget_bytes: int = attrs.field(default=0, validator=ge(0))
    draft_tokens_max: int = attrs.field(default=0, validator=ge(0))

    @max_prompt_tokens.default
    def _leaves_room(self) -> int:
        return self.max_seq - 1

    def admit(
        self, prompt_tokens: int, *, waiting: int, waiting_of_client: int, retry_after_s: int
    ) -> None:
        """Raise the refusal for a request of this size, or return.

        `waiting`: requests in the queue, and of these those of who asks now.
        """
        if prompt_tokens > self.max_prompt_tokens:
            raise self._too_long(prompt_tokens)
        if waiting >= self.max_queue_depth:
            raise QueueFull(
                f"{waiting} requests are waiting, which is the limit (--max-queue-depth); "
                f"try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )
        if waiting_of_client >= self.queue_per_client:
            raise QueueFull(
                f"{waiting_of_client} of your requests are waiting, which is the limit for one "
                f"client (--queue-per-client); try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )

    def _too_long(self, prompt_tokens: int) -> PromptTooLong:
        """In the words by which clients know that they must compact."""
        whole = self.max_prompt_tokens >= self.max_seq - 1
        most = self.max_seq if whole else self.max_prompt_tokens
        flag = "--max-seq" if whole else "--max-prompt-tokens"
        return PromptTooLong(
            f"This model's maximum context length is {most} tokens. However, your messages "
            f"resulted in {prompt_tokens} tokens. Shorten them, or start the server with a larger "
            f"{flag}.",
            prompt_tokens=prompt_tokens,
            max_tokens=self.max_prompt_tokens,
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


def retry_after_s(served_s: Sequence[float], running_s: float) -> int:
    """Whole seconds after which a place in a full queue is likely to be free.

    `served_s`: how long the engine worked on each of the latest requests. The running one has had
    `running_s` already; when it ends, the next one leaves the queue.
    """
    usual_s = statistics.median(served_s) if served_s else NOTHING_SERVED_YET_S
    return min(max(1, math.ceil(usual_s - running_s)), RETRY_AFTER_MAX_S)
