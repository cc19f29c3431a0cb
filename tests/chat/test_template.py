"""The checkpoint's template in its sandbox."""

import datetime
import json

import pytest

from flashrt.chat.template import CLOSE, OPEN, Template, find_source
from flashrt.errors import BadRequest, CannotServe

EOS = f"{OPEN}<eos>{CLOSE}"


def rendered(source: str, **values: object) -> str:
    return Template(source, ["<eos>"], {"eos_token": "<eos>"}).render(values)


@pytest.mark.parametrize(
    "source", ["a<eos>", "{{ 'a' ~ '<eos>' }}", "{{ 'a\\u003ceos>' }}", "a{{ eos_token }}"]
)
def test_control_tokens_of_the_template_are_marked(source: str):
    """As text, in a string, spelled with escapes or asked for by name."""
    assert rendered(source) == f"a{EOS}"


def test_control_tokens_in_values_are_not_marked():
    """What comes in is text, alone and with its neighbours."""
    assert rendered("<e{{ x }}|{{ y }}", x="os>", y="<eos>") == "<eos>|<eos>"


def test_logic_over_ordinary_text_works():
    """strip, `in`, split, startswith and the loop controls do what they do."""
    source = (
        "{%- for word in words.split('-') -%}"
        "{%- if word.strip() in ['x', ''] -%}{%- continue -%}{%- endif -%}"
        "{{ word.strip()|upper if word.startswith(' ') else word }}."
        "{%- endfor -%}"
    )

    assert rendered(source, words="a- b -x--c ") == "a.B.c ."


def test_blocks_leave_no_lines_behind():
    """`trim_blocks` and `lstrip_blocks`, as every such template expects."""
    assert rendered("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_json_keeps_order_and_characters():
    """`tojson` neither sorts keys, nor escapes what is not ASCII, nor what is HTML."""
    value = {"b": "ä<東>&'", "a": [1, None, True]}

    assert rendered("{{ x|tojson }}", x=value) == json.dumps(value, ensure_ascii=False)
    assert rendered("{{ x|tojson(indent=1) }}", x=value) == json.dumps(
        value, ensure_ascii=False, indent=1
    )


def test_ascii_json_escapes_all_but_the_marks():
    """A template may ask for ASCII; its own control tokens stay what they are."""
    assert rendered("{{ [x, '<eos>']|tojson(ensure_ascii=true) }}", x="ä🎈\n") == (
        f'["\\u00e4\\ud83c\\udf88\\n", "{EOS}"]'
    )


def test_the_generation_tag_means_nothing():
    """Templates mark what to train on; rendering ignores it."""
    assert rendered("a{% generation %}{{ 'b' }}{% endgeneration %}c") == "abc"


def test_the_date_is_the_servers():
    """`strftime_now` asks the clock that the template was given."""
    template = Template("{{ strftime_now('%Y-%m-%d') }}", now=lambda: datetime.datetime(2031, 2, 3))

    assert template.render({}) == "2031-02-03"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('No roles, please.') }}", "No roles, please."),
        ("{{ x.y.z }}", "undefined"),
        ("{{ x + 1 }}", "undefined"),
        ("{{ [] + 1 }}", "can only concatenate"),
        ("{{ {}|tojson(indent='x' * 2 ~ 1 / 0) }}", "division by zero"),
        ("{{ x.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_what_a_template_raises_is_the_clients_400(source: str, words: str):
    """With the template's own words; the sandbox's refusals too."""
    with pytest.raises(BadRequest, match=words):
        rendered(source + "{{ x }}", messages=[1])


def test_a_broken_template_is_refused_at_start():
    """The message has the line."""
    with pytest.raises(CannotServe, match="line 2"):
        Template("x\n{% if %}")


def test_a_template_that_uses_our_marks_is_refused_at_start():
    """They must mean one thing only."""
    with pytest.raises(CannotServe, match="needs both"):
        Template(f"x{OPEN}")


@pytest.mark.parametrize(
    "given",
    [
        "HERE",
        {"default": "HERE", "tool_use": "other"},
        [{"name": "tool_use", "template": "other"}, {"name": "default", "template": "HERE"}],
    ],
)
def test_the_template_is_found_in_the_config(tmp_path, given: object):
    """As a string, a dict or a list."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": given}))

    assert find_source(tmp_path) == "HERE"


def test_a_template_file_wins(tmp_path):
    """chat_template.jinja is asked first."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "other"}))
    (tmp_path / "chat_template.jinja").write_text("ä{{ 1 }}", encoding="utf-8")

    assert Template.load(tmp_path).render({}) == "ä1"


@pytest.mark.parametrize("config", [None, {}, {"chat_template": {"tool_use": "x"}}])
def test_a_checkpoint_without_a_template_is_refused_at_start(tmp_path, config: object):
    """The message names both places."""
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    with pytest.raises(CannotServe, match=r"chat_template\.jinja.*tokenizer_config\.json"):
        find_source(tmp_path)


def test_an_unreadable_template_file_is_refused_at_start(tmp_path):
    """Not UTF-8: it must not be served half."""
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")

    with pytest.raises(CannotServe, match="cannot be read"):
        find_source(tmp_path)
