"""Shapes compiled to grammars that say, id by id, what an answer may go on with."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from flashrt.chat.request import Json
from flashrt.chat.shape import AnswerShape, CallShape, JsonShape
from flashrt.chat.tokenizer import Tokenizer
from flashrt.errors import BadRequest

COMPILED_MAX = 64
"""Grammars kept; agents send the same few shapes again and again."""

CALL_OPEN = "<tool_call>"
CALL_CLOSE = "</tool_call>"

RAW_TYPES = ("string", None)
"""Values of these types are written as they are, not as JSON."""


class Grammars:
    """Compiles shapes for one vocabulary. Called from several helper threads at a time."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        """`vocab_size`: the engine's, padding included. Takes about a second for 248k tokens."""
        self._control = tokenizer.control
        self._vocab_size = vocab_size
        self._tokens = llguidance.LLTokenizer(
            tokenizer.to_json(), n_vocab=vocab_size, eos_token=sorted(stop_ids)
        )
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, shape: AnswerShape) -> "Matcher":
        """A matcher at the start of the shape. Raises BadRequest for what cannot be enforced."""
        source, field = self._source(shape)
        with self._lock:
            known = self._compiled.get(source)
            if known is not None:
                self._compiled.move_to_end(source)
                return Matcher(known.deep_copy(), self._vocab_size)
        self._check(source, field)
        matcher = llguidance.LLMatcher(self._tokens, source)
        with self._lock:
            self._compiled[source] = matcher
            if len(self._compiled) > COMPILED_MAX:
                self._compiled.popitem(last=False)
        return Matcher(matcher.deep_copy(), self._vocab_size)

    def _source(self, shape: AnswerShape) -> tuple[str, str]:
        match shape:
            case JsonShape(schema, field):
                text = json.dumps(schema)
                return llguidance.LLMatcher.grammar_from_json_schema(text), field
            case CallShape():
                return llguidance.LLMatcher.grammar_from_lark(self._calls(shape)), "tools"

    def _check(self, source: str, field: str) -> None:
        failed, words = llguidance.LLMatcher.validate_grammar_with_warnings(source, self._tokens)
        if failed or words:
            raise BadRequest(
                f"`{field}` cannot be enforced, so it is refused rather than ignored: "
                f"{'; '.join(words)}",
                param=field,
            )

    # -- calls ----------------------------------------

    def _calls(self, shape: CallShape) -> str:
        """The family's wire format of tool calls as a Lark grammar."""
        if CALL_OPEN not in self._control or CALL_CLOSE not in self._control:
            raise BadRequest("This model's vocabulary has no tool calls.", param="tool_choice")
        begin, end = self._control[CALL_OPEN], self._control[CALL_CLOSE]
        names = " | ".join(f"f{i}" for i in range(len(shape.functions)))
        rules = [
            'start: call ("\\n" call)*' if shape.parallel else "start: call",
            f'call: <[{begin}]> "\\n" ({names}) "</function>\\n" <[{end}]>',
            'raw[suffix="\\n</parameter>\\n"]: /(.|\\n)*/',
        ]
        for i, function in enumerate(shape.functions):
            rules += _function_rules(f"f{i}", function)
        return "\n".join(rules)


def _function_rules(rule: str, function: Json) -> list[str]:
    """One function: its parameters in the order of the schema, optional ones may be left out."""
    schema = function.get("parameters") or {}
    required = schema.get("required") or ()
    parts, rules = [_literal(f"<function={function['name']}>\n")], []
    for j, (name, value) in enumerate((schema.get("properties") or {}).items()):
        parts.append(f"{rule}p{j}" if name in required else f"{rule}p{j}?")
        body = _value(value, schema)
        rules.append(f"{rule}p{j}: {_literal(f'<parameter={name}>' + chr(10))} {body}")
    return [f"{rule}: {' '.join(parts)}", *rules]


def _value(value: Any, schema: Mapping[str, Any]) -> str:
    """A parameter's value and its closing tag. Text is raw; everything else is JSON."""
    closing = _literal("\n</parameter>\n")
    value = value if isinstance(value, dict) else {}
    choices = value.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(c, str) for c in choices):
        return f"({' | '.join(_literal(choice) for choice in choices)}) {closing}"
    if value.get("type") in RAW_TYPES or isinstance(value.get("type"), list):
        return "raw"
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return f"%json {json.dumps({**shared, **value})} {closing}"


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
