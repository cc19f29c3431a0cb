"""Rounds of a template's loops are remembered, and nobody can tell."""

import json
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flashrt.chat.loops import KnownRounds, Rounds, remember_rounds
from flashrt.chat.template import Template
from tests.weighing import weighed

FAMILY = r"""
{%- set pictures = namespace(value=0) %}
{%- macro shown(content, counts) %}
    {%- if content is string %}{{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if 'image' in part %}
                {%- if counts %}{%- set pictures.value = pictures.value + 1 %}{%- endif %}
                {{- '[picture ' ~ pictures.value ~ ']' if add_vision_id else '[picture]' }}
            {%- else %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if tools %}
    {{- 'tools:' }}{%- for tool in tools %}{{- '\n' ~ tool | tojson }}{%- endfor %}
{%- endif %}
{%- set ns = namespace(step=true, query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if ns.step and message.role == 'user' and not message.content is mapping %}
        {%- set ns.step = false %}{%- set ns.query = messages|length - loop.index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = shown(message.content, true)|trim %}
    {%- if message.role == 'assistant' %}
        {%- set thought = message.thought or '' %}
        {%- if loop.index0 > ns.query %}{{- '(' ~ thought|trim ~ ')' }}{%- endif %}
        {{- content }}
        {%- for call in message.calls or [] %}
            {{- '\n\n' if loop.first and content else '\n' }}
            {{- call.name ~ call.arguments|tojson }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem and loop.previtem.role != 'tool' %}{{- '<tool>' }}{%- endif %}
        {{- content }}
        {%- if not loop.last and loop.nextitem.role != 'tool' %}{{- '</tool>' }}
        {%- elif loop.last %}{{- '</tool>' }}{%- endif %}
    {%- else %}{{- message.role ~ ': ' ~ content }}{%- endif %}
    {{- '|' }}
{%- endfor %}
{{- pictures.value ~ (' thinks' if enable_thinking else '') }}
"""
"""What the family's own templates do: pictures are counted by a macro, thinking depends on where
the newest question stands, results are framed by their neighbours."""

MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "one"},
    {"role": "user", "content": [{"text": "two"}, {"image": 1}]},
    {"role": "assistant", "content": "said", "thought": "hm"},
    {"role": "assistant", "content": "", "calls": [{"name": "f", "arguments": {"b": 1, "a": 2}}]},
    {"role": "tool", "content": "result"},
    {"role": "tool", "content": [{"image": 1}]},
)
TOOLS = ((), ({"name": "f"},), ({"name": "g"}, {"name": "f"}))
ARGS: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": True}, {"add_vision_id": True})
TALKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(MESSAGES), max_size=6),
        st.sampled_from(TOOLS),
        st.sampled_from(ARGS),
    ),
    max_size=5,
)


