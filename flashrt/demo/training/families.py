"""Kinds of tools written by hand, in families/*.toml: names, descriptions, wordings, results.

`python -m flashrt.demo.training.families FILE` checks a file and shows samples of it.
"""

import argparse
import json
import random
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import attrs

from flashrt.demo.training.dialogue import Json, Task, function
from flashrt.demo.training.phrases import FAILED_SHARE, failure
from flashrt.demo.training.words import Words

FOLDER = Path(__file__).parent / "families"
FREQUENT = 0.75
"""A parameter in at least this share of the wordings is one that the tool requires."""

ANYTHING = 0.4
"""How often a value that a family lists gives way to any words: values are copied, not known."""

Draw = Callable[[Words], Any]


def _some(draw: Draw) -> Draw:
    return lambda w: [draw(w) for _ in range(w.r.randint(2, 4))]


def _amount(w: Words) -> float:
    return w.r.choice([w.r.randint(1, 5000), w.r.randint(1, 999999) / 100])


def _settings(w: Words) -> Json:
    return {w.word().lower(): w.r.choice([w.small(), w.word()]) for _ in range(w.r.randint(1, 2))}


POOLS: dict[str, Draw] = {
    "person": Words.person, "city": Words.city, "country": Words.country, "email": Words.email,
    "phone": Words.phone, "code": Words.code, "number": lambda w: int(w.number()),
    "small": Words.small, "decimal": lambda w: w.r.randint(1, 99999) / 100,
    "percent": lambda w: w.r.randint(0, 100), "amount": _amount, "date": Words.date,
    "clock": Words.clock, "weekday": Words.weekday, "month": Words.month,
    "year": lambda w: w.r.randint(1400, 2060), "word": Words.word,
    "words": lambda w: w.words(1, 3), "title": Words.title, "line": Words.sentence,
    "topic": Words.topic, "path": Words.path, "file": Words.file, "folder": Words.folder,
    "url": Words.url, "version": Words.version, "color": Words.color, "language": Words.language,
    "persons": _some(Words.person), "words_list": _some(Words.word), "codes": _some(Words.code),
    "numbers": _some(lambda w: w.r.randint(0, 999)), "emails": _some(Words.email),
    "files": _some(Words.file), "settings": _settings,
}  # fmt: skip
TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip
NUMBERS = {"amount", "decimal"}


@attrs.frozen
class Param:
    """A parameter of a family."""

    names: list[str]
    says: list[str]
    value: str | list[Any]
    """A pool's name, or what it may be."""
    spoken: list[str] = attrs.field(factory=list)
    """How each of `value` is said."""

    def draw(self, w: Words) -> tuple[Any, str]:
        """A value, and how it is said."""
        if isinstance(self.value, str):
            value = POOLS[self.value](w)
            return value, said(value, w.r)
        if not self.spoken and isinstance(self.value[0], str) and w.r.random() < ANYTHING:
            other = w.words(1, 3)
            return other, other
        i = w.r.randrange(len(self.value))
        return self.value[i], self.spoken[i] if self.spoken else said(self.value[i], w.r)

    def schema(self, r: random.Random, describe: bool) -> Json:
        """As a tool offers it."""
        sample = POOLS[self.value](Words(r)) if isinstance(self.value, str) else self.value[0]
        whole = isinstance(self.value, list) or self.value not in NUMBERS
        schema: Json = {"type": TYPES[type(sample)] if whole else "number"}
        if schema["type"] == "array":
            schema["items"] = {"type": TYPES[type(sample[0])]}
        if self.spoken and schema["type"] == "string" and r.random() < 0.5:
            schema["enum"] = self.value
        if describe:
            schema["description"] = r.choice(self.says)
        return schema


@attrs.frozen
class Family:
    """One kind of tool."""

    names: list[str]
    says: list[str]
    asks: list[str]
    results: list[str]
    answers: list[str]
    params: dict[str, Param]
    outs: dict[str, str | list[Any]]

    def held(self, ask: str) -> set[str]:
        """Of the parameters, those that a wording holds."""
        return set(Template(ask).get_identifiers()) & set(self.params)

    @property
    def kind(self) -> str:
        """Its first name stands for it."""
        return self.names[0]

    def frequent(self) -> set[str]:
        """What the tool requires."""
        return {p for p in self.params if self._share(p) >= FREQUENT}

    def _share(self, param: str) -> float:
        return sum(param in self.held(ask) for ask in self.asks) / len(self.asks)


