"""Hearth under Ray Serve on this machine: two replicas against one, a killed replica, an update under load.

    test_ray.py HEARTH MODEL [--json FILE]
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time

import httpx

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "deploy", "ray"))

import ray  # noqa: E402
from ray import serve  # noqa: E402

import hearth_serve  # noqa: E402

URL = "http://127.0.0.1:8000"
# As many as two replicas answer at a time: one has work for all of its places, and so have two.
CLIENTS = 16
# An answer of some paragraphs: of shorter ones Ray's proxy and the client take as much processor time as the
# model does, and there are two cores for all.
ANSWER_TOKENS = 400


def deploy(arguments: dict[str, str]) -> None:
    serve.run(hearth_serve.app(arguments), name="hearth", blocking=False)


async def ask(client: httpx.AsyncClient, number: int, seed: int) -> int:
    """Tokens of an answer; raises where there is none."""
    answer = await client.post(f"{URL}/v1/chat/completions", json={
        "messages": [{"role": "user", "content": f"Tell me story {number}."}],
        "max_tokens": ANSWER_TOKENS, "seed": seed, "logit_bias": {"2": -100, "2047": -100}})
    answer.raise_for_status()
    return int(answer.json()["usage"]["completion_tokens"])


async def load(seconds: float) -> tuple[float, int, list[str]]:
    """(tokens per second, answers, errors) of CLIENTS clients."""
    errors: list[str] = []
    tokens = answers = 0
    begin = time.monotonic()

    async def one(client: httpx.AsyncClient, number: int) -> None:
        nonlocal tokens, answers
        seed = 0
        while time.monotonic() - begin < seconds:
            seed += 1
            try:
                made = await ask(client, number, seed)
                tokens += made  # after the wait: others add meanwhile
                answers += 1
            except (httpx.HTTPError, KeyError, ValueError) as error:
                errors.append(repr(error))

    async with httpx.AsyncClient(timeout=120) as client:
        await asyncio.gather(*(one(client, i) for i in range(CLIENTS)))
    return tokens / (time.monotonic() - begin), answers, errors


def replica_process() -> int:
    handle = serve.get_deployment_handle("HearthReplica", "hearth")
    return int(handle.process_id.remote().result())


async def with_event(seconds: float, at: float, event: object) -> tuple[float, int, list[str]]:
    """Load, with event() called on another thread after `at` seconds."""
    task = asyncio.create_task(load(seconds))
    await asyncio.sleep(at)
    await asyncio.get_running_loop().run_in_executor(None, event)  # type: ignore[arg-type]
    return await task


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth")
    parser.add_argument("model")
    parser.add_argument("--json")
    args = parser.parse_args()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    arguments = {"model": args.model, "program": os.path.abspath(args.hearth), "cpus": "1",
                 "options": "--ctx 512"}
    figures: dict[str, object] = {}
    rates: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(3):
        for replicas in ("1", "2"):
            deploy({**arguments, "replicas": replicas})
            asyncio.run(load(3))  # warm
            rate, _, errors = asyncio.run(load(10))
            assert not errors, errors[:3]
            rates[replicas].append(rate)
    ratio = statistics.median(b / a for a, b in zip(rates["1"], rates["2"]))
    figures["tok_s"] = rates
    figures["two_over_one"] = ratio
    print(f"two replicas give {ratio:.2f} of one ({rates})")

    killed = asyncio.run(with_event(20, 5, lambda: os.kill(replica_process(), signal.SIGKILL)))
    figures["killed"] = {"answers": killed[1], "lost": len(killed[2])}
    print(f"a killed replica: {killed[1]} answers, {len(killed[2])} lost {killed[2][:2]}")

    updated = asyncio.run(with_event(
        60, 10, lambda: deploy({**arguments, "replicas": "2", "options": "--ctx 448"})))
    figures["updated"] = {"answers": updated[1], "lost": len(updated[2])}
    print(f"an update under load: {updated[1]} answers, {len(updated[2])} lost {updated[2][:2]}")
    serve.shutdown()
    ray.shutdown()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0 if not killed[2] and not updated[2] else 1


if __name__ == "__main__":
    sys.exit(main())
