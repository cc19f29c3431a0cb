"""Shapes compiled to grammars that say, id by id, what an answer may go on with."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from flashrt.chat.arguments import ToolSchemas
from flashrt.chat.request import Json
from flashrt.chat.schemas import is_circular
from flashrt.chat.shape import CallShape, JsonShape
from flashrt.chat.tokenizer import Tokenizer
from flashrt.errors import BadRequest

COMPILED_BYTES_MAX = 64 << 20
"""What the grammars that are kept may hold; agents send the same few shapes again and again."""

GRAMMAR_BYTES, BYTES_OF_CHARACTER = 160 << 10, 30
"""About what a compiled grammar holds, and for each character of its source. The compiler does not
say; measured as growth of the process over 30 schemas each, of 0.3 to 116 KiB."""

CALL_OPEN = "<tool_call>"
CALL_CLOSE = "</tool_call>"

NOT_ENFORCED = ("pattern", "minLength", "format", "anyOf", "oneOf", "allOf", "$ref")
"""What a parameter that is text may not have if its function is `strict`."""

LENGTH_MAX = 1000
"""A longer `maxLength` of raw text is no limit: its grammar would be too large."""

WHITESPACE = r"([ \t]|\n[ \t]{0,24})?"
"""Between the parts of a JSON value: a blank, or a new line and its indent. A model that would
write blanks for ever has to go on with the value."""


class Grammars:
    """Compiles shapes for one vocabulary. Called from several helper threads at a time."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        stop_ids: frozenset[int],
        bytes_max: int = COMPILED_BYTES_MAX,
    ) -> None:
        """`vocab_size`: the engine's, padding included. Takes about a second for 248k tokens."""
        self._control = tokenizer.control
        self._bytes_max = bytes_max
        self._bytes = 0
        self._vocab_size = vocab_size
        self._tokens = llguidance.LLTokenizer(
            tokenizer.to_json(), n_vocab=vocab_size, eos_token=sorted(stop_ids)
        )
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, shape: JsonShape | CallShape) -> "Matcher":
        """A matcher at the start of the shape. Raises BadRequest for what cannot be enforced."""
        field = shape.field if isinstance(shape, JsonShape) else "tools"
        try:
            source = self._source(shape)
        except RecursionError:
            raise BadRequest(
                f"`{field}` cannot be enforced: a schema refers to itself without end, or is "
                "nested too deeply.",
                param=field,
            ) from None
        with self._lock:
            known = self._compiled.get(source)
            if known is not None:
                self._compiled.move_to_end(source)
                return Matcher(known.deep_copy(), self._vocab_size)
        self._check(source, field)
        matcher = llguidance.LLMatcher(self._tokens, source)
        kept = matcher.deep_copy()
        with self._lock:
            self._keep(source, kept)
        return Matcher(matcher, self._vocab_size)

    @property
    def held_bytes(self) -> int:
        """About what the grammars that are kept hold."""
        return self._bytes

    def _keep(self, source: str, matcher: llguidance.LLMatcher) -> None:
        """Least recently used first out; what is larger than the whole room is not kept."""
        if source in self._compiled or _size_of(source) > self._bytes_max:
            return
        self._compiled[source] = matcher
        self._bytes += _size_of(source)
        while self._bytes > self._bytes_max:
            oldest, _ = self._compiled.popitem(last=False)
            self._bytes -= _size_of(oldest)

    def _source(self, shape: JsonShape | CallShape) -> str:
        match shape:
            case JsonShape(schema, _, calls):
                either = "start: value" if calls is None else "start: value | calls"
                rules = [either, f"value: %json {_flexible(schema)}"]
                rules += [] if calls is None else self._calls(calls)
            case CallShape():
                rules = ["start: calls", *self._calls(shape)]
        return str(llguidance.LLMatcher.grammar_from_lark("\n".join(rules)))

    def _check(self, source: str, field: str) -> None:
        failed, words = llguidance.LLMatcher.validate_grammar_with_warnings(source, self._tokens)
        if failed or words:
            raise BadRequest(
                f"`{field}` cannot be enforced, so it is refused rather than ignored: "
                f"{'; '.join(map(_in_short, words))}",
                param=field,
            )

    # -- calls ----------------------------------------

    def _calls(self, shape: CallShape) -> list[str]:
        """The family's wire format of tool calls as rules of a Lark grammar."""
        if CALL_OPEN not in self._control or CALL_CLOSE not in self._control:
            raise BadRequest("This model's vocabulary has no tool calls.", param="tool_choice")
        begin, end = self._control[CALL_OPEN], self._control[CALL_CLOSE]
        names = " | ".join(f"f{i}" for i in range(len(shape.functions)))
        rules = [
            'calls: call ("\\n" call)*' if shape.parallel else "calls: call",
            f'call: <[{begin}]> "\\n" ({names}) "</function>\\n" <[{end}]>',
            f"raw{_raw(None)}",
        ]
        for i, function in enumerate(shape.functions):
            rules += _function_rules(f"f{i}", function)
        return rules