def plain(source: str) -> jinja2.Template:
    """As Jinja itself compiles it."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = json.dumps
    return environment.from_string(source)


PLAIN, REMEMBERS = plain(FAMILY), Template(FAMILY)


def count(source: str) -> int:
    """How many loops of a template are remembered."""
    environment = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"])
    return remember_rounds(environment.parse(source))


@given(TALKS, st.sampled_from([0, 3000, 1 << 20]))
def test_a_text_is_the_same_whatever_was_written_before(talks: list[Any], bytes_max: int):
    """Any messages in any order behind any others: as the plain template writes them."""
    known = KnownRounds(bytes_max)

    for messages, tools, args in talks:
        values = {**args, "messages": messages, "tools": list(tools)}
        assert REMEMBERS.render(values, Rounds(known, (args, tools))) == PLAIN.render(values)
        assert known.held_bytes <= bytes_max


def test_a_turn_that_goes_on_writes_only_what_is_new():
    """Of the family's template the loops over tools and messages are remembered, and the round
    before the end is written again: it stands elsewhere now."""
    template, known = Template(FAMILY), KnownRounds(1 << 20)
    written: list[str] = []

    class Counting(Rounds):
        def keep(self, text: str, *reads: Any) -> None:
            written.append(text)
            super().keep(text, *reads)

    talk = [MESSAGES[0], MESSAGES[3], MESSAGES[4]]
    template.render({"messages": talk, "tools": TOOLS[1]}, Counting(known, (ARGS[0], TOOLS[1])))
    written.clear()
    longer = [*talk, MESSAGES[2], MESSAGES[0]]
    template.render({"messages": talk, "tools": TOOLS[1]}, Counting(known, (ARGS[0], TOOLS[1])))
    assert count(FAMILY) == 2
    assert written == []
    template.render({"messages": longer, "tools": TOOLS[1]}, Counting(known, (ARGS[0], TOOLS[1])))
    assert all("one|" not in text or text == "user: one|" for text in written)


@pytest.mark.parametrize(
    "body",
    [
        "{{ messages|length }}",
        "{{ cycler('a', 'b').next() }}",
        "{{ strftime_now('%S') }}",
        "{{ [1, 2, 3]|random }}",
        "{{ lipsum() }}",
        "{{ loop.changed(m.role) }}",
        "{{ loop.cycle('a', 'b') }}",
        "{% if m %}{% break %}{% endif %}",
        "{% set seen.n = seen.n + 1 %}{{ seen.n }}",
        "{% include 'x' %}",
        "{{ reader(m) }}",
        "{{ unknown(m) }}",
    ],
)
def test_a_round_that_reads_more_than_can_be_told_is_always_written(body: str):
    """All the items, the time, dice, the rounds before: directly or in a macro."""
    macro = "{% macro reader(m) %}{{ messages[0].role }}{% endmacro %}"

    assert count(f"{macro}{{% for m in messages %}}{body}{{% endfor %}}") == 0
    assert count(f"{macro}{{% for m in messages %}}{{{{ m.role }}}}{{% endfor %}}") == 1


def test_a_round_that_changes_a_name_is_written_each_time():
    """What it leaves behind is part of what it does."""
    source = (
        "{% set n = namespace(sum=0) %}{% macro add(x) %}{% set n.sum = n.sum + x %}{% endmacro %}"
        "{% for m in messages %}{{ add(m.x) }}{{ n.sum }} {% endfor %}{{ n.sum }}"
    )
    template, known = Template(source), KnownRounds(1 << 20)
    messages, frame = [{"x": 1}, {"x": 0}, {"x": 2}], ({}, ())

    texts = [template.render({"messages": messages}, Rounds(known, frame)) for _ in range(3)]

    assert count(source) == 1
    assert texts == ["1 1 3 3"] * 3


def test_a_name_that_a_macro_may_see_otherwise_is_not_told():
    """It was set before the macro was defined, and again."""
    source = (
        "{% set who = a %}{% macro name() %}{{ who }}{% endmacro %}{% set who = 'b' %}"
        "{% for m in messages %}{{ name() }}{% endfor %}"
    )

    assert count(source) == 0


def test_two_loops_over_the_same_messages_write_their_own():
    """A round is known by its loop too."""
    source = (
        "{% for m in messages %}{{ m.a }}{% endfor %}{% for m in messages %}{{ m.b }}{% endfor %}"
    )
    messages: list[Any] = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]

    assert count(source) == 2
    assert Template(source).render({"messages": messages}, Rounds(KnownRounds(9999), ())) == "1324"


def test_a_name_is_told_with_its_type():
    """true, 1 and 1.0 are equal, and written in three ways."""
    source = "{% set x = messages[0].x %}{% for m in messages[1:] %}{{ x|tojson }}{% endfor %}"
    template, known, same = Template(source), KnownRounds(9999), {"m": 1}

    talks = [[{"x": x}, same] for x in (True, 1, 1.0, "1", None)]
    texts = [template.render({"messages": talk}, Rounds(known, ())) for talk in talks]

    assert count(source) == 1
    assert texts == ["true", "1", "1.0", '"1"', "null"]


def test_without_a_frame_nothing_is_remembered():
    """Nobody has said what else a round may read."""
    known = KnownRounds(1 << 20)
    Template(FAMILY).render({"messages": list(MESSAGES)}, Rounds(known))

    assert known.held_bytes == 0


def test_a_round_that_fails_fails_again():
    """Its text is not known."""
    template, known = Template("{% for m in messages %}{{ m.a.b }}{% endfor %}"), KnownRounds(9999)
    messages: list[Any] = [{"a": {"b": 1}}, {}]

    for _ in range(2):
        with pytest.raises(Exception, match="no attribute 'a'"):
            template.render({"messages": messages}, Rounds(known, ({},)))


def test_the_count_is_what_python_allocates():
    """Texts, keys, and the messages that only they still hold: never less, and not four times."""
    template = Template("{% for m in messages %}{{ m.text }}{% endfor %}")
    template.render({"messages": [{"text": "x"}]}, Rounds(KnownRounds(9999), ({},)))

    def filled() -> KnownRounds:
        known = KnownRounds(1 << 22)
        messages = [{"text": f"{number} " + "word" * 100} for number in range(200)]
        template.render({"messages": messages}, Rounds(known, ({},)))
        return known

    known, allocated = weighed(filled)
    assert allocated <= known.held_bytes <= 4 * allocated
