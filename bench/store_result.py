#!/usr/bin/env python3
"""Stores what a benchmark's --json file says as bench/results/MACHINE/EXPERIMENT.json.

  store_result.py llamacpp build/e2e.json --machine zen5 --command "bench/e2e/compare_llamacpp.py ..."

EXPERIMENT says which program wrote the file: llamacpp (compare_llamacpp.py), offload (offload.py), clients
(serve_load.py), plan-accuracy (plan_accuracy.py), tiles (hearth_micro --tiles). Other results are written by hand. Columns are those
of the results of that experiment that are there. Then run make_tables.py. Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from results import RESULTS, ROOT, BadResult, head_commit, read, write_result

Rows = list[list[Any]]


def spread(values: list[float], digits: int = 2) -> dict[str, Any] | float:
    if len(values) == 1:
        return round(values[0], digits)
    runs = [round(value, digits) for value in values]
    return {"median": round(statistics.median(values), digits), "min": min(runs), "max": max(runs),
            "runs": runs}


def percent(share: float | None, digits: int = 0) -> float | None:
    if share is None:
        return None
    value = round(100 * share, digits)
    return value if digits else int(value)


def llamacpp_rows(document: dict[str, Any], _model: str) -> Rows:
    rows = []
    for measure in document["measures"]:
        name = f"{measure['phase']} {measure['tokens']}"
        if measure["context"]:
            name += f" after {measure['context']}"
        rows.append([name, *(spread(measure[part]["runs"]) for part in ("hearth", "llamacpp", "ratio"))])
    return rows


def offload_rows(document: dict[str, Any], _model: str) -> Rows:
    rows = []
    for setting in document["settings"]:
        is_llamacpp = setting["name"] == "llama.cpp"
        is_base = not setting["is_limited"] and not is_llamacpp  # what shares are of
        if not setting["is_limited"]:
            name = "llama.cpp in memory" if is_llamacpp else "in memory"
        else:
            name = "llama.cpp, the same cgroup" if is_llamacpp else f"`{setting['name']}`"
        share = setting["decode_of_memory"]
        row = [name, round(setting["budget_bytes"] / 2**30, 2), spread(setting["decode"]["runs"]),
               percent(share["median"]) if share and not is_base else None]
        prefill = {part["tokens"]: part for part in setting["prefill"]}
        for tokens in (128, 512):
            part = prefill.get(tokens)
            share = part["of_memory"] if part else None
            row += [spread(part["tok_s"]["runs"]) if part else None,
                    percent(share["median"]) if share and not is_base else None]
        io = setting.get("io") or {}
        row += [percent(io.get("hit_rate"), 1),
                round(io["bytes_read_per_token"] / 2**20, 1) if io else None,
                percent(setting.get("share_of_possible")),
                round(setting["latency_ms"]["p99"]) if io else None]
        rows.append(row)
    return rows


def clients_rows(document: dict[str, Any], _model: str) -> Rows:
    turns = document["turns"]

    def speeds(clients: str) -> list[float]:
        return [one["tokens"]["per_second"] for one in turns[clients]]

    def median(clients: str, *names: str) -> float:
        values = []
        for value in turns[clients]:
            for name in names:
                value = value[name]
            values.append(value)
        return float(statistics.median(values))

    return [[clients, spread(speeds(clients), 1), spread(speeds("1"), 1),
             spread([a / b for a, b in zip(speeds(clients), speeds("1"))]),
             round(median(clients, "server", "reads_per_token")),
             round(median("1", "server", "reads_per_token")),
             round(median(clients, "first_token_ms", "p99") / 1000, 1),
             round(median(clients, "between_tokens_ms", "p99"))]
            for clients in turns if clients != "1"]


def memory_size(number: int) -> str:
    return f"{number / 2**30:.2f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def plan_accuracy_rows(document: dict[str, Any], model: str) -> Rows:
    pairs: dict[str, list[dict[str, Any]]] = {}
    for name, pair in document.items():
        if match := re.fullmatch(r"accuracy (\w+) \d+", name):
            pairs.setdefault(match[1], []).append(pair)
    rows = []
    for budget, ours in pairs.items():
        errors = [100 * (pair["plan"]["decode_tok_s"] / pair["run"]["tok_s"] - 1) for pair in ours]
        is_streamed = any(pair["run"]["io"] for pair in ours)
        reads = [statistics.median(values) / 2**20 for values in (
            [pair["plan"]["bytes_read_per_token"] for pair in ours],
            [(pair["run"]["io"] or {}).get("bytes_read_per_token", 0) for pair in ours])]
        rows.append([model, budget if budget == "all" else memory_size(int(budget)),
                     round(statistics.median(pair["plan"]["decode_tok_s"] for pair in ours), 2),
                     round(statistics.median(pair["run"]["tok_s"] for pair in ours), 2),
                     round(statistics.median(errors), 1), {"runs": [round(error) for error in errors]},
                     *(round(value, 1) if is_streamed else None for value in reads)])
    return rows


def tiles_rows(document: dict[str, Any], _model: str) -> Rows:
    return [[row["isa"], row["type"], row["tokens"], row["solver"], round(row["solver_microseconds"], 1),
             row["fastest"], round(row["fastest_microseconds"], 1),
             round(row["solver_over_fastest"], 3),
             round(max(one["microseconds"] for one in row["geometries"]) / row["fastest_microseconds"], 2)]
            for row in document["rows"]]


ROWS = {"llamacpp": llamacpp_rows, "offload": offload_rows, "clients": clients_rows,
        "plan-accuracy": plan_accuracy_rows, "tiles": tiles_rows}


def columns_of(experiment: str) -> list[dict[str, Any]]:
    for path in sorted(RESULTS.glob(f"*/{experiment}*.json")):
        document = read(path)
        if document["experiment"] == experiment:
            columns: list[dict[str, Any]] = document["columns"]
            return columns
    raise BadResult(f"bench/results: has no result of {experiment} whose columns could be taken.")


def checked_out() -> str:
    """The commit of this checkout; a result of changed sources has none."""
    status = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "bench"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if status:
        raise BadResult("sources are changed: commit them, or give --commit of the build.")
    return head_commit()


def result(args: argparse.Namespace) -> dict[str, Any]:
    document = json.loads(args.document.read_text())
    rows = ROWS[args.experiment](document, args.model)
    repetitions = args.repetitions or document.get("repetitions") or document.get("rounds")
    baseline = None
    if args.experiment == "llamacpp":
        baseline = {"name": "llama.cpp", "version": document["llamacpp"]["version"]}
    elif args.baseline_version:
        baseline = {"name": "llama.cpp", "version": args.baseline_version}
    return {"schema": 1, "machine": args.machine, "experiment": args.experiment,
            "date": args.date, "commit": args.commit or checked_out(), "commands": args.command,
            "model": args.model, "weights": args.weights, "baseline": baseline,
            "repetitions": repetitions, "note": args.note, "columns": columns_of(args.experiment),
            "rows": rows}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(ROWS))
    parser.add_argument("document", type=Path)
    parser.add_argument("--machine", required=True, help="a folder of bench/results")
    parser.add_argument("--variant", help="a second result of the machine: EXPERIMENT.VARIANT.json")
    parser.add_argument("--command", action="append", default=[], help="what was run")
    parser.add_argument("--model", help='such as "mistral-7b Q4_0"; none where kernels are measured')
    parser.add_argument("--weights", default="synthesized", choices=["real", "synthesized", "embedded", "none"])
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--baseline-version", help="of llama.cpp, where a file does not say it")
    parser.add_argument("--date", default=date.today().isoformat())
    parser.add_argument("--commit", help="of the build, if not of this checkout")
    parser.add_argument("--note", default="")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    name = args.experiment + (f".{args.variant}" if args.variant else "")
    try:
        document = result(args)
        if not (RESULTS / args.machine / "machine.json").exists():
            raise BadResult(f"bench/results/{args.machine}: has no machine.json.")
        write_result(document, RESULTS / args.machine / f"{name}.json")
    except (BadResult, ValueError, OSError) as error:
        print(f"store_result.py: {error}", file=sys.stderr)
        return 1
    except (KeyError, TypeError) as error:
        print(f"store_result.py: {args.document} is no document of {args.experiment}: {error}",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
