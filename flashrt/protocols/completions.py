"""Text completions: JSON to `AgentRequest` (text and id prompts), deltas to JSON."""

from collections.abc import Sequence

import attrs
import msgspec

from flashrt.chat.deltas import Delta, FinishReason, TextDelta
from flashrt.chat.request import AgentRequest
from flashrt.errors import BadRequest
from flashrt.protocols.answer import Block, Head, Record, Usage, flashrt_block, joined
from flashrt.protocols.error import error_event
from flashrt.protocols.fields import (
    Call,
    CommonFields,
    between,
    draft_tokens,
    only,
    pin_prefix,
    read_json,
    stop_strings,
    token_limit,
)
from flashrt.protocols.logprobs import TextLogprobs, TextLogprobsWriter, TokenLogprobs
from flashrt.protocols.sse import DONE, event

LOGPROBS_MAX = 5


class CompletionFields(CommonFields, kw_only=True):
    """The fields of a text completion request."""

    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None


_DECODER = msgspec.json.Decoder(CompletionFields)


def read_completion(body: bytes) -> Call:
    """Translate a text completion body; raises BadRequest with the path of what is wrong."""
    fields = read_json(body, _DECODER)
    only("n", fields.n, (1,), "Ask several times for several answers.")
    only("best_of", fields.best_of, (1,), "Ask several times for several answers.")
    only("suffix", fields.suffix, ("",), "Write fill-in-the-middle prompts out in `prompt`.")
    text, ids = _prompt(fields.prompt)
    request = AgentRequest(
        model=fields.model or "",
        text=text,
        ids=ids,
        sampling=attrs.evolve(fields.sampling(), logprobs=_logprobs(fields)),
        max_tokens=token_limit("max_tokens", fields.max_tokens),
        stop=stop_strings(fields.stop),
        draft_tokens=draft_tokens(fields.flashrt_draft_tokens),
        return_token_ids=bool(fields.flashrt_return_token_ids),
        pin_prefix=pin_prefix(fields.flashrt_pin_prefix),
        hints=fields.hints(),
    )
    return fields.call(request, echo=bool(fields.echo))


def _logprobs(fields: CompletionFields) -> int | None:
    between("logprobs", fields.logprobs, 0, LOGPROBS_MAX)
    if fields.logprobs is not None and fields.echo:
        raise BadRequest(
            "`logprobs` together with `echo` is not supported: the prompt's own are not known.",
            param="logprobs",
        )
    return fields.logprobs


def _prompt(
    prompt: str | list[str | int | list[int]],
) -> tuple[str | None, tuple[int, ...] | None]:
    """One prompt, as text or as ids."""
    if isinstance(prompt, str):
        return prompt, None
    if not prompt:
        raise BadRequest("`prompt` is an empty list; it needs a text or token ids.", param="prompt")
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return None, _ids(ids)
    if len(prompt) > 1:
        raise BadRequest(
            f"`prompt` holds {len(prompt)} prompts; this server answers one prompt a request.",
            param="prompt",
        )
    only_one = prompt[0]
    return (only_one, None) if isinstance(only_one, str) else (None, _ids(prompt[0]))


def _ids(ids: object) -> tuple[int, ...]:
    assert isinstance(ids, list), "an item that is neither text nor an id is a list of ids"
    if not ids:
        raise BadRequest("`prompt` holds no token ids.", param="prompt")
    for i in ids:
        if i < 0:
            raise BadRequest(f"`prompt` holds {i}, which is not a token id.", param="prompt")
    return tuple(ids)


class TextChoice(msgspec.Struct):
    """A choice of a text completion, whole or a piece."""

    text: str = ""
    index: int = 0
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None


class TextCompletion(msgspec.Struct):
    """A text completion, whole or a chunk."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    object: str = "text_completion"
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
    flashrt: Block | msgspec.UnsetType = msgspec.UNSET


class CompletionStream:
    """Writes the answer to one streamed text completion."""

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._token_ids: list[int] = []
        self._writer: TextLogprobsWriter | None = None

    def opening(self) -> bytes:
        """What is sent as soon as the request is admitted: the prompt, or an empty piece."""
        return event(self._chunk([TextChoice(text=self._head.prompt_text)]))

    def pulse(self, progress: Block) -> bytes:
        """A piece that adds nothing but says how far things are."""
        chunk = self._chunk([TextChoice()])
        chunk.flashrt = {"progress": progress}
        return event(chunk)

    def pieces(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes:
        """The events of one output; the first one bears the logprobs of all its tokens."""
        self._token_ids.extend(token_ids)
        choices = [TextChoice(text=_text(delta)) for delta in joined(deltas)]
        if logprobs:
            choices = choices or [TextChoice()]
            choices[0].logprobs = self._told(token_ids, logprobs)
        return b"".join(event(self._chunk([choice])) for choice in choices)

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The finish piece, the usage piece if asked for, and the terminator."""
        last = finish = self._chunk([TextChoice(finish_reason=reason.value)])
        if self._call.include_usage:
            last = self._chunk([])
            last.usage = Usage.of(record)
        last.flashrt = flashrt_block(self._call, record, self._token_ids)
        extra = b"" if last is finish else event(last)
        return event(finish) + extra + DONE

    def failure(self, error: Exception) -> bytes:
        """The one event of an answer that failed; no terminator follows."""
        return error_event(error)

    def _told(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> TextLogprobs:
        self._writer = self._writer or _writer(self._head)
        return self._writer.write(ids, logprobs)

    def _chunk(self, choices: list[TextChoice]) -> TextCompletion:
        head = self._head
        return TextCompletion(f"cmpl-{head.request_id}", head.created, head.model, choices)


class CompletionBody:
    """Folds an answer into the body of one text completion."""

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._text: list[str] = [head.prompt_text]
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []

    def add(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Take in one output."""
        self._text.extend(_text(delta) for delta in deltas)
        self._token_ids.extend(token_ids)
        self._logprobs.extend(logprobs)

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The body."""
        choice = TextChoice(text="".join(self._text), finish_reason=reason.value)
        if self._logprobs:
            choice.logprobs = _writer(self._head).write(self._token_ids, self._logprobs)
        whole = TextCompletion(
            f"cmpl-{self._head.request_id}",
            self._head.created,
            self._head.model,
            [choice],
            usage=Usage.of(record),
            flashrt=flashrt_block(self._call, record, self._token_ids),
        )
        return msgspec.json.encode(whole)


def _writer(head: Head) -> TextLogprobsWriter:
    assert head.token_texts is not None, "logprobs without the vocabulary to write them in"
    return TextLogprobsWriter(head.token_texts, len(head.prompt_text))


def _text(delta: Delta) -> str:
    assert isinstance(delta, TextDelta), "a text completion is not read for thinking or calls"
    return delta.text
