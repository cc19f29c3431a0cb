"""Any setting from any source: what can be served, or one sentence that says what is wrong."""

from collections.abc import Callable

import attrs
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from flashrt import settings
from flashrt.cli import main, parser
from flashrt.engine.assets import find_model
from flashrt.errors import CannotServe
from flashrt.http.app import make_app
from flashrt.policy.steps import Performer
from flashrt.serve import assemble
from flashrt.settings import Settings, load
from tests.whole.server import VOICE, fake_engine

MESSAGE_MAX = 5000

TEXTS = (
    *("", " ", "\0", "a\nb", "a\r\nX-Y: z", "\x1b[2J", "\u20ac", "\ud800", "\udcff", " padded "),
    *(
        "x" * 300,
        "x" * 70 + ".lan",
        "a..b",
        "/",
        ".",
        "~",
        "~nobody/x",
        "*",
        "http://[",
        "%s",
        "a b",
    ),
    *("auto", "true", "no", "127.0.0.1", "::1", "localhost", "0.0.0.0", "nan", "inf", "-inf"),
    *("1e400", "1e308", "-0", "0x10", "1_0", "\u0661", "\u00bd", "+5", "9" * 30, "9" * 5000),
)
TOML = (
    *("0x" + "f" * 5000, "9" * 5000, "1" + "0" * 400, "1e400", "nan", "-inf", "-0", "0o7", "1.5"),
    *(
        "[]",
        "[[]]",
        "{}",
        "{a = 1}",
        "1979-05-27",
        "true",
        "''",
        "'*'",
        "[1]",
        "['']",
        "['a', 'b']",
    ),
    *('"a\\u0000b"', '["a\\nb"]', "[" * 3000, "[" * 300 + "]" * 300, "=", "'\x00'", "\\", "'''"),
)
FIELDS = list(settings.fields())
IN_THE_FILE = [field for field in FIELDS if field.name != "config"]

FEW, MANY = 80, 2000
efforts = pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


def for_all(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis for so many examples; what pytest gives a test is the same for all of them."""
    shared = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return profile(max_examples=examples, deadline=None, suppress_health_check=shared)


def values(field: settings.Field) -> st.SearchStrategy[str]:
    """Texts for a setting: odd ones, random ones, and numbers at its limits."""
    borders = [field.metadata[name] for name in ("least", "most") if name in field.metadata]
    numbers = [str(border + step) for border in borders for step in (-1, 0, 1)]
    return st.sampled_from((*TEXTS, *numbers)) | st.text(max_size=8) | st.integers().map(str)


def loaded(flags: dict[str, object], environ: dict[str, str], named: str) -> Settings | None:
    """The settings, or None where they are refused in words that name their source."""
    try:
        return load(flags, environ)
    except CannotServe as refusal:
        message = str(refusal)
        beside = ("--config", "--api-key-file")  # what the value of another setting leads to
        assert any(name in message for name in (named, *beside)), message
        assert len(message) <= MESSAGE_MAX
        return None


def build(chosen: Settings) -> None:
    """Everything that is made of settings before a checkpoint is read, as `serve` makes it."""
    try:
        if chosen.model is not None:
            find_model(chosen.model)
        _, service = assemble(chosen, VOICE, Performer(fake_engine()))
    except CannotServe:
        return
    make_app(service, chosen.http_options())
    assert service.metrics()
    for field in FIELDS:
        value = getattr(chosen, field.name)
        if "most" in field.metadata:
            assert value == field.metadata.get("auto") or (
                field.metadata["least"] <= value <= field.metadata["most"]
            )


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Some settings name files to write."""
    monkeypatch.chdir(tmp_path)


@efforts
def test_a_flag_with_any_value_is_served_or_refused_by_name(examples):
    """And what is taken can be built."""

    @for_all(examples)
    @given(st.sampled_from(FIELDS), st.data())
    def law(field, data):
        text = data.draw(values(field))
        value = {bool: True, tuple: [text]}.get(settings.kind(field), text)
        chosen = loaded({field.name: value}, {}, settings.flag_name(field))
        if chosen is not None:
            build(chosen)

    law()


@efforts
def test_a_variable_with_any_value_is_served_or_refused_by_name(examples):
    """The same from the environment."""

    @for_all(examples)
    @given(st.sampled_from(FIELDS), st.data())
    def law(field, data):
        named = settings.env_name(field)
        loaded({}, {named: data.draw(values(field))}, named)

    law()


@efforts
def test_a_line_of_the_file_with_any_value_is_served_or_refused_by_name(examples, tmp_path):
    """The same from TOML, which has types, and numbers of any length."""
    file = tmp_path / "flashrt.toml"

    @for_all(examples)
    @given(st.sampled_from(IN_THE_FILE), st.sampled_from(TOML))
    def law(field, text):
        file.write_text(f"{field.name} = {text}\n")
        loaded({"config": str(file)}, {}, f"`{field.name}`")

    law()


@for_all(FEW)
@given(st.binary(max_size=60))
@example(b"\xff")
@example(b"port = 1\nport = 2")
@example(b"[a" * 3000)
@example(b"a." * 3000 + b"b = 1")
@example(b"x" * 5000 + b" = 1")
def test_a_file_of_any_bytes_is_read_or_refused_by_name(tmp_path_factory, content):
    """Settings and keys alike; what is no key is not shown."""
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(content)
    loaded({"config": str(file)}, {}, str(file))
    chosen = loaded({"api_key_file": str(file)}, {}, str(file))
    assert chosen is None or all(key.isascii() and key.isprintable() for key in chosen.api_keys)


@for_all(FEW)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
@example("\udcff")
@example("\u20ac")
def test_any_key_of_the_environment_is_one_that_a_header_can_carry(key):
    """Or it is refused, without being shown: it would let nobody in."""
    chosen = loaded({}, {settings.API_KEY: key}, settings.API_KEY)
    assert chosen is None or chosen.api_keys[0].encode("ascii").strip()


words = st.sampled_from([settings.flag_name(field) for field in FIELDS]) | st.sampled_from(TEXTS)


@for_all(25)
@given(st.lists(words | st.text(max_size=8), max_size=5))
def test_any_command_line_that_is_refused_is_one_line_and_status_2(capfd, argv):
    """Never a traceback, and never a server that half starts."""
    command = ["serve", *argv, "--port", "nowhere"]
    try:
        status = main(command)
    except SystemExit as ended:  # --help and --version
        status = ended.code
        capfd.readouterr()
    if status == 0:
        return
    shown = capfd.readouterr()
    assert status == 2
    assert shown.out == ""
    assert shown.err.startswith("flashrt: ")
    assert shown.err.count("\n") == 1


def test_every_number_has_a_least_and_a_most():
    """Without them a sum or product of settings could pass what a float, or torch, can hold."""
    numbers = [field for field in FIELDS if settings.kind(field) in (int, float)]
    assert len(numbers) > 15
    assert [f.name for f in numbers if not {"least", "most"} <= f.metadata.keys()] == []


def test_every_command_line_that_is_taken_has_only_text():
    """So every source has the same checks: argparse converts nothing by itself."""
    asked = vars(parser().parse_args(["serve", "--port", "x", "--allowed-host", "a"]))
    assert asked == {"command": "serve", "port": "x", "allowed_host": ["a"]}
    assert attrs.fields_dict(Settings).keys() >= asked.keys() - {"command"}
