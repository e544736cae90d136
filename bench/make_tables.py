#!/usr/bin/env python3
"""Writes pages of docs/ from their frames and the stored results: make_tables.py [--check]

The frames, docs/benchmarks.in.md and docs/real_weights.in.md, are copied; in place of a line
  {{machines}}            comes the table of bench/results/*/machine.json,
  {{table EXPERIMENT}}    that of bench/results/*/EXPERIMENT.json and EXPERIMENT.*.json, with what was
                          run, where and when below it.
Every result must be in one page, once. With --check it writes nothing, and fails where a page is not
what it would write. docs/formats/results.md describes the files. Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import difflib
import re
import statistics
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from results import RESULTS, ROOT, BadResult, read

PAGES = ("benchmarks", "real_weights")
MADE = "<!-- Made by bench/make_tables.py from docs/{}.in.md and bench/results: edit those. -->"
WEIGHTS = {"real": "real weights", "synthesized": "synthesized weights",
           "embedded": "the embedded model", "none": "no model"}
# This many single runs are shown one by one; of more the median and the range.
FEW_RUNS = 2


def number(value: float, digits: int | None) -> str:
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell(value: Any, digits: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.replace("|", "\\|")
    if not isinstance(value, dict):
        return number(value, digits)
    runs = value.get("runs", [])
    if "median" not in value and 0 < len(runs) <= FEW_RUNS:
        return ", ".join(number(run, digits) for run in runs)
    low, high = (number(value.get(name, of(runs) if runs else 0), digits)
                 for name, of in (("min", min), ("max", max)))
    if "median" not in value and not runs:
        return low if low == high else f"{low} to {high}"
    median = value.get("median", statistics.median(runs) if runs else 0)
    return f"{number(median, digits)} ({low} to {high})"


def table(head: list[str], rows: list[list[str]], is_text: list[bool]) -> list[str]:
    rule = ["---" if text else "--:" for text in is_text]
    return ["| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|",
            *("|" + "|".join(f" {text} " if text else " " for text in row) + "|" for row in rows)]


def day(text: str) -> str:
    when = date.fromisoformat(text)
    return f"{when.day} {when:%B %Y}"


def codes(commands: list[str]) -> str:
    return ", ".join(f"`{command}`" for command in commands)


def caption(name: str, result: dict[str, Any], with_commands: bool) -> str:
    """Where a table's rows come from."""
    facts = [day(result["date"]),
             f"commit {result['commit']}" if result["commit"] else "commit not recorded"]
    if result["model"]:
        facts.append(result["model"])
    facts.append(WEIGHTS[result["weights"]])
    if result["repetitions"]:
        facts.append(f"{result['repetitions']} repetitions" if result["repetitions"] > 1
                     else "1 repetition")
    if result["baseline"]:
        facts.append(" ".join(filter(None, result["baseline"].values())))
    text = f"- {name}: {', '.join(facts)}"
    if with_commands:
        text += ": " + codes(result["commands"])
    return text + ("." if not result["note"] else f". {result['note']}")


def title(column: dict[str, Any]) -> str:
    return str(column["name"]) + (f", {column['unit']}" if column["unit"] else "")


