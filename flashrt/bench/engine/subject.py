"""What is measured: an engine over a checkpoint, or over random weights of a named shape."""

import random
from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.drafting import MeasuredEngine
from flashrt.bench.engine.machine import Clock
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.random_weights import NamedModel, random_layout, random_model
from flashrt.bench.engine.rates import Rates
from flashrt.engine.assets import find_model
from flashrt.engine.checkpoint import load_checkpoint, opened
from flashrt.engine.config import ModelConfig, read_config
from flashrt.engine.kernels import head_copy_bytes
from flashrt.engine.placement import Placement, block_tokens
from flashrt.engine.protocol import Capsule, SamplingParams
from flashrt.engine.shapes import SHAPES
from flashrt.engine.tensor_plan import Layout
from flashrt.engine.weights import ModelWeights
from flashrt.errors import CannotServe
from flashrt.policy.cuts import CutRule

GREEDY = SamplingParams()


@attrs.frozen(eq=False)
class Subject:
    """A loaded engine, and how it is driven: ids in, first id out, by the protocol alone."""

    engine: MeasuredEngine
    config: ModelConfig
    weights: ModelWeights
    clock: Clock
    rule: CutRule
    """Where prompts are cut, as a server with this `--chunk-tokens` cuts them."""
    dice: random.Random
    tensors: Mapping[str, Tensor]
    """Random weights by their names in a checkpoint; none of a checkpoint that was loaded."""
    layout: Layout
    """Which of them are quantized."""
    kv_dtype: torch.dtype
    """Of keys and values."""

    @classmethod
    def of(cls, options: Options, max_seq: int) -> "Subject":
        """Loads or makes the weights and allocates a window of `max_seq`. Raises CannotServe."""
        place = Placement.of(options.device, options.dtype, options.kv_cache_dtype)
        check_window(config_of(options), max_seq)
        model = loaded_model(
            options.model, options.shape, options.seed, place, options.number_format
        )
        engine = MeasuredEngine(
            model.config,
            model.weights,
            max_seq=max_seq,
            model_name=options.name,
            kv_dtype=place.kv_dtype,
        )
        chunk = block_tokens(str(place.device), options.chunk_tokens)
        clock, rule = Clock(place.device), CutRule(chunk)
        dice = random.Random(options.seed)
        made = model.config, model.weights, clock, rule, dice, model.tensors, model.layout
        return cls(engine, *made, place.kv_dtype)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        return self.weights.embed.dtype

    def bounds(self, rates: Rates) -> Bounds:
        """For this shape on this machine."""
        copied = head_copy_bytes(self.config, self.weights, self.clock.device)
        return Bounds(self.config, self.dtype, rates, self.layout, self.kv_dtype, copied)

    def ids(self, count: int) -> tuple[int, ...]:
        """Random ids of the vocabulary."""
        return tuple(self.dice.randrange(self.config.vocab_size) for _ in range(count))

    def fill(self, ids: Sequence[int]) -> None:
        """Process ids behind the live state, cut as a server cuts."""
        for _ in self.engine.prefill(ids, self.cuts(len(ids))):
            pass

    def cuts(self, count: int) -> tuple[int, ...]:
        """Of so many ids behind the live state."""
        position = self.engine.position
        return self.rule.cuts(range(position + count), position)

    def first_id(self, ids: Sequence[int]) -> None:
        """Process ids, and choose the id behind them."""
        self.fill(ids)
        next(self.engine.decode(GREEDY))

    def timed_first_id(self, ids: Sequence[int]) -> float:
        """Milliseconds of `first_id`."""
        start = self.clock.now()
        self.first_id(ids)
        return (self.clock.now() - start) * 1e3

    def capsule_of(self, length: int) -> Capsule:
        """Of a prompt of `length` random ids, read from position 0."""
        self.engine.reset()
        self.fill(self.ids(length))
        return self.engine.snapshot()


def config_of(options: Options) -> ModelConfig:
    """Of what is measured; reads no weights."""
    if options.shape is not None:
        return SHAPES[options.shape]
    return read_config(find_model(str(options.model)))


def check_window(config: ModelConfig, tokens: int) -> None:
    """Raises CannotServe where the model has no window of so many tokens."""
    if tokens > config.max_positions:
        raise CannotServe(
            f"the model's window is {config.max_positions} tokens, and this needs {tokens}; ask "
            "for less with --context"
        )


def layout_of(options: Options) -> Layout:
    """The same for what is quantized."""
    if options.shape is not None:
        return random_layout(SHAPES[options.shape], options.number_format)
    return opened(find_model(str(options.model))).layout


def loaded_model(
    model: str | None,
    shape: str | None,
    seed: int,
    place: Placement,
    number_format: str | None = None,
) -> NamedModel:
    """Made, or read where there is no shape."""
    if shape is not None:
        return random_model(SHAPES[shape], place.device, place.dtype, seed, number_format)
    folder = find_model(str(model))
    loaded = load_checkpoint(folder, device=place.device, dtype=place.dtype)
    return NamedModel(loaded.config, loaded.weights, {}, opened(folder).layout)
