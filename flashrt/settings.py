"""Every setting of the server, once: flags, environment, TOML file and docs/settings.md follow.

Where a setting is given twice, the first of these counts: flag, FLASHRT_* variable, file, default.
"""

import difflib
import ipaddress
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from flashrt.errors import CannotServe
from flashrt.http.options import HttpOptions
from flashrt.policy.cuts import CHUNK_GRID
from flashrt.setting_values import IN_A_HEADER, Given, convert

PREFIX = "FLASHRT_"
PARKING_LEAST_S = 10.0
"""A stop that gives answers no time is still no reason to lose conversations."""

TOKENS_MAX = 100_000_000
"""No window is that long."""

API_KEY = "FLASHRT_API_KEY"
"""The one secret that may come from the environment. It has no flag: `ps` shows flags to all."""


def setting(default: Any, text: str, *, metavar: str | None = None, **checks: Any) -> Any:
    """A field that is a setting.

    `checks`: `choices`, `least`, `most`, `step`, `auto`, and `in_a_header` for a text. A number has
    a `least` and a `most`, so that no sum or product with it passes what floats hold.
    """
    return attrs.field(default=default, metadata={"help": text, "metavar": metavar, **checks})


@attrs.frozen
class Settings:
    """What a server is told at start. Build one with `load`; `model` None is the bundled demo."""

    model: str | None = setting(
        None,
        "checkpoint: a directory, or a repository id that is already in the local Hugging Face "
        "cache; without it the bundled demo checkpoint is served",
        metavar="MODEL",
    )
    host: str = setting("127.0.0.1", "address to listen on", metavar="ADDRESS")
    port: int = setting(8000, "port to listen on; 0 picks a free one", least=0, most=65535)
    device: str = setting("auto", "where the model runs", choices=("auto", "cpu", "cuda"))
    dtype: str = setting(
        "auto", "number format of the weights", choices=("auto", "float32", "bfloat16")
    )
    kv_cache_dtype: str = setting(
        "auto",
        "number format of the keys and values that a conversation's state keeps; auto is that of "
        "the weights, fp8 (e4m3) takes half of bf16 and rounds more",
        choices=("auto", "bf16", "fp8"),
    )
    max_seq: int = setting(
        0,
        "window in tokens, prompt and answer together; auto is the longest that fits in memory "
        "with room for one saved state of it, and no longer than the model's own",
        least=2,
        most=TOKENS_MAX,
        auto=0,
    )
    model_name: str | None = setting(None, "name of the model in /v1/models", metavar="NAME")
    strict_model_name: bool = setting(
        False, "refuse requests that name another model; else every name is served"
    )
    api_key_file: str | None = setting(
        None,
        f"file with the API keys that are let in, one a line; {API_KEY} adds one more",
        metavar="FILE",
    )
    no_auth: bool = setting(
        False, "let everybody in, also when listening beyond this machine without a key"
    )
    allowed_host: tuple[str, ...] = setting(
        (), "host name that this server also answers to; * for every name", metavar="NAME"
    )
    cors_origin: tuple[str, ...] = setting(
        (), "origin whose web pages may use this server; * for every page", metavar="ORIGIN"
    )
    server_name: str | None = setting(
        None,
        "name of this worker in the x-flashrt-worker header",
        metavar="NAME",
        in_a_header=True,
    )
    max_body_mb: int = setting(8, "largest request body in MiB", least=1, most=1024)
    max_queue_depth: int = setting(
        32, "requests that may wait; a further one gets 429", least=1, most=10_000
    )
    queue_per_client: int = setting(
        16,
        "requests that may wait of one API key, or of one address where there are no keys; a "
        "further one gets 429",
        least=1,
        most=10_000,
    )
    queue_timeout_s: float = setting(
        0.0,
        "seconds after which a request that still waits gets 503; 0 lets it wait as long as its "
        "client does",
        least=0,
        most=86_400,
    )
    max_prompt_tokens: int = setting(
        0,
        "longest prompt in tokens; auto is what the window takes",
        least=1,
        most=TOKENS_MAX,
        auto=0,
    )
    overflow_status: str = setting(
        "413",
        "status of a prompt that is too long; some clients compact only on 400",
        choices=("413", "400"),
    )
    max_output_tokens: int = setting(
        0,
        "longest answer in tokens; auto is what the window leaves",
        least=1,
        most=TOKENS_MAX,
        auto=0,
    )
    max_decode_ms: float = setting(
        0.0,
        "milliseconds after which an answer ends as one that is too long (finish_reason length); 0 "
        "sets no limit",
        least=0,
        most=86_400_000,
    )
    max_active_sessions: int = setting(
        256, "conversations that are known at a time; the oldest makes room", least=1, most=100_000
    )
    session_idle_ttl_s: float = setting(
        86_400.0,
        "seconds after which a conversation that nobody goes on with is forgotten, its saved "
        "states too; 0 keeps it as long as there is room",
        least=0,
        most=31_536_000,
    )
    chunk_tokens: int = setting(
        0,
        "tokens of a prompt processed between two chances to cancel, a multiple of 64; auto is "
        "1024, and 2048 on a GPU",
        least=CHUNK_GRID,
        most=1 << 20,
        step=CHUNK_GRID,
        auto=0,
    )
    capsule_budget_mb: int = setting(
        -1,
        "memory for saved states (capsules) in MiB, so that a conversation is not read again; 0 "
        "keeps none; auto is a quarter of the free memory, or what a GPU has left beside the "
        "longest step",
        least=0,
        most=1 << 24,
        auto=-1,
    )
    host_capsule_budget_mb: int = setting(
        -1,
        "memory of the host in MiB for saved states that a GPU has no room for, pinned at start "
        "and kept; auto is half of what is free, at most 64 GiB or what the system pins, and "
        "nothing where the model itself runs in that memory",
        least=0,
        most=1 << 24,
        auto=-1,
    )
    disk_capsule_dir: str | None = setting(
        None,
        "directory for saved states, so that conversations go on after a restart; made if it is "
        "not there, for this user alone",
        metavar="DIR",
    )
    disk_capsule_budget_mb: int = setting(
        -1,
        "what that directory may hold in MiB; auto is half of what is free there, at most 64 GiB",
        least=1,
        most=1 << 30,
        auto=-1,
    )
    namespace_from: str = setting(
        "default",
        "who may reuse whose prefixes: default is prompt_cache_key, else cache_salt, else the API "
        "key; with the others a prompt_cache_key is only a hint",
        choices=("default", "cache_salt", "api_key"),
    )
    # At 90 % acceptance and 7 % of a step for each id, 12 ids a step would gain 2 % over 8.
    draft_tokens_max: int = setting(
        8,
        "tokens that the checkpoint's MTP layer drafts a step at most, and what a request may ask "
        "for; prompt lookup goes up to 63 where it is right; 0 turns all drafts off",
        least=0,
        most=63,
    )
    calls_in_thinking: str = setting(
        "take_last", "a call that ends the answer inside thinking", choices=("take_last", "ignore")
    )
    heartbeat_s: float = setting(
        5.0,
        "seconds of silence after which a stream says how far it is",
        least=0.05,
        most=60,
    )
    client_stall_s: float = setting(
        30.0, "seconds after which a client that does not read is given up", least=1, most=3600
    )
    graceful_timeout_s: float = setting(
        30.0, "seconds that running answers get to finish when the server stops", least=0, most=3600
    )
    threads: int = setting(
        0,
        "CPU threads of the engine; auto is one a core, less one for HTTP",
        least=1,
        most=1024,
        auto=0,
    )
    request_log: str | None = setting(
        None, "file that gets one JSON line per request; no prompts, no answers", metavar="FILE"
    )
    log_level: str = setting(
        "info", "how much is logged", choices=("debug", "info", "warning", "error")
    )
    config: str | None = setting(
        None, "TOML file with any of these settings, by their names", metavar="FILE"
    )
    api_keys: tuple[str, ...] = attrs.field(default=(), repr=False)
    """The keys that are let in, read by `load`; no setting of its own."""

    @property
    def parking_s(self) -> float:
        """Seconds that saved states get to be brought to disk when the server stops."""
        return max(self.graceful_timeout_s, PARKING_LEAST_S)

    @property
    def has_keys(self) -> bool:
        """Whether a client needs a key."""
        return bool(self.api_keys)

    def http_options(self) -> HttpOptions:
        """What of this concerns HTTP."""
        return HttpOptions(
            host=self.host,
            port=self.port,
            api_keys=self.api_keys,
            allowed_hosts=self.allowed_host,
            cors_origins=self.cors_origin,
            strict_model_name=self.strict_model_name,
            server_name=self.server_name,
            max_body_bytes=self.max_body_mb << 20,
            overflow_status=int(self.overflow_status),
            heartbeat_s=self.heartbeat_s,
            client_stall_s=self.client_stall_s,
            graceful_timeout_s=self.graceful_timeout_s,
        )


