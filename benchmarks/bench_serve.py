"""`graphcore serve` beside uvicorn that answers "hello": requests a second and latency, over HTTP/1.1 at loopback.

    python -m benchmarks.bench_serve

Each server is a process; clients keep their connections and are one process too. All are measured in turn.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.timing import Bounds
from graphcore import Graph, TensorType

CLIENTS = (1, 16, 64)
REQUESTS, ROUNDS = 1500, 5
LIVE_BOUND, INFER_BOUND = 3.0, 20.0


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answer "hello"."""
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


class _Client(asyncio.Protocol):
    """Sends a request again and again, and waits for an answer of as many bytes as the first one."""

    def __init__(self, request: bytes, count: int, seconds: list[float]) -> None:
        self._request, self._count, self._seconds = request, count, seconds
        self._length = self._received = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._start = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._received:
            head, _, _ = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), data
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self._length = len(head) + 4 + int(length.split(b":")[1])
        self._received += len(data)
        if self._received < self._length:
            return
        self._seconds.append(time.perf_counter() - self._start)
        self._received, self._count = 0, self._count - 1
        if self._count:
            self._send()
        else:
            self._transport.close()
            self.done.set_result(None)


async def _measure(port: int, request: bytes, clients: int) -> tuple[float, list[float]]:
    """Return the requests a second, and the seconds of each."""
    seconds: list[float] = []
    start = time.perf_counter()
    loop = asyncio.get_running_loop()
    count = REQUESTS // clients
    connections = [
        await loop.create_connection(lambda: _Client(request, count, seconds), "127.0.0.1", port)
        for _ in range(clients)
    ]
    await asyncio.gather(*(client.done for _, client in connections))
    return len(seconds) / (time.perf_counter() - start), seconds


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """Run a server, with its port in place of PORT; yield the port and the process when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    filled = [str(port) if part == "PORT" else part for part in command]
    with subprocess.Popen(filled, stdout=subprocess.DEVNULL, env=environment) as server:
        try:
            while server.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.1)
            yield port, server.pid
        finally:
            server.terminate()


def main() -> int:
    bounds = Bounds()
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    body = json.dumps({"inputs": [tensor]}).encode()
    get = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
    infer = b"POST /v2/models/scaled/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        graph = Graph("scaled", {"x": TensorType("float32", ["batch", 4])})
        graph.output(y=graph["x"] * 2)
        graph.export(Path(folder) / "scaled.onnx")
        module = (sys.executable, "-m")
        plain = (*module, "uvicorn", "benchmarks.bench_serve:hello", "--log-level", "warning", "--lifespan", "off")
        own = (*module, "graphcore", "serve", f"{folder}/scaled.onnx", "--wait", "0", "--port", "PORT")
        commands = (*((*plain, "--port", "PORT", "--http", each) for each in ("h11", "httptools")), own)
        h11, httptools, ours = (stack.enter_context(running(command))[0] for command in commands)
        servers = {
            'uvicorn "hello", h11': (h11, get % b"/"),
            'uvicorn "hello", httptools': (httptools, get % b"/"),
            "graphcore, health": (ours, get % b"/v2/health/live"),
            "graphcore, infer of 4 floats in JSON": (ours, infer),
        }
        print("| server | clients | requests/s | median | 99 % |\n|---|---|---|---|---|")
        for clients in CLIENTS:
            rates: dict[str, list[float]] = {name: [] for name in servers}
            times: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(ROUNDS + 1):
                for name, (port, request) in servers.items():
                    rate, seconds = asyncio.run(_measure(port, request, clients))
                    rates[name].append(rate)
                    times[name] += seconds
            medians = {name: statistics.median(each[1:]) for name, each in rates.items()}
            for name in servers:
                taken = sorted(times[name])
                median, late = taken[len(taken) // 2] * 1000, taken[len(taken) * 99 // 100] * 1000
                print(f"| {name} | {clients} | {medians[name]:,.0f} | {median:.2f} ms | {late:.2f} ms |")
            first, _, live, run = medians.values()
            bounds.figure(f"health, {clients} clients, time of hello", first / live, LIVE_BOUND, "x")
            bounds.figure(f"infer, {clients} clients, time of hello", first / run, INFER_BOUND, "x")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