def said(value: Any, r: random.Random) -> str:
    """As a person writes it."""
    if isinstance(value, list):
        return f"{', '.join(map(str, value[:-1]))}{r.choice([' and ', ', '])}{value[-1]}"
    if isinstance(value, dict):
        return " and ".join(f"{name} {part}" for name, part in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def load(file: Path) -> list[Family]:
    """The families of one file."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))["family"]
    return [
        Family(**{**one, "params": {n: Param(**p) for n, p in one["params"].items()},
                  "outs": one.get("outs", {})})
        for one in found
    ]  # fmt: skip


@cache
def families() -> list[Family]:
    """All of them."""
    return [family for file in sorted(FOLDER.glob("*.toml")) for family in load(file)]


class FamilyTasks:
    """Draws tools and tasks of the families."""

    def __init__(self, w: Words) -> None:
        self.w, self.r = w, w.r

    def tool(self, family: Family, given: set[str]) -> tuple[Json, dict[str, str]]:
        """One shape of the tool, and the name of each parameter in it."""
        r = self.r
        plain = r.random() < 0.75  # else some names tell nothing, and descriptions must be read
        kept = [p for p in family.params if p in given or r.random() < 0.8]
        called: dict[str, str] = {}
        for p in kept:
            name = self._named(family.params[p].names, 0.3)
            strange = not plain and r.random() < 0.4
            if strange or name in called.values():
                name = self.w.strange()
            called[p] = name
        sure = family.frequent() & given if given else family.frequent()
        required = [called[p] for p in kept if p in sure]
        properties = {
            called[p]: family.params[p].schema(r, not plain or r.random() < 0.85) for p in kept
        }
        name = self._named(family.names, 0.8) if plain or r.random() < 0.6 else self.w.strange()
        if r.random() < 0.08:
            name = f"mcp__{self.w.made()}__{name}"
        return function(name, r.choice(family.says), properties, required), called

    def _named(self, names: list[str], share: float) -> str:
        name = self.r.choice(names)
        return self.w.renamed(name) if self.r.random() < share else name

    def task(self, family: Family) -> Task:
        """With fresh values."""
        r = self.r
        ask = r.choice(family.asks)
        given = family.held(ask)
        drawn = {name: param.draw(self.w) for name, param in family.params.items()}
        tool, called = self.tool(family, given)
        words = {name: text for name, (_, text) in drawn.items()}
        outs = {
            name: said(POOLS[pool](self.w) if isinstance(pool, str) else r.choice(pool), r)
            for name, pool in family.outs.items()
        }
        arguments = {called[p]: drawn[p][0] for p in called if p in given}
        fitting = [a for a in family.answers if self._known(a, family, given)] or ["Done."]
        result, answer = (
            Template(r.choice(texts)).substitute(words | outs)
            for texts in (family.results, fitting)
        )
        if r.random() < FAILED_SHARE:
            result, answer = failure(r)
        asked = Template(ask).substitute(words)
        return Task(asked, tool, arguments, result, answer, family.kind, ask[0].islower())

    @staticmethod
    def _known(answer: str, family: Family, given: set[str]) -> bool:
        """No parameter is spoken of that nobody gave."""
        return set(Template(answer).get_identifiers()) <= given | set(family.outs)


LEAST = {"names": 5, "says": 5, "asks": 12, "results": 2, "answers": 1}


def faults(family: Family) -> list[str]:
    """What is wrong with it."""
    wrong = []
    known = set(family.params) | set(family.outs)
    for kind in ("asks", "results", "answers"):
        for text in getattr(family, kind):
            if not Template(text).is_valid():
                wrong.append(f"{kind}: {text!r}: a $ that begins no name")
            elif unknown := set(Template(text).get_identifiers()) - known:
                wrong.append(f"{kind}: {text!r}: {unknown} is neither a parameter nor an out")
    wrong += [f"asks: {ask!r} holds no parameter" for ask in family.asks if not family.held(ask)]
    used = {n for t in family.results for n in Template(t).get_identifiers()} & set(family.outs)
    for text in family.results + family.answers:
        if missing := used - set(Template(text).get_identifiers()):
            wrong.append(f"{text!r} lacks the out {missing}")
    for name, param in family.params.items():
        if isinstance(param.value, str) and param.value not in POOLS:
            wrong.append(f"{name}: no pool {param.value!r}")
        if param.spoken and len(param.spoken) != len(param.value):
            wrong.append(f"{name}: {len(param.value)} values, {len(param.spoken)} spoken")
        if isinstance(param.value, list) and isinstance(param.value[0], bool) and not param.spoken:
            wrong.append(f"{name}: a boolean needs `spoken`")
    for pool in family.outs.values():
        if isinstance(pool, str) and pool not in POOLS:
            wrong.append(f"outs: no pool {pool!r}")
    for kind, least in LEAST.items():
        if (count := len(getattr(family, kind))) < least:
            wrong.append(f"only {count} {kind}")
    return wrong


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    found, wrong = load(options.file), 0
    for family in found:
        for text in faults(family):
            wrong += 1
            print(f"{family.names[0]}: {text}")
    if wrong:
        raise SystemExit(f"{len(found)} families, {wrong} faults")
    tasks = FamilyTasks(Words(random.Random()))
    for family in random.sample(found, min(6, len(found))):
        task = tasks.task(family)
        shown = json.dumps(task.tool["function"], ensure_ascii=False)
        print(task.ask, shown, task.arguments, task.result, task.answer, sep="\n  ", end="\n\n")
    asks = sum(len(family.asks) for family in found)
    print(f"{len(found)} families with {asks} wordings, {wrong} faults")


if __name__ == "__main__":
    main()
