#!/usr/bin/env python3
"""Makes the golden models of tests/goldens: tiny GGUFs and their logits.

The logits come from Hugging Face transformers run wholly in float64, so they
have no rounding of their own beyond the last one to float32. Every case is
checked before it is written: float32 agrees with float64, decoding step by
step agrees with one pass, attention is peaked, and every mistake of
mutations.py moves the logits visibly.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

from cases import CASES
from convert import convert_folder, save_folder
from families import VOCAB_SIZE, Case, make_tokens
from gguf_out import write_gguf
from models import build_model
from mutations import mutations_for
from reference import (
    attention_entropy,
    decision_gap,
    full_logits,
    relative_difference,
    stepwise_logits,
    to_float64,
)

DEFAULT_OUT = Path(__file__).resolve().parents[2] / "tests" / "goldens"
MAX_FLOAT32_DIFFERENCE = 2e-6
MAX_STEPWISE_DIFFERENCE = 1e-12
# 1 would be uniform attention, which hides a wrong order of keys.
MAX_ATTENTION_ENTROPY = 0.75
MAX_REMADE_DIFFERENCE = 2e-7
# Gates have a deviation of 0.1 and router logits of 1.5: both gaps are far above
# the rounding of a float32 engine.
MIN_THRESHOLD_GAP = 5e-5
MIN_ROUTER_GAP = 2e-2
MIN_SIGMOID_GAP = 2e-3
# Everything in the folder is committed.
MAX_TOTAL_BYTES = 8 << 20


class GoldenError(Exception):
    """A case fails a check and would make a poor or wrong golden."""


@dataclass(frozen=True)
class Options:
    """Where the public converter is, and where the models' folders are kept."""

    converter: Path | None
    folders: Path | None


