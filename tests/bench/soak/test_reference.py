"""The reference against a real server: what is equal, what is near, and what is wrong."""

import attrs
import pytest

from flashrt.bench.soak.answers import Answer, whole_answer
from flashrt.bench.soak.client import Compared
from flashrt.bench.soak.reference import Reference
from flashrt.bench.soak.wire import Place
from tests.whole.server import fake_engine, running_server


@pytest.fixture
async def asked():
    """A reference, and an answer of the same server."""
    async with running_server(fake_engine()) as server:
        body = await server.chat("hello", enable_thinking=False)
        place = Place(server.address.host, server.address.port)
        yield Reference(place, near=0.0), whole_answer(body)


def compared(answer: Answer, **block) -> Compared:
    """The answer with some fields of its `flashrt` block changed."""
    changed = attrs.evolve(answer, block={**answer.block, **block})
    return Compared(7, "append", 3, changed)


async def test_a_right_answer_is_equal(asked):
    """Also when it is shorter than what is known already."""
    reference, answer = asked
    assert await reference.compare(compared(answer)) is None
    ids = answer.output_ids[:3]
    silent = attrs.evolve(answer, message={"role": "assistant", "content": ""})
    assert await reference.compare(compared(silent, completion_token_ids=ids)) is None
    assert (reference.equal, reference.near_ties) == (2, 0)


@pytest.mark.parametrize("at", [0, 1, 7])
async def test_a_wrong_id_is_wrong_wherever_it_is(asked, at):
    """Both lists are in the words."""
    reference, answer = asked
    ids = answer.output_ids
    ids[at] += 1
    words = await reference.compare(compared(answer, completion_token_ids=ids))
    assert words is not None
    assert str(ids) in words
    assert str(answer.output_ids) in words


async def test_ids_behind_the_end_are_wrong(asked):
    """The reference has an end where the answer goes on."""
    reference, answer = asked
    block = {"prompt_token_ids": answer.prompt_ids[:-1]}
    assert await reference.compare(compared(answer, **block)) is not None


async def test_a_near_tie_may_go_either_way(asked):
    """Where the reference's best two are closer than `near`; counted apart."""
    reference, answer = asked
    reference.near = 1e9
    ids = [*answer.output_ids[:-1], 1]
    assert await reference.compare(compared(answer, completion_token_ids=ids)) is None
    assert (reference.equal, reference.near_ties) == (0, 1)


async def test_words_that_are_not_in_the_ids_are_wrong(asked):
    """What a client reads is the text of the ids, in content and in thinking."""
    reference, answer = asked
    for name in ("content", "reasoning_content"):
        message = {"role": "assistant", name: "something else entirely"}
        words = await reference.compare(compared(attrs.evolve(answer, message=message)))
        assert words is not None
        assert words.startswith(name)


@pytest.mark.parametrize("said", ["<tool_call>", "<tool_c", "</thi", "<|im_", "<|im_end|", "<"])
async def test_control_tokens_are_no_words(asked, said):
    """Whole, or as far as a stop string inside of one left them; before one nothing is excused."""
    reference, answer = asked
    spelt = attrs.evolve(answer, message={"role": "assistant", "content": said})
    assert await reference.compare(compared(spelt)) is None
    made_up = attrs.evolve(answer, message={"role": "assistant", "content": f"never said {said}"})
    assert await reference.compare(compared(made_up)) is not None
