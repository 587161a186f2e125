"""Files for older releases of onnxruntime, run there: models, examples, and every op in every dtype.

    python -m tests.support.old_files --runtime 1.20 --python /path/to/python [--python ...] [--only models]

`--python` is that of an environment with the older onnxruntime and NumPy. Prints what differs, and exits with 1 if
something does.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Model, Symbol, TensorType, ops
from graphcore.checkpoints import load_tensors
from graphcore.errors import GraphcoreError, GraphError, LossyCastWarning
from graphcore.ir.transform.walk import operators
from graphcore.models import gpt2, minilm, resnet
from tests.ops.test_sweep import assert_near, assert_same
from tests.support.every.case import ALL
from tests.support.every_op import CASES

Array = np.ndarray[Any, Any]
D = DType

EXAMPLES = Path(__file__).parents[2] / "examples"

_STORED = {
    D.bfloat16: D.float32,
    D.float8_e4m3fn: D.float32,
    D.float8_e5m2: D.float32,
    D.int4: D.int8,
    D.uint4: D.uint8,
}
"""The values files are fed for dtypes that NumPy has not."""


@dataclass(frozen=True, slots=True)
class File:
    """A graph to be written, what it is fed, and what looks at its results: it raises where they are wrong."""

    name: str
    graph: Graph
    feeds: Mapping[str, Array]
    check: Callable[[Mapping[str, Array]], None]


# Models


def models() -> Iterator[File]:
    """Real models; those without weights available have random ones."""
    random = np.random.default_rng(0)
    tokens = random.integers(1000, 20_000, (2, 12))
    mask = np.ones_like(tokens)
    mask[1, 7:] = 0
    weights = load_tensors(os.path.join(minilm.folder(), "model.safetensors"))
    yield compared("minilm", minilm.build(weights), {"input_ids": tokens, "attention_mask": mask})
    image = random.standard_normal((1, 3, 96, 96)).astype(np.float32)
    yield compared("resnet50", resnet.build(resnet.Config()), {"image": image})
    yield compared("gpt2", gpt2.build(gpt2.config()), {"tokens": tokens % 1024, "length": np.array([12, 7])})
    yield compared("lstm", lstm(), {"x": random.standard_normal((9, 2, 8)).astype(np.float32)})


def lstm() -> Graph:
    """Two directions over a sequence, and a dense layer after it."""
    random = np.random.default_rng(1)
    graph = Graph("lstm", {"x": TensorType(D.float32, ["time", "batch", 8])})
    weights = [random.standard_normal(shape).astype(np.float32) * 0.3 for shape in ((2, 64, 8), (2, 64, 16), (2, 128))]
    w, r, b = (graph.weight(name, array) for name, array in zip("wrb", weights, strict=True))
    y, last, cell = ops.onnx.LSTM(graph["x"], w, r, b, hidden_size=16, direction="bidirectional", outputs=3)
    dense = graph.weight("dense", random.standard_normal((32, 4)).astype(np.float32))
    rows = ops.reshape(ops.transpose(last, [1, 0, 2]), [-1, 32])
    graph.output(every=y, cell=cell, probability=ops.softmax(rows @ dense, axis=-1))
    return graph


def compared(name: str, graph: Graph, feeds: Mapping[str, Array]) -> File:
    """A file whose results have to be those of a session here: integers equal, floats near."""
    model = gc.InferenceSession().load(graph)
    inputs = [s.name for s in graph.inputs if s.name not in graph.buffers]
    feeds = dict(zip(inputs, feeds.values(), strict=True))
    want = dict(zip(model.outputs, model(**feeds), strict=True))
    return File(name, graph, {**feeds, **results_of(graph, feeds)}, lambda got: assert_close(got, want))


def results_of(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the initial values of buffers, with named dims from the feeds."""
    results = {}
    types = {s.name: s.type for s in graph.inputs if s.name in feeds}
    sizes = {
        str(dim): size for name, t in types.items() for dim, size in zip(t.shape, np.shape(feeds[name]), strict=True)
    }
    for name, value in graph.buffers.items():
        buffer = value.buffer
        shape = [int(d) if d.is_static else sizes.get(str(d), 0) for d in buffer.type.shape]
        first = np.zeros(shape, buffer.type.dtype.numpy)
        results[name] = first if buffer.initial is None else np.broadcast_to(buffer.initial, shape)
    return results


