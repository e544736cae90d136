"""Builds a golden case's model: its weights, drawn anew from the case's seed."""

from __future__ import annotations

import math
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM

import older
from families import EMBEDDING_STD, Case, hf_config

# Of the scores that experts are chosen by, which are sigmoids.
CHOICE_BIAS = 0.2


class FatRelu(nn.Module):
    """x where x is above the threshold, else 0 (the value is not shifted)."""

    def __init__(self, threshold: float):
        super().__init__()
        self.threshold = threshold

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > self.threshold, x, torch.zeros_like(x))


def _drelu_forward(mlp: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Both branches are rectified: down(relu(gate x) * relu(up x))."""
    return mlp.down_proj(torch.relu(mlp.gate_proj(x)) * torch.relu(mlp.up_proj(x)))


def patch_activation(model: nn.Module, activation: str, threshold: float) -> None:
    """Gives every dense FFN an activation that HF's config cannot name."""
    if activation not in ("fatrelu", "drelu"):
        return
    for layer in model.model.layers:
        if activation == "fatrelu":
            layer.mlp.act_fn = FatRelu(threshold)
        elif activation == "drelu":
            layer.mlp.forward = MethodType(_drelu_forward, layer.mlp)


def _weight_std(case: Case, name: str, fan_in: int) -> float:
    """Standard deviation of a weight matrix or bias, by its HF name.

    Targets: attention scores of standard deviation above 2 (peaked), logits of about
    3, and layer outputs as small as the embeddings, so that no part of the
    residual stream drowns another and eps keeps mattering.
    """
    unit = 1.0 / math.sqrt(fan_in)
    if name.endswith("sinks"):
        return 1.5  # as large as scores
    if name.endswith(("bias", "_bias")):
        if "o_proj" in name or "down_proj" in name:
            return 0.01
        return 0.02 if case.has_qk_norm else 0.5
    if "embed_tokens" in name:
        return EMBEDDING_STD
    if "qkv_proj" in name:
        return 1.4 * unit
    if case.family == "gemma2" and ("q_proj" in name or "k_proj" in name):
        return 2.1 * unit  # scores beyond their cap
    if "q_proj" in name or "k_proj" in name:
        if case.family == "olmo2":
            return 0.5 * unit  # of hidden states that no norm has made larger
        # Under q/k norms the scale is lost again; small makes their eps matter.
        return (0.04 if case.has_qk_norm else 1.4) * unit
    if case.activation == "clamped_swiglu" and "gate_up_proj" in name:
        return 5.0 * unit  # beyond the limit of 7
    if "gate_up_proj" in name or "up_proj" in name:
        return unit
    if "gate_proj" in name:
        return case.gate_gain * unit
    if "o_proj" in name:
        return 0.04 * unit
    if "down_proj" in name:
        return (0.01 if case.activation == "clamped_swiglu" else 0.06) / case.gate_gain * unit
    if name.endswith(("mlp.gate.weight", "router.weight", "shared_expert_gate.weight")):
        return 1.5 * unit
    if name == "lm_head.weight":
        return 3.0 * unit
    if name.endswith("v_proj.weight"):
        return unit
    raise ValueError(f"no scale for {name}")


def _norm_gain(case: Case, name: str) -> float:
    """Mean of a norm's weights, which are uniform in 0.5 .. 1.5 of it."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.4
    if name == "model.norm.weight" and case.tied:
        # Embeddings are too small to make peaked logits by themselves.
        return 3.0 / (EMBEDDING_STD * math.sqrt(case.hidden_size))
    if is_norm_after(case, name):
        return 0.05
    return 1.0


def is_norm_after(case: Case, name: str) -> bool:
    """Whether this norm is of what a block gives, and not of what it takes."""
    module = name.removesuffix(".weight").rsplit(".", 1)[-1]
    if case.family in ("gemma2", "gemma3_text", "olmo2"):
        return module in ("post_attention_layernorm", "post_feedforward_layernorm")
    return module in ("post_self_attn_layernorm", "post_mlp_layernorm")


def draw_weights(case: Case, model: nn.Module) -> None:
    """Fills the model with seeded weights.

    Uniform numbers, because they are the same bits on every machine (normal
    ones go through log and cos), and one stream per tensor, so that the order
    of HF's parameters does not matter.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            rng = np.random.default_rng([case.seed, *name.encode()])
            shape = tuple(parameter.shape)
            if case.is_older:
                values = older.draw(case, name, shape, rng)
            elif "norm" in name:
                values = _norm_gain(case, name) * rng.uniform(0.5, 1.5, shape)
                values -= case.norm_offset
            else:
                half_width = _weight_std(case, name, shape[-1]) * math.sqrt(3.0)
                values = rng.uniform(-half_width, half_width, shape)
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                rng = np.random.default_rng([case.seed, *name.encode()])
                values = rng.uniform(-CHOICE_BIAS, CHOICE_BIAS, tuple(buffer.shape))
                buffer.copy_(torch.from_numpy(values.astype(np.float32)))


def build_model(case: Case, **config_changes: Any) -> nn.Module:
    """A float32 HF model of the case with its seeded weights, in eval mode."""
    torch.manual_seed(case.seed)
    extra = {"experts_implementation": "eager"} if case.num_experts else {}
    model = AutoModelForCausalLM.from_config(
        hf_config(case, **config_changes),
        attn_implementation="eager", dtype=torch.float32, **extra)
    draw_weights(case, model)
    patch_activation(model, case.activation, case.threshold)
    return model.eval()
