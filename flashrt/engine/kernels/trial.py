"""Measures the kernels on a model of a named shape with random weights.

Speed does not depend on the values of weights; drafts, text and quality do, and nothing here says
anything about them. Times are medians over replays of a captured graph, between device events.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.buffers import Buffers
from flashrt.engine.config import FULL, ModelConfig
from flashrt.engine.kernels.attention import attend_rows, prepare
from flashrt.engine.kernels.delta import delta_rows
from flashrt.engine.kernels.ffn import ffn_takes_terms, rows_ffn
from flashrt.engine.kernels.graphs import Graph, capturing, in_one
from flashrt.engine.kernels.linear import (
    Weight,
    head_linear,
    rows_linear,
    rows_linear_parts,
    takes_terms,
)
from flashrt.engine.kernels.norm import add_half_norm
from flashrt.engine.kernels.plain import ROWS_MAX
from flashrt.engine.kernels.step import RowsStep
from flashrt.engine.kernels.streams import first_of
from flashrt.engine.kernels.terms import Terms, WithTerms
from flashrt.engine.mixers import FullMixer, LinearMixer
from flashrt.engine.model import Model
from flashrt.engine.shapes import DENSE, MIXTURE, PATTERN, TINY, TINY_MIXTURE
from flashrt.engine.weights import (
    FfnWeights,
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    MlpWeights,
    ModelWeights,
    MoeWeights,
)

PLAIN = attrs.evolve(DENSE, mtp_layers=0)
SMALL = attrs.evolve(TINY, mtp_layers=0, vocab_size=8256, layer_types=PATTERN * 2)
SHAPES: Mapping[str, ModelConfig] = {
    "27b": PLAIN,
    "35b-a3b": attrs.evolve(MIXTURE, mtp_layers=0),
    "tiny": SMALL,
    "tiny-moe": attrs.evolve(SMALL, intermediate_size=0, moe=TINY_MIXTURE.moe),
}
"""Shapes that can be measured without a checkpoint."""


@attrs.frozen
class Figure:
    """One measured time, and the least that the bytes it must read would take."""

    name: str
    rows: int
    context: int
    ms: float
    bound_ms: float


MakeWeights = Callable[[ModelConfig, torch.device, torch.dtype], ModelWeights]


def random_model(
    config: ModelConfig,
    max_seq: int,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    weights_of: MakeWeights | None = None,
) -> Model:
    """A model of `config` with random weights over fresh buffers. `weights_of`: others than plain
    ones."""
    weights = (weights_of or random_weights)(config, device, dtype)
    buffers = Buffers.allocate(config, max_seq, device, dtype)
    buffers.clear_start()
    return Model(config, weights, buffers)


def random_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> ModelWeights:
    """Seeded; sized so that every layer's output keeps about the size of its input."""
    noise = torch.Generator(device=device).manual_seed(0)
    c = config
    h, heads = c.hidden_size, c.linear_value_heads

    def normal(*shape: int, std: float = 0.02, of: torch.dtype = dtype) -> Tensor:
        return torch.empty(shape, dtype=of, device=device).normal_(0, std, generator=noise)

    def mixer(kind: str) -> FullAttentionWeights | LinearAttentionWeights:
        d = c.head_dim
        if kind == FULL:
            return FullAttentionWeights(
                qkv_proj=normal(2 * d * (c.num_heads + c.num_kv_heads), h),
                q_norm=normal(d), k_norm=normal(d), o_proj=normal(h, c.num_heads * d),
            )  # fmt: skip
        return LinearAttentionWeights(
            in_proj=normal(c.conv_width + c.value_width + 2 * heads, h),
            conv=normal(c.conv_width, c.conv_kernel, std=0.5),
            A_log=normal(heads, std=1, of=torch.float32),
            dt_bias=normal(heads, std=1, of=torch.float32) - 2,
            norm=normal(c.linear_value_dim) + 1,
            out_proj=normal(h, c.value_width),
        )

    def mlp(inner: int) -> MlpWeights:
        return MlpWeights(gate_up=normal(2 * inner, h), down=normal(h, inner))

    def ffn() -> FfnWeights:
        if (moe := c.moe) is None:
            return mlp(c.intermediate_size)
        return MoeWeights(
            router=normal(moe.experts + 1, h, of=torch.float32),
            gate_up=normal(moe.experts, 2 * moe.intermediate_size, h),
            down=normal(moe.experts, h, moe.intermediate_size),
            shared=mlp(moe.shared_intermediate_size),
            experts_per_row=moe.experts_per_row,
        )

    layers = tuple(
        LayerWeights(input_norm=normal(h), post_norm=normal(h), mixer=mixer(kind), mlp=ffn())
        for kind in c.layer_types
    )
    embed = normal(c.vocab_size, h, std=1)
    lm_head = embed if c.tied_embeddings else normal(c.vocab_size, h)
    return ModelWeights(embed, layers, normal(h), lm_head, checksum="random")


