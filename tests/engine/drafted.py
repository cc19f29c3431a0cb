"""Small models with an MTP layer, its reference, and drafters that are always right or wrong."""

import functools
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import Capsule, DecodeChunk, SamplingParams
from flashrt.engine.speculate import Draft, Drafting
from flashrt.engine.weights import MtpWeights
from tests.engine.contract import fill
from tests.engine.models import (
    MIXTURE,
    PLAIN,
    Shape,
    _layer,
    config_of,
    ids,
    reference,
    weights_of,
)


class MtpReference(nn.Module):
    """The layer by the reference's own decoder layer. Slot p is row p; no cache."""

    def __init__(self, model: PreTrainedModel, *, seed: int = 0) -> None:
        super().__init__()
        config, h = model.config, model.config.hidden_size
        self.model = [model]  # not a part of this module
        norm = type(model.model.norm)
        self.fc = nn.Linear(2 * h, h, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            norm(h, eps=config.rms_norm_eps) for _ in range(3)
        )
        full = config.layer_types.index("full_attention")
        self.layer = type(model.model.layers[0])(config, full)
        draw = torch.Generator().manual_seed(seed + 100)
        with torch.no_grad():
            for name, tensor in self.named_parameters():
                tensor.normal_(0, 0.2 if "norm" in name else 0.1, generator=draw)
        self.eval()

    def forward(self, ids: Tensor, hidden: Tensor) -> Tensor:
        """ids [T] of positions 1 .. T, hidden rows [T, h] of 0 .. T-1 -> m [T, h]."""
        inner = self.model[0].model
        e = self.pre_fc_norm_embedding(inner.embed_tokens(ids))
        x = self.fc(torch.cat((e, self.pre_fc_norm_hidden(hidden)), dim=-1))[None]
        places = torch.arange(len(ids))[None]
        mask = torch.full((len(ids), len(ids)), -torch.inf).triu(1)[None, None]
        tables = inner.rotary_emb(x, places[None].expand(3, 1, -1))
        x = self.layer(x, position_embeddings=tables, attention_mask=mask)
        return self.norm(x[0])


def mtp_weights(
    model: PreTrainedModel, dtype: torch.dtype, device: str = "cpu", *, seed: int = 0
) -> MtpWeights:
    """Our fused tensors of the reference layer, made by hand."""
    mtp = MtpReference(model, seed=seed)
    tensors = {name: tensor.detach().to(device) for name, tensor in mtp.state_dict().items()}
    layer = _layer(tensors, "layer.", False, dtype, config_of(model).moe)
    names = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    return MtpWeights(*(tensors[f"{name}.weight"].to(dtype) for name in names), layer)


class DraftedEngine(HybridEngine):
    """An engine whose drafts a test may script."""

    script: Callable[[SamplingParams], Drafting] | None = None

    def _drafting(self, params: SamplingParams) -> Drafting:
        return self.script(params) if self.script else super()._drafting(params)


def make_drafted(
    shape: Shape = PLAIN,
    *,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    device: str = "cpu",
    max_seq: int = 640,
    seed: int = 0,
    mtp: bool = True,
    sampleable: int | None = None,
    draft_tokens_max: int = 8,
) -> DraftedEngine:
    """A random model with a random MTP layer, or with none."""
    model = reference(shape, seed=seed)
    weights = weights_of(model, dtype, device)
    if mtp:
        weights = attrs.evolve(weights, mtp=mtp_weights(model, dtype, device, seed=seed))
    return DraftedEngine(
        config_of(model),
        weights,
        max_seq=max_seq,
        model_name="random",
        kv_dtype=kv_dtype,
        sampleable=sampleable,
        draft_tokens_max=draft_tokens_max,
    )


@attrs.define
class Scripted:
    """Drafts from a text that is known before. Depth and rightness go round through `plan`."""

    text: Sequence[int]
    plan: Sequence[tuple[int, int]]
    """Per step how many ids, and how many of them are right."""
    step: int = 0
    accepted: list[int] = attrs.field(factory=list)

    def propose(self, journal: list[int], room: int) -> Draft:
        """The text's next ids; from the first that shall be wrong on, others."""
        count, right = self.plan[self.step % len(self.plan)]
        self.step += 1
        at = len(journal)
        ids = tuple(self.text[at : at + min(count, room)])
        wrong = tuple((id_ + 1) % (1 + max(self.text)) for id_ in ids[right:])
        return Draft((*ids[:right], *wrong), "script")

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Remember how many of the draft stayed."""
        self.accepted.append(len(tokens) - 1)


def oracle(text: Sequence[int], count: int) -> Callable[[SamplingParams], Scripted]:
    """Always right."""
    return lambda params: Scripted(text, [(count, count)])


def adversary(text: Sequence[int], count: int) -> Callable[[SamplingParams], Scripted]:
    """Always wrong."""
    return lambda params: Scripted(text, [(count, 0)])


def chunks_of(
    engine: HybridEngine, count: int, params: SamplingParams, constraint: object = None
) -> list[DecodeChunk]:
    """Chunks until there are `count` ids; what is too many is rolled back and cut off."""
    chunks: list[DecodeChunk] = []
    total = 0
    for chunk in engine.decode(params, constraint):
        chunks.append(chunk)
        total += len(chunk.tokens)
        if total >= count:
            break
    if total > count:
        engine.rollback(total - count)
        last = chunks[-1]
        chunks[-1] = attrs.evolve(last, tokens=last.tokens[: count - total])
    return chunks


GUESSED = Shape(vocab=3)
"""So few ids that a random layer is often right."""

MODELS = {"dense": PLAIN, "mixture": MIXTURE, "guessed": GUESSED}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

PIECE = ids(12, seed=8)

SEEDED = SamplingParams(temperature=1.0, seed=12)
OFF = attrs.evolve(SEEDED, draft_tokens=0)


@functools.cache
def engine_of(model: str, dtype: str) -> DraftedEngine:
    return make_drafted(MODELS[model], dtype=DTYPES[dtype])


def started(model: str = "dense", dtype: str = "float32", count: int = 110) -> DraftedEngine:
    """An engine that stands shortly before a fold, with a prompt that quotes itself."""
    engine = engine_of(model, dtype)
    engine.script = None
    engine.reset()
    fill(engine, (*ids(count - 17), *PIECE, *PIECE[:5]))
    return engine


def played(
    engine: DraftedEngine, capsule: Capsule, count: int, params: SamplingParams
) -> tuple[list[DecodeChunk], Capsule]:
    """Chunks and the end of going on from a capsule."""
    engine.restore(capsule)
    chunks = chunks_of(engine, count, params)
    return chunks, engine.snapshot()
