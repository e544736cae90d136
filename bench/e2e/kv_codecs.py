#!/usr/bin/env python3
"""What `--kv` costs in perplexity, beside llama.cpp's types of keys and values on the same files.

  kv_codecs.py MODEL... --text TEXT --machine zen5       writes bench/results/MACHINE/kv-codecs.json

Both programs score the first --bytes of TEXT in windows of --ctx tokens that do not overlap, all tokens but
the first of each (BOS where the model has one). Needs llama-cpp-python.
Exit status: 0 done; 1 a codec costs more than it may; 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402
from llamacpp_perplexity import LlamaCpp  # noqa: E402
from results import RESULTS, head_commit, write_result  # noqa: E402

# Bytes of a token and head (docs/formats/kv.md): for each component, for every 32, and besides.
CODECS = {"f16": (4, 0, 0), "f32": (8, 0, 0), "k8v8": (2, 0, 6), "k4v8": (1.5, 4, 2), "k8": (3, 0, 4),
          "k4": (2.5, 4, 0)}
THEIR_TYPES = [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q8_0")]
LIMIT = {"k8v8": 0.3, "k4v8": 5.0}  # percent above f16
BEHIND_THEIRS = 0.5                 # percent points of k4v8 above q4_0 keys with q8_0 values


class Model:
    """One file; rows of the table are added for it."""

    def __init__(self, path: Path, text: Path, options: argparse.Namespace):
        self._path, self._text, self._options = path, text, options
        self._name = path.name.removesuffix(".gguf")
        model = json.loads(run_command([str(DEFAULT_HEARTH), "inspect", str(path), "--json"]))["model"]
        self._heads, self._head_dim = model["num_layers"] * model["num_kv_heads"], model["head_dim"]
        self._base: dict[str, float] = {}
        self._above: dict[str, float] = {}
        self.rows: list[list[Any]] = []
        self.tokens = 0

    def _add(self, program: str, how: str, token_bytes: float | None, perplexity: float) -> None:
        base = self._base.setdefault(program, perplexity)
        self._above[how] = 100 * (perplexity / base - 1)
        self.rows.append([self._name, program, f"`{how}`", token_bytes, round(perplexity, 4), round(self._above[how], 3)])
        print(*self.rows[-1], flush=True)

    def _ours(self, codec: str) -> None:
        result = json.loads(run_command([str(DEFAULT_HEARTH), "eval", str(self._path), "--text", str(self._text),
                                         "--ctx", str(self._options.ctx), "--kv", codec, "--json"]))
        self.tokens = result["tokens"]
        of_component, of_range, besides = CODECS[codec]
        ranges = (self._head_dim + 31) // 32
        token_bytes = round(self._heads * (of_component * self._head_dim + of_range * ranges + besides))
        self._add("Hearth", codec, token_bytes, result["perplexity"])

    def _theirs(self, keys: str, values: str) -> None:
        program = LlamaCpp(self._path, self._options.ctx, self._options.threads, keys, values)
        perplexity, scored = program.perplexity(self._text.read_bytes())
        if scored != self.tokens:
            raise CannotRun(f"Hearth scored {self.tokens} tokens, llama.cpp {scored}")
        self._add("llama.cpp", f"{keys}, {values}", None, perplexity)

    def measure(self) -> None:
        for codec in CODECS:
            self._ours(codec)
        for keys, values in THEIR_TYPES:
            self._theirs(keys, values)

    def failures(self) -> list[str]:
        found = [f"{self._name}: {codec} costs {self._above[codec]:.2f}% (at most {limit}%)"
                 for codec, limit in LIMIT.items() if self._above[codec] > limit]
        behind = self._above["k4v8"] - self._above["q4_0, q8_0"]
        if behind > BEHIND_THEIRS:
            found.append(f"{self._name}: k4v8 costs {behind:.2f} points more than q4_0 keys with q8_0 values")
        return found


def result_of(options: argparse.Namespace, models: list[Model]) -> dict[str, Any]:
    tokens = " and ".join(f"{model.tokens:,}" for model in models)
    return {
        "schema": 1, "machine": options.machine, "experiment": "kv-codecs",
        "date": date.today().isoformat(), "commit": head_commit(),
        "commands": [f"bench/e2e/kv_codecs.py {' '.join(path.name for path in options.models)}"
                     f" --text {options.text.name} --bytes {options.bytes} --ctx {options.ctx}"],
        "model": None, "weights": "real",
        "baseline": {"name": "llama.cpp", "version": options.version},
        "repetitions": 1,
        "note": f"{options.note} {tokens} tokens in windows of {options.ctx:,}.".strip(),
        "columns": [{"name": "model", "unit": ""}, {"name": "program", "unit": ""},
                    {"name": "`--kv`, or keys and values", "unit": ""},
                    {"name": "a token", "unit": "bytes"}, {"name": "perplexity", "unit": "", "digits": 3},
                    {"name": "more than f16", "unit": "%", "digits": 2}],
        "rows": [row for model in models for row in model.rows],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--bytes", type=int, default=64_000)
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--version", help="of llama.cpp", required=True)
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        piece = options.text.read_bytes()[:options.bytes]
        text.write_bytes(piece[:piece.rindex(b"\n") + 1])
        try:
            models = [Model(path, text, options) for path in options.models]
            for model in models:
                model.measure()
        except CannotRun as error:
            print(error, file=sys.stderr)
            return 2
    result = result_of(options, models)
    path = RESULTS / options.machine / "kv-codecs.json"
    write_result(result, path)
    failures = [failure for model in models for failure in model.failures()]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
