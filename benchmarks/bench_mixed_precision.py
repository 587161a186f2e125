"""Narrow models within a budget of error, by graphcore and by other tools: bytes, errors and seconds of the search.

    python -m venv build/peers
    build/peers/bin/pip install onnx onnxruntime onnxconverter-common sympy nncf
    python -m benchmarks.bench_mixed_precision --peers build/peers/bin/python

Every error is that of graphcore's exact numbers on a CPU: the length of the change over the length of the output, of
the output that is most off over all samples. A tool measures in its own way while it searches, so it may miss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks import trained_models
from benchmarks.peers import narrow
from benchmarks.timing import record
from graphcore.analysis.sizes import sizes
from graphcore.errors import GraphcoreError, MissingExtraError
from graphcore.models import llama, minilm

Feeds = Mapping[str, Any]

BUDGETS = (0.01, 0.001)
SAMPLES = 2
OPSET = 21
"""The opset of the files: other tools need one that has int4."""
DTYPES = {"graphcore, float16": ("float16",), "graphcore, all dtypes": ("float16", "bfloat16", "int8", "int4")}
DECODER = llama.Config(vocabulary=2000, width=256, inner=512, layers=4, heads=4, kv_heads=2, size=64)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model. build: returns it in float32. feeds: returns the inputs of a sample, by its number."""

    name: str
    build: Callable[[], gc.Graph]
    feeds: Callable[[onnxruntime.InferenceSession, int], Feeds]


def _encoder() -> gc.Graph:
    return minilm.build(Path(minilm.folder()) / "model.safetensors")


def _decoder() -> gc.Graph:
    """Return a decoder whose keys and values are inputs and outputs, as other tools know no buffers."""
    model = llama.build(DECODER, cache=16).to_onnx(opset=OPSET)
    for each in (model, model.graph, *model.graph.input, *model.graph.output):
        del each.metadata_props[:]
    return gc.Graph.load(model)


def _of_tokens(session: onnxruntime.InferenceSession, number: int) -> Feeds:
    """Return tokens, a mask of ones or their count, and zeros for the keys and values before them."""
    drawn, results = np.random.default_rng(number), dict[str, Any]()
    for value in session.get_inputs():
        shape = [dim if isinstance(dim, int) else size for dim, size in zip(value.shape, (1, 12), strict=False)]
        if value.type == "tensor(float)":
            results[value.name] = np.zeros([dim if isinstance(dim, int) else 1 for dim in value.shape], np.float32)
        elif value.name == "lengths":
            results[value.name] = np.array([12])
        else:
            is_mask = "mask" in value.name
            results[value.name] = np.ones(shape, np.int64) if is_mask else drawn.integers(1, 1999, shape)
    return results


def _trained(label: str, size: int = 0) -> Subject:
    """Return a packaged model. size: of images, if the model takes any."""
    trained = next(each for each in trained_models.TRAINED if each.label == label)
    trained = replace(trained, sizes={"x": (1, size, size)}) if size else trained

    def feeds(session: onnxruntime.InferenceSession, number: int) -> Feeds:
        drawn = np.random.default_rng(number)
        return {
            name: drawn.standard_normal(array.shape, np.float32) if array.dtype == np.float32 else array
            for name, array in trained.feed(session).items()
        }

    return Subject(label, lambda: gc.Graph.load(trained.file(trained_models.folder())), feeds)


SUBJECTS = {
    "encoder": Subject("all-MiniLM-L6-v2", _encoder, _of_tokens),
    "CNN": _trained("rapidocr-cls"),
    "detector": _trained("rapidocr-det", 96),
    "LSTM": _trained("silero-vad-op15"),
    "decoder": Subject("Llama-like, random weights", _decoder, _of_tokens),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=[*SUBJECTS], default=[*SUBJECTS], help="by default all")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the other tools")
    parser.add_argument("--budgets", nargs="+", type=float, default=BUDGETS)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of a search of another tool")
    options = parser.parse_args()
    print("| model | budget | tool | bytes of weights | error | seconds | runs |\n|---|---|---|---|---|---|---|")
    for kind in options.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                for row in _rows(SUBJECTS[kind], Path(folder), options):
                    record("mixed precision", {"model": kind, **row})
                    print(
                        f"| {kind}: {SUBJECTS[kind].name} | {row['budget']} | {row['tool']} | {_shown(row)} |",
                        flush=True,
                    )
            except (MissingExtraError, OSError) as error:
                print(f"{kind}: no comparison: {error}")
    return 0


def _shown(row: Mapping[str, Any]) -> str:
    if "failed" in row:
        return f"{row['failed']} | | |"
    return f"{row['bytes']:.1%} | {row['error']:.1e} | {row['seconds']:.0f} | {row['runs']}"


def _rows(subject: Subject, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each tool: the part of the bytes, the error, and the cost of the search."""
    path, samples = folder / "model.onnx", folder / "samples.npz"
    subject.build().export(path, opset=OPSET)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    runs = [subject.feeds(session, number) for number in range(SAMPLES)]
    np.savez(samples, **{f"{i}/{name}": array for i, feeds in enumerate(runs) for name, array in feeds.items()})
    graph = gc.Graph.load(path)
    expected, wide = _outputs(graph, runs), sizes(graph).bytes
    for budget in options.budgets:
        for tool, dtypes in DTYPES.items():
            start = time.perf_counter()
            result = gc.mixed_precision(graph, runs, max_error=budget, dtypes=dtypes)
            cost = {"seconds": time.perf_counter() - start, "runs": result.runs}
            error = narrow.relative(_outputs(result.graph, runs), expected)
            yield {"tool": tool, "budget": budget, "bytes": sizes(result.graph).bytes / wide, "error": error, **cost}
        for tool in narrow.TOOLS:
            row = _searched(options, tool, path, samples, budget)
            if "failed" not in row:
                try:
                    other = gc.Graph.load(folder / "narrow.onnx")
                    row |= {
                        "bytes": sizes(other).bytes / wide,
                        "error": narrow.relative(_outputs(other, runs), expected),
                    }
                except GraphcoreError as error:
                    row = {"failed": f"writes a model that is not valid: {error.summary}"}
            yield {"tool": tool, "budget": budget, **row}


def _searched(options: argparse.Namespace, tool: str, path: Path, samples: Path, budget: float) -> dict[str, Any]:
    """Let another tool write narrow.onnx beside a model. Return the cost of its search, or why it failed."""
    out = path.with_name("narrow.onnx")
    command = [options.peers, narrow.__file__, tool, str(path), str(samples), str(budget), str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {options.timeout:.0f} s"}
    line = done.stdout.splitlines()[-1] if done.stdout else ""
    result: dict[str, Any] = json.loads(line) if line.startswith("{") else {"failed": f"ends with {done.returncode}"}
    return result


def _outputs(graph: gc.Graph, runs: list[Feeds]) -> narrow.Outputs:
    """Return the outputs of each run in the exact numbers of the graph's dtypes."""
    model = gc.InferenceSession(precision="exact").load(graph)
    results = [model(feeds) for feeds in runs]
    return [[result] if isinstance(result, np.ndarray) else [*result] for result in results]


if __name__ == "__main__":
    sys.exit(main())
