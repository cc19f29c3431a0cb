"""The blank edges of a block: newlines that frame it and are not part of it."""


class Edges:
    """Text of one block that comes in pieces. `held` may be its end, or stand in the middle.

    `at_start`: nothing of it has come yet but what is left out.
    """

    def __init__(self, *, at_start: bool = False) -> None:
        self.held = ""
        self.at_start = at_start

    def begin(self) -> None:
        """A block begins here."""
        self.at_start, self.held = True, ""

    def give_back(self) -> str:
        """What is held turns out to be part of something else."""
        held, self.held = self.held, ""
        return held

    def without_start(self, text: str) -> str:
        """The text; newlines at the block's start are left out."""
        if self.at_start:
            text = text.lstrip("\n")
            self.at_start = not text
        return text

    def trimmed(self, text: str, blanks: str) -> str:
        """What is certain to be inside the block: `blanks` at both its ends are left out."""
        if self.at_start:
            text = text.lstrip(blanks)
        if not text:
            return ""
        self.at_start = False
        text = self.held + text
        shown = text.rstrip(blanks)
        self.held = text[len(shown) :]
        return shown

    def framed(self, text: str) -> str:
        """The same for a block with one newline at its start and one at its end."""
        if self.at_start and text:
            text = text.removeprefix("\n")
            self.at_start = False
        text = self.held + text
        kept = text.removesuffix("\n")
        self.held = text[len(kept) :]
        return kept
