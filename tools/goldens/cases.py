"""The golden cases: which tiny models are made."""

from __future__ import annotations

from families import CONTEXT_LENGTH, FATRELU_THRESHOLD, Case

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
# Large where Ministral 3 has 0.1: prompts end at three times the original context.
MINISTRAL_YARN = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.2}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
    "low_freq_factor": 0.25,
    "high_freq_factor": 2.0,
}

PADLESS = {"pad_token_id": None}
UNSCALED = {"rope_type": "default"}
# Not what config fields of these names have where nothing is said, which is 1.
GRANITE_SCALES = {"embedding_multiplier": 6.0, "residual_multiplier": 0.22,
                  "attention_multiplier": 0.5, "logits_scaling": 1.75}
LONG_FACTORS = [1.0, 2.5, 5.0, 8.0]
SHORT_FACTORS = [1.0, 1.25, 1.5, 2.0]


def gemma3_ropes(local_theta: float = 300.0, scaling: dict = LINEAR,
                 local_scaling: dict = UNSCALED) -> dict:
    """Gemma 3 rotates by another base, and unscaled, in layers with a window."""
    return {"full_attention": scaling | {"rope_theta": 5000.0},
            "sliding_attention": local_scaling | {"rope_theta": local_theta}}


def phi3_rope(share: float = 0.5) -> dict:
    return UNSCALED | {"rope_theta": 5000.0, "partial_rotary_factor": share}


def long_rope(**changes: object) -> dict:
    """Contexts of up to ORIGINAL_CONTEXT tokens take the short factors."""
    return {"rope_type": "longrope", "rope_theta": 5000.0, "long_factor": LONG_FACTORS,
            "short_factor": SHORT_FACTORS, "partial_rotary_factor": 1.0,
            "original_max_position_embeddings": ORIGINAL_CONTEXT,
            "factor": CONTEXT_LENGTH / ORIGINAL_CONTEXT} | changes


