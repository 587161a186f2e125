"""onnxruntime's own operators: bodies against kernels, kernels used only where both agree, models of other tools."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ModelError, ShapeError
from graphcore.ops import microsoft
from graphcore.ops.microsoft._declare import NARROW, ROWS
from graphcore.runtime.lowering import functions, lower
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets.releases import ANY, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.runtime.ort.release import runtime, saturates
from tests.support.graphs import Array
from tests.support.microsoft_cases import CASES, HIDDEN, Case, int32, real

pytestmark = pytest.mark.releases


def graph(case: Case, dtype: DType | None = None) -> Graph:
    types = {}
    for i, array in enumerate(case.operands):
        if array is not None:
            own = DType.of(array.dtype)
            types[f"x{i}"] = TensorType(dtype if dtype is not None and own is DType.float32 else own, array.shape)
    g = Graph("g", types)
    symbols = iter(g.inputs)
    result = case.op(
        *[None if a is None else next(symbols) for a in case.operands], outputs=case.outputs, **case.attributes
    )
    g.output(*(result if isinstance(result, tuple) else (result,)))
    return g


def arrays(case: Case, dtype: DType | None = None) -> list[Array]:
    narrow = np.float32 if dtype is None else dtype.numpy
    with np.errstate(over="ignore"):
        return [a.astype(narrow) if a.dtype == np.float32 else a for a in case.operands if a is not None]


def by_body(case: Case) -> list[Array]:
    g = functions.resolved(graph(case), "onnx")
    assert g is not graph(case)
    session = gc.InferenceSession(graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return list(session.load(g)(*arrays(case)))


def by_kernel(case: Case) -> list[Array]:
    """Return the results of the node alone, in a session without rewrites."""
    g = graph(case)
    (node,) = g.nodes
    helper = onnx.helper
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(case.operands)]
    results = [f"y{i}" for i in range(case.outputs)]
    proto = helper.make_node(node.op_type, names, results, domain=node.domain, **node.attributes)
    items = [(n, a) for n, a in zip(names, case.operands, strict=True) if a is not None]
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in items]
    kinds = [helper.np_dtype_to_tensor_dtype(s.dtype.numpy) for s in g.outputs]
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(results, kinds, strict=True)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([proto], "g", inputs, outputs), opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: np.asarray(array) for name, array in items}))


def close(result: Array, wanted: Array, tolerance: float) -> None:
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    if result.dtype.kind not in "fV":
        apart = np.abs(result.astype(np.int64) - wanted.astype(np.int64))
        assert apart.max(initial=0) <= (1 if tolerance == 1 else 0)
        return
    finite = np.abs(wanted[np.isfinite(wanted) & (np.abs(wanted) < 1e20)])
    scale = max(float(finite.max(initial=0)), 1.0)
    np.testing.assert_allclose(result, wanted, rtol=4e-7, atol=tolerance * scale)


def parts(case: Case, results: list[Array]) -> list[Array]:
    return [case.valid(i, r) if case.valid else r for i, r in enumerate(results)]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.runs_alone])
def test_body_gives_what_the_kernel_gives(name: str) -> None:
    case = CASES[name]
    if name.startswith("Skip") and case.outputs and case.outputs > 1 and in_force(functions.STATISTICS, runtime()):
        assert by_kernel(case)[1] is None
        return
    if case.same == np.inf:
        with pytest.raises(AssertionError):
            close(by_body(case)[0], by_kernel(case)[0], 1e-3)
        return
    if name in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat uint8 int8") and saturates():
        pytest.skip("the kernel alone saturates on this processor")
    for item, wanted in zip(parts(case, by_body(case)), parts(case, by_kernel(case)), strict=True):
        close(item, wanted, case.same)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_kernel_is_used_where_it_is_right_and_the_model_runs(name: str) -> None:
    case = CASES[name]
    g = graph(case)
    nodes = functions.resolved(g, "cpu", NEWEST).nodes
    assert ([(n.domain, n.op_type) for n in nodes] == [("com.microsoft", case.name)]) is case.has_kernel
    wanted = by_body(case)
    results = list(gc.InferenceSession().load(g)(*arrays(case)))
    for item, array in zip(parts(case, results), parts(case, wanted), strict=True):
        close(item, array, max(case.same, 1e-6) if case.same < np.inf else 1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_narrow_floats_are_rounded_once(name: str) -> None:
    case = CASES[name]
    first = next(a for a in case.operands if a is not None)
    if first.dtype != np.float32 or case.name == "DynamicQuantizeMatMul":
        return
    for dtype in NARROW:
        if dtype not in case.op._dtypes[case.op.signature.operands[0].name]:
            continue
        value = arrays(case, dtype)
        nodes = lower(graph(case, dtype), "cpu", runtime=NEWEST).nodes
        assert (case.name in [n.op_type for n in nodes if n.domain]) is case.has_kernel
        exact = Case(case.name, list(_widened(case, value)), case.attributes, case.outputs)
        results = list(gc.InferenceSession().load(graph(case, dtype))(*value))
        for item, wide in zip(parts(case, results), parts(case, by_body(exact)), strict=True):
            if item.dtype != dtype.numpy:
                close(item, wide, 1e-6)
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                error = np.abs(item.astype(np.float64) - wide)
                unit = np.spacing(np.abs(wide).astype(dtype.numpy)).astype(np.float64)
            near = (error <= unit * 0.51 + 2e-6) | ~np.isfinite(item.astype(np.float32))
            assert near.all(), f"{name} in {dtype}: {error[~near]}"


def _widened(case: Case, value: list[Array]) -> Any:
    values = iter(value)
    for array in case.operands:
        yield None if array is None else _wide(next(values))


def _wide(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype in (np.float16, DType.bfloat16.numpy) else array


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
def test_scales_of_narrow_floats_are_rounded_once(dtype: DType) -> None:
    data, at, scales = np.arange(224, dtype=np.uint8).reshape(7, 32), np.array([3, 6]), real(7, 2).astype(dtype.numpy)
    g = Graph("g", {"data": TensorType(DType.uint8, [7, 32]), "at": TensorType(DType.int64, [2])})
    g.output(microsoft.GatherBlockQuantized(*g.inputs, scales, bits=8, block_size=16))
    wide = np.repeat(scales.astype(np.float32), 16, axis=1)
    wanted = ((data.astype(np.float32) - 128) * wide)[at].astype(dtype.numpy)
    assert gc.InferenceSession().load(g)(data, at)[0].tobytes() == wanted.tobytes()


def test_every_operator_with_a_body_has_cases() -> None:
    assert {case.name for case in CASES.values()} == {name for name, row in ROWS.items() if row.op.has_body}
    assert sorted(ROWS) == microsoft.__all__


NEWEST = Runtime(table_of("cpu").newest.version)
DECLARED = "1.31.1"
"""The release whose operators are declared."""


def test_declarations_go_with_the_runtimes_schemas() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = {s.name: s for s in state.get_all_operator_schema() if s.domain == "com.microsoft"}
    for name, row in ROWS.items():
        schema, signature = schemas[name], row.op.signature
        shared = list(zip([o.name for o in signature.operands], [p.name for p in schema.inputs], strict=False))
        assert all(mine == runtimes for mine, runtimes in shared), name
        if onnxruntime.__version__ != DECLARED or name == "QMoE":  # others have fewer operands and attributes, or more
            continue
        assert len(signature.operands) == len(schema.inputs), name
        assert signature.attributes.keys() == schema.attributes.keys(), name
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        for operand, parameter in zip(signature.operands, schema.inputs, strict=False):
            for dtype in row.op._dtypes.get(operand.name, ()):
                kinds = allowed.get(parameter.typeStr, {parameter.typeStr}) | _wider(name)
                assert {_spelled(dtype), f"sparse_{_spelled(dtype)}"} & kinds, (name, dtype)


def _spelled(dtype: DType) -> str:
    return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype.name, dtype.name) })"


def _wider(name: str) -> set[str]:
    """The dtypes that bodies take beyond the schema."""
    return (
        {"tensor(float)", "tensor(double)", "tensor(bfloat16)", "tensor(float16)"} if ROWS[name].op.has_body else set()
    )


@pytest.mark.docs
def test_page_has_the_table_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "custom_ops.md"
    result = runpy.run_path(str(page.parent / "custom_tables.py"))["custom_page"]()
    assert page.read_text() == result, "run python docs/make_tables.py"


# Models of other tools


def model(
    name: str, names: list[str], attributes: dict[str, Any], values: dict[str, Array], outputs: list[str]
) -> bytes:
    helper = onnx.helper
    node = helper.make_node(name, names, outputs, domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in values.items()
    ]
    results = [helper.make_value_info(n, onnx.TypeProto()) for n in outputs if n]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=opsets, ir_version=10)
    return bytes(proto.SerializeToString())


def test_third_party_models_are_typed_and_run() -> None:
    x, skip, gamma = HIDDEN, real(2, 3, 16), real(16)
    values = {"x": x, "skip": skip, "gamma": gamma}
    proto = model("SkipLayerNormalization", ["x", "skip", "gamma"], {"epsilon": 1e-5}, values, ["y", "", "", "sum"])
    g = Graph.load(proto)
    assert [str(s.type) for s in g.outputs] == ["float32[2, 3, 16]"] * 2
    result, total = gc.InferenceSession().load(proto)(x, skip, gamma)
    wanted = x + skip
    np.testing.assert_array_equal(total, wanted)
    scaled = (wanted - wanted.mean(-1, keepdims=True)) / np.sqrt(wanted.var(-1, keepdims=True) + 1e-5) * gamma
    np.testing.assert_allclose(result, scaled, rtol=1e-5, atol=1e-5)


def test_form_that_is_not_declared_is_left_to_the_runtime() -> None:
    values = {"a": real(2, 3), "b": real(3, 4)}
    g = Graph.load(model("FusedMatMul", ["a", "b"], {"unheard_of": 1}, values, ["y"]))
    assert str(g.outputs[0].type) == "float32[...]"  # all that its schema tells
    graph = Graph("g", {"x": TensorType(DType.float32, [2, 3])})
    graph.output(*graph.op("Gelu", [graph[0]], {"odd": 1}, [graph[0].type], domain="com.microsoft"))
    assert graph.to_onnx().graph.node[0].op_type == "Gelu"
    g = Graph.load(model("Sampling", ["a", "b"], {}, values, ["y"]))  # none of ours
    assert g.nodes[0].op_type == "Sampling"


def test_form_that_would_end_the_process_is_refused() -> None:
    values = {"x": real(2, 5, 10), "w": real(10, 72)}
    for attributes in ({"num_heads": 3, "do_rotary": 1}, {"num_heads": 3, "odd": 1}):
        with pytest.raises(ModelError, match="its kernel reads a bias, which is missing"):
            Graph.load(model("Attention", ["x", "w"], attributes, values, ["y"]))
    plain = model("Attention", ["x", "w"], {"num_heads": 3}, values, ["y"])  # whose body runs
    assert gc.InferenceSession().load(plain)(*values.values())[0].shape == (2, 5, 24)


def test_half_models_run_though_the_kernel_has_no_half() -> None:
    a, b = real(2, 3).astype(np.float16), real(3, 4).astype(np.float16)
    proto = model("FusedMatMul", ["a", "b"], {"alpha": 0.5}, {"a": a, "b": b}, ["y"])
    (result,) = gc.InferenceSession().load(proto)(a, b)
    wanted = (a.astype(np.float32) @ b.astype(np.float32) * np.float32(0.5)).astype(np.float16)
    np.testing.assert_array_equal(result, wanted)


def test_cuda_keeps_nodes_of_models_that_others_wrote() -> None:
    a, b = real(2, 3).astype(np.float16), real(3, 4).astype(np.float16)
    read = Graph.load(model("FusedMatMul", ["a", "b"], {}, {"a": a, "b": b}, ["y"]))
    assert not functions.needed(Summary(read), "cuda", ANY)
    assert functions.needed(Summary(read), "cpu", ANY)
    built = Graph("g", {"a": TensorType(DType.float32, [2, 3])})
    built.output(microsoft.Gelu(built[0]))
    assert functions.needed(Summary(built), "cuda", ANY)
    assert not functions.needed(Summary(built), "cpu", ANY)


def test_target_onnx_has_functions_that_another_reader_runs() -> None:
    g = Graph("g", {"a": TensorType(DType.float32, ["n", 3]), "b": TensorType(DType.float32, [4, 3])})
    g.output(y=microsoft.FusedMatMul(*g.inputs, alpha=0.5, transB=True))
    proto = g.to_onnx(target="onnx")
    onnx.checker.check_model(proto, full_check=True)
    (node,) = proto.graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", "FusedMatMul")
    assert [(f.domain, f.name) for f in proto.functions] == [("com.microsoft", "FusedMatMul")]
    a, b = real(2, 3), real(4, 3)
    (result,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"a": a, "b": b})
    np.testing.assert_allclose(np.asarray(result), np.asarray(a @ b.T / 2), rtol=1e-5)


# Refusals

BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "inner": (lambda x: microsoft.FusedMatMul(x, x), ShapeError, "FusedMatMul: matmul: inner dimensions differ"),
    "string": (lambda x: microsoft.Gelu(ops.string_of(x)), DTypeError, "Gelu has no meaning for string"),
    "float8": (lambda x: microsoft.Gelu(x.cast("float8_e4m3fn")), DTypeError, "X is float8_e4m3fn, which it does not"),
    "bias": (lambda x: microsoft.BiasGelu(x, np.ones(3, np.float32)), ShapeError, "BiasGelu"),
    "skip": (
        lambda x: microsoft.SkipLayerNormalization(x, np.ones((7, 2, 4), np.float32), np.ones(4, np.float32)),
        ShapeError,
        "skip has shape",
    ),
    "heads": (lambda x: microsoft.MultiHeadAttention(x, x, x, num_heads=3), ShapeError, "MultiHeadAttention"),
    "no heads": (lambda x: microsoft.MultiHeadAttention(x, x, x), GraphError, "attribute 'num_heads' is missing"),
    "bits": (
        lambda x: microsoft.MatMulNBits(
            x, np.zeros((1, 1, 6), np.uint8), np.ones((1, 1), np.float32), K=4, N=1, block_size=16, bits=3
        ),
        ShapeError,
        "bits must be 2, 4 or 8, got 3",
    ),
    "blocks": (
        lambda x: microsoft.MatMulNBits(
            x, np.zeros((2, 1, 8), np.uint8), np.ones((1, 1), np.float32), K=4, N=1, block_size=16
        ),
        ShapeError,
        "B must have 8 elements, got 16",
    ),
    "window": (
        lambda x: microsoft.GroupQueryAttention(
            x, x, x, None, None, int32([1]), int32(2), num_heads=2, kv_num_heads=2, local_window_size=0
        ),
        ShapeError,
        "local_window_size must be at least 1, or -1 for all, got 0",
    ),
    "activation": (
        lambda x: microsoft.FusedGemm(x, np.ones((4, 2), np.float32), activation="Cube"),
        ShapeError,
        "'Cube'",
    ),
    "square": (lambda x: microsoft.Inverse(x), ShapeError, "X must be square matrices"),
    "outputs": (lambda x: microsoft.Gelu(x, outputs=2), GraphError, "outputs must be an int from 1 to 1, got 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_call_refuses(name: str) -> None:
    call, kind, text = BAD[name]
    g = Graph("g", {"x": TensorType(DType.float32, [2, 4] if name in ("activation", "square", "inner") else [1, 2, 4])})
    with pytest.raises(kind, match=text):
        call(g[0])


def test_named_dims_go_through() -> None:
    g = Graph("g", {"x": TensorType(DType.float32, ["batch", "n", 24]), "s": TensorType(DType.int32, ["batch"])})
    x, lengths = g.inputs
    assert microsoft.MultiHeadAttention(x, x, x, None, lengths, num_heads=3).shape == ("batch", "n", 24)
    result, keys, _ = microsoft.GroupQueryAttention(
        x, x, x, None, None, lengths, int32(5), num_heads=3, kv_num_heads=3, outputs=3
    )
    assert result.shape == ("batch", "n", 24)
    assert keys.shape[:2] == ("batch", 3)
    assert ops.microsoft is microsoft
