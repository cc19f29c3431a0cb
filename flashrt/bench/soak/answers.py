"""What an answer must be, whatever was asked: its shape, its ending, and sums that agree."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from flashrt.bench.soak.wire import Fault, Reply

FINISHES = frozenset({"stop", "length", "tool_calls"})
ERROR_FIELDS = frozenset({"message", "type", "param", "code"})


@attrs.frozen
class Answer:
    """A finished answer. `text`: all that a reader sees of it: thinking, then content."""

    message: Mapping[str, Any]
    finish: str
    block: Mapping[str, Any]

    @property
    def prompt_ids(self) -> list[int]:
        return list(self.block["prompt_token_ids"])

    @property
    def output_ids(self) -> list[int]:
        return list(self.block["completion_token_ids"])

    @property
    def text(self) -> str:
        return "".join(self.message.get(name) or "" for name in ("reasoning_content", "content"))


@attrs.define
class Stream:
    """Folds the events of a stream; raises Fault at the first that may not be."""

    _rest: bytes = b""
    _finish: str | None = None
    _done: bool = False
    _error: Any = None
    _block: Mapping[str, Any] | None = None
    _usage: Mapping[str, Any] | None = None
    _texts: dict[str, list[str]] = attrs.field(factory=dict)
    _calls: dict[int, dict[str, Any]] = attrs.field(factory=dict)

    def feed(self, data: bytes) -> None:
        """Take in bytes, cut anywhere."""
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            self._frame(frame)

    def end(self) -> Answer:
        """The answer, now that the body is at its end."""
        _require(not self._rest, f"bytes behind the last event: {self._rest[:100]!r}")
        _require(self._done or self._error is not None, "a stream without an ending")
        _require(self._error is None, f"an error event: {self._error}")
        _require(self._block is not None, "a stream without a `flashrt` block")
        message: dict[str, Any] = {k: "".join(v) for k, v in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        answer = Answer({"role": "assistant", **message}, self._finish or "", self._block or {})
        check_answer(answer, self._usage)
        return answer

    def _frame(self, frame: bytes) -> None:
        if frame.startswith(b":"):
            return
        _require(not self._done, f"an event behind [DONE]: {frame[:100]!r}")
        _require(self._error is None, f"an event behind an error event: {frame[:100]!r}")
        _require(frame.startswith(b"data: "), f"a frame that is no event: {frame[:100]!r}")
        if frame == b"data: [DONE]":
            _require(self._finish is not None, "[DONE] without a finish_reason")
            self._done = True
            return
        try:
            event = json.loads(frame[6:])
        except ValueError:
            raise Fault(f"an event that is not JSON: {frame[:100]!r}") from None
        self._event(event)

    def _event(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            _require(self._finish is None, "an error event behind a finish_reason")
            check_error(event)
            self._error = event["error"]
            return
        self._block = event.get("flashrt", self._block)
        self._usage = event.get("usage") or self._usage
        for choice in event["choices"]:
            _require(self._finish is None, f"a second ending, or a delta behind it: {choice}")
            self._finish = choice["finish_reason"]
            self._delta(choice.get("delta", {"content": choice.get("text")}))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for name in ("content", "reasoning_content"):
            if delta.get(name) is not None:
                self._texts.setdefault(name, []).append(delta[name])
        for piece in delta.get("tool_calls", ()):
            function = piece.get("function", {})
            call = self._calls.setdefault(
                piece["index"],
                {"id": piece.get("id"), "type": "function", "function": {"arguments": ""}},
            )
            if "name" in function:
                call["function"]["name"] = function["name"]
            call["function"]["arguments"] += function.get("arguments", "")


def whole_answer(body: Mapping[str, Any]) -> Answer:
    """The answer in a buffered body. Raises Fault."""
    try:
        (choice,) = body["choices"]
        message = choice.get("message") or {"role": "assistant", "content": choice["text"]}
        answer = Answer(message, choice["finish_reason"], body["flashrt"])
        usage = body["usage"]
    except (KeyError, ValueError, TypeError) as error:
        raise Fault(f"a body without {error}: {str(body)[:200]}") from None
    check_answer(answer, usage)
    return answer


def check_answer(answer: Answer, usage: Mapping[str, Any] | None) -> None:
    """Its ending is one that is known, and its sums agree. Raises Fault."""
    block = answer.block
    prompt, output = len(answer.prompt_ids), len(answer.output_ids)
    read = block["cached_tokens"] + block["new_prefill_tokens"]
    _require(answer.finish in FINISHES, f"finish_reason {answer.finish!r}")
    _require(block["terminal_state"] == "DONE", f"finished in {block['terminal_state']}")
    _require(read == prompt, f"{read} prompt tokens cached or computed, {prompt} in the prompt")
    if usage is not None:
        counted = (usage["prompt_tokens"], usage["completion_tokens"])
        _require(counted == (prompt, output), f"usage says {counted}, ids say {(prompt, output)}")
    for call in _whole_calls(answer):
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            raise Fault(f"a call's arguments are not JSON: {call}") from None
        _require(isinstance(arguments, dict), f"a call's arguments are no object: {call}")


def check_error(body: Any) -> None:
    """An error in the protocol's shape, without the server's insides. Raises Fault."""
    error = body.get("error") if isinstance(body, dict) else None
    shaped = isinstance(error, dict) and error.keys() >= ERROR_FIELDS and error["message"]
    _require(bool(shaped), f"an error body of another shape: {str(body)[:200]}")
    _require("Traceback" not in str(body), f"a traceback for the client: {str(body)[:200]}")


def error_code(reply: Reply) -> str | None:
    """The code of a refusal. Raises Fault for one in another shape than the protocol's."""
    body = reply.json()
    check_error(body)
    code: str | None = body["error"]["code"]
    return code


def check_refusal(reply: Reply, allowed: frozenset[int], code: str | None = None) -> None:
    """A refusal of one of these statuses, in the protocol's shape. Raises Fault."""
    _require(reply.status in allowed, f"status {reply.status}, not one of {sorted(allowed)}")
    found = error_code(reply)
    _require(code in (None, found), f"code {found!r}, not {code!r}")
    if reply.status == 429:
        wait = reply.headers.get("retry-after", "")
        _require(wait.isdecimal() and int(wait) > 0, f"429 with Retry-After {wait!r}")


def _whole_calls(answer: Answer) -> Iterator[Mapping[str, Any]]:
    """Calls that may be executed: of an answer that was cut short, a stream shows pieces."""
    if answer.finish == "tool_calls":
        yield from answer.message.get("tool_calls") or ()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Fault(otherwise)
