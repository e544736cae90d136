"""Runs an HF model for its logits, in float32 or wholly in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Float64Mode(TorchFunctionMode):
    """Turns every request for float32 into one for float64.

    HF casts to float32 inside norms, softmax, router and RoPE whatever the
    model's dtype, so `model.double()` alone would keep float32 rounding there.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        def widen(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        kwargs = {key: widen(value) for key, value in (kwargs or {}).items()}
        return func(*(widen(value) for value in args), **kwargs)


def to_float64(model: nn.Module) -> nn.Module:
    """Converts weights, and recomputes RoPE's frequencies in float64."""
    model.double()
    base = model.base_model
    if not hasattr(base, "rotary_emb"):  # learned positions
        return model
    with Float64Mode():
        rotary = type(base.rotary_emb)(model.config)
    if any(values.dtype != torch.float64 for values in rotary.buffers()):
        raise RuntimeError("RoPE frequencies are not float64")
    base.rotary_emb = rotary
    return model


def _mode(model: nn.Module) -> AbstractContextManager:
    if model.dtype == torch.float64:
        return Float64Mode()
    return torch.no_grad()


@torch.no_grad()
def full_logits(model: nn.Module, tokens: list[int], **kwargs: Any) -> np.ndarray:
    """Logits [tokens, vocab] of one pass over all tokens without a cache."""
    with _mode(model):
        out = model(torch.tensor([tokens]), use_cache=False, **kwargs)
    return out.logits[0].numpy()


@torch.no_grad()
def stepwise_logits(model: nn.Module, tokens: list[int], prompt: int) -> np.ndarray:
    """Logits [tokens, vocab]: the prompt in one pass, then token by token."""
    with _mode(model):
        out = model(torch.tensor([tokens[:prompt]]), use_cache=True)
        rows = [out.logits[0]]
        for token in tokens[prompt:]:
            out = model(torch.tensor([[token]]), use_cache=True,
                        past_key_values=out.past_key_values)
            rows.append(out.logits[0])
    return torch.cat(rows).numpy()


def relative_difference(a: np.ndarray, reference: np.ndarray) -> float:
    """max |a - reference| / max |reference|: the measure of all checks here."""
    return float(np.abs(a - reference).max() / np.abs(reference).max())


@torch.no_grad()
def attention_entropy(model: nn.Module, tokens: list[int], window: int | None) -> float:
    """Mean entropy of attention rows, as a share of the uniform row's.

    Rows that see fewer than 4 tokens are left out.
    """
    with _mode(model):
        out = model(torch.tensor([tokens]), use_cache=False, output_attentions=True)
    shares = []
    for layer in out.attentions:
        for i in range(3, len(tokens)):
            visible = min(i + 1, window or i + 1)
            p = layer[0, :, i].double()
            entropy = torch.special.entr(p).sum(-1) / math.log(visible)
            shares.append(float(entropy.mean()))
    return float(np.mean(shares))


def router_of(layer: nn.Module) -> nn.Module | None:
    """The module that chooses a layer's experts; None where it has none."""
    if hasattr(layer, "block_sparse_moe"):
        return layer.block_sparse_moe.router
    if not hasattr(layer.mlp, "experts"):
        return None
    return layer.mlp.gate if hasattr(layer.mlp, "gate") else layer.mlp.router


def gap_of_choice(router: nn.Module, logits: torch.Tensor) -> float:
    """The least by which a choice of experts, or of their groups, is the better one."""
    def least_gap(scores: torch.Tensor, chosen: int) -> float:
        if chosen == scores.shape[-1]:
            return math.inf
        ranked = scores.sort(dim=-1, descending=True).values
        return float((ranked[:, chosen - 1] - ranked[:, chosen]).min())

    if not hasattr(router, "e_score_correction_bias"):
        return least_gap(logits, router.top_k)
    scores = logits.sigmoid() + router.e_score_correction_bias
    groups = scores.view(len(scores), router.num_group, -1)
    sums = groups.topk(2, dim=-1).values.sum(-1)
    best = sums.topk(router.topk_group, dim=-1).indices
    kept = groups.gather(1, best.unsqueeze(-1).expand(-1, -1, groups.shape[-1]))
    return min(least_gap(sums, router.topk_group),
               least_gap(kept.flatten(1), router.top_k))


@torch.no_grad()
def decision_gap(model: nn.Module, tokens: list[int], threshold: float | None) -> float:
    """How near any discontinuous choice is to going the other way.

    Smallest |gate - threshold| of fatrelu, or smallest distance between the
    last chosen and the first refused expert's router logit; infinity where the
    model has neither. Rounding beyond the gap would change logits by far more
    than rounding.
    """
    gaps: list[float] = [math.inf]

    def on_gate(_: nn.Module, __: Any, gate: torch.Tensor) -> None:
        gaps.append(float((gate - threshold).abs().min()))

    def on_router(module: nn.Module, _: Any, out: tuple) -> None:
        gaps.append(gap_of_choice(module, out[0]))

    handles = []
    for layer in getattr(model.base_model, "layers", ()):
        if threshold is not None:
            handles.append(layer.mlp.gate_proj.register_forward_hook(on_gate))
        router = router_of(layer)
        if router is not None:
            handles.append(router.register_forward_hook(on_router))
    full_logits(model, tokens)
    for handle in handles:
        handle.remove()
    return min(gaps)
