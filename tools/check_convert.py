#!/usr/bin/env python3
"""Holds `hearth convert` against the public converter of llama.cpp.

Every golden case is saved as Hugging Face publishes models and converted by both.
The two files must have the same tensors, bit for bit, and the same keys, but for
those below. Then Hearth's files take the place of the goldens:

  golden_test (Hearth's logits against transformers') runs on them, and
  compare_llamacpp.py (llama.cpp's logits against transformers') does, where
  --llama-python names a Python that has llama-cpp-python.

  check_convert.py --converter DIR                    all cases, as float32
  check_convert.py --converter DIR --type f16 --only gemma3 gpt2

DIR is an unpacked source package of llama-cpp-python. Needs what
tools/goldens/requirements.txt names. Exit status: 0 all agree, 1 a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from engines import DEFAULT_HEARTH, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools" / "goldens"))
from cases import CASES  # noqa: E402
from convert import convert_folder, save_folder  # noqa: E402
from families import Case  # noqa: E402
from make_smallthinker import CASES as SMALLTHINKER_CASES  # noqa: E402
from make_smallthinker import SmallThinkerCase, save_published  # noqa: E402
from models import build_model  # noqa: E402

GOLDENS = REPOSITORY / "tests" / "goldens"
GOLDEN_TESTS = "*AgreesWithTransformersOnEveryIsa*"
# What the public converter says for people, and of vocabularies, which it was told otherwise.
UNCOMPARED_PREFIXES = ("GGUF.", "general.name", "general.size_label", "tokenizer.")
# What Hearth says though readers have it as their default, or nobody but Hearth reads it.
MAY_BE_MORE = ("hearth.ffn_activation", "hearth.ffn_threshold", "attention.key_length",
               "attention.value_length", "attention.head_count_kv", "rope.dimension_count",
               "rope.freq_base", "expert_weights_norm", "attention.sliding_window",
               "expert_feed_forward_length")
# What repeats the shape of a tensor, or what all readers take for granted.
MAY_BE_LESS = ("vocab_size",)
# The public converter writes transformers' factor, which readers multiply by YaRN's own; Hearth
# writes what is left to multiply.
MAY_BE_OTHERWISE = {"rope.scaling.yarn_attn_factor": "rope.scaling.attn_factor"}
# Computed in float32 by one and in float64 by the other.
COMPUTED = ("rope_freqs.weight",)
COMPUTED_TOLERANCE = 1e-6
# The public converter knows no such activation or model.
COMPARED_WITH_GOLDENS = ("llama-drelu", "llama-fatrelu", "opt")


def values_of(reader: GGUFReader) -> dict[str, Any]:
    """Metadata by key, without the architecture's name."""
    fields = {name: field.contents() for name, field in reader.fields.items()}
    arch = fields["general.architecture"]
    return {name.removeprefix(f"{arch}."): value for name, value in fields.items()}


