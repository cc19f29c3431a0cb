"""What the OpenAI protocols have in common: decoding, the checked fields, and refusals by name."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs
import msgspec

from flashrt.chat.nesting import NESTING_MAX, too_deep
from flashrt.chat.request import AgentRequest, CacheHints, SamplingWish
from flashrt.errors import BadRequest
from flashrt.protocols.hints import session_in_fields, session_in_headers, session_name

STOP_STRINGS_MAX = 16
DRAFT_TOKENS_MAX = 63
INT64 = 2**63
ID_DIGITS_MAX = 18
"""No vocabulary is that large; Python refuses to read a number of thousands of digits."""

T = TypeVar("T")


@attrs.frozen
class Call:
    """A request as one protocol put it: what is asked for, and the shape the answer must have.

    `shows_thinking` False: a block of thinking comes back sealed, and is not to be read.
    """

    request: AgentRequest
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    shows_thinking: bool = True

    def hinted(self, headers: Mapping[str, str]) -> "Call":
        """With the session that the headers name, if they do."""
        session = session_in_headers(headers)
        if session is None:
            return self
        hints = attrs.evolve(self.request.hints, session=session)
        return attrs.evolve(self, request=attrs.evolve(self.request, hints=hints))


class StreamOptions(msgspec.Struct):
    """`stream_options` of both protocols."""

    include_usage: bool | None = None


class SharedFields(msgspec.Struct, kw_only=True):
    """The fields that mean the same in every protocol. Unknown fields are ignored.

    Not part of any other API: min_p, repetition_penalty, cache_salt, flashrt_*.
    """

    model: str | None = None
    stream: bool | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    metadata: Any = None
    flashrt_return_token_ids: bool | None = None
    flashrt_draft_tokens: int | None = None
    flashrt_pin_prefix: bool | int | None = None
    flashrt_session: str | None = None

    def sampling(self) -> SamplingWish:
        """The checked sampling fields; raises BadRequest."""
        return SamplingWish(
            temperature=between("temperature", self.temperature, 0, 2),
            top_k=_top_k(self.top_k),
            top_p=between("top_p", self.top_p, 0, 1, above_low=True),
            min_p=between("min_p", self.min_p, 0, 1),
            presence_penalty=between("presence_penalty", self.presence_penalty, -2, 2),
            frequency_penalty=between("frequency_penalty", self.frequency_penalty, -2, 2),
            repetition_penalty=between(
                "repetition_penalty", self.repetition_penalty, 0, 10, above_low=True
            ),
            logit_bias=_logit_bias(self.logit_bias or {}),
            seed=_seed(self.seed),
        )

    def hints(self) -> CacheHints:
        """What was said about reuse."""
        return CacheHints(
            prompt_cache_key=self.prompt_cache_key,
            cache_salt=self.cache_salt,
            session=session_in_fields(self.prompt_cache_key, self.metadata),
            flashrt_session=session_name(self.flashrt_session),
        )


class CommonFields(SharedFields, kw_only=True):
    """The fields that chat and text completions share."""

    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None

    def call(self, request: AgentRequest, *, echo: bool = False) -> Call:
        """Join a request with the form of answer that was asked for."""
        options = self.stream_options or StreamOptions()
        return Call(request, bool(self.stream), bool(options.include_usage), echo)


def read_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body into the decoder's type; every fault is a BadRequest that names its place."""
    too_nested = BadRequest(
        f"The request body is nested deeper than {NESTING_MAX} lists and objects; make it flatter."
    )
    try:
        fields = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None
    except RecursionError:
        raise too_nested from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The request body is not valid JSON: {error}.") from None
    if too_deep(fields):
        raise too_nested
    return fields


def _misfit(message: str) -> BadRequest:
    """msgspec's words, with the path in front and as `param`."""
    complaint, _, path = message.partition(" - at `")
    param = path.rstrip("`").removeprefix("$").removeprefix(".")
    missing = re.fullmatch(r"Object missing required field `(.*)`", complaint)
    if missing:
        param = f"{param}.{missing[1]}".removeprefix(".")
        return BadRequest(f"`{param}` is required.", param=param)
    where = f"`{param}`: " if param else "The request body: "
    return BadRequest(f"{where}{complaint[0].lower()}{complaint[1:]}.", param=param or None)


def between(
    name: str, value: float | None, low: float, high: float, *, above_low: bool = False
) -> float | None:
    """`value` if it is None or inside [low, high], or (low, high] with `above_low`."""
    if value is None or (low < value <= high) or (value == low and not above_low):
        return value
    allowed = f"greater than {low} and at most {high}" if above_low else f"from {low} to {high}"
    raise BadRequest(f"`{name}` is {value}; it must be {allowed}.", param=name)


def token_limit(name: str, value: int | None) -> int | None:
    """`value` if it is None or at least 1."""
    if value is None or value >= 1:
        return value
    raise BadRequest(
        f"`{name}` is {value}; it must be at least 1. Leave it out for no limit.", param=name
    )


def draft_tokens(value: int | None) -> int | None:
    """`value` if it is None or a number of rows that can be verified together."""
    if value is None or 0 <= value <= DRAFT_TOKENS_MAX:
        return value
    raise BadRequest(
        f"`flashrt_draft_tokens` is {value}; it must be from 0 (no drafts) to {DRAFT_TOKENS_MAX}. "
        "Leave it out to let the server choose.",
        param="flashrt_draft_tokens",
    )


def pin_prefix(value: bool | int | None) -> bool | int | None:
    """`value` if it is None, a truth value, or a number of tokens that is not negative."""
    if value is None or value >= 0:
        return value
    raise BadRequest(
        f"`flashrt_pin_prefix` is {value}; it must be a number of tokens, true for the system "
        "turn, or false to let go of what this prompt has pinned.",
        param="flashrt_pin_prefix",
    )


def stop_strings(stop: str | list[str] | None, name: str = "stop") -> tuple[str, ...]:
    """The stop strings, none of them empty; `name` is the field that has them."""
    strings = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    if len(strings) > STOP_STRINGS_MAX:
        raise BadRequest(
            f"`{name}` has {len(strings)} strings; at most {STOP_STRINGS_MAX} are allowed.",
            param=name,
        )
    if "" in strings:
        raise BadRequest(f"`{name}` has an empty string, which would stop everywhere.", param=name)
    return strings


def only(name: str, value: Any, allowed: tuple[Any, ...], way_out: str) -> None:
    """Refuse a field whose wish this server cannot honour, instead of ignoring it."""
    if value is None or value in allowed:
        return
    raise BadRequest(f"`{name}` = {shown(value)} is not supported. {way_out}", param=name)


def shown(value: object) -> str:
    """A value of the client's as a refusal repeats it: JSON, cut short."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _seed(seed: int | None) -> int | None:
    if seed is None or -INT64 <= seed < INT64:
        return seed
    raise BadRequest(f"`seed` is {seed}; it must fit into 64 bits with a sign.", param="seed")


def _top_k(top_k: int | None) -> int | None:
    # Other servers write "off" as -1.
    if top_k is None or top_k >= -1:
        return top_k if top_k is None else max(top_k, 0)
    raise BadRequest(
        f"`top_k` is {top_k}; it must be at least 1, or 0 or -1 for off.", param="top_k"
    )


def _logit_bias(bias: Mapping[str, float]) -> dict[int, float]:
    for key, value in bias.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= ID_DIGITS_MAX):
            raise BadRequest(f"`logit_bias`: {key[:60]!r} is not a token id.", param="logit_bias")
        between(f"logit_bias.{key}", value, -100, 100)
    return {int(key): value for key, value in bias.items()}
