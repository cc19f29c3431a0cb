"""The reference: every greedy answer against a cold one over the same token ids.

Cold means a run that has nothing to go wrong with: a request for the same prompt ids, alone, in a
namespace of its own (so that no state is reused) and without drafts, as a text completion. In
float32 an answer has the same ids, whatever state it was built on and whoever left or failed
beside it, up to a row whose best two tokens the reference itself finds closer than `near`: rounding
may put those in either order, and what follows is another text. Such rows are counted.

The same messages would be the weaker question: a server may read an earlier answer as it was
sampled, which is another prompt than a fresh server would make of the same text.
"""

import hashlib
import re
from array import array
from collections.abc import Sequence

import attrs
import trio

from flashrt.bench.soak.client import Compared
from flashrt.bench.soak.tally import Violation
from flashrt.bench.soak.wire import Fault, Gone, Place, exchange

WITHIN_S = 120
CONTROL = re.compile(r"</?(?:think|tool_call|tool_response)>|<\|\w+\|>")
"""How control tokens are spelt where a reader takes them for text."""

CUT = re.compile(r"<(?:/?\w*|\|\w*\|?)$")
"""How one ends in which a stop string was found."""


@attrs.frozen
class Cold:
    """What follows a prompt: ids, the gap in log-probability at each, and the text of all."""

    ids: tuple[int, ...]
    gaps: tuple[float, ...]
    text: str


@attrs.define
class Reference:
    """Asks a server that does nothing else, or that is quiet, and remembers what it said."""

    place: Place
    near: float
    equal: int = 0
    near_ties: int = 0
    _asked: int = 0
    _known: dict[bytes, Cold] = attrs.field(factory=dict)

    async def run(
        self, answers: trio.MemoryReceiveChannel[Compared], violations: list[Violation]
    ) -> None:
        """Compare all answers that come, until the channel is closed."""
        async for one in answers:
            try:
                fault = await self.compare(one)
            except (Fault, Gone, OSError, trio.TooSlowError) as error:
                fault = f"the reference gave no answer: {error!r}"
            if fault is not None:
                violations.append(Violation(one.action, one.name, one.client, fault))

    async def compare(self, one: Compared) -> str | None:
        """What is wrong with an answer, or None."""
        ids = one.answer.output_ids
        cold = await self._cold(one.answer.prompt_ids, len(ids))
        pairs = enumerate(zip(ids, cold.ids, strict=False))
        differs = next((at for at, (got, want) in pairs if got != want), None)
        if differs is None and len(cold.ids) >= len(ids):
            self.equal += 1
            return self._wrong_text(one, cold)
        if differs is not None and min(cold.gaps[: differs + 1]) < self.near:
            self.near_ties += 1
            return None
        return f"ids {ids}, the reference has {list(cold.ids)} (gaps {list(cold.gaps)})"

    def _wrong_text(self, one: Compared, cold: Cold) -> str | None:
        """What the client reads is what the ids say. Control tokens are no text of a completion,
        and a whole call is shown in another form."""
        if one.answer.message.get("tool_calls") or len(cold.ids) != len(one.answer.output_ids):
            return None
        for name in ("reasoning_content", "content"):
            text = (one.answer.message.get(name) or "").strip("\ufffd")
            if not all(part in cold.text for part in CONTROL.split(CUT.sub("", text))):
                return f"{name} {text!r} is not in the text of its ids: {cold.text!r}"
        return None

    async def _cold(self, prompt_ids: Sequence[int], count: int) -> Cold:
        key = hashlib.blake2b(array("q", [*prompt_ids, count]).tobytes(), digest_size=16).digest()
        if key not in self._known:
            self._known[key] = await self._ask(prompt_ids, count)
        return self._known[key]

    async def _ask(self, prompt_ids: Sequence[int], count: int) -> Cold:
        self._asked += 1
        body = {
            "model": "any",
            "prompt": list(prompt_ids),
            "max_tokens": count,
            "temperature": 0,
            "logprobs": 2,
            "cache_salt": f"soak reference {self._asked}",
            "flashrt_draft_tokens": 0,
            "flashrt_return_token_ids": True,
        }
        reply = await exchange(self.place, "POST", "/v1/completions", body, within_s=WITHIN_S)
        if reply.status != 200:
            raise Fault(f"the reference answered {reply.status}: {reply.body[:200]!r}")
        answer = reply.json()
        if answer["flashrt"]["cached_tokens"]:
            raise Fault(f"the reference reused {answer['flashrt']['cached_tokens']} tokens")
        (choice,) = answer["choices"]
        tops = [sorted(top.values()) for top in choice["logprobs"]["top_logprobs"]]
        # Two tokens of one spelling share an entry: nothing is known of the gap.
        gaps = tuple(top[-1] - top[-2] if len(top) > 1 else 0.0 for top in tops)
        return Cold(tuple(answer["flashrt"]["completion_token_ids"]), gaps, choice["text"])
