"""What a golden case is: a tiny model of a family, and the tokens it is given.

A case says everything about one model in the words of the GGUF side; the HF
config is derived from it, so that both sides cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import (
    Ernie4_5Config,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    Glm4Config,
    Glm4MoeConfig,
    GPT2Config,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeConfig,
    LlamaConfig,
    Ministral3Config,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OPTConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SeedOssConfig,
    SmolLM3Config,
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
    # Components of a head that are rotated, where not all are.
    rope_dims: int = 0
    # What the HF config says beyond all this, in its own words.
    config: dict[str, Any] = field(default_factory=dict)
    # Mistakes of this family that a change of the config makes, by name.
    mistakes: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Such as change little, because two formulas are nearly one.
    faint_mistakes: dict[str, dict[str, Any]] = field(default_factory=dict)
    prompt_tokens: int = 36
    decode_tokens: int = 8
    # Standard deviation of gate pre-activations; small where a threshold near
    # zero must matter.
    gate_gain: float = 1.0

    @property
    def has_qk_norm(self) -> bool:
        return self.family in ("qwen3", "qwen3_moe", "gemma3_text", "olmo2", "glm4_moe")

    @property
    def has_qkv_bias(self) -> bool:
        return self.attention_bias or self.family in ("qwen2", "qwen2_moe", "seed_oss")

    @property
    def is_older(self) -> bool:
        """Whether the family came before Llama and shares few of its words."""
        return self.family in _OLDER

    @property
    def is_converted(self) -> bool:
        """Whether the public converter writes the GGUF, and not gguf_out.py."""
        return self.family in _CONVERTED

    @property
    def norm_offset(self) -> float:
        """What the family adds to the weights of its norms."""
        return 1.0 if self.family.startswith("gemma") else 0.0


# Written by gguf_out.py, which needs no converter.
_CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "mixtral": MixtralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "qwen3_moe": Qwen3MoeConfig,
    "opt": OPTConfig,
}
_CONVERTED: dict[str, type[PreTrainedConfig]] = {
    "ernie4_5": Ernie4_5Config,
    "falcon": FalconConfig,
    "gemma2": Gemma2Config,
    "gemma3_text": Gemma3TextConfig,
    "glm4": Glm4Config,
    "glm4_moe": Glm4MoeConfig,
    "gpt2": GPT2Config,
    "gpt_oss": GptOssConfig,
    "granite": GraniteConfig,
    "granitemoe": GraniteMoeConfig,
    "ministral3": Ministral3Config,
    "olmo2": Olmo2Config,
    "phi3": Phi3Config,
    "qwen2_moe": Qwen2MoeConfig,
    "seed_oss": SeedOssConfig,
    "smollm3": SmolLM3Config,
}
# What came before Llama, with words of its own: modules and fields of configs.
_OLDER = ("falcon", "gpt2", "opt")
# Families whose config has no head_dim: it is hidden / heads.
_WITHOUT_HEAD_DIM = ("qwen2", "qwen2_moe", "phi3", "olmo2", "granite", "granitemoe")


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
    if case.family not in _WITHOUT_HEAD_DIM:
        values["head_dim"] = case.head_dim
    elif case.head_dim * case.num_heads != case.hidden_size:
        raise ValueError(f"{case.name}: {case.family} wants head_dim = hidden / heads")
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
    if case.family in _OLDER:
        values = _older_values(case)
    return (_CONFIGS | _CONVERTED)[case.family](**(values | case.config | changes))


def _older_values(case: Case) -> dict[str, Any]:
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID,
              "tie_word_embeddings": True}
    if case.family == "opt":
        return common | {
            "hidden_size": case.hidden_size, "word_embed_proj_dim": case.hidden_size,
            "ffn_dim": case.intermediate_size, "num_hidden_layers": case.num_layers,
            "num_attention_heads": case.num_heads, "max_position_embeddings": CONTEXT_LENGTH,
            "activation_function": case.activation}
    if case.family == "gpt2":
        return common | {
            "n_embd": case.hidden_size, "n_inner": case.intermediate_size,
            "n_layer": case.num_layers, "n_head": case.num_heads,
            "n_positions": CONTEXT_LENGTH, "n_ctx": CONTEXT_LENGTH,
            "layer_norm_epsilon": RMS_EPS}
    return common | {
        "hidden_size": case.hidden_size, "ffn_hidden_size": case.intermediate_size,
        "num_hidden_layers": case.num_layers, "num_attention_heads": case.num_heads,
        "num_kv_heads": case.num_kv_heads, "layer_norm_epsilon": RMS_EPS,
        "rope_parameters": {"rope_type": "default", "rope_theta": case.rope_theta}}


def make_tokens(case: Case) -> tuple[list[int], list[int]]:
    """Returns (prompt with BOS in front, teacher-forced decode tokens).

    Random ids and not the model's own choices: greedy text of random weights
    soon loops and would try few embeddings.
    """
    rng = np.random.default_rng([case.seed, *b"tokens"])
    n = case.prompt_tokens - 1 + case.decode_tokens
    ids = [int(i) for i in rng.integers(EOS_ID + 1, VOCAB_SIZE, n)]
    return [BOS_ID] + ids[: case.prompt_tokens - 1], ids[case.prompt_tokens - 1 :]
