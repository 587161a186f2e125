"""`ops.onnx`: every operator of ONNX as a function made from its schema."""

from __future__ import annotations

import inspect
import pickle
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError, PromotionError
from graphcore.onnx.schemas.catalogue import OperatorSpec, entry, names
from graphcore.ops import onnx as onnx_ops
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, Type, tensor_type
from tests.support.graphs import run

ROOT = Path(__file__).parents[2]
ONNX = "1.23."
"""The version whose operators are counted and have stubs."""

on: Any = onnx_ops  # for calls that type checkers refuse
DOMAINS = {
    "": onnx_ops,
    "ai.onnx.ml": onnx_ops.ml,
    "ai.onnx.preview": onnx_ops.preview,
    "ai.onnx.preview.training": onnx_ops.preview.training,
}
EVERY = [(name, domain) for domain in DOMAINS for name in names(domain)]
SCHEMAS = {(s.name, s.domain): s for s in onnx.defs.get_all_schemas()}

x2 = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]], np.float32)
i3 = np.array([1, 2, 3], np.int32)


def operands(*types: Type) -> tuple[Symbol, ...]:
    return Graph("test", types).inputs


def floats(*dims: int | str) -> TensorType:
    return TensorType(DType.float32, dims)


# All operators


def test_operators_are_those_that_onnx_defines() -> None:
    for domain, module in DOMAINS.items():
        defined = {s.name for s in onnx.defs.get_all_schemas() if s.domain == domain}
        assert set(names(domain)) == defined
        assert defined <= set(dir(module))
    if onnx.__version__.startswith(ONNX):
        assert (len(names("")), len(names("ai.onnx.ml"))) == (203, 19)
        assert "203 operators of ONNX and 19 of ai.onnx.ml" in (ROOT / "docs" / "onnx.md").read_text()


@pytest.mark.parametrize(("name", "domain"), EVERY)
def test_operator_has_a_name_a_signature_and_docs(name: str, domain: str) -> None:
    function = getattr(DOMAINS[domain], name)
    assert function is getattr(DOMAINS[domain], name)
    assert function.__name__ == function.__qualname__ == name
    assert pickle.loads(pickle.dumps(function)) is function
    schema = SCHEMAS[name, domain]
    if schema.deprecated:
        schema = onnx.defs.get_schema(name, schema.since_version - 1, domain)
    attributes: dict[str, Any] = dict(schema.attributes)
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("outputs", None)
    assert [*parameters][: len(schema.inputs)] == [p.name for p in schema.inputs]
    assert {*parameters} == {p.name for p in schema.inputs} | {*attributes}
    for label, attribute in attributes.items():
        parameter = parameters[label]
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert (parameter.default is parameter.empty) == attribute.required
        if attribute.default_value.type == onnx.AttributeProto.INT:
            assert parameter.default == attribute.default_value.i
        if attribute.default_value.type == onnx.AttributeProto.FLOAT:
            assert np.float32(parameter.default) == np.float32(attribute.default_value.f)
    docs = function.__doc__
    assert name in docs
    assert f"version {schema.since_version} " in docs
    for label in [*attributes, *(p.name for p in [*schema.inputs, *schema.outputs])]:
        assert f"    {label}" in docs or f"    *{label}" in docs
    assert max(map(len, docs.split("\n"))) <= 120 or any("," not in line for line in docs.split("\n"))


def _required(of: OperatorSpec, type_: Type) -> dict[str, Any]:
    values: dict[str, Any] = {
        "int": 1,
        "ints": [1, 1],
        "float": 1.0,
        "floats": [1.0],
        "string": "a",
        "strings": ["a"],
        "tensor": np.ones(1, np.int64),
        "body": lambda *symbols: [*symbols] or 1.0,
        "type": type_,
    }
    return {a.name: values[a.word] for a in of.attributes if a.is_required}