def compare_keys(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    problems = []
    skipped = {key for pair in MAY_BE_OTHERWISE.items() for key in pair
               if pair[0] in expected and pair[1] in found}
    for key in sorted((expected.keys() | found.keys()) - skipped):
        if key.startswith(UNCOMPARED_PREFIXES):
            continue
        if key not in found:
            if key not in MAY_BE_LESS:
                problems.append(f"{key}: {expected[key]} is missing")
        elif key not in expected:
            if key not in MAY_BE_MORE:
                problems.append(f"{key}: {found[key]} is not in the other file")
        elif expected[key] != found[key]:
            problems.append(f"{key}: {expected[key]} is {found[key]}")
    return problems


def compare_vocabulary(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Tokens and their kinds; scores are another scale."""
    keys = ("tokens", "token_type", "bos_token_id", "eos_token_id", "add_bos_token", "model")
    return [f"tokenizer.ggml.{key} differs" for key in keys
            if expected[f"tokenizer.ggml.{key}"] != found[f"tokenizer.ggml.{key}"]]


def compare_tensors(expected: GGUFReader, found: GGUFReader) -> list[str]:
    problems = []
    mine = {tensor.name: tensor for tensor in found.tensors}
    for tensor in expected.tensors:
        other = mine.pop(tensor.name, None)
        if other is None:
            problems.append(f"{tensor.name} is missing")
        elif tensor.tensor_type != other.tensor_type:
            problems.append(f"{tensor.name}: {tensor.tensor_type.name} is "
                            f"{other.tensor_type.name}")
        elif list(tensor.shape) != list(other.shape):
            problems.append(f"{tensor.name}: shape {tensor.shape} is {other.shape}")
        elif tensor.name in COMPUTED:
            if not np.allclose(tensor.data, other.data, rtol=COMPUTED_TOLERANCE, atol=0):
                problems.append(f"{tensor.name}: other values")
        elif not np.array_equal(tensor.data.view(np.uint8), other.data.view(np.uint8)):
            problems.append(f"{tensor.name}: other bytes")
    return problems + [f"{name} is not in the other file" for name in mine]


def compare_files(expected_path: Path, found_path: Path) -> list[str]:
    expected, found = GGUFReader(expected_path), GGUFReader(found_path)
    keys = values_of(expected), values_of(found)
    return (compare_tensors(expected, found) + compare_keys(*keys)
            + compare_vocabulary(*keys))


def save_case(case: Case | SmallThinkerCase, folder: Path) -> None:
    """The folder of a case; activations that transformers cannot name are named in its config."""
    if isinstance(case, SmallThinkerCase):
        save_published(case, folder)
        return
    save_folder(build_model(case), folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if case.activation == "drelu":
        config["model_type"] = "bamboo"
    elif case.activation == "fatrelu":
        config |= {"hidden_act": "fatrelu", "hidden_act_param": case.threshold}
    path.write_text(json.dumps(config))


def check_case(case: Case | SmallThinkerCase, args: argparse.Namespace, work: Path) -> list[str]:
    folder, found = work / f"hearth-golden-{case.name}", work / f"{case.name}.gguf"
    save_case(case, folder)
    done = subprocess.run([args.hearth, "convert", folder, "-o", found, "--type", args.type],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stderr.strip()]
    for name in (f"{case.name}.json", f"{case.name}.logits.f32"):
        shutil.copy(GOLDENS / name, work / name)
    if case.name in COMPARED_WITH_GOLDENS:
        if args.type != "f32":
            return []
        return compare_tensors(GGUFReader(GOLDENS / f"{case.name}.gguf"), GGUFReader(found))
    expected = work / f"{case.name}.expected"
    convert_folder(folder, args.converter, expected, args.type)
    return compare_files(expected, found)


def run(command: list[Any], **environment: str) -> bool:
    print(" ".join(str(part) for part in command), flush=True)
    done = subprocess.run(command, env=os.environ | environment, check=False)
    return done.returncode == 0


def check_logits(args: argparse.Namespace, work: Path) -> bool:
    agrees = run([args.golden_test, f"--gtest_filter={GOLDEN_TESTS}", "--gtest_brief=1"],
                 HEARTH_GOLDENS=str(work))
    if args.llama_python:
        agrees &= run([args.llama_python, REPOSITORY / "tools" / "compare_llamacpp.py",
                       "--goldens", work])
    return agrees


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--converter", type=Path, required=True, metavar="DIR")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--golden-test", type=Path, default=DEFAULT_HEARTH.parent / "golden_test")
    parser.add_argument("--llama-python", type=Path, metavar="PYTHON")
    parser.add_argument("--only", nargs="+", metavar="CASE")
    parser.add_argument("--type", choices=("f32", "f16", "bf16"), default="f32")
    args = parser.parse_args()
    cases = [case for case in (*CASES, *SMALLTHINKER_CASES)
             if not args.only or case.name in args.only]
    differ = 0
    with tempfile.TemporaryDirectory(prefix="hearth-convert-") as name:
        work = Path(name)
        for case in cases:
            problems = check_case(case, args, work)
            differ += bool(problems)
            print(f"{case.name:22} {'differs' if problems else 'agrees'}", flush=True)
            for problem in problems:
                print(f"    {problem}", flush=True)
        agrees = args.type != "f32" or check_logits(args, work)
    print(f"{len(cases) - differ} of {len(cases)} files agree"
          f"{'' if agrees else '; logits differ'}")
    return 1 if differ or not agrees else 0


if __name__ == "__main__":
    sys.exit(main())
