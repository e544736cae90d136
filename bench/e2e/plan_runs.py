"""Plans and runs of them, kept in a file, so that a measurement can be made a part at a time."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import CannotRun, run_command  # noqa: E402
from memory_cgroup import cgroup, drop_page_cache  # noqa: E402

TIMEOUT_S = 1800
PROMPT = 32  # tokens of a prompt; decoding begins after so many
CONTEXT = 512


class Unfinished(Exception):
    """The time for this call is over; the next one goes on."""


class Results:
    """What was measured, by name. Every new result is written at once."""

    def __init__(self, path: Path | None, most_seconds: float) -> None:
        self.path = path
        self.end = time.monotonic() + most_seconds
        self.by_name: dict[str, Any] = {}
        if path is not None and path.exists():
            self.by_name = json.loads(path.read_text())

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        if name not in self.by_name:
            if time.monotonic() > self.end:
                raise Unfinished
            self.by_name[name] = measure()
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.by_name, indent=1) + "\n")
        return self.by_name[name]

    def check_same(self, name: str, value: Any) -> None:
        """What the results are of: another model's are not gone on with."""
        if self.get(name, lambda: value) != value:
            raise CannotRun(f"{self.path} is of another {name}: {self.by_name[name]}")


@dataclass
class Bench:
    """How to plan for a model and run it."""

    hearth: Path
    model: Path
    mode: str
    decode: int
    in_cgroup: bool
    drop_caches: bool

    def measure_machine(self, folder: Path) -> Path:
        hardware = folder / "hardware.json"
        run_command([str(self.hearth), "doctor", "--file", str(self.model), "-o", str(hardware)],
                    "hearth doctor", TIMEOUT_S)
        return hardware

    def plan(self, folder: Path, budget: int | None, more: list[str]) -> dict[str, Any]:
        limit = [] if budget is None else ["--memory", str(budget)]
        began = time.monotonic()
        document: dict[str, Any] = json.loads(run_command(
            [str(self.hearth), "plan", str(self.model), *limit, "--mode", self.mode, "--ctx",
             str(CONTEXT), "--hw", str(folder / "hardware.json"), "-o", str(folder / "plan.json"),
             "--json", *more], "hearth plan", TIMEOUT_S))
        document["seconds"] = time.monotonic() - began
        return document

    def run(self, budget: int | None, more: list[str]) -> dict[str, Any]:
        """What came of it, without what no table needs."""
        command = [str(self.hearth), "bench", str(self.model), *more, "--prefill", str(PROMPT),
                   "--decode", str(self.decode), "--context", str(PROMPT + 8), "--reps", "1",
                   "--profile", "--json"]
        if self.drop_caches:
            drop_page_cache()
        if self.in_cgroup and budget is not None:
            with cgroup(budget) as group:
                text = run_command(group.wrap(command), "hearth bench", TIMEOUT_S)
        else:
            text = run_command(command, "hearth bench", TIMEOUT_S)
        document = json.loads(text)
        return {"tok_s": document["decode"]["tok_s"]["median"], "io": document["io"],
                "prefill_tok_s": document["prefill"][0]["tok_s"]["median"],
                "storage_gb_s": document["machine"]["storage_read_gb_s"],
                "ms_per_token": {op["op"]: op["ms_per_token"]
                                 for op in document["profile"]["decode"]["ops"]}}

    def planned_run(self, budget: int | None, more: list[str] | None = None,
                    hardware: dict[str, Any] | None = None) -> dict[str, Any]:
        """Measures the machine (or takes a profile), plans, and runs the plan."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if hardware is None:
                self.measure_machine(folder)
            else:
                (folder / "hardware.json").write_text(json.dumps(hardware))
            plan = self.plan(folder, budget, more or [])
            run = self.run(plan["budget_bytes"] if plan["io_strategy"] != "none" else None,
                           ["--plan", str(folder / "plan.json")])
            profile = json.loads((folder / "hardware.json").read_text())
        return {"plan": plan, "run": run, "hardware": profile}

    def fixed_run(self, budget: int | None, setting: list[str]) -> dict[str, Any]:
        limit = [] if budget is None else ["--memory", str(budget)]
        return self.run(budget, [*limit, "--mode", self.mode, "--ctx", str(CONTEXT), *setting])

    def smallest_budget(self) -> int:
        """The least memory that the planner can plan with, as it says."""
        command = [str(self.hearth), "plan", str(self.model), "--memory", "1M", "--mode", self.mode,
                   "--ctx", str(CONTEXT)]
        try:
            run_command(command, "hearth plan", TIMEOUT_S)
        except CannotRun as error:
            words = str(error).replace(")", " ").split()
            sizes = [word[:-1] for word in words if word.endswith("M") and word[:-1].isdigit()]
            if not sizes:
                raise
            return int(sizes[-1]) << 20
        raise CannotRun("a model that runs in 1 MiB leaves nothing to plan")


def bytes_in_memory(plan: dict[str, Any]) -> int:
    return sum(plan["ledger"].values())


def as_size(budget: int | None) -> str:
    return "all" if budget is None else f"{budget / 2**30:.2f}G"
