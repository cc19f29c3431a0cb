"""Settings: four sources, one set of checks, one page."""

from pathlib import Path

import attrs
import pytest

from flashrt import settings
from flashrt.errors import CannotServe
from flashrt.settings import Settings, load

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
IN_THE_FILE = [field for field in settings.fields() if field.name != "config"]


@pytest.fixture
def toml(tmp_path):
    """Write a TOML file and give its name."""

    def write(text: str) -> str:
        path = tmp_path / "flashrt.toml"
        path.write_text(text)
        return str(path)

    return write


def refusal(flags=(), environ=()) -> str:
    with pytest.raises(CannotServe) as caught:
        load(dict(flags), dict(environ))
    return str(caught.value)


def test_without_any_source_the_defaults_count():
    """Nothing given: loopback, no key, the demo."""
    chosen = load({}, {})

    assert chosen == Settings()
    assert (chosen.model, chosen.host, chosen.has_keys) == (None, "127.0.0.1", False)


def test_flag_counts_before_variable_before_file_before_default(toml):
    """Each source fills what the ones before it left open."""
    config = toml("port = 1\nmax_seq = 1000\ndtype = 'float32'\n")
    environ = {"FLASHRT_PORT": "2", "FLASHRT_MAX_SEQ": "2000", "FLASHRT_CONFIG": config}

    chosen = load({"port": "3"}, environ)

    assert (chosen.port, chosen.max_seq, chosen.dtype, chosen.device) == (
        3,
        2000,
        "float32",
        "auto",
    )


def test_a_config_flag_counts_before_the_variable(toml):
    """Which file is read is a setting like any other."""
    chosen = load({"config": toml("port = 7")}, {"FLASHRT_CONFIG": "/nowhere.toml"})

    assert chosen.port == 7


@pytest.mark.parametrize("field", IN_THE_FILE, ids=lambda field: field.name)
def test_every_setting_reads_alike_from_every_source(field, toml, tmp_path):
    """One value, given as flag, variable and in the file, is the same value."""
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    kind = settings.kind(field)
    whole = min(128, field.metadata.get("most") or 128)
    text = {int: str(whole), float: "2.5", bool: "true", tuple: "a,b", str: "some"}[kind]
    text = (field.metadata.get("choices") or [text])[-1]
    text = {"api_key_file": str(keys), "host": "localhost"}.get(field.name, text)
    in_file = {str: f"'{text}'", tuple: "['a', 'b']"}.get(kind, text)
    as_flag = {bool: True, tuple: ["a", "b"]}.get(kind, text)

    from_flag = load({field.name: as_flag}, {})
    from_variable = load({}, {settings.env_name(field): text})
    from_file = load({"config": toml(f"{field.name} = {in_file}")}, {})

    value = getattr(from_flag, field.name)
    assert value != field.default
    assert isinstance(value, kind)
    assert getattr(from_variable, field.name) == getattr(from_file, field.name) == value


@pytest.mark.parametrize("text", ["auto", "0"])
def test_auto_is_zero(text):
    """What the server works out by itself may be written either way."""
    chosen = load({"max_seq": text, "threads": text, "max_output_tokens": text}, {})

    assert (chosen.max_seq, chosen.threads, chosen.max_output_tokens) == (0, 0, 0)


