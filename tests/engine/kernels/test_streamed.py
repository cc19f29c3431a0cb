"""Layers as one launch each, whose weights never stop arriving."""

import itertools
from collections.abc import Callable
from functools import cache, partial

import attrs
import pytest
import torch
from torch import Tensor

from flashrt.bench.engine.random_weights import random_model
from flashrt.engine.buffers import Buffers
from flashrt.engine.kernels.streams import can_stream, first_of, out_of
from flashrt.engine.matrix import Packed
from flashrt.engine.model import Layer, Model
from flashrt.engine.shapes import DENSE, PATTERN, TINY, TINY_MIXTURE
from tests.engine.kernels.compare import CUDA, distance, noise

from flashrt.engine.kernels.graphs import Graph, capturing  # isort: skip
from flashrt.engine.kernels.linear import rows_linear, rows_linear_parts, takes_terms  # isort: skip
from flashrt.engine.kernels.norm import add_half_norm  # isort: skip
from flashrt.engine.kernels.ffn import rows_ffn  # isort: skip
from flashrt.engine.kernels.step import RowsStep  # isort: skip
from flashrt.engine.kernels.streamed import Streams, check_fits  # isort: skip
from flashrt.engine.kernels.streamrows import EMPTY  # isort: skip

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not can_stream(CUDA), reason="the kernel is for Hopper, in the language of Triton 3.6"
    ),
]

SMALL = attrs.evolve(
    TINY, hidden_size=256, intermediate_size=768, linear_key_dim=64, linear_value_dim=64
)
WIDE = attrs.evolve(SMALL, hidden_size=1280, intermediate_size=4352, num_heads=12)
"""So large that lanes end inside rows of tiles, and some have none."""
CONFIGS = pytest.mark.parametrize("config", [SMALL, WIDE], ids=["small", "wide"])
FORMATS = pytest.mark.parametrize("number_format", [None, "fp8", "int4"], ids=str)
COUNTS = (1, 2, 8, 9, 16, 17, 32, 33, 64)
CLOSE = 0.01


@cache
def layers_of(number_format: str | None, config=SMALL) -> tuple[Layer, ...]:
    weights = random_model(config, CUDA, torch.bfloat16, number_format=number_format).weights
    buffers = Buffers.allocate(config, 128, CUDA, torch.bfloat16)
    return tuple(Model(config, weights, buffers).layers)


def streams_of(layers) -> Streams:
    streams = Streams.of(layers, CUDA)
    assert all(streams.take(number) for number in range(len(layers)))
    return streams


def inputs(layer: Layer, rows: int = 64) -> tuple[Tensor, Tensor]:
    """A residual and a mixer's rows; any smaller number are the first of them."""
    hidden, width = out_of(layer.mixer).shape
    x = noise(64, hidden, seed=1, dtype=torch.bfloat16)[:rows]
    return x.clone(), noise(64, width, seed=2, dtype=torch.bfloat16)[:rows].contiguous()


def ran(streams: Streams, number: int, x: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor | None]:
    x = x.clone()
    streams.start()
    return x, streams.run(number, x, mixed)


def launch_by_launch(layer: Layer, following: Layer, x: Tensor, mixed: Tensor):
    """The same by the kernels that a layer has of its own."""
    x = x.clone()
    split = takes_terms(layer.mlp.gate_up)
    parts = rows_linear_parts(mixed, out_of(layer.mixer))
    y = add_half_norm(x, parts, layer.post_scale, layer.eps, split=split)
    parts = rows_ffn(y, layer.mlp, torch.tensor([0, 0, len(x)], dtype=torch.int32, device=CUDA))
    y = add_half_norm(x, parts, following.input_scale, layer.eps, split=split)
    return x, rows_linear(y, first_of(following.mixer))


@torch.inference_mode()
@CONFIGS
@FORMATS
def test_a_layer_equals_its_launches(number_format: str | None, config):
    """What is left in the residual and what the next mixer reads, for either kind of mixer on
    either side."""
    layers = layers_of(number_format, config)
    streams = streams_of(layers)

    for number, (layer, following) in enumerate(itertools.pairwise(layers)):
        x, mixed = inputs(layer, 9)
        left, read = ran(streams, number, x, mixed)
        wanted, wanted_read = launch_by_launch(layer, following, x, mixed)

        assert distance(left - x, wanted - x) < CLOSE
        assert read.shape == wanted_read.shape
        assert distance(read, wanted_read) < CLOSE
        tail = slice(-2 * config.linear_value_heads, None)
        assert distance(read[:, tail], wanted_read[:, tail]) < CLOSE


@torch.inference_mode()
@FORMATS
def test_the_last_layer_leaves_its_residual(number_format: str | None):
    """And nothing to read."""
    layers = layers_of(number_format)
    x, mixed = inputs(layers[-1], 5)

    left, read = ran(streams_of(layers), len(layers) - 1, x, mixed)

    wanted, _ = launch_by_launch(layers[-1], layers[0], x, mixed)
    assert read is None
    assert distance(left - x, wanted - x) < CLOSE


@torch.inference_mode()
@CONFIGS
@FORMATS
def test_bits_of_a_row_are_its_own(number_format: str | None, config):
    """Whatever the number of rows beside it, its index among them, and what they hold."""
    layers = layers_of(number_format, config)
    streams = streams_of(layers)
    x, mixed = inputs(layers[0])
    left, read = ran(streams, 0, x, mixed)

    for rows in COUNTS:
        some, read_of_some = ran(streams, 0, x[:rows], mixed[:rows].contiguous())
        assert torch.equal(some, left[:rows]), rows
        assert torch.equal(read_of_some, read[:rows]), rows
    for index in (0, 7, 8, 40, 63):
        alone = ran(streams, 0, x[index : index + 1], mixed[index : index + 1].contiguous())
        assert torch.equal(alone[0][0], left[index]), index
        assert torch.equal(alone[1][0], read[index]), index


