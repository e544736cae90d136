#!/usr/bin/env python3
"""Tells several stories at once: stories.py MODEL.gguf BEGINNING..."""

from __future__ import annotations

import argparse
import asyncio
import sys

import hearth


async def tell(model: hearth.Model, beginning: str) -> None:
    result = await model.agenerate(beginning, max_tokens=60, temperature=0.8, seed=1)
    print(f"{beginning}{result.text}\n")


def show(done: int, total: int) -> None:
    print(f"\rloading {100 * done // total}%", end="", file=sys.stderr, flush=True)


async def tell_all(path: str, beginnings: list[str]) -> None:
    model = await asyncio.to_thread(hearth.Model, path, progress=show)
    print(file=sys.stderr)
    with model:
        # What runs at the same time is computed together.
        await asyncio.gather(*(tell(model, beginning) for beginning in beginnings))


def main() -> int:
    parser = argparse.ArgumentParser(description="Tells several stories at once.")
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("beginnings", metavar="BEGINNING", nargs="+")
    arguments = parser.parse_args()
    try:
        asyncio.run(tell_all(arguments.model, arguments.beginnings))
    except hearth.Error as error:
        print(f"stories.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