@pytest.mark.parametrize("dtype", [DType.float32, DType.int64, DType.string])
@pytest.mark.parametrize("kind", ["unranked", "opaque", "scalar", "unknown", "empty"])
def test_operators_take_or_refuse_operands_of_any_type(kind: str, dtype: DType) -> None:
    types: dict[str, Type] = {
        "unranked": tensor_type(dtype, Shape.unknown()),
        "opaque": OpaqueType(),
        "scalar": TensorType(dtype, []),
        "unknown": TensorType(dtype, ["?", "?"]),
        "empty": TensorType(dtype, [0, 0]),
    }
    type_ = types[kind]
    taken = 0
    summaries: list[tuple[str, str]] = []
    for name, domain in EVERY:
        of = entry(name, domain)
        for count in range(of.op.min_inputs, min(of.op.max_inputs, of.op.min_inputs + 2) + 1):
            graph = Graph("test", [type_] * count)
            with graph:
                try:
                    getattr(DOMAINS[domain], name)(*graph.inputs, **_required(of, type_))
                except GraphcoreError as error:
                    summaries.append((of.label, error.summary))
                else:
                    taken += 1
                assert graph.scope.is_open
    assert taken > 10
    assert all(summary.startswith(f"{label}: ") for label, summary in summaries)


@pytest.mark.docs
def test_stubs_are_those_of_the_schemas_when_made_anew() -> None:
    if not onnx.__version__.startswith(ONNX):
        return
    for name, page in runpy.run_path(str(ROOT / "docs" / "make_stubs.py"))["pages"]().items():
        assert (ROOT / "ops" / "onnx" / name).read_text() == page, "run python docs/make_stubs.py"
        assert page.count("\n") < 400
        domain = f"ai.onnx.{name.removesuffix('.pyi').removesuffix('/__init__').replace('/', '.')}"
        for operator in names("" if name == "__init__.pyi" else domain):
            assert f"\ndef {operator}(" in page


def test_unknown_operator_is_an_attribute_error_that_names_near_ones() -> None:
    with pytest.raises(AttributeError, match=r"no operator 'Sofmax'; did you mean Softmax"):
        onnx_ops.Sofmax  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(onnx_ops, "__wrapped__")
    assert not hasattr(onnx_ops.ml, "Conv")


def test_importing_ops_reads_no_schemas() -> None:
    probe = "import sys; from graphcore import ops; ops.onnx.ml; sys.exit('%s' in sys.modules)"
    probe %= "graphcore.onnx.schemas.catalogue"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=False).returncode == 0


# Operands


def test_operands_are_promoted_when_of_one_type_variable() -> None:
    result = run(lambda x, i: ops.onnx.Add(x, i), x2, i3)
    np.testing.assert_array_equal(result[0], x2 + i3.astype(np.float32))
    assert ops.onnx.Where(
        *operands(TensorType(DType.bool, [2]), floats(2), TensorType(DType.int8, [2]))
    ).type == floats(2)


@pytest.mark.parametrize("dtype", [DType.int8, DType.uint64, DType.float16, DType.float64])
def test_python_numbers_take_the_dtype_of_the_others(dtype: DType) -> None:
    (x,) = operands(TensorType(dtype, [2]))
    assert ops.onnx.Clip(x, 1, max=6).dtype is dtype
    assert ops.onnx.Add(2, x).dtype is dtype
    assert ops.onnx.Max(x, 1, x).dtype is dtype


def test_numbers_alone_take_a_dtype_that_the_operator_has() -> None:
    with Graph("test"):
        assert ops.onnx.Add(1, 2).dtype is DType.int64
        assert ops.onnx.Sqrt(2).dtype is DType.float32
        assert ops.onnx.Range(0, 5.5, 1).dtype is DType.float32


