"""Third-party files with float16, or with floats cast to integers: calls beside a bare session of the same file.

    python -m benchmarks.bench_third_party

Loaded as by default; outputs are compared bit for bit. Processor time of one thread.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from benchmarks.timing import Bounds, compare

Array = np.ndarray[Any, Any]

LIMIT, LIMIT_SHORT, SHORT = 1.03, 1.1, 1e-3
"""The most that is asked for, that of calls below so many seconds, and those seconds."""

ROUNDS, TURN = 21, 0.02
"""Rounds, and the seconds of a turn."""


def products() -> onnx.ModelProto:
    """Build four layers of products in float16."""
    random = np.random.default_rng(0)
    weights, nodes, value = [], [], "x"
    for number in range(4):
        weight = (random.standard_normal((512, 512)) / 23).astype(np.float16)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Relu", [f"m{number}"], [f"r{number}"]))
        value = f"r{number}"
    return build_model(nodes, (TensorProto.FLOAT16, ["n", 512]), (value, TensorProto.FLOAT16, ["n", 512]), weights)


def convolutions() -> onnx.ModelProto:
    """Build four convolutions in float16."""
    random = np.random.default_rng(0)
    weights, nodes, value = [], [], "x"
    for number in range(4):
        kernel = (random.standard_normal((32, 32, 3, 3)) / 17).astype(np.float16)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        value = f"r{number}"
    dims = ["n", 32, 64, 64]
    return build_model(nodes, (TensorProto.FLOAT16, dims), (value, TensorProto.FLOAT16, dims), weights)


def vectors() -> onnx.ModelProto:
    """Build a support vector machine whose result is cast to int64."""
    random = np.random.default_rng(0)
    count, features = 100, 8
    machine = helper.make_node(
        "SVMRegressor", ["x"], ["far"], domain="ai.onnx.ml", kernel_type="RBF", kernel_params=[0.1, 0.0, 3.0],
        n_supports=count, support_vectors=random.standard_normal(count * features).tolist(),
        coefficients=(30 * random.standard_normal(count)).tolist(), rho=[1.5],
    )  # fmt: skip
    return build_model(
        [machine, cast("far", "y")], (TensorProto.FLOAT, ["n", features]), ("y", TensorProto.INT64, ["n", 1])
    )


def trees() -> onnx.ModelProto:
    """Build twenty trees of one split each whose sum is cast to int64."""
    random = np.random.default_rng(0)
    count, features = 20, 8
    forest = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["far"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=np.repeat(range(count), 3).tolist(), nodes_nodeids=[0, 1, 2] * count,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * count, nodes_truenodeids=[1, 0, 0] * count,
        nodes_falsenodeids=[2, 0, 0] * count, nodes_values=random.standard_normal(3 * count).tolist(),
        nodes_featureids=random.integers(0, features, 3 * count).tolist(),
        target_treeids=np.repeat(range(count), 2).tolist(), target_nodeids=[1, 2] * count,
        target_ids=[0] * 2 * count, target_weights=(9 * random.standard_normal(2 * count)).tolist(),
    )  # fmt: skip
    return build_model(
        [forest, cast("far", "y")], (TensorProto.FLOAT, ["n", features]), ("y", TensorProto.INT64, ["n", 1])
    )


def cast(source: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [result], to=TensorProto.INT64)


def build_model(
    nodes: Sequence[onnx.NodeProto],
    x: tuple[int, list[Any]],
    y: tuple[str, int, list[Any]],
    weights: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "third_party", [helper.make_tensor_value_info("x", *x)], [helper.make_tensor_value_info(*y)], weights
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


CASES: tuple[tuple[str, Callable[[], onnx.ModelProto], tuple[int, ...], type], ...] = (
    ("float16 products", products, (16, 512), np.float16),
    ("float16 convolutions", convolutions, (1, 32, 64, 64), np.float16),
    ("a support vector machine cast to int64", vectors, (64, 8), np.float32),
    ("trees cast to int64", trees, (64, 8), np.float32),
)
"""The name, the model, the dims of its input and its dtype."""


def often(call: Callable[[], object], count: int) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(count):
            call()

    return calls


def main() -> int:
    bounds = Bounds()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    with tempfile.TemporaryDirectory() as folder:
        for what, build, dims, dtype in CASES:
            path = Path(folder) / "model.onnx"
            onnx.save(build(), path)
            x: Array = np.random.default_rng(1).standard_normal(dims).astype(dtype)
            model = gc.InferenceSession(intra_op_num_threads=1).load(path)
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            ours, bare = partial(model, x), partial(session.run, None, {"x": x})
            assert ours()[0].tobytes() == bare()[0].tobytes(), what
            each = compare(ours, bare, 5).peer
            calls = max(1, round(TURN / max(each, 1e-6)))
            ratio = compare(often(ours, calls), often(bare, calls), ROUNDS)
            bounds.ratio(f"{what}, beside run", ratio, LIMIT_SHORT if each < SHORT else LIMIT, calls, "us")
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
