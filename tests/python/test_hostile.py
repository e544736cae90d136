"""What hostile clients, templates and files may not do to Hearth.

    test_hostile.py HEARTH MODEL FOLDER

scripts/test_hostile.sh runs it. Needs nothing but Python. FOLDER gets scratch files.
"""
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from hostile_tools import GgufBytes, MemoryGroup, Server, at_once, p99, run

HEARTH, MODEL, FOLDER = sys.argv[1:4]
MIB = 1 << 20
BUDGET = 106 * MIB
QUEUE = 72  # 8 requests that are computed and 64 that wait

DOUBLING = ("{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}"
            "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}")
ENDLESS = ("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}")
LISTS = ("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}"
         "{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|length }}")
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def schema_chat():
    names = [f"p{i}" for i in range(24)]
    schema = {"type": "object", "required": names, "additionalProperties": False,
              "properties": {name: {"type": "string", "maxLength": 10000} for name in names}}
    return {**CHAT, "response_format": {"type": "json_schema",
                                        "json_schema": {"name": "s", "schema": schema}}}


def use_many_files():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def with_template(name, template):
    path = f"{FOLDER}/{name}.gguf"
    model = GgufBytes(MODEL)
    model.set_text("tokenizer.chat_template", template)
    model.write(path)
    return path


class HostileRequests(unittest.TestCase):
    """In a memory group of the budget no request kills the server."""

    def attack(self, model, body, path="/v1/chat/completions", allowed=(200, 400, 413, 429, 503)):
        group = MemoryGroup(BUDGET)
        with Server(HEARTH, model, "--memory", "106M", "--threads", "2", group=group) as server:
            results = at_once(QUEUE, lambda: server.ask(path, body)[0])
            peak = server.bytes_of("VmHWM")
            print(f"  {self.id().split('.')[-1]}: peak {peak / MIB:.1f} MiB of 106, answers "
                  f"{ {r: results.count(r) for r in set(results)} }")
            self.assertTrue(server.alive(), results)
            self.assertTrue(all(result in allowed for result in results), results)
            self.assertEqual(server.ask("/health")[0], 200)
            self.assertLessEqual(peak, BUDGET)
        group.remove()

    def test_schemas(self):
        self.attack(MODEL, schema_chat())

    def test_doubling_template(self):
        self.attack(with_template("doubling", DOUBLING), CHAT)

    def test_lists_of_a_template(self):
        self.attack(with_template("lists", LISTS), CHAT)

    def test_bodies_of_many_values(self):
        body = b'{"messages":[' + b",".join([b"{}"] * 131_000) + b"]}"
        self.attack(MODEL, body)

    def test_bodies_of_nested_lists(self):
        self.attack(MODEL, b'{"prompt":[' + b",".join([b"[[[[]]]]"] * 26_000) + b"]}",
                    "/v1/completions")


class GoodClient(unittest.TestCase):
    """Its p99 beside attackers: at most 100 ms, or three times what it is alone."""

    def beside(self, model, attack, count=4, seconds=6):
        with Server(HEARTH, model, "--memory", "160M", "--threads", "1") as server:
            end = time.monotonic() + 3
            alone = p99(server.good_times(lambda: time.monotonic() > end))
            end = time.monotonic() + seconds

            def keep_on():
                while time.monotonic() < end:
                    attack(server)
            attackers = [threading.Thread(target=at_once, args=(1, keep_on)) for _ in range(count)]
            for attacker in attackers:
                attacker.start()
            times = server.good_times(lambda: time.monotonic() > end)
            for attacker in attackers:
                attacker.join()
            print(f"  {self.id().split('.')[-1]}: p99 {1e3 * p99(times):.0f} ms beside them, alone "
                  f"{1e3 * alone:.0f} ms, {len(times)} requests")
            self.assertLessEqual(p99(times), max(0.1, 3 * alone))

    def test_beside_bodies_of_many_objects(self):
        body = b'{"messages":[' + b",".join([b"{}"] * 131_000) + b"]}"
        self.beside(MODEL, lambda server: server.ask("/v1/chat/completions", body))

    def test_beside_short_bodies_of_many_objects(self):
        body = b'{"messages":[' + b",".join([b"{}"] * 10_000) + b"]}"
        self.beside(MODEL, lambda server: server.ask("/v1/chat/completions", body))

    def test_beside_slow_templates(self):
        self.beside(with_template("endless", ENDLESS),
                    lambda server: server.ask("/v1/chat/completions", CHAT), count=16)

    def test_beside_schemas(self):
        body = schema_chat()
        self.beside(MODEL, lambda server: server.ask("/v1/chat/completions", body))

    def test_beside_silent_connections(self):
        held = []

        def attack(server):
            held.append(server.connect())
            time.sleep(0.001)
        use_many_files()
        self.beside(MODEL, attack)
        for connection in held:
            connection.close()


