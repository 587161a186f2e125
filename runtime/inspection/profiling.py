"""Profiles of runs: times of onnxruntime's profiler by kernel, operator and layer."""

from __future__ import annotations

import fnmatch
import json
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

from graphcore.arrays import casting
from graphcore.errors import FeedError, GraphError, ModelError, RunError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.support.escaping import similar
from graphcore.support.markup import table
from graphcore.types.tensor_types import TensorType

Load: TypeAlias = Callable[[Mapping[str, Any]], tuple[Callable[..., Any], onnxruntime.InferenceSession]]
"""Loads a model with more session options; returns a function that calls it, and its session."""

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a session.

    seconds: in a run, on average. calls: in a run; more than 1 in loops. result_bytes: of the results of a call.
    weight_bytes: of the constants that it reads. Both are 0 if onnxruntime does not report them.
    """

    name: str
    operator: str
    provider: str
    seconds: float
    calls: float
    result_bytes: int = 0
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a model, slowest first. seconds: of a whole run, on average over `runs` runs."""

    kernels: tuple[Kernel, ...]
    seconds: float
    runs: int

    def by_operator(self) -> dict[str, float]:
        """Return seconds in a run by operator, slowest first."""
        return _summed((kernel.operator, kernel.seconds) for kernel in self.kernels)

    def by_layer(self) -> dict[str, float]:
        """Return seconds in a run by the layer that kernels were built in, slowest first; "" outside of any."""
        return _summed((kernel.name.rpartition("/")[0], kernel.seconds) for kernel in self.kernels)

    def __str__(self) -> str:
        lines = [
            f"{time:>10} us {share:>6}  {operator:<24} {name}".rstrip() for time, share, operator, name in self._rows()
        ]
        return "\n".join([self._total(), *lines])

    def _repr_html_(self) -> str:
        return table(("us a run", "share", "operator", "name"), self._rows(), self._total())

    def _total(self) -> str:
        return f"{self.seconds * 1e6:.1f} us a run, {len(self.kernels)} kernels, {self.runs} runs"

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield time, share, operator and name of the slowest kernels, then the sum of the others."""
        total = sum(kernel.seconds for kernel in self.kernels) or 1.0
        for kernel in self.kernels[:_MAX_LISTED]:
            yield f"{kernel.seconds * 1e6:.1f}", f"{kernel.seconds / total:.1%}", kernel.operator, kernel.name
        rest = self.kernels[_MAX_LISTED:]
        if rest:
            seconds = sum(kernel.seconds for kernel in rest)
            yield f"{seconds * 1e6:.1f}", f"{seconds / total:.1%}", f"in {len(rest)} more", ""


def profiled(load: Load, arrays: Sequence[Any], named: Mapping[str, Any], runs: int) -> Profile:
    """Return the profile of `runs` calls after a first one."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
        call, session = load({"enable_profiling": True, "profile_file_prefix": os.path.join(folder, "profile")})
        try:
            for _ in range(runs + 1):
                call(*arrays, **named)
        finally:
            file = session.end_profiling()
        with open(file, encoding="utf-8") as stream:
            events = json.load(stream)
    return _read(events, runs)


