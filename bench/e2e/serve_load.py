#!/usr/bin/env python3
"""What many clients at once get from `hearth serve`, beside one alone.

Each repetition starts the server anew, lets one client ask for a while, and then all of them; with
several settings of clients, in turn. Ratios are to the one client of the same repetition.

  serve_load.py model.gguf                                    1 and 32 clients, three times 60 s each
  serve_load.py packed.gguf --memory 2.5G --clients 4,16,32   streamed, several numbers of clients
  ... --cgroup                     the server in a memory cgroup (v1; needs root) of its --memory
  ... --serve "--parallel 16 --mode predicted"                more options of the server
  ... --load "--shared-prefix 200 --tokens 8-64"              more options of hearth_load
  ... --json                                                  all documents of hearth_load

Reads per token and the share found in memory are what hearth_load read of the server's counters. Exit status: 0 done, 1 requests failed, 2 could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from engines import DEFAULT_HEARTH, CannotRun  # noqa: E402
from memory_cgroup import Cgroup, cgroup, drop_page_cache  # noqa: E402

DEFAULT_LOAD = DEFAULT_HEARTH.with_name("hearth_load")
START_TIMEOUT_S = 600
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(size: str) -> int:
    match = re.fullmatch(r"([0-9.]+)([KMG]?)", size.upper())
    if match is None:
        raise CannotRun(f"--memory: expected a size like 2.5G, found '{size}'")
    return int(float(match[1]) * UNITS[match[2]])


class Server:
    """A server that answers, its address and its process."""

    def __init__(self, process: subprocess.Popen[str], url: str, pid: int) -> None:
        self.process = process
        self.url = url
        self.pid = pid

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + "/v1/hearth/stats", timeout=60) as answer:
            stats: dict[str, Any] = json.load(answer)
            return stats


@contextlib.contextmanager
def serving(args: argparse.Namespace) -> Iterator[tuple[Server, Cgroup | None]]:
    command = [str(args.hearth), "serve", str(args.model), "--port", "0", "--session-dir", "none",
               *shlex.split(args.serve)]
    if args.memory:
        command += ["--memory", args.memory]
    with contextlib.ExitStack() as stack:
        group = None
        if args.cgroup:
            drop_page_cache()
            group = stack.enter_context(cgroup(bytes_of(args.memory)))
            command = group.wrap(command)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        timer = threading.Timer(START_TIMEOUT_S, process.kill)
        timer.start()
        said = ""
        found = None
        for line in process.stderr:
            said += line
            if found := re.search(r"http://\S+", line):
                break
        timer.cancel()
        if found is None:
            process.wait()
            raise CannotRun(f"the server did not start: {said.strip()}")
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield Server(process, found.group(), process.pid), group
        finally:
            process.send_signal(signal.SIGTERM)
            if process.wait(120) != 0:
                raise CannotRun(f"the server ended with exit code {process.returncode}")


def wait_until_idle(server: Server) -> None:
    for _ in range(600):
        stats = server.stats()
        if stats["requests"]["running"] + stats["requests"]["waiting"] == 0:
            return
        time.sleep(0.1)
    raise CannotRun("the server is still busy a minute after its clients left")


def ask(args: argparse.Namespace, server: Server, clients: int) -> dict[str, Any]:
    """The document of hearth_load."""
    wait_until_idle(server)
    command = [str(args.load_program), "--url", server.url, "--clients", str(clients), "--seconds",
               str(args.seconds), "--pid", str(server.pid), "--json", *shlex.split(args.load)]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          timeout=args.seconds + 300)
    if done.returncode not in (0, 1) or not done.stdout:
        raise CannotRun(f"hearth_load: exit {done.returncode}: {done.stderr.strip()}")
    document: dict[str, Any] = json.loads(done.stdout)
    if document["server"] is None:
        raise CannotRun("the server told hearth_load nothing of itself: ask for more --seconds")
    return document


def median(documents: list[dict[str, Any]], value: Any) -> float | None:
    values = [value(document) for document in documents]
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def spread(values: list[float], digits: int = 1) -> str:
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f} to {max(values):.{digits}f})")


def print_table(turns: dict[int, list[dict[str, Any]]]) -> None:
    """Medians of the repetitions; of speeds and ratios their spread too."""
    print(f"{'clients':>8} {'tokens/s':>24} {'of one client':>22} {'tokens/pass':>12} "
          f"{'reads/token':>12} {'MB/token':>9} {'in memory':>10} {'TTFT P99 ms':>12} "
          f"{'TBT P99 ms':>11} {'least/most':>11}")
    alone = [d["tokens"]["per_second"] for d in turns[1]]
    for clients, documents in turns.items():
        speeds = [d["tokens"]["per_second"] for d in documents]
        ratios = [a / b for a, b in zip(speeds, alone) if b > 0]
        found = median(documents, lambda d: d["server"]["found_in_memory"])

        def fair(document: dict[str, Any]) -> float:
            speed = document["tokens"]["of_a_client_per_second"]
            return speed["least"] / speed["most"] if speed["most"] > 0 else 0.0

        print(f"{clients:>8} {spread(speeds):>24} {spread(ratios, 2) if ratios else '-':>22} "
              f"{median(documents, lambda d: d['server']['tokens_per_pass']):>12.2f} "
              f"{median(documents, lambda d: d['server']['reads_per_token']):>12.1f} "
              f"{median(documents, lambda d: d['server']['bytes_read_per_token'] / 1e6):>9.2f} "
              f"{'-' if found is None else f'{found:.1%}':>10} "
              f"{median(documents, lambda d: d['first_token_ms']['p99']):>12.0f} "
              f"{median(documents, lambda d: d['between_tokens_ms']['p99']):>11.0f} "
              f"{median(documents, fair):>11.2f}")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=numbers, default=[32], metavar="N,M")
    parser.add_argument("--seconds", type=float, default=60, help="of each turn")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--memory", help="of the server, as 2.5G")
    parser.add_argument("--cgroup", action="store_true")
    parser.add_argument("--serve", default="", metavar="OPTIONS")
    parser.add_argument("--load", default="", metavar="OPTIONS")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    parser.add_argument("--load-program", type=Path, default=DEFAULT_LOAD)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    if args.cgroup and not args.memory:
        parser.error("--cgroup needs --memory")
    if args.repetitions < 1 or min(args.clients) < 1:
        parser.error("at least one repetition and one client are needed")
    return args


def main(arguments: list[str]) -> int:
    args = parse(arguments)
    turns: dict[int, list[dict[str, Any]]] = {n: [] for n in [1, *args.clients]}
    highest: list[int] = []
    try:
        for repetition in range(args.repetitions):
            with serving(args) as (server, group):
                # One client first and last in turn, as what was asked before warms the cache.
                order = list(turns) if repetition % 2 == 0 else list(reversed(turns))
                for clients in order:
                    turns[clients].append(ask(args, server, clients))
                    print(f"repetition {repetition + 1}, {clients} clients: "
                          f"{turns[clients][-1]['tokens']['per_second']:.1f} tokens/s",
                          file=sys.stderr)
                if group is not None:
                    highest.append(group.highest_use())
    except (CannotRun, OSError, subprocess.TimeoutExpired) as error:
        print(f"serve_load.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({"turns": {str(n): documents for n, documents in turns.items()},
                          "cgroup_highest_bytes": highest or None}, indent=1))
    else:
        print_table(turns)
        if highest:
            print(f"highest use of the cgroup: {max(highest) / (1 << 20):.0f} MiB "
                  f"of {bytes_of(args.memory) / (1 << 20):.0f}")
    errors: dict[str, int] = {}
    for documents in turns.values():
        for document in documents:
            for kind, count in document["requests"]["errors"].items():
                errors[kind] = errors.get(kind, 0) + count
    for kind, count in errors.items():
        print(f"error: {count} times {kind}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
