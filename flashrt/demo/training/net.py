"""The demo's network for training: the engine's formulas over whole batches of sequences.

Modules carry the published names, so a state dict is a checkpoint. Matrix products may run in
bfloat16 under autocast; norms, gates, the delta rule and its state are float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashrt.demo.training.delta_parallel import CHUNK, delta_sequence, shifted_conv
from flashrt.demo.training.fused import fused
from flashrt.engine.config import LINEAR, ModelConfig
from flashrt.engine.ops import l2_normalise, rotary_tables

Places = tuple[Tensor, Tensor, Tensor]
"""Of the N rows of a batch: which row of its sequence each is [N], cos and sin for it [N, 1, r]."""


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x.float(), weight.shape, 1 + weight, eps)


class Norm(nn.Module):
    """x / rms(x) * (1 + weight)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Float32."""
        return _norm(x, self.weight, self.eps)


@fused
def _linear_inputs(
    x: Tensor,
    place: Tensor,
    norm: Tensor,
    qkv: Tensor,
    gate: Tensor,
    b: Tensor,
    a: Tensor,
    taps: Tensor,
    logs: Tensor,
    bias: Tensor,
    c: ModelConfig,
) -> tuple[Tensor, ...]:
    """q, k, v [N/64, H, 64, d], beta, g [N/64, H, 64], all float32; z [N, H, d]."""
    x = _norm(x, norm, c.rms_eps)
    keys, heads = c.linear_key_heads, c.linear_value_heads
    mixed = shifted_conv(functional.linear(x, qkv), taps, place).float()
    width = keys * c.linear_key_dim
    q, k, v = mixed.split((width, width, c.value_width), dim=-1)
    q, k = (l2_normalise(part.unflatten(-1, (keys, -1))) for part in (q, k))
    q = q * c.linear_key_dim**-0.5
    q, k = (part.repeat_interleave(heads // keys, dim=1) for part in (q, k))
    beta = functional.linear(x, b).float().sigmoid()
    g = -logs.exp() * functional.softplus(functional.linear(x, a).float() + bias)
    z = functional.linear(x, gate).unflatten(-1, (heads, -1))
    return (*(_chunked(part) for part in (q, k, v.unflatten(-1, (heads, -1)), beta, g)), z)


def _chunked(x: Tensor) -> Tensor:  # [N, H, ..] -> [N/64, H, 64, ..]
    return x.unflatten(0, (-1, CHUNK)).transpose(1, 2).contiguous()


@fused
def _linear_output(
    o: Tensor, x: Tensor, z: Tensor, norm: Tensor, out: Tensor, eps: float
) -> Tensor:
    """x + out(o / rms(o) * norm * silu(z)). o [N/64, H, 64, d]."""
    o = o.transpose(1, 2).flatten(0, 1)
    y = functional.rms_norm(o, norm.shape, norm, eps) * functional.silu(z.float())
    return x + functional.linear(y.flatten(1), out)


class Weight(nn.Module):
    """A weight of its own name."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))