def _size_of(source: str) -> int:
    return GRAMMAR_BYTES + BYTES_OF_CHARACTER * len(source)


def _in_short(words: str) -> str:
    """What the compiler says, without the place in a grammar that the client never saw."""
    return re.sub(r"^at \d+\(\d+\): ", "", words.partition("\n")[0])


def _flexible(schema: Any, shared: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A schema as JSON text, with its blanks bounded."""
    if not isinstance(schema, dict):
        schema = {} if schema else {"not": {}}
    if is_circular({**shared, **schema}):
        raise RecursionError("a reference leads back to itself")
    return json.dumps({**shared, **schema, "x-guidance": {"whitespace_pattern": WHITESPACE}})


def _function_rules(rule: str, function: Json) -> list[str]:
    """One function: its parameters in the order of the schema, optional ones may be left out."""
    schema = function.get("parameters") or {}
    required, properties = schema.get("required") or (), schema.get("properties") or {}
    if not isinstance(required, list | tuple) or not isinstance(properties, dict):
        raise BadRequest(
            f'The parameters of "{function["name"]}" are no JSON schema of an object, so a call '
            "cannot be enforced.",
            param="tools",
        )
    parts, rules = [_literal(f"<function={function['name']}>\n")], []
    for j, name in enumerate(properties):
        parts.append(f"{rule}p{j}" if name in required else f"{rule}p{j}?")
        body, more = _value(function, name, f"{rule}r{j}")
        rules.append(f"{rule}p{j}: {_literal(f'<parameter={name}>' + chr(10))} {body}")
        rules += more
    return [f"{rule}: {' '.join(parts)}", *rules]


def _value(function: Json, name: str, rule: str) -> tuple[str, list[str]]:
    """A parameter's value and its closing tag, and a rule that they need.

    What may be a string is written as it is, of which a list of choices and the greatest length are
    enforced; everything else is JSON.
    """
    schema = function["parameters"]
    value = schema["properties"][name]
    value = value if isinstance(value, dict) else {}
    closing = _literal("\n</parameter>\n")
    choices = [value["const"]] if "const" in value else value.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices):
        return f"({' | '.join(_literal(choice) for choice in choices)}) {closing}", []
    if "string" not in ToolSchemas.of([function]).kinds(function["name"], name):
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        return f"%json {_flexible(value, shared)} {closing}", []
    if function.get("strict") is True:
        _refuse_unenforced(function["name"], name, value)
    most = value.get("maxLength")
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= LENGTH_MAX:
        return "raw", []
    return rule, [f"{rule}{_raw(most)}"]


def _refuse_unenforced(function: str, name: str, value: Mapping[str, Any]) -> None:
    for keyword in NOT_ENFORCED:
        if keyword in value:
            raise BadRequest(
                f'`{keyword}` of the parameter "{name}" of "{function}" cannot be enforced in a '
                "text. Leave it out, or leave `strict` out.",
                param="tools",
            )


def _raw(most: int | None) -> str:
    """The rest of a rule for text up to the tag that closes it, of at most so many characters."""
    times = "*" if most is None else f"{{0,{most}}}"
    return f'[suffix="\\n</parameter>\\n"]: /(.|\\n){times}/'


def _literal(text: str) -> str:
    """A Lark string; JSON's escapes are Lark's."""
    return json.dumps(re.sub(r"[\ud800-\udfff]", "\ufffd", text), ensure_ascii=False)


class Matcher:
    """Where one answer stands in its grammar. Moves by ids, and back."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def allowed(self) -> NDArray[np.bool_]:
        """bool [vocab_size]: the ids that may come next; stop ids where the shape is complete."""
        # A matcher that has given up allows stop ids only: an answer would look whole that is not.
        assert not self._matcher.is_error(), "the grammar of the answer has come to a dead end"
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(packed, count=self._vocab_size, bitorder="little").astype(np.bool_)

    def take(self, ids: Sequence[int]) -> int:
        """Move along `ids` as far as they fit; how many did."""
        return self._matcher.try_consume_tokens(list(ids))

    def undo(self, count: int) -> None:
        """Take the newest ids back."""
        assert self._matcher.rollback(count), self._matcher.get_error()

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()