def golden_positions(case: Case) -> list[int]:
    """Prompt positions worth comparing, then all decode positions.

    The first three, both sides of the sliding window's edge, the middle, the
    last two of the prompt.
    """
    last = case.prompt_tokens - 1
    chosen = {0, 1, 2, last // 2, last - 1, last}
    if case.sliding_window is not None:
        chosen |= {case.sliding_window - 1, case.sliding_window, case.sliding_window + 1}
    decode = range(case.prompt_tokens, case.prompt_tokens + case.decode_tokens)
    return sorted(chosen) + list(decode)


def check_limit(case: Case, what: str, value: float, limit: float) -> float:
    """Returns the value rounded for the JSON; raises where it is above the limit."""
    if not value <= limit:
        raise GoldenError(f"{case.name}: {what} is {value:.3g}, limit {limit:.3g}")
    return float(f"{value:.1e}")


def mutation_changes(case: Case, tokens: list[int], reference: np.ndarray) -> dict[str, float]:
    """Relative change of the golden logits by each mutation; raises if too small."""
    positions = golden_positions(case)
    changes = {}
    for mutation in mutations_for(case):
        model = build_model(case, **mutation.config)
        if mutation.edit is not None:
            mutation.edit(model)
        n = len(tokens)
        extra = {"attention_mask": torch.zeros(1, 1, n, n)} if mutation.unmasked else {}
        logits = full_logits(model, tokens, **extra)[positions]
        change = relative_difference(logits, reference)
        if not change > mutation.least:
            raise GoldenError(f"{case.name}: '{mutation.name}' changes only {change:.2e}")
        changes[mutation.name] = float(f"{change:.1e}")
    return changes


def least_gap(case: Case) -> float:
    if case.activation == "fatrelu":
        return MIN_THRESHOLD_GAP
    return MIN_SIGMOID_GAP if case.family == "glm4_moe" else MIN_ROUTER_GAP


def run_case(case: Case) -> tuple[np.ndarray, dict]:
    """Returns (logits [positions, vocab], measured checks) of a case."""
    prompt, decode = make_tokens(case)
    tokens = prompt + decode
    model = build_model(case)
    single = full_logits(model, tokens)
    threshold = case.threshold if case.activation == "fatrelu" else None
    entropy = attention_entropy(model, tokens, case.sliding_window)
    gap = decision_gap(model, tokens, threshold)
    to_float64(model)
    full = full_logits(model, tokens)
    stepwise = stepwise_logits(model, tokens, len(prompt))
    if full.dtype != np.float64 or stepwise.dtype != np.float64:
        raise GoldenError(f"{case.name}: reference is not float64")
    if gap < least_gap(case):
        raise GoldenError(f"{case.name}: decision gap {gap:.1e}: take another seed")
    logits = stepwise[golden_positions(case)]
    checks = {
        "float32_vs_float64": check_limit(
            case, "float32 difference", relative_difference(single, full),
            MAX_FLOAT32_DIFFERENCE),
        "attention_entropy": check_limit(
            case, "attention entropy", entropy, MAX_ATTENTION_ENTROPY),
        "decision_gap": float(f"{gap:.1e}") if np.isfinite(gap) else None,
        "max_abs_logit": float(f"{np.abs(logits).max():.3f}"),
        "mutations": mutation_changes(case, tokens, logits),
    }
    # Not stored: it is only rounding (1e-15) and differs between machines.
    check_limit(case, "stepwise difference", relative_difference(stepwise, full),
                MAX_STEPWISE_DIFFERENCE)
    return logits.astype("<f4"), checks


def write_model(case: Case, options: Options, path: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folders or Path(temporary)) / f"hearth-golden-{case.name}"
        if options.folders or case.is_converted:
            save_folder(build_model(case), folder)
        if not case.is_converted:
            write_gguf(case, build_model(case), path)
        elif options.converter is None:
            raise GoldenError(f"{case.name} is written by llama.cpp's converter: give "
                              "--converter, an unpacked source package of llama-cpp-python")
        else:
            convert_folder(folder, options.converter, path)  # its name goes into general.name


def write_case(case: Case, options: Options, out: Path) -> dict:
    """Writes the three files of a case; returns what its JSON holds."""
    logits, checks = run_case(case)
    prompt, decode = make_tokens(case)
    gguf_path = out / f"{case.name}.gguf"
    logits_path = out / f"{case.name}.logits.f32"
    write_model(case, options, gguf_path)
    logits_path.write_bytes(logits.tobytes())
    document = {
        "family": case.family,
        "arch": case.arch,
        "transformers_version": version("transformers"),
        "torch_version": version("torch"),
        "gguf_version": version("gguf"),
        "numpy_version": version("numpy"),
        "seed": case.seed,
        "reference_dtype": "float64",
        "model": gguf_path.name,
        "model_sha": hashlib.sha256(gguf_path.read_bytes()).hexdigest(),
        "prompt": prompt,
        "decode": decode,
        "positions": golden_positions(case),
        "vocab_size": VOCAB_SIZE,
        "file": logits_path.name,
        "logits_sha": hashlib.sha256(logits_path.read_bytes()).hexdigest(),
        "checks": checks,
    }
    (out / f"{case.name}.json").write_text(format_json(document))
    return document


def format_json(document: dict) -> str:
    """One line per field, so that diffs show the field and lists stay short."""
    lines = []
    for key, value in document.items():
        indent = 2 if key == "checks" else None
        text = json.dumps(value, indent=indent).replace("\n", "\n ")
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def print_case(document: dict, out: Path) -> None:
    checks = document["checks"]
    stem = document["file"].removesuffix(".logits.f32")
    size = (out / document["model"]).stat().st_size
    weakest = min(checks["mutations"], key=checks["mutations"].get)
    print(f"{stem:21} {size:7} B  f32/f64 {checks['float32_vs_float64']:.1e}  "
          f"entropy {checks['attention_entropy']:.2f}  "
          f"{len(checks['mutations'])} mutations, weakest "
          f"{checks['mutations'][weakest]:.1e} ({weakest})", flush=True)


def make_all(cases: list[Case], options: Options, out: Path) -> None:
    for case in cases:
        print_case(write_case(case, options, out), out)


def compare_with_committed(cases: list[Case], made: Path, committed: Path) -> int:
    """Prints cases that differ; returns their number.

    Models and tokens must be equal. Logits may differ in the last bit of
    float32, because float64 sums are ordered differently on other CPUs; the
    measured checks may differ more and are not compared.
    """
    count = 0
    for case in cases:
        fields = [json.loads((folder / f"{case.name}.json").read_text())
                  for folder in (made, committed)]
        logits = [np.fromfile(folder / f"{case.name}.logits.f32", "<f4")
                  for folder in (made, committed)]
        same = all(fields[0][key] == fields[1][key]
                   for key in ("model_sha", "prompt", "decode", "positions"))
        same &= filecmp.cmp(made / f"{case.name}.gguf", committed / f"{case.name}.gguf",
                            shallow=False)
        same &= logits[0].shape == logits[1].shape
        if not same or relative_difference(*logits) > MAX_REMADE_DIFFERENCE:
            print(f"differs: {case.name}")
            count += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="output folder")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="make only these cases")
    parser.add_argument("--check", action="store_true",
                        help="make into a temporary folder and compare with --out")
    parser.add_argument("--converter", type=Path, metavar="FOLDER",
                        help="unpacked source package of llama-cpp-python, whose converter "
                             "writes the newer families")
    parser.add_argument("--folders", type=Path, metavar="FOLDER",
                        help="keep each model there, as Hugging Face publishes models")
    args = parser.parse_args()
    options = Options(args.converter, args.folders)
    # Some mutations are odd configs on purpose; HF warns about them.
    transformers_logging.set_verbosity_error()
    # One thread: the order of additions, and so the last bit, stays the same.
    torch.set_num_threads(1)
    cases = [c for c in CASES if not args.only or c.name in args.only]
    if args.check:
        with tempfile.TemporaryDirectory() as made:
            make_all(cases, options, Path(made))
            return 1 if compare_with_committed(cases, Path(made), args.out) else 0
    args.out.mkdir(parents=True, exist_ok=True)
    make_all(cases, options, args.out)
    total = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{len(cases)} cases; {total} bytes in the folder")
    if total > MAX_TOTAL_BYTES:
        raise GoldenError(f"more than {MAX_TOTAL_BYTES} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GoldenError as error:
        sys.exit(f"error: {error}")
