#!/usr/bin/env python3
"""Answers a question with functions that the model may call: tools.py MODEL.gguf QUESTION."""

from __future__ import annotations

import argparse
import datetime
import sys

import hearth

CLOCK: hearth.Tool = {"type": "function", "function": {
    "name": "clock", "description": "Says what time it is.",
    "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "local"]}},
                   "required": ["zone"], "additionalProperties": False}}}


def clock(zone: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now if zone == "UTC" else now.astimezone()).strftime("%H:%M")


def answer(model: hearth.Model, question: str) -> str:
    messages: list[hearth.Message] = [{"role": "user", "content": question}]
    # "required" holds any model to a call; with "auto" it calls when it likes.
    result = model.chat(messages, tools=[CLOCK], tool_choice="required",
                        parallel_tool_calls=False, max_tokens=200).result()
    messages.append(result.message)
    for call in result.tool_calls:
        told = clock(**call.arguments)
        print(f"{call.name}({call.arguments_json}) = {told}", file=sys.stderr)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
    return model.chat(messages, tools=[CLOCK], tool_choice="none", max_tokens=200).result().text


def main() -> int:
    parser = argparse.ArgumentParser(description="Answers a question with a clock at hand.")
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("question", metavar="QUESTION")
    arguments = parser.parse_args()
    try:
        with hearth.Model(arguments.model) as model:
            print(answer(model, arguments.question))
    except hearth.Error as error:
        print(f"tools.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
