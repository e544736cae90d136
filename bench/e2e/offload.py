#!/usr/bin/env python3
"""How fast a model runs with part of its FFNs outside memory, beside the same in memory and llama.cpp.

Every repetition runs, in turn and each in a process of its own: `hearth bench` with everything in
memory, `hearth bench` with each budget and pipeline, and llama.cpp where it is asked for, in memory
and (with --cgroup) in a cgroup of each budget. Every repetition begins with another of them, and
each waits for --settle seconds: a virtual machine gives the memory of the last run back to its host
meanwhile, whose work for that is processor time stolen from who runs then (stolen_s in the JSON).
Ratios are to Hearth in memory of the same repetition.

  offload.py bamboo-7b-packed.gguf                                  half, and 75% of the bundles outside
  offload.py bamboo-7b-packed.gguf --outside 50,75 --pipelines cluster,blocking,matrix,llmflash
  offload.py qwen3.gguf --budgets 6G,8G,12G --no-resident           any GGUF, budgets in bytes
  offload.py packed.gguf --llamacpp plain.gguf --llama-path DIR     llama.cpp on its file of that shape
  ... --cgroup speed      each limited run in a memory cgroup (v1; needs root) of its budget
  ... --cgroup promise    of twice its budget, whose highest use is held against the budget

  ... --io-device oneplus-12                                        reads as its flash would serve them

"of the possible" is (T_other + max(T_ffn, T_io)) / T_measured per token: T_other and T_ffn as the run
in memory spent them, T_io the bytes that were read at the speed that the disk gives them without
computing, measured between the runs' own measurements. llama.cpp's line in a cgroup is what
  bench/e2e/llamacpp_speed.py MODEL.gguf --threads 2 --prefill 16 --decode 4 --context 4 --kv f16 --mapped-only
prints there. Exit status: 0 done, 1 a run took more than its budget, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun, run_command  # noqa: E402
from memory_cgroup import cgroup, drop_page_cache  # noqa: E402

LLAMACPP_SPEED = Path(__file__).resolve().with_name("llamacpp_speed.py")
FFN_OPS = {"ffn_gate_up", "ffn_activation", "ffn_down"}
RUN_TIMEOUT_S = 3000


def stolen_seconds() -> float:
    """Processor time that a host above this machine took, of all processors since the start."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def limited(args: argparse.Namespace, command: list[str], budget: int | None,
            name: str) -> dict[str, Any]:
    """The document that a command prints; in a cgroup also what it used at the most."""
    if args.drop_caches:
        drop_page_cache()
    time.sleep(args.settle)
    stolen = stolen_seconds()
    document = run_limited(args, command, budget, name)
    document["stolen_s"] = stolen_seconds() - stolen
    return document


def run_limited(args: argparse.Namespace, command: list[str], budget: int | None,
                name: str) -> dict[str, Any]:
    if budget is None or args.cgroup is None:
        return json.loads(run_command(command, name, RUN_TIMEOUT_S))
    with cgroup(budget if args.cgroup == "speed" else 2 * budget) as group:
        document = json.loads(run_command(group.wrap(command), name, RUN_TIMEOUT_S))
        document["cgroup_highest_bytes"] = group.highest_use()
        return document


def bench(args: argparse.Namespace, more: list[str], budget: int | None) -> dict[str, Any]:
    context = max([*args.prefill, args.context + args.decode])
    if budget is not None and args.io_device is not None:
        more = [*more, "--io-device", args.io_device]
    command = [str(args.hearth), "bench", str(args.model), "--threads", str(args.threads),
               "--prefill", ",".join(str(n) for n in args.prefill),
               "--decode", str(args.decode), "--context", str(args.context),
               "--ctx", str(context), "--mode", args.mode, "--reps", "1", "--profile", "--json",
               *more]
    return limited(args, command, budget, "hearth")


def llamacpp(args: argparse.Namespace, budget: int | None) -> dict[str, Any]:
    """llama.cpp in memory, or mapping its file in a cgroup that is too small for it."""
    decode, prefill, context = args.decode, args.prefill, args.context
    if budget is not None:
        # Every pass reads the file again.
        decode, prefill, context = args.llama_decode, args.llama_prefill, 4
    command = [sys.executable, str(LLAMACPP_SPEED), str(args.llamacpp), "--threads",
               str(args.threads), "--prefill", ",".join(str(n) for n in prefill),
               "--decode", str(decode), "--context", str(context), "--kv", "f16"]
    if args.llama_path is not None:
        command += ["--llama-path", str(args.llama_path)]
    if budget is not None:
        command.append("--mapped-only")
    return limited(args, command, budget, "llama.cpp")


def bundle_bytes(args: argparse.Namespace) -> int:
    packing = json.loads(run_command([str(args.hearth), "inspect", str(args.model), "--json"],
                                     "hearth"))["packing"]
    if packing is None:
        raise CannotRun(f"{args.model} is not packed: give --budgets instead of shares of bundles")
    return int(packing["bundle_bytes"])


