"""`graphcore bench`: latency, throughput and memory of a model, compared with onnxruntime alone on the same file."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from graphcore import runtime
from graphcore.cli import arrays, output
from graphcore.cli.arguments.options import LinkArguments, links
from graphcore.cli.distances import feeds_of
from graphcore.errors import FeedError, GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import operators
from graphcore.operators import Trait, having
from graphcore.runtime.inspection.profiling import onnxruntime_alone
from graphcore.runtime.ort.release import processor_flags
from graphcore.support.escaping import escaped
from graphcore.types.tensor_types import TensorType, Type

# Alternating calls, and their latencies.

PERCENTILES = (50, 90, 95, 99)

_WARMUP_CALLS = 2
_MIN_ROUNDS = 5
"""Minimum number of measured rounds, however long a call takes."""

_MAX_ROUNDS = 1_000_000

_MIN_SECONDS = 0.01
"""Calls from this length on may gain from OpenVINO: MobileNet, of 10 ms, takes 0.93 of the CPU provider's time."""

_PRODUCTS = having(Trait.PRODUCT) - having(Trait.QUANTIZED)

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Latency:
    """The seconds of each call, in order."""

    seconds: tuple[float, ...]

    def percentile(self, part: float) -> float:
        """Return a percentile of the seconds; 50 is the median."""
        return float(np.percentile(self.seconds, part))

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    def as_dict(self) -> dict[str, float | int]:
        """Return the figures in milliseconds, for JSON."""
        figures: dict[str, float | int] = {f"p{part}_ms": self.percentile(part) * 1e3 for part in PERCENTILES}
        return figures | {"best_ms": self.best * 1e3, "mean_ms": self.mean * 1e3, "calls": len(self.seconds)}


def in_turns(calls: Sequence[Call], seconds: float, tell: Callable[[float], None]) -> list[Latency]:
    """Return the latency of each call. A round runs each call once; every other round runs them in reverse order.

    seconds: for all rounds, of which there are at least five. tell: called with the seconds that have passed.
    """
    for call in calls:
        for _ in range(_WARMUP_CALLS):
            call()
    durations: list[list[float]] = [[] for _ in calls]
    order = [*range(len(calls))]
    begun = time.perf_counter()
    for number in range(_MAX_ROUNDS):
        for i in order if number % 2 == 0 else reversed(order):
            start = time.perf_counter()
            calls[i]()
            durations[i].append(time.perf_counter() - start)
        passed = time.perf_counter() - begun
        tell(passed)
        if passed >= seconds and number + 1 >= _MIN_ROUNDS:
            break
    return [Latency(tuple(each)) for each in durations]


def share_of(advance: output.Advance, number: int, total: int, seconds: float) -> Callable[[float], None]:
    """Return the function for `in_turns` to call in one of several measurements, each of so many seconds."""
    return lambda passed: advance(int(1000 * (number * seconds + min(passed, seconds))), int(1000 * total * seconds))


def ratio(ours: Latency, other: Latency) -> float:
    """Return the median over rounds of the ratio of both calls."""
    return float(np.median(np.divide(ours.seconds, other.seconds)))


# A plot of a benchmark as SVG: latency and throughput of each row, for both sides.

_WIDTH = 760
_LEFT, _RIGHT = 170, 90
_BAR, _GAP, _TOP = 14, 16, 64
_OURS, _ALONE = "#2563eb", "#9ca3af"


def svg(title: str, rows: Sequence[BenchRow]) -> str:
    """Return the plot: bars of the median latency with a whisker at the 99th percentile, and of rows per second."""
    lines = [f'<text x="12" y="24" font-size="15" font-weight="bold">{_text(title)}</text>', _legend()]
    y = _TOP
    latency = [[_side(each.ours), _side(each.alone)] for each in rows]
    rates = [[_rate(each.batch, each.ours), _rate(each.batch, each.alone)] for each in rows]
    labels = [each.label for each in rows]
    y = _panel(lines, y, "latency of a call, milliseconds: median, and 99th percentile as a line", labels, latency)
    y = _panel(lines, y, "throughput, rows of the batch a second", labels, rates)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#111827">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>', *lines, "</svg>", ""])


def _side(latency: Latency | None) -> tuple[float, float] | None:
    return None if latency is None else (latency.percentile(50) * 1e3, latency.percentile(99) * 1e3)