# -- bytes -----------------------------------------------------------------------------------------


def weight_bytes(model: Model, rows: int = 1) -> int:
    """Of all matrices that a step of `rows` rows reads: every one but the embedding table."""
    mixers = [layer.mixer.weights for layer in model.layers]
    matrices: list[Weight] = [model.weights.lm_head]
    for weights in mixers:
        if isinstance(weights, LinearAttentionWeights):
            matrices += (weights.in_proj, weights.out_proj)
        else:
            matrices += (weights.qkv_proj, weights.o_proj)
    ffns = sum(_ffn_bytes(layer.mlp, rows) for layer in model.layers)
    return ffns + sum(matrix.nbytes for matrix in matrices)


def _ffn_bytes(weights: FfnWeights, rows: int) -> int:
    """Of routed experts, those that `rows` rows are expected to choose among them at random."""
    if isinstance(weights, MlpWeights):
        return weights.gate_up.nbytes + weights.down.nbytes
    routed = weights.gate_up.nbytes + weights.down.nbytes
    missed = (1 - weights.experts_per_row / len(weights.gate_up)) ** rows
    return round(routed * (1 - missed)) + weights.router.nbytes + _ffn_bytes(weights.shared, rows)


def state_bytes(model: Model, context: int) -> int:
    """Of S in all linear layers (read once), and of K and V up to `context`."""
    buffers = model.buffers
    kv = buffers.kv[:, :, :, :1].nbytes * context
    return buffers.anchors[:, 0].nbytes + kv