def test_arrays_and_lists_become_constants() -> None:
    (x,) = operands(floats("n", 4))
    assert ops.onnx.Reshape(x, [-1, 2, 2]).type == floats("n", 2, 2)
    assert ops.onnx.Reshape(x, np.array([2, -1])).type == floats(2, "2 * n")
    assert ops.onnx.Add(x, [1, 2, 3, 4]).type == floats("n", 4)
    assert ops.onnx.StringConcat(ops.onnx.Cast(x, to=DType.string), "a").dtype is DType.string
    assert ops.onnx.TopK(x, [2])[1].type == TensorType(DType.int64, ["n", 2])


def test_optional_operands_may_be_none_or_left_out() -> None:
    (x,) = operands(floats(2))
    node = ops.onnx.Clip(x, None, 1.0).producer
    assert [None if s is None else s.type for s in node.inputs] == [floats(2), None, floats()]  # type: ignore[union-attr]
    for item in (ops.onnx.Clip(x), ops.onnx.Clip(x, None, None), ops.onnx.Clip(input=x, max=None)):
        assert len(item.producer.inputs) == 1  # type: ignore[union-attr]


def test_variadic_operands_are_arguments_or_a_list() -> None:
    (x,) = operands(floats(2, 3))
    results = [
        ops.onnx.Concat(x, x, axis=0),
        ops.onnx.Concat([x, x], axis=0),
        ops.onnx.Concat(*(x, x), axis=0),
        on.Concat(inputs=[x, x], axis=0),
    ]
    assert {s.type for s in results} == {floats(4, 3)}


@given(st.permutations(["X", "W", "B"]), st.integers(0, 3))
def test_operands_by_position_and_by_name_make_the_same_node(order: list[str], count: int) -> None:
    types = {"X": floats(1, 2, 5, 5), "W": floats(3, 2, 3, 3), "B": floats(3)}
    graph = Graph("test", types)
    by_name = {name: graph[name] for name in order if name not in [*types][:count]}
    result: Symbol = ops.onnx.Conv(*graph.inputs[:count], **by_name, pads=[1, 1, 1, 1])  # type: ignore[arg-type]
    assert result.type == floats(1, 3, 5, 5)
    assert result.producer.inputs == graph.inputs  # type: ignore[union-attr]


def test_sequences_and_optionals_go_in_and_out() -> None:
    def function(x: Symbol) -> Symbol:
        sequence = ops.onnx.SequenceInsert(ops.onnx.SequenceConstruct(x, ops.onnx.Neg(x)), ops.onnx.Abs(x), 0)
        assert isinstance(sequence.type, SequenceType)
        value = ops.onnx.Optional(sequence)
        assert value.type == OptionalType(sequence.type)
        return ops.onnx.ConcatFromSequence(ops.onnx.OptionalGetElement(value), axis=0)

    np.testing.assert_array_equal(run(function, x2)[0], np.concatenate([abs(x2), x2, -x2]))


# Results


def test_results_are_a_symbol_a_tuple_or_a_list() -> None:
    (x,) = operands(floats(4, 6))
    assert isinstance(ops.onnx.Relu(x), Symbol)
    assert isinstance(ops.onnx.TopK(x, [2]), tuple)
    assert isinstance(ops.onnx.Dropout(x), Symbol)
    assert [s.dtype for s in ops.onnx.Dropout(x, outputs=2)] == [DType.float32, DType.bool]
    assert len(ops.onnx.Unique(x, outputs=4)) == 4
    assert [s.type for s in ops.onnx.Split(x, num_outputs=3)] == [floats(2, 6), floats(2, 6), floats(0, 6)]
    assert [s.type for s in ops.onnx.Split(x, [1, 5], axis=1)] == [floats(4, 1), floats(4, 5)]
    assert [s.type for s in ops.onnx.Split(x, outputs=2)] == [floats(2, 6)] * 2