class LinearAttention(nn.Module):
    """Gated DeltaNet."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.c = c
        h, heads = c.hidden_size, c.linear_value_heads
        self.in_proj_qkv = nn.Linear(h, c.conv_width, bias=False)
        self.in_proj_z = nn.Linear(h, c.value_width, bias=False)
        self.in_proj_b = nn.Linear(h, heads, bias=False)
        self.in_proj_a = nn.Linear(h, heads, bias=False)
        self.conv1d = Weight(c.conv_width, 1, c.conv_kernel)
        # Memories from a few tokens to thousands, from the first step on.
        self.A_log = nn.Parameter(torch.linspace(-4.0, 1.0, heads))
        self.dt_bias = nn.Parameter(torch.full((heads,), -2.5))
        self.norm = Weight(c.linear_value_dim)
        self.out_proj = nn.Linear(c.value_width, h, bias=False)

    def forward(self, x: Tensor, norm: Norm, places: Places, length: int) -> Tensor:
        """x [N, h], sequences of `length` rows -> x + mixed, [N, h]."""
        weights = (self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a)
        q, k, v, beta, g, z = _linear_inputs(
            x, places[0], norm.weight, *(part.weight for part in weights),
            self.conv1d.weight.squeeze(1), self.A_log, self.dt_bias, self.c,
        )  # fmt: skip
        with torch.autocast(x.device.type, enabled=False):
            o = delta_sequence(q, k, v, beta, g, length // CHUNK)
        return _linear_output(o, x, z, self.norm.weight, self.out_proj.weight, self.c.rms_eps)


@fused
def _heads(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    norm: Tensor,
    q_proj: Tensor,
    k_proj: Tensor,
    v_proj: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    c: ModelConfig,
) -> tuple[Tensor, ...]:
    """q, k, v [N, heads, d] normed, rotated and repeated; the gate [N, heads, d]."""
    x = _norm(x, norm, c.rms_eps)
    q, gate = functional.linear(x, q_proj).unflatten(-1, (c.num_heads, 2, -1)).unbind(2)
    k = functional.linear(x, k_proj).unflatten(-1, (c.num_kv_heads, -1))
    v = functional.linear(x, v_proj).unflatten(-1, (c.num_kv_heads, -1))
    q = _rotate(_norm(q, q_norm, c.rms_eps), cos, sin)
    k = _rotate(_norm(k, k_norm, c.rms_eps), cos, sin)
    groups = c.num_heads // c.num_kv_heads
    k, v = (part.repeat_interleave(groups, dim=1) for part in (k, v))
    return q.to(v.dtype), k.to(v.dtype), v, gate


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    r = cos.shape[-1]
    first, second, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


@fused
def _attention_output(o: Tensor, x: Tensor, gate: Tensor, out: Tensor) -> Tensor:
    """x + out(o * sigmoid(gate))."""
    return x + functional.linear((o * gate.float().sigmoid()).flatten(1), out)


class FullAttention(nn.Module):
    """Attention with normed, partly rotated heads and an output gate."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.c = c
        h, d = c.hidden_size, c.head_dim
        self.q_proj = nn.Linear(h, 2 * c.num_heads * d, bias=False)
        self.k_proj = nn.Linear(h, c.num_kv_heads * d, bias=False)
        self.v_proj = nn.Linear(h, c.num_kv_heads * d, bias=False)
        self.o_proj = nn.Linear(c.num_heads * d, h, bias=False)
        self.q_norm = Norm(d, c.rms_eps)
        self.k_norm = Norm(d, c.rms_eps)

    def forward(self, x: Tensor, norm: Norm, places: Places, length: int) -> Tensor:
        """x [N, h], sequences of `length` rows -> x + mixed, [N, h]."""
        parts = (norm, self.q_proj, self.k_proj, self.v_proj, self.q_norm, self.k_norm)
        *heads, gate = _heads(x, *places[1:], *(part.weight for part in parts), self.c)
        q, k, v = (part.unflatten(0, (-1, length)).transpose(1, 2) for part in heads)
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        o = o.transpose(1, 2).flatten(0, 1)
        return _attention_output(o, x, gate, self.o_proj.weight)


@fused
def _mlp(x: Tensor, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor, eps: float) -> Tensor:
    """x + down(silu(gate) * up) of the normed rows."""
    y = _norm(x, norm, eps)
    inner = functional.silu(functional.linear(y, gate)) * functional.linear(y, up)
    return x + functional.linear(inner, down)


class Mlp(nn.Module):
    """The weights of a layer's second half."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        h, inner = c.hidden_size, c.intermediate_size
        self.gate_proj = nn.Linear(h, inner, bias=False)
        self.up_proj = nn.Linear(h, inner, bias=False)
        self.down_proj = nn.Linear(inner, h, bias=False)

    def forward(self, x: Tensor, norm: Norm) -> Tensor:
        """x [N, h] -> the same with the layer's second half added."""
        parts = (norm, self.gate_proj, self.up_proj, self.down_proj)
        return _mlp(x, *(part.weight for part in parts), norm.eps)


