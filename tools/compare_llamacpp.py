#!/usr/bin/env python3
"""Compares Hearth's greedy token ids with llama.cpp's on the same GGUF files.

llama.cpp runs inside this process through PyPI's llama-cpp-python; Hearth
through its command line. Both start from the same prompts. Where they first
differ, llama.cpp's own logits tell how near the two tokens were: a difference
at a margin above --margin fails, a near tie (random weights have many) is
reported only. After a difference the texts have parted and nothing more is
compared.

  compare_llamacpp.py                       the models of $HEARTH_SHARED/data/models
  compare_llamacpp.py A.gguf B.gguf         these files
  compare_llamacpp.py --synth               a small `hearth synth` model per family
  compare_llamacpp.py --goldens             llama.cpp's logits against tests/goldens

Exit status: 0 all agree or near ties, 1 a real difference, 2 could not run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engines import DEFAULT_HEARTH, REPOSITORY, CannotRun, import_llama_cpp, run_command

DEFAULT_GOLDENS = REPOSITORY / "tests" / "goldens"
DEFAULT_PROMPTS = ("", "Once upon a time", "The quick brown fox, 12 of them")
GGML_TYPE_F32 = 0
# YaRN parameters where the file has no key. llama.cpp (0.3.36 of the binding) reads
# these two keys for some architectures only, and the binding overwrites them with
# its own defaults, so this program hands it what the file says.
YARN_BETA_DEFAULTS = {"yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}
# llama.cpp rounds queries, keys and values nowhere with a float32 cache, so on
# float32 files only the order of additions differs from the reference.
GOLDEN_TOLERANCE = 1e-4
# What llama.cpp does not read; these goldens have no judge there.
UNKNOWN_TO_LLAMACPP = {
    "llama-relu": "llama.cpp does not know hearth.ffn_activation",
    "llama-fatrelu": "llama.cpp does not know hearth.ffn_activation",
    "llama-drelu": "llama.cpp does not know hearth.ffn_activation",
    "mistral-window": "llama.cpp ignores llama.attention.sliding_window",
    "gpt-oss": "llama.cpp's YaRN ramp begins and ends at whole pairs, transformers' does not",
    "opt": "llama.cpp does not know OPT",
    "smallthinker": "llama.cpp takes every window of this family for 4096 tokens",
    "phi3": "llama.cpp wants tokens of Phi 3's own vocabulary",
    "phi3-longrope": "llama.cpp wants tokens of Phi 3's own vocabulary",
}
# llama.cpp looks GELU up in a table of halves.
GELU_TOLERANCE = 1e-3
GELU_GOLDENS = ("falcon", "falcon-two-norms", "gemma2", "gemma3", "gpt2")


# ---------------------------------------------------------------- llama.cpp


def file_keys(model: Path) -> dict[str, Any]:
    """Strings and numbers among a GGUF's metadata, by key."""
    from gguf import GGUFReader, GGUFValueType

    return {name: entry.contents() for name, entry in GGUFReader(model).fields.items()
            if entry.types and entry.types[0] != GGUFValueType.ARRAY}


def yarn_betas(model: Path) -> dict[str, float]:
    """The file's YaRN ramp ends as arguments of the binding."""
    keys = file_keys(model)
    arch = keys.get("general.architecture", "")
    return {name: float(keys.get(f"{arch}.rope.scaling.{name}", default))
            for name, default in YARN_BETA_DEFAULTS.items()}


