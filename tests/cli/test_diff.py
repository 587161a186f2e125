"""`graphcore diff`: what differs between two files, and between what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.cli.distances import distance
from tests.cli.conftest import Call
from tests.support.trained import Trained

Document = Callable[..., Any]

SPEECH = ("--input", "sr=16000", "--dim", "sequence=576")


def save(name: str, scale: float = 2.0, bias: float = 0.0, dtype: DType = DType.float32) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n", 4])})
    hidden = graph["x"] * scale
    hidden.name = "hidden"
    graph.output(y=ops.relu(hidden) + bias)
    graph.export(name, target="onnx")


def test_diff_is_silent_of_equal_models(call: Call, document: Document) -> None:
    call("doctor")
    save("a.onnx")
    save("b.onnx")
    assert call("diff", "a.onnx", "b.onnx") == (0, "no differences\n", "")
    result = document("diff", "a.onnx", "b.onnx", "--run")
    assert result["same"] is True
    (pair,) = result["run"]["outputs"]
    assert (pair["differing"], pair["absolute"], pair["ulp"], pair["cosine"]) == (0, 0.0, 0, 1.0)


def test_diff_names_the_first_value_that_differs(call: Call, document: Document) -> None:
    call("doctor")
    save("a.onnx")
    save("b.onnx", 3.0)
    status, out, _ = call("diff", "a.onnx", "b.onnx", "--input", "x=1", "--run", "--dim", "n=2")
    assert status == 1
    assert "hidden: 8 of 8 elements, by 1 at most; at [0, 0] 2 and 3" in out
    result = document("diff", "a.onnx", "b.onnx", "--input", "x=1", "--run", status=1)
    assert result["run"]["first"]["old"] == "hidden"
    assert result["run"]["outputs"][0]["relative"] == 0.5
    assert result["changes"]["weights"] or result["changes"]["nodes"]


def blocks(weights: list[np.ndarray[Any, Any]]) -> Graph:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 64])})
    y = graph["x"]
    for weight in weights:
        y = ops.relu(y @ weight).reshape("n", 8, 8).reshape("n", 64)
    graph.output(y=y)
    return graph


@pytest.mark.parametrize("rows", [1, 2])
def test_diff_compares_no_values_that_share_only_a_generated_name(call: Call, document: Document, rows: int) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    graph = blocks(weights)
    graph.export("a.onnx")
    gc.quantize(graph, "int8_dynamic")[0].export("b.onnx")
    shared = {s.name for s in Graph.load("a.onnx").symbols} & {s.name for s in Graph.load("b.onnx").symbols}
    assert "mat_mul_9" in shared  # of different operands
    result = document("diff", "a.onnx", "b.onnx", "--run", "--dim", f"n={rows}", status=1)
    assert result["run"]["first"]["old"] == "y"
    blocks([weights[0], 2 * weights[1]]).export("c.onnx")
    result = document("diff", "a.onnx", "c.onnx", "--run", "--dim", f"n={rows}", status=1)
    second = [node for node in Graph.load("a.onnx").nodes if node.op_type == "MatMul"][1]
    assert result["run"]["first"]["old"] == second.outputs[0].name


def test_diff_tells_by_the_tolerances_when_it_runs(call: Call, document: Document) -> None:
    call("doctor")
    save("a.onnx")
    save("b.onnx", 2.0 + 2**-20)
    document("diff", "a.onnx", "b.onnx", status=1)
    result = document("diff", "a.onnx", "b.onnx", "--run", status=1)
    assert result["run"]["outputs"][0]["ulp"] > 0
    assert document("diff", "a.onnx", "b.onnx", "--run", "--rtol", "1e-5")["run"]["outputs"][0]["beyond"] == 0
    assert document("diff", "a.onnx", "b.onnx", "--run", "--atol", "1")["same"] is True


@pytest.mark.full
def test_diff_runs_trained_models_in_other_dtypes(call: Call, document: Document, magika: Trained) -> None:
    call("astype", magika.file(), "bf16.onnx", "bfloat16")
    call("quantize", magika.file(), "int8.onnx", "--scheme", "int8")
    for other in ("bf16.onnx", "int8.onnx"):
        result = document("diff", magika.file(), other, "--run", status=1)
        (pair,) = result["run"]["outputs"]
        assert pair["cosine"] > 0.9
        assert result["run"]["first"] is not None
        assert document("diff", magika.file(), other, "--run", "--atol", "0.5")["same"]


def test_diff_feeds_inputs_of_another_dtype_and_name(call: Call, document: Document) -> None:
    call("doctor")
    save("a.onnx")
    save("b.onnx", dtype=DType.float16)
    result = document("diff", "a.onnx", "b.onnx", "--run", "--input", "x=0.5")
    assert result["run"]["outputs"][0]["ulp"] is None
    call("rename", "a.onnx", "c.onnx", "x=image", "y=z")
    result = document("diff", "a.onnx", "c.onnx", "--run")
    assert result["run"]["outputs"][0]["new"] == "z"


def test_diff_says_which_outputs_one_model_has_alone(call: Call, document: Document, silero: Trained) -> None:
    name = next(iter(silero.graph().output_types))
    call("extract", silero.file(), "part.onnx", "--outputs", name)
    result = document("diff", silero.file(), "part.onnx", "--run", *SPEECH, status=1)
    assert name not in result["run"]["alone"]
    assert result["run"]["alone"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["a.onnx", "gone.onnx"], "gone.onnx is not a file"),
        (["a.onnx", "b.onnx", "--run", "--input", "z=1"], "no input 'z'"),
        (["a.onnx", "b.onnx", "--run", "--dim", "m=1"], "called 'm'"),
        (["a.onnx", "b.onnx", "--run", "--input", 'x=["a"]'], "is not a valid array"),
    ],
)
def test_diff_ends_with_2_when_it_cannot_compare(call: Call, argv: list[str], words: str) -> None:
    save("a.onnx")
    save("b.onnx")
    status, out, err = call("diff", *argv)
    assert (status, out) == (2, "")
    assert words in err


# Distances


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_ulp_counts_the_floats_in_between(dtype: Any) -> None:
    kind = f"u{np.dtype(dtype).itemsize}"
    one = np.ones(1, dtype)
    after = (one.view(kind) + 3).view(dtype)
    assert distance(one, after).ulp == 3
    assert distance(np.zeros(1, dtype), np.full(1, -0.0, dtype)).ulp == 0
    least = np.ones(1, kind).view(dtype)
    assert distance(-least, least).ulp == 2


def test_distance_of_special_numbers() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert distance(a, a.copy()).differing == 0
    other = distance(a, np.array([1, np.inf, np.inf, 0.0], np.float32))
    assert (other.differing, other.absolute, other.first) == (2, np.inf, (0,))
    assert distance(a, a, 1e-3, 1e-3).is_far is False
    assert distance(np.array([np.nan]), np.array([0.0]), atol=1e9).is_far


def test_distance_tells_wide_integers_apart() -> None:
    a = np.array([2**62], np.int64)
    assert distance(a, a + 1).differing == 1
    assert distance(a, a + 1).absolute == 1.0


def test_distance_of_what_has_no_numbers() -> None:
    assert distance(np.array(["a", "b"], object), np.array(["a", "c"], object)).differing == 1
    assert "shapes differ" in distance(np.zeros(2), np.zeros(3)).reason
    assert distance(np.zeros(1), None).is_far
    assert not distance(None, None).is_far
    assert distance(np.zeros((0, 3)), np.zeros((0, 3))).is_far is False
    assert distance(np.array([True, False]), np.array([True, True])).differing == 1


def test_distance_of_sequences_is_the_largest_of_their_elements() -> None:
    a = [np.zeros(2, np.float32), np.ones(3, np.float32)]
    assert not distance(a, [each.copy() for each in a]).is_far
    result = distance(a, [a[0], np.array([1, 3, 1.5], np.float32)])
    assert (result.size, result.differing, result.absolute, result.first) == (5, 2, 2.0, (1, 1))
    assert "lengths differ" in distance(a, a[:1]).reason
    assert "shapes differ" in distance(a, [a[0], a[0]]).reason


def test_cosine_of_large_numbers_is_finite() -> None:
    a = np.array([3e38, 3e38], np.float32)
    assert distance(a, a / 2).cosine == pytest.approx(1.0)
    assert distance(np.zeros(2), np.zeros(2)).cosine == 1.0
    assert distance(np.zeros(2), np.ones(2)).cosine == 0.0 or distance(np.zeros(2), np.ones(2)).cosine is None
