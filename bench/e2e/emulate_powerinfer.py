#!/usr/bin/env python3
"""Holds `hearth emulate` against what PowerInfer prints for its two PCs, and stores the figures.

    bench/e2e/emulate_powerinfer.py [--program build/release/bin/hearth] [--store] [--tokens N]

Prints three tables: paper beside emulation; speed by device memory; PowerInfer's steps (Figure 15).
--store writes them to bench/results/zen5/emulated-*.json, from which bench/make_tables.py makes
docs/benchmarks.md. docs/emulator.md has the assumptions and the reasons for differences over 20%.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import RESULTS, ROOT, head_commit, write_result  # noqa: E402

MACHINE = "zen5"  # whose results lie beside these; virtual time is the same on every machine
HIGH, LOW = "rtx-4090", "rtx-2080ti"

# Share of an FFN's neurons that are active: 1 less the sparsity of P1 Table 3. Share of neurons with
# 80% of activations: P1 Figure 4a; of Falcon, of which none is printed, that of OPT.
ACTIVE = {"opt-30b": (0.03, 0.26), "opt-66b": (0.03, 0.26), "opt-175b": (0.03, 0.26),
          "opt-13b": (0.03, 0.26), "falcon-40b": (0.05, 0.26), "llama2-70b": (0.18, 0.43),
          "llama2-13b": (0.22, 0.43)}
# Figures 10, 11 and 13: the models of each picture that are shapes here.
GRID_HIGH = ["opt-30b", "opt-66b", "falcon-40b", "llama2-70b"]
GRID_LOW = ["opt-13b", "opt-30b", "falcon-40b"]
GRID_INT4 = ["opt-66b", "opt-175b", "falcon-40b", "llama2-70b"]
INPUTS, OUTPUTS = (64, 128), (8, 128, 512)
MEMORIES = ("8G", "12G", "16G", "20G", "24G")


class Emulator:
    def __init__(self, program: str, tokens: int) -> None:
        self.program, self.tokens = program, tokens
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.runs: dict[tuple[Any, ...], concurrent.futures.Future[dict[str, Any]]] = {}

    def start(self, machine: str, model: str, quant: str = "f16", prompt: int = 64,
              **memory: str) -> "concurrent.futures.Future[dict[str, Any]]":
        key = (machine, model, quant, prompt, tuple(sorted(memory.items())))
        if key not in self.runs:
            active, skew = ACTIVE[model]
            command = [self.program, "emulate", "--machine", machine, "--model", model, "--quant",
                       quant, "--active", str(active), "--skew", str(skew), "--prompt", str(prompt),
                       "--tokens", str(self.tokens), "--json"]
            for name, size in memory.items():
                command += ["--" + name.replace("_", "-"), size]
            self.runs[key] = self.pool.submit(self.run, command)
        return self.runs[key]

    @staticmethod
    def run(command: list[str]) -> dict[str, Any]:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return {"refused": done.stderr.strip()}
        document = json.loads(done.stdout)
        return {point["system"]: point for point in document["points"]}

    def points(self, *key: Any, **memory: str) -> dict[str, Any]:
        points = self.start(*key, **memory).result()
        if "refused" in points:
            raise SystemExit(f"{key}: {points['refused']}")
        return points


def answer(point: dict[str, Any], tokens: int) -> float:
    """Tokens per second of an answer with its prompt."""
    return 1000 * tokens / (point["prompt_ms"] + tokens * point["token_ms"])


def speedups(emulator: Emulator, machine: str, models: list[str], quant: str) -> list[float]:
    return [answer(points["placed"], output) / answer(points["layers"], output)
            for model in models for prompt in INPUTS for output in OUTPUTS
            for points in [emulator.points(machine, model, quant, prompt)]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def paper_rows(emulator: Emulator) -> list[list[Any]]:
    """What, where in the paper, paper, emulated."""
    high = speedups(emulator, HIGH, GRID_HIGH, "f16")
    low = speedups(emulator, LOW, GRID_LOW, "f16")
    int4 = speedups(emulator, HIGH, GRID_INT4, "q4_0")
    low_int4 = speedups(emulator, LOW, ["opt-13b", "opt-30b", "falcon-40b"], "q4_0")
    opt30 = emulator.points(HIGH, "opt-30b", "f16", 64)
    falcon = emulator.points(HIGH, "falcon-40b", "f16", 64)
    loads = {system: [emulator.points(HIGH, m, "f16", 64)[system]["device_load"] for m in GRID_HIGH]
             for system in ("layers", "placed")}
    low_load = emulator.points(LOW, "opt-30b", "f16", 64)["placed"]["device_load"]
    speeds = [answer(emulator.points(HIGH, m, "f16", p)["placed"], o)
              for m in GRID_HIGH for p in INPUTS for o in OUTPUTS]
    return [
        ["PC-High, FP16, mean over layers", "8.2", 7.23, mean(high)],
        ["PC-High, FP16, most", "8.2", 11.69, max(high)],
        ["PC-Low, FP16, mean", "8.2", 4.71, mean(low)],
        ["PC-Low, FP16, most", "8.2", 7.06, max(low)],
        ["PC-High, INT4, mean", "8.2", 2.89, mean(int4)],
        ["PC-High, INT4, most", "8.2", 4.28, max(int4)],
        ["PC-Low, INT4, mean", "8.2", 5.01, mean(low_int4)],
        ["PC-High, FP16, tok/s, mean", "8.2", 8.32, mean(speeds)],
        ["PC-High, FP16, tok/s, most", "8.2", 16.06, max(speeds)],
        ["OPT-30B, ms of a token, layers", "Figure 3a", 600.0, opt30["layers"]["token_ms"]],
        ["OPT-30B, tok/s, layers", "Table 8", 1.1, opt30["layers"]["decode_tok_s"]],
        ["OPT-30B, tok/s", "Table 8", 12.0, opt30["placed"]["decode_tok_s"]],
        ["Falcon-40B, ratio", "Figure 15", 11.69,
         falcon["layers"]["token_ms"] / falcon["placed"]["token_ms"]],
        ["load of the device, layers, %", "Figure 12", 20.0, 100 * mean(loads["layers"])],
        ["load of the device, %", "Figure 12", 70.0, 100 * mean(loads["placed"])],
        ["load, 60 GB on 11 GB, %", "Figure 12", 42.0, 100 * low_load],
    ]


def step_rows(emulator: Emulator) -> list[list[Any]]:
    points = emulator.points(HIGH, "falcon-40b", "f16", 64)
    base = points["layers"]["token_ms"]
    papers = {"layers": 1.0, "sparse": 3.32, "random": 7.80, "placed": 11.69}
    names = {"layers": "llama.cpp", "sparse": "+PO", "random": "+Engine", "placed": "+Policy"}
    return [[names[system], papers[system], base / points[system]["token_ms"],
             points[system]["decode_tok_s"], 100 * points[system]["device_load"]]
            for system in papers]


def memory_rows(emulator: Emulator) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for model in GRID_HIGH:
        row: list[Any] = [model]
        for size in MEMORIES:
            points = emulator.points(HIGH, model, "f16", 64, device_memory=size)
            row.append(points["layers"]["token_ms"] / points["placed"]["token_ms"])
        rows.append(row)
    points = emulator.points(HIGH, "opt-66b", "q4_0", 64, device_memory="8G", memory="16G")
    rows.append(["opt-66b Q4_0, host 16 GiB and flash",
                 points["layers"]["token_ms"] / points["placed"]["token_ms"], None, None, None, None])
    return rows


def print_table(head: list[str], rows: list[list[Any]]) -> None:
    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    print("| " + " | ".join(head) + " |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(cell(value) for value in row) + " |")
    print()


def store(experiment: str, columns: list[dict[str, Any]], rows: list[list[Any]], note: str) -> None:
    document = {
        "schema": 1, "machine": MACHINE, "experiment": experiment, "date": str(date.today()),
        "commit": head_commit(),
        "commands": ["bench/e2e/emulate_powerinfer.py --store"], "model": None, "weights": "none",
        "baseline": None, "repetitions": None, "note": note, "columns": columns,
        "rows": [[round(value, 3) if isinstance(value, float) else value for value in row]
                 for row in rows]}
    write_result(document, RESULTS / MACHINE / f"{experiment}.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/hearth"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--store", action="store_true")
    args = parser.parse_args()
    emulator = Emulator(args.program, args.tokens)
    paper = [[*row, 100 * (row[3] / row[2] - 1)] for row in paper_rows(emulator)]
    steps, memory = step_rows(emulator), memory_rows(emulator)
    print_table(["PowerInfer's PCs", "section", "paper", "emulated", "difference, %"], paper)
    print_table(["Falcon-40B, rtx-4090", "paper", "emulated", "tok/s", "device's load, %"], steps)
    print_table(["ratio by device memory", *MEMORIES], memory)
    if not args.store:
        return 0
    number = {"unit": "", "digits": 2}
    store("emulated-paper",
          [{"name": "what", "unit": ""}, {"name": "section", "unit": ""},
           {"name": "paper", **number}, {"name": "emulated", **number},
           {"name": "difference", "unit": "%", "digits": 0}], paper,
          "Virtual time, rates of data sheets: best cases, of both systems.")
    store("emulated-steps",
          [{"name": "Falcon-40B on rtx-4090", "unit": ""}, {"name": "paper", "unit": "x", "digits": 2},
           {"name": "emulated", "unit": "x", "digits": 2},
           {"name": "decode", "unit": "tok/s", "digits": 2},
           {"name": "device's load", "unit": "%", "digits": 0}], steps,
          "PowerInfer's Figure 15, step by step; x is over layers on the device.")
    store("emulated-memory",
          [{"name": "rtx-4090, ratio over layers", "unit": ""},
           *[{"name": size[:-1] + " GiB", "unit": "x", "digits": 2} for size in MEMORIES]], memory,
          "Ratio of a token's times: whole layers on the device over neurons placed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