class LlamaCpp:
    """llama.cpp on one file, with float32 keys and values and no flash attention."""

    def __init__(self, model: Path, context_length: int, threads: int):
        llama_cpp = import_llama_cpp()
        try:
            self._llama = llama_cpp.Llama(
                str(model), n_ctx=context_length, n_batch=context_length,
                n_threads=threads, n_threads_batch=threads, logits_all=True,
                type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32, flash_attn=False,
                verbose=False, **yarn_betas(model))
        except (ValueError, RuntimeError) as error:
            raise CannotRun(f"llama.cpp cannot load {model}: {error}") from error
        self.eos = self._llama.token_eos()
        # Story models end a story with BOS and begin the next; some programs
        # stop there, so nothing after it is compared.
        self.stops = {self.eos, self._llama.token_bos()}

    def tokenize(self, text: str) -> list[int]:
        """Token ids with BOS; the empty prompt is the bare BOS."""
        if not text:
            return [self._llama.token_bos()]
        return self._llama.tokenize(text.encode(), add_bos=True, special=False)

    def restart(self) -> None:
        self._llama.reset()

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Continues with the tokens; returns a copy of their logits [tokens, vocab]."""
        first = self._llama.n_tokens
        self._llama.eval(tokens)
        return np.array(self._llama.scores[first : first + len(tokens)])

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """Up to `count` most likely tokens; ends before EOS or BOS."""
        self.restart()
        row = self.logits(prompt)[-1]
        ids: list[int] = []
        while len(ids) < count:
            token = int(row.argmax())
            if token in self.stops:
                break
            ids.append(token)
            if len(ids) < count:
                row = self.logits([token])[-1]
        return ids

    def logits_after(self, tokens: list[int]) -> np.ndarray:
        """Logits [vocab] that follow the tokens, from an empty cache."""
        self.restart()
        return self.logits(tokens)[-1]


# ------------------------------------------------------------------- Hearth


def hearth_greedy(hearth: Path, model: Path, prompt: str, count: int) -> list[int]:
    """Token ids that `hearth run` generates."""
    output = run_command([str(hearth), "run", str(model), "-p", prompt, "-n", str(count),
                          "--temp", "0", "--kv", "f32", "--raw", "--json"])
    try:
        return [int(i) for i in json.loads(output)["token_ids"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotRun(f"hearth run --json: {error}: {output[:300]!r}") from error


# --------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Row:
    """Result of one prompt on one model.

    status: identical | near tie | different | skipped | error.
    first_difference: index of the generated token, None where there is none.
    margin: llama.cpp's logit of its own token minus that of Hearth's.
    """

    model: str
    prompt: str
    tokens: int = 0
    first_difference: int | None = None
    margin: float | None = None
    status: str = "identical"
    note: str = ""


def first_difference(a: list[int], b: list[int]) -> int | None:
    """Index of the first difference; a shorter list differs where it ends."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def compare_prompt(reference: LlamaCpp, hearth: Path, model: Path, prompt: str,
                   count: int, margin_limit: float) -> Row:
    """Greedy ids of both programs; at a difference, llama.cpp's margin there."""
    ours = hearth_greedy(hearth, model, prompt, count)
    # Whether the stop token itself is listed does not matter.
    ours = list(itertools.takewhile(lambda i: i not in reference.stops, ours))
    prompt_ids = reference.tokenize(prompt)
    theirs = reference.greedy(prompt_ids, count)
    at = first_difference(ours, theirs)
    if at is None:
        return Row(model.name, prompt, len(theirs))
    our_token = ours[at] if at < len(ours) else reference.eos
    their_token = theirs[at] if at < len(theirs) else reference.eos
    row = reference.logits_after(prompt_ids + theirs[:at])
    if not 0 <= our_token < len(row):
        return Row(model.name, prompt, at, at, None, "different",
                   f"token {our_token} is outside the vocabulary of {len(row)}")
    margin = float(row[their_token] - row[our_token])
    status = "different" if margin > margin_limit else "near tie"
    note = f"hearth {our_token}, llama.cpp {their_token}"
    return Row(model.name, prompt, at, at, margin, status, note)


def compare_model(model: Path, args: argparse.Namespace) -> list[Row]:
    """All prompts on one model. What cannot run becomes a row with status error."""
    try:
        if not model.is_file():
            raise CannotRun(f"no such file: {model}")
        activation = file_keys(model).get("hearth.ffn_activation", "silu")
        if activation != "silu":
            note = f"llama.cpp does not know activation {activation}"
            return [Row(model.name, "", status="skipped", note=note)]
        reference = LlamaCpp(model, args.context, args.threads)
        return [compare_prompt(reference, args.hearth, model, prompt, args.tokens, args.margin)
                for prompt in args.prompt]
    except CannotRun as error:
        return [Row(model.name, "", status="error", note=str(error))]


# -------------------------------------------------------------------- synth


def synth_shapes() -> dict[str, dict[str, Any]]:
    """A small shape of each family that llama.cpp knows.

    Sizes are multiples of 256, so that any quantization fits; vocab_size leaves
    room for the 259 pieces that every SentencePiece vocabulary has.
    """
    base = {
        "hidden_size": 256, "intermediate_size": 512, "num_layers": 4, "num_heads": 8,
        "num_kv_heads": 4, "head_dim": 32, "vocab_size": 512, "context_length": 512,
        "rope_base": 10000.0, "activation": "silu", "num_experts": 0,
        "num_experts_per_token": 0,
    }
    experts = {"num_experts": 8, "num_experts_per_token": 2, "intermediate_size": 256}
    return {
        "llama": base | {"arch": "llama", "num_kv_heads": 8},
        "mistral": base | {"arch": "mistral"},
        "mixtral": base | experts | {"arch": "mixtral"},
        "qwen2": base | {"arch": "qwen2", "rope_base": 1000000.0},
        # Attention wider than hidden, as the real ones are.
        "qwen3": base | {"arch": "qwen3", "head_dim": 64},
        "qwen3moe": base | experts | {"arch": "qwen3moe", "head_dim": 64,
                                      "num_experts_per_token": 3},
    }


def make_synth_models(hearth: Path, folder: Path, extra: list[str]) -> tuple[list[Path], list[Row]]:
    """Calls `hearth synth` per shape; returns (models, rows of failures)."""
    models, failures = [], []
    for name, shape in synth_shapes().items():
        shape_path, model = folder / f"{name}.json", folder / f"synth-{name}.gguf"
        shape_path.write_text(json.dumps(shape, indent=1))
        try:
            run_command([str(hearth), "synth", "--shape", str(shape_path), "-o", str(model),
                         *extra])
            models.append(model)
        except CannotRun as error:
            failures.append(Row(model.name, "", status="error", note=str(error)))
    return models, failures


