"""How a state was built: the calls from position 0 that a path run has to repeat.

A row's bits depend on the call that processed it: decoded rows on nothing around them, the rows of
a prefill block on where the block begins and ends. So a lineage is a list of spans, each up to a
stop; the ids themselves are the journal's.
"""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Span:
    """The positions from the span before up to `stop`, processed by one block or by decode.

    `beyond`: ids of the same block behind `stop` that were processed with it and then dropped.
    """

    stop: int
    decoded: bool = False
    beyond: tuple[int, ...] = ()


Lineage = tuple[Span, ...]


def with_block(lineage: Lineage, stop: int) -> Lineage:
    """One prefill block more, up to `stop`."""
    return (*lineage, Span(stop))


def with_decoded(lineage: Lineage, stop: int) -> Lineage:
    """Decoded up to `stop`; neighbouring decoded rows are one span."""
    if end(lineage) == stop:
        return lineage
    if lineage and lineage[-1].decoded:
        lineage = lineage[:-1]
    return (*lineage, Span(stop, decoded=True))


def cut(lineage: Lineage, length: int, ids: Sequence[int]) -> Lineage:
    """As it stands after going back to `length`; `ids`: the journal before that."""
    kept: list[Span] = []
    start = 0
    for span in lineage:
        if start >= length:
            break
        stop = min(span.stop, length)
        beyond = () if span.decoded else (*ids[stop : span.stop], *span.beyond)
        kept.append(Span(stop, span.decoded, beyond))
        start = span.stop
    return tuple(kept)


def end(lineage: Lineage) -> int:
    """The position that it reaches."""
    return lineage[-1].stop if lineage else 0
