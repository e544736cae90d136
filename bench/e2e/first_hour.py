#!/usr/bin/env python3
"""A stranger's first hour, by the clock: each step's seconds.

    first_hour.py --hearth build/release/bin/hearth --model SmolLM2-135M-Instruct.gguf [--build] [-o JSON]

The hub is a stand-in on this machine: it answers the questions that `hearth get` asks Hugging Face, so that
a download costs what the disk and the hash cost. --build also clones the repository and builds it from
nothing, as scripts/demo.sh does.
"""
from __future__ import annotations

import argparse
import hashlib
import http.server
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = "someone/SmolLM2-135M-Instruct-GGUF"
QUESTION = "Why is the sky blue?"


class Hub(http.server.BaseHTTPRequestHandler):
    """One repository with one file."""

    model = b""
    name = ""

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            answer = json.dumps({"sha": "a" * 40, "siblings": [
                {"rfilename": self.name, "size": len(self.model),
                 "lfs": {"sha256": hashlib.sha256(self.model).hexdigest(), "size": len(self.model)}}]})
            return self.reply(200, answer.encode())
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "bytes=0-"))
        assert asked
        first = int(asked[1])
        end = int(asked[2]) + 1 if asked[2] else len(self.model)
        self.reply(206, self.model[first:end],
                   {"Content-Range": f"bytes {first}-{end - 1}/{len(self.model)}"})

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Hour:
    """Steps, and how long each took."""

    def __init__(self, hearth: Path, environment: dict[str, str]) -> None:
        self.hearth, self.environment = hearth, environment
        self.steps: list[dict[str, Any]] = []

    def take(self, name: str, step: Callable[[], str]) -> None:
        begin = time.monotonic()
        seen = step()
        self.steps.append({"step": name, "seconds": round(time.monotonic() - begin, 2), "seen": seen})
        print(f"{self.steps[-1]['seconds']:8.2f} s  {name}: {seen}", flush=True)

    def run(self, *arguments: str) -> str:
        done = subprocess.run([self.hearth, *arguments], env=self.environment, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise SystemExit(f"hearth {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def serve(self) -> str:
        """From the command to the answer of a client."""
        server = subprocess.Popen([self.hearth, "serve", "smollm2", "--port", "0"],
                                  env=self.environment, stderr=subprocess.PIPE, text=True)
        assert server.stderr
        for line in server.stderr:
            if found := re.search(r"http://\S+", line):
                break
        else:
            raise SystemExit("the server did not start")
        body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40}
        request = urllib.request.Request(found[0] + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
        server.send_signal(signal.SIGTERM)
        server.wait()
        return first_line(text)


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:80]


def build(folder: Path) -> Path:
    clone = folder / "hearth"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    subprocess.run([clone / "scripts/build.sh", "release", "hearth_installable"], check=True,
                   env={**os.environ, "CCACHE_DISABLE": "1"}, stdout=subprocess.DEVNULL)
    return clone / "build/release/bin/hearth"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearth", type=Path, default=ROOT / "build/release/bin/hearth")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    Hub.model, Hub.name = options.model.read_bytes(), options.model.name
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        home = {**os.environ, "HOME": folder, "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
                "no_proxy": "*"}
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HEARTH_MODELS"):
            home.pop(name, None)
        hour = Hour(options.hearth.resolve(), home)
        if options.build:
            hour.take("clone and build", lambda: str(setattr(hour, "hearth", build(Path(folder)))))
        stories = str(ROOT / "models/hearth-stories-5m.gguf")
        hour.take("a story", lambda: first_line(hour.run("run", stories, "--raw", "-p",
                                                         "Once upon a time", "-n", "200")))
        hour.take("get a model", lambda: first_line(hour.run("get", REPOSITORY)) or "it is here")
        hour.take("ask it", lambda: first_line(hour.run("run", "smollm2", "-p", QUESTION, "-n", "60")))
        hour.take("serve it and ask", hour.serve)
        hour.take("plan a shape", lambda: first_line(hour.run("plan", "llama3-8b", "--memory", "4G")))
        hour.take("plan it again", lambda: first_line(hour.run("plan", "llama3-8b", "--memory", "2G")))
    hub.shutdown()
    if options.output:
        options.output.write_text(json.dumps(
            {"what": "a stranger's first hour", "processor": platform.processor(),
             "model": options.model.name, "steps": hour.steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
