"""Files for onnxruntime-web: for wasm, whose kernels are the CPU's, and for its build with WebGPU, which has fewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphcore import Graph, TensorType, ops
from graphcore.cli import main
from graphcore.errors import GraphError
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import kernels
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.types.dtypes import DType

D = DType
NEWEST = "web-1.30"


def graph_of(dtype: str = "float32") -> Graph:
    graph = Graph("net", {"x": TensorType(dtype, ["n", 8])})
    graph.output(y=ops.softmax(ops.gelu(graph["x"]) @ np.ones((8, 3), np.float32)))
    return graph


def operators_of(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("release", table_of("wasm").releases, ids=lambda release: release.version)
def test_wasm_kernels_are_those_of_the_same_release(release: Any) -> None:
    runtime = Runtime(release.version, release.opset)
    assert kernels("wasm", runtime) == kernels("cpu", runtime)


def test_names_of_a_release_give_the_same_bytes() -> None:
    graph = graph_of()
    options: list[dict[str, Any]] = [
        {"runtime": NEWEST},
        {"target": "wasm"},
        {"target": "wasm", "runtime": "web-1.30.0"},
    ]
    files = {graph.to_onnx(**each).SerializeToString() for each in options}
    assert len(files) == 1
    assert graph.to_onnx(target="webgpu") == graph.to_onnx(target="webgpu", runtime=NEWEST)


def test_webgpu_file_has_an_opset_with_its_kernels() -> None:
    """From opset 22 on WebGPU has no kernel of Cos."""
    graph = Graph("net", {"x": TensorType("float32", [1, 2, 8, 8])})
    graph.output(y=ops.cos(graph["x"]))
    assert graph.to_onnx(target="webgpu").opset_import[0].version < 22
    device = table_of("webgpu").device
    assert device is not None
    assert D.float32 in device.kernels(Runtime("1.30.0", 21))["Cos"]
    assert D.float32 not in device.kernels(Runtime("1.30.0", 22))["Cos"]


def test_webgpu_keeps_kernels_that_differ_in_nan_only() -> None:
    graph = Graph("net", {"x": TensorType("float32", ["n", 8])})
    graph.output(y=ops.max(ops.sigmoid(graph["x"]), axis=1))
    assert operators_of(graph.to_onnx(target="webgpu")) == ["Sigmoid", "ReduceMax"]
    assert len(operators_of(graph.to_onnx(target="wasm"))) > 2


def test_wasm_keeps_products_of_bytes() -> None:
    """wasm has no instruction whose sums saturate, so that weights stay signed bytes."""
    graph = Graph("net", {"x": TensorType("uint8", ["n", 8])})
    graph.output(y=ops.onnx.MatMulInteger(graph["x"], np.full((8, 3), 127, np.int8)))
    dtypes = [graph.to_onnx(target=target).graph.initializer[0].data_type for target in ("cpu", "wasm", "webgpu")]
    assert dtypes == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT8]


@pytest.mark.parametrize(
    ("options", "message", "help"),
    [
        ({"runtime": "web-1.31"}, "unknown release 'web-1.31' of onnxruntime-web", '"web-1.27.0", "web-1.29.0"'),
        ({"runtime": "web-"}, "unknown release 'web-' of onnxruntime-web", '"web-1.30.0"'),
        ({"runtime": "web-1.27", "target": "webgpu"}, "unknown release 'web-1.27' of onnxruntime-web", '"web-1.30.0"'),
        ({"runtime": "1.30", "target": "wasm"}, "unknown release '1.30' of onnxruntime-web", '"web-1.30.0"'),
        ({"runtime": NEWEST, "target": "cuda"}, "onnxruntime-web has no target 'cuda'", '"wasm" or "webgpu"'),
        ({"target": "wasm", "opset": 28}, "onnxruntime-web 1.30.0 takes opset 26 at most, not 28", "opset=26 or less"),
    ],
)
def test_wrong_release_or_target_is_an_error(options: dict[str, Any], message: str, help: str) -> None:
    with pytest.raises(GraphError) as caught:
        graph_of().to_onnx(**options)
    assert message in str(caught.value)
    assert help in str(caught.value)


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint16", "bfloat16"])
def test_webgpu_refuses_dtypes_that_its_build_lacks(dtype: str) -> None:
    graph = Graph("net", {"x": TensorType(dtype, ["n"])})
    graph.output(y=ops.cast(graph["x"], "float32") + 1)
    with pytest.raises(GraphError, match=f"no kernel of Cast for {dtype} in its build with WebGPU") as caught:
        graph.to_onnx(target="webgpu")
    assert 'target="wasm"' in str(caught.value)
    assert graph.to_onnx(target="wasm").graph.node


@pytest.mark.parametrize(
    ("channels", "kernel", "groups", "is_wrong"),
    [
        (129, 3, 1, True),
        (6, 3, 1, True),
        (6, 1, 2, True),
        (3, 3, 1, False),
        (12, 3, 1, False),
        (6, 1, 1, False),
        (1, 3, 6, False),
    ],
)
def test_webgpu_refuses_a_convolution_that_it_computes_wrong(
    channels: int, kernel: int, groups: int, is_wrong: bool
) -> None:
    """channels: of a group."""
    graph = Graph("net", {"x": TensorType("float32", [1, channels * groups, 8])})
    graph.output(y=ops.onnx.Conv(graph["x"], np.ones((2 * groups, channels, kernel), np.float32), group=groups))
    if not is_wrong:
        assert graph.to_onnx(target="webgpu").graph.node
        return
    with pytest.raises(GraphError, match="computes Conv of this number of channels wrong in its build with WebGPU"):
        graph.to_onnx(target="webgpu")


def test_session_of_web_provider_says_what_to_do() -> None:
    import graphcore as gc

    for name in ("wasm", "webgpu"):
        assert TARGETS[name].is_web
        with pytest.raises(gc.GraphcoreError, match='target="wasm"'):
            gc.InferenceSession(name)


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    """A model whose int64 arithmetic WebGPU has no kernel of."""
    graph = Graph("net", {"ids": TensorType("int64", ["n"]), "x": TensorType("float32", [9, 4])})
    graph.output(y=ops.relu(ops.gather(graph["x"], graph["ids"] + 1)))
    graph.export(tmp_path / "model.onnx", target="onnx")
    return str(tmp_path / "model.onnx")


def test_check_lists_nodes_that_fall_back_to_the_cpu(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", model_file, "--target", "webgpu"]
    assert main([*arguments, "--runtime", NEWEST]) == 0
    assert "falls back to the CPU: Add x1: no kernel for int64\n" in capsys.readouterr().out
    assert main([*arguments, "--strict", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["provider"] == "webgpu"
    assert {"operator": "Add", "reason": "no kernel for int64", "count": 1} in report["fallbacks"]
    assert "Relu" not in {each["operator"] for each in report["fallbacks"]}


def test_check_of_wasm_has_no_fallbacks(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model_file, "--runtime", NEWEST, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["provider"], report["fallbacks"]) == ("wasm", [])


def test_check_of_an_unknown_release_is_an_error(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model_file, "--runtime", "web-2.0"]) == 2
    assert "unknown release 'web-2.0' of onnxruntime-web" in capsys.readouterr().err