def speeds_of(document: dict[str, Any]) -> list[float]:
    """Tokens per second of either engine: decode, then every prefill."""
    def number(value: Any) -> float:
        return float(value["median"] if isinstance(value, dict) else value)

    return [number(document["decode"]["tok_s"]),
            *(number(part["tok_s"]) for part in document["prefill"])]


def summary(runs: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def share_of_possible(run: dict[str, Any], resident: dict[str, Any]) -> float | None:
    """What overlap at its best would take, over what was taken."""
    storage = run["machine"]["storage_read_gb_s"]
    if storage is None:
        return None
    ops = resident["profile"]["decode"]["ops"]
    ffn = sum(op["ms_per_token"] for op in ops if op["op"] in FFN_OPS)
    other = sum(op["ms_per_token"] for op in ops if op["op"] not in FFN_OPS)
    io = run["io"]["bytes_read_per_token"] / storage / 1e6
    return (other + max(ffn, io)) / run["decode"]["latency_ms"]["mean"]


class Setting:
    """One line of the table: how to run it, and the documents of all repetitions."""

    def __init__(self, name: str, budget: int | None, more: list[str] | None) -> None:
        self.name = name
        self.budget = budget  # None: no limit
        self.more = more      # of hearth bench; None: llama.cpp
        self.documents: list[dict[str, Any]] = []

    def run(self, args: argparse.Namespace) -> None:
        document = (llamacpp(args, self.budget) if self.more is None
                    else bench(args, self.more, self.budget))
        if self.more is not None and self.budget is not None and document["io"] is None:
            raise CannotRun("a run that should have streamed did not")
        self.documents.append(document)

    def row(self, resident: list[dict[str, Any]], in_memory: int) -> dict[str, Any]:
        speeds = [speeds_of(document) for document in self.documents]
        ratios = [[a / b for a, b in zip(run, speeds_of(base))]
                  for run, base in zip(speeds, resident)]
        last = self.documents[-1]
        highest = [d["cgroup_highest_bytes"] for d in self.documents if "cgroup_highest_bytes" in d]
        row: dict[str, Any] = {
            "name": self.name, "is_limited": self.budget is not None,
            "budget_bytes": self.budget or in_memory,
            "decode": summary([run[0] for run in speeds]),
            "decode_of_memory": summary([run[0] for run in ratios]) if ratios else None,
            "prefill": [{"tokens": part["tokens"], "tok_s": summary([run[i] for run in speeds]),
                         "of_memory": summary([run[i] for run in ratios]) if ratios else None}
                        for i, part in enumerate(last["prefill"], start=1)],
            "cgroup_highest_bytes": max(highest) if highest else None,
            "stolen_s": [d["stolen_s"] for d in self.documents]}
        if self.more is not None:
            possible = [share_of_possible(*pair) for pair in zip(self.documents, resident)
                        if self.budget is not None]
            row |= {"latency_ms": last["decode"]["latency_ms"], "io": last["io"],
                    "quality": last["quality"], "machine": last["machine"],
                    "share_of_possible": statistics.median(possible) if possible else None,
                    "rss_peak_bytes": max(d["memory"]["rss_peak_bytes"] for d in self.documents)}
        return row


def budgets_of(args: argparse.Namespace, resident: dict[str, Any] | None) -> list[int]:
    if args.budgets is not None:
        return args.budgets
    if resident is None:
        raise CannotRun("--no-resident needs --budgets: shares are of what the model takes")
    # The probe's buffer belongs to the measurement.
    in_memory = sum(size for name, size in resident["memory"]["ledger"].items()
                    if name != "bandwidth probe")
    bundles = bundle_bytes(args)
    return [(in_memory - bundles * percent // 100) >> 20 << 20 for percent in args.outside]


def fits_in_memory(model: Path) -> bool:
    """Whether llama.cpp can hold a file, some of it as a copy in another layout beside the mapping."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return model.stat().st_size < 0.9 * memory


def settings_of(args: argparse.Namespace, budgets: list[int]) -> list[Setting]:
    settings = []
    for budget in budgets:
        for pipeline in args.pipelines:
            more = ["--memory", str(budget)]
            if pipeline:
                more += ["--pipeline", pipeline]
            settings.append(Setting(pipeline or "hearth", budget, more))
    if args.llamacpp is not None:
        if fits_in_memory(args.llamacpp):
            settings.append(Setting("llama.cpp", None, None))
        else:
            print("llama.cpp in memory is left out: its file does not fit", file=sys.stderr)
        if args.cgroup == "speed":
            settings += [Setting("llama.cpp", budget, None) for budget in budgets]
    return settings


def measure(args: argparse.Namespace) -> dict[str, Any]:
    memory = Setting("hearth", None, [])
    if not args.no_resident:
        memory.run(args)
    budgets = budgets_of(args, memory.documents[0] if memory.documents else None)
    settings = settings_of(args, budgets)
    in_turn = ([] if args.no_resident else [memory]) + settings
    for repetition in range(args.reps):
        first = repetition % len(in_turn)
        for setting in in_turn[first:] + in_turn[:first]:
            # In a cgroup it takes minutes, and is off by factors, not by percents.
            if setting.more is None and setting.budget and repetition >= args.llama_reps:
                continue
            if len(setting.documents) <= repetition:  # budgets needed the first one in memory
                setting.run(args)
            document = setting.documents[-1]
            print(f"repetition {repetition + 1} of {args.reps}: {setting.name} "
                  f"{(setting.budget or 0) / 2**30:.2f}G {speeds_of(document)[0]:.2f} tok/s, "
                  f"{document['stolen_s']:.1f} s stolen", file=sys.stderr)
    resident = memory.documents
    in_memory = max([d["memory"]["rss_peak_bytes"] for d in resident], default=max(budgets))
    return {"model": str(args.model), "mode": args.mode, "threads": args.threads,
            "cgroup": args.cgroup, "io_device": args.io_device, "machine": platform.processor() or platform.machine(),
            "settings": [setting.row(resident, in_memory) for setting in in_turn]}


def cell(tok_s: dict[str, Any] | None, ratio: dict[str, Any] | None) -> str:
    if tok_s is None:
        return f"{'':>18}"
    percent = f"{100 * ratio['median']:>5.0f}%" if ratio else f"{'':>6}"
    return f"{tok_s['median']:>11.2f}{percent} "


def print_table(document: dict[str, Any], lengths: list[int]) -> bool:
    """False where a run took more than its budget."""
    kept = True
    head = "".join(f"{f'prefill {n}':>18}" for n in lengths)
    print(f"{'':>10} {'memory':>8} {'decode tok/s':>18}{head} {'found':>7} {'MiB/token':>10} "
          f"{'waits':>6} {'of possible':>11} {'p99 ms':>8}")
    for row in document["settings"]:
        io = row.get("io") or {}
        prefill = {part["tokens"]: part for part in row["prefill"]}
        text = cell(row["decode"], row["decode_of_memory"])
        for length in lengths:
            part = prefill.get(length)
            text += cell(part["tok_s"], part["of_memory"]) if part else cell(None, None)
        if io:
            possible = row["share_of_possible"]
            text += (f" {100 * io['hit_rate']:>6.1f}% {io['bytes_read_per_token'] / 2**20:>10.2f} "
                     f"{100 * io['wait_share']:>5.1f}% "
                     f"{f'{100 * possible:.0f}%' if possible else '':>11} "
                     f"{row['latency_ms']['p99']:>8.1f}")
        limit = "" if row["is_limited"] else "*"
        print(f"{row['name']:>10} {row['budget_bytes'] / 2**30:>6.2f}G{limit or ' '}{text}")
        highest = row["cgroup_highest_bytes"]
        if document["cgroup"] == "promise" and highest and highest > row["budget_bytes"]:
            kept = False
            print(f"{'':>11}took {highest / 2**30:.2f}G, more than its budget", file=sys.stderr)
    print("* no limit; what Hearth took")
    return kept


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def sizes(text: str) -> list[int]:
    units = {"G": 30, "M": 20}
    return [int(float(part[:-1]) * 2 ** units[part[-1]]) for part in text.split(",")]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--mode", default="auto", choices=["auto", "predicted", "gated", "dense"])
    parser.add_argument("--outside", type=numbers, default=[50, 75], metavar="PERCENT,...")
    parser.add_argument("--budgets", type=sizes, metavar="SIZE,...", help="such as 6G,8.5G,900M")
    parser.add_argument("--no-resident", action="store_true", help="the model does not fit at all")
    parser.add_argument("--pipelines", type=lambda t: t.split(","), default=[""],
                        metavar="NAME,...")
    parser.add_argument("--prefill", type=numbers, default=[128, 512], metavar="TOKENS,...")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--cgroup", choices=["speed", "promise"])
    parser.add_argument("--io-device", metavar="NAME|FILE",
                        help="limited runs read as from this device (hearth bench --io-device)")
    parser.add_argument("--drop-caches", action="store_true", help="before each run; needs root")
    parser.add_argument("--settle", type=float, default=8, metavar="SECONDS",
                        help="before each run (default 8)")
    parser.add_argument("--llamacpp", type=Path, metavar="GGUF")
    parser.add_argument("--llama-path", type=Path, metavar="DIR")
    parser.add_argument("--llama-decode", type=int, default=4, help="tokens in a cgroup")
    parser.add_argument("--llama-prefill", type=numbers, default=[16], metavar="TOKENS,...",
                        help="in a cgroup")
    parser.add_argument("--llama-reps", type=int, default=1, help="repetitions in a cgroup")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    try:
        if args.io_device is not None and args.cgroup is not None:
            raise CannotRun("--io-device holds the file in memory beside the budget: not in a cgroup")
        document = measure(args)
    except CannotRun as error:
        print(f"offload.py: {error}", file=sys.stderr)
        return 2
    kept = print_table(document, sorted({*args.prefill, *args.llama_prefill} if args.llamacpp
                                        and args.cgroup == "speed" else args.prefill))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
