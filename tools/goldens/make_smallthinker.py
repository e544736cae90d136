#!/usr/bin/env python3
"""Makes the goldens of SmallThinker, of which transformers has no class.

Weights are drawn as make_goldens.py draws them and saved as Hugging Face publishes them; the public
converter writes the GGUF; the logits are those of check_gguf.py, in numpy and float64 from the GGUF
alone. Every mistake that is listed here must move them. compare_llamacpp.py --goldens says whether
llama.cpp computes the same.

    make_smallthinker.py --converter DIR [--out DIR] [--folders DIR]

DIR is an unpacked source package of llama-cpp-python. Needs what requirements.txt names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import check_gguf
from convert import convert_folder
from families import BOS_ID, CONTEXT_LENGTH, EMBEDDING_STD, EOS_ID, RMS_EPS, VOCAB_SIZE
from gguf_out import tokenizer_json
from make_goldens import DEFAULT_OUT, MIN_SIGMOID_GAP, format_json
from mutation import LEAST_CHANGE

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 32, 4, 2, 16, 24
PROMPT_TOKENS, DECODE_TOKENS = 36, 8
PERIOD = check_gguf.SMALLTHINKER_PERIOD
Mistake = Callable[[check_gguf.Model], None]


@dataclass(frozen=True)
class SmallThinkerCase:
    """window: 0 for models that see and rotate everything in all layers."""

    name: str
    seed: int
    num_layers: int
    window: int = 0
    num_experts: int = 6
    num_experts_per_token: int = 3
    softmax: bool = False
    tied: bool = False


# The last one is as the first for as far as its prompt goes, and llama.cpp, which takes all
# windows for 4096 tokens, can judge it.
CASES = (
    SmallThinkerCase("smallthinker", 901, num_layers=5, window=7),
    SmallThinkerCase("smallthinker-softmax", 1142, num_layers=2, num_experts=5,
                     num_experts_per_token=2, softmax=True, tied=True),
    SmallThinkerCase("smallthinker-wide", 673, num_layers=2, window=4096, num_experts=5,
                     num_experts_per_token=2, tied=True),
)


def config_of(case: SmallThinkerCase) -> dict[str, Any]:
    sees_all = [case.window == 0 or layer % PERIOD == 0 for layer in range(case.num_layers)]
    rotates = [1 if case.window == 0 or not sees else 0 for sees in sees_all]
    return {
        "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker",
        "hidden_size": HIDDEN, "num_hidden_layers": case.num_layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT_LENGTH, "rms_norm_eps": RMS_EPS,
        "rope_theta": 5000.0, "rope_scaling": None, "rope_layout": rotates,
        "sliding_window_layout": [0 if sees else 1 for sees in sees_all],
        "sliding_window_size": case.window or 4096,
        "moe_num_primary_experts": case.num_experts, "moe_ffn_hidden_size": FFN,
        "moe_num_active_primary_experts": case.num_experts_per_token,
        "moe_primary_router_apply_softmax": case.softmax, "norm_topk_prob": True,
        "tie_word_embeddings": case.tied, "vocab_size": VOCAB_SIZE,
        "bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "torch_dtype": "float32",
    }


def shapes_of(case: SmallThinkerCase) -> dict[str, tuple[tuple[int, ...], float]]:
    """Published name: (shape, standard deviation; 0 for a norm)."""
    unit = 1.0 / math.sqrt(HIDDEN)
    shapes: dict[str, tuple[tuple[int, ...], float]] = {
        "model.embed_tokens": ((VOCAB_SIZE, HIDDEN), EMBEDDING_STD),
        "model.norm": ((HIDDEN,), 0)}
    if not case.tied:
        shapes["lm_head"] = ((VOCAB_SIZE, HIDDEN), 3 * unit)
    for layer in range(case.num_layers):
        parts = {
            "input_layernorm": ((HIDDEN,), 0), "post_attention_layernorm": ((HIDDEN,), 0),
            "self_attn.q_proj": ((HEADS * HEAD_DIM, HIDDEN), 1.4 * unit),
            "self_attn.k_proj": ((KV_HEADS * HEAD_DIM, HIDDEN), 1.4 * unit),
            "self_attn.v_proj": ((KV_HEADS * HEAD_DIM, HIDDEN), unit),
            "self_attn.o_proj": ((HIDDEN, HEADS * HEAD_DIM), 0.04 / math.sqrt(HEADS * HEAD_DIM)),
            # What it reads is as small as embeddings.
            "block_sparse_moe.primary_router": ((case.num_experts, HIDDEN),
                                                0.8 * unit / EMBEDDING_STD)}
        for expert in range(case.num_experts):
            prefix = f"block_sparse_moe.experts.{expert}."
            parts |= {prefix + "gate": ((FFN, HIDDEN), unit), prefix + "up": ((FFN, HIDDEN), unit),
                      prefix + "down": ((HIDDEN, FFN), 0.06 / math.sqrt(FFN))}
        shapes |= {f"model.layers.{layer}.{name}": part for name, part in parts.items()}
    return shapes


def draw(case: SmallThinkerCase) -> dict[str, np.ndarray]:
    """One stream of uniform numbers per tensor."""
    tensors = {}
    for module, (shape, std) in shapes_of(case).items():
        name = module + ".weight"
        rng = np.random.default_rng([case.seed, *name.encode()])
        if std == 0:
            # Tied embeddings are too small to make peaked logits by themselves.
            peaks = module == "model.norm" and case.tied
            gain = 3.0 / (EMBEDDING_STD * math.sqrt(HIDDEN)) if peaks else 1.0
            values = gain * rng.uniform(0.5, 1.5, shape)
        else:
            values = rng.uniform(-std * math.sqrt(3), std * math.sqrt(3), shape)
        tensors[name] = values.astype(np.float32)
    return tensors


def save_published(case: SmallThinkerCase, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(draw(case), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(case)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))


def mistakes_of(case: SmallThinkerCase) -> dict[str, Mistake]:
    """Changes of what the file says or the reference does, by name."""
    def set_key(key: str, change: Callable[[Any], Any]) -> Mistake:
        return lambda m: m.keys.update({key: change(m.keys[key])})

    def set_layers(field: str, value: Any) -> Mistake:
        return lambda m: setattr(m, field, [value] * case.num_layers)

    mistakes: dict[str, Mistake] = {
        "router after attention": lambda m: setattr(m, "routes_before_attention", False),
        "the other scores of experts": set_key("expert_gating_func", lambda score: 3 - score),
        "silu": lambda m: m.keys.update({"hearth.ffn_activation": "silu"}),
        "drelu": lambda m: m.keys.update({"hearth.ffn_activation": "drelu"}),
        "one expert less": set_key("expert_used_count", lambda count: count - 1),
        "rope base": set_key("rope.freq_base", lambda base: base * 1.5),
        "epsilon": set_key("attention.layer_norm_rms_epsilon", lambda epsilon: epsilon / 30),
        "rope in adjacent pairs": lambda m: setattr(m, "arch", "llama")}
    if case.window:
        mistakes["rope in all layers"] = set_layers("rotates", True)
        mistakes["rope nowhere"] = set_layers("rotates", False)
    if 0 < case.window < PROMPT_TOKENS:
        mistakes["windows in all layers"] = set_layers("windows", case.window)
        mistakes["windows nowhere"] = set_layers("windows", 0)
    return mistakes


def tokens_of(case: SmallThinkerCase) -> list[int]:
    rng = np.random.default_rng([case.seed, *b"tokens"])
    count = PROMPT_TOKENS + DECODE_TOKENS - 1
    return [BOS_ID] + [int(i) for i in rng.integers(EOS_ID + 1, VOCAB_SIZE, count)]


def positions_of(case: SmallThinkerCase) -> list[int]:
    chosen = {0, 1, 2, PROMPT_TOKENS // 2, PROMPT_TOKENS - 2, PROMPT_TOKENS - 1}
    if 0 < case.window < PROMPT_TOKENS:
        chosen |= {case.window - 1, case.window, case.window + 1}
    return sorted(chosen) + list(range(PROMPT_TOKENS, PROMPT_TOKENS + DECODE_TOKENS))


def decision_gap(case: SmallThinkerCase, path: Path, tokens: list[int]) -> float:
    """The least distance between the last chosen and the first refused score of an expert."""
    gaps = []
    model = check_gguf.Model(path)
    score = check_gguf.expert_scores

    def watched(*args: Any) -> np.ndarray:
        scores = score(*args)
        ranked = -np.sort(-scores, axis=1)
        chosen = case.num_experts_per_token
        gaps.append(float((ranked[:, chosen - 1] - ranked[:, chosen]).min()))
        return scores

    check_gguf.expert_scores = watched
    check_gguf.logits(model, tokens)
    check_gguf.expert_scores = score
    return min(gaps)


def checks_of(case: SmallThinkerCase, path: Path, reference: np.ndarray) -> dict[str, Any]:
    tokens, positions = tokens_of(case), positions_of(case)
    gap = decision_gap(case, path, tokens)
    if gap < MIN_SIGMOID_GAP:
        raise SystemExit(f"{case.name}: decision gap {gap:.1e}: take another seed")
    changes = {}
    for name, change in mistakes_of(case).items():
        model = check_gguf.Model(path)
        change(model)
        logits = check_gguf.logits(model, tokens)[positions]
        changed = np.abs(logits - reference).max() / np.abs(reference).max()
        if not changed > LEAST_CHANGE:
            raise SystemExit(f"{case.name}: '{name}' changes only {changed:.2e}")
        changes[name] = float(f"{changed:.1e}")
    return {"decision_gap": float(f"{gap:.1e}"),
            "max_abs_logit": float(f"{np.abs(reference).max():.3f}"), "mutations": changes}


def write_case(case: SmallThinkerCase, args: argparse.Namespace) -> None:
    path = args.out / f"{case.name}.gguf"
    logits_path = args.out / f"{case.name}.logits.f32"
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.folders or Path(temporary)) / f"hearth-golden-{case.name}"
        save_published(case, folder)
        convert_folder(folder, args.converter, path)
    tokens, positions = tokens_of(case), positions_of(case)
    reference = check_gguf.logits(check_gguf.Model(path), tokens)[positions]
    logits_path.write_bytes(reference.astype("<f4").tobytes())
    document = {
        "family": "smallthinker", "arch": "smallthinker", "gguf_version": version("gguf"),
        "numpy_version": version("numpy"), "seed": case.seed, "reference_dtype": "float64",
        "model": path.name, "model_sha": hashlib.sha256(path.read_bytes()).hexdigest(),
        "prompt": tokens[:PROMPT_TOKENS], "decode": tokens[PROMPT_TOKENS:],
        "positions": positions, "vocab_size": VOCAB_SIZE, "file": logits_path.name,
        "logits_sha": hashlib.sha256(logits_path.read_bytes()).hexdigest(),
        "checks": checks_of(case, path, reference)}
    (args.out / f"{case.name}.json").write_text(format_json(document))
    print(f"{case.name:21} {path.stat().st_size:7} B  {document['checks']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--converter", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--folders", type=Path, metavar="DIR")
    args = parser.parse_args()
    for case in CASES:
        write_case(case, args)


if __name__ == "__main__":
    main()
