"""Writes a golden model as GGUF, by llama.cpp's keys, names and row orders."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, RopeScalingType, TokenType
from torch import nn

from families import BOS_ID, CONTEXT_LENGTH, EOS_ID, RMS_EPS, VOCAB_SIZE, Case

UNK_ID = 0
OPT_EPS = 1e-5  # not in its config
# Words and fragments that merge, so that the tokenizer does more than bytes.
PIECES = (
    "\u2581", "e", "t", "a", "o", "n", "h", "r", "i", "s", "d", "l", ".", ",",
    "he", "in", "an", "\u2581t", "\u2581a", "\u2581the", "er", "on", "re", "nd",
    "\u2581and", "\u2581s", "ll", "\u2581he", "ed",
)


def permute_rope_rows(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorders q or k rows (or bias entries) from half to adjacent pairs.

    HF rotates row i of a head with row i + head_dim/2. Architecture llama in
    GGUF rotates rows 2i and 2i+1 instead, so row i goes to 2i and row
    i + head_dim/2 to 2i+1, within each head.
    """
    head_dim = rows.shape[0] // num_heads
    heads = rows.reshape(num_heads, head_dim, *rows.shape[1:])
    paired = np.empty_like(heads)
    paired[:, 0::2] = heads[:, : head_dim // 2]
    paired[:, 1::2] = heads[:, head_dim // 2 :]
    return paired.reshape(rows.shape)


def llama3_frequency_divisors(case: Case) -> np.ndarray:
    """The factors of `rope_freqs.weight`: frequencies are divided by them.

    1 for wavelengths below original/high_freq_factor positions, `factor` above
    original/low_freq_factor; between them the frequency (not the divisor) is
    mixed linearly in original/wavelength.
    """
    scaling = case.rope_scaling
    factor = scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    exponents = np.arange(0, case.head_dim, 2) / case.head_dim
    wavelengths = 2.0 * math.pi * case.rope_theta**exponents
    turns = scaling["original_max_position_embeddings"] / wavelengths
    unscaled_share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / (unscaled_share + (1.0 - unscaled_share) / factor)).astype(np.float32)


def _first_tokens() -> list[str]:
    return ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]


def tokenizer_json() -> dict[str, Any]:
    """The vocabulary of add_tokenizer as a folder of Hugging Face has it: every way to make a
    piece of two, best pieces first."""
    tokens = _first_tokens() + list(PIECES)
    merges = [[piece[:cut], piece[cut:]] for piece in PIECES for cut in range(1, len(piece))
              if piece[:cut] in PIECES and piece[cut:] in PIECES]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    bos = {"id": "<s>", "type_id": 0}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i]} | special for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": bos}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": bos}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS_ID], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }


def add_tokenizer(writer: GGUFWriter) -> None:
    """A SentencePiece vocabulary: 3 control pieces, 256 bytes, then PIECES."""
    tokens = _first_tokens()
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(PIECES)
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(PIECES))]
    tokens += PIECES
    if len(tokens) != VOCAB_SIZE or len(set(tokens)) != VOCAB_SIZE:
        raise ValueError(f"{len(tokens)} pieces, {VOCAB_SIZE} wanted")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(UNK_ID)
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def _add_rope_keys(writer: GGUFWriter, case: Case) -> None:
    writer.add_rope_dimension_count(case.head_dim)
    writer.add_rope_freq_base(case.rope_theta)
    scaling = case.rope_scaling
    kind = scaling.get("rope_type")
    if kind == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "yarn":
        factor = scaling["factor"]
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
        if "attention_factor" in scaling:
            # The key multiplies the default 0.1 ln(factor) + 1; HF's replaces it.
            default = 0.1 * math.log(factor) + 1.0
            writer.add_rope_scaling_attn_factors(scaling["attention_factor"] / default)


def _add_metadata(writer: GGUFWriter, case: Case) -> None:
    writer.add_name(f"hearth golden {case.name}")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_vocab_size(VOCAB_SIZE)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(case.hidden_size)
    writer.add_block_count(case.num_layers)
    writer.add_feed_forward_length(case.intermediate_size)
    writer.add_head_count(case.num_heads)
    writer.add_head_count_kv(case.num_kv_heads)
    writer.add_key_length(case.head_dim)
    writer.add_value_length(case.head_dim)
    if case.family == "opt":
        writer.add_layer_norm_eps(OPT_EPS)
        return
    writer.add_layer_norm_rms_eps(RMS_EPS)
    _add_rope_keys(writer, case)
    if case.sliding_window is not None:
        writer.add_sliding_window(case.sliding_window)
    if case.num_experts:
        writer.add_expert_count(case.num_experts)
        writer.add_expert_used_count(case.num_experts_per_token)
        if case.arch == "qwen3moe":
            writer.add_expert_feed_forward_length(case.intermediate_size)
    if case.activation != "silu":
        writer.add_string("hearth.ffn_activation", case.activation)
        if case.activation == "fatrelu":
            writer.add_float32("hearth.ffn_threshold", case.threshold)


_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}


def _layer_tensors(case: Case, name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """GGUF tensors of HF parameter `model.layers.N.<rest>`."""
    _, _, layer, rest = name.split(".", 3)
    prefix = f"blk.{layer}."
    if rest == "mlp.experts.gate_up_proj":  # [experts, gate rows then up rows, hidden]
        gate, up = np.split(values, 2, axis=1)
        return {prefix + "ffn_gate_exps.weight": gate, prefix + "ffn_up_exps.weight": up}
    if rest == "mlp.experts.down_proj":
        return {prefix + "ffn_down_exps.weight": values}
    module, kind = rest.rsplit(".", 1)
    if case.arch == "llama" and module.endswith(("q_proj", "k_proj")):
        heads = case.num_heads if module.endswith("q_proj") else case.num_kv_heads
        values = permute_rope_rows(values, heads)
    return {f"{prefix}{_LAYER_NAMES[module]}.{kind}": values}


_OPT_NAMES = {
    "self_attn_layer_norm": "attn_norm",
    "final_layer_norm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "fc1": "ffn_up",
    "fc2": "ffn_down",
}
_OPT_TOP_NAMES = {
    "embed_tokens": "token_embd",
    "embed_positions": "position_embd",
    "final_layer_norm": "output_norm",
}


def _opt_name(name: str) -> str:
    """GGUF's name of HF parameter `model.decoder.<rest>`; no public converter knows OPT."""
    module, kind = name.removeprefix("model.decoder.").rsplit(".", 1)
    if not module.startswith("layers."):
        return f"{_OPT_TOP_NAMES[module]}.{kind}"
    _, layer, rest = module.split(".", 2)
    return f"blk.{layer}.{_OPT_NAMES[rest]}.{kind}"


def gguf_tensors(case: Case, model: nn.Module) -> dict[str, np.ndarray]:
    """All tensors of the file by GGUF name, in numpy's (reversed) order of axes."""
    tensors: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        if case.family == "opt":
            tensors[_opt_name(name)] = values
        elif name in _TOP_NAMES:
            tensors[_TOP_NAMES[name]] = values
        else:
            tensors |= _layer_tensors(case, name, values)
    if case.rope_scaling.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = llama3_frequency_divisors(case)
    return tensors


def write_gguf(case: Case, model: nn.Module, path: Path) -> None:
    """Writes the float32 model; the same case gives the same bytes."""
    writer = GGUFWriter(path, case.arch)
    _add_metadata(writer, case)
    add_tokenizer(writer)
    for name, values in gguf_tensors(case, model).items():
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32),
                          raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
