"""What was used and sampled for a conversation is used again when it comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.outline import Outline, Part, PartKind
from flashrt.chat.prompt import Prompt, Segment
from flashrt.chat.visible import Visible
from flashrt.engine.protocol import pack_ids
from flashrt.policy.replay import ReplayMemory
from tests.weighing import weighed

END = 9
"""Closes a turn."""

GENERATION = (1, 2)


def prompt(*parts, rest=(5, 5)):
    """A prompt of (kind, content, ids, reasoning), then `rest` and a generation prompt."""
    made, ids = [], []
    for kind, content, part_ids, reasoning in (*parts, between(rest)):
        ids += part_ids
        closing = (END,) if kind is PartKind.ANSWER else ()
        key = Visible(content).key() if kind is PartKind.ANSWER else str(content)
        made.append(Part(kind, len(ids), len(ids), key, reasoning, True, closing))
    ids += GENERATION
    made.append(Part(PartKind.GENERATION, len(ids), len(ids), ""))
    segments = tuple(Segment(str(id_), (id_,)) for id_ in ids)
    return Prompt.from_segments(segments, outline=Outline(tuple(made)))


def between(ids):
    return PartKind.BETWEEN, f"between {ids}", tuple(ids), ""


def answer(text, ids, reasoning=""):
    return PartKind.ANSWER, text, (*ids, END), reasoning


def answered(memory, asked, text, sampled, reasoning="", namespace="a"):
    """Serve a prompt: what is used for it, and what is remembered of its answer."""
    used = memory.replay(namespace, asked)
    memory.note_system(namespace, asked)
    memory.note_answer(used, Visible(text, reasoning=reasoning), (*used.ids, *sampled))
    return used


FIRST = prompt(rest=(3,))
BACK = prompt(between((3,)), answer("hi", (70, 71)))
SAMPLED = (3, *GENERATION, 60, 61, END, 5, 5, *GENERATION)


def test_what_nobody_has_asked_before_is_taken_as_rendered():
    """An unknown conversation has nothing to replay."""
    used = ReplayMemory().replay("a", BACK)
    assert (used.ids, used.packed, used.replayed_tokens) == (BACK.ids, BACK.packed, 0)


def test_an_answer_that_comes_back_is_what_was_sampled():
    """Also the generation prompt before it, which the template would leave out."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (60, 61, END))
    used = memory.replay("a", BACK)
    assert used.ids == SAMPLED
    assert used.packed == pack_ids(SAMPLED)
    assert used.replayed_tokens == 6


def test_a_turn_that_was_cut_off_is_closed():
    """An answer that ended by its length has no end of turn: it is put behind."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (60, 61))
    assert memory.replay("a", BACK).ids == SAMPLED


def test_thinking_may_be_left_out_but_not_changed():
    """Several clients drop it; one that shows other thinking shows another answer."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (60, 61, END), reasoning=" hm ")
    for shown in ("", "hm"):
        asked = prompt(between((3,)), answer("hi", (70, 71), shown))
        assert memory.replay("a", asked).ids == SAMPLED
    other = prompt(between((3,)), answer("hi", (70, 71), "oh"))
    assert memory.replay("a", other).ids == other.ids


def test_two_answers_of_one_text_are_told_apart_by_their_thinking():
    """Regenerated: the newer one is meant where the client does not show any."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (50, END), reasoning="old")
    answered(memory, FIRST, "hi", (60, 61, END), reasoning="new")
    old = memory.replay("a", prompt(between((3,)), answer("hi", (70,), "old")))
    assert old.ids == (3, *GENERATION, 50, END, 5, 5, *GENERATION)
    assert memory.replay("a", BACK).ids == SAMPLED


def test_another_namespace_remembers_nothing():
    """G10."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (60, 61, END))
    assert memory.replay("b", BACK).ids == BACK.ids


def test_the_first_spelling_of_a_system_turn_stays():
    """Equal keys mean equal tools, however their schemas are spelled."""
    memory = ReplayMemory()
    first = prompt((PartKind.SYSTEM, "tools", (40, 41), ""))
    second = prompt((PartKind.SYSTEM, "tools", (41, 40), ""))
    answered(memory, first, "hi", (60,))
    assert memory.replay("a", second).ids == first.ids
    assert memory.replay("b", second).ids == second.ids


