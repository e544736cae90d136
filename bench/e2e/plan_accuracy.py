#!/usr/bin/env python3
"""How near planned decode speeds are to measured ones: plan first, run after.

For every memory limit (and `all`: everything in memory) in turn: `hearth doctor` measures the machine,
`hearth plan` says how fast the model will decode, `hearth bench --plan` measures it, in a process of its
own with the page cache dropped. Repeated; printed are the planned and the measured speed of each pair and
the error of the median pair.

  plan_accuracy.py bamboo-7b-packed.gguf --memory all,2.4G,2.8G,3.3G --mode predicted
  plan_accuracy.py mistral-7b.gguf --memory all,3G

Exit status: 0 all medians within --within percent, 1 not, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402
from memory_cgroup import drop_page_cache  # noqa: E402

TIMEOUT_S = 1800
IN_MEMORY = "all"


def pair(args: argparse.Namespace, memory: str, folder: Path) -> dict[str, Any]:
    """One plan and what came of it."""
    hearth = str(args.hearth)
    hardware, plan = folder / "hardware.json", folder / "plan.json"
    run_command([hearth, "doctor", "--dir", str(args.model.parent), "-o", str(hardware)],
                "hearth doctor", TIMEOUT_S)
    limit = [] if memory == IN_MEMORY else ["--memory", memory]
    planned = json.loads(run_command(
        [hearth, "plan", str(args.model), *limit, "--mode", args.mode, "--ctx", "512",
         "--hw", str(hardware), "-o", str(plan), "--json"], "hearth plan", TIMEOUT_S))
    if args.drop_caches:
        drop_page_cache()
    measured = json.loads(run_command(
        [hearth, "bench", str(args.model), "--plan", str(plan), "--prefill", "32", "--decode",
         str(args.decode), "--context", "40", "--reps", "1", "--profile", "--json"],
        "hearth bench", TIMEOUT_S))
    return {"memory": memory, "planned": planned, "measured": measured,
            "planned_tok_s": planned["decode_tok_s"],
            "measured_tok_s": measured["decode"]["tok_s"]["median"]}


def error_percent(one: dict[str, Any]) -> float:
    return 100 * (one["planned_tok_s"] / one["measured_tok_s"] - 1)


def report(pairs: list[dict[str, Any]], budgets: list[str], within: float) -> bool:
    print(f"{'memory':>8} {'planned':>9} {'measured':>9} {'error':>7}   errors of all pairs")
    good = True
    for memory in budgets:
        ours = [p for p in pairs if p["memory"] == memory]
        errors = sorted(error_percent(p) for p in ours)
        middle = statistics.median(errors)
        good = good and abs(middle) <= within
        print(f"{memory:>8} {statistics.median(p['planned_tok_s'] for p in ours):9.2f} "
              f"{statistics.median(p['measured_tok_s'] for p in ours):9.2f} {middle:+6.1f}%   "
              + " ".join(f"{e:+.0f}%" for e in errors))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--memory", default=IN_MEMORY, metavar="SIZE,...")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--decode", type=int, default=48)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--within", type=float, default=15)
    parser.add_argument("--drop-caches", action="store_true", help="before each run; needs root")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    budgets = args.memory.split(",")
    pairs: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for repetition in range(args.reps):
                for memory in budgets:
                    one = pair(args, memory, Path(folder))
                    pairs.append(one)
                    print(f"repetition {repetition + 1} of {args.reps}: {memory}: planned "
                          f"{one['planned_tok_s']:.2f}, measured {one['measured_tok_s']:.2f} tok/s",
                          file=sys.stderr)
    except CannotRun as error:
        print(f"plan_accuracy.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(pairs, indent=1))
    return 0 if report(pairs, budgets, args.within) else 1


if __name__ == "__main__":
    sys.exit(main())
