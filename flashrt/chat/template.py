"""The checkpoint's own chat template, in a sandbox, with its control tokens marked as its own."""

import datetime
import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flashrt.chat.loops import FILTERS, NO_ROUNDS, ROUNDS, Rounds, remember_rounds
from flashrt.chat.tokenizer import read_json
from flashrt.errors import BadRequest, CannotServe

OPEN = "\U000f8af0"
"""Stands before each control token that the template itself writes; no segment contains it."""

CLOSE = "\U000f8af1"
"""Stands behind it."""

RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""What a template raises over values that it did not expect."""

DICT_ATTRIBUTES = frozenset(dir(dict))

NOT_ASCII_NOR_PRIVATE = re.compile("[^\x00-\x7f\U000f0000-\U0010ffff]")


class Template:
    """A compiled chat template that tells its own control tokens from everybody else's text.

    Each control token in the template's source is compiled as OPEN + token + CLOSE. What comes in
    as a value is not marked, so text that spells a control token, or completes one together with
    its neighbours, stays text. The caller keeps the two marks out of the values.
    """

    def __init__(
        self,
        source: str,
        control: Collection[str] = (),
        named_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """`named_tokens`: `bos_token` and others that the template may ask for.

        Raises CannotServe for a template that is not valid Jinja.
        """
        if OPEN in source or CLOSE in source:
            raise CannotServe(f"The chat template uses {OPEN!r} or {CLOSE!r}; FlashRT needs both.")
        environment = _environment(now)
        try:
            tree = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise CannotServe(f"chat template, line {error.lineno}: {error.message}") from error
        mark = _marker(control)
        for leaf in tree.find_all((nodes.TemplateData, nodes.Const)):
            _mark_leaf(leaf, mark)
        self.source = source
        remember_rounds(tree)
        code = environment.compile(tree)
        shared = environment.make_globals(
            {name: mark(token) for name, token in (named_tokens or {}).items()}
        )
        self._template = jinja2.Template.from_code(environment, code, shared)

    @classmethod
    def load(
        cls,
        path: Path,
        control: Collection[str] = (),
        named_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> "Template":
        """From a checkpoint directory. Raises CannotServe where there is none."""
        return cls(find_source(path), control, named_tokens, now)

    def render(self, values: Mapping[str, Any], rounds: Rounds = NO_ROUNDS) -> str:
        """The text, its control tokens marked. Raises BadRequest with the template's own words.

        `rounds`: those of this rendering; of earlier ones with the same frame nothing is written
        again.
        """
        try:
            return self._template.render({**values, ROUNDS: rounds})
        except RENDER_ERRORS as error:
            words = str(error) or type(error).__name__
            raise BadRequest(
                f"The model's chat template does not take these messages: {words}",
                param="messages",
            ) from error


def find_source(path: Path) -> str:
    """The text of a checkpoint's template: its own file, else what tokenizer_config.json has."""
    try:
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeError) as error:
        raise CannotServe(f"{path / 'chat_template.jinja'} cannot be read: {error}") from error
    given = (read_json(path / "tokenizer_config.json") or {}).get("chat_template")
    if isinstance(given, list):
        given = {entry.get("name"): entry.get("template") for entry in given}
    if isinstance(given, dict):
        given = given.get("default")
    if not isinstance(given, str):
        raise CannotServe(
            f"{path} has no chat template: neither chat_template.jinja nor a `chat_template` named "
            '"default" in tokenizer_config.json.'
        )
    return given


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %} ... {% endgeneration %}`: text to train on; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012 (the base class says so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class JsonEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with a short way to the fields of JSON objects: they are most of what is read.

    Attributes come first, as ever: an object's own methods are not hidden by its fields.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A field of a dict, or whatever the sandbox says."""
        if type(obj) is dict and attribute in obj and attribute not in DICT_ATTRIBUTES:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment(now: Callable[[], datetime.datetime]) -> ImmutableSandboxedEnvironment:
    environment = JsonEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.filters.update(FILTERS)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON that keeps the order of keys and, unlike Jinja's own filter, every character."""
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:
        # Our marks must come through, so the planes that are all private use are left as they are.
        text = NOT_ASCII_NOR_PRIVATE.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text


def _marker(control: Collection[str]) -> Callable[[str], str]:
    if not control:
        return lambda text: text
    longest_first = sorted(control, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub(lambda found: OPEN + found[0] + CLOSE, text)


def _mark_leaf(leaf: nodes.Node, mark: Callable[[str], str]) -> None:
    if isinstance(leaf, nodes.TemplateData):
        leaf.data = mark(leaf.data)
    elif isinstance(leaf, nodes.Const) and isinstance(leaf.value, str):
        leaf.value = mark(leaf.value)
