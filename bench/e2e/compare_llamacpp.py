#!/usr/bin/env python3
"""Compares the speeds of Hearth and llama.cpp on one GGUF file, run in turn.

Every repetition runs `hearth bench` once and llama.cpp (the Python package llama_cpp) once, each
in a process of its own, so that what else the machine does meanwhile touches both alike. Both
take random token ids: prompts in an empty context with the logits of the last token, then single
given tokens after --context tokens.

  compare_llamacpp.py MODEL.gguf
  compare_llamacpp.py MODEL.gguf --llama-path DIR --json build/e2e.json

Exit status: 0 done, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, REPOSITORY, CannotRun, run_command  # noqa: E402

LLAMACPP_SPEED = Path(__file__).resolve().with_name("llamacpp_speed.py")


def common_arguments(args: argparse.Namespace) -> list[str]:
    """What both engines are told in the same words."""
    return [str(args.model), "--threads", str(args.threads), "--kv", args.kv,
            "--prefill", ",".join(str(n) for n in args.prefill),
            "--decode", str(args.decode), "--context", str(args.context)]


def run_hearth(args: argparse.Namespace) -> dict[str, Any]:
    """The document of `hearth bench`."""
    context = max([*args.prefill, args.context + args.decode])
    return json.loads(run_command(
        [str(args.hearth), "bench", *common_arguments(args), "--reps", "1", "--ctx", str(context),
         "--json"], "hearth"))


def run_llamacpp(args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, str(LLAMACPP_SPEED), *common_arguments(args)]
    if args.llama_path is not None:
        command += ["--llama-path", str(args.llama_path)]
    return json.loads(run_command(command, "llama.cpp"))


def speed(document: dict[str, Any], phase: str, index: int) -> float:
    """Tokens per second in either engine's document."""
    part = document["decode"] if phase == "decode" else document["prefill"][index]
    tok_s = part["tok_s"]
    return float(tok_s["median"] if isinstance(tok_s, dict) else tok_s)


def summary(runs: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def measures(args: argparse.Namespace, hearth: list[dict[str, Any]],
             llamacpp: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per thing measured. Ratios are of runs that were neighbours in time."""
    wanted = [("prefill", tokens, index) for index, tokens in enumerate(args.prefill)]
    wanted.append(("decode", args.decode, 0))
    rows = []
    for phase, tokens, index in wanted:
        ours = [speed(document, phase, index) for document in hearth]
        theirs = [speed(document, phase, index) for document in llamacpp]
        ratios = [a / b for a, b in zip(ours, theirs)]
        rows.append({"phase": phase, "tokens": tokens,
                     "context": args.context if phase == "decode" else 0,
                     "hearth": summary(ours), "llamacpp": summary(theirs),
                     "ratio": summary(ratios)})
    return rows


def commit() -> str:
    """What is checked out; empty outside of a repository."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY,
                          capture_output=True, text=True, check=False)
    return done.stdout.strip()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines
                    if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def compare(args: argparse.Namespace) -> dict[str, Any]:
    if not args.model.is_file():
        raise CannotRun(f"no such file: {args.model}")
    if not os.access(args.hearth, os.X_OK):
        raise CannotRun(f"no hearth program at {args.hearth}; build it or give --hearth")
    measured_commit = commit()  # before anyone checks out another
    hearth, llamacpp = [], []
    for repetition in range(args.reps):
        print(f"repetition {repetition + 1} of {args.reps}", file=sys.stderr)
        # llama.cpp first: that it is missing shows at once.
        llamacpp.append(run_llamacpp(args))
        hearth.append(run_hearth(args))
    return {"model": args.model.name, "processor": processor(), "threads": args.threads,
            "kv": args.kv, "repetitions": args.reps, "commit": measured_commit,
            "hearth": {"isa": hearth[0]["isa"], "shape": hearth[0]["shape"]},
            "llamacpp": {key: llamacpp[0][key] for key in ("version", "system")},
            "measures": measures(args, hearth, llamacpp)}


def print_table(result: dict[str, Any]) -> None:
    print(f"{result['model']}, {result['threads']} threads, medians of {result['repetitions']} "
          f"runs (least to most), tokens per second")
    print(f"{'':22} {'hearth':>24} {'llama.cpp':>24} {'ratio':>20}")
    for row in result["measures"]:
        name = f"{row['phase']} {row['tokens']}"
        if row["context"]:
            name += f" after {row['context']}"
        cells = [f"{row[engine]['median']:.2f} ({row[engine]['min']:.2f} to "
                 f"{row[engine]['max']:.2f})" for engine in ("hearth", "llamacpp", "ratio")]
        print(f"{name:22} {cells[0]:>24} {cells[1]:>24} {cells[2]:>20}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="GGUF")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--llama-path", type=Path, metavar="DIR",
                        help="where the package llama_cpp lies, if not where Python looks")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prefill", type=lambda text: [int(n) for n in text.split(",")],
                        default=[128, 512], metavar="N,...")
    parser.add_argument("--decode", type=int, default=64, metavar="N")
    parser.add_argument("--context", type=int, default=32, metavar="N",
                        help="tokens before the first that is decoded")
    parser.add_argument("--kv", choices=["f16", "f32"], default="f16")
    parser.add_argument("--reps", type=int, default=5, metavar="R")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    try:
        result = compare(args)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print_table(result)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
