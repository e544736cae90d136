#!/usr/bin/env python3
"""Chats on a terminal or in a pipe, a question a line: chat.py MODEL.gguf [--memory 2.5G]."""

from __future__ import annotations

import argparse
import sys

import hearth


def answer(model: hearth.Model, messages: list[hearth.Message]) -> str:
    """Prints an answer as it comes. Ctrl-C ends it and keeps what was said."""
    with model.chat(messages, max_tokens=200) as generation:
        try:
            for text in generation:
                print(text, end="", flush=True)
        except KeyboardInterrupt:
            pass
    print()
    result = generation.result()
    print(f"({result.reused_tokens} of {result.prompt_tokens} tokens were known)", file=sys.stderr)
    return result.text


def main() -> int:
    parser = argparse.ArgumentParser(description="Chats, a question a line.")
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--memory", help="most memory to use, as 2.5G (default: what is free)")
    arguments = parser.parse_args()
    try:
        with hearth.Model(arguments.model, memory=arguments.memory, parallel=1) as model:
            messages: list[hearth.Message] = []
            for line in sys.stdin:
                messages.append({"role": "user", "content": line.rstrip("\n")})
                # What was said before is in the KV cache: only the question is computed.
                messages.append({"role": "assistant", "content": answer(model, messages)})
    except hearth.Error as error:
        print(f"chat.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
