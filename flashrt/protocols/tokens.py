"""Counting tokens: `/tokenize` and `/detokenize`. Not part of OpenAI's API."""

from collections.abc import Sequence
from typing import Any

import msgspec

from flashrt.chat.request import AgentRequest
from flashrt.errors import BadRequest
from flashrt.protocols.chat import Tool, offered
from flashrt.protocols.fields import only, read_json
from flashrt.protocols.models import Card
from flashrt.protocols.thinking import Reasoning, thinking


class TokenizeFields(msgspec.Struct, kw_only=True):
    """A text, or messages as a chat request has them. Unknown fields are ignored."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    add_generation_prompt: bool | None = None


class Tokens(msgspec.Struct):
    """The ids of a prompt, and the window that they must fit into."""

    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeFields(msgspec.Struct, kw_only=True):
    """Ids."""

    tokens: list[int]
    model: str | None = None


class Text(msgspec.Struct):
    """What ids say, control tokens written out."""

    prompt: str


_TOKENIZE = msgspec.json.Decoder(TokenizeFields)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeFields)


def read_tokenize(body: bytes) -> AgentRequest:
    """A request that has the prompt in question; raises BadRequest."""
    fields = read_json(body, _TOKENIZE)
    only(
        "add_generation_prompt",
        fields.add_generation_prompt,
        (True,),
        "What is counted is the prompt of an answer.",
    )
    if (fields.prompt is None) == (fields.messages is None):
        raise BadRequest("Give either `prompt` or `messages`.", param="prompt")
    model = fields.model or ""
    if fields.messages is None:
        return AgentRequest(model=model, text=fields.prompt)
    thought = thinking(
        template_kwargs=fields.chat_template_kwargs,
        enable_thinking=fields.enable_thinking,
        reasoning_effort=fields.reasoning_effort,
        reasoning=fields.reasoning,
        thinking_budget=None,
    )
    return AgentRequest(
        model=model,
        messages=tuple(fields.messages),
        tools=offered(fields.tools),
        template_args=thought.template_args,
    )


def tokens_body(ids: Sequence[int], card: Card) -> bytes:
    """The answer of `/tokenize`."""
    return msgspec.json.encode(Tokens(list(ids), len(ids), card.max_model_len))


def read_detokenize(body: bytes) -> list[int]:
    """The ids in question; raises BadRequest."""
    ids = read_json(body, _DETOKENIZE).tokens
    if ids and min(ids) < 0:
        raise BadRequest(f"`tokens` holds {min(ids)}, which is no token id.", param="tokens")
    return ids


def text_body(text: str) -> bytes:
    """The answer of `/detokenize`."""
    return msgspec.json.encode(Text(text))