@torch.inference_mode()
@FORMATS
def test_a_run_leaves_all_places_empty(number_format: str | None):
    """So the next one, of any number of rows, waits for its own parts."""
    layers = layers_of(number_format, WIDE)
    streams = streams_of(layers)
    x, mixed = inputs(layers[0])

    for rows in (64, 1, 33, 4):
        ran(streams, 0, x[:rows], mixed[:rows].contiguous())
        for places in (streams.sums.parts, streams.sums.wide):
            assert bool((places.view(torch.int32) == EMPTY.value).all()), rows


@torch.inference_mode()
@FORMATS
def test_a_row_that_is_no_number_spoils_itself_alone(number_format: str | None):
    """And the run ends: no NaN is taken for an empty place."""
    layers = layers_of(number_format)
    streams = streams_of(layers)
    x, mixed = inputs(layers[0], 4)
    wanted, read = ran(streams, 0, x, mixed)

    bits = torch.tensor([0xFFFF], dtype=torch.uint16, device=CUDA).view(torch.bfloat16)
    mixed[2] = bits
    left, spoiled = ran(streams, 0, x, mixed)

    for row in (0, 1, 3):
        assert torch.equal(left[row], wanted[row])
        assert torch.equal(spoiled[row], read[row])
    if number_format is None:
        assert bool(left[2].isnan().all())


@torch.inference_mode()
def test_runs_in_a_graph_are_the_same():
    """Replayed, with layers behind each other."""
    layers = layers_of("fp8")
    streams = streams_of(layers)
    x, mixed = inputs(layers[0], 4)
    wanted = x.clone()
    streams.start()
    for number in range(len(layers)):
        streams.run(number, wanted, mixed[:, : out_of(layers[number].mixer).shape[1]].contiguous())

    left, graph = x.clone(), torch.cuda.CUDAGraph()
    given = [mixed[:, : out_of(layer.mixer).shape[1]].contiguous() for layer in layers]
    with torch.cuda.graph(graph):
        streams.start()
        for number in range(len(layers)):
            streams.run(number, left, given[number])
    for _ in range(3):
        left.copy_(x)
        graph.replay()
        assert torch.equal(left, wanted)


@torch.inference_mode()
@FORMATS
def test_steps_of_a_large_shape_end_and_repeat_themselves(number_format: str | None):
    """Behind the small kernels of a mixer, which leave a processor one by one: for rows with which
    there are few and many of those."""
    config = attrs.evolve(DENSE, mtp_layers=0, vocab_size=8192, layer_types=PATTERN)
    weights = random_model(config, CUDA, torch.bfloat16, number_format=number_format).weights
    buffers = Buffers.allocate(config, 4096, CUDA, torch.bfloat16)
    buffers.clear_start()
    step = RowsStep.of(Model(config, weights, buffers))

    for rows in (1, 8, 16, 64):
        with capturing() as pool:
            graph = Graph.capture(partial(step.pieces, rows, 4096), pool)
        step.place([1] * rows, 512, 8)
        wanted = graph.replay().clone()
        for _ in range(30):
            left = graph.replay()
        assert torch.equal(left, wanted), rows
        assert bool(left.isfinite().all())


Spoil = Callable[[Layer], Layer]


def plain_down(layer: Layer) -> Layer:
    down = layer.mlp.down
    dense = down.parts[0].dense(torch.bfloat16)
    return attrs.evolve(layer, mlp=attrs.evolve(layer.mlp, down=dense))


def two_parts(layer: Layer) -> Layer:
    gate_up = layer.mlp.gate_up
    half = len(gate_up) // 2
    parts = gate_up.cut(0, half).parts + gate_up.cut(half, 2 * half).parts
    return attrs.evolve(layer, mlp=attrs.evolve(layer.mlp, gate_up=Packed(parts, torch.bfloat16)))


@pytest.mark.parametrize("spoil", [plain_down, two_parts], ids=["forms differ", "two parts"])
def test_layers_that_do_not_fit_go_launch_by_launch(spoil: Spoil):
    """The one that is spoiled; those before and behind go as they would."""
    layers = list(layers_of("fp8"))
    layers[1] = spoil(layers[1])

    streams = Streams.of(layers, CUDA)

    assert [streams.take(number) for number in range(len(layers))] == [True, False, *[True] * 2]


@pytest.mark.parametrize(
    ("config", "number_format", "dtype"),
    [
        (TINY_MIXTURE, None, torch.bfloat16),
        (SMALL, None, torch.float32),
        (SMALL, "nvfp4", torch.bfloat16),
        (attrs.evolve(SMALL, hidden_size=160), None, torch.bfloat16),
    ],
    ids=["mixture", "float32", "nvfp4", "ragged"],
)
def test_models_that_do_not_fit_go_launch_by_launch(config, number_format, dtype):
    """And nothing is kept for them."""
    weights = random_model(config, CUDA, dtype, number_format=number_format).weights
    layers = Model(config, weights, Buffers.allocate(config, 128, CUDA, dtype)).layers

    streams = Streams.of(layers, CUDA)

    assert not any(streams.take(number) for number in range(len(layers)))
    assert streams.sums.parts.numel() == streams.sums.wide.numel() == 1


def test_programs_that_would_not_run_at_once_are_refused():
    """They wait for each other: the device would never be done."""
    processors = torch.cuda.get_device_properties(CUDA).multi_processor_count

    with pytest.raises(RuntimeError, match=r"3 programs .* shared memory"):
        check_fits(80_000, 3 * processors, CUDA)
    check_fits(70_000, 3 * processors, CUDA)
