"""What relufy.py trains on: windows of public-domain prose, and of text that the model writes itself."""

from __future__ import annotations

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor

from llama import Llama, halve_matrices, read_model
from model import rotate

# Tokens less likely than this share of the likeliest are not drawn: without a bound, one in a hundred derails the text.
MIN_SHARE = 0.02
SEQUENCES = 64  # written at once by a process


@dataclass(frozen=True)
class Prose:
    """A text file, and the bytes of it that no training may see."""

    path: Path
    first: int = 0
    last: int = 0

    @staticmethod
    def parse(text: str) -> Prose:
        """Reads FILE or FILE:FIRST-LAST."""
        name, colon, held_back = text.rpartition(":")
        if not colon:
            return Prose(Path(text))
        first, dash, last = held_back.partition("-")
        if not (dash and first.isdigit() and last.isdigit() and int(first) < int(last)):
            raise ValueError(f"{text}: FILE:FIRST-LAST is expected, bytes that are held back")
        return Prose(Path(name), int(first), int(last))

    def parts(self) -> list[str]:
        data = self.path.read_bytes()
        parts = [data[:self.first], data[self.last:]]
        return [part.decode("utf-8", errors="ignore") for part in parts if part]


def tokenize(hearth: Path, model: Path, text: str, folder: Path) -> np.ndarray:
    """Token ids of a text, by `hearth tokenize`."""
    file = folder / "part.txt"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([hearth, "tokenize", model, "--file", file], capture_output=True, text=True, check=False)
    file.unlink()
    if done.returncode != 0:
        raise SystemExit(f"{hearth} tokenize failed: {done.stderr.strip()}")
    return np.array(done.stdout.split(), dtype=np.int64)


def cut(ids: np.ndarray, length: int, bos: int) -> np.ndarray:
    """Windows [n, length] of `bos` and the next length - 1 ids, as `hearth eval` reads a text; a rest is dropped."""
    count = len(ids) // (length - 1)
    windows = np.full((count, length), bos, dtype=np.int32)
    windows[:, 1:] = ids[: count * (length - 1)].reshape(count, length - 1)
    return windows


def first_token(model: Path) -> int:
    field = gguf.GGUFReader(model).get_field("tokenizer.ggml.bos_token_id")
    if field is None:
        raise SystemExit(f"{model}: has no token that texts begin with")
    return int(field.contents())


class KvCache:
    """Keys and values of sequences that all have `filled` tokens: per layer [batch, kv heads, length, head size]."""

    def __init__(self, model: Llama, batch: int, length: int) -> None:
        config = model.config
        shape = (config.num_layers, batch, config.num_kv_heads, length, config.head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=torch.bfloat16), torch.zeros(shape, dtype=torch.bfloat16)
        self.filled = 0


def next_logits(model: Llama, tokens: Tensor, cache: KvCache) -> Tensor:
    """Logits [batch, vocab] after one more token of every sequence."""
    config, at = model.config, cache.filled
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        n = block.attn_norm(x)
        # The query heads of a group stand where time does: all of them see the same keys.
        q, k, v = (part(n).unflatten(-1, (config.num_kv_heads, -1, config.head_dim))
                   for part in (block.attn.q, block.attn.k, block.attn.v))
        q, k = (rotate(part, model.rope[at]).to(v.dtype) for part in (q, k))
        cache.keys[layer][:, :, at], cache.values[layer][:, :, at] = k[:, :, 0], v[:, :, 0]
        y = F.scaled_dot_product_attention(q, cache.keys[layer][:, :, : at + 1], cache.values[layer][:, :, : at + 1])
        x = x + block.attn.output(y.flatten(1))
        x = x + block.ffn(block.ffn_norm(x))
    cache.filled += 1
    return model.logits(x)


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token per row, at temperature 1, of those that are likely enough."""
    weights = logits.float().softmax(-1)
    weights[weights < MIN_SHARE * weights.amax(-1, keepdim=True)] = 0
    return torch.multinomial(weights, 1, generator=generator)[:, 0]


@torch.no_grad()
def write(model: Llama, prefix: list[int], count: int, seed: int) -> np.ndarray:
    """`count` texts [count, context] that begin with `prefix` and go on as the model likes."""
    generator = torch.Generator().manual_seed(seed)
    length = model.config.context_length
    cache = KvCache(model, count, length)
    texts = torch.zeros(count, length, dtype=torch.int64)
    texts[:, : len(prefix)] = torch.tensor(prefix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for at in range(length - 1):
            logits = next_logits(model, texts[:, at], cache)
            if at + 1 >= len(prefix):
                texts[:, at + 1] = draw(logits, generator)
    return texts.numpy().astype(np.int32)


@functools.cache
def writer_model(path: Path, length: int) -> Llama:
    torch.set_num_threads(1)
    model = read_model(path, "silu", length)
    halve_matrices(model)
    return model


def write_round(path: Path, prefix: list[int], length: int, number: int, out: Path) -> Path:
    """One file of texts; which ones depends on `number` alone."""
    texts = write(writer_model(path, length), prefix, SEQUENCES, seed=number)
    temporary = out.with_suffix(".tmp.npy")
    np.save(temporary, texts)
    os.replace(temporary, out)
    return out


def write_rounds(path: Path, prefixes: list[list[int]], length: int, rounds: int, folder: Path, workers: int) -> int:
    """Has `workers` processes write what is missing of `rounds` files, with one prefix after the other."""
    missing = [number for number in range(rounds) if not (folder / f"own-{number:03}.npy").exists()]
    jobs = [(path, prefixes[number % len(prefixes)], length, number, folder / f"own-{number:03}.npy")
            for number in missing]
    if jobs:
        with mp.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
            pool.starmap(write_round, jobs, chunksize=1)
    return len(jobs)


class Mixture:
    """Batches of windows, some of the model's own texts and the others prose, in an order fixed by a seed."""

    def __init__(self, folder: Path, own_share: float, seed: int) -> None:
        own = [np.load(path) for path in sorted(folder.glob("own-[0-9]*.npy"))]
        prose = folder / "prose.npy"
        if not own or not prose.exists():
            raise SystemExit(f"{folder}: has no text to train on: relufy.py text makes it")
        self.sources = [np.concatenate(own), np.load(prose)]
        self.own_share, self.seed = own_share, seed

    def _window(self, source: int, number: int) -> np.ndarray:
        windows = self.sources[source]
        epoch, index = divmod(number, len(windows))
        return windows[np.random.default_rng([self.seed, source, epoch]).permutation(len(windows))[index]]

    def batch(self, first: int, size: int) -> Tensor:
        """Windows `first` to first + size - 1, [size, context]."""
        rows = []
        for number in range(first, first + size):
            own = int(number * self.own_share)
            is_own = int((number + 1) * self.own_share) > own
            rows.append(self._window(0, own) if is_own else self._window(1, number - own))
        return torch.from_numpy(np.stack(rows).astype(np.int64))
