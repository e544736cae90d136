"""Many kinds of requests from some clients for a long time: no wrong answer, no growth.

    soak.py HEARTH MODEL SECONDS

scripts/soak.sh runs it. Greedy answers must always be the first ones. Needs nothing but Python.
"""
import json
import os
import random
import sys
import tempfile
import threading
import time

from hostile_tools import Server, p99

HEARTH, MODEL, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
CLIENTS = 8
MOST_GROWTH = 4 << 20
PROMPTS = ["Once upon a time", "The fox ran", "A red boat", "Lily had a dog", "One day Tim"]
SCHEMA = {"type": "object", "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"enum": ["Oslo", "Rome"]}}}}}]


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **more}


def kinds(choose):
    """Fifteen kinds of requests: path, body, accepted statuses, whether the answer is always the
    same."""
    text = choose.choice(PROMPTS)
    greedy = {"temperature": 0}
    completion = {"prompt": text, "max_tokens": 24}
    return [
        ("/v1/completions", {**completion, **greedy}, (200,), True),
        ("/v1/chat/completions", chat(text, **greedy), (200,), True),
        ("/v1/completions", {**completion, **greedy, "stream": True}, (200,), False),
        ("/v1/chat/completions", chat(text, stream=True, seed=choose.randrange(99)), (200,), False),
        ("/v1/completions", {**completion, "n": 3, "seed": 1}, (200,), False),
        ("/v1/completions", {**completion, **greedy, "logprobs": 5}, (200,), True),
        ("/v1/chat/completions", chat(text, max_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}), (200,), False),
        ("/v1/chat/completions", chat(text, max_tokens=60, tools=TOOLS, tool_choice="required"),
         (200,), False),
        ("/v1/embeddings", {"input": [text, "a"]}, (200,), True),
        ("/tokenize", {"content": text * 20}, (200,), True),
        ("/detokenize", {"tokens": [5, 6, 7]}, (200,), True),
        ("/v1/completions", {"prompt": 7}, (400,), False),
        ("/v1/chat/completions", chat("long " * 4000), (400,), False),
        ("/v1/completions", b'{"prompt":' + b"[" * 500, (400,), False),
        ("/health", None, (200,), False),
    ]


def answer_of(body):
    """Of an answer what must be the same each time."""
    document = json.loads(body)
    for changing in ("id", "created", "usage"):
        document.pop(changing, None)
    return json.dumps(document)


class Soak:
    def __init__(self, server):
        self.server, self.lock = server, threading.Lock()
        self.known, self.times = {}, []
        self.compared, self.wrong, self.failed = 0, [], []

    def client(self, number, end):
        choose = random.Random(number)
        while time.monotonic() < end:
            path, body, statuses, is_same = choose.choice(kinds(choose))
            start = time.monotonic()
            try:
                status, answer = self.server.ask(path, body)
            except Exception as error:  # noqa: BLE001: counted
                status, answer = repr(error), b""
            with self.lock:
                self.times.append(time.monotonic() - start)
                if status not in statuses:
                    self.failed.append((path, status, answer[:200]))
                elif is_same:
                    key = path + json.dumps(body, sort_keys=True)
                    self.compared += 1
                    if self.known.setdefault(key, answer_of(answer)) != answer_of(answer):
                        self.wrong.append((key, answer[:200]))


def main():
    with tempfile.TemporaryDirectory() as folder, Server(
            HEARTH, MODEL, "--memory", "124M", "--session-dir", f"{folder}/sessions",
            "--session-limit", "20M") as server:
        soak = Soak(server)
        end = time.monotonic() + SECONDS
        clients = [threading.Thread(target=soak.client, args=(i, end)) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(min(30, SECONDS / 4))
        early = server.bytes_of("VmRSS")
        for client in clients:
            client.join()
        late = server.bytes_of("VmRSS")
        files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        print(f"{len(soak.times)} requests, {len(soak.failed)} failed, {len(soak.wrong)} wrong of "
              f"{soak.compared} compared; RSS {early / 2**20:.1f} MiB early, {late / 2**20:.1f} at "
              f"the end, peak {server.bytes_of('VmHWM') / 2**20:.1f}; {files} descriptors; p50 "
              f"{1e3 * sorted(soak.times)[len(soak.times) // 2]:.0f} ms, p99 "
              f"{1e3 * p99(soak.times):.0f} ms")
        for problem in (soak.failed + soak.wrong)[:10]:
            print("  ", problem)
        good = not soak.failed and not soak.wrong and late - early < MOST_GROWTH and server.alive()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
