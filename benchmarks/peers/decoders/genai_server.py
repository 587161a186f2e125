"""onnxruntime-genai behind the HTTP server of Python: python -m ... FOLDER PORT STREAMS CACHE THREADS

POST /v1/completions with a prompt of tokens, as the OpenAI API has it. The package's engine of batches that requests
join needs CUDA, so texts that arrive within a few milliseconds are one batch: prompts of one length, read and continued
together. GET answers when the model is loaded.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.peers.decoders.genai import Genai
from benchmarks.peers.decoders.worker import Job

WAIT = 0.02
"""Seconds that a batch waits for another text."""

Waiting = queue.Queue[tuple[list[int], int, Future[list[int]]]]


def run(engine: Genai, waiting: Waiting, streams: int) -> None:
    """Run batches for ever."""
    while True:
        batch = [waiting.get()]
        try:
            while len(batch) < streams:
                batch.append(waiting.get(timeout=WAIT))
        except queue.Empty:
            pass
        prompts, counts, futures = zip(*batch, strict=True)
        engine.fill([*prompts])
        engine.rewind()
        rows = engine.steps(max(counts) - 1)
        for future, row, count in zip(futures, rows, counts, strict=True):
            future.set_result(row[:count])


def main(path: str, port: str, *numbers: str) -> int:
    streams, cache, threads = map(int, numbers)
    engine, waiting = Genai(Job("genai", path, cache, streams, threads)), Waiting()
    threading.Thread(target=run, args=(engine, waiting, streams), daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            future: Future[list[int]] = Future()
            waiting.put((fields["prompt"], fields["max_tokens"], future))
            tokens = future.result()
            self._answer({"choices": [{"tokens": tokens}], "usage": {"completion_tokens": len(tokens)}})

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer.request_queue_size = 128  # 5 by default, beyond which connections are reset
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
