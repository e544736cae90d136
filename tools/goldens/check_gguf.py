#!/usr/bin/env python3
"""Recomputes the golden logits from the GGUF files alone, in numpy and float64.

make_goldens.py takes the logits from Hugging Face and writes the GGUF beside
them; a mistake in the file (rows in the wrong order, a wrong key) would make a
golden that no correct engine can meet. llama.cpp catches that for what it
knows (compare_llamacpp.py --goldens), this program for all cases that
gguf_out.py writes. It is also the shortest statement of what they mean. Needs numpy and gguf, not torch.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType

GOLDENS = Path(__file__).resolve().parents[2] / "tests" / "goldens"
# Half a last bit of float32 in the file, and keys stored in float32.
TOLERANCE = 1e-6
# What gguf_out.py writes, and SmallThinker, which has no other reference. transformers and llama.cpp
# check what llama.cpp's converter writes of other families.
CHECKED_ARCHS = ("llama", "qwen2", "qwen3", "qwen3moe", "smallthinker")
SMALLTHINKER_PERIOD = 4
SIGMOID = 2  # of expert_gating_func


class Model:
    """A golden GGUF: tensors as float64 in row-major [out, in], keys without prefix."""

    def __init__(self, path: Path):
        reader = GGUFReader(path)
        self.tensors = {t.name: np.array(t.data, np.float64) for t in reader.tensors}
        keys = {name: entry.contents() for name, entry in reader.fields.items()
                if entry.types and entry.types[0] != GGUFValueType.ARRAY}
        self.arch: str = keys["general.architecture"]
        self.keys = {name.removeprefix(self.arch + "."): value for name, value in keys.items()}
        self.head_dim: int = self.keys["attention.key_length"]
        # Whether routers read what a layer begins with, and not what its experts read.
        self.routes_before_attention = self.arch == "smallthinker"
        window = self.keys.get("attention.sliding_window", 0)
        layers = range(self.keys["block_count"])
        # SmallThinker with windows: the first layer of every four has none, and rotates nothing.
        mixes = self.arch == "smallthinker" and window > 0
        sees_all = [mixes and layer % SMALLTHINKER_PERIOD == 0 for layer in layers]
        self.windows = [0 if sees_all[layer] else window for layer in layers]
        self.rotates = [not sees_all[layer] for layer in layers]

    def norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        eps = self.keys["attention.layer_norm_rms_epsilon"]
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope_frequencies(model: Model) -> tuple[np.ndarray, float]:
    """Returns (radians per position [head_dim/2], factor on cos and sin)."""
    keys, d = model.keys, model.head_dim
    base = keys["rope.freq_base"]
    frequencies = base ** (-np.arange(0, d, 2) / d)
    kind, factor = keys.get("rope.scaling.type"), keys.get("rope.scaling.factor", 1.0)
    if "rope_freqs.weight" in model.tensors:
        frequencies = frequencies / model.tensors["rope_freqs.weight"]
    if kind == "linear":
        return frequencies / factor, 1.0
    if kind != "yarn":
        return frequencies, 1.0

    def ramp_end(turns: float) -> float:
        context = keys["rope.scaling.original_context_length"]
        return d * math.log(context / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(ramp_end(keys.get("rope.scaling.yarn_beta_fast", 32.0))), 0)
    high = min(math.ceil(ramp_end(keys.get("rope.scaling.yarn_beta_slow", 1.0))), d - 1)
    ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
    magnitude = keys.get("rope.scaling.attn_factor", 1.0) * (0.1 * math.log(factor) + 1)
    return frequencies * (1 - ramp + ramp / factor), magnitude


def rotate(model: Model, x: np.ndarray) -> np.ndarray:
    """RoPE on x [tokens, heads, head_dim]; the first token is at position 0."""
    half = model.head_dim // 2
    if model.arch == "llama":
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, half), slice(half, None)
    frequencies, magnitude = rope_frequencies(model)
    angles = (np.arange(len(x))[:, None] * frequencies)[:, None]
    cos, sin = magnitude * np.cos(angles), magnitude * np.sin(angles)
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(model: Model, index: int, x: np.ndarray) -> np.ndarray:
    tensors, keys, n, layer = model.tensors, model.keys, len(x), f"blk.{index}."

    def project(name: str, v: np.ndarray) -> np.ndarray:
        return v @ tensors[f"{layer}{name}.weight"].T + tensors.get(f"{layer}{name}.bias", 0.0)

    q, k, v = (project(name, x).reshape(n, -1, model.head_dim)
               for name in ("attn_q", "attn_k", "attn_v"))
    if layer + "attn_q_norm.weight" in tensors:
        q = model.norm(q, tensors[layer + "attn_q_norm.weight"])
        k = model.norm(k, tensors[layer + "attn_k_norm.weight"])
    if model.rotates[index]:
        q, k = rotate(model, q), rotate(model, k)
    group = keys["attention.head_count"] // keys["attention.head_count_kv"]
    i, j = np.mgrid[:n, :n]
    visible = (j <= i) & (j > i - (model.windows[index] or n))
    out = np.empty_like(q)
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T / math.sqrt(model.head_dim)
        out[:, head] = softmax(np.where(visible, scores, -np.inf)) @ v[:, head // group]
    return project("attn_output", out.reshape(n, -1))


def gated(model: Model, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The product that reaches down."""
    usual = "relu" if model.arch == "smallthinker" else "silu"
    kind = model.keys.get("hearth.ffn_activation", usual)
    if kind == "silu":
        return gate / (1 + np.exp(-gate)) * up
    if kind == "drelu":
        return np.maximum(gate, 0) * np.maximum(up, 0)
    threshold = {"relu": 0.0, "fatrelu": model.keys.get("hearth.ffn_threshold")}[kind]
    return np.where(gate > threshold, gate, 0) * up


