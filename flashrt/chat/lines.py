"""Where in its lines a text stands: at the start of one, or inside a code block."""

FENCES = ("```", "~~~")


class Lines:
    """Follows visible text that comes in pieces; how it is cut does not matter."""

    def __init__(self) -> None:
        self._head = ""  # the first letters of this line, without indentation
        self._fenced = False

    def feed(self, text: str) -> None:
        """Take further text."""
        *whole, last = text.split("\n")
        for line in whole:
            self._grow(line)
            self._fenced ^= self._head.startswith(FENCES)
            self._head = ""
        self._grow(last)

    def _grow(self, text: str) -> None:
        if len(self._head) < len(FENCES[0]):
            self._head = (self._head + text).lstrip()[: len(FENCES[0])]

    def restart(self) -> None:
        """Something that is no text stands in between; what comes now begins a line."""
        self._head = ""

    @property
    def may_open(self) -> bool:
        """Whether a tag here is one: nothing but blanks in front of it, and no code around it."""
        return not self._head and not self._fenced
