"""`graphcore serve`: a server in this process, or in several worker processes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from graphcore import models
from graphcore.cli import output
from graphcore.errors import GraphcoreError, GraphError, ModelError, RunError
from graphcore.runtime.session import InferenceSession
from graphcore.scale.recipes import require
from graphcore.scale.serving.http_server import HttpServer, bind, name_of, url_of
from graphcore.support.atomic_files import replace_files

_processes = multiprocessing.get_context("spawn")


def serve(args: argparse.Namespace) -> int:
    require("serve", "serve")
    names = [name_of(source) for source in args.sources]
    if len({*names}) < len(names):
        raise GraphError(
            f"serve: two models have the same name: {', '.join(names)}", help="give files with different names"
        )
    for source in filter(None, [*args.sources, args.draft]):
        if not os.path.exists(source):
            raise ModelError(
                f"serve: {source} is not a file or folder: the path does not exist",
                help="give the path of an .onnx file, or of a folder of Hugging Face; its name is that of the model",
            )
        if os.path.isdir(source) and not os.path.isfile(os.path.join(source, "config.json")):
            raise ModelError(f"serve: the folder {source} has no config.json", help="give .onnx files or model folders")
    if (args.adapter or args.draft) and sum(map(os.path.isdir, args.sources)) != 1:
        raise GraphError(
            f"serve: --adapter and --draft are for one folder, but the models are {', '.join(args.sources)}",
            help="serve each folder with adapters or a draft by a command of its own",
        )
    if args.workers < 1 or (args.workers > 1 and args.grpc_port == 0):
        raise GraphError(
            f"serve: --workers {args.workers} must be at least 1, and 1 with --grpc-port 0", help="choose other numbers"
        )
    with bind(args.host, args.port) as listening, _stopping() as stopping:

        def started() -> None:
            url = url_of(listening)
            if args.json:
                output.document({"models": names, "url": url, "grpc_port": args.grpc_port, "workers": args.workers})
            else:
                output.line(f"serving {', '.join(names)} at {url}")
            sys.stdout.flush()

        if args.workers > 1:
            _supervise(args, listening, stopping, started)
            return 0
        with _server(args, listening):
            started()
            while not stopping.wait(0.5):
                continue
    return 0


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set; the second one raises `KeyboardInterrupt`."""
    event = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _server(args: argparse.Namespace, listening: socket.socket) -> HttpServer:
    options = {} if args.threads is None else {"intra_op_num_threads": args.threads}
    session = InferenceSession(args.provider, **options)
    return HttpServer(
        {name_of(source): _load(args, session, source) for source in args.sources}, listening=listening,
        max_batch=args.batch, max_wait_ms=args.wait, slots=args.slots, max_waiting=args.max_waiting,
        timeout=args.timeout, client_seconds=args.client_timeout, max_bytes=args.max_bytes,
        max_connections=args.max_connections, grpc_port=args.grpc_port,
    )  # fmt: skip


def _load(args: argparse.Namespace, session: InferenceSession, source: str) -> Any:
    """Return the model of a file, or of a folder of Hugging Face."""
    if not os.path.isdir(source):
        return session.load(source)
    options = {"cache": args.context, "dtype": args.dtype, "slots": args.slots, "max_waiting": args.max_waiting}
    draft = args.draft and models.load(args.draft, session=session, cache=args.context, dtype=args.dtype)
    return models.load(source, session=session, draft=draft, adapters=dict(args.adapter), **options)


def _supervise(
    args: argparse.Namespace, listening: socket.socket, stopping: threading.Event, started: Callable[[], None]
) -> None:
    """Run the workers until the event is set. One that dies is replaced; one that cannot start ends the server."""
    workers: dict[Any, Connection] = {}
    folder = tempfile.TemporaryDirectory(prefix="graphcore-serve-")

    def start(name: str) -> Connection:
        ours, theirs = _processes.Pipe()
        arguments = (args, listening, theirs, Path(folder.name, name))
        process = _processes.Process(target=_work, name=name, args=arguments, daemon=True)
        process.start()
        theirs.close()
        workers[process] = ours
        return ours

    try:
        for pipe in [start(str(number)) for number in range(args.workers)]:
            _check_started(pipe)
        started()
        while not stopping.is_set():
            wait([process.sentinel for process in workers], 0.5)
            for process in [each for each in workers if not each.is_alive() and not stopping.is_set()]:
                workers.pop(process).close()
                _check_started(start(process.name))
        listening.close()
        for pipe in workers.values():
            pipe.close()
        for process in workers:
            process.join()
    finally:
        for process in workers:
            process.kill()
            process.join()
        folder.cleanup()


def _check_started(pipe: Connection) -> None:
    """Wait until a worker serves. Raises its error."""
    try:
        error = pipe.recv()
    except EOFError:
        raise RunError("serve: a worker has died before it served", help="see its messages; try --workers 1") from None
    if error is not None:
        raise error


def _work(args: argparse.Namespace, listening: socket.socket, pipe: Connection, metrics: Path) -> None:
    """Serve in a worker until the parent closes the pipe, or dies. It alone reacts to signals, which all may get.

    metrics: the file of this worker's metrics, beside those of the others, which /metrics adds.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        server = _server(args, listening)
    except GraphcoreError as error:
        pipe.send(error)
        return
    others = metrics.parent
    server._endpoint.other_metrics = lambda: [
        each.read_text() for each in others.iterdir() if each.name.isdigit() and each != metrics
    ]
    pipe.send(None)
    with server, suppress(BrokenPipeError):  # which Windows raises where POSIX reports the end of the pipe
        while not pipe.poll(1):
            with suppress(OSError):  # a full disk only makes the metrics old
                replace_files([(str(metrics), [server._endpoint.metrics().encode()])])
