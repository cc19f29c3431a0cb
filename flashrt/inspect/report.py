"""What is known of a checkpoint, as lines for people."""

from collections.abc import Iterable, Iterator, Sequence

from flashrt.inspect.contents import Contents
from flashrt.inspect.needs import Demand

UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def lines(contents: Contents, demand: Demand) -> Iterator[str]:
    """Facts, what is stored how, and what it takes."""
    c = contents
    mixers = f"{c.linear_attention_layers} linear attention, {c.full_attention_layers} full"
    yield f"model      {c.model}: {c.architecture}, {c.layers} layers ({mixers})"
    yield f"width      {c.hidden_size}, {c.vocabulary} output rows{' (tied)' * c.tied_embeddings}"
    yield f"context    {c.context_tokens} tokens"
    yield f"tokenizer  {c.tokenizer}"
    yield f"template   {c.template}"
    yield f"MTP layer  {f'yes, {c.mtp}' if c.mtp else 'no: nothing but prompt lookup drafts'}"
    for note in c.notes:
        yield f"note       {note}"
    yield ""
    yield from _table(
        ("part", "stored as", "tensors", "size"),
        [(s.part, s.stored_as, str(s.tensors), _size(s.size_bytes)) for s in c.shares]
        + [("all", "", str(sum(s.tensors for s in c.shares)), _size(c.size_bytes))],
        left=2,
    )
    yield ""
    yield (
        f"Memory on {demand.device} with {_size(demand.available_bytes)} available, as "
        f"{_dtypes(demand)}, prompts read by {demand.prompt_block_tokens} tokens:"
    )
    yield from _table(
        ("--max-seq", "weights", "state", "a step", "graphs, libraries", "all", ""),
        [
            (
                str(w.max_seq),
                *map(_size, (w.weights_bytes, w.state_bytes, w.step_bytes)),
                _size(w.graphs_and_libraries_bytes),
                _size(w.needed_bytes),
                "fits" if w.fits else "too much",
            )
            for w in demand.windows
        ],
        left=0,
    )
    yield _longest(contents, demand)


def _dtypes(demand: Demand) -> str:
    if demand.kv_dtype == demand.dtype:
        return demand.dtype
    return f"{demand.dtype} with keys and values in {demand.kv_dtype}"


def _longest(contents: Contents, demand: Demand) -> str:
    if demand.longest is None:
        return "No window fits beside one saved state: another release of the model takes less."
    own = " (the model's own)" if demand.longest == contents.context_tokens else ""
    return f"The longest window beside one saved state: {demand.longest} tokens{own}."


def _size(count: int) -> str:
    """Bytes in the unit that leaves a few digits."""
    for unit, factor in UNITS.items():
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> Iterator[str]:
    """Columns as wide as what is in them; the first `left` are words, the others numbers."""
    whole = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    for row in whole:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
