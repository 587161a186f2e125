"""A 110M-parameter encoder: building and saving it beside onnx-ir, and the memory of saving and loading it.

    python -m benchmarks.bench_encoder

Both write weights into a file of external data. onnx-ir infers nothing: its types are given by hand.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.timing import Bounds, child, compare
from graphcore import DType, Graph, Symbol, TensorType, ops

ir: Any = importlib.import_module("onnx_ir") if importlib.util.find_spec("onnx_ir") else None

LAYERS, WIDTH, WIDE, HEADS, WORDS, LENGTH = 12, 768, 3072, 12, 30522, 128
SAVE_BOUND = 1.0
EXPORT_MEMORY_BOUND = 1.25
LOAD_MEMORY_BOUND = 1.1

Array = np.ndarray[Any, Any]


def make_weights() -> dict[str, Array]:
    """Return random weights by name; dense layers are [in, out]."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"words": (WORDS, WIDTH), "places": (LENGTH, WIDTH), "norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {f"{i}.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value", "mixed")}
        shapes |= {f"{i}.up": (WIDTH, WIDE), f"{i}.down": (WIDE, WIDTH)}
        shapes |= {f"{i}.norm{j}": (WIDTH,) for j in (1, 2)}
    shapes |= {f"{name}.bias": (shape[-1],) for name, shape in shapes.items() if name not in ("words", "places")}
    scale = np.float32(0.02)
    results = {}
    for name, shape in shapes.items():
        results[name] = random.standard_normal(shape, np.float32)
        results[name] *= scale
    return results


def build(weights: dict[str, Array]) -> Graph:
    """Build the encoder as a Graph."""
    graph = Graph("encoder", {"ids": TensorType(DType.int64, ["batch", LENGTH])})

    def weight(name: str) -> Symbol:
        return graph.weight(name, weights[name])

    def dense(x: Symbol, name: str) -> Symbol:
        return x @ weight(name) + weight(f"{name}.bias")

    def norm(x: Symbol, name: str) -> Symbol:
        return ops.layer_norm(x, weight(name), weight(f"{name}.bias"), epsilon=1e-12)

    x = norm(ops.gather(weight("words"), graph["ids"]) + weight("places"), "norm")
    for i in range(LAYERS):
        with graph.layer(f"layer{i}"):
            query, key, value = (dense(x, f"{i}.{part}") for part in ("query", "key", "value"))
            mixed = ops.scaled_dot_product_attention(query, key, value, q_num_heads=HEADS, kv_num_heads=HEADS)
            x = norm(x + dense(mixed, f"{i}.mixed"), f"{i}.norm1")
            x = norm(x + dense(ops.gelu(dense(x, f"{i}.up")), f"{i}.down"), f"{i}.norm2")
    graph.output(hidden=x)
    return graph


class Peer:
    """The encoder in onnx-ir, the same nodes."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.initializers: list[Any] = []
        self.nodes: list[Any] = []

    def weight(self, name: str) -> Any:
        tensor = ir.tensor(self.weights[name], name=name)
        result = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers.append(result)
        return result

    def emit(self, op_type: str, inputs: list[Any], last: int = WIDTH, **attributes: Any) -> Any:
        result = ir.Value(
            name=f"{op_type.lower()}_{len(self.nodes)}",
            shape=ir.Shape(["batch", LENGTH, last]),
            type=ir.TensorType(ir.DataType.FLOAT),
        )
        self.nodes.append(ir.node(op_type, inputs, attributes, outputs=[result], name=result.name))
        return result

    def dense(self, x: Any, name: str) -> Any:
        last = self.weights[name].shape[-1]
        return self.emit("Add", [self.emit("MatMul", [x, self.weight(name)], last), self.weight(f"{name}.bias")], last)

    def norm(self, x: Any, name: str) -> Any:
        return self.emit("LayerNormalization", [x, self.weight(name), self.weight(f"{name}.bias")], epsilon=1e-12)

    def build(self) -> Any:
        ids = ir.Value(name="ids", shape=ir.Shape(["batch", LENGTH]), type=ir.TensorType(ir.DataType.INT64))
        words = self.emit("Gather", [self.weight("words"), ids])
        x = self.norm(self.emit("Add", [words, self.weight("places")]), "norm")
        for i in range(LAYERS):
            parts = [self.dense(x, f"{i}.{part}") for part in ("query", "key", "value")]
            mixed = self.emit("Attention", parts, q_num_heads=HEADS, kv_num_heads=HEADS)
            x = self.norm(self.emit("Add", [x, self.dense(mixed, f"{i}.mixed")]), f"{i}.norm1")
            wide = self.emit("Gelu", [self.dense(x, f"{i}.up")], WIDE)
            x = self.norm(self.emit("Add", [x, self.dense(wide, f"{i}.down")]), f"{i}.norm2")
        graph = ir.Graph(
            [ids], [x], nodes=self.nodes, initializers=self.initializers, opset_imports={"": 24}, name="encoder"
        )
        return ir.Model(graph, ir_version=11)


def save_bounds(bounds: Bounds, weights: dict[str, Array], folder: Path) -> None:
    size = sum(array.nbytes for array in weights.values())
    print(f"{size / 4e6:.0f}M parameters, {size / 1e6:.0f} MB")
    if ir is None:
        print("no comparison: onnx-ir is not installed (pip install 'graphcore-engine[bench]')")
        return
    built = compare(lambda: build(weights), lambda: Peer(weights).build())
    bounds.ratio("build", built, SAVE_BOUND)

    def before() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    def ours() -> None:
        build(weights).export(folder / "encoder.onnx", external_data=True)

    def peer() -> None:
        ir.save(Peer(weights).build(), folder / "encoder.onnx", external_data="encoder.onnx.data")

    bounds.ratio("build and save", compare(ours, peer, rounds=9, before=before), SAVE_BOUND)


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(what: str, folder: Path) -> dict[str, float]:
    """Return the growth of memory of a new process, in sizes of the weights, and the seconds."""
    gc.InferenceSession()  # imports do not count
    before = peak()
    weights = make_weights()
    size = sum(array.nbytes for array in weights.values())
    if what == "load":
        before = peak()
    started = time.perf_counter()
    graph = build(weights)
    if what == "export":
        graph.export(folder / "encoder.onnx", external_data=True)
    else:
        gc.InferenceSession().load(graph)(np.zeros((1, LENGTH), np.int64))
    return {"grown": (peak() - before) / size, "seconds": time.perf_counter() - started}


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        folder.mkdir()
        # First, since a new process inherits the peak of its parent.
        for what, item, most in (
            ("export", "memory of build and export, weights counted", EXPORT_MEMORY_BOUND),
            ("load", "memory of load and first result, beside the weights", LOAD_MEMORY_BOUND),
        ):
            got = child("benchmarks.bench_encoder", what, str(folder))
            bounds.figure(item, got["grown"], most, "x", f"{got['seconds']:.2f} s")
        save_bounds(bounds, make_weights(), folder)
    return bounds.exit_code()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
        sys.exit()
    sys.exit(main())
