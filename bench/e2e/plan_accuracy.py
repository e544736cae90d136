#!/usr/bin/env python3
"""Whether plans keep their promises: what `hearth plan` says against what `hearth bench` measures.

  accuracy  Everything in memory, and random budgets that were never run before (--seed, printed): for
            each in turn the machine is measured, planned for, and the plan run. The predicted speed is
            to be within --within percent of the measured one, in the median of the pairs.
  least     `hearth plan --min-speed S`: the plan is to reach 95% of S, with at most 10% more memory than
            the least that does, which is searched for by halving and running.
  grid      The plan against every fixed setting of threads, I/O strategy and cache split, in the same
            memory. All run once, the fastest ones again in turn with the plan: its median is to be at
            least 0.97 of each of theirs.

  plan_accuracy.py bamboo-7b-packed.gguf --mode predicted --json bamboo.json
  plan_accuracy.py mistral-7b.gguf --only accuracy --memory all,3G --json mistral.json

With --json results are kept as they come; the same command again goes on where it stopped, after
--seconds, say, and prints the tables of what is there. Exit status: 0 all promises kept, 1 not, 2 could
not run, 3 unfinished.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from plan_runs import Bench, Results, Unfinished, as_size, bytes_in_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun  # noqa: E402

PARTS = ["accuracy", "least", "grid"]
REACHED = 0.95
MOST_MEMORY = 1.10
GRID_SHARE = 0.97


def size(text: str) -> int | None:
    """"2.5G", "900M" or "all"."""
    units = {"G": 30, "M": 20}
    return None if text == "all" else int(float(text[:-1]) * 2 ** units[text[-1]])


def random_budgets(args: argparse.Namespace, bench: Bench, results: Results,
                   in_memory: int) -> list[int]:
    """Between the smallest that runs and everything, a little away from both."""
    smallest = results.get("smallest budget", bench.smallest_budget)
    numbers = random.Random(args.seed)
    low, high = smallest * 1.05, in_memory * 0.95
    return sorted(int(numbers.uniform(low, high)) >> 20 << 20 for _ in range(args.random))


def median_speed(runs: list[dict[str, Any]]) -> float:
    return statistics.median(run["tok_s"] for run in runs)


def accuracy(args: argparse.Namespace, bench: Bench, results: Results) -> bool:
    def pair(budget: int | None, repetition: int) -> dict[str, Any]:
        return results.get(f"accuracy {budget or 'all'} {repetition}",
                           lambda: bench.planned_run(budget))

    if args.memory is not None:
        budgets = [size(text) for text in args.memory.split(",")]
    else:
        in_memory = bytes_in_memory(pair(None, 0)["plan"])
        budgets = [None, *random_budgets(args, bench, results, in_memory)]
        print(f"budgets (--seed {args.seed}): {', '.join(as_size(b) for b in budgets)}",
              file=sys.stderr)
    pairs: dict[int | None, list[dict[str, Any]]] = {budget: [] for budget in budgets}
    try:
        for repetition in range(args.reps):
            for budget in budgets:
                pairs[budget].append(pair(budget, repetition))
    finally:
        good = print_accuracy(args, pairs)
    return good


def error_percent(pair: dict[str, Any]) -> float:
    return 100 * (pair["plan"]["decode_tok_s"] / pair["run"]["tok_s"] - 1)


def print_accuracy(args: argparse.Namespace, pairs: dict[int | None, list[dict[str, Any]]]) -> bool:
    print(f"{'memory':>8} {'planned':>9} {'measured':>9} {'error':>7} {'MiB/token':>10} {'measured':>9} "
          f"{'plan s':>7}   errors of all pairs")
    good = True
    for budget, ours in pairs.items():
        if not ours:
            continue
        errors = sorted(error_percent(p) for p in ours)
        middle = statistics.median(errors)
        good = good and abs(middle) <= args.within
        read = statistics.median((p["run"]["io"] or {}).get("bytes_read_per_token", 0) for p in ours)
        planned_read = statistics.median(p["plan"]["bytes_read_per_token"] for p in ours)
        print(f"{as_size(budget):>8} {statistics.median(p['plan']['decode_tok_s'] for p in ours):9.2f} "
              f"{median_speed([p['run'] for p in ours]):9.2f} {middle:+6.1f}% "
              f"{planned_read / 2**20:10.2f} {read / 2**20:9.2f} "
              f"{max(p['plan']['seconds'] for p in ours):7.2f}   "
              + " ".join(f"{e:+.0f}%" for e in errors))
    return good


def least_memory(args: argparse.Namespace, bench: Bench, results: Results) -> bool:
    """Halves between the smallest budget and the chosen one, by what runs of plans reach."""
    if args.speed is None:
        whole = results.get("accuracy all 0", lambda: bench.planned_run(None))
        args.speed = round(args.speed_share * whole["run"]["tok_s"], 1)
    wanted = args.speed
    chosen = results.get(f"least {wanted} chosen",
                         lambda: bench.planned_run(None, ["--min-speed", str(wanted)]))
    budget = chosen["plan"]["budget_bytes"]

    def speed_at(limit: int) -> float:
        runs = [results.get(f"least {wanted} {limit} {repetition}",
                            lambda: bench.planned_run(limit, [], chosen["hardware"]))["run"]
                for repetition in range(args.reps)]
        return median_speed(runs)

    reached = speed_at(budget)
    smallest = results.get("smallest budget", bench.smallest_budget)

    def least_that_reaches(speed: float) -> int:
        low, high = smallest, budget
        if reached < speed:  # the chosen one does not
            high = int(budget * 1.5)
        while high - low > 0.03 * budget:
            middle = (low + high) // 2 >> 20 << 20
            if speed_at(middle) >= speed:
                high = middle
            else:
                low = middle
        return high

    print(f"--min-speed {wanted}: chosen {as_size(budget)}, planned "
          f"{chosen['plan']['decode_tok_s']:.2f}, measured {reached:.2f} tok/s "
          f"({100 * reached / wanted:.0f}%)")
    good = reached >= REACHED * wanted
    for share in (REACHED, 1.0):
        least = least_that_reaches(share * wanted)
        more = budget / least
        print(f"  least that reaches {100 * share:.0f}% of it: {as_size(least)}; the plan takes "
              f"{100 * (more - 1):+.0f}%")
        if share == REACHED:
            good = good and more <= MOST_MEMORY
    return good


def grid_settings(args: argparse.Namespace, streams_neurons: bool) -> list[list[str]]:
    threads = [["--threads", str(n)] for n in range(1, args.threads + 1)]
    backends = [[], ["--io", "pread"]]
    if not streams_neurons:
        return [a + b for a, b in itertools.product(threads, backends)]
    pipelines = [[], ["--pipeline", "matrix"], ["--pipeline", "blocking"]]
    splits = [["--pinned", share] for share in ("0", "0.25", "0.5", "0.75", "0.9")]
    settings = [a + b + c for a, b, c in itertools.product(threads, pipelines, splits)]
    # Another way of reading, beside the default pipeline alone.
    return settings + [a + ["--io", "pread"] + c for a, c in itertools.product(threads, splits)]


def grid(args: argparse.Namespace, bench: Bench, results: Results) -> bool:
    """The plan against fixed settings in the same memory."""
    if args.grid_memory is None:
        whole = results.get("accuracy all 0", lambda: bench.planned_run(None))
        args.grid_memory = int(args.grid_share * bytes_in_memory(whole["plan"])) >> 20 << 20
    budget = args.grid_memory
    first = results.get(f"grid {budget} plan", lambda: bench.planned_run(budget))
    settings = [" ".join(s) for s in grid_settings(args, first["plan"]["stream"] is not None)]

    def speed(setting: str, repetition: int) -> float:
        if setting == "plan":
            return float(results.get(
                f"grid {budget} plan {repetition}",
                lambda: bench.planned_run(budget, [], first["hardware"]))["run"]["tok_s"])
        return float(results.get(
            f"grid {budget} {setting} {repetition}",
            lambda: bench.fixed_run(budget, setting.split()))["tok_s"])

    once = {setting: speed(setting, 0) for setting in settings}
    best = sorted(settings, key=lambda s: -once[s])[:args.grid_best]
    again: dict[str, list[float]] = {}
    for repetition in range(1, args.grid_reps + 1):
        for name in ["plan", *best]:
            again.setdefault(name, []).append(speed(name, repetition))
    plan = statistics.median(again["plan"])
    print(f"{as_size(budget)}: the plan {plan:.2f} tok/s ({first['plan']['io_strategy']}, "
          f"{len(first['plan']['cores']['compute'])} threads); {len(settings)} settings once, "
          f"from {min(once.values()):.2f} to {max(once.values()):.2f}; again in turn:")
    good = True
    for name in best:
        other = statistics.median(again[name])
        good = good and plan >= GRID_SHARE * other
        print(f"  {name:<50} {other:7.2f} tok/s: the plan is {plan / other:.2f} of it")
    return good


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...")
    parser.add_argument("--memory", metavar="SIZE,...", help="instead of random budgets: all,3G")
    parser.add_argument("--random", type=int, default=3, help="how many random budgets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decode", type=int, default=48)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--within", type=float, default=15)
    parser.add_argument("--speed", type=float, help="that `least` asks for")
    parser.add_argument("--speed-share", type=float, default=0.6, help="of what memory gives")
    parser.add_argument("--grid-memory", type=size, metavar="SIZE")
    parser.add_argument("--grid-share", type=float, default=0.6, help="of everything in memory")
    parser.add_argument("--grid-best", type=int, default=4, help="settings that are run again")
    parser.add_argument("--grid-reps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="most threads of the grid")
    parser.add_argument("--cgroup", action="store_true",
                        help="limited runs in a memory cgroup (v1; needs root) of their budget")
    parser.add_argument("--drop-caches", action="store_true", help="before each run; needs root")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after these")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    parts = args.only.split(",")
    if unknown := set(parts) - set(PARTS):
        print(f"plan_accuracy.py: no such part: {', '.join(unknown)}", file=sys.stderr)
        return 2
    bench = Bench(args.hearth, args.model, args.mode, args.decode, args.cgroup, args.drop_caches)
    kept = True
    try:
        results = Results(args.json, args.seconds)
        results.check_same("model", str(args.model.resolve()))
        for name, part in (("accuracy", accuracy), ("least", least_memory), ("grid", grid)):
            if name in parts:
                kept = part(args, bench, results) and kept
    except Unfinished:
        print("unfinished: the same command goes on", file=sys.stderr)
        return 3
    except CannotRun as error:
        print(f"plan_accuracy.py: {error}", file=sys.stderr)
        return 2
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