class Layer(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, c: ModelConfig, kind: str) -> None:
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_eps)
        self.name = "linear_attn" if kind == LINEAR else "self_attn"
        self.add_module(self.name, LinearAttention(c) if kind == LINEAR else FullAttention(c))
        self.mlp = Mlp(c)

    def forward(self, x: Tensor, places: Places, length: int) -> Tensor:
        """x [N, h] float32 -> the same."""
        x = getattr(self, self.name)(x, self.input_layernorm, places, length)
        return self.mlp(x, self.post_attention_layernorm)


class Trunk(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c.layer_types)
        self.norm = Norm(c.hidden_size, c.rms_eps)

    def forward(self, ids: Tensor, places: Places) -> Tensor:
        """ids [B, T] -> the hidden rows that head and MTP layer read, [B, T, h]."""
        x = self.embed_tokens(ids).float().flatten(0, 1)
        for layer in self.layers:
            x = layer(x, places, ids.shape[1])
        return self.norm(x).unflatten(0, ids.shape)


class Mtp(nn.Module):
    """One more layer, which drafts the token after the next one."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        h = c.hidden_size
        self.pre_fc_norm_embedding = Norm(h, c.rms_eps)
        self.pre_fc_norm_hidden = Norm(h, c.rms_eps)
        self.fc = nn.Linear(2 * h, h, bias=False)
        self.layers = nn.ModuleList([Layer(c, "full_attention")])
        self.norm = Norm(h, c.rms_eps)

    def forward(self, hidden: Tensor, following: Tensor, places: Places) -> Tensor:
        """Hidden rows [B, T, h] and the embeddings of the token behind each -> [B, T, h]."""
        pair = (self.pre_fc_norm_embedding(following), self.pre_fc_norm_hidden(hidden))
        x = self.fc(torch.cat(pair, dim=-1)).float().flatten(0, 1)
        x = self.layers[0](x, places, hidden.shape[1])
        return self.norm(x).unflatten(0, hidden.shape[:2])


class Net(nn.Module):
    """The whole of it. The head is the embedding."""

    def __init__(self, c: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.c = c
        self.model = Trunk(c)
        self.mtp = Mtp(c)
        self._draw(torch.Generator().manual_seed(seed))
        self._tables: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        depth = len(self.c.layer_types)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            std = 0.04 if "embed" in name else p.shape[-1] ** -0.5
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                std /= (2 * depth) ** 0.5
            p.copy_(torch.randn(p.shape, generator=generator) * std)

    def places(self, batch: int, length: int, device: torch.device) -> Places:
        """Of `batch` sequences of `length` rows."""
        if self._tables is None or self._tables[0].device != device:
            c = self.c
            self._tables = rotary_tables(c.max_positions, c.rotary_dim, c.rope_theta, device)
        place = torch.arange(length, device=device).repeat(batch)
        return place, self._tables[0][place], self._tables[1][place]

    def head(self, hidden: Tensor) -> Tensor:
        """[M, h] -> [M, V] float32."""
        return functional.linear(hidden, self.model.embed_tokens.weight).float()

    def drafts(self, hidden: Tensor, ids: Tensor, depth: int) -> list[Tensor]:
        """For d = 1 .. depth: rows [B, T, h] that, at p, predict token p + 1 + d.

        Row p of the d-th pairs token p + d with what the (d-1)-th said at p. The last d rows of a
        sequence are paired with tokens from its start and mean nothing.
        """
        batch, length = ids.shape
        places, rows = self.places(batch, length, ids.device), []
        embedded = self.model.embed_tokens(ids).float()
        for d in range(1, depth + 1):
            hidden = self.mtp(hidden, embedded.roll(-d, dims=1), places)
            rows.append(hidden)
        return rows

    def forward(self, ids: Tensor) -> Tensor:
        """ids [B, T], T a multiple of 64 -> hidden rows [B, T, h]."""
        batch, length = ids.shape
        assert length % CHUNK == 0
        return self.model(ids, self.places(batch, length, ids.device))