def _read(events: list[dict[str, Any]], runs: int) -> Profile:
    """Return the profile of a list of trace events, without those of the first run."""
    whole = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])[-runs:]
    begin = min(e["ts"] for e in whole)
    seconds: dict[tuple[str, str, str], list[float]] = {}
    sizes: dict[tuple[str, str, str], tuple[int, int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= begin:
            about = event["args"]
            key = (event["name"].removesuffix("_kernel_time"), about["op_name"], about.get("provider", ""))
            seconds.setdefault(key, []).append(event["dur"] * 1e-6)
            size = sizes.get(key, (0, 0))
            sizes[key] = max(size[0], _size(about, "output_size")), max(size[1], _size(about, "parameter_size"))
    kernels = [Kernel(*key, sum(taken) / runs, len(taken) / runs, *sizes[key]) for key, taken in seconds.items()]
    kernels.sort(key=lambda kernel: -kernel.seconds)
    return Profile(tuple(kernels), sum(e["dur"] for e in whole) * 1e-6 / runs, runs)


def _size(about: Mapping[str, Any], key: str) -> int:
    text = str(about.get(key, ""))
    return int(text) if text.isdecimal() else 0


def _summed(parts: Iterator[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, seconds in parts:
        sums[key] = sums.get(key, 0.0) + seconds
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


# Inspect values inside a graph: the same graph with these values as outputs.


def names_of(watch: object, model: str) -> list[str] | None:
    """Return the names of values to watch; None for the marked values. model: for errors.

    Raises `FeedError` for values other than names.
    """
    names = [watch] if isinstance(watch, str) else watch
    if names is None:
        return None
    if not (isinstance(names, Collection) and all(isinstance(name, str) for name in names)):
        raise FeedError(
            f"debug: {model}: watch must be a name or a list of names, got {watch!r:.80}",
            help='give one, or a list: watch="encoder/0/*"',
        )
    return [*names]


def watched(graph: Graph, patterns: Iterable[str]) -> list[Symbol]:
    """Return the results of nodes whose names match one of the patterns, in order.

    patterns: names as `str(graph)` shows them, or after the path of their layer, with `*`, `?` and `[...]` as in the
    shell; `*` goes across layers. Raises `GraphError` for a pattern that nothing matches.
    """
    symbols = [s for node in graph.nodes for s in node.outputs if isinstance(s.type, TensorType)]
    names = [(symbol, {symbol.name, _path(symbol)}) for symbol in symbols]
    chosen: set[int] = set()
    for pattern in patterns:
        ids = {s.id for s, own in names if any(fnmatch.fnmatchcase(name, pattern) for name in own)}
        if not ids:
            raise _no_such(graph, pattern, [s.name for s in symbols])
        chosen |= ids
    return [symbol for symbol in symbols if symbol.id in chosen]


def marked(graph: Graph) -> dict[str, Symbol]:
    """Return the values that `print` marked, by label. Raises `GraphError` if there are none."""
    if not graph.watched:
        raise GraphError(
            f"debug: nothing of graph {graph.name!r} is marked",
            help='mark values where they are made, x.print("label"), or say which: watch="encoder/0/*"',
        )
    return dict(graph.watched)


def _path(symbol: Symbol) -> str:
    layer = symbol.producer.layer if isinstance(symbol.producer, Node) else ""
    return symbol.name if symbol.name.startswith(layer) else layer + symbol.name


def _no_such(graph: Graph, pattern: str, names: Sequence[str]) -> GraphError:
    near = similar(pattern, names, cutoff=0.4) or names[:5]
    return GraphError(
        f"debug: graph {graph.name!r} has no tensor called {pattern!r}",
        help="names are for example " + ", ".join(map(repr, near)) if near else "the graph has no nodes",
    )


def with_outputs(graph: Graph, symbols: Iterable[Symbol]) -> Graph:
    """Return a copy of the graph with these values as outputs."""
    new = copied(graph)
    new.build.outputs([(f"watched/{i}", new.symbols[symbol.id]) for i, symbol in enumerate(symbols)])
    return new


# Times of calls.


def timed(call: Callable[[], object], runs: int) -> dict[str, float]:
    """Return the seconds of a call over several runs after a first one: `median`, `best` and `worst`."""
    call()
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return {"median": statistics.median(taken), "best": min(taken), "worst": max(taken)}


def count_of(what: str, model: str, runs: object) -> int:
    """Return a number of runs, 1 or more. what, model: for errors. Raises `FeedError` for other types."""
    if not isinstance(runs, (int, np.integer)) or isinstance(runs, bool):
        raise FeedError(f"{what}: {model}: runs={runs!r:.80} is not a number of calls", help="give 1 or more")
    return max(1, int(runs))


# Sessions of plain onnxruntime: an unchanged file with onnxruntime's defaults, to compare a Model with.

_SILENT = 4  # of onnxruntime's levels of logging: what fails is raised


def onnxruntime_alone(
    path: str | os.PathLike[str], providers: Sequence[str], threads: int = 0
) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return a function that runs a file as `onnxruntime.InferenceSession(path).run(None, feeds)` does.

    providers: onnxruntime's names. threads: that a kernel may use, 0 for onnxruntime's own choice. Raises `ModelError`
    if onnxruntime refuses the file; the function raises `RunError` if it refuses the arrays or fails.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _SILENT
    try:
        session = onnxruntime.InferenceSession(os.fspath(path), options, providers=[*providers])
    except Exception as error:
        raise ModelError(
            f"onnxruntime alone: {path} is refused", help="graphcore check names the nodes", raw=_short(error)
        ) from None

    def call(feeds: Mapping[str, Any]) -> list[Any]:
        try:
            results: list[Any] = session.run(None, {name: _stored(value) for name, value in feeds.items()})
        except Exception as error:
            raise RunError(
                f"onnxruntime alone: {path} fails", help="graphcore check names the nodes", raw=_short(error)
            ) from None
        return results

    return call


def _stored(value: Any) -> Any:
    """Return the stored form of an array: complex numbers as pairs of floats."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        return casting.paired(np.ascontiguousarray(value))
    return value


def _short(error: Exception) -> str:
    """Return the first line of onnxruntime's message."""
    return str(error).strip().split("\n")[0][:200]