def assert_close(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """Fail unless integers are equal, and floats as near as sums in another order are."""
    for name, wanted in want.items():
        result = got[name]
        assert result.shape == wanted.shape, f"{name}: shape {result.shape}, not {wanted.shape}"
        if wanted.dtype.kind in "biuOU":
            assert (result == wanted).all(), f"{name}: other values"
        else:
            wide, expected = result.astype(np.float64), wanted.astype(np.float64)
            least = 1e-2 if wanted.dtype.itemsize < 4 else 2e-5
            np.testing.assert_allclose(wide, expected, rtol=1e-4, atol=least * max(1.0, np.abs(expected).max()))


# Examples


def examples() -> Iterator[File]:
    """The first call of each model that an example loads."""
    for path in sorted(EXAMPLES.glob("*.py")):
        for number, (graph, args, named, results) in enumerate(calls(path)):
            if {domain for _, domain in operators(graph)} - {"", "graphcore", "graphcore.functions", "com.microsoft"}:
                continue  # onnxruntime has no such operators by itself
            names = [s.name for s in graph.inputs if s.name not in graph.buffers]
            feeds = {**dict(zip(names, args, strict=False)), **named}
            want = dict(zip(graph.output_types, results, strict=False))
            check = functools.partial(assert_close, want=want)
            yield File(f"example_{path.stem}_{number}", graph, {**feeds, **results_of(graph, feeds)}, check)


def calls(path: Path) -> list[tuple[Graph, tuple[Any, ...], dict[str, Any], list[Array]]]:
    """The graphs that an example loads, each with the first call of its model."""
    graphs: dict[int, Graph] = {}
    seen: list[tuple[Graph, tuple[Any, ...], dict[str, Any], list[Array]]] = []
    items: list[Model] = []
    load, call = gc.InferenceSession.load, Model.__call__

    def loading(self: Any, model: Any, *args: Any, **named: Any) -> Model:
        result = load(self, model, *args, **named)
        items.append(result)
        if isinstance(model, Graph) and not named.get("weights"):
            graphs[id(result)] = model
        return result

    def calling(self: Model, *args: Any, **named: Any) -> Any:
        results = call(self, *args, **named)
        graph = graphs.pop(id(self), None)
        if graph is not None:
            seen.append((graph, args, named, list(results)))
        return results

    patched = mock.patch.object(gc.InferenceSession, "load", loading), mock.patch.object(Model, "__call__", calling)
    quiet = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), patched[0], patched[1], quiet:
        runpy.run_path(str(path), run_name="__main__")
    return seen


# Every op in every dtype


def every_op(dtypes: Iterable[DType] = ALL) -> Iterator[File]:
    """Every op, held to docs/numbers.md."""
    for name, case in CASES.items():
        for dtype in dtypes:
            if dtype not in case.refused:
                yield one_op(name, dtype)


def one_op(name: str, dtype: DType) -> File:
    """An op of a dtype; what NumPy has no dtype for goes in and comes out in one that holds it."""
    case = CASES[name]
    arrays = case.arrays(dtype)
    own = [operand.dtype or dtype for operand in case.operands]
    fed = [_STORED.get(d, d.storage) for d in own]
    types = {
        f"x{i}": TensorType(d, operand.shape) for i, (d, operand) in enumerate(zip(fed, case.operands, strict=True))
    }
    graph = Graph(name, types)
    with graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        results = [
            graph[f"x{i}"].cast(d) if d is not f else graph[f"x{i}"]
            for i, (d, f) in enumerate(zip(own, fed, strict=True))
        ]
        output = case.results(results)
        graph.output(**{f"y{i}": stored(s) for i, s in enumerate(output)})
    feeds = {f"x{i}": np.asarray(a).astype(f.numpy) for i, (a, f) in enumerate(zip(arrays, fed, strict=True))}

    def check(got: Mapping[str, Array]) -> None:
        for i, (symbol, want) in enumerate(zip(output, case.wanted(dtype, arrays), strict=True)):
            result = got[f"y{i}"].astype(want.dtype)
            if case.near and symbol.dtype.is_float:
                assert_near(name, result, want, symbol.dtype, 4 if symbol.dtype is D.float32 else 1)
            else:
                assert_same(name, result, want, *arrays)

    return File(f"{name}-{dtype}", graph, feeds, check)