def _rate(batch: int, latency: Latency | None) -> tuple[float, float] | None:
    return None if latency is None else (batch / latency.mean, 0.0)


def _legend() -> str:
    x = _WIDTH - 300
    return (
        f'<rect x="{x}" y="34" width="12" height="12" fill="{_OURS}"/><text x="{x + 18}" y="44">graphcore</text>'
        f'<rect x="{x + 110}" y="34" width="12" height="12" fill="{_ALONE}"/>'
        f'<text x="{x + 128}" y="44">onnxruntime alone</text>'
    )


def _panel(
    lines: list[str],
    y: int,
    title: str,
    labels: Sequence[str],
    rows: Sequence[Sequence[tuple[float, float] | None]],
) -> int:
    """Add a panel; return the y coordinate of the next one."""
    lines.append(f'<text x="12" y="{y}" font-weight="bold">{_text(title)}</text>')
    y += 12
    largest = max((max(side) for row in rows for side in row if side is not None), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    for label, row in zip(labels, rows, strict=True):
        lines.append(f'<text x="12" y="{y + _BAR + 4}">{_text(label)}</text>')
        for number, (side, colour) in enumerate(zip(row, (_OURS, _ALONE), strict=True)):
            top = y + number * (_BAR + 2)
            if side is None:
                lines.append(f'<text x="{_LEFT}" y="{top + 11}" fill="#6b7280">refused</text>')
                continue
            value, whisker = side
            end = _LEFT + value * scale
            lines.append(f'<rect x="{_LEFT}" y="{top}" width="{value * scale:.1f}" height="{_BAR}" fill="{colour}"/>')
            if whisker > value:
                middle, end = top + _BAR / 2, _LEFT + whisker * scale
                start = _LEFT + value * scale
                lines.append(f'<path d="M{start:.1f} {middle}H{end:.1f}" stroke="{colour}" stroke-width="2"/>')
            lines.append(f'<text x="{end + 6:.1f}" y="{top + 11}">{value:.4g}</text>')
        y += 2 * (_BAR + 2) + _GAP
    return y + _GAP


def _text(text: str) -> str:
    return escape(escaped(text))


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The result for a number of threads and a size of the batch. reason: why onnxruntime alone does not run."""

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
    rows: list[BenchRow] = []
    sizes: list[int | None] = [*args.batch] if args.batch else [None]
    threads = args.threads or [0]
    total = len(sizes) * len(threads)
    with output.progress(f"measuring {args.model}") as advance:
        for count in threads:
            for size in sizes:
                rows.append(_row(args, count, size, share_of(advance, len(rows), total, args.seconds)))
    memory = None if args.no_memory else _memory(args, threads[0])
    if args.plot:
        output.write_text("bench", args.plot, svg(os.path.basename(args.model), rows))
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


def _row(args: argparse.Namespace, threads: int, size: int | None, tell: Callable[[float], None]) -> BenchRow:
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
    latencies = in_turns(calls, args.seconds, tell)
    batch = _rows(feeds, model.inputs)
    return BenchRow(threads, batch, size is not None, latencies[0], latencies[1] if alone is not None else None, reason)


def _feeds(args: argparse.Namespace, model: runtime.Model, size: int | None) -> dict[str, Any]:
    """Return the arrays, with `size` rows in the batch. Raises `FeedError` if the model has no such dim."""
    batch_args = argparse.Namespace(**vars(args))
    if size is not None:
        batch_args.dim = [*args.dim, *((name, size) for name in _batch_dims(model))]
    return feeds_of("bench", model.name, model.inputs, batch_args, fills=True)


def _batch_dims(model: runtime.Model) -> list[str]:
    """Return the names for --dim of the first dim of the first input; without a name, those of all such dims."""
    shapes = {n: t.shape for n, t in model.inputs.items() if isinstance(t, TensorType) and t.shape.is_ranked}
    first = next((shape[0] for shape in shapes.values() if len(shape)), None)
    if first is not None and first.name is not None and not first.is_dynamic:
        return [first.name]
    if first is not None and first.is_dynamic:
        return [f"{name}.0" for name, shape in shapes.items() if len(shape) and shape[0].is_dynamic]
    raise FeedError(
        f"bench: {model.name}: the first dim of the first input is {'none' if first is None else first}, not a name",
        operands={name: str(type_) for name, type_ in model.inputs.items()},
        help="run without --batch, or name the dim with graphcore set-dims",
    )


def _rows(feeds: Mapping[str, Any], inputs: Mapping[str, Type]) -> int:
    """Return the number of rows of a call: the length of the first dim of the first input, or 1."""
    shape = next((getattr(feeds[name], "shape", ()) for name in inputs), ())
    return int(shape[0]) if shape and shape[0] else 1


def _figures(latency: Latency, batch: int) -> dict[str, Any]:
    return {**latency.as_dict(), "rows_per_second": batch / latency.mean}


def _memory(args: argparse.Namespace, threads: int) -> dict[str, int | None]:
    with tempfile.TemporaryDirectory() as folder, output.working("measuring memory"):
        model = _session(args, threads).load(args.model, **links(args))
        path = os.path.join(folder, "feeds.npz")
        arrays.write(path, _feeds(args, model, args.batch[0] if args.batch else None))
        del model
        return {
            side: peak(MemoryRequest(args.model, path, is_alone, args.provider, args.precision, threads, links(args)))
            for side, is_alone in (("graphcore", False), ("onnxruntime", True))
        }


def _print(args: argparse.Namespace, rows: list[BenchRow], memory: Mapping[str, int | None] | None) -> None:
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
    is_slow = args.provider in (None, "cpu") and rows[0].ours.percentile(50) >= _MIN_SECONDS
    if is_slow and "avx512_bf16" in processor_flags():
        op_types = {op_type for op_type, _ in operators(Graph.load(args.model, **links(args)))}
        if not op_types.isdisjoint(_PRODUCTS):
            form = f"graphcore compare {args.model} --provider openvino --precision fast"
            output.line(f"OpenVINO in bfloat16 may take 0.3 to 0.6 of the time (docs/howto/openvino.md): {form}")
    if memory is not None:
        sizes = {side: "unknown" if count is None else output.size(count) for side, count in memory.items()}
        output.line(f"memory: graphcore {sizes['graphcore']}, onnxruntime {sizes['onnxruntime']}")
    if args.plot:
        output.line(f"{args.plot}: the plot")


def _cells(latency: Latency, batch: int) -> tuple[str, ...]:
    times = [*(latency.percentile(part) for part in (50, 90, 95, 99)), latency.best]
    return (*(f"{seconds * 1e3:.4g}" for seconds in times), f"{batch / latency.mean:.4g}")


# The memory of a model, measured in a separate process: `python -m graphcore.cli.commands.bench` reads a
# `MemoryRequest` as JSON, and prints the bytes.

_TIMEOUT = 600  # seconds


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A measurement. feeds: a file that `arrays.write` wrote. alone: run by onnxruntime alone."""

    model: str
    feeds: str
    alone: bool
    provider: str
    precision: Any
    threads: int
    links: LinkArguments


def peak(request: MemoryRequest) -> int | None:
    """Return the peak memory in bytes of loading a model and calling it once; None if it cannot be measured."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(
            [sys.executable, "-m", "graphcore.cli.commands.bench"],
            input=json.dumps(asdict(request)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
            env=environment,
        )
        return int(process.stdout) if process.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _memory_usage() -> dict[str, int] | None:
    """Return the current and the peak memory of this process in bytes; None if the system does not report them.

    The peak of `getrusage` would include the parent process.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
        return {key: int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")}
    except (OSError, KeyError, ValueError):
        return None


def _measure(request: MemoryRequest) -> int | None:
    session = runtime.InferenceSession(
        request.provider, precision=request.precision, intra_op_num_threads=request.threads
    )
    small = Graph("small", {"x": TensorType("float32", [1])})
    small.output(y=-small["x"])
    session.load(small.to_onnx())(x=[1.0])  # imports must not count as memory of the model
    feeds = arrays.read_all(request.feeds)
    before = _memory_usage()
    if request.alone:
        onnxruntime_alone(request.model, session.providers, request.threads)(feeds)
    else:
        session.load(request.model, **request.links)(**feeds)
    after = _memory_usage()
    return None if before is None or after is None else max(0, after["VmHWM"] - before["VmRSS"])


def main() -> int:
    """Measure the request on stdin. Returns the exit status."""
    try:
        peak_bytes = _measure(MemoryRequest(**json.load(sys.stdin)))
    except GraphcoreError:
        return 1
    if peak_bytes is None:
        return 1
    print(peak_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
