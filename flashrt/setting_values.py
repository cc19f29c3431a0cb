"""One value of one setting: read from what was given, and checked against its limits."""

from collections.abc import Callable
from typing import Any

import attrs

from flashrt.errors import CannotServe


@attrs.frozen
class Given:
    """A value as it was given, and where."""

    value: object
    origin: str


def convert(field: "attrs.Attribute[Any]", kind: type, given: Given) -> object:
    """The value of a setting of this kind, from any source. Raises CannotServe."""
    read: dict[type, Callable[[Given], object]] = {
        str: _text,
        int: _integer,
        float: _number,
        bool: _truth,
        tuple: _texts,
    }
    auto = field.metadata.get("auto")
    if auto is not None and str(given.value) in ("auto", str(auto)):
        return auto
    value = read[kind](given)
    _check(field, given.origin, value)
    return value


def _check(field: "attrs.Attribute[Any]", origin: str, value: Any) -> None:
    choices, least, most, step = map(field.metadata.get, ("choices", "least", "most", "step"))
    if choices is not None and value not in choices:
        raise CannotServe(f"{origin} is {value!r}; it must be one of {', '.join(choices)}")
    if least is not None and not value >= least:
        auto = ", or auto" if "auto" in field.metadata else ""
        raise CannotServe(f"{origin} is {value}; it must be at least {least}{auto}")
    if most is not None and value > most:
        raise CannotServe(f"{origin} is {value}; it must be at most {most}")
    if step is not None and value % step:
        raise CannotServe(f"{origin} is {value}; it must be a multiple of {step}")


def _wrong(given: Given, wanted: str) -> CannotServe:
    return CannotServe(f"{given.origin} is {given.value!r}; it must be {wanted}")


def _text(given: Given) -> str:
    if isinstance(given.value, str) and given.value.strip():
        return given.value
    raise _wrong(given, "a text that is not empty")


def _integer(given: Given) -> int:
    try:
        if isinstance(given.value, int | str) and not isinstance(given.value, bool):
            return int(given.value)
    except ValueError:
        pass
    raise _wrong(given, "a whole number")


def _number(given: Given) -> float:
    try:
        if isinstance(given.value, int | float | str) and not isinstance(given.value, bool):
            return float(given.value)
    except ValueError:
        pass
    raise _wrong(given, "a number")


def _truth(given: Given) -> bool:
    if isinstance(given.value, bool):
        return given.value
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if isinstance(given.value, str) and given.value.lower() in words:
        return words[given.value.lower()]
    raise _wrong(given, "true or false")


def _texts(given: Given) -> tuple[str, ...]:
    """A list; in the environment its members stand between commas."""
    value = given.value
    if isinstance(value, str):
        value = [member.strip() for member in value.split(",")]
    if isinstance(value, list | tuple) and all(isinstance(v, str) and v for v in value):
        return tuple(value)
    raise _wrong(given, "a list of texts")
