"""A client's billing line in its system text: it changes with every session, and means nothing."""

import re

LINE = re.compile(
    r"^(?:x-anthropic-billing-header:[ \t]*cc_version=[^;\s]*;(?:[ \t]*cc\w*=[^;\s]*;)*"
    r"(?:[ \t]*(?:\n|\Z))?)+",
    re.MULTILINE,
)


def without_billing(text: str) -> str:
    """A first system text without the line, wherever a line begins with it.

    Text that follows on the same line stays, and so does text that only talks about the header.
    """
    return LINE.sub("", text) if "x-anthropic-billing-header:" in text else text
