#!/usr/bin/env python3
"""Prints a table of what hearth_micro wrote: table.py micro.json [ISA]

Medians over the repetitions, each with its share of the probe (probe_read, probe_int8) of the same
run, instruction set and number of threads. GB are 10^9 bytes.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

NAME = re.compile(r"(?P<isa>[^/]+)/(?P<kernel>.+?)/real_time(/threads:(?P<threads>\d+))?$")
BYTES, MACS = "bytes_per_second", "macs_per_second"
PROBES = {BYTES: "probe_read", MACS: "probe_int8"}


def medians(document: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(parts of the name, figures) per benchmark; single runs count as their own median."""
    found = []
    for run in document["benchmarks"]:
        if run.get("aggregate_name", "median") == "median":
            match = NAME.match(run["run_name"])
            if match:
                found.append((match.groupdict(), run))
    return found


def cell(rate: float | None, probe: float | None) -> str:
    if rate is None:
        return ""
    share = "" if probe is None else f" ({100 * rate / probe:.0f}%)"
    return f"{rate / 1e9:.1f}{share}"


def main() -> None:
    with open(sys.argv[1]) as file:
        rows = medians(json.load(file))
    if len(sys.argv) > 2:
        rows = [row for row in rows if row[0]["isa"] == sys.argv[2]]
    probes = {(name["isa"], name["threads"], rate): run[rate]
              for name, run in rows for rate, probe in PROBES.items() if name["kernel"] == probe}
    print("| instruction set | kernel | threads | GB/s (of read) | G multiply-adds/s (of int8 peak) "
          "| G elements/s |\n|---|---|--:|--:|--:|--:|")
    for name, run in rows:
        is_float = name["kernel"].startswith(("matmul/", "attn_"))  # not held against int8
        rates = [cell(run.get(rate), None if is_float and rate == MACS else
                      probes.get((name["isa"], name["threads"], rate))) for rate in PROBES]
        items = cell(run.get("items_per_second"), None)
        print(f"| {name['isa']} | {name['kernel']} | {name['threads'] or 1} | {rates[0]} "
              f"| {rates[1]} | {items} |")


if __name__ == "__main__":
    main()
