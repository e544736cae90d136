"""Perplexity by llama.cpp, for the programs of this folder that compare it with Hearth's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from engines import CannotRun, import_llama_cpp

ROWS_AT_A_TIME = 64
GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}


class LlamaCpp:
    """llama.cpp on one file: windows of so many tokens that do not overlap, each after BOS where the model
    has one; all tokens but the first of each are scored, as `hearth eval` does."""

    def __init__(self, model: Path, window: int, threads: int, keys: str = "f16", values: str = "f16"):
        package = import_llama_cpp()
        try:
            self._llama = package.Llama(str(model), n_ctx=window, n_batch=window, n_threads=threads,
                                        n_threads_batch=threads, logits_all=True, verbose=False,
                                        type_k=GGML_TYPES[keys], type_v=GGML_TYPES[values],
                                        flash_attn=values not in ("f32", "f16"))
        except (ValueError, RuntimeError) as error:
            raise CannotRun(f"llama.cpp cannot load {model}: {error}") from error
        self._window = window
        self._bos = [self._llama.token_bos()] if self._llama.token_bos() >= 0 else []

    def _window_nll(self, tokens: list[int]) -> float:
        self._llama.reset()
        self._llama.eval(tokens)
        nll = 0.0
        for begin in range(0, len(tokens) - 1, ROWS_AT_A_TIME):
            end = min(begin + ROWS_AT_A_TIME, len(tokens) - 1)
            rows = self._llama.scores[begin:end].astype(np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            picked = rows[np.arange(end - begin), tokens[begin + 1:end + 1]]
            nll += float((np.log(np.exp(rows).sum(axis=1)) - picked).sum())
        return nll

    def perplexity(self, text: bytes) -> tuple[float, int]:
        """Perplexity of a text, and how many tokens were scored."""
        tokens = self._llama.tokenize(text, add_bos=False, special=False)
        step = self._window - len(self._bos)
        windows = [self._bos + tokens[i:i + step] for i in range(0, len(tokens), step)]
        scored = sum(len(window) - 1 for window in windows)
        return math.exp(sum(map(self._window_nll, windows)) / scored), scored
