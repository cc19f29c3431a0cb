"""How deep JSON may be nested: what it is given to (template, schema, comparison) is recursive."""

from collections.abc import Iterable
from typing import Any

import msgspec

NESTING_MAX = 128
"""Lists and objects inside one another. Python's recursion ends the template at about 400."""


def too_deep(value: Any) -> bool:
    """Whether a JSON value, or a decoded Struct, is nested deeper than NESTING_MAX.

    Goes down level by level, since it must not recurse itself.
    """
    level = [value]
    for _ in range(NESTING_MAX):
        level = [inner for outer in level for inner in _inside(outer) if type(inner) not in SCALARS]
        if not level:
            return False
    return True


SCALARS = frozenset({str, int, float, bool, type(None)})
"""What has nothing inside: by far the most of a body."""


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name) for name in value.__struct_fields__)
    return value if isinstance(value, list) else ()