Field: TypeAlias = "attrs.Attribute[Any]"


def fields() -> Iterator[Field]:
    """The fields that are settings, in their order."""
    return (field for field in attrs.fields(Settings) if field.metadata)


def env_name(field: Field) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.name.upper()


def flag_name(field: Field) -> str:
    """The flag of a setting; the model is an argument of its own."""
    return "MODEL" if field.name == "model" else "--" + field.name.replace("_", "-")


def load(flags: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from all sources; `flags` by field name, as text. Raises CannotServe."""
    given = {name: Given(value, _flag_origin(name)) for name, value in flags.items()}
    given = {**_from_environ(environ), **given}
    if "config" in given:
        given = {**_from_file(given["config"]), **given}
    by_name = {field.name: field for field in fields()}
    values: dict[str, Any] = {
        name: convert(by_name[name], kind(by_name[name]), item) for name, item in given.items()
    }
    settings = Settings(**values)
    settings = attrs.evolve(settings, api_keys=_read_keys(settings, environ))
    _refuse_conflicts(settings, given)
    return settings


def _flag_origin(name: str) -> str:
    return flag_name(getattr(attrs.fields(Settings), name))


def _from_environ(environ: Mapping[str, str]) -> dict[str, Given]:
    names = {env_name(field): field.name for field in fields()}
    given = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable == API_KEY:
            continue
        if variable not in names:
            raise CannotServe(f"{variable[:100]} is no setting{_hint(variable, [*names, API_KEY])}")
        given[names[variable]] = Given(value, variable)
    return given


def _from_file(config: Given) -> dict[str, Given]:
    path = Path(str(convert(attrs.fields(Settings).config, str, config)))
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotServe(f"{config.origin}: cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        # Its own errors, bytes that are no UTF-8, numbers of thousands of digits, many brackets.
        raise CannotServe(f"{config.origin}: {path} is not TOML: {error}") from None
    names = [field.name for field in fields() if field.name != "config"]
    for key in table:
        if key not in names:
            raise CannotServe(f"`{key[:100]}` in {path} is no setting{_hint(key, names)}")
    return {key: Given(value, f"`{key}` in {path}") for key, value in table.items()}


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "; see docs/settings.md"


def kind(field: Field) -> Any:
    """The type of a setting's value: str, int, float, bool, or tuple for a list of strings."""
    hint = typing.get_type_hints(Settings)[field.name]
    if isinstance(hint, types.UnionType):
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    return typing.get_origin(hint) or hint


# -- several values --------------------------------------------------------------------------------


def _read_keys(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    keys = [environ[API_KEY].strip()] if API_KEY in environ else []
    if "" in keys:
        raise CannotServe(f"{API_KEY} is empty; unset it to serve without a key")
    _refuse_unspeakable(keys, API_KEY)
    if settings.api_key_file is not None:
        in_file = _keys_in(Path(settings.api_key_file))
        _refuse_unspeakable(in_file, f"--api-key-file: {settings.api_key_file}")
        keys += in_file
    return tuple(dict.fromkeys(keys))


def _refuse_unspeakable(keys: list[str], source: str) -> None:
    """A key that no header can carry would let nobody in. The message does not show it."""
    if not all(IN_A_HEADER.fullmatch(key) for key in keys):
        raise CannotServe(f"{source} has a key with characters other than printable ASCII")


def _keys_in(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CannotServe(f"--api-key-file: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotServe(f"--api-key-file: {path} is not text") from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise CannotServe(f"--api-key-file: {path} holds no key; it needs one a line")
    return keys


def _refuse_conflicts(settings: Settings, given: Mapping[str, Given]) -> None:
    if settings.no_auth and settings.has_keys:
        source = given["api_key_file"].origin if "api_key_file" in given else API_KEY
        raise CannotServe(
            f"{given['no_auth'].origin} and {source} contradict each other: give up one of them"
        )
    if not settings.no_auth and not settings.has_keys and not _is_loopback(settings.host):
        raise CannotServe(
            f"{given['host'].origin} is {settings.host}, which others can reach, and there is no "
            f"API key. Give one with --api-key-file or {API_KEY}, or let everybody in with "
            "--no-auth"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