def result_table(results: list[dict[str, Any]]) -> list[str]:
    """Rows of all machines in one table; machines with several results number them."""
    columns = results[0]["columns"]
    for result in results:
        if [title(column) for column in result["columns"]] != [title(column) for column in columns]:
            raise BadResult(f"bench/results: the columns of {result['experiment']} differ between "
                            f"{results[0]['machine']} and {result['machine']}.")
    many = Counter(result["machine"] for result in results)
    seen: Counter[str] = Counter()
    rows, captions = [], []
    commands = results[0]["commands"]
    is_same = all(result["commands"] == commands for result in results)
    for result in results:
        machine = result["machine"]
        seen[machine] += 1
        name = f"`{machine}`" + (f" {seen[machine]}" if many[machine] > 1 else "")
        for row in result["rows"]:
            rows.append([name, *(cell(value, column.get("digits"))
                                 for column, value in zip(result["columns"], row))])
        captions.append(caption(name, result, with_commands=not is_same and bool(result["commands"])))
    is_text = [all(value is None or isinstance(value, str) for result in results
                   for value in (row[index] for row in result["rows"]))
               for index in range(len(columns))]
    head, is_text = ["machine", *map(title, columns)], [True, *is_text]
    if len(results) == 1:
        head, is_text, rows = head[1:], is_text[1:], [row[1:] for row in rows]
    if is_same and commands:
        captions = [f"- {codes(commands)}", *captions]
    return [*table(head, rows, is_text), "", *captions]


def machines_table(machines: list[dict[str, Any]]) -> list[str]:
    head = ["machine", "processor", "kernels", "caches", "memory, GiB", "reads, GB/s",
            "int8, G multiply-adds/s", "disk"]
    rows = [[f"`{m['machine']}`", m["processor"], m["isa"], m["caches"], number(m["memory_gib"], None),
             cell(m["read_gb_s"], None), cell(m["int8_g_mac_s"], None), m["disk"]] for m in machines]
    notes = [f"- `{m['machine']}`: {m['system']}. {m['note']}".rstrip() for m in machines]
    return table(head, rows, [True, True, True, True, False, False, False, True]) + ["", *notes]


def load(folder: Path) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """The machines, and the results of every experiment, by machine, date and file name."""
    machines, results = [], []
    for path in sorted(folder.glob("*/*")):
        if path.suffix != ".json":
            raise BadResult(f"{path}: is not a JSON file.")
        (machines if path.stem == "machine" else results).append(read(path))
    described = {machine["machine"] for machine in machines}
    experiments: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda r: (r["machine"], r["date"])):
        if result["machine"] not in described:
            raise BadResult(f"{folder / result['machine']}: has no machine.json.")
        experiments.setdefault(result["experiment"], []).append(result)
    return machines, experiments


def page(name: str, machines: list[dict[str, Any]], experiments: dict[str, list[dict[str, Any]]],
         left: set[str]) -> str:
    """The page of a frame; takes the experiments that it shows from `left`."""
    frame = ROOT / f"docs/{name}.in.md"
    lines = []
    for line in frame.read_text().splitlines():
        if line == "{{machines}}":
            lines += machines_table(machines)
        elif match := re.fullmatch(r"\{\{table ([a-z0-9-]+)\}\}", line):
            if match[1] not in left:
                raise BadResult(f"{frame}: asks for the table of {match[1]}, which has no result or "
                                "is asked for twice.")
            left.remove(match[1])
            lines += result_table(experiments[match[1]])
        else:
            lines.append(line)
    heading, *rest = lines
    return "\n".join([heading, "", MADE.format(name), *rest]) + "\n"


def pages() -> dict[Path, str]:
    machines, experiments = load(RESULTS)
    left = set(experiments)
    made = {ROOT / f"docs/{name}.md": page(name, machines, experiments, left) for name in PAGES}
    if left:
        raise BadResult(f"docs/: no page shows {', '.join(sorted(left))}.")
    return made


def is_made(path: Path, text: str) -> bool:
    """False, with the difference printed, where the page is not its frame and results."""
    there = path.read_text() if path.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True),
                                               str(path), "as it should be"))
    return there == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    try:
        made = pages()
    except BadResult as error:
        print(str(error).replace(f"{ROOT}/", ""), file=sys.stderr)
        return 1
    if not args.check:
        for path, text in made.items():
            path.write_text(text)
        return 0
    if all([is_made(path, text) for path, text in made.items()]):
        print(f"tables of {' and '.join(f'docs/{name}.md' for name in PAGES)}: checked")
        return 0
    print("a page is not what its results say: bench/make_tables.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
