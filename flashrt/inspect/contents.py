"""What a checkpoint holds, from its headers and small files: no weight is read."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.engine.assets import model_name, read_stop_ids
from flashrt.engine.checkpoint import OpenedCheckpoint
from flashrt.engine.config import FULL, LINEAR, ModelConfig
from flashrt.engine.forms import name_of
from flashrt.engine.tensor_plan import Allocated
from flashrt.errors import CannotServe

PARTS: Mapping[str, str] = {
    "MTP layer": r"mtp\.(?:fc\.weight|.*_proj(?:\.weight)?)$",
    "MTP layer's norms and router": r"mtp\.",
    "embedding": r"model\.embed_tokens\.weight$",
    "output head": r"lm_head\.weight$",
    "linear attention, in": r".*\.linear_attn\.in_proj_\w+\.weight$",
    "linear attention, out": r".*\.linear_attn\.out_proj\.weight$",
    "attention, q k v": r".*\.self_attn\.[qkv]_proj\.weight$",
    "attention, out": r".*\.self_attn\.o_proj\.weight$",
    "experts": r".*\.mlp\.experts\.",
    "shared expert": r".*\.mlp\.shared_expert\.",
    "feed-forward, gate up": r".*\.mlp\.(?:gate|up)_proj\.weight$",
    "feed-forward, down": r".*\.mlp\.down_proj\.weight$",
    "norms, convolutions and the rest": r"",
}
"""Kinds of tensors, by what their keys match first."""


@attrs.frozen
class Share:
    """All tensors of one kind that are stored in one form."""

    part: str
    stored_as: str
    tensors: int
    """Matrices, that is; a quantized one counts once."""
    size_bytes: int
    """As stored, scales included."""


@attrs.frozen
class Contents:
    """One checkpoint."""

    model: str
    architecture: str
    layers: int
    linear_attention_layers: int
    full_attention_layers: int
    hidden_size: int
    vocabulary: int
    tied_embeddings: bool
    context_tokens: int
    """The model's own window."""
    tokenizer: str
    template: str
    mtp: str
    """How its matrices are stored; empty where there is none."""
    shares: tuple[Share, ...]
    notes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Of everything that is read."""
        return sum(share.size_bytes for share in self.shares)

    @classmethod
    def of(cls, folder: Path, checkpoint: OpenedCheckpoint, plan: Allocated) -> "Contents":
        """Of a checkpoint that fits its plan."""
        config, shares = checkpoint.config, tuple(_shares(checkpoint, plan))
        kinds = config.layer_types
        return cls(
            model=model_name(folder),
            architecture=_architecture(config),
            layers=len(kinds),
            linear_attention_layers=kinds.count(LINEAR),
            full_attention_layers=kinds.count(FULL),
            hidden_size=config.hidden_size,
            vocabulary=config.vocab_size,
            tied_embeddings=config.tied_embeddings,
            context_tokens=config.max_positions,
            tokenizer=_or_why(lambda: _tokenizer(folder)),
            template=_or_why(lambda: _template(folder)),
            mtp=", ".join(share.stored_as for share in shares if share.part == "MTP layer"),
            shares=shares,
            notes=checkpoint.notes,
        )


def _architecture(config: ModelConfig) -> str:
    if config.moe is None:
        return "dense"
    return f"mixture of {config.moe.experts} experts, {config.moe.experts_per_row} for a token"


def _shares(checkpoint: OpenedCheckpoint, plan: Allocated) -> Iterator[Share]:
    """In the order of PARTS, the MTP layer last, and the largest form of each first."""
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for tensor in checkpoint.stored.plain:
        sizes[part_of(tensor.key), tensor.dtype.lower()].append(tensor.size)
    for key, matrix in checkpoint.stored.matrices.items():
        sizes[part_of(key), name_of(plan.forms[key])].append(matrix.size)
    for part in sorted(PARTS, key=lambda part: part.startswith("MTP")):
        of_part = [(form, found) for (name, form), found in sizes.items() if name == part]
        for form, found in sorted(of_part, key=lambda one: -sum(one[1])):
            yield Share(part, form, len(found), sum(found))


def part_of(key: str) -> str:
    """What kind of tensor it is."""
    return next(part for part, pattern in PARTS.items() if re.match(pattern, key))


def _or_why(read: Callable[[], str]) -> str:
    """A file that serving would refuse, in the words of the refusal."""
    try:
        return read()
    except CannotServe as refusal:
        return f"cannot be used: {refusal}"


def _tokenizer(folder: Path) -> str:
    tokenizer = Tokenizer.load(folder)
    stops = ", ".join(str(id_) for id_ in sorted(read_stop_ids(folder)))
    return f"{tokenizer.vocab_size} tokens; {stops} end an answer"


def _template(folder: Path) -> str:
    tokenizer = Tokenizer.load(folder)
    template = Template.load(folder, tokenizer.control, tokenizer.named_tokens)
    file = "chat_template.jinja"
    where = file if (folder / file).is_file() else "tokenizer_config.json"
    return f"{len(template.source)} characters in {where}"