def stored(symbol: Symbol) -> Symbol:
    """A result in a dtype that NumPy has."""
    return symbol.cast(_STORED[symbol.dtype]) if symbol.dtype in _STORED else symbol


# Writing them, and running them elsewhere


SETS: dict[str, Callable[[], Iterator[File]]] = {"models": models, "examples": examples, "ops": every_op}


def write(files: Iterable[File], folder: Path, **requested: Any) -> tuple[list[File], list[str]]:
    """Write files and what they are fed. Returns those that were written, and what the others were refused for."""
    written, refused = [], []
    for file in files:
        try:
            model = with_plain_ends(file.graph.to_onnx(**requested))
        except GraphError as error:
            refused.append(f"{file.name}: {error.summary}")
            continue
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, folder / f"{file.name}.onnx")
        feeds = {name: np.asarray(array) for name, array in file.feeds.items()}
        plain = {
            **{name: a for name, a in feeds.items() if D.of(a.dtype) not in _STORED},
            **{f"{n}_plain": a.astype(_STORED[d].numpy) for n, a in feeds.items() if (d := D.of(a.dtype)) in _STORED},
        }
        np.savez(folder / f"{file.name}.feeds.npz", **plain)  # type: ignore[arg-type]
        written.append(file)
    return written, refused


def with_plain_ends(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs and outputs in dtypes that NumPy has."""
    elements = {own.onnx: fed.onnx for own, fed in _STORED.items()}
    nodes = list(model.graph.node)
    for values, is_input in ((model.graph.input, True), (model.graph.output, False)):
        for value in values:
            own = value.type.tensor_type.elem_type
            if own not in elements:
                continue
            inner, outer = value.name, f"{value.name}_plain"
            ends, to = ([outer], [inner]) if is_input else ([inner], [outer]), own if is_input else elements[own]
            cast = onnx.helper.make_node("Cast", *ends, to=to)
            nodes.insert(0 if is_input else len(nodes), cast)
            value.name, value.type.tensor_type.elem_type = outer, elements[own]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def run(folder: Path, python: str) -> None:
    """Run all files of a folder in another environment, restarting after each that ends its process."""
    script = Path(__file__).with_name("run_files.py")
    for kind in ("results.npz", "failed.txt"):
        for old in folder.glob(f"*.{kind}"):
            old.unlink()
    while True:
        done = subprocess.run([python, str(script), str(folder)], capture_output=True, text=True, check=False)
        if not done.returncode:
            return
        if done.returncode > 0:
            raise RuntimeError(done.stderr)


def failures(files: Iterable[File], folder: Path) -> list[str]:
    """Return the files that ran wrong or not at all."""
    items = []
    for file in files:
        failed = folder / f"{file.name}.failed.txt"
        if failed.exists():
            items.append(f"{file.name}: {failed.read_text()[:300]}")
            continue
        with np.load(folder / f"{file.name}.results.npz", allow_pickle=True) as results:
            try:
                file.check({name.removesuffix("_plain"): array for name, array in results.items()})
            except (AssertionError, pytest.fail.Exception, GraphcoreError) as error:
                items.append(f"{file.name}: {' '.join(str(error).split())[:300]}")
    return items


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.old_files", description=__doc__)
    parser.add_argument("--runtime", help="the release that files are written for, such as 1.20")
    parser.add_argument("--opset", type=int, help="the opset that they are written at")
    parser.add_argument("--python", action="append", required=True, help="of an environment that runs them")
    parser.add_argument("--only", choices=SETS, action="append", help="a part of them")
    parser.add_argument("--folder", type=Path, help="where files and results are kept")
    arguments = parser.parse_args()
    results = {key: value for key in ("runtime", "opset") if (value := getattr(arguments, key)) is not None}
    wrong = 0
    with tempfile.TemporaryDirectory() as aside:
        for name in arguments.only or SETS:
            folder = (arguments.folder or Path(aside)) / name
            folder.mkdir(parents=True, exist_ok=True)
            files, refused = write(SETS[name](), folder, **results)
            print(f"{name}: {len(files)} files, {len(refused)} refused", *refused, sep="\n  ")
            for python in arguments.python:
                run(folder, python)
                result = failures(files, folder)
                wrong += len(result)
                print(f"{name} with {python}: {len(files) - len(result)} right, {len(result)} not", *result, sep="\n  ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