def expert_scores(model: Model, layer: str, x: np.ndarray) -> np.ndarray:
    products = x @ model.tensors[layer + "ffn_gate_inp.weight"].T
    if model.keys.get("expert_gating_func") == SIGMOID:
        return 1 / (1 + np.exp(-products))
    return softmax(products)


def feed_forward(model: Model, layer: str, x: np.ndarray, scores: np.ndarray | None) -> np.ndarray:
    """`scores`: of the experts [tokens, experts]; None where there are none."""
    tensors = model.tensors
    if scores is None:
        def project(part: str, v: np.ndarray) -> np.ndarray:
            name = f"{layer}ffn_{part}"
            return v @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0.0)

        return project("down", gated(model, project("gate", x), project("up", x)))
    gate, up, down = (tensors[f"{layer}ffn_{p}_exps.weight"] for p in ("gate", "up", "down"))
    out = np.zeros_like(x)
    for token, p in enumerate(scores):
        chosen = np.argsort(-p)[: model.keys["expert_used_count"]]
        for e in chosen:
            y = gated(model, gate[e] @ x[token], up[e] @ x[token]) @ down[e].T
            out[token] += p[e] / p[chosen].sum() * y
    return out


def logits(model: Model, tokens: list[int]) -> np.ndarray:
    """Logits [tokens, vocab] of one causal pass."""
    tensors = model.tensors
    x = tensors["token_embd.weight"][tokens]
    for index in range(model.keys["block_count"]):
        layer = f"blk.{index}."
        began = x
        x = x + attention(model, index, model.norm(x, tensors[layer + "attn_norm.weight"]))
        normed = model.norm(x, tensors[layer + "ffn_norm.weight"])
        routed = began if model.routes_before_attention else normed
        scores = expert_scores(model, layer, routed) if "expert_count" in model.keys else None
        x = x + feed_forward(model, layer, normed, scores)
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    return model.norm(x, tensors["output_norm.weight"]) @ head.T


def golden_difference(index: Path) -> float:
    """max |difference| / max |reference| of a case, over its stored positions."""
    golden: dict[str, Any] = json.loads(index.read_text())
    expected = np.fromfile(index.parent / golden["file"], "<f4")
    expected = expected.reshape(len(golden["positions"]), golden["vocab_size"])
    model = Model(index.parent / golden["model"])
    actual = logits(model, golden["prompt"] + golden["decode"])[golden["positions"]]
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def main() -> int:
    worst = 0.0
    for index in sorted(GOLDENS.glob("*.json")):
        if json.loads(index.read_text()).get("arch") in CHECKED_ARCHS:
            difference = golden_difference(index)
            worst = max(worst, difference)
            print(f"{index.stem:22} {difference:.1e}")
    return 0 if 0.0 < worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
