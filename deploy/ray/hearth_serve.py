"""Several `hearth serve` processes behind Ray Serve: one address, many replicas.

    cd deploy/ray && serve run hearth_serve:app model=/srv/models/model.gguf key_file=/srv/keys

A replica is one `hearth serve` process. Requests of one conversation go to the replica that has its
beginning in memory (prefix-affine routing), through Ray Serve's routing of multiplexed models. The number
of replicas follows the requests that are under way.
"""
from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import httpx
from ray import serve
from ray.exceptions import RayActorError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

# Headers that are about one connection, not about the request.
HOP_HEADERS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}
# Seconds before a request is begun anew where its replica is gone: in all longer than Ray Serve takes to
# find that out by its health checks and to start another.
PAUSES = (0.1, 0.2, 0.5, 1, 2, 3, 4, 5)


def conversation_key(body: bytes) -> str:
    """Names the conversation that a request goes on with: requests that begin alike have the same.

    Of a chat its first two messages count, of a completion the first 256 characters: what a replica has
    in memory of them saves the most. Requests without either have no key: any replica will do.
    """
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    if isinstance(document.get("messages"), list):
        begin: Any = [document.get("system"), document["messages"][:2]]
    elif isinstance(document.get("prompt"), str):
        begin = document["prompt"][:256]
    elif "input" in document:
        begin = [document.get("instructions"), str(document["input"])[:256]]
    else:
        return ""
    return hashlib.sha256(json.dumps(begin, sort_keys=True).encode()).hexdigest()[:16]


@serve.deployment(
    max_ongoing_requests=64,
    graceful_shutdown_timeout_s=60,
    graceful_shutdown_wait_loop_s=0.5,
    health_check_period_s=2,
    health_check_timeout_s=10,
)
class HearthReplica:
    """One `hearth serve` process, which ends with its replica."""

    def __init__(self, program: str, model: str, options: list[str]) -> None:
        self._process = subprocess.Popen(
            [program, "serve", model, "--host", "127.0.0.1", "--port", "0", *options],
            stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._said: deque[str] = deque(maxlen=20)
        self._url = self._wait_for_address()
        threading.Thread(target=self._keep_reading, daemon=True).start()
        self._client = httpx.AsyncClient(base_url=self._url, timeout=None)

    def _wait_for_address(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip())
            found = re.search(r"on (http://\S+)", line)
            if found:
                return found.group(1)
        raise RuntimeError("hearth serve ended: " + " / ".join(self._said))

    def _keep_reading(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.rstrip())

    def check_health(self) -> None:
        """Called by Ray Serve: a replica whose process is gone is replaced."""
        if self._process.poll() is not None:
            raise RuntimeError("hearth serve ended: " + " / ".join(self._said))

    def process_id(self) -> int:
        return self._process.pid

    @serve.multiplexed(max_num_models_per_replica=256)
    async def _conversation(self, key: str) -> str:
        """Nothing is loaded: the replica only says that it has this conversation now."""
        return key

    async def ask(self, method: str, target: str, headers: dict[str, str],
                  body: bytes) -> AsyncIterator[Any]:
        """Yields (status, headers), then the answer's bytes as they come."""
        key = serve.get_multiplexed_model_id()
        if key:
            await self._conversation(key)
        request = self._client.build_request(method, target, headers=headers, content=body)
        answer = await self._client.send(request, stream=True)
        try:
            yield answer.status_code, {name: value for name, value in answer.headers.items()
                                       if name.lower() not in HOP_HEADERS}
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await answer.aclose()

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)  # running requests have ended by now
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


@serve.deployment(max_ongoing_requests=1024)
class HearthRouter:
    """The address: sends each request to a replica and its answer back."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        headers = {name: value for name, value in request.headers.items()
                   if name.lower() not in HOP_HEADERS}
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        key = conversation_key(body)
        for pause in PAUSES:
            try:
                return await self._ask(request.method, target, headers, body, key)
            except (RayActorError, httpx.TransportError, OSError):
                # The replica went away before it said anything: another one, whichever, begins anew.
                key = ""
                await asyncio.sleep(pause)
        return JSONResponse({"error": {"message": "no replica answers", "type": "server_error",
                                       "param": None, "code": "unavailable"}},
                            status_code=503, headers={"Retry-After": "1"})

    async def _ask(self, method: str, target: str, headers: dict[str, str], body: bytes,
                   key: str) -> Response:
        handle = self._replicas.options(multiplexed_model_id=key) if key else self._replicas
        pieces = handle.ask.remote(method, target, headers, body)
        status, answer_headers = await anext(pieces)
        if answer_headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingResponse(pieces, status_code=status, headers=answer_headers)
        # A whole answer is collected, so that it can be asked for again where its replica dies.
        whole = b"".join([piece async for piece in pieces])
        return Response(whole, status_code=status, headers=answer_headers)


def app(arguments: dict[str, str]) -> Any:
    """Arguments: model (needed), program, options (of hearth serve, separated by spaces), key_file,
    cpus (of a replica), replicas (a number, or LEAST-MOST to follow the load), parallel."""
    model = arguments["model"]
    program = arguments.get("program", "hearth")
    options = arguments.get("options", "").split()
    cpus = float(arguments.get("cpus", "1"))
    parallel = int(arguments.get("parallel", "8"))
    options += ["--threads", str(max(1, int(cpus))), "--parallel", str(parallel)]
    if "key_file" in arguments:
        options += ["--api-key-file", arguments["key_file"]]
    # Replicas listen on this machine alone; without keys the address of Ray Serve decides who may ask.
    settings: dict[str, Any] = {"ray_actor_options": {"num_cpus": cpus}}
    replicas = arguments.get("replicas", "1")
    if "-" in replicas:
        least, most = replicas.split("-")
        settings["autoscaling_config"] = {
            "min_replicas": int(least), "max_replicas": int(most),
            "target_ongoing_requests": parallel, "upscale_delay_s": 5, "downscale_delay_s": 120}
    else:
        settings["num_replicas"] = int(replicas)
    replica = HearthReplica.options(**settings).bind(program, os.path.abspath(model), options)
    return HearthRouter.options(ray_actor_options={"num_cpus": 0}).bind(replica)
