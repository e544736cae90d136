"""A server under attack: a memory group around it, hostile clients, and a good one beside them."""
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import threading
import time

GROUPS_V1 = "/sys/fs/cgroup/memory"
GROUPS_V2 = "/sys/fs/cgroup"


class MemoryGroup:
    """A memory cgroup (v1 or v2) with a limit in bytes; without one where none can be made here."""

    def __init__(self, limit_bytes):
        is_v1 = os.path.exists(f"{GROUPS_V1}/memory.limit_in_bytes")
        self.path = f"{GROUPS_V1 if is_v1 else GROUPS_V2}/hearth-test-{os.getpid()}"
        try:
            os.makedirs(self.path, exist_ok=True)
            name = "memory.limit_in_bytes" if is_v1 else "memory.max"
            with open(f"{self.path}/{name}", "w") as file:
                file.write(str(limit_bytes))
        except OSError as error:
            self.remove()
            self.path = None
            print(f"notice: no memory group can be made here ({error.strerror}): peaks are checked "
                  "instead")

    def enter(self):
        """In the child, before it runs the program."""
        if self.path:
            with open(f"{self.path}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    def remove(self):
        try:
            os.rmdir(self.path)
        except (OSError, TypeError):
            pass


def run(command, group=None, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120,
                          preexec_fn=group.enter if group else None, **more)


class Server:
    def __init__(self, hearth, model, *options, group=None, setup=None):
        def prepare():
            if setup:
                setup()
            if group:
                group.enter()
        if "--session-dir" not in options:
            options += ("--session-dir", "none")
        self.process = subprocess.Popen([hearth, "serve", model, "--port", "0", *options],
                                        stderr=subprocess.PIPE, text=True, errors="replace",
                                        preexec_fn=prepare)
        self.said, self.port = "", 0
        for line in self.process.stderr:
            self.said += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self):
        assert self.port, f"the server did not start: {self.said}"
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def alive(self):
        return self.process.poll() is None

    def bytes_of(self, field):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(rf"{field}:\s+(\d+)", file.read()).group(1)) << 10

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def ask(self, path, body=None, headers="", timeout=60):
        """Status and body of the answer."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = (f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Connection: close\r\n{headers}Content-Length: {len(data)}\r\n\r\n")
        with self.connect(timeout) as connection:
            try:
                connection.sendall(head.encode() + data)
            except OSError:
                pass  # it was refused before it was read
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        return int(answer.split(b" ", 2)[1]), answer.split(b"\r\n\r\n", 1)[1]

    def good_times(self, stop):
        """Seconds of each request of a client that asks four tokens in a loop."""
        times = []
        while not stop():
            start = time.monotonic()
            status, _ = self.ask("/v1/completions",
                                 {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0})
            times.append(time.monotonic() - start)
            assert status == 200, f"the good client got {status}"
        return times


def p99(times):
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else max(times)


def at_once(count, attack):
    """Runs attack() on `threads` threads; returns what they returned or raised."""
    results = []

    def one():
        try:
            results.append(attack())
        except Exception as error:  # noqa: BLE001: a lost connection is a result
            results.append(repr(error))
    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- GGUF files, as far as needed here

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class GgufBytes:
    """The entries of a file's metadata and its tensors, as bytes that can be put together again."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 8
        tensors, values = self.read("<QQ")
        self.entries = {}
        for _ in range(values):
            key = self.text()
            begin = self.at
            self.skip(self.read("<I")[0])
            self.entries[key] = self.data[begin:self.at]
        begin = self.at
        self.offsets = {}
        for _ in range(tensors):
            name = self.text()
            dimensions = self.read("<I")[0]
            self.at += 8 * dimensions + 4
            self.offsets[name] = self.read("<Q")[0]
        self.num_tensors, self.directory = tensors, self.data[begin:self.at]
        raw = self.entries.get("general.alignment")
        self.alignment = struct.unpack("<I", raw[4:])[0] if raw else 32
        self.tensor_data = self.data[-(-self.at // self.alignment) * self.alignment:]

    def read(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        length = self.read("<Q")[0]
        self.at += length
        # Tokens may be any bytes.
        return self.data[self.at - length:self.at].decode(errors="surrogateescape")

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            of, count = self.read("<IQ")
            for _ in range(count if of == 8 else 0):
                self.text()
            self.at += 0 if of == 8 else SIZES[of] * count
        else:
            self.at += SIZES[kind]

    def set_text(self, key, text):
        self.entries[key] = struct.pack("<IQ", 8, len(text.encode())) + text.encode()

    def write(self, path):
        head = b"GGUF" + struct.pack("<IQQ", 3, self.num_tensors, len(self.entries))
        for key, value in self.entries.items():
            head += struct.pack("<Q", len(key)) + key.encode() + value
        head += self.directory
        head += b"\0" * (-len(head) % self.alignment)
        with open(path, "wb") as file:
            file.write(head + self.tensor_data)
