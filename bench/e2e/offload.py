#!/usr/bin/env python3
"""How fast a packed model runs with part of its FFNs outside memory.

Runs `hearth bench` in turn: with everything in memory, and with each share of the bundles' bytes
outside it and each pipeline. "Half outside" is a budget of what the model takes in memory less half of its
bundles' bytes. Ratios are to the run in memory of the same repetition.

  offload.py bamboo-7b-packed.gguf
  offload.py bamboo-7b-packed.gguf --outside 50,75 --pipelines cluster,blocking --json build/offload.json
  offload.py bamboo-7b-packed.gguf --cgroup     each run in a memory cgroup (v1; needs root) of twice its
                                                budget, whose highest use is held against the budget

Exit status: 0 done, 1 a run took more than its budget, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402

CGROUPS = Path("/sys/fs/cgroup/memory")


class Cgroup:
    """A memory cgroup that the commands started inside `with` belong to."""

    def __init__(self, limit_bytes: int) -> None:
        self.folder = CGROUPS / f"hearth_offload_{os.getpid()}"
        try:
            self.folder.mkdir()
            (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        except OSError as error:
            raise CannotRun(f"no memory cgroup can be made: {error}") from error

    def wrap(self, command: list[str]) -> list[str]:
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    def highest_use(self) -> int:
        return int((self.folder / "memory.max_usage_in_bytes").read_text())


@contextlib.contextmanager
def cgroup(limit_bytes: int) -> Iterator[Cgroup]:
    group = Cgroup(limit_bytes)
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.folder.rmdir()


def bench(args: argparse.Namespace, more: list[str], budget: int | None) -> dict[str, Any]:
    """The document of one run; with --cgroup also what it used at the most."""
    context = max([*args.prefill, args.context + args.decode])
    command = [str(args.hearth), "bench", str(args.model), "--threads", str(args.threads),
               "--prefill", ",".join(str(n) for n in args.prefill),
               "--decode", str(args.decode), "--context", str(args.context),
               "--ctx", str(context), "--mode", args.mode, "--reps", "1", "--json", *more]
    if budget is None or not args.cgroup:
        return json.loads(run_command(command, "hearth"))
    with cgroup(2 * budget) as group:
        document = json.loads(run_command(group.wrap(command), "hearth"))
        document["cgroup_highest_bytes"] = group.highest_use()
        return document


def bundle_bytes(args: argparse.Namespace) -> int:
    packing = json.loads(run_command([str(args.hearth), "inspect", str(args.model), "--json"],
                                     "hearth"))["packing"]
    if packing is None:
        raise CannotRun(f"{args.model} is not packed: hearth pack makes a file whose neurons stream")
    return int(packing["bundle_bytes"])


def summary(runs: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def setting_row(setting: dict[str, Any], runs: list[dict[str, Any]],
                resident: list[dict[str, Any]]) -> dict[str, Any]:
    """One setting over all repetitions."""
    def decode(document: dict[str, Any]) -> float:
        return float(document["decode"]["tok_s"]["median"])

    def prefill(document: dict[str, Any], index: int) -> float:
        return float(document["prefill"][index]["tok_s"]["median"])

    row = dict(setting)
    row["decode"] = summary([decode(run) for run in runs])
    row["decode_of_memory"] = summary([decode(a) / decode(b) for a, b in zip(runs, resident)])
    row["prefill"] = [
        {"tokens": part["tokens"], "tok_s": summary([prefill(run, i) for run in runs]),
         "of_memory": summary([prefill(a, i) / prefill(b, i) for a, b in zip(runs, resident)])}
        for i, part in enumerate(runs[0]["prefill"])]
    row["latency_ms"] = runs[-1]["decode"]["latency_ms"]
    row["io"] = runs[-1]["io"]
    row["quality"] = runs[-1]["quality"]
    row["rss_peak_bytes"] = max(run["memory"]["rss_peak_bytes"] for run in runs)
    highest = [run["cgroup_highest_bytes"] for run in runs if "cgroup_highest_bytes" in run]
    row["cgroup_highest_bytes"] = max(highest) if highest else None
    row["read_bandwidth_gb_s"] = [run["machine"]["read_bandwidth_gb_s"] for run in runs]
    return row


def settings_of(args: argparse.Namespace, in_memory: int, bundles: int) -> list[dict[str, Any]]:
    settings = []
    for percent in args.outside:
        for pipeline in args.pipelines:
            budget = (in_memory - bundles * percent // 100) >> 20 << 20
            settings.append({"outside_percent": percent, "pipeline": pipeline,
                             "budget_bytes": budget})
    return settings


def measure(args: argparse.Namespace) -> dict[str, Any]:
    bundles = bundle_bytes(args)
    resident = [bench(args, [], None)]
    # The probe's buffer belongs to the measurement.
    in_memory = sum(size for name, size in resident[0]["memory"]["ledger"].items()
                    if name != "bandwidth probe")
    settings = settings_of(args, in_memory, bundles)
    runs: list[list[dict[str, Any]]] = [[] for _ in settings]
    for repetition in range(args.reps):
        if repetition > 0:
            resident.append(bench(args, [], None))
        for setting, documents in zip(settings, runs):
            more = ["--memory", str(setting["budget_bytes"]), "--pipeline", setting["pipeline"]]
            documents.append(bench(args, more, setting["budget_bytes"]))
            if documents[-1]["io"] is None:
                raise CannotRun("a run that should have streamed did not")
            print(f"repetition {repetition + 1} of {args.reps}: {setting['outside_percent']}% "
                  f"outside, {setting['pipeline']}", file=sys.stderr)
    memory = setting_row({"outside_percent": 0, "pipeline": None, "budget_bytes": in_memory},
                         resident, resident)
    rows = [setting_row(*pair, resident) for pair in zip(settings, runs)]
    return {"model": str(args.model), "mode": args.mode, "threads": args.threads,
            "machine": platform.processor() or platform.machine(), "bundle_bytes": bundles,
            "settings": [memory, *rows]}


def print_table(document: dict[str, Any]) -> bool:
    """False where a run took more than its budget."""
    kept = True
    lengths = [part["tokens"] for part in document["settings"][0]["prefill"]]
    head = "".join(f"{f'prefill {n}':>18}" for n in lengths)
    print(f"{'outside':>8} {'pipeline':>9} {'budget':>9} {'decode tok/s':>18}{head} "
          f"{'found':>7} {'waits':>7} {'p99 ms':>8}")
    for row in document["settings"]:
        io = row["io"] or {}
        speeds = [(row["decode"], row["decode_of_memory"])]
        speeds += [(part["tok_s"], part["of_memory"]) for part in row["prefill"]]
        text = "".join(f"{s['median']:>11.2f} {100 * r['median']:>4.0f}% " for s, r in speeds)
        print(f"{row['outside_percent']:>7}% {row['pipeline'] or 'memory':>9} "
              f"{row['budget_bytes'] / 2**30:>7.2f}G {text} "
              f"{100 * io.get('hit_rate', 1):>6.1f}% {100 * io.get('wait_share', 0):>6.1f}% "
              f"{row['latency_ms']['p99']:>8.1f}")
        highest = row["cgroup_highest_bytes"]
        if highest is not None and highest > row["budget_bytes"]:
            kept = False
            print(f"         took {highest / 2**30:.2f}G, more than its budget", file=sys.stderr)
    return kept


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--mode", default="predicted", choices=["predicted", "gated", "dense"])
    parser.add_argument("--outside", type=numbers, default=[50, 75], metavar="PERCENT,...")
    parser.add_argument("--pipelines", type=lambda t: t.split(","),
                        default=["cluster", "blocking"], metavar="NAME,...")
    parser.add_argument("--prefill", type=numbers, default=[128, 512], metavar="TOKENS,...")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--cgroup", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    try:
        document = measure(args)
    except CannotRun as error:
        print(f"offload.py: {error}", file=sys.stderr)
        return 2
    kept = print_table(document)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