def test_operators_of_machine_learning_run() -> None:
    (x,) = operands(floats(2, 3))
    x.graph.output(ops.onnx.ml.Normalizer(x, norm="L1"))
    result = gc.InferenceSession().load(x.graph)(x2)
    np.testing.assert_allclose(result[0], x2 / abs(x2).sum(1, keepdims=True), rtol=1e-6)
    labels = ops.onnx.ml.LabelEncoder(
        operands(TensorType(DType.string, [3]))[0], keys_strings=["a", "b"], values_int64s=[1, 2], default_int64=0
    )
    assert labels.type == TensorType(DType.int64, [3])


@pytest.mark.parametrize("name", ["Upsample", "Scatter", "SwiGLU"])
def test_operators_that_graphs_do_not_write_become_ones_that_they_do(name: str) -> None:
    scales = np.array([1, 2], np.float32)
    indices = np.array([[0, 1, 1]])
    results: dict[str, Callable[[Symbol], Symbol]] = {
        "Upsample": lambda x: ops.onnx.Upsample(x, scales),
        "Scatter": lambda x: ops.onnx.Scatter(x, indices, -x[:1]),
        "SwiGLU": lambda x: on.SwiGLU(x, -x),
    }
    wanted = {
        "Upsample": np.repeat(x2, 2, axis=1),
        "Scatter": np.array([[-1.0, -2.0, 3.0], [0.5, 2.0, -3.0]], np.float32),
        "SwiGLU": -x2 * x2 / (1 + np.exp(-x2)),
    }[name]
    if "SwiGLU" in names(""):
        np.testing.assert_allclose(run(results[name], x2, dims=[[2, 3]])[0], wanted, rtol=1e-6)


# Attributes


def test_attributes_of_every_kind() -> None:
    (x,) = operands(floats(1, 1, 4, 4))
    graph = x.graph
    with graph:
        assert ops.onnx.Cast(x, to=DType.int8).dtype is DType.int8  # int
        assert ops.onnx.Cast(x, to=onnx.TensorProto.INT8).dtype is DType.int8
        assert ops.onnx.EyeLike(x[0, 0], dtype=DType.float64).dtype is DType.float64
        assert ops.onnx.LeakyRelu(x, alpha=2).producer.attributes == {"alpha": 2.0}  # type: ignore[union-attr]
        assert ops.onnx.MaxPool(x, kernel_shape=[2, 2]).type == floats(1, 1, 3, 3)  # ints
        assert ops.onnx.Constant(value_floats=[1, 2.5]).type == floats(2)  # floats
        assert ops.onnx.AveragePool(x, kernel_shape=(3, 3), auto_pad=b"SAME_UPPER").type == x.type  # string
        assert ops.onnx.Constant(value_strings=["a", "b"]).type == TensorType(DType.string, [2])  # strings
        assert ops.onnx.Constant(value=np.ones((2, 3), np.float16)).type == TensorType(DType.float16, [2, 3])  # tensor
        assert ops.onnx.Constant(value=[[1.5]]).type == floats(1, 1)
        assert ops.onnx.ConstantOfShape([2], value=7).type == TensorType(DType.int64, [2])
        assert ops.onnx.Constant(sparse_value=np.eye(2, dtype=np.float32)).type == floats(2, 2)
        assert ops.onnx.Optional(type=floats(2)).type == OptionalType(floats(2))  # type


# Promotion


@pytest.mark.parametrize("promotion", ["max", "kernel_float", "anvil", "array_api", "allo_hls", "allo_cpp"])
def test_promotion_is_the_graphs_own(promotion: str) -> None:
    graph = Graph("test", [TensorType(DType.float32, [4]), TensorType(DType.int32, [4])], promotion=promotion)
    x, i = graph.inputs
    assert ops.onnx.Mul(x, 2).type == floats(4)
    assert ops.onnx.Mul(i, 2).type == TensorType(DType.int32, [4])
    if promotion == "array_api":
        with pytest.raises(PromotionError, match=r"onnx.Mul: float32 with int32"):
            ops.onnx.Mul(x, i)
    else:
        assert ops.onnx.Mul(x, i).type == (x * i).type == floats(4)
