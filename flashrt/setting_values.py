"""One value of one setting: read from what was given, and checked against its limits."""

import re
from collections.abc import Callable
from typing import Any

import attrs

from flashrt.errors import CannotServe

SHOWN_MAX = 100
"""Characters of a wrong value that a message shows."""

TEXT_MAX = 4096
"""No path is longer."""

UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and bytes that are no UTF-8: no file name, log line or JSON can show them."""

IN_A_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")


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
    if auto is not None and (
        given.value in ("auto", str(auto)) or (type(given.value) is int and given.value == auto)
    ):
        return auto
    value = read[kind](given)
    _check(field, given.origin, value)
    return value


def _check(field: "attrs.Attribute[Any]", origin: str, value: Any) -> None:
    choices, least, most, step = map(field.metadata.get, ("choices", "least", "most", "step"))
    wrong = f"{origin} is {_shown(value)}; it must be"
    if choices is not None and value not in choices:
        raise CannotServe(f"{wrong} one of {', '.join(choices)}")
    if least is not None and not value >= least:
        auto = ", or auto" if "auto" in field.metadata else ""
        raise CannotServe(f"{wrong} at least {least}{auto}")
    if most is not None and value > most:
        raise CannotServe(f"{wrong} at most {most}")
    if step is not None and value % step:
        raise CannotServe(f"{wrong} a multiple of {step}")
    if field.metadata.get("in_a_header") and not IN_A_HEADER.fullmatch(value):
        raise CannotServe(f"{wrong} printable ASCII without a blank at either end")


def _shown(value: object) -> str:
    """A wrong value in a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out a number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _wrong(given: Given, wanted: str) -> CannotServe:
    return CannotServe(f"{given.origin} is {_shown(given.value)}; it must be {wanted}")


def _text(given: Given) -> str:
    if not isinstance(given.value, str) or not given.value.strip():
        raise _wrong(given, "a text that is not empty")
    if UNWRITABLE.search(given.value):
        raise _wrong(given, "UTF-8 text without control characters")
    if len(given.value) > TEXT_MAX:
        raise _wrong(given, f"a text of at most {TEXT_MAX} characters")
    return given.value


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
    except (ValueError, OverflowError):
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
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and v for v in value):
        raise _wrong(given, "a list of texts")
    if any(UNWRITABLE.search(member) for member in value):
        raise _wrong(given, "a list of UTF-8 texts without control characters")
    return tuple(value)
