"""Thinking in a Messages request, and thoughts that a client carries without reading them.

A block of thinking goes back and forth with a signature, which is ours to fill. Where the client
wants no text, the signature is the thought itself, sealed; so the block that comes back says
exactly what the model thought, and its state is found again.
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from flashrt.chat.request import Json
from flashrt.chat.thinking import effort
from flashrt.errors import BadRequest
from flashrt.protocols.thinking import Thinking

SHOWN = "flashrt-shown-"
SEALED = "flashrt-sealed-"
"""How our two kinds of signature begin. Any other is somebody else's."""

EXPANSION_MAX = 16
"""A seal opens to so many times its size at most, so that no body fills the memory."""

THINKS = MappingProxyType(
    {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}
)

EFFORTS = MappingProxyType(
    {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
)
"""`output_config.effort`, in the words of `chat.thinking`."""


class ThinkingConfig(msgspec.Struct):
    """`thinking`. `display`: "omitted" is without text; with any other word the text is shown."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


def thinking(config: ThinkingConfig | None, word: str | None) -> Thinking:
    """Without `thinking` there is none: that is this protocol's meaning. `word`: the effort.

    A number counts over what a word means. Raises BadRequest.
    """
    if word is not None and word not in EFFORTS:
        raise BadRequest(
            f'`output_config.effort` = "{word}"; it must be one of {", ".join(EFFORTS)}.',
            param="output_config.effort",
        )
    if config is not None and config.type not in THINKS:
        raise BadRequest(
            f'`thinking.type` = "{config.type}"; it must be one of {", ".join(THINKS)}.',
            param="thinking.type",
        )
    budget = None if config is None else config.budget_tokens
    if budget is not None and budget < 0:
        raise BadRequest(
            f"`thinking.budget_tokens` is {budget}; it must be at least 0.",
            param="thinking.budget_tokens",
        )
    if config is None or not THINKS[config.type]:
        return Thinking({"enable_thinking": False}, None)
    args: Json = {"enable_thinking": True}
    tokens = None
    if word is not None:
        meant = effort(EFFORTS[word])
        args, tokens = dict(meant.template_args), meant.thinking_tokens
    if budget is not None:
        args["enable_thinking"], tokens = budget > 0, budget
    return Thinking(args, tokens)


def signature(thought: str, *, shown: bool) -> str:
    """The signature of a block; never empty, since clients drop blocks without one."""
    data = thought.encode(errors="surrogatepass")
    if shown:
        return SHOWN + hashlib.blake2b(data, digest_size=12).hexdigest()
    packed = zlib.compress(data)
    if len(data) > EXPANSION_MAX * len(packed):
        packed = zlib.compress(data, 0)
    return SEALED + base64.urlsafe_b64encode(packed).decode()


def thought_of(block: Mapping[str, Any]) -> str:
    """What a block of thinking that came back says: its text, or what is sealed if it has none.

    A signature that is not ours, or that is damaged, says nothing.
    """
    text, signed = block.get("thinking"), block.get("signature")
    if isinstance(text, str) and text:
        return text
    if not isinstance(signed, str) or not signed.startswith(SEALED):
        return ""
    try:
        packed = base64.b64decode(signed.removeprefix(SEALED), altchars=b"-_", validate=True)
        opening = zlib.decompressobj()
        data = opening.decompress(packed, EXPANSION_MAX * len(packed))
        return data.decode(errors="surrogatepass") if opening.eof else ""
    except (binascii.Error, zlib.error, ValueError):
        return ""
