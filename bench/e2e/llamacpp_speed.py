#!/usr/bin/env python3
"""Measures llama.cpp once on one file and prints JSON: what compare_llamacpp.py calls.

A process of its own per repetition, so that a crash of the library is a result like any other and
nothing stays warm from one repetition to the next. It does what `hearth bench --reps 1` does:
prompts in an empty context with the logits of the last token, then single given tokens after a
short prompt.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import CannotRun, import_llama_cpp  # noqa: E402

TOKEN_SEED = 20
WARM_UP_TOKENS = 16
# Tokens that go through a layer together: llama.cpp's own default for programs.
BATCH_TOKENS = 512
GGML_TYPES = {"f32": 0, "f16": 1}


class Model:
    """A context of llama.cpp that computes random tokens."""

    def __init__(self, args: argparse.Namespace):
        self._llama = import_llama_cpp()
        self._llama.llama_backend_init()
        params = self._llama.llama_model_default_params()
        # Weights in another layout would be copies in memory of their own.
        params.use_extra_bufts = not args.mapped_only
        if args.gpu_layers is not None:
            params.n_gpu_layers = args.gpu_layers
        self._model = self._llama.llama_model_load_from_file(str(args.model).encode(), params)
        if not self._model:
            raise CannotRun(f"llama.cpp cannot load {args.model}")
        length = max([*args.prefill, args.context + args.decode])
        self._context = self._llama.llama_init_from_model(self._model, self._params(args, length))
        if not self._context:
            raise CannotRun(f"llama.cpp cannot make a context of {length} tokens")
        vocab = self._llama.llama_vocab_n_tokens(self._llama.llama_model_get_vocab(self._model))
        numbers = random.Random(TOKEN_SEED)
        self._tokens = (self._llama.llama_token * length)(
            *(numbers.randrange(vocab) for _ in range(length)))
        self._length = 0

    def _params(self, args: argparse.Namespace, length: int) -> Any:
        params = self._llama.llama_context_default_params()
        params.n_ctx = length
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = args.threads
        params.type_k = params.type_v = GGML_TYPES[args.kv]
        return params

    def restart(self) -> None:
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self._context), True)
        self._length = 0

    def advance(self, count: int) -> None:
        """Computes the next tokens; returns when the logits of the last are there."""
        while count > 0:
            piece = min(count, BATCH_TOKENS)
            tokens = (self._llama.llama_token * piece)(
                *self._tokens[self._length : self._length + piece])
            status = self._llama.llama_decode(
                self._context, self._llama.llama_batch_get_one(tokens, piece))
            if status != 0:
                raise CannotRun(f"llama.cpp: llama_decode returned {status}")
            self._length += piece
            count -= piece
        self._llama.llama_get_logits_ith(self._context, -1)

    def about(self) -> dict[str, str]:
        return {"version": self._llama.__version__,
                "system": self._llama.llama_print_system_info().decode().strip()}


def timed(model: Model, calls: int, tokens: int) -> float:
    """Tokens per second of so many calls of so many tokens."""
    start = time.perf_counter()
    for _ in range(calls):
        model.advance(tokens)
    return calls * tokens / (time.perf_counter() - start)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    model = Model(args)
    model.advance(WARM_UP_TOKENS)
    model.advance(1)
    prefill = []
    for tokens in args.prefill:
        model.restart()
        prefill.append({"tokens": tokens, "tok_s": timed(model, 1, tokens)})
    model.restart()
    model.advance(args.context)
    decode = {"tokens": args.decode, "tok_s": timed(model, args.decode, 1)}
    return {"prefill": prefill, "decode": decode, **model.about()}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefill", type=lambda text: [int(n) for n in text.split(",")],
                        required=True)
    parser.add_argument("--decode", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--kv", choices=sorted(GGML_TYPES), required=True)
    parser.add_argument("--llama-path", type=Path)
    parser.add_argument("--mapped-only", action="store_true",
                        help="compute on the mapped file, for memory that is smaller than it")
    parser.add_argument("--gpu-layers", type=int,
                        help="layers on its GPU, where it was built with one")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    if args.llama_path is not None:
        sys.path.insert(0, str(args.llama_path))
    try:
        print(json.dumps(measure(args)))
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
