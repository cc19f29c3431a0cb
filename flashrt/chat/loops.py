"""Loops of a template whose rounds are remembered: a message that comes again is not written again.

What a round writes is a function of what it reads. Here a loop is found to read nothing but its own
item, where that stands, and names that can be told apart cheaply; then the text of a round is kept
under all of these. The values are JSON that nobody changes, and the sandbox lets no template change
one. What a template can change is a namespace: its fields are read before and behind each round.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.utils import Namespace

from flashrt.chat.lru import ByteLru

ROUND_BYTES = 700
"""Of Python's objects: a round's key and its place in the cache."""

ROUNDS = "flashrt_rounds"
"""The name by which a template finds the rounds of its rendering; no client can set it."""

TEXT = "flashrt_round_text"

PLACE = frozenset(
    {
        *("index", "index0", "first", "last", "previtem", "nextitem"),
        *("length", "revindex", "revindex0", "depth", "depth0"),
    }
)
"""What may be read of `loop`: where the item stands, and its neighbours."""

OUTSIDE = frozenset({"messages", "strftime_now", "lipsum", "cycler", "joiner"})
"""Names that a round may not read: all the items, and what is another thing each time."""

PLAIN_NODES = (
    *(nodes.Output, nodes.TemplateData, nodes.Name, nodes.NSRef, nodes.Const, nodes.Getattr),
    *(nodes.Getitem, nodes.Slice, nodes.Call, nodes.Filter, nodes.Test, nodes.If, nodes.CondExpr),
    *(nodes.For, nodes.Assign, nodes.AssignBlock, nodes.Compare, nodes.Operand, nodes.BinExpr),
    *(nodes.UnaryExpr, nodes.Concat, nodes.List, nodes.Dict, nodes.Pair, nodes.Tuple),
    *(nodes.Keyword, nodes.Macro),
)
"""What a round may be made of. A round that can be left in its middle is not among them."""

PURE_FILTERS = frozenset(
    {
        *("trim", "tojson", "length", "count", "string", "upper", "lower", "capitalize", "title"),
        *("join", "items", "default", "d", "replace", "first", "last", "list", "int", "float"),
        *("abs", "round", "sort", "unique", "reverse", "min", "max", "sum", "dictsort", "indent"),
    }
)
PURE_FUNCTIONS = frozenset({"raise_exception", "namespace", "range", "dict"})

SCALARS = frozenset({str, int, float, bool, type(None)})
BY_IDENTITY = frozenset({dict, tuple})


@attrs.frozen
class _Loop:
    """What its rounds read: of `loop`, and of the names that the template itself has set."""

    place: tuple[str, ...]
    names: tuple[str, ...]


KnownRounds = ByteLru[tuple[Any, ...], tuple[str, Any]]
"""The rounds that one template has written: by what they read, the text, and what was read."""


class Rounds:
    """The rounds of one rendering.

    `known`: those of earlier ones. `frame`: all that they may read of the values beside their own
    items, as objects that stay the same as long as they are equal; without one nothing is
    remembered.
    """

    def __init__(self, known: KnownRounds, frame: tuple[Any, ...] | None = None) -> None:
        self._known = known
        self._frame = frame
        self._told = tuple(map(_told, frame or ()))
        self._key: tuple[Any, ...] | None = None

    def text(self, loop: int, reads: tuple[Any, ...], names: tuple[Any, ...]) -> str | None:
        """What a round writes that reads this; None: it is to be written, and `keep` to be told."""
        told = (*self._told, loop, *map(_told, reads), *map(_told, names))
        self._key = None if self._frame is None or UNTOLD in told else told
        found = None if self._key is None else self._known.get(self._key)
        return None if found is None else found[0]

    def keep(self, text: str, reads: tuple[Any, ...], names: tuple[Any, ...]) -> None:
        """The round that was asked for last has written `text`; it may have changed a name."""
        if self._key is None:
            return
        unchanged = self._key[: len(self._key) - len(names)]
        if self._key != (*unchanged, *map(_told, names)):
            return
        # A value that is told by its identity must live as long as its key.
        alive = (text, (self._frame, reads, tuple(map(_as_it_is, names))))
        self._known.keep(self._key, alive, ROUND_BYTES + 2 * sys.getsizeof(text))


@jinja2.pass_context
def known_round(
    context: Context, item: Any, number: int, loop: Any, fields: tuple[str, ...], *names: Any
) -> str | None:
    """A filter: what this round of the loop `number` writes, if it is known."""
    rounds: Rounds = context[ROUNDS]
    return rounds.text(number, (item, *(getattr(loop, field) for field in fields)), names)


@jinja2.pass_context
def kept_round(
    context: Context, text: str, item: Any, loop: Any, fields: tuple[str, ...], *names: Any
) -> str:
    """A filter: the text that this round has written, kept."""
    rounds: Rounds = context[ROUNDS]
    rounds.keep(text, (item, *(getattr(loop, field) for field in fields)), names)
    return text


FILTERS = {"flashrt_known_round": known_round, "flashrt_kept_round": kept_round}
"""What the loops ask with. (A call would go through the sandbox each time.)"""


UNTOLD = object()
"""What a value is told as that cannot be told from others cheaply."""


def _told(value: Any) -> Any:
    """Equal for two values only where no template can tell them apart."""
    kind = type(value)
    if kind in BY_IDENTITY:
        return id(value)
    if kind in SCALARS:
        return kind, value
    if isinstance(value, jinja2.Undefined):
        return jinja2.Undefined
    if isinstance(value, Namespace):
        fields = tuple((name, _told(field)) for name, field in _fields(value).items())
        return UNTOLD if any(told is UNTOLD for _, told in fields) else fields
    return UNTOLD


def _as_it_is(value: Any) -> Any:
    """A value whose fields may be set anew, with those that it has now."""
    if not isinstance(value, Namespace):
        return value
    return {name: _as_it_is(field) for name, field in _fields(value).items()}


def _fields(namespace: Namespace) -> dict[str, Any]:
    # An attribute of the namespace itself would be looked for among its fields.
    fields: dict[str, Any] = object.__getattribute__(namespace, "_Namespace__attrs")
    return fields


NO_ROUNDS = Rounds(KnownRounds(0))
"""Of a rendering of which nothing is remembered. (It has no frame, so it keeps no key either.)"""


# -- which loops ---------------------------------------------------------------------------------


def remember_rounds(tree: nodes.Template) -> int:
    """Have the loops whose rounds may be remembered ask for them; how many there are."""
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    environment, found = tree.environment, 0
    assert environment is not None, "a tree that was parsed has one"
    for loop in list(_outer_loops(tree.body)):
        reads = _reads(tree, loop, macros)
        if reads is not None:
            _ask_first(loop, reads, found, environment)
            found += 1
    return found


def _outer_loops(body: Iterable[nodes.Node]) -> Iterator[nodes.For]:
    """Those that stand in no other loop and in no macro."""
    for node in body:
        if isinstance(node, nodes.For):
            yield node
        elif isinstance(node, nodes.If):
            yield from _outer_loops([*node.body, *node.elif_, *node.else_])


def _reads(
    tree: nodes.Template, loop: nodes.For, macros: Mapping[str, nodes.Macro]
) -> _Loop | None:
    """What a round reads; None: more than can be told."""
    target = loop.target
    if not isinstance(target, nodes.Name) or loop.test is not None or loop.recursive:
        return None
    if any(isinstance(node, nodes.NSRef) for node in _all(loop.body)):
        return None  # it is there to find something out, and writes nothing
    called = _called(loop.body, macros)
    parts = [*_all(loop.body), *(node for macro in called for node in _all([macro]))]
    if not all(_is_pure(node, macros) for node in parts):
        return None
    place = {n.attr for n in parts if isinstance(n, nodes.Getattr) and _is_loop(n.node)}
    bare = sum(_is_loop(node) for node in parts)
    seen_by_attribute = sum(isinstance(n, nodes.Getattr) and _is_loop(n.node) for n in parts)
    if bare != seen_by_attribute or not place <= PLACE:
        return None
    stored = Counter(_set_outside(tree.body))
    names = _loaded(parts) & stored.keys() - {target.name}
    in_macros = _loaded([node for macro in called for node in _all([macro])])
    if target.name in in_macros & stored.keys() or any(stored[n] > 1 for n in names & in_macros):
        return None  # a macro may see what the name stood for earlier
    return _Loop(tuple(sorted(place)), tuple(sorted(names)))


def _all(body: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    for node in body:
        yield node
        yield from node.find_all(nodes.Node)


def _called(body: Iterable[nodes.Node], macros: Mapping[str, nodes.Macro]) -> list[nodes.Macro]:
    """The macros that are named in `body`, and those that are named in them."""
    found: dict[str, nodes.Macro] = {}
    waiting = [name for name in _loaded(_all(body)) if name in macros]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = macros[name]
            waiting += [other for other in _loaded(_all([macros[name]])) if other in macros]
    return list(found.values())


def _loaded(parts: Iterable[nodes.Node]) -> set[str]:
    return {
        node.name
        for node in parts
        if isinstance(node, nodes.NSRef) or (isinstance(node, nodes.Name) and node.ctx == "load")
    }


def _set_outside(body: Iterable[nodes.Node]) -> Iterator[str]:
    """The names that are set in no loop and in no macro, each time that they are."""
    for node in body:
        if isinstance(node, nodes.If):
            yield from _set_outside([*node.body, *node.elif_, *node.else_])
        elif isinstance(node, nodes.Assign | nodes.AssignBlock):
            targets = [node.target, *node.target.find_all(nodes.Name)]
            yield from {name.name for name in targets if isinstance(name, nodes.Name)}


def _is_loop(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "loop"


def _is_pure(node: nodes.Node, macros: Mapping[str, nodes.Macro]) -> bool:
    """Whether a part of a round gives the same for the same, and can be looked at here."""
    match node:
        case nodes.Name(name=name):
            return name not in OUTSIDE
        case nodes.Filter(name=name):
            return name in PURE_FILTERS
        case nodes.Call(node=nodes.Name(name=name)):
            return name in PURE_FUNCTIONS or name in macros
        case nodes.Call(node=callee):
            return isinstance(callee, nodes.Getattr)
    return isinstance(node, PLAIN_NODES)


def _ask_first(loop: nodes.For, reads: _Loop, number: int, environment: jinja2.Environment) -> None:
    """Put the question in front of a loop's body, and the body behind a no."""

    def load(name: str) -> nodes.Expr:
        return nodes.Name(name, "load")

    def ask(first: nodes.Expr, name: str, *arguments: nodes.Expr) -> nodes.Expr:
        place = load("loop") if reads.place else nodes.Const(None)
        said = [*arguments, place, nodes.Const(reads.place), *map(load, reads.names)]
        return nodes.Filter(first, name, said, [], None, None)

    item = load(loop.target.name)  # type: ignore[attr-defined]
    known = nodes.Assign(
        nodes.Name(TEXT, "store"), ask(item, "flashrt_known_round", nodes.Const(number))
    )
    written = nodes.AssignBlock(nodes.Name(TEXT, "store"), None, loop.body)
    choice = nodes.If(
        nodes.Test(load(TEXT), "none", [], [], None, None),
        [written, nodes.Output([ask(load(TEXT), "flashrt_kept_round", item)])],
        [],
        [nodes.Output([load(TEXT)])],
    )
    loop.body = [known, choice]
    for node in loop.body:
        node.set_lineno(loop.lineno)
        node.set_environment(environment)