class Connections(unittest.TestCase):
    def test_silent_ones_shut_nobody_out(self):
        use_many_files()
        with Server(HEARTH, MODEL) as server:
            silent = [server.connect() for _ in range(2100)]
            for _ in range(20):
                self.assertEqual(server.ask("/health", timeout=5)[0], 200)
            for connection in silent:
                connection.close()

    def test_slow_heads_shut_nobody_out(self):
        with Server(HEARTH, MODEL) as server:
            slow = [server.connect() for _ in range(2100)]
            for connection in slow:
                try:
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: lo")
                except OSError:
                    pass  # it was given up for a later one
            for _ in range(20):
                self.assertEqual(server.ask("/health", timeout=5)[0], 200)
            for connection in slow:
                connection.close()

    def test_a_low_file_limit_is_said(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        with Server(HEARTH, MODEL, setup=limit) as server:
            self.assertIn("permits 100 open files", server.said)
            self.assertEqual(server.ask("/health")[0], 200)

    def test_unread_streams_are_bounded(self):
        with Server(HEARTH, MODEL) as server:
            body = (b'{"prompt":"Once","max_tokens":400,"stream":true,"logprobs":20,"n":8,'
                    b'"logit_bias":{"1":-100,"2":-100}}')
            head = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                    + str(len(body)).encode() + b"\r\n\r\n")
            unread = [server.connect() for _ in range(8)]
            for connection in unread:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(head + body)
            time.sleep(3)
            self.assertEqual(server.ask("/health")[0], 200)
            self.assertLess(server.bytes_of("VmHWM"), 160 * MIB)
            for connection in unread:
                connection.close()

    def test_wrong_keys_are_slowed_down(self):
        path = f"{FOLDER}/keys"
        with open(path, "w") as file:
            file.write("right\n")
        os.chmod(path, 0o644)
        with Server(HEARTH, MODEL, "--api-key-file", path) as server:
            self.assertIn("other users can read", server.said)
            start = time.monotonic()
            self.assertEqual(server.ask("/v1/models", headers="Authorization: Bearer no\r\n")[0], 401)
            self.assertGreater(time.monotonic() - start, 0.4)
            self.assertEqual(server.ask("/v1/models", headers="Authorization: Bearer right\r\n")[0],
                             200)
        os.chmod(path, 0o600)
        with Server(HEARTH, MODEL, "--api-key-file", path) as server:
            self.assertNotIn("other users can read", server.said)

    def test_hangup_ends_in_good_order(self):
        with Server(HEARTH, MODEL) as server:
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(server.process.wait(30), 0)


class Damage(unittest.TestCase):
    def test_numbers_that_are_none(self):
        model = GgufBytes(MODEL)
        data = bytearray(model.tensor_data)
        at = model.offsets["output_norm.weight"]
        data[at:at + 4] = b"\x00\x00\xc0\x7f"  # of some numbers one is nan
        model.tensor_data = bytes(data)
        path = f"{FOLDER}/nan.gguf"
        model.write(path)
        with Server(HEARTH, path) as server:
            for where, body in (("/v1/embeddings", {"input": "a fox"}),
                                ("/v1/completions", {"prompt": "a fox", "max_tokens": 4})):
                status, answer = server.ask(where, body)
                self.assertEqual(status, 503)
                self.assertIn(b"not numbers", answer)
            self.assertEqual(server.ask("/health")[0], 503)

    def test_packed_files_are_verified_while_they_load(self):
        path = f"{FOLDER}/packed.gguf"
        shape = f"{FOLDER}/shape.json"
        with open(shape, "w") as file:
            json.dump({"hidden_size": 256, "intermediate_size": 768, "num_layers": 2,
                       "num_heads": 4, "vocab_size": 300, "activation": "relu"}, file)
        made = run([HEARTH, "synth", "--shape", shape, "--packed", "-o", path])
        self.assertEqual(made.returncode, 0, made.stderr)
        good = run([HEARTH, "run", path, "-p", "a", "-n", "2"])
        self.assertEqual(good.returncode, 0, good.stderr)
        packed = GgufBytes(path)
        begin = len(packed.data) - len(packed.tensor_data)
        name = next(n for n in packed.offsets if n.endswith("attn_q.weight"))
        with open(path, "r+b") as file:
            file.seek(begin + packed.offsets[name] + 100)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        bad = run([HEARTH, "run", path, "-p", "a", "-n", "2"])
        self.assertEqual(bad.returncode, 1)
        self.assertIn(f"tensor '{name}' was altered", bad.stderr)


class Containers(unittest.TestCase):
    def group(self, limit):
        group = MemoryGroup(limit)
        if not group.path:
            self.skipTest("no memory group can be made here")
        self.addCleanup(group.remove)
        return group

    def test_page_cache_of_the_model_counts_as_free(self):
        path = f"{FOLDER}/cached.gguf"
        with open(path, "wb") as file:
            for _ in range(60):
                file.write(os.urandom(4 * MIB))
        group = self.group(300 * MIB)
        for _ in range(3):
            run(["cat", path], group)  # active page cache of the group
        done = run([HEARTH, "run", MODEL, "-p", "a", "-n", "2"], group)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_small_containers_are_used(self):
        group = self.group(160 * MIB)
        done = run([HEARTH, "run", MODEL, "-p", "a", "-n", "2"], group)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_limits_above_the_container_are_warned_of(self):
        group = self.group(200 * MIB)
        done = run([HEARTH, "run", MODEL, "-p", "a", "-n", "2", "--memory", "400M"], group)
        self.assertIn("warning: --memory 400 MiB is more than", done.stderr)


if __name__ == "__main__":
    print(f"as {'root' if os.getuid() == 0 else 'a user'}, {os.cpu_count()} processors, "
          f"{subprocess.run([HEARTH, '--version'], capture_output=True, text=True).stdout.strip()}")
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
