"""The demo's network for training: the engine's formulas over whole batches of sequences.

Modules carry the published names, so a state dict is a checkpoint. Matrix products may run in
bfloat16 under autocast; norms, gates, the delta rule and its state are float32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from flashrt.demo.training.delta_parallel import CHUNK, delta_sequence, shifted_conv
from flashrt.engine.config import LINEAR, ModelConfig
from flashrt.engine.ops import l2_normalise, rotary_tables


class Norm(nn.Module):
    """x / rms(x) * (1 + weight)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Float32."""
        return functional.rms_norm(x.float(), self.weight.shape, 1 + self.weight, self.eps)


class GatedNorm(nn.Module):
    """The linear layers' output norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, o: Tensor, z: Tensor) -> Tensor:
        """o / rms(o) * weight * silu(z)."""
        normed = functional.rms_norm(o, self.weight.shape, self.weight, self.eps)
        return normed * functional.silu(z.float())


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
        self.conv1d = nn.Conv1d(c.conv_width, 1, c.conv_kernel, bias=False)
        self.conv1d.weight = nn.Parameter(torch.empty(c.conv_width, 1, c.conv_kernel))
        # Memories from a few tokens to thousands, from the first step on.
        self.A_log = nn.Parameter(torch.linspace(-4.0, 1.0, heads))
        self.dt_bias = nn.Parameter(torch.full((heads,), -2.5))
        self.norm = GatedNorm(c.linear_value_dim, c.rms_eps)
        self.out_proj = nn.Linear(c.value_width, h, bias=False)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """x [B, T, h] -> [B, T, h]."""
        c = self.c
        keys, heads = c.linear_key_heads, c.linear_value_heads
        mixed = shifted_conv(self.in_proj_qkv(x), self.conv1d.weight.squeeze(1))
        width = keys * c.linear_key_dim
        q, k, v = mixed.split((width, width, c.value_width), dim=-1)
        q, k = (l2_normalise(part.unflatten(-1, (keys, -1))) for part in (q, k))
        q = q * c.linear_key_dim**-0.5
        q, k = (part.repeat_interleave(heads // keys, dim=2) for part in (q, k))
        beta = self.in_proj_b(x).float().sigmoid()
        g = -self.A_log.exp() * functional.softplus(self.in_proj_a(x).float() + self.dt_bias)
        with torch.autocast(x.device.type, enabled=False):
            o = delta_sequence(q, k, v.unflatten(-1, (heads, -1)), beta, g)
        y = self.norm(o, self.in_proj_z(x).unflatten(-1, (heads, -1)))
        return self.out_proj(y.flatten(2))


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

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """x [B, T, h] -> [B, T, h]."""
        c = self.c
        q, gate = self.q_proj(x).unflatten(-1, (c.num_heads, 2, -1)).unbind(3)
        k = self.k_proj(x).unflatten(-1, (c.num_kv_heads, -1))
        v = self.v_proj(x).unflatten(-1, (c.num_kv_heads, -1))
        q, k = _rotate(self.q_norm(q), *tables), _rotate(self.k_norm(k), *tables)
        groups = c.num_heads // c.num_kv_heads
        k, v = (part.repeat_interleave(groups, dim=2) for part in (k, v))
        q, k, v = (part.to(v.dtype).transpose(1, 2) for part in (q, k, v))
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((o * gate.float().sigmoid()).flatten(2))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    r = cos.shape[-1]
    cos, sin = cos[: x.shape[1]], sin[: x.shape[1]]
    first, second, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


class Mlp(nn.Module):
    """down(silu(gate) * up)."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        h, inner = c.hidden_size, c.intermediate_size
        self.gate_proj = nn.Linear(h, inner, bias=False)
        self.up_proj = nn.Linear(h, inner, bias=False)
        self.down_proj = nn.Linear(inner, h, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, h] -> [B, T, h]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, c: ModelConfig, kind: str) -> None:
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_eps)
        self.name = "linear_attn" if kind == LINEAR else "self_attn"
        self.add_module(self.name, LinearAttention(c) if kind == LINEAR else FullAttention(c))
        self.mlp = Mlp(c)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """x [B, T, h] float32 -> the same."""
        x = x + getattr(self, self.name)(self.input_layernorm(x), tables)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c.layer_types)
        self.norm = Norm(c.hidden_size, c.rms_eps)

    def forward(self, ids: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """ids [B, T] -> the hidden rows that head and MTP layer read, [B, T, h]."""
        x = self.embed_tokens(ids).float()
        for layer in self.layers:
            x = layer(x, tables)
        return self.norm(x)


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

    def forward(self, hidden: Tensor, following: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Hidden rows [B, T, h] and the embeddings of the token behind each -> [B, T, h]."""
        pair = (self.pre_fc_norm_embedding(following), self.pre_fc_norm_hidden(hidden))
        return self.norm(self.layers[0](self.fc(torch.cat(pair, dim=-1)).float(), tables))


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

    def tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin for every position."""
        if self._tables is None or self._tables[0].device != device:
            c = self.c
            self._tables = rotary_tables(c.max_positions, c.rotary_dim, c.rope_theta, device)
        return self._tables

    def head(self, hidden: Tensor) -> Tensor:
        """[M, h] -> [M, V] float32."""
        return functional.linear(hidden, self.model.embed_tokens.weight).float()

    def drafts(self, hidden: Tensor, ids: Tensor, depth: int) -> list[Tensor]:
        """For d = 1 .. depth: rows [B, T, h] that, at p, predict token p + 1 + d.

        Row p of the d-th pairs token p + d with what the (d-1)-th said at p. The last d rows of a
        sequence are paired with tokens from its start and mean nothing.
        """
        tables, rows = self.tables(ids.device), []
        embedded = self.model.embed_tokens(ids).float()
        for d in range(1, depth + 1):
            hidden = self.mtp(hidden, embedded.roll(-d, dims=1), tables)
            rows.append(hidden)
        return rows

    def forward(self, ids: Tensor) -> Tensor:
        """ids [B, T], T a multiple of 64 -> hidden rows [B, T, h]."""
        assert ids.shape[1] % CHUNK == 0
        return self.model(ids, self.tables(ids.device))