@triton.jit
def _read(X, Y, SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    tl.store(Y + i, tl.sum(tl.load(X + i * SIZE + tl.arange(0, SIZE)).to(tl.float32), 0))


def read_bandwidth(device: torch.device, gib: int = 4) -> float:
    """Bytes per second of a kernel that only reads."""
    size = 8192
    x = torch.empty(gib * 2**29, dtype=torch.bfloat16, device=device).normal_()
    y = torch.empty(len(x) // size, device=device)

    def read() -> Tensor:
        _read[(len(y),)](x, y, SIZE=size, num_warps=8)
        return y

    return x.nbytes / (median_ms(read) / 1e3)


# -- times -----------------------------------------------------------------------------------------


def median_ms(body: Callable[[], Tensor], replays: int = 15) -> float:
    """Of a captured graph of `body`, between device events."""
    with capturing() as pool:
        graph = Graph.capture(in_one(body), pool)
    times = []
    for _ in range(replays + 3):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times[3:])


@torch.inference_mode()
def measure(model: Model, rows: int, context: int, bandwidth: float) -> Iterator[Figure]:
    """Parts of a step of `rows` rows behind `context` tokens, launch by launch; then a whole one,
    its layers as they are served, with all scores."""
    step = RowsStep.of(model)
    step.place([i % model.config.vocab_size for i in range(rows)], context, context // 64)

    def figure(name: str, needed: int, body: Callable[[], Tensor]) -> Figure:
        return Figure(name, rows, context, median_ms(body), needed / bandwidth * 1e3)

    weights, state = weight_bytes(model, rows), state_bytes(model, 0)
    kv = state_bytes(model, context) - state
    yield figure("all linears", weights, linears(step, rows))
    yield figure("delta rule", state, deltas(step, rows))
    yield figure("attention", kv, attentions(step, rows))
    yield figure("norms", 0, norms(step, rows))

    def layers() -> Tensor:
        return step.run(rows, keys=model.buffers.kv.shape[3])

    head = model.weights.lm_head.nbytes
    yield figure("all layers", weights - head + state + kv, layers)
    yield figure("whole step", weights + state + kv, lambda: step.logits(layers()).argmax(-1))


Body = Callable[[], Tensor]


def noise(model: Model, *shape: int) -> Tensor:
    """Random activations."""
    return torch.randn(shape, device=model.device).to(model.weights.embed.dtype)


def linears(step: RowsStep, rows: int) -> Body:
    """Every product of a step, in its order; of a mixture, with its choice of experts."""
    model = step.model
    c = model.config
    widths = (c.hidden_size, c.value_width, c.num_heads * c.head_dim)
    plain = {width: noise(model, rows, width) for width in widths}
    layer = model.layers[0]
    split = takes_terms(first_of(layer.mixer))
    inputs = {w: WithTerms(x, Terms.of(x)) if split else x for w, x in plain.items()}
    x = inputs[c.hidden_size]
    half = add_half_norm(
        plain[c.hidden_size], None, layer.post_scale, layer.eps, split=ffn_takes_terms(layer.mlp)
    )

    def body() -> Tensor:
        for layer in model.layers:
            weights = layer.mixer.weights
            if isinstance(weights, LinearAttentionWeights):
                into, out = weights.in_proj, weights.out_proj
            else:
                into, out = weights.qkv_proj, weights.o_proj
            rows_linear(x, into)
            rows_linear_parts(inputs[out.shape[1]], out)
            rows_ffn(half, layer.mlp, step.at)
        return head_linear(x, model.weights.lm_head)

    return body


def deltas(step: RowsStep, rows: int, **options: int) -> Body:
    """Convolution, gates and recurrence of all linear layers."""
    c = step.model.config
    x = noise(step.model, rows, c.conv_width + c.value_width + 2 * c.linear_value_heads)
    mixers = [m for layer in step.model.layers if isinstance(m := layer.mixer, LinearMixer)]

    def body() -> Tensor:
        for m in mixers:
            w = m.weights
            o = delta_rows(m.state, step.at, x, m.taps, w.dt_bias, m.rate, **options)
        return o

    return body


def attentions(step: RowsStep, rows: int) -> Body:
    """All attention layers between their products."""
    c = step.model.config
    x = noise(step.model, rows, 2 * c.head_dim * (c.num_heads + c.num_kv_heads))
    keys = step.model.buffers.kv.shape[3]
    mixers = [m for layer in step.model.layers if isinstance(m := layer.mixer, FullMixer)]

    def body() -> Tensor:
        for m in mixers:
            scales, tables = (m.q_scale, m.k_scale), (m.cos, m.sin)
            q = prepare(x, m.kv, step.at, scales, tables, c.num_heads, c.rms_eps)
            o = attend_rows(q, m.kv, step.at, keys, x)
        return o

    return body


def norms(step: RowsStep, rows: int) -> Body:
    """Two sums of three parts with their norms per layer."""
    h = step.model.config.hidden_size
    x, parts = noise(step.model, rows, h), torch.zeros(3, rows, h, device=step.model.device)

    def body() -> Tensor:
        for layer in step.model.layers:
            add_half_norm(x, parts, layer.input_scale, layer.eps)
            y = add_half_norm(x, parts, layer.post_scale, layer.eps)
        return y.rows

    return body


# -- the table -------------------------------------------------------------------------------------


def report(
    shape: str,
    rows: Sequence[int],
    contexts: Sequence[int],
    weights_of: MakeWeights | None = None,
) -> dict[str, Any] | None:
    """Measure and print a table; None where there is no CUDA device. See `random_model`."""
    if not torch.cuda.is_available():
        return None
    device = torch.device("cuda")
    bandwidth = read_bandwidth(device)
    name = torch.cuda.get_device_name(device)
    print(f"{shape} on {name}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"reads at {bandwidth / 1e12:.2f} TB/s at best")
    max_seq = max(contexts) + 2 * ROWS_MAX
    model = random_model(SHAPES[shape], max_seq, device, weights_of=weights_of)
    print(f"{'':14}{'rows':>5}{'context':>9}{'ms':>9}{'bound ms':>10}")
    figures = []
    for context in contexts:
        for count in rows:
            for figure in measure(model, count, context, bandwidth):
                figures.append(figure)
                print(
                    f"{figure.name:14}{figure.rows:5}{figure.context:9}"
                    f"{figure.ms:9.3f}{figure.bound_ms:10.3f}",
                    flush=True,
                )
    return {
        "shape": shape, "device": name, "torch": torch.__version__, "triton": triton.__version__,
        "read_bytes_per_second": bandwidth, "figures": [attrs.asdict(f) for f in figures],
    }  # fmt: skip
