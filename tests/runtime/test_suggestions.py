"""Names of sessions, targets, schemes and systems that are nearly right, and models given where none is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graphcore as gc
from graphcore import DType, Graph, InferenceSession, TensorType
from graphcore.errors import GraphcoreError, GraphError, PromotionError, RunError


def graph() -> Graph:
    g = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    g.output(y=g["x"] * 2)
    return g


NAMES: list[tuple[Callable[[], Any], type[GraphcoreError], str]] = [
    (lambda: graph().to_onnx(target="cudaa"), GraphError, "cuda"),  # type: ignore[arg-type]
    (lambda: graph().to_onnx(target="openvio"), GraphError, "openvino"),  # type: ignore[arg-type]
    (lambda: graph().to_onnx(precision="fats"), GraphError, "fast"),  # type: ignore[arg-type]
    (lambda: graph().to_onnx(optimize="exakt"), GraphError, "exact"),  # type: ignore[arg-type]
    (lambda: InferenceSession(precision="Exact"), GraphError, "exact"),  # type: ignore[arg-type]
    (lambda: InferenceSession(optimize="al"), GraphError, "all"),  # type: ignore[arg-type]
    (lambda: InferenceSession("cudaa"), RunError, "cuda"),
    (lambda: InferenceSession("CPUExecutionProvidr"), RunError, "CPUExecutionProvider"),
    (lambda: gc.quantize(graph(), "int44"), GraphError, "int4"),
    (lambda: gc.quantize(graph(), "q4k"), GraphError, "q4_k"),
    (lambda: Graph("g", promotion="anvill"), PromotionError, "anvil"),
    (lambda: gc.promotion.system("kernelfloat"), PromotionError, "kernel_float"),
]


@pytest.mark.parametrize(("mistake", "error", "close"), NAMES)
def test_name_that_is_nearly_right_is_asked_for(
    mistake: Callable[[], Any], error: type[GraphcoreError], close: str
) -> None:
    with pytest.raises(error, match=rf"\n  help: did you mean {close}.*\? "):
        mistake()


def test_path_given_for_providers_is_told_how_to_be_loaded() -> None:
    with pytest.raises(
        RunError, match=r"'m.onnx' is a model.*\n  help: load the model: gc.InferenceSession\(\).load\(\"m.onnx\""
    ):
        InferenceSession("m.onnx")
    with pytest.raises(RunError, match=r"help: load the model: gc.InferenceSession\(\).load\(model\)"):
        InferenceSession(Path("m.onnx"))  # type: ignore[arg-type]


def test_file_of_any_ending_given_for_providers_is_told_how_to_be_loaded(tmp_path: Path) -> None:
    graph().export(tmp_path / "model.bin")
    with pytest.raises(RunError, match="is a model, but the argument must name providers"):
        InferenceSession(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("result", [graph, lambda: graph().to_onnx(), lambda: graph().to_onnx().SerializeToString()])
def test_model_given_for_providers_is_told_how_to_be_loaded(result: Callable[[], Any]) -> None:
    with pytest.raises(RunError, match=r"help: load the model: gc.InferenceSession\(\).load\(model\)"):
        InferenceSession(result())