@pytest.mark.parametrize(("text", "budget"), [("auto", -1), ("-1", -1), ("0", 0), ("7", 7)])
def test_no_room_for_saved_states_is_not_the_same_as_auto(text, budget):
    """0 keeps none, so what the server works out by itself is another number."""
    assert load({"capsule_budget_mb": text}, {}).capsule_budget_mb == budget


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"port": "x"}, "--port is 'x'; it must be a whole number"),
        ({"port": "65536"}, "--port is 65536; it must be at most 65535"),
        ({"max_seq": "1"}, "--max-seq is 1; it must be at least 2, or auto"),
        ({"max_seq": "-1"}, "--max-seq is -1; it must be at least 2, or auto"),
        ({"chunk_tokens": "100"}, "--chunk-tokens is 100; it must be a multiple of 64"),
        ({"draft_tokens_max": "64"}, "--draft-tokens-max is 64; it must be at most 63"),
        ({"device": "tpu"}, "--device is 'tpu'; it must be one of auto, cpu, cuda"),
        (
            {"namespace_from": "prompt_cache_key"},
            "--namespace-from is 'prompt_cache_key'; it must be one of default, cache_salt, "
            "api_key",
        ),
        ({"capsule_budget_mb": "-2"}, "--capsule-budget-mb is -2; it must be at least 0, or auto"),
        ({"capsule_budget_mb": "1.5"}, "--capsule-budget-mb is '1.5'; it must be a whole number"),
        ({"heartbeat_s": "nan"}, "--heartbeat-s is nan; it must be at least 0.05"),
        ({"client_stall_s": "inf"}, "--client-stall-s is inf; it must be at most 3600"),
        ({"model": ""}, "MODEL is ''; it must be a text that is not empty"),
        ({"allowed_host": [""]}, "--allowed-host is ['']; it must be a list of texts"),
    ],
)
def test_a_wrong_value_names_its_flag_and_what_is_allowed(flags, words):
    """The message has the flag, the value and the way out."""
    assert refusal(flags) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("port = '8000x'", "`port` in {path} is '8000x'; it must be a whole number"),
        ("port = 1.5", "`port` in {path} is 1.5; it must be a whole number"),
        ("port = true", "`port` in {path} is True; it must be a whole number"),
        ("max_seq = false", "`max_seq` in {path} is False; it must be a whole number"),
        ("no_auth = 1", "`no_auth` in {path} is 1; it must be true or false"),
        ("host = 1", "`host` in {path} is 1; it must be a text that is not empty"),
        ("cors_origin = [1]", "`cors_origin` in {path} is [1]; it must be a list of texts"),
        ("prot = 1", "`prot` in {path} is no setting; did you mean port?"),
        ("api_keys = ['k']", "`api_keys` in {path} is no setting; did you mean api_key_file?"),
        ("config = 'x'", "`config` in {path} is no setting"),
        ("[serve]", "`serve` in {path} is no setting"),
        ("=", "--config: {path} is not TOML"),
    ],
)
def test_a_wrong_line_in_the_file_names_key_and_file(line, words, toml):
    """Unknown keys and wrong types say where they stand."""
    path = toml(line)

    assert refusal({"config": path}).startswith(words.format(path=path))


def test_a_file_that_is_not_there_is_named():
    """The source that named it, and its path."""
    message = refusal(environ={"FLASHRT_CONFIG": "/nowhere.toml"})

    assert message == "FLASHRT_CONFIG: cannot read /nowhere.toml: No such file or directory"


def test_an_unknown_variable_is_refused():
    """A typing error in a variable is not silently the default."""
    assert refusal(environ={"FLASHRT_PROT": "1"}) == (
        "FLASHRT_PROT is no setting; did you mean FLASHRT_PORT?"
    )
    assert load({}, {"PORT": "1", "OTHER": "x"}) == Settings()


def test_keys_come_from_file_and_environment(tmp_path):
    """Every line of the file and the variable; shown nowhere."""
    keys = tmp_path / "keys"
    keys.write_text("one\n\n  two  \none\n")

    chosen = load({"api_key_file": str(keys)}, {"FLASHRT_API_KEY": "three"})

    assert set(chosen.http_options().api_keys) == {"one", "two", "three"}
    assert len(chosen.api_keys) == 3
    for shown in (repr(chosen), repr(chosen.http_options())):
        assert not any(f"'{key}'" in shown for key in chosen.api_keys)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_key_file_without_a_key_is_refused(content, tmp_path):
    """An empty file must not open the server to all."""
    keys = tmp_path / "keys"
    keys.write_text(content)

    assert "holds no key" in refusal({"api_key_file": str(keys)})


def test_an_empty_key_in_the_environment_is_refused():
    """A variable that was meant to hold a key and holds none."""
    assert refusal(environ={"FLASHRT_API_KEY": " "}).startswith("FLASHRT_API_KEY is empty")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "box.lan"])
def test_others_are_let_in_only_with_a_key_or_by_name(host):
    """A bind beyond loopback needs a key, or --no-auth."""
    assert refusal({"host": host}).startswith(f"--host is {host}, which others can reach")
    assert load({"host": host, "no_auth": True}, {}).host == host
    assert load({"host": host}, {"FLASHRT_API_KEY": "k"}).has_keys


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_no_key(host):
    """Only this machine can reach it."""
    assert load({"host": host}, {}).host == host


def test_no_auth_and_a_key_contradict_each_other():
    """Both sources are named."""
    message = refusal({"no_auth": True}, {"FLASHRT_API_KEY": "k"})

    assert message.startswith("--no-auth and FLASHRT_API_KEY contradict each other")


def test_http_options_have_every_setting_of_http():
    """What is set reaches the HTTP room under its own name."""
    chosen = attrs.evolve(
        Settings(), max_body_mb=2, allowed_host=("a",), cors_origin=("b",), server_name="w"
    )

    options = chosen.http_options()

    assert options.max_body_bytes == 2 << 20
    assert (options.allowed_hosts, options.cors_origins, options.server_name) == (
        ("a",),
        ("b",),
        "w",
    )
