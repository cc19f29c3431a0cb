"""A client that talks over HTTP as agents do, and the oracle for what it is answered.

The oracle is the path run of DESIGN section 2: an engine that makes exactly the calls which built
the state in use, without ever leaving, drafting or being interrupted. An answer names its lineage.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.kvcache import FP8
from flashrt.engine.protocol import Engine, SamplingParams
from tests.whole.server import VOICE, Server

Message = dict[str, Any]

NEAR = 2e-4
"""Two log-probabilities that rounding may put in either order."""

NARROW = "float32, keys and values in fp8"
DTYPES: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    NARROW: (torch.float32, FP8),
}


def demo_engine(dtype: str = "float32", max_seq: int = 8192) -> HybridEngine:
    """The real engine on the demo checkpoint."""
    weights, kv_dtype = DTYPES[dtype]
    return HybridEngine.load(
        DEMO_PATH,
        dtype=weights,
        kv_dtype=kv_dtype,
        max_seq=max_seq,
        sampleable=VOICE.tokenizer.vocab_size,
        progress=False,
    )


def words(count: int, salt: str = "") -> str:
    """Text of about 2 to 3 tokens a word, different for every salt."""
    return " ".join(f"{salt}w{i * 7919 % 1000}" for i in range(count))


@attrs.frozen
class Answer:
    """One buffered answer, as the client got it."""

    body: dict[str, Any]

    @property
    def message(self) -> Message:
        message: Message = self.body["choices"][0]["message"]
        return message

    @property
    def reuse(self) -> dict[str, Any]:
        """The `flashrt` block."""
        block: dict[str, Any] = self.body["flashrt"]
        return block

    @property
    def action(self) -> str:
        return str(self.reuse["prefix_action"])

    @property
    def new(self) -> int:
        """Prompt tokens that were computed."""
        return int(self.reuse["new_prefill_tokens"])

    @property
    def all_ids(self) -> list[int]:
        """Prompt and output."""
        return self.prompt_ids + self.output_ids

    @property
    def prompt_ids(self) -> list[int]:
        return list(self.reuse["prompt_token_ids"])

    @property
    def cached(self) -> int:
        """Prompt tokens that were not computed."""
        return int(self.reuse["cached_tokens"])

    @property
    def output_ids(self) -> list[int]:
        return list(self.reuse["completion_token_ids"])


@attrs.define
class Talk:
    """One conversation of one client. `wish`: fields of every request."""

    server: Server
    messages: list[Message] = attrs.field(factory=list)
    wish: dict[str, Any] = attrs.field(factory=dict)
    answers: list[Answer] = attrs.field(factory=list)

    async def ask(self, *messages: Message, **wish: Any) -> Answer:
        """Send all that was said so far and `messages`; the answer becomes part of it."""
        self.messages += messages
        return await self.send(**wish)

    async def send(self, **wish: Any) -> Answer:
        """Send the messages as they are."""
        answer = Answer(
            await self.server.chat("", **{**self.wish, **wish, "messages": self.messages})
        )
        self.answers.append(answer)
        self.messages.append(answer.message)
        return answer

    def retell(self, spell: Callable[[Message], Message]) -> None:
        """The client writes the newest answer in its own way."""
        self.messages[-1] = spell(self.messages[-1])

    def branch(self, length: int) -> "Talk":
        """Another conversation that begins with the first `length` messages."""
        return Talk(self.server, list(self.messages[:length]), dict(self.wish))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


class PathRun:
    """The oracle of one engine's answers. `engine` is used for nothing else."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(
        self, prompt: Sequence[int], lineage: Sequence[Sequence[Any]], count: int
    ) -> list[int]:
        """Greedy ids behind `prompt`, whose state was built as `lineage` says."""
        engine, start = self._engine, 0
        engine.reset()
        for stop, how, beyond in lineage:
            if how == "decode":
                self._force(prompt, start, stop)
            else:
                self._block([*prompt[start:stop], *beyond], stop)
            start = stop
        assert start == engine.position == len(prompt)
        output: list[int] = []
        for chunk in engine.decode(SamplingParams(draft_tokens=0)):
            output += chunk.tokens
            if len(output) >= count:
                break
        return output[:count]

    def _block(self, ids: Sequence[int], stop: int) -> None:
        list(self._engine.prefill(ids))
        if self._engine.position > stop:
            self._engine.restore(self._engine.snapshot(stop))

    def _force(self, prompt: Sequence[int], start: int, stop: int) -> None:
        """Process prompt[start:stop] row by row, as decode does."""
        forced = iter([*prompt[start:stop], prompt[start]])
        chunks = self._engine.decode(
            SamplingParams(draft_tokens=0), lambda _accepted, _draft: [next(forced)]
        )
        while self._engine.position < stop:
            next(chunks)
        self._engine.drop_pending()

    def meets(self, *answers: Answer) -> None:
        """Each answer is what its path run says, id for id."""
        for answer in answers:
            ids = answer.output_ids
            want = self.answer(answer.prompt_ids, answer.reuse["lineage"], len(ids))
            assert ids == want, (answer.action, answer.reuse["lineage"])

    def meets_cold(self, *answers: Answer) -> None:
        """In float32: what a prefill from 0 says, up to a row whose best two choices are closer
        than `NEAR`, from which on nothing is compared."""
        for answer in answers:
            self._engine.reset()
            list(self._engine.prefill(answer.prompt_ids))
            chunks = self._engine.decode(SamplingParams(draft_tokens=0, logprobs=2))
            for id_, chunk in zip(answer.output_ids, chunks, strict=False):
                (told,) = chunk.logprobs
                if told.top[0][1] - told.top[1][1] < NEAR:
                    break
                assert chunk.tokens == (id_,), answer.action


def tail(answer: Answer, before: Answer) -> int:
    """How many tokens of the prompt are new against an earlier prompt and its answer."""
    pairs = zip(answer.prompt_ids, before.all_ids, strict=False)
    shared = next((i for i, (a, b) in enumerate(pairs) if a != b), len(before.all_ids))
    return len(answer.prompt_ids) - shared
