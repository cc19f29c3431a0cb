"""Faults in what turns messages into ids and ids into an answer."""

from tests.faults.fault import Fault

RENDER = ("tests/chat/test_render.py", "tests/chat/test_segments.py")
TOKENS = ("tests/chat/test_tokenizer.py",)
ANSWER = ("tests/chat/test_answer.py", "tests/chat/test_reader.py")
STOPS = ("tests/chat/test_stops.py",)
ARGUMENTS = ("tests/chat/test_arguments.py",)
WRITERS = ("tests/protocols/test_chat_answer.py", "tests/protocols/test_completions.py")

FAULTS = (
    Fault(
        "user text encoded with control tokens",
        "flashrt/chat/segments.py",
        "ids=self._tokenizer.encode_text(text)",
        "ids=self._tokenizer.encode(text)",
        RENDER,
        "a tool result could open a turn and speak as the system",
    ),
    Fault(
        "marks of a client that are not taken out",
        "flashrt/chat/marked.py",
        "    if not _holds_mark(values):",
        "    if True:",
        ("tests/chat/test_marked.py", *RENDER),
        "a client that knows our marks could write control tokens",
    ),
    Fault(
        "a key that names less than the content",
        "flashrt/chat/segments.py",
        "hashlib.blake2b(text.encode(",
        "hashlib.blake2b(text[:5].encode(",
        RENDER,
        "equal keys would not mean equal ids",
    ),
    Fault(
        "half a character that is shown",
        "flashrt/chat/tokenizer.py",
        "return Decoded(self._decoder.decode(self._tokenizer.id_to_bytes(token_id)))",
        "return Decoded(self._tokenizer.id_to_piece(token_id))",
        TOKENS,
        "emoji and Chinese would come out as replacement characters",
    ),
    Fault(
        "an incomplete character that is lost at the end",
        "flashrt/chat/answer.py",
        "said = self._reader.text(self._ids_to_text.flush())",
        'said = self._reader.text("")',
        ANSWER,
        "an answer that ends inside a character would hide that it does",
    ),
    Fault(
        "text that is held back for ever",
        "flashrt/chat/answer.py",
        "        self._show_held()\n        if reason is FinishReason.STOP and",
        "        if reason is FinishReason.STOP and",
        ANSWER,
        "an answer that ends with the beginning of a stop string would lose it",
    ),
    Fault(
        "a stop id that is shown",
        "flashrt/chat/answer.py",
        "        if token in self._stop_ids:\n"
        "            self._ends.append(self._reader.position)\n"
        "            return self._finish(FinishReason.STOP)",
        "        if token in self._stop_ids:\n"
        "            self._read(token)\n"
        "            return self._finish(FinishReason.LENGTH)",
        ANSWER,
        "finish_reason would not be true",
    ),
    Fault(
        "a length that wins over a stop",
        "flashrt/chat/answer.py",
        "len(self._ends) >= self._max_tokens",
        "len(self._ends) >= self._max_tokens - 1",
        ANSWER,
        "answers would be one token short",
    ),
    Fault(
        "a stop string that keeps a token too many",
        "flashrt/chat/answer.py",
        "max(1, bisect_right(self._ends, cut))",
        "max(1, bisect_right(self._ends, cut) + 1)",
        ANSWER,
        "the journal would hold text that the client never saw (G2)",
    ),
    Fault(
        "a call that is whole though it was cut off",
        "flashrt/chat/answer.py",
        "self._reader.finish(cut_off=reason is FinishReason.LENGTH)",
        "self._reader.finish(cut_off=False)",
        ANSWER,
        "an agent would run a tool with half its arguments",
    ),
    Fault(
        "calls without their finish reason",
        "flashrt/chat/answer.py",
        "            reason = FinishReason.TOOL_CALLS",
        "            reason = FinishReason.STOP",
        ANSWER,
        "agents that look at finish_reason would not run the tool",
    ),
    Fault(
        "a stop string looked for piece by piece",
        "flashrt/chat/stops.py",
        "        safe = len(text) - max(self._matched)",
        "        self._matched = [0] * len(self._patterns)\n        safe = len(text)",
        STOPS,
        "a stop string that two tokens share would be missed",
    ),
    Fault(
        "a partial match that falls back to nothing",
        "flashrt/chat/stops.py",
        "            matched = self.borders[matched]",
        "            matched = 0",
        STOPS,
        "a stop string that begins inside its own false start would be missed",
    ),
    Fault(
        "a value that is forced into its type",
        "flashrt/chat/arguments.py",
        "return next(_fits(text.strip(), fitting), None) or _quoted(text)",
        "return next(_fits(text.strip(), fitting), None) or text.strip()",
        ARGUMENTS,
        "arguments would be no JSON whenever the model writes something odd",
    ),
    Fault(
        "a code that loses its leading zero",
        "flashrt/chat/arguments.py",
        'fitting = kinds & {"null", "array", "object"} if "string" in kinds else kinds',
        "fitting = kinds",
        ARGUMENTS,
        "what may be a string would become a number whenever it looks like one",
    ),
    Fault(
        "a marker that is read from text",
        "flashrt/chat/markers.py",
        "if literal not in control and (reads_calls or literal not in CALL_MARKERS)",
        "if reads_calls or literal not in CALL_MARKERS",
        (*ANSWER, "tests/chat/test_markers.py"),
        "a model that quotes </think> in prose would stop thinking",
    ),
    Fault(
        "a row of the reader that nobody wrote down",
        "flashrt/fsm/reader.py",
        "(Reading.VALUE, ReadingEvent.PARAMETER_CLOSE): Reading.VALUE_OVER",
        "(Reading.VALUE, ReadingEvent.PARAMETER_CLOSE): Reading.LEAVING",
        ("tests/specs/test_tables.py",),
        "values would end where the specification says that they go on",
    ),
)