# Seeds 409, 1912, 1416, 1505, 809, 7311 and 312 are those of 20 or 40 tried whose decisions lie widest apart
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
    Case("gemma2", 211, family="gemma2", arch="gemma2", intermediate_size=24,
         num_layers=4, tied=True, activation="gelu", sliding_window=7,
         rope_theta=10000.0,  # not in the file: the converter takes it for granted
         config=PADLESS | {"sliding_window": 7, "query_pre_attn_scalar": 16,
                           "attn_logit_softcapping": 6.0, "final_logit_softcapping": 6.0},
         mistakes={"scores not capped": {"attn_logit_softcapping": None},
                   "logits not capped": {"final_logit_softcapping": None},
                   "windows in all layers": {"layer_types": ["sliding_attention"] * 4},
                   "windows in the other layers": {
                       "layer_types": ["full_attention", "sliding_attention"] * 2},
                   "scores scaled otherwise": {"query_pre_attn_scalar": 8}}),
    Case("gemma3", 202, family="gemma3_text", arch="gemma3", intermediate_size=24,
         num_layers=7, tied=True, activation="gelu", sliding_window=7,
         config=PADLESS | {"sliding_window": 7, "query_pre_attn_scalar": 16,
                           "rope_parameters": gemma3_ropes()},
         mistakes={"no windows": {"layer_types": ["full_attention"] * 7},
                   "windows in all layers": {"layer_types": ["sliding_attention"] * 7},
                   "one base for all layers": {
                       "rope_parameters": gemma3_ropes(local_theta=5000.0)},
                   "scaling in layers with a window": {
                       "rope_parameters": gemma3_ropes(local_scaling=LINEAR)},
                   "scaling nowhere": {"rope_parameters": gemma3_ropes(scaling=UNSCALED)},
                   "scores scaled otherwise": {"query_pre_attn_scalar": 8}}),
    Case("phi3", 203, family="phi3", arch="phi3", head_dim=8, rope_dims=4, sliding_window=9,
         config=PADLESS | {"sliding_window": 9, "rope_parameters": phi3_rope(),
                           "original_max_position_embeddings": CONTEXT_LENGTH},
         mistakes={"all of a head rotated": {"rope_parameters": phi3_rope(share=1.0)}}),
    Case("phi3-longrope", 204, family="phi3", arch="phi3", head_dim=8, tied=True,
         config=PADLESS | {"rope_parameters": long_rope(),
                           "original_max_position_embeddings": ORIGINAL_CONTEXT},
         mistakes={"short factors": {"rope_parameters": long_rope(long_factor=SHORT_FACTORS)},
                   "no factors": {"rope_parameters": long_rope(long_factor=[1.0] * 4)},
                   "attention factor 1": {
                       "rope_parameters": long_rope(attention_factor=1.0)}}),
    Case("qwen2moe", 1505, family="qwen2_moe", arch="qwen2moe", head_dim=8,
         intermediate_size=20, num_experts=6, num_experts_per_token=3,
         config=PADLESS | {"num_experts": 6, "num_experts_per_tok": 3,
                           "moe_intermediate_size": 20,
                           "shared_expert_intermediate_size": 28, "norm_topk_prob": False},
         mistakes={"expert weights normalized": {"norm_topk_prob": True}}),
    Case("olmo2", 206, family="olmo2", arch="olmo2", head_dim=8, config=PADLESS),
    Case("smollm3", 207, family="smollm3", arch="smollm3", head_dim=8, num_layers=5,
         intermediate_size=24, tied=True,
         config=PADLESS | {"no_rope_layer_interval": 4},
         mistakes={"rotated in all layers": {"no_rope_layers": [1] * 5},
                   "rotated in other layers": {"no_rope_layers": [1, 1, 0, 1, 1]}}),
    Case("granite", 208, family="granite", arch="granite", head_dim=8,
         config=PADLESS | GRANITE_SCALES,
         mistakes={f"{name} ignored": {name: 1.0} for name in GRANITE_SCALES}),
    Case("granitemoe", 809, family="granitemoe", arch="granitemoe", head_dim=8, tied=True,
         intermediate_size=20, num_experts=5, num_experts_per_token=2,
         config=PADLESS | GRANITE_SCALES | {"num_local_experts": 5, "num_experts_per_tok": 2}),
    Case("glm4", 210, family="glm4", arch="glm4", rope_dims=8, attention_bias=True,
         config=PADLESS | {"attention_bias": True, "rope_parameters": phi3_rope()},
         mistakes={"all of a head rotated": {"rope_parameters": phi3_rope(share=1.0)}}),
    Case("glm4moe", 7311, family="glm4_moe", arch="glm4moe", num_layers=3, rope_dims=8,
         intermediate_size=20, num_experts=8, num_experts_per_token=3,
         config=PADLESS | {"attention_bias": True, "use_qk_norm": True,
                           "rope_parameters": phi3_rope(), "first_k_dense_replace": 1,
                           "intermediate_size": 28, "moe_intermediate_size": 20,
                           "n_routed_experts": 8, "num_experts_per_tok": 3,
                           "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
                           "routed_scaling_factor": 1.75, "num_nextn_predict_layers": 0},
         mistakes={"experts of one group": {"n_group": 1, "topk_group": 1},
                   "expert weights not scaled": {"routed_scaling_factor": 1.0},
                   "expert weights not normalized": {"norm_topk_prob": False}}),
    Case("gpt-oss", 312, family="gpt_oss", arch="gpt-oss", num_layers=3, attention_bias=True,
         intermediate_size=20, num_experts=6, num_experts_per_token=2, sliding_window=7,
         activation="clamped_swiglu", rope_theta=500.0,
         rope_scaling=YARN | {"truncate": False},
         config=PADLESS | {"sliding_window": 7, "num_local_experts": 6,
                           "num_experts_per_tok": 2},
         mistakes={"windows in all layers": {"layer_types": ["sliding_attention"] * 3},
                   "ramp from and to whole pairs": {
                       "rope_parameters": YARN | {"rope_theta": 500.0}},
                   "limit of SwiGLU 3": {"swiglu_limit": 3.0},
                   "silu's factor": {"swiglu_alpha": 1.0}}),
    Case("seed_oss", 219, family="seed_oss", arch="seed_oss", config=PADLESS),
    Case("ernie4_5", 220, family="ernie4_5", arch="ernie4_5", tied=True, config=PADLESS),
    Case("mistral3", 218, family="ministral3", arch="mistral3", intermediate_size=24,
         tied=True, rope_theta=500.0, rope_scaling=MINISTRAL_YARN, config=PADLESS,
         mistakes={"queries do not grow": {
                       "rope_parameters": MINISTRAL_YARN | {"llama_4_scaling_beta": 0.0,
                                                            "rope_theta": 500.0}},
                   "scores by YaRN's factor": {
                       "rope_parameters": YARN | {"llama_4_scaling_beta": 0.2,
                                                  "rope_theta": 500.0}}}),
    Case("llama-mlp-bias", 213, head_dim=8, tied=True, config={"mlp_bias": True}),
    # The converter takes 4 * hidden for granted, and Falcon's RoPE base.
    Case("gpt2", 214, family="gpt2", arch="gpt2", num_kv_heads=4, head_dim=8,
         intermediate_size=128,
         activation="gelu",
         faint_mistakes={"gelu by erf": {"activation_function": "gelu"}},
         mistakes={"relu instead": {"activation_function": "relu"},
                   "eps 1e-6": {"layer_norm_epsilon": 1e-6}}),
    Case("opt", 215, family="opt", arch="opt", num_kv_heads=4, head_dim=8, activation="relu",
         mistakes={"gelu instead": {"activation_function": "gelu"},
                   "norms after blocks": {"do_layer_norm_before": False}}),
    Case("falcon", 216, family="falcon", arch="falcon", num_kv_heads=1, head_dim=8,
         intermediate_size=128, rope_theta=10000.0,
         faint_mistakes={"gelu by tanh": {"activation": "gelu_pytorch_tanh"}},
         mistakes={"one after the other": {"parallel_attn": False},
                   "rope base x 1.5": {"rope_parameters": {"rope_type": "default",
                                                           "rope_theta": 15000.0}},
                   "eps 1e-6": {"layer_norm_epsilon": 1e-6}}),
    Case("falcon-two-norms", 217, family="falcon", arch="falcon", num_kv_heads=2, head_dim=8,
         intermediate_size=128, rope_theta=10000.0,
         config={"new_decoder_architecture": True},
         faint_mistakes={"gelu by tanh": {"activation": "gelu_pytorch_tanh"}},
         mistakes={"eps 1e-6": {"layer_norm_epsilon": 1e-6}}),
)
