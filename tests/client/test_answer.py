"""An answer, folded from its stream."""

import pytest

from flashrt.client.answer import CUT_OFF, Answer
from flashrt.client.chunks import CallPiece, Choice, Chunk, FunctionPiece, MessagePiece
from flashrt.client.screen import Screen


def folded(*pieces: MessagePiece, finish_reason: str | None = "stop") -> Answer:
    """The answer of these pieces."""
    answer, screen = Answer(), Screen()
    for piece in pieces:
        answer.take(Chunk([Choice(piece)]), screen)
    answer.take(Chunk([Choice(finish_reason=finish_reason)]), screen)
    return answer


def call(index: int, *, name: str | None = None, text: str | None = None) -> MessagePiece:
    """A piece of a call."""
    call_id = f"call-{index}" if name else None
    return MessagePiece(tool_calls=[CallPiece(index, call_id, FunctionPiece(name, text))])


CALLS = [call(0, name="a"), call(0, text='{"x"'), call(0, text=":1}"), call(1, name="b", text="{}")]


def test_pieces_are_joined():
    """Text to text, thinking to thinking."""
    answer = folded(
        MessagePiece(reasoning_content="so "),
        MessagePiece(reasoning_content="so"),
        MessagePiece(content="y"),
        MessagePiece(content="es"),
    )

    assert answer.message() == {
        "role": "assistant",
        "content": "yes",
        "reasoning_content": "so so",
    }


def test_calls_are_joined_by_their_index(capsys):
    """Each one is shown on a line of its own when it begins."""
    answer = folded(*CALLS, finish_reason="tool_calls")

    first, second = answer.message()["tool_calls"]
    assert first["function"] == {"name": "a", "arguments": '{"x":1}'}
    assert (first["id"], second["id"]) == ("call-0", "call-1")
    assert capsys.readouterr().err == '-> a {"x":1}\n-> b {}'


@pytest.mark.parametrize("reason", ["length", None])
def test_calls_of_an_answer_that_was_cut_off_are_none(reason):
    """A half command must not run, nor stand in the history."""
    answer = folded(*CALLS, finish_reason=reason)

    assert answer.calls == []
    assert "tool_calls" not in answer.message()


def test_a_limit_that_was_reached_is_told(capsys):
    """Else it would look like the model's own end."""
    folded(MessagePiece(content="ye"), finish_reason="length")

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("ye\n", f"{CUT_OFF}\n")
