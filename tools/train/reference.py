"""A slow, plain reading of the exported file: tokenizer and forward pass in numpy.

Shares no code with training, so that a wrong tensor name, a missed transpose or
a different rotation shows up as a bad perplexity.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

SPACE = "\u2581"
CONTROL_TYPE, BYTE_TYPE = 3, 6


@dataclass
class LayerCache:
    """Keys and values so far: [tokens, kv_heads, head_dim]."""

    keys: np.ndarray
    values: np.ndarray


@dataclass
class Activity:
    """Counts of firing neurons per layer; `ever` marks neurons that were active at least once."""

    tokens: int = 0
    gate: np.ndarray = field(default_factory=lambda: np.zeros(0))
    active: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ever: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Tokenizer:
    """Llama's encoder: characters, then the best-scored pair again and again, then bytes."""

    def __init__(self, reader: gguf.GGUFReader) -> None:
        def value(key: str):
            return reader.fields[f"tokenizer.ggml.{key}"].contents()

        self.tokens: list[str] = value("tokens")
        self.scores: list[float] = value("scores")
        self.types: list[int] = value("token_type")
        self.bos, self.eos, self.eot = value("bos_token_id"), value("eos_token_id"), value("eot_token_id")
        self.ids = {token: i for i, token in enumerate(self.tokens) if self.types[i] not in (CONTROL_TYPE, BYTE_TYPE)}
        self.byte_ids = {int(t[3:5], 16): i for i, t in enumerate(self.tokens) if self.types[i] == BYTE_TYPE}
        self.control_ids = {token: i for i, token in enumerate(self.tokens) if self.types[i] == CONTROL_TYPE}
        self.bytes_of = {i: byte for byte, i in self.byte_ids.items()}

    def encode(self, text: str, space_prefix: bool = True) -> list[int]:
        """Ids of text without control tokens."""
        symbols: list[str] = list(((" " if space_prefix else "") + text).replace(" ", SPACE)) if text else []
        following = list(range(1, len(symbols))) + [-1]
        previous = list(range(-1, len(symbols) - 1))
        heap: list[tuple[float, int, int, str]] = []

        def offer(left: int) -> None:
            right = following[left] if left >= 0 else -1
            if right >= 0 and symbols[left] + symbols[right] in self.ids:
                merged = symbols[left] + symbols[right]
                heapq.heappush(heap, (-self.scores[self.ids[merged]], left, right, merged))

        for i in range(len(symbols) - 1):
            offer(i)
        while heap:
            _, left, right, merged = heapq.heappop(heap)
            if following[left] != right or symbols[left] + symbols[right] != merged or not symbols[right]:
                continue
            symbols[left], symbols[right] = merged, ""
            following[left] = following[right]
            if following[right] >= 0:
                previous[following[right]] = left
            following[right] = -1
            offer(previous[left])
            offer(left)
        out: list[int] = []
        for symbol in filter(None, symbols):
            out += [self.ids[symbol]] if symbol in self.ids else [self.byte_ids[b] for b in symbol.encode("utf-8")]
        return out

    def encode_prompt(self, text: str) -> list[int]:
        """<s> and text in which control tokens are recognized, spaced as llama.cpp does."""
        ids, rest = [self.bos], text
        while rest:
            hits = [(rest.find(name), name) for name in self.control_ids if name in rest]
            position, name = min(hits) if hits else (len(rest), "")
            ids += self.encode(rest[:position])
            ids += [self.control_ids[name]] if name else []
            rest = rest[position + len(name):]
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of ids; control tokens are left out."""
        raw = b""
        for i in ids:
            if i in self.bytes_of:
                raw += bytes([self.bytes_of[i]])
            elif self.types[i] != CONTROL_TYPE:
                raw += self.tokens[i].replace(SPACE, " ").encode("utf-8")
        return raw.decode("utf-8", errors="replace").removeprefix(" ")


class ReferenceModel:
    """Float32 forward pass over the tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)

        def value(key: str):
            return reader.fields[f"llama.{key}"].contents()

        self.num_layers, self.num_heads = value("block_count"), value("attention.head_count")
        self.num_kv_heads, self.eps = value("attention.head_count_kv"), value("attention.layer_norm_rms_epsilon")
        self.head_dim, self.theta = value("rope.dimension_count"), value("rope.freq_base")
        self.context_length = value("context_length")
        if reader.fields["hearth.ffn_activation"].contents() != "drelu":
            raise ValueError("this reference knows dReLU only")
        self.weights = {t.name: np.asarray(t.data, dtype=np.float32) for t in reader.tensors}
        self.tokenizer = Tokenizer(reader)

    def new_cache(self) -> list[LayerCache]:
        empty = np.zeros((0, self.num_kv_heads, self.head_dim), dtype=np.float32)
        return [LayerCache(empty, empty) for _ in range(self.num_layers)]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[name]

    def _rotate(self, x: np.ndarray, start: int) -> np.ndarray:
        """x [tokens, heads, head_dim]: element 2i turns with element 2i + 1."""
        frequency = self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        angle = (start + np.arange(len(x)))[:, None, None] * frequency
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def _attention(self, x: np.ndarray, layer: int, cache: LayerCache) -> np.ndarray:
        def project(name: str, heads: int) -> np.ndarray:
            return (x @ self.weights[f"blk.{layer}.{name}.weight"].T).reshape(len(x), heads, self.head_dim)

        start = len(cache.keys)
        q = self._rotate(project("attn_q", self.num_heads), start)
        cache.keys = np.concatenate((cache.keys, self._rotate(project("attn_k", self.num_kv_heads), start)))
        cache.values = np.concatenate((cache.values, project("attn_v", self.num_kv_heads)))
        group = self.num_heads // self.num_kv_heads
        keys, values = np.repeat(cache.keys, group, axis=1), np.repeat(cache.values, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, keys) / np.sqrt(np.float32(self.head_dim))
        future = np.arange(len(keys))[None, :] > (start + np.arange(len(x)))[:, None]
        scores = np.where(future[None], np.float32(-np.inf), scores)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, values).reshape(len(x), -1)
        return mixed @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def _feed_forward(self, x: np.ndarray, layer: int, activity: Activity | None) -> np.ndarray:
        gate = x @ self.weights[f"blk.{layer}.ffn_gate.weight"].T
        up = x @ self.weights[f"blk.{layer}.ffn_up.weight"].T
        if activity is not None:
            fires, active = gate > 0, (gate > 0) & (up > 0)
            activity.gate[layer] += fires.mean(axis=1).sum()
            activity.active[layer] += active.mean(axis=1).sum()
            activity.ever[layer] |= active.any(axis=0)
        return (np.maximum(gate, 0) * np.maximum(up, 0)) @ self.weights[f"blk.{layer}.ffn_down.weight"].T

    def new_activity(self) -> Activity:
        neurons = len(self.weights["blk.0.ffn_gate.weight"])
        return Activity(0, np.zeros(self.num_layers), np.zeros(self.num_layers),
                        np.zeros((self.num_layers, neurons), dtype=bool))

    def logits(self, ids: list[int], cache: list[LayerCache], activity: Activity | None = None) -> np.ndarray:
        """Logits [tokens, vocabulary] of the tokens behind those in the cache."""
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.num_layers):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm.weight"), layer, cache[layer])
            x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm.weight"), layer, activity)
        if activity is not None:
            activity.tokens += len(ids)
        return self._norm(x, "output_norm.weight") @ self.weights["token_embd.weight"].T
