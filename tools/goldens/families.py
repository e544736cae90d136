"""The golden cases: which tiny models are made, and how their weights are drawn.

A case says everything about one model in the words of the GGUF side; the HF
config is derived from it, so that both sides cannot drift apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCAB_SIZE = 288
CONTEXT_LENGTH = 128
BOS_ID = 1
EOS_ID = 2
# Exactly representable in the float32 that GGUF stores. Large against the mean
# square of the embeddings (4e-4), so that a wrong eps is seen at the first norm.
RMS_EPS = float(np.float32(3e-5))
FATRELU_THRESHOLD = float(np.float32(0.05))
EMBEDDING_STD = 0.02


@dataclass(frozen=True)
class Case:
    """One golden model. `family` is the HF model type, `arch` GGUF's name."""

    name: str
    seed: int
    family: str = "llama"
    arch: str = "llama"
    hidden_size: int = 32
    intermediate_size: int = 40
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    rope_theta: float = 5000.0
    rope_scaling: dict[str, Any] = field(default_factory=dict)
    tied: bool = False
    attention_bias: bool = False
    sliding_window: int | None = None
    activation: str = "silu"
    threshold: float = 0.0
    num_experts: int = 0
    num_experts_per_token: int = 0
    prompt_tokens: int = 36
    decode_tokens: int = 8
    # Standard deviation of gate pre-activations; small where a threshold near
    # zero must matter.
    gate_gain: float = 1.0

    @property
    def has_qk_norm(self) -> bool:
        return self.family in ("qwen3", "qwen3_moe")

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias or self.family == "qwen2"


# Prompts of 36 tokens lie well beyond this, so that scaling matters.
ORIGINAL_CONTEXT = 16

LINEAR = {"rope_type": "linear", "factor": 4.0}
# The usual betas (32, 1) would leave no ramp at head_dim 16 and so short a
# context; with a base of 500 these put its ends at frequencies 1 and 5 of 8.
YARN = {
    "rope_type": "yarn",
    "factor": CONTEXT_LENGTH / ORIGINAL_CONTEXT,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
    "beta_fast": 1.0,
    "beta_slow": 0.0625,
}
# Not the default 0.1 * ln(factor) + 1 = 1.208: a reader must take it from the file.
YARN_ATTN = YARN | {"attention_factor": 1.3125}
# Wavelengths of the 8 frequencies: 6, 18, 53, 153 .. 10840 positions. The ramp
# goes from 16/2 to 16/0.25 positions: one unscaled, two on the ramp, five scaled.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
    "low_freq_factor": 0.25,
    "high_freq_factor": 2.0,
}

# Seeds 409, 1912 and 1416 are those of 20 tried whose decisions lie widest apart
# (reference.decision_gap), so that an engine's rounding takes no other expert.
CASES: tuple[Case, ...] = (
    Case("llama", 101, hidden_size=48, intermediate_size=80, num_layers=3,
         num_heads=6, num_kv_heads=2),
    Case("llama-tied", 102, hidden_size=40, num_heads=5, num_kv_heads=5,
         head_dim=8, tied=True),
    # Tied where the head is not the point: it saves a fifth of the file.
    Case("llama-rope-linear", 103, tied=True, rope_scaling=LINEAR),
    Case("llama-rope-yarn", 104, tied=True, rope_theta=500.0, rope_scaling=YARN),
    Case("llama-rope-yarn-attn", 105, tied=True, rope_theta=500.0,
         rope_scaling=YARN_ATTN),
    Case("llama-rope-llama3", 106, tied=True, rope_scaling=LLAMA3),
    Case("llama-bias", 107, head_dim=8, attention_bias=True),
    Case("llama-relu", 108, intermediate_size=48, head_dim=8, tied=True,
         activation="relu"),
    Case("llama-fatrelu", 409, head_dim=8, activation="fatrelu",
         threshold=FATRELU_THRESHOLD, gate_gain=0.1),
    Case("llama-drelu", 110, tied=True, head_dim=8, activation="drelu"),
    Case("mistral-window", 111, family="mistral", head_dim=8, sliding_window=7),
    Case("mixtral", 1912, family="mixtral", intermediate_size=24, head_dim=8,
         num_experts=5, num_experts_per_token=2),
    Case("qwen2", 113, family="qwen2", arch="qwen2", hidden_size=48, num_heads=6,
         head_dim=8),
    Case("qwen2-tied", 114, family="qwen2", arch="qwen2", head_dim=8, tied=True),
    Case("qwen3", 115, family="qwen3", arch="qwen3", hidden_size=40),
    Case("qwen3moe", 1416, family="qwen3_moe", arch="qwen3moe", intermediate_size=20,
         num_experts=6, num_experts_per_token=3),
)

_CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "mixtral": MixtralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "qwen3_moe": Qwen3MoeConfig,
}


def hf_config(case: Case, **changes: Any) -> PreTrainedConfig:
    """The HF config of a case; `changes` overwrite fields (for mutations)."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": case.hidden_size,
        "intermediate_size": case.intermediate_size,
        "num_hidden_layers": case.num_layers,
        "num_attention_heads": case.num_heads,
        "num_key_value_heads": case.num_kv_heads,
        "rms_norm_eps": RMS_EPS,
        "max_position_embeddings": CONTEXT_LENGTH,
        "tie_word_embeddings": case.tied,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "hidden_act": "relu" if case.activation == "relu" else "silu",
        "rope_parameters": {"rope_type": "default"}
        | case.rope_scaling
        | {"rope_theta": case.rope_theta},
    }
    if case.family != "qwen2":  # qwen2 has no such field: hidden / heads
        values["head_dim"] = case.head_dim
    elif case.head_dim * case.num_heads != case.hidden_size:
        raise ValueError(f"{case.name}: qwen2 wants head_dim = hidden / heads")
    if case.family == "llama":
        values["attention_bias"] = case.attention_bias
    if case.family == "mistral":
        values["sliding_window"] = case.sliding_window
    if case.family == "mixtral":
        values |= {"num_local_experts": case.num_experts,
                   "num_experts_per_tok": case.num_experts_per_token}
    if case.family == "qwen3_moe":
        values |= {"num_experts": case.num_experts,
                   "num_experts_per_tok": case.num_experts_per_token,
                   "moe_intermediate_size": case.intermediate_size,
                   "norm_topk_prob": True}
    return _CONFIGS[case.family](**(values | changes))


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
    if name.endswith(".bias"):
        return 0.01 if "o_proj" in name else 0.5
    if "embed_tokens" in name:
        return EMBEDDING_STD
    if "q_proj" in name or "k_proj" in name:
        # Under q/k norms the scale is lost again; small makes their eps matter.
        return (0.04 if case.has_qk_norm else 1.4) * unit
    if "gate_up_proj" in name or "up_proj" in name:
        return unit
    if "gate_proj" in name:
        return case.gate_gain * unit
    if "o_proj" in name:
        return 0.04 * unit
    if "down_proj" in name:
        return 0.06 / case.gate_gain * unit
    if name.endswith("mlp.gate.weight"):
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
    return 1.0


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
            if "norm" in name:
                values = _norm_gain(case, name) * rng.uniform(0.5, 1.5, shape)
            else:
                half_width = _weight_std(case, name, shape[-1]) * math.sqrt(3.0)
                values = rng.uniform(-half_width, half_width, shape)
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


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


def make_tokens(case: Case) -> tuple[list[int], list[int]]:
    """Returns (prompt with BOS in front, teacher-forced decode tokens).

    Random ids and not the model's own choices: greedy text of random weights
    soon loops and would try few embeddings.
    """
    rng = np.random.default_rng([case.seed, *b"tokens"])
    n = case.prompt_tokens - 1 + case.decode_tokens
    ids = [int(i) for i in rng.integers(EOS_ID + 1, VOCAB_SIZE, n)]
    return [BOS_ID] + ids[: case.prompt_tokens - 1], ids[case.prompt_tokens - 1 :]
