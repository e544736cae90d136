#!/usr/bin/env python3
"""Perplexity of a model in every type that `hearth quantize` makes, by Hearth and by llama.cpp.

  quantized_weights.py MODEL TEXT --machine zen5      writes bench/results/MACHINE/quantized-weights.NAME.json

MODEL becomes an F16 file first. The first 60 kB of TEXT make an importance matrix, the last --judge
bytes are scored. Both programs score the same windows of 512 tokens that do not overlap, all tokens
but the first of each (BOS where the model has one); llama-perplexity would score the second halves
alone. Both keep keys and values in F16.

Every file is also read by the package gguf, whose values must be those of Hearth, bit for bit after
rounding to F16 (what `hearth quantize --recipe f16` makes of the file). Needs llama-cpp-python and gguf.
Exit status: 0 done; 1 values differ, or a perplexity by more than 0.2% (3 bits and fewer: 0.5%);
2 could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402
from llamacpp_perplexity import LlamaCpp  # noqa: E402
from results import RESULTS, head_commit, write_result  # noqa: E402

WINDOW = 512
CALIBRATION_BYTES = 60_000
# What to give `hearth quantize`. "+": with an importance matrix as well.
RECIPES = ["f16", "q2_k", "q2_k --tensor blk.*=q2_k +", "q3_k_s +", "q3_k_m", "iq4_xs +", "iq4_nl +", "q4_0 +",
           "q4_1", "q4_k_s +", "q4_k_m", "mnn-int4", "q8_0 --tensor blk.*=mxfp4", "q5_0", "q5_1",
           "q5_k_s", "q5_k_m", "q6_k", "q8_0", "mnn-int8", "bf16"]
FEW_BITS = ("q2_k", "q3_k")


def hearth(*arguments: object) -> dict[str, Any]:
    command = [str(DEFAULT_HEARTH), *map(str, arguments), "--json"]
    document: dict[str, Any] = json.loads(run_command(command))
    return document


def read_values(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor as the package gguf reads it, in F16."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    return {tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float16).reshape(-1)
            for tensor in GGUFReader(path).tensors}


def check_values(path: Path, folder: Path) -> None:
    """Raises ValueError where Hearth and gguf read other weights from a file."""
    plain = folder / "plain.gguf"
    hearth("quantize", path, "-o", plain, "--recipe", "f16", "--requantize", "--force")
    ours, theirs = read_values(plain), read_values(path)
    if ours.keys() != theirs.keys():
        raise ValueError("the package gguf finds other tensors")
    for name, values in ours.items():
        if not np.array_equal(values, theirs[name]):
            raise ValueError(f"the package gguf reads other values of {name}")


class Comparison:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self._options = options
        self._folder = folder
        text = options.text.read_bytes()
        self._judge = text[-options.judge:].decode(errors="ignore").encode()
        (folder / "judge.txt").write_bytes(self._judge)
        (folder / "calibration.txt").write_text(text[:CALIBRATION_BYTES].decode(errors="ignore"))
        self._source = folder / "f16.gguf"
        hearth("quantize", options.model, "-o", self._source, "--recipe", "f16", "--requantize")
        self._imatrix = folder / "imatrix.gguf"
        run_command([str(DEFAULT_HEARTH), "profile", str(self._source), "--ctx", str(WINDOW),
                     "--text", str(folder / "calibration.txt"), "--imatrix", str(self._imatrix)])
        self._base = 0.0
        self.failures: list[str] = []
        self.rows: list[list[Any]] = []

    def add(self, recipe: str, with_importance: bool) -> None:
        out = self._folder / "m.gguf"
        more: list[object] = ["--imatrix", self._imatrix] if with_importance else []
        made = hearth("quantize", self._source, "-o", out, "--force", "--recipe", *recipe.split(), *more)
        check_values(out, self._folder)
        ours = hearth("eval", out, "--text", self._folder / "judge.txt", "--ctx", WINDOW)
        theirs, scored = LlamaCpp(out, WINDOW, self._options.threads).perplexity(self._judge)
        if scored != ours["tokens"]:
            raise CannotRun(f"Hearth scored {ours['tokens']} tokens, llama.cpp {scored}")
        perplexity = ours["perplexity"]
        self._base = self._base or perplexity
        difference = 100 * (perplexity / theirs - 1)
        limit = 0.5 if recipe.startswith(FEW_BITS) else 0.2
        if abs(difference) > limit:
            self.failures.append(f"{recipe}: {difference:+.2f}%")
        name = f"`{recipe}`" + (", `--imatrix`" if with_importance else "")
        self.rows.append([name, made["bytes"] / 1e6, perplexity, theirs, difference,
                          100 * (perplexity / self._base - 1)])
        print(name, *(f"{value:.4f}" for value in self.rows[-1][1:]), flush=True)


def result_of(options: argparse.Namespace, rows: list[list[Any]]) -> dict[str, Any]:
    return {
        "schema": 1, "machine": options.machine, "experiment": "quantized-weights",
        "date": date.today().isoformat(), "commit": head_commit(),
        "commands": [f"bench/e2e/quantized_weights.py {options.model.name} {options.text.name}"
                     f" --judge {options.judge}"],
        "model": options.name, "weights": options.weights,
        "baseline": {"name": "llama.cpp", "version": options.version},
        "repetitions": 1, "note": options.note,
        "columns": [{"name": "recipe", "unit": ""}, {"name": "file", "unit": "MB", "digits": 1},
                    {"name": "perplexity", "unit": "", "digits": 4},
                    {"name": "by llama.cpp", "unit": "", "digits": 4},
                    {"name": "difference", "unit": "%", "digits": 2},
                    {"name": "above F16", "unit": "%", "digits": 2}],
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--name", required=True, help="of the model, in the table")
    parser.add_argument("--weights", default="real", choices=("real", "embedded"))
    parser.add_argument("--recipes", help="separated by commas, instead of all")
    parser.add_argument("--judge", type=int, default=36_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--version", help="of llama.cpp", required=True)
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(options, Path(folder))
            for recipe in options.recipes.split(",") if options.recipes else RECIPES:
                comparison.add(recipe.removesuffix(" +"), False)
                if recipe.endswith(" +"):
                    comparison.add(recipe.removesuffix(" +"), True)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    result = result_of(options, comparison.rows)
    variant = options.name.lower().replace(" ", "-")
    path = RESULTS / options.machine / f"quantized-weights.{variant}.json"
    write_result(result, path)
    for failure in comparison.failures:
        print(f"further from llama.cpp than allowed: {failure}", file=sys.stderr)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
