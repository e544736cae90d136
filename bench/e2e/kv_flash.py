#!/usr/bin/env python3
"""Long contexts whose keys and values lie on flash (M §4.1, Figure 2), beside all of them in memory.

  kv_flash.py MODEL --machine NAME [--lengths 1024,2048,4096,16384,65536] [--share 8] [-o RESULT.json]

Decodes after contexts of each length: with all KV pages in memory, and with memory for an eighth of
them (or the least that works). What is read of flash per token over the rate at which the same reads
go on alone (hearth doctor: 1 MiB, 32 at once) is how long reading must take at least; a token should
take the longer of that and of its time from memory. Contexts are repeated (--repeat-context), as
computing 64 Ki tokens takes long. The planned crossover is what `hearth plan` says; the measured one
is the length at which reading begins to delay a token, on straight lines through the two shortest
contexts that it delays. Run it from a release build on a calm machine; the file of pages lies in
$TMPDIR.
Writes bench/results/MACHINE/kv-flash.json. Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import RESULTS, ROOT, head_commit, write_result  # noqa: E402

HEARTH = ROOT / "build/release/bin/hearth"
DECODED = 24
RUN_BYTES, RUNS_AT_ONCE = 1 << 20, 32


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HEARTH), *arguments], text=True, capture_output=True, check=False)


def bench(model: Path, length: int, repetitions: int, more: list[str]) -> dict[str, Any]:
    arguments = ["bench", str(model), "--ctx", str(length + 64), "--context", str(length),
                 "--repeat-context", "--decode", str(DECODED), "--prefill", "32", "--reps",
                 str(repetitions), "--json", *more]
    done = run(arguments)
    least = re.search(r"--kv-memory: .*at least (\d+)M", done.stderr)
    if least and "--kv-memory" in more:
        return bench(model, length, repetitions, ["--kv-memory", least[1] + "M"])
    if done.returncode != 0:
        sys.exit(f"kv_flash.py: {' '.join(arguments)}: {done.stderr.strip()}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def read_rate(folder: Path) -> float:
    """Bytes per second of reads as the ring makes them, while nothing else goes on."""
    profile = folder / "hardware.json"
    done = run(["doctor", "--dir", tempfile.gettempdir(), "-o", str(profile)])
    if done.returncode != 0:
        sys.exit(f"kv_flash.py: hearth doctor: {done.stderr.strip()}")
    reads = json.loads(profile.read_text())["storage"]["reads"]
    best = min(reads, key=lambda one: (abs(one["block_bytes"] - RUN_BYTES),
                                       abs(one["queue_depth"] - RUNS_AT_ONCE)))
    rate: float = best["bytes_per_s"]["median"]
    return rate


def planned_crossover(model: Path, folder: Path) -> int | None:
    done = run(["plan", str(model), "--hw", str(folder / "hardware.json")])
    found = re.search(r"kv on flash +reading (\d+) tokens", done.stdout)
    return int(found[1]) if found else None


def token_ms(document: dict[str, Any]) -> dict[str, float]:
    speed = document["decode"]["tok_s"]
    return {"median": 1000 / speed["median"], "min": 1000 / speed["max"],
            "max": 1000 / speed["min"]}


def measured_crossover(rows: list[list[Any]]) -> int | None:
    """How many tokens on flash are read without delay: a straight line through the two shortest
    contexts that reading delays says where the delay is zero."""
    outside, memory, flash, reading = ([row[i] for row in rows] for i in (3, 4, 5, 6))
    late = [i for i, one in enumerate(reading) if one > memory[i]["median"]][:2]
    if len(late) < 2:
        return None
    a, b = late
    step = outside[b] - outside[a]
    above = flash[a]["median"] - memory[a]["median"]
    growth = (flash[b]["median"] - memory[b]["median"] - above) / step
    return round(outside[a] - above / growth)


def measure(arguments: argparse.Namespace, rate: float) -> list[list[Any]]:
    rows = []
    for length in arguments.lengths:
        resident = bench(arguments.model, length, arguments.repetitions, [])
        kv_bytes = resident["memory"]["kv"]["full_bytes"]
        spilled = bench(arguments.model, length, arguments.repetitions,
                        ["--kv-memory", f"{max(1, kv_bytes // arguments.share >> 20)}M"])
        ledger, flash = spilled["memory"]["ledger"], spilled["memory"]["kv"]["flash"]
        in_memory = ledger["kv cache"] + ledger.get("kv buffers", 0)
        from_memory, from_flash = token_ms(resident), token_ms(spilled)
        # Pages of the context that have no frame when it is there, and what a token reads of them.
        pages = (length + DECODED // 2 + 63) // 64
        page_bytes = kv_bytes // ((length + 64 + 63) // 64)
        outside = max(0, pages - ledger["kv cache"] // page_bytes) if flash else 0
        reading = 1000 * outside * page_bytes / rate
        rows.append([f"{length:,}", kv_bytes / 2**20, in_memory / 2**20, outside * 64,
                     from_memory, from_flash, reading,
                     from_flash["median"] / max(from_memory["median"], reading)])
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--lengths", default="1024,2048,4096,16384,65536",
                        type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--share", type=int, default=8, help="memory for one part in so many")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rate = read_rate(Path(folder))
        crossover = planned_crossover(arguments.model, Path(folder))
    planned = "" if crossover is None else (
        f" `hearth plan` expects that reading {crossover:,} tokens takes no longer than all else.")
    rows = measure(arguments, rate)
    measured = measured_crossover(rows)
    if measured is not None:
        planned += f" Measured crossover: {measured:,} tokens."
    result = {
        "schema": 1, "machine": arguments.machine, "experiment": "kv-flash",
        "date": date.today().isoformat(), "commit": head_commit(),
        "commands": [f"bench/e2e/kv_flash.py {arguments.model.name} --machine {arguments.machine}"],
        "model": arguments.model.stem, "weights": "synthesized", "baseline": None,
        "repetitions": arguments.repetitions,
        "note": f"Reads of 1 MiB, 32 at once, go on at {rate / 1e9:.2f} GB/s alone.{planned}",
        "columns": [{"name": "context", "unit": "tokens"},
                    {"name": "all KV", "unit": "MiB", "digits": 0},
                    {"name": "KV memory", "unit": "MiB", "digits": 0},
                    {"name": "on flash", "unit": "tokens", "digits": 0},
                    {"name": "a token from memory", "unit": "ms", "digits": 1},
                    {"name": "a token from flash", "unit": "ms", "digits": 1},
                    {"name": "reading alone", "unit": "ms", "digits": 1},
                    {"name": "over the longer", "unit": "times", "digits": 2}],
        "rows": rows}
    output = arguments.output or RESULTS / arguments.machine / "kv-flash.json"
    write_result(result, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
