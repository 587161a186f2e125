"""`graphcore bench`: latency, throughput and memory of a model, beside onnxruntime alone on the same file."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphcore import runtime
from graphcore.cli import arrays, files, output
from graphcore.cli.arguments.options import links
from graphcore.cli.measuring.feeds import feeds_of
from graphcore.cli.measuring.latency import Latency, in_turns, ratio
from graphcore.cli.measuring.memory import Request, peak
from graphcore.cli.measuring.plot import Bars, svg
from graphcore.errors import FeedError, GraphcoreError
from graphcore.runtime.inspection.alone import onnxruntime_alone
from graphcore.types.tensor_types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Row:
    """One number of threads and one size of the batch. reason: why onnxruntime alone does not run."""

    threads: int
    batch: int
    sized: bool
    ours: Latency
    alone: Latency | None
    reason: str

    @property
    def label(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}" if self.threads else "default threads"
        return f"{threads}, batch {self.batch}" if self.sized else threads

    def as_dict(self) -> dict[str, Any]:
        return {
            "threads": self.threads or None,
            "batch": self.batch,
            "graphcore": _figures(self.ours, self.batch),
            "onnxruntime": None if self.alone is None else _figures(self.alone, self.batch),
            "ratio": None if self.alone is None else ratio(self.ours, self.alone),
            "reason": self.reason,
        }


def bench(args: argparse.Namespace) -> int:
    rows: list[Row] = []
    sizes: list[int | None] = [*args.batch] if args.batch else [None]
    threads = args.threads or [0]
    whole = args.seconds * len(sizes) * len(threads)
    with output.progress(f"measuring {args.model}") as advance:
        for count in threads:
            for size in sizes:
                before = len(rows) * args.seconds

                def tell(passed: float, before: float = before) -> None:
                    advance(int((before + min(passed, args.seconds)) * 1000), int(whole * 1000))

                rows.append(_row(args, count, size, tell))
    memory = None if args.no_memory else _memory(args, threads[0])
    if args.plot:
        bars = [Bars(row.label, row.batch, row.ours, row.alone) for row in rows]
        files.write_text("bench", args.plot, svg(os.path.basename(args.model), bars))
    if args.json:
        output.document(
            {
                "model": args.model,
                "provider": args.provider,
                "precision": args.precision,
                "seconds": args.seconds,
                "rows": [row.as_dict() for row in rows],
                "memory": memory,
                "plot": args.plot,
            }
        )
        return 0
    _print(args, rows, memory)
    return 0


def _session(args: argparse.Namespace, threads: int) -> runtime.InferenceSession:
    return runtime.InferenceSession(args.provider, precision=args.precision, intra_op_num_threads=threads)


def _row(args: argparse.Namespace, threads: int, size: int | None, tell: Callable[[float], None]) -> Row:
    session = _session(args, threads)
    model = session.load(args.model, **links(args))
    feeds = _feeds(args, model, size)
    alone: Callable[[Mapping[str, Any]], list[Any]] | None = None
    reason = ""
    try:
        alone = onnxruntime_alone(args.model, session.providers, threads)
        alone(feeds)
    except GraphcoreError as error:
        alone, reason = None, str(error).strip().split("\n")[-1].strip()
    calls: list[Callable[[], Any]] = [lambda: model(**feeds)]
    if alone is not None:
        other = alone
        calls.append(lambda: other(feeds))
    found = in_turns(calls, args.seconds, tell)
    batch = _rows(feeds, model.inputs)
    return Row(threads, batch, size is not None, found[0], found[1] if alone is not None else None, reason)


def _feeds(args: argparse.Namespace, model: runtime.Model, size: int | None) -> dict[str, Any]:
    """Return the arrays, with so many rows in the batch. Raises `FeedError` where the model has no size to choose."""
    given = argparse.Namespace(**vars(args))
    if size is not None:
        given.dim = [*args.dim, *((name, size) for name in _batch_dims(model))]
    return feeds_of("bench", model.name, model.inputs, given, fills=True)


def _batch_dims(model: runtime.Model) -> list[str]:
    """Return what --dim calls the first dim of the first input: its name, or the places of all such dims with none."""
    shapes = {n: t.shape for n, t in model.inputs.items() if isinstance(t, TensorType) and t.shape.is_ranked}
    first = next((shape[0] for shape in shapes.values() if len(shape)), None)
    if first is not None and first.name is not None and not first.is_dynamic:
        return [first.name]
    if first is not None and first.is_dynamic:
        return [f"{name}.0" for name, shape in shapes.items() if len(shape) and shape[0].is_dynamic]
    raise FeedError(
        f"bench: {model.name}: the first dim of the first input is {'none' if first is None else first}, not a name",
        operands={name: str(type_) for name, type_ in model.inputs.items()},
        help="leave --batch out, or free the dim with graphcore set-dims",
    )


def _rows(feeds: Mapping[str, Any], inputs: Mapping[str, Type]) -> int:
    """Return how many rows a call takes: the length of the first input's first dim, 1 where it has none."""
    found = next((getattr(feeds[name], "shape", ()) for name in inputs), ())
    return int(found[0]) if found and found[0] else 1


def _figures(latency: Latency, batch: int) -> dict[str, Any]:
    return {**latency.as_dict(), "rows_per_second": batch / latency.mean}


def _memory(args: argparse.Namespace, threads: int) -> dict[str, int | None]:
    with tempfile.TemporaryDirectory() as folder, output.working("measuring memory"):
        model = _session(args, threads).load(args.model, **links(args))
        path = os.path.join(folder, "feeds.npz")
        arrays.write(path, _feeds(args, model, args.batch[0] if args.batch else None))
        del model
        return {
            side: peak(Request(args.model, path, is_alone, args.provider, args.precision, threads, links(args)))
            for side, is_alone in (("graphcore", False), ("onnxruntime", True))
        }


def _print(args: argparse.Namespace, rows: list[Row], memory: Mapping[str, int | None] | None) -> None:
    head = ("", "side", "p50 ms", "p90", "p95", "p99", "best", "rows/s", "ratio")
    table = []
    for row in rows:
        beside = "" if row.alone is None else f"{ratio(row.ours, row.alone):.3f}"
        table.append((row.label, "graphcore", *_cells(row.ours, row.batch), beside))
        if row.alone is not None:
            table.append(("", "onnxruntime", *_cells(row.alone, row.batch), ""))
    output.table(table, head=head, numbers=range(2, 9))
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        output.line(f"onnxruntime alone does not run it: {reason}")
    if memory is not None:
        shown = {side: "unknown" if count is None else output.size(count) for side, count in memory.items()}
        output.line(f"memory: graphcore {shown['graphcore']}, onnxruntime {shown['onnxruntime']}")
    if args.plot:
        output.line(f"{args.plot}: the picture")


def _cells(latency: Latency, batch: int) -> tuple[str, ...]:
    times = [*(latency.percentile(part) for part in (50, 90, 95, 99)), latency.best]
    return (*(f"{seconds * 1e3:.4g}" for seconds in times), f"{batch / latency.mean:.4g}")
