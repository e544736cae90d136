#!/usr/bin/env python3
"""Whether `cluster` is worth it on this machine, calm and with a program on every processor.

Runs `hearth bench` with the pipelines `cluster` and `blocking` in turn, first alone, then beside one busy
loop per processor, and prints the median of the ratios of neighbours.

  busy_machine.py stories-packed.gguf --memory 40M --decode 200 --pairs 9
  busy_machine.py bamboo-7b-packed.gguf --memory 2.57G --decode 96 --pairs 5 --only calm --json busy.json

Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402

STATES = ("calm", "loaded")
PIPELINES = ("cluster", "blocking")


@contextlib.contextmanager
def busy_loops(are_wanted: bool) -> Iterator[None]:
    loops = []
    try:
        for cpu in sorted(os.sched_getaffinity(0)) if are_wanted else []:
            loops.append(subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def tokens_per_second(arguments: argparse.Namespace, pipeline: str) -> float:
    document = json.loads(run_command(
        [str(arguments.hearth), "bench", arguments.model, "--memory", arguments.memory, "--ctx", "512",
         "--mode", "predicted", "--pipeline", pipeline, "--prefill", "1",
         "--decode", str(arguments.decode), "--reps", "1", "--json"], "hearth bench"))
    return document["decode"]["tok_s"]["median"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="packed GGUF file with predictors")
    parser.add_argument("--memory", required=True, help="less than the model takes, like 2.57G")
    parser.add_argument("--decode", type=int, default=128, help="tokens of a run (default: 128)")
    parser.add_argument("--pairs", type=int, default=9, help="of runs in each state (default: 9)")
    parser.add_argument("--only", choices=STATES, help="one of the two states")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--json", type=Path, help="file to write the speeds to")
    arguments = parser.parse_args()
    results = {}
    for state in [arguments.only] if arguments.only else STATES:
        with busy_loops(state == "loaded"):
            pairs = [[tokens_per_second(arguments, pipeline) for pipeline in PIPELINES]
                     for _ in range(arguments.pairs)]
        results[state] = {pipeline: [pair[i] for pair in pairs] for i, pipeline in enumerate(PIPELINES)}
        results[state]["ratio"] = [cluster / blocking for cluster, blocking in pairs]
        medians = {name: statistics.median(runs) for name, runs in results[state].items()}
        print(f"{state}: cluster {medians['cluster']:.2f}, blocking {medians['blocking']:.2f} tok/s, "
              f"ratio {medians['ratio']:.3f} (median of {arguments.pairs})", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"busy_machine.py: {error}")