def test_what_is_forgotten_is_taken_as_rendered_again():
    """By the digests that were told when it was noted; and its memory is free."""
    memory = ReplayMemory()
    first = prompt((PartKind.SYSTEM, "tools", (40, 41), ""), rest=(3,))
    back = prompt((PartKind.SYSTEM, "tools", (40, 41), ""), between((3,)), answer("hi", (70, 71)))
    used = memory.replay("a", first)
    system = memory.note_system("a", first)
    place = memory.note_answer(used, Visible("hi"), (*used.ids, 60, 61, END))
    assert memory.replay("a", back).replayed_tokens > 0
    for digest in (place, system, place, "unknown"):
        memory.forget(digest)
    assert memory.replay("a", back).ids == back.ids
    assert memory.held_bytes == 0


def test_an_open_answer_is_taken_as_rendered():
    """The answer goes on inside it: nobody has sampled its end."""
    memory = ReplayMemory()
    answered(memory, FIRST, "hi", (60, 61))
    closed = BACK.outline.parts
    opened = (*closed[:1], Part(PartKind.ANSWER, 3, 3, closed[1].key, closed=False))
    asked = Prompt(BACK.ids[:3], BACK.segments[:3], outline=Outline(opened))
    used = memory.replay("a", asked)
    assert used.ids == asked.ids
    assert used.digest is None


TEXTS = st.lists(st.sampled_from(["hi", "ho", "hm"]), min_size=1, max_size=6)


@given(talks=st.lists(TEXTS, min_size=1, max_size=6), bytes_max=st.sampled_from([0, 2500, 10**6]))
def test_a_conversation_is_replayed_whole_from_its_beginning(talks, bytes_max):
    """Turn by turn, in any order of conversations, and when old ones are forgotten: the ids used
    begin with the ids that were used and sampled before, or are those rendered; and the bound
    holds."""
    memory, serial, truth = ReplayMemory(bytes_max), 100, {}
    for texts in talks:
        parts = []
        for i, text in enumerate(texts):
            asked = prompt(*parts, rest=(20 + i,))
            used = memory.replay("a", asked)
            known = truth.get(tuple(texts[:i]), ())
            rest = (20 + i, *GENERATION)
            assert used.ids in (asked.ids, (*known, *rest)) or bytes_max < 10**6
            if bytes_max == 10**6 and known:
                assert used.ids == (*known, *rest)
            sampled, serial = (serial, END), serial + 1
            memory.note_answer(used, Visible(text), (*used.ids, *sampled))
            truth[tuple(texts[: i + 1])] = (*used.ids, *sampled)
            parts += [between((20 + i,)), answer(text, (70,))]
            assert memory.held_bytes <= bytes_max


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("turns", "length"),
    [(1, 1), pytest.param(1, 100, marks=SLOW), pytest.param(20, 1, marks=SLOW), (20, 100)],
)
def test_the_count_is_what_python_allocates(turns, length):
    """Short answers and long ones, alone and in long lines: never less, and not twice as much."""

    def filled():
        memory = ReplayMemory(1 << 40)
        for talk in range(200 // turns):
            parts = []
            for turn in range(turns):
                asked = prompt(*parts, rest=(20 + talk, turn))
                answered(memory, asked, "hi", range(1000, 1000 + length))
                parts += [between((20 + talk, turn)), answer("hi", (70,))]
        return memory

    memory, allocated = weighed(filled)
    assert allocated <= memory.held_bytes <= 2 * allocated


def test_what_others_go_on_from_is_counted_though_its_name_is_taken():
    """The same answer is sampled again and again, each time with other ids, and each time somebody
    goes on from there: every one of them is held, and the bound holds for them."""
    memory = ReplayMemory(100_000)
    for number in range(50):
        answered(memory, FIRST, "hi", (number, *range(5000)))
        asked = prompt(between((3,)), answer("hi", (70, 71)), rest=(number,))
        used = answered(memory, asked, "ho", (60,))
        assert used.place is not None
        assert memory.held_bytes <= 100_000
    assert memory.held_bytes > 4 * 20_000
