"""The same model by transformers, over the very tensors that our engine reads where they are there.

Greedy, one sequence, a cache that grows; a prompt is one forward pass. It uses faster kernels by
itself where their packages are installed.
"""

import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from flashrt.bench.engine.hf_form import text_config
from flashrt.bench.engine.machine import Clock, version
from flashrt.engine.config import ModelConfig
from flashrt.engine.headers import MTP_PREFIX

WIDE = ("A_log", "dt_bias")
"""What stays float32 whatever the dtype."""

KERNELS = {"fla": "fla-core", "causal_conv1d": "causal-conv1d"}
"""Packages that it uses for the linear layers: module and name."""


@attrs.frozen(eq=False)
class TransformersPeer:
    """One model."""

    model: PreTrainedModel
    clock: Clock

    @property
    def name(self) -> str:
        """With its version, and the packages that make its linear layers fast."""
        found = [n for module, n in KERNELS.items() if importlib.util.find_spec(module)]
        return f"transformers {version('transformers')}" + "".join(f" + {n}" for n in found)

    @torch.inference_mode()
    def run(self, prompt: Sequence[int], count: int) -> tuple[tuple[int, ...], list[float]]:
        """The `count` ids behind a prompt, and the milliseconds up to each since the one before."""
        cache, given, ids, times = None, prompt, [], []
        name = self._cache_name
        start = self.clock.now()
        for _ in range(count):
            tokens = torch.tensor([given], device=self.clock.device)
            out = self.model(tokens, use_cache=True, logits_to_keep=1, **{name: cache})
            cache = getattr(out, name)
            ids.append(int(out.logits[0, -1].argmax()))
            given, now = ids[-1:], self.clock.now()
            times.append((now - start) * 1e3)
            start = now
        return tuple(ids), times

    @property
    def _cache_name(self) -> str:
        """Versions differ in what they call it."""
        known = inspect.signature(type(self.model).forward).parameters
        return "cache" if "cache" in known else "past_key_values"


def over(
    config: ModelConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype, clock: Clock
) -> TransformersPeer:
    """On tensors by their names in a checkpoint; their memory is shared, not copied."""
    name = str(dtype).removeprefix("torch.")
    raw = text_config(config, name)
    described = AutoConfig.for_model(raw.pop("model_type"), **raw)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described, dtype=dtype)
    weights = {
        key: tensor if key.endswith(WIDE) else tensor.to(dtype)
        for key, tensor in tensors.items()
        if not key.startswith(MTP_PREFIX)
    }
    model.load_state_dict(weights, assign=True, strict=True)
    inner: Any = model.model
    # Its tables are no parameters, and were not made on the meta device.
    inner.rotary_emb = type(inner.rotary_emb)(described).to(clock.device)
    return TransformersPeer(model.eval(), clock)


def load(folder: str, dtype: torch.dtype, clock: Clock) -> TransformersPeer:
    """From a checkpoint folder."""
    # Of no known type: its own methods are wrapped beyond what a checker follows.
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    return TransformersPeer(model.to(clock.device).eval(), clock)
