#!/usr/bin/env python3
"""What each way to save memory saves, one model at a time (M §4, §5).

  memory_techniques.py MODEL --machine NAME [--ctx 4096]

Decodes after a context that fills --ctx: with everything in memory, with smaller keys and values,
with most of them on flash, with the token embedding left in its file, with half of the FFNs on
flash, and with all of these. What the ledger names is what Hearth promised; the peak is the
resident memory that the system saw. Run it from a release build; files of pages lie in $TMPDIR.
Writes bench/results/MACHINE/memory-techniques.MODEL.json. Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import RESULTS, ROOT, head_commit, write_result  # noqa: E402

HEARTH = ROOT / "build/release/bin/hearth"
MIB = 2**20
DECODED = 8
# Entries of the ledger that hold keys and values, and those that hold weights.
KV = ("kv cache", "kv buffers")
WEIGHTS = ("weights", "FFN matrices", "neurons", "gates", "read buffers", "embedding rows")


def run(arguments: argparse.Namespace, more: list[str]) -> subprocess.CompletedProcess[str]:
    command = [str(HEARTH), "bench", str(arguments.model), "--ctx", str(arguments.ctx), "--context",
               str(arguments.ctx - 64), "--repeat-context", "--decode", str(DECODED), "--prefill", "32",
               "--reps", "1", "--json", *more]
    return subprocess.run(command, text=True, capture_output=True, check=False)


def bench(arguments: argparse.Namespace, more: list[str]) -> dict[str, Any]:
    done = run(arguments, more)
    if done.returncode != 0:
        sys.exit(f"memory_techniques.py: {' '.join(done.args)}: {done.stderr.strip()}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def kv_memory(arguments: argparse.Namespace, kv_bytes: int) -> list[str]:
    """For an eighth of the pages, or the least that works."""
    option = ["--kv-memory", f"{max(1, kv_bytes // 8 // MIB)}M"]
    least = re.search(r"--kv-memory: .*at least (\d+)M", run(arguments, option).stderr)
    return ["--kv-memory", least[1] + "M"] if least else option


def row_of(name: str, document: dict[str, Any]) -> list[Any]:
    # Memory for measuring bandwidth is the benchmark's own.
    ledger = {key: value for key, value in document["memory"]["ledger"].items() if key != "bandwidth probe"}
    kv = sum(ledger.get(key, 0) for key in KV)
    weights = sum(ledger.get(key, 0) for key in WEIGHTS)
    total = sum(ledger.values())
    row = [name, weights / MIB, kv / MIB, (total - weights - kv) / MIB, total / MIB,
           document["decode"]["tok_s"]["median"]]
    print(json.dumps(row), flush=True)
    return row


def measure(arguments: argparse.Namespace) -> list[list[Any]]:
    whole = bench(arguments, [])
    ledger = whole["memory"]["ledger"]
    total = sum(value for key, value in ledger.items() if key != "bandwidth probe")
    an_eighth = kv_memory(arguments, ledger["kv cache"])
    rows = [row_of("all in memory", whole)]
    for codec in ("k8v8", "k4v8"):
        rows.append(row_of(f"`--kv {codec}`", bench(arguments, ["--kv", codec])))
    rows.append(row_of(f"`{' '.join(an_eighth)}`", bench(arguments, an_eighth)))
    barely = ["--memory", f"{total // MIB - 16}M"]
    embedding = bench(arguments, barely)
    if embedding["memory"]["embedding"]:
        rows.append(row_of("the token embedding in its file", embedding))
    half = f"{(total - ledger['weights'] * 2 // 5) // MIB}M"
    rows.append(row_of(f"`--memory {half}`", bench(arguments, ["--memory", half])))
    few = ["--kv", "k8v8", "--memory", f"{(total - ledger['kv cache'] * 3 // 4 - ledger['weights'] * 2 // 5) // MIB}M"]
    rows.append(row_of(f"`{' '.join(few)}`", bench(arguments, few)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--ctx", type=int, default=4096)
    arguments = parser.parse_args()
    result = {
        "schema": 1, "machine": arguments.machine, "experiment": "memory-techniques",
        "date": date.today().isoformat(), "commit": head_commit(),
        "commands": [f"bench/e2e/memory_techniques.py {arguments.model.name} --machine {arguments.machine}"
                     f" --ctx {arguments.ctx}"],
        "model": arguments.model.stem, "weights": "synthesized", "baseline": None, "repetitions": 1,
        "note": f"After a context of {arguments.ctx - 64:,} tokens, F16 keys and values where nothing else is said.",
        "columns": [{"name": "with", "unit": ""}, {"name": "weights", "unit": "MiB", "digits": 0},
                    {"name": "keys and values", "unit": "MiB", "digits": 0},
                    {"name": "all else", "unit": "MiB", "digits": 0},
                    {"name": "sum", "unit": "MiB", "digits": 0},
                    {"name": "decode", "unit": "tok/s", "digits": 1}],
        "rows": measure(arguments)}
    path = RESULTS / arguments.machine / f"memory-techniques.{arguments.model.stem}.json"
    write_result(result, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
