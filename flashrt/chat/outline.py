"""What a prompt is made of: a chain of parts, each with a key that names what a client wrote."""

import hashlib
from enum import Enum

import attrs


class PartKind(Enum):
    """What a part of a prompt is."""

    SYSTEM = "system"
    BETWEEN = "between"
    ANSWER = "answer"
    GENERATION = "generation"


@attrs.frozen
class Part:
    """One link of the chain. Parts follow each other from position 0 without a gap.

    `stop` and `stop_segment` stand behind its last token and its last segment. Equal keys: the
    template cannot tell the two apart, but for an answer's `reasoning`, which is in no key.
    `closed` False: the answer goes on inside this part. `closing`: the ids that end the turn.
    `first_message` counts in the client's own messages; -1 for the generation prompt.
    `asks`: a message of the user is in it.
    `content` and `calls` (as JSON with sorted keys) are what an answer's key was made of.
    """

    kind: PartKind
    stop: int
    stop_segment: int
    key: str
    reasoning: str = ""
    closed: bool = True
    closing: tuple[int, ...] = ()
    first_message: int = -1
    asks: bool = False
    content: str = ""
    calls: str = ""


@attrs.frozen
class Head:
    """What stands behind the whole conversation: arguments of the template, tools, system text."""

    args: str = ""
    tools: str = ""
    system: str = ""


@attrs.frozen
class Outline:
    """The parts of one prompt; `messages` counts those that the client sent."""

    parts: tuple[Part, ...]
    messages: int = 0
    head: Head = Head()

    @property
    def asked(self) -> int:
        """The position behind the newest message of the user; 0: there is none."""
        return max((part.stop for part in self.parts if part.asks), default=0)


def digest(*texts: str) -> str:
    """Names texts in their order; two different lists never make the same input."""
    hashed = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode(errors="surrogatepass")
        hashed.update(b"%d:" % len(data))
        hashed.update(data)
    return hashed.hexdigest()
