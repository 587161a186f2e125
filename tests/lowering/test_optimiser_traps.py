"""Traps of onnxruntime's optimisers, which sessions leave out and files for a plain onnxruntime avoid."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.runtime.lowering.pipeline import WORKAROUNDS
from graphcore.runtime.lowering.workarounds.arithmetic import is_infinite_factor, is_rounded
from graphcore.runtime.ort.optimisers import RISKY_PATTERNS
from tools.kernel_probe.probes.probe import Probe, bare, written
from tools.kernel_probe.probing import traps as probed

pytestmark = pytest.mark.releases

NEVER_WRITTEN = {
    "optimiser MatMulScaleFusion": "products of float64 have a Reshape between",
    "optimiser MatmulTransposeFusion": "products of float64 are an Einsum where Transposes would be fused",
}
"""By the trap without a workaround why no file of a graph that was built here meets it."""

PROBES = [probe for name, trap in probed().items() if name.startswith("optimiser ") for probe in trap.probes]


def test_every_trap_of_an_optimiser_has_a_workaround_or_is_never_written() -> None:
    traps = {f"optimiser {name}" for sign in RISKY_PATTERNS.values() for name in sign.names}
    guarded = {workaround.name for workaround in WORKAROUNDS} & traps
    assert guarded | NEVER_WRITTEN.keys() == traps
    assert not guarded & NEVER_WRITTEN.keys()


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.names[0])
@pytest.mark.parametrize("is_known", [False, True], ids=["named", "known"])
def test_file_is_right_in_a_plain_session(probe: Probe, is_known: bool) -> None:
    if probe.names == ("optimiser NoopElimination",) and not is_known:
        pytest.skip("an axis of one name and none, which has no common length")
    if probe.dtype.bits < 8:
        pytest.skip("a plain session takes no arrays of it: see below")
    assert not dataclasses.replace(probe, in_session=False, is_known=is_known).finds()


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.names[0])
def test_file_that_is_loaded_optimised_and_written_again_is_right(probe: Probe) -> None:
    if probe.dtype.bits < 8:
        pytest.skip("a plain session takes no arrays of it: see below")
    session = bare(Graph.load(written(probe.graph())).optimize())
    fed = dict(zip([each.name for each in session.get_inputs()], probe.operands(), strict=True))
    assert probe.is_right([np.asarray(result) for result in session.run(None, fed)])


# Products by infinity, beside a matrix product

A = np.array([[1.0, -2.0, 0.5], [3.0, 5.0, -1.0], [0.0, 2.0, -4.0]])
B = np.array([[2.0, -1.0, 0.0], [1.0, 4.0, -2.0], [-3.0, 0.5, 1.0]])
SCALED: list[Callable[[Any, Any, float], Any]] = [
    lambda x, y, c: (x * c) @ y,
    lambda x, y, c: (c * x) @ y,
    lambda x, y, c: x @ (y * c),
    lambda x, y, c: (x @ y) * c,
    lambda x, y, c: (x / (1 / c)) @ y,
    lambda x, y, c: x @ (y / (1 / c)),
    lambda x, y, c: (x @ y) / (1 / c),
]


@pytest.mark.parametrize("scaled", SCALED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 0.1, 3.0])
@pytest.mark.parametrize("shape", [(3, 3), (1, 3, 3), (2, 3, 3)], ids=str)
def test_scale_is_multiplied_before_the_sum_in_sessions_and_in_files(
    scaled: Callable[[Any, Any, Any], Any], dtype: Any, scale: float, shape: tuple[int, ...], tmp_path: Path
) -> None:
    x, y = (np.broadcast_to(m, shape).astype(dtype) for m in (A, B))
    with np.errstate(all="ignore"):
        want = scaled(x, y, dtype(scale))
        graph = Graph("scaled", {name: TensorType(dtype, shape) for name in "xy"})
        graph.output(scaled(graph["x"], graph["y"], dtype(scale)))
    tolerance = {"rtol": 1e-6 if dtype is np.float32 else 1e-15, "atol": 4 * np.finfo(dtype).eps}
    np.testing.assert_allclose(gc.InferenceSession().load(graph)(x, y)[0], want, **tolerance)
    graph.export(tmp_path / "scaled.onnx")
    bare = onnxruntime.InferenceSession(tmp_path / "scaled.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(bare.run(None, {"x": x, "y": y})[0], want, **tolerance)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE])
@pytest.mark.parametrize(("operator_", "constant"), [("Mul", -np.inf), ("Mul", np.nan), ("Div", -0.0)])
@pytest.mark.parametrize("in_body", [False, True], ids=["graph", "body"])
def test_scale_is_multiplied_before_the_sum_in_third_party_models(
    kind: int, operator_: str, constant: float, in_body: bool
) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    value = numpy_helper.from_array(np.array(constant, dtype), "c")
    nodes = [helper.make_node(operator_, ["x", "c"], ["a"]), helper.make_node("MatMul", ["a", "x"], ["b"])]
    x, b = (helper.make_tensor_value_info(name, kind, [3, 3]) for name in "xb")
    if in_body:
        going = numpy_helper.from_array(np.array(True), "going")
        then = helper.make_graph(nodes, "then", [], [b], [value])
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "other", [], [b])
        nodes, value = [helper.make_node("If", ["going"], ["b"], then_branch=then, else_branch=other)], going
    graph = helper.make_graph(nodes, "others", [x], [b], [value])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    fed = A.astype(dtype)
    with np.errstate(all="ignore"):
        want = (fed * dtype.type(constant) if operator_ == "Mul" else fed / dtype.type(constant)) @ fed
    session = gc.InferenceSession()
    for source in (content, Graph.load(content)):
        np.testing.assert_array_equal(session.load(source)(fed)[0], want)


def test_numbers_that_end_no_sum_are_left_alone() -> None:
    assert not is_infinite_factor(np.array(0.0), "Mul")
    assert not is_infinite_factor(np.array(2.0), "Div")
    assert not is_infinite_factor(np.array(0), "Div")
    assert not is_infinite_factor(np.full(2, np.inf), "Mul")
    for dtype in (np.float32, np.float64, gc.DType.bfloat16.numpy):
        assert is_infinite_factor(np.array([np.inf], dtype), "Mul")
        assert is_infinite_factor(np.array(-0.0, dtype), "Div")


# Moves of what is dequantised

QUANTISED = ["int8", "uint8", "int16", "uint16", "int32"]
MOVES: dict[str, Callable[[Any], Any]] = {
    "transpose": gc.ops.transpose, "reshape": lambda x: gc.ops.reshape(x, [3, 2]), "slice": lambda x: x[:, 1:],
    "unsqueeze": lambda x: gc.ops.unsqueeze(x, 1), "squeeze": lambda x: gc.ops.squeeze(gc.ops.unsqueeze(x, 0), 0),
    "two": lambda x: gc.ops.unsqueeze(gc.ops.transpose(x), 0), "product": lambda x: gc.ops.transpose(x) @ x,
}  # fmt: skip


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("scale", [0.125, [0.125, 0.5, 1.0]], ids=["one scale", "scales"])
@pytest.mark.parametrize("has_zero", [False, True], ids=["without zero point", "with zero point"])
@pytest.mark.parametrize("is_constant", [False, True], ids=["fed", "constant"])
def test_what_is_dequantised_is_moved_in_sessions_and_in_files(
    kind: str, move: str, scale: Any, has_zero: bool, is_constant: bool
) -> None:
    x = np.array([[0, 1, 4], [8, 16, 3]], kind)
    scales = np.array(scale, np.float32)
    zero = np.full(scales.shape, 0 if kind == "int32" else 3).astype(kind)
    graph = Graph("moved", {"x": TensorType(kind, [2, 3]), "one": TensorType("float32", [])})
    value = graph.constant(x) if is_constant else graph["x"]
    real = gc.ops.onnx.DequantizeLinear(value, scales, *([zero] if has_zero else []))
    graph.output(gc.ops.exp(MOVES[move](real) * 0.01) * graph["one"])
    wide = (x.astype(np.float32) - (zero.astype(np.float32) if has_zero else 0)) * scales
    moved = {
        "transpose": wide.T, "reshape": wide.reshape(3, 2), "slice": wide[:, 1:], "unsqueeze": wide[:, None],
        "squeeze": wide, "two": wide.T[None], "product": wide.T @ wide,
    }[move]  # fmt: skip
    feeds = {"x": x, "one": np.array(1, np.float32)}
    (got,) = gc.InferenceSession().load(graph)(**feeds)
    np.testing.assert_allclose(got, np.exp(moved * np.float32(0.01)), rtol=1e-6)
    for runtime in (None, onnxruntime.__version__):
        content = graph.to_onnx(runtime=runtime).SerializeToString()
        bare = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(bare.run(None, feeds)[0], got, rtol=1e-6)
        for source in (content, Graph.load(content)):
            np.testing.assert_allclose(gc.InferenceSession().load(source)(**feeds)[0], got, rtol=1e-6)


@pytest.mark.parametrize("operator_", ["MatMul", "Gemm", "Gemm of turned weights"])
@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize("has_zero", [False, True], ids=["without zero points", "with zero points"])
@pytest.mark.parametrize("is_constant", [False, True], ids=["fed", "constant"])
@pytest.mark.parametrize("axes", [*itertools.product((None, 0, 1), repeat=2)], ids=str)
def test_product_has_the_scales_of_its_factors_along_every_axis(
    operator_: str, kinds: tuple[str, str], has_zero: bool, is_constant: bool, axes: tuple[int | None, int | None]
) -> None:
    rng = np.random.default_rng(0)
    is_turned = operator_.endswith("weights")
    shapes = ((2, 3), (4, 3) if is_turned else (3, 4))
    factors = [rng.integers(0, 9, shape).astype(kind) for shape, kind in zip(shapes, kinds, strict=True)]
    graph = Graph("scaled", {f"x{i}": TensorType(x.dtype, x.shape) for i, x in enumerate(factors)})
    result, wide = [], []
    for i, (x, axis) in enumerate(zip(factors, axes, strict=True)):
        scale = np.float32(0.5) if axis is None else (np.arange(x.shape[axis], dtype=np.float32) + 1) / 4
        zero = [np.full(np.shape(scale), 2, x.dtype)] if has_zero else []
        value = graph.constant(x) if is_constant and i else graph[f"x{i}"]
        result.append(gc.ops.onnx.DequantizeLinear(value, scale, *zero, axis=1 if axis is None else axis))
        along = scale if axis is None else scale.reshape([-1 if a == axis else 1 for a in range(2)])
        wide.append((x.astype(np.float32) - (2 if has_zero else 0)) * along)
    graph.output(*graph.op(operator_.partition(" ")[0], result, {"transB": 1} if is_turned else None))
    want = wide[0] @ (wide[1].T if is_turned else wide[1])
    feeds = {f"x{i}": x for i, x in enumerate(factors)}
    np.testing.assert_allclose(gc.InferenceSession().load(graph)(**feeds)[0], want, rtol=1e-5)
    for runtime in (None, onnxruntime.__version__):
        content = graph.to_onnx(runtime=runtime).SerializeToString()
        bare = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        fed = {i.name: feeds[i.name] for i in bare.get_inputs()}
        np.testing.assert_allclose(bare.run(None, fed)[0], want, rtol=1e-5)
        for source in (content, Graph.load(content)):
            got = gc.InferenceSession().load(source)(**feeds)[0]
            np.testing.assert_allclose(got, want, rtol=1e-5)


# Shapes of narrow dtypes

NARROW = ["int4", "uint4", "int2", "uint2", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("part", [{}, {"start": 1}, {"start": -1}, {"start": -9}, {"end": -1}, {"start": 1, "end": 2}])
def test_shape_of_narrow_numbers_is_told_in_sessions_and_in_files(
    dtype: str, part: dict[str, int], tmp_path: Path
) -> None:
    graph = Graph("shape", {"x": TensorType(dtype, ["a", "b", "c"])})
    wide = graph["x"].cast(gc.DType.int8 if "int" in dtype else gc.DType.float32)
    (shape,) = graph.op("Shape", [wide], part)
    graph.output(shape + shape)
    x = np.zeros((2, 3, 4), gc.DType.of(dtype).numpy)
    want = 2 * np.array((2, 3, 4)[slice(part.get("start"), part.get("end"))])
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(x)[0], want)
    graph.export(tmp_path / "shape.onnx")
    content = (tmp_path / "shape.onnx").read_bytes()
    onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for source in (content, Graph.load(content)):
        np.testing.assert_array_equal(gc.InferenceSession().load(source)(x)[0], want)


@pytest.mark.parametrize("dtype", NARROW[:4])
def test_shape_of_narrow_numbers_is_told_in_third_party_models(dtype: str) -> None:
    number = getattr(onnx.TensorProto, dtype.upper())
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=onnx.TensorProto.FLOAT), helper.make_node("Shape", ["c"], ["s"])]
    nodes += [helper.make_node("Add", ["s", "s"], ["y"])]
    x = helper.make_tensor_value_info("x", number, ["n", 3])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [2])
    graph = helper.make_graph(nodes, "others", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=10)
    session = gc.InferenceSession()
    for source in (model.SerializeToString(), Graph.load(model.SerializeToString())):
        result = session.load(source)(np.zeros((2, 3), gc.DType.of(dtype).numpy))
        assert result[0].tolist() == [4, 6]


# Constants of float64 beside 0 and 1

SMALL, FACTOR = 1e-300, 1 + 2.0**-40
X = np.array([0.0, 1.0, -3.0, 5e-301])
SUMS: list[tuple[Callable[[Any, Any], Any], float]] = [
    (operator.add, SMALL),
    (operator.sub, SMALL),
    (operator.sub, -1e-46),
]
PRODUCTS: list[tuple[Callable[[Any, Any], Any], float]] = [
    (operator.mul, FACTOR), (operator.truediv, FACTOR), (operator.mul, 1 - 2.0**-50)
]  # fmt: skip
CASES = [*SUMS, *PRODUCTS]


def graph_of(function: Callable[[Any, Any], Any], constant: Any, *, swapped: bool = False) -> Graph:
    graph = Graph("rounded", {"x": TensorType("float64", ["n"])})
    x: Symbol = -graph["x"]
    graph.output(-(function(constant, x) if swapped else function(x, constant)))
    return graph


@pytest.mark.parametrize(("function", "constant"), CASES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_constant_counts_in_sessions_and_in_files(
    function: Callable[[Any, Any], Any], constant: float, shape: tuple[int, ...], tmp_path: Path
) -> None:
    for swapped in (False, True)[: 2 if function in (operator.add, operator.mul) else 1]:
        array = np.full(shape, constant)
        graph = graph_of(function, array, swapped=swapped)
        want = -function(-X, array)
        np.testing.assert_array_equal(gc.InferenceSession().load(graph)(X)[0], want)
        graph.export(tmp_path / "rounded.onnx")
        bare = onnxruntime.InferenceSession(tmp_path / "rounded.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(bare.run(None, {"x": X})[0], want)


@pytest.mark.parametrize(("operator_", "constant"), [("Add", SMALL), ("Sub", SMALL), ("Mul", FACTOR), ("Div", FACTOR)])
@pytest.mark.parametrize("as_node", [False, True], ids=["initializer", "Constant"])
def test_constant_counts_in_third_party_models(operator_: str, constant: float, as_node: bool) -> None:
    value = numpy_helper.from_array(np.array(constant), "c")
    nodes = [helper.make_node("Constant", [], ["c"], value=value)] if as_node else []
    nodes += [helper.make_node("Neg", ["x"], ["a"]), helper.make_node(operator_, ["a", "c"], ["b"])]
    nodes += [helper.make_node("Neg", ["b"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "others", [x], [y], [] if as_node else [value])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[operator_]
    session = gc.InferenceSession()
    for source in (model.SerializeToString(), Graph.load(model.SerializeToString())):
        np.testing.assert_array_equal(session.load(source)(X)[0], -function(-X, constant))


def test_root_of_a_square_and_a_small_number_is_not_zero() -> None:
    graph = Graph("root", {"x": TensorType("float64", [])})
    graph.output(gc.ops.sqrt(gc.ops.square(graph["x"]) + SMALL))
    assert gc.InferenceSession().load(graph)(np.array(0.0))[0] == 1e-150


def test_constants_that_float32_tells_from_0_and_1_are_left_alone() -> None:
    for number in (0.0, -0.0, 1.0, 1e-40, 1 + 2.0**-20, 2.0, np.inf, np.nan):
        assert not is_rounded(np.array(number)), number
    assert not is_rounded(np.array(1e-46, np.float32))
    assert not is_rounded(np.full(2, 1e-46))
    assert is_rounded(np.array([1e-46]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("factor", "term"), [(0.0, 0.0), (-0.0, 0.0), (1.0, 0.0), (1.0, -0.0), (-0.0, -0.0)])
def test_sign_of_a_zero_sum_stays_when_a_file_is_loaded_again(
    factor: float, term: float, dtype: str, tmp_path: Path
) -> None:
    """A Sum of float64 became an Add when the file was read, which the optimiser drops."""
    graph = Graph("g", {"x": TensorType(dtype, ["n"])})
    with graph:
        graph.output(y=ops.fma(graph["x"], factor, term))
    x = np.array([0.0, -0.0, 1.5, -1.5], dtype)
    want = x * np.array(factor, dtype) + np.array(term, dtype)
    graph.export(tmp_path / "a.onnx")
    for source in (graph, tmp_path / "a.onnx"):
        (got,) = gc.InferenceSession().load(source)(x)
        assert np.signbit(got).tolist() == np.signbit(want).tolist()
        assert got.tolist() == want.tolist()