# ------------------------------------------------------------------ goldens


def compare_golden(index: Path, threads: int) -> Row:
    """llama.cpp's logits of a golden model against Hugging Face's.

    The margin column holds max |difference| / max |reference|; tokens are the
    positions compared. The prompt goes in one batch, the rest token by token,
    as the golden logits were made.
    """
    golden = json.loads(index.read_text())
    shape = (len(golden["positions"]), golden["vocab_size"])
    expected = np.fromfile(index.parent / golden["file"], "<f4").reshape(shape)
    llama = LlamaCpp(index.parent / golden["model"], 128, threads)
    rows = [llama.logits(golden["prompt"])]
    rows += [llama.logits([token]) for token in golden["decode"]]
    actual = np.concatenate(rows)[golden["positions"]]
    error = np.abs(actual - expected).max(axis=1) / np.abs(expected).max()
    worst = float(error.max())
    tolerance = GELU_TOLERANCE if index.stem in GELU_GOLDENS else GOLDEN_TOLERANCE
    agrees = worst <= tolerance
    reason = UNKNOWN_TO_LLAMACPP.get(index.stem)
    status = "identical" if agrees else ("skipped" if reason else "different")
    first = None if agrees else int(golden["positions"][int((error > tolerance).argmax())])
    return Row(index.stem, "", len(expected), first, worst, status, reason or "")


def compare_goldens(folder: Path, threads: int) -> list[Row]:
    rows = []
    for index in sorted(folder.glob("*.json")):
        if "logits_sha" not in json.loads(index.read_text()):
            continue  # of other kinds
        try:
            rows.append(compare_golden(index, threads))
        except CannotRun as error:
            reason = UNKNOWN_TO_LLAMACPP.get(index.stem)
            rows.append(Row(index.stem, "", status="skipped" if reason else "error",
                            note=reason or str(error)))
    return rows


# --------------------------------------------------------------------- main


def print_table(rows: list[Row]) -> None:
    print(f"{'model':28} {'prompt':18} {'tokens':>6} {'differs at':>10} {'margin':>9}  status")
    for row in rows:
        at = "-" if row.first_difference is None else str(row.first_difference)
        margin = "-" if row.margin is None else f"{row.margin:.2e}"
        note = f" ({row.note})" if row.note else ""
        print(f"{row.model[:28]:28} {row.prompt[:18]:18} {row.tokens:6} {at:>10} "
              f"{margin:>9}  {row.status}{note}")


def shared_models() -> list[Path]:
    shared = Path(os.environ.get("HEARTH_SHARED", REPOSITORY.parent / "shared"))
    return sorted((shared / "data" / "models").glob("*.gguf"))


def collect_rows(args: argparse.Namespace) -> list[Row]:
    """Runs what the arguments ask for."""
    if args.goldens is not None:
        return compare_goldens(args.goldens, args.threads)
    if not os.access(args.hearth, os.X_OK):
        raise CannotRun(f"no hearth program at {args.hearth}; build it or give --hearth")
    models = list(args.models)
    if not models and not args.synth:
        models = shared_models()
        if not models:
            raise CannotRun("no models given, and none in $HEARTH_SHARED/data/models")
    rows = [row for model in models for row in compare_model(model, args)]
    if args.synth:
        with tempfile.TemporaryDirectory(prefix="hearth-compare-") as folder:
            # Float weights: quantized ones differ by how each engine rounds activations.
            options = args.synth_arg or ["--quant", "f32"]
            made, failures = make_synth_models(args.hearth, Path(folder), options)
            rows += failures
            rows += [row for model in made for row in compare_model(model, args)]
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="GGUF")
    parser.add_argument("--synth", action="store_true", help="also compare synth models")
    parser.add_argument("--synth-arg", action="append", default=[], metavar="ARG",
                        help="passed on to `hearth synth` (default: --quant f32)")
    parser.add_argument("--goldens", nargs="?", const=DEFAULT_GOLDENS, type=Path,
                        metavar="FOLDER", help="check llama.cpp against the golden logits")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("-p", "--prompt", action="append", help="default: three prompts")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="tokens per prompt")
    parser.add_argument("--margin", type=float, default=1e-3,
                        help="logit margin above which a difference fails")
    parser.add_argument("--context", type=int, default=512, help="llama.cpp's context length")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    if args.prompt is None:
        args.prompt = list(DEFAULT_PROMPTS)
    return args


def main() -> int:
    args = parse_arguments()
    try:
        rows = collect_rows(args)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counts = {status: sum(r.status == status for r in rows)
              for status in ("identical", "near tie", "different", "skipped", "error")}
    if args.json:
        print(json.dumps({"rows": [asdict(r) for r in rows], "counts": counts}, indent=1))
    else:
        print_table(rows)
        print(", ".join(f"{n} {status}" for status, n in counts.items() if n))
    if counts["different"]:
        return 1
    return 2 if counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
