#!/usr/bin/env python3
"""A packed model on a device and the processor, step by step as PowerInfer's Figure 15 builds it up.

  hybrid.py MODEL.packed.gguf --device-memory 6G                    on the first device
  hybrid.py MODEL.packed.gguf --device-memory 6G --unsorted U.gguf  +Engine: neurons in the file's order
  hybrid.py ... --llamacpp PLAIN.gguf --gpu-layers 20 --llama-path DIR   llama.cpp with layers on its GPU
  hybrid.py ... --json OUT.json

| step | |
|---|---|
| processor | every neuron, without the device |
| +PO | only neurons that are listed or fire, without the device |
| +Engine | the same with attention on the device and in the rest of its memory a part of every FFN, chosen
  without looking: of --unsorted, a file that was packed without --text |
| even | the same with the hottest neurons, as many of every layer |
| +Policy | what `hearth plan --device-memory` places |

Each repetition runs every step once, in turn, each in a process of its own. Ratios are to llama.cpp
where it is run, else to the processor alone. A step that cannot be is named with its reason. The
device's and the link's speeds for the plan are measured by `hearth devices`, unless
--assume GB/S says the device's; the processor's is measured by `plan`. Exit status: 0 done, 2 could not run.
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

LLAMACPP_SPEED = Path(__file__).resolve().with_name("llamacpp_speed.py")
RUN_TIMEOUT_S = 3000


class Step:
    """A row of the table."""

    def __init__(self, name: str, command: list[str], refused: str | None = None) -> None:
        self.name = name
        self.command = command
        self.refused = refused
        self.documents: list[dict[str, Any]] = []

    def run(self) -> None:
        if self.refused is not None:
            return
        try:
            self.documents.append(json.loads(run_command(self.command, self.name, RUN_TIMEOUT_S)))
        except CannotRun as error:
            self.refused = str(error)

    def speeds(self) -> list[float]:
        found = [document["decode"]["tok_s"] for document in self.documents]
        return [value["median"] if isinstance(value, dict) else value for value in found]

    def row(self, base: float | None) -> dict[str, Any]:
        if not self.documents or self.refused is not None:
            return {"step": self.name, "refused": self.refused, "decode_tok_s": None}
        device = self.documents[-1].get("memory", {}).get("device")
        computed = device["computed"] if device else None
        speeds = self.speeds()
        median = statistics.median(speeds)
        return {"step": self.name, "refused": None,
                "decode_tok_s": {"median": median, "min": min(speeds), "max": max(speeds),
                                 "runs": speeds},
                "over_base": median / base if base else None,
                "device_share": (computed["device"] / (computed["device"] + computed["processor"])
                                 if computed else 0.0),
                "layer_neurons": device["layer_neurons"] if device else None,
                "device_bytes": sum(device["ledger"].values()) if device else None}


def bench(args: argparse.Namespace, model: Path, more: list[str]) -> list[str]:
    command = [str(args.hearth), "bench", str(model), "--prefill", str(args.prefill), "--decode",
               str(args.decode), "--reps", "1", "--json", *more]
    if "--plan" not in more:
        command += ["--ctx", str(args.ctx)]
        if args.threads:
            command += ["--threads", str(args.threads)]
    return command


def device_rates(args: argparse.Namespace) -> list[str]:
    """What `plan` is told of the device."""
    devices = json.loads(run_command([str(args.hearth), "devices", "--json", "--device",
                                      str(args.device)], "hearth devices"))["devices"]
    if not devices:
        raise CannotRun("there is no device")
    rates = devices[0]["rates"]
    link = min(rates["upload_bytes_per_s"]["median"], rates["download_bytes_per_s"]["median"]) / 1e9
    device = args.assume or rates["matvec_bytes_per_s"]["median"] / 1e9
    return ["--device-bandwidth", f"{device:.6g}", "--link-bandwidth", f"{link:.6g}",
            "--link-latency", f"{1e6 * rates['launch_seconds']['median']:.6g}"]


def planned_step(args: argparse.Namespace, folder: Path) -> Step:
    plan = folder / "plan.json"
    command = [str(args.hearth), "plan", str(args.model), "--device-memory", args.device_memory,
               *device_rates(args), "--ctx", str(args.ctx), "-o", str(plan), "--json"]
    if args.text:
        command += ["--text", str(args.text)]
    try:
        run_command(command, "hearth plan", RUN_TIMEOUT_S)
    except CannotRun as error:
        return Step("+Policy", [], str(error))
    return Step("+Policy", bench(args, args.model, ["--plan", str(plan), "--device",
                                                    str(args.device)]))


def steps_of(args: argparse.Namespace, folder: Path) -> list[Step]:
    on_device = ["--device", str(args.device), "--device-memory", args.device_memory]
    steps = []
    if args.llamacpp:
        command = [sys.executable, str(LLAMACPP_SPEED), str(args.llamacpp), "--threads",
                   str(args.threads or 0), "--prefill", str(args.prefill), "--decode",
                   str(args.decode), "--context", str(args.prefill), "--kv", "f16",
                   "--gpu-layers", str(args.gpu_layers)]
        if args.llama_path:
            command += ["--llama-path", str(args.llama_path)]
        steps.append(Step("llama.cpp layers", command))
    steps += [Step("processor", bench(args, args.model, ["--mode", "dense"])),
              Step("+PO", bench(args, args.model, [])),
              Step("+Engine", bench(args, args.unsorted, on_device)) if args.unsorted else
              Step("+Engine", [], "no --unsorted file is given"),
              Step("even", bench(args, args.model, on_device)),
              planned_step(args, folder)]
    return steps


def table(rows: list[dict[str, Any]], base: str) -> str:
    lines = [f"| step | decode tok/s | over {base} | neurons on the device |", "|---|--:|--:|--:|"]
    for row in rows:
        if row["refused"] is not None:
            lines.append(f"| {row['step']} | not run: {row['refused'].splitlines()[0]} | | |")
            continue
        speed = row["decode_tok_s"]
        lines.append(f"| {row['step']} | {speed['median']:.2f} ({speed['min']:.2f} to "
                     f"{speed['max']:.2f}) | {row['over_base']:.2f} | {100 * row['device_share']:.1f}% |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device-memory", required=True)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--assume", type=float, metavar="GB/S",
                        help="the device's speed in the plan, instead of the measured one")
    parser.add_argument("--unsorted", type=Path)
    parser.add_argument("--text", type=Path, help="for `plan`, where it has to learn what tokens need")
    parser.add_argument("--llamacpp", type=Path)
    parser.add_argument("--llama-path", type=Path)
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--prefill", type=int, default=64)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    args = arguments()
    try:
        with tempfile.TemporaryDirectory() as folder:
            steps = steps_of(args, Path(folder))
            for _ in range(args.reps):
                for step in steps:
                    step.run()
        first = steps[0]
        if first.refused is not None:
            raise CannotRun(first.refused)
        base = statistics.median(first.speeds())
        rows = [step.row(base) for step in steps]
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    print(table(rows, first.name))
    if args.json:
        document = {"model": str(args.model), "device_memory": args.device_memory,
                    "repetitions": args.reps, "assumed_gb_s": args.assume, "base": first.name,
                    "rows": rows}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
