"""Operators that users declare: calls, types, bodies, and files."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.custom_ops.custom_op import lookup
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, PromotionError, ShapeError
from graphcore.ir.graph import TargetName
from tests.support.graphs import Array

X = np.array([[0.5, -1, 2], [3, -4, 0.25]], np.float32)
DOMAIN = "tests.declared"


@gc.custom_op(f"{DOMAIN}::ScaledTanh", promote="float")
def scaled_tanh(x: TensorType, bias: TensorType | None = None, *, scale: float = 1.0) -> TensorType:
    """tanh(x) * scale + bias."""
    return x


@scaled_tanh.body
def _scaled_tanh(x: Symbol, bias: Symbol | None = None, *, scale: float) -> Symbol:
    result = ops.tanh(x) * scale
    return result if bias is None else result + bias


@gc.custom_op(f"{DOMAIN}::Moments")
def moments(x: TensorType, *rest: TensorType, axis: int = -1) -> tuple[TensorType, TensorType]:
    shape = [dim for i, dim in enumerate(x.shape) if i != axis % len(x.shape)]
    return TensorType(x.dtype, shape), TensorType(x.dtype, shape)


@moments.body
def _moments(x: Symbol, *rest: Symbol, axis: int) -> tuple[Symbol, Symbol]:
    for other in rest:
        x = x + other
    return ops.mean(x, axis=axis), ops.mean(x * x, axis=axis)


def graph(dtype: object = DType.float32, dims: tuple[int | str, ...] = ("n", 3), **options: Any) -> Graph:
    return Graph("g", {"x": TensorType(DType.of(dtype), dims)}, **options)


def result(result: Graph, *arrays: Array) -> list[Any]:
    return gc.InferenceSession().load(result)(*arrays)


def fresh(name: str, **options: Any) -> gc.CustomOp:
    """An operator of one operand and one attribute, of its type."""

    def rule(x: TensorType, *, scale: float = 1.0) -> TensorType:
        return x

    return gc.custom_op(f"{DOMAIN}::{name}", rule, **options)


# Calls


def test_call_gives_a_node_of_the_domain_typed_by_the_rule() -> None:
    g = graph(DType.bfloat16)
    result = scaled_tanh(g[0], scale=0.5)
    (node,) = g.nodes
    assert (node.domain, node.op_type, node.attributes) == (DOMAIN, "ScaledTanh", {"scale": 0.5})
    assert result.type is g[0].type
    assert "tests.declared.ScaledTanh(x, scale=0.5)" in str(g)
    assert "test_custom_ops.py" in str(g)


def test_operands_promote_as_declared() -> None:
    dtypes = {"x": DType.int8, "y": DType.bfloat16, "z": DType.float32}
    g = Graph("g", {name: TensorType(dtype, ["n"]) for name, dtype in dtypes.items()})
    assert scaled_tanh(g["x"], g["y"]).dtype is DType.bfloat16
    assert scaled_tanh(g["x"]).dtype is DType.float16
    assert scaled_tanh(g["y"], 1).dtype is DType.bfloat16
    assert scaled_tanh(g["z"], g["y"]).dtype is DType.float32
    with pytest.raises(ShapeError, match="do not broadcast: 3 and n at axis -1"):
        scaled_tanh(np.ones(3, np.float32), g["z"])


def test_promotion_follows_the_system_of_the_graph() -> None:
    g = Graph("g", {"x": TensorType(DType.int8, ["n"]), "y": TensorType(DType.float32, ["n"])}, promotion="array_api")
    with pytest.raises(PromotionError, match="ScaledTanh"):
        scaled_tanh(g["x"], g["y"])


def test_groups_promote_apart_and_the_rest_stays() -> None:
    def rule(a: TensorType, b: TensorType, at: TensorType) -> TensorType:
        assert at.dtype is DType.int32
        return TensorType(a.dtype, b.shape)

    op = gc.custom_op(f"{DOMAIN}::Groups", rule, promote={"a b": "arithmetic"}, dtypes={"at": "int32"})
    g = graph(DType.int8)
    result = op(g[0], np.ones(3, np.float32), 5)
    assert result.dtype is DType.float32
    with pytest.raises(DTypeError, match=r"at is float32, which it does not take(.|\n)*it takes int32"):
        op(g[0], g[0], np.ones(3, np.float32))


def test_attributes_come_to_functions_as_their_kind() -> None:
    seen: list[Any] = []

    def rule(
        x: TensorType,
        *,
        flag: bool = False,
        name: str = "a",
        sizes: list[int] = [],  # noqa: B006
        to: DType = DType.int8,
        table: np.ndarray[Any, Any] | None = None,
        half: float = 0.1,
        more: "tuple[float, ...]" = (0.5,),  # noqa: UP037 - as other files write it
    ) -> TensorType:
        seen.append((flag, name, sizes, to, table, half, more))
        return TensorType(to, x.shape)

    op = gc.custom_op(f"{DOMAIN}::Kinds", rule)
    g = graph()
    assert op(g[0]).dtype is DType.int8
    assert seen[-1] == (False, "a", (), DType.int8, None, float(np.float32(0.1)), (0.5,))
    result = op(g[0], flag=True, name="b", sizes=(1, 2), to="int32", table=np.arange(3), more=[1, 2])
    flag, name, sizes, to, table, _, more = seen[-1]
    assert (flag, name, sizes, to, more) == (True, "b", (1, 2), DType.int32, (1.0, 2.0))
    np.testing.assert_array_equal(table, np.arange(3))
    g.output(result)
    again = Graph.load(g.to_onnx(target="onnx"))
    assert again.outputs[0].dtype is DType.int32
    flag, name, sizes, to, table, _, more = seen[-1]
    assert (flag, name, sizes, to, more) == (True, "b", (1, 2), DType.int32, (1.0, 2.0))
    np.testing.assert_array_equal(table, np.arange(3))


def test_variadic_operands_and_several_results() -> None:
    g = graph(dims=("n", 3))
    mean, square = moments(g[0], g[0], np.ones(3, np.float32))
    assert mean.shape == ("n",)
    g.output(mean, square)
    total = 2 * X + 1
    for item, wanted in zip(result(g, X), (total.mean(1), (total * total).mean(1)), strict=True):
        np.testing.assert_allclose(item, wanted, rtol=1e-6)


def test_outputs_says_how_many_results_a_node_has() -> None:
    g = graph()
    (mean,) = moments(g[0], outputs=1)
    assert len(g.nodes[-1].outputs) == 1
    g.output(mean)
    np.testing.assert_allclose(result(g, X)[0], X.mean(1), rtol=1e-6)
    wrongs: list[Any] = [0, 3, True, "1"]
    for wrong in wrongs:
        with pytest.raises(GraphError, match="must be an int from 1 to 2"):
            moments(g[0], outputs=wrong)


BAD_CALLS: dict[str, tuple[Callable[[Symbol], object], type[GraphcoreError], str]] = {
    "nothing": (lambda x: scaled_tanh(), GraphError, "the operand 'x' is missing"),
    "too many": (lambda x: scaled_tanh(x, x, x), GraphError, "it takes 2 operands, got 3"),
    "none": (lambda x: scaled_tanh(None, x), GraphError, "the operand 'x' must not be None"),
    "twice": (lambda x: scaled_tanh(x, x=x), GraphError, "x is passed twice"),
    "unknown attribute": (lambda x: scaled_tanh(x, alpha=1), GraphError, r"no attribute 'alpha'(.|\n)*scale"),
    "wrong kind": (lambda x: scaled_tanh(x, scale="a"), GraphError, "'scale' is 'a'(.|\n)*a number that float32"),
    "too large": (lambda x: scaled_tanh(x, scale=1e39), GraphError, r"'scale' is 1e\+39"),
    "a Symbol": (lambda x: scaled_tanh(x, scale=x), GraphError, "attribute 'scale'"),
    "no tensor": (lambda x: scaled_tanh("a"), GraphError, "no operand is a Symbol"),
    "a list": (lambda x: scaled_tanh(x, [1, 2]), DTypeError, "bias has unsupported type list"),
    "other graph": (lambda x: scaled_tanh(x, graph()[0]), GraphError, "belongs to graph"),
    "None among many": (lambda x: moments(x, None), GraphError, "operands must not be None"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_call_refuses_at_the_users_line(name: str) -> None:
    call, kind, text = BAD_CALLS[name]
    g = graph()
    with pytest.raises(kind, match=text) as caught:
        call(g[0])
    assert caught.value.line is not None
    assert caught.value.line.path == __file__
    assert not g.nodes


@pytest.mark.parametrize(
    ("rule", "kind", "text"),
    [
        (lambda x: 5, GraphError, "its type rule must return types, got 5"),
        (lambda x: None, GraphError, "must return types, got None"),
        (lambda x: (), GraphError, r"must return types, got \(\)"),
        (lambda x: (x, 3), GraphError, "must return types, got 3"),
        (lambda x: dict[str, int]()["a"], GraphError, "its type rule raised KeyError: 'a'"),
        (lambda x: 1 // 0, GraphError, "its type rule raised ZeroDivisionError"),
        (lambda x: TensorType(DType.of("float17"), []), DTypeError, "float17"),
    ],
)
def test_rule_that_gives_no_type_is_reported_at_the_call(
    rule: Callable[..., Any], kind: type[GraphcoreError], text: str
) -> None:
    name = f"Rule{abs(hash((id(rule), text)))}"
    op = gc.custom_op(f"{DOMAIN}::{name}", rule)
    g = graph()
    with pytest.raises(kind, match=text) as caught:
        op(g[0])
    assert caught.value.line is not None
    assert caught.value.line.text == "op(g[0])"
    assert "float32[n, 3]" in str(caught.value)


def test_rule_refuses_by_value_and_type_errors() -> None:
    def rule(x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not y.dtype:
            raise TypeError(f"{x.dtype} and {y.dtype} are two")
        if x.shape != y.shape:
            raise ValueError("shapes differ")
        return x

    op = gc.custom_op(f"{DOMAIN}::Refuses", rule)
    g = graph()
    with pytest.raises(ShapeError, match=f"{DOMAIN}::Refuses: shapes differ"):
        op(g[0], np.ones(2, np.float32))
    with pytest.raises(DTypeError, match="Refuses: float32 and float64 are two"):
        op(g[0], np.ones(2))


# Declarations


@pytest.mark.parametrize("name", ["Name", "a::b::c", "a::", "::b", "a b::c", "a::1", 5, "ai.onnx::A", "graphcore::A"])
def test_declaration_refuses_names(name: Any) -> None:
    with pytest.raises(GraphError, match="custom_op"):
        gc.custom_op(name, lambda x: x)


def test_declaration_refuses_signatures() -> None:
    def number(x: TensorType, factor: float = 2.0) -> TensorType:
        return x

    def unknown(x: TensorType, *, mode=None) -> TensorType:  # type: ignore[no-untyped-def]
        return x

    def stars(x: TensorType, **others: int) -> TensorType:
        return x

    for rule, text in (
        (number, "the default of operand 'factor' must be None, got 2.0"),
        (unknown, "'mode'"),
        (stars, "is not supported"),
    ):
        with pytest.raises(GraphError, match=text):
            gc.custom_op(f"{DOMAIN}::Signature", rule)
    with pytest.raises(GraphError, match="no promotion is called 'up'"):
        gc.custom_op(f"{DOMAIN}::Signature", lambda x: x, promote="up")
    with pytest.raises(GraphError, match="promote names 'y', which is not an operand"):
        gc.custom_op(f"{DOMAIN}::Signature", lambda x: x, promote={"x y": "float"})
    with pytest.raises(DTypeError, match="float17"):
        gc.custom_op(f"{DOMAIN}::Signature", lambda x: x, dtypes={"x": "float17"})
    with pytest.raises(GraphError, match="types must be a function, got int"):
        gc.custom_op(f"{DOMAIN}::Signature", 5)  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="the function has the signature"):
        gc.custom_op(f"{DOMAIN}::Signature", lambda x: x, body=lambda x, y: x)
    assert lookup(DOMAIN, "Signature") is None


def test_declaring_again_replaces_the_same_function_and_refuses_another() -> None:
    first = fresh("Again")
    second = fresh("Again")
    assert lookup(DOMAIN, "Again") is second is not first
    with pytest.raises(GraphError, match=r"Again is already declared at test_custom_ops.py:\d+, by another function"):
        gc.custom_op(f"{DOMAIN}::Again", lambda x: x)
    assert lookup(DOMAIN, "Again") is second


def test_types_come_from_the_body_where_there_is_no_rule() -> None:
    def body(x: Symbol, w: Symbol) -> Symbol:
        return ops.relu(x @ w)

    op = gc.custom_op(f"{DOMAIN}::Dense", body=body, promote="arithmetic")
    g = graph(dims=("n", 3))
    output = op(g[0], np.ones((3, 2), np.float32))
    assert output.type == TensorType(DType.float32, ["n", 2])
    with pytest.raises(ShapeError, match=r"Dense: matmul: inner dimensions differ: 3 and 2") as caught:
        op(g[0], np.ones((2, 2), np.float32))
    assert caught.value.line is not None
    assert caught.value.line.path == __file__
    g.output(output)
    np.testing.assert_allclose(result(g, X)[0], np.maximum(X @ np.ones((3, 2), np.float32), 0), rtol=1e-6)


def test_rule_is_asked_once_for_a_signature() -> None:
    results: list[int] = []

    def rule(x: TensorType, *, k: int = 1) -> TensorType:
        results.append(k)
        return x

    op = gc.custom_op(f"{DOMAIN}::Asked", rule)
    g = graph()
    for _ in range(3):
        op(g[0])
        op(g[0], k=2)
    assert results == [1, 2]


def test_dims_that_a_body_names_are_others_in_each_call() -> None:
    op = gc.custom_op(f"{DOMAIN}::Where", body=lambda x: ops.nonzero(x, out_dim="m"))
    g = graph()
    first, second = op(g[0]), op(g[0])
    assert first.shape[0] != second.shape[0]
    g.output(first, second)
    for item in result(g, X):
        np.testing.assert_array_equal(item, np.argwhere(X))


# Bodies

OUTSIDE: Graph = graph()


def test_body_runs_in_every_dtype_with_the_numbers_of_its_ops() -> None:
    for dtype in (DType.float16, DType.bfloat16, DType.float32, DType.float64, DType.tensor_float32):
        g = graph(dtype)
        plain = graph(dtype)
        g.output(scaled_tanh(g[0], 1, scale=0.5))
        plain.output(ops.tanh(plain[0]) * 0.5 + 1)
        x = X.astype(dtype.numpy)
        assert result(g, x)[0].tobytes() == result(plain, x)[0].tobytes()


def test_body_that_gives_other_types_is_an_error() -> None:
    op = fresh("Other", body=lambda x, *, scale: x.cast(DType.float64))
    with pytest.raises(GraphError, match=r"its body returns float64\[n, 3\], but its type rule returns float32"):
        op(graph()[0])
    pair = fresh("Pair", body=lambda x, *, scale: (x + 1, x + 2))
    g = graph()
    g.output(pair(g[0]))
    np.testing.assert_array_equal(result(g, X)[0], X + 1)  # the results that the rule has


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda x, *, scale: 5, "must return Symbols, got int"),
        (lambda x, *, scale: x[7, 7, 7], "Bodies"),
        (lambda x, *, scale: dict[str, int]()["a"], "its body raised KeyError"),
        (lambda x, *, scale: Graph.current().weight("w", np.ones(3, np.float32)) + x, "its body creates weights"),
        (lambda x, *, scale: OUTSIDE[0] + x, "belongs to graph"),
    ],
)
def test_body_that_fails_is_reported_at_the_call(body: Callable[..., Any], text: str) -> None:
    fresh("Bodies", body=body)
    op = lookup(DOMAIN, "Bodies")
    assert op is not None
    with pytest.raises(GraphcoreError, match=text) as caught:
        op(graph()[0])
    assert caught.value.line is not None
    assert caught.value.line.text == "op(graph()[0])"


def test_recursion_names_the_ring() -> None:
    first = fresh("First", body=lambda x, *, scale: lookup(DOMAIN, "Second")(x))  # type: ignore[misc]
    fresh("Second", body=lambda x, *, scale: first(x))
    with pytest.raises(GraphError, match=f"{DOMAIN}::First -> {DOMAIN}::Second -> {DOMAIN}::First"):
        first(graph()[0])


def test_bodies_may_use_other_custom_ops_and_control_flow() -> None:
    @gc.custom_op(f"{DOMAIN}::Outer")
    def outer(x: TensorType) -> TensorType:
        return x

    @outer.body
    def _(x: Symbol) -> Symbol:
        y: Symbol = ops.cond(
            ops.sum(x) > 0, lambda: scaled_tanh(x, scale=2.0), lambda: moments(x)[0].reshape(-1, 1) + x * 0
        )
        return y

    g = graph()
    g.output(outer(g[0]))
    np.testing.assert_allclose(result(g, X)[0], np.tanh(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(result(g, -X)[0], np.broadcast_to(-X.mean(1, keepdims=True), X.shape), rtol=1e-6)
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        proto = g.to_onnx(target=target)
        onnx.checker.check_model(proto, full_check=True)
        np.testing.assert_allclose(result(Graph.load(proto), X)[0], np.tanh(X) * 2, rtol=1e-6)


def everywhere() -> Graph:
    """A graph with nodes in bodies, functions and beside them."""

    @gc.function
    def block(x: Symbol) -> Any:
        return scaled_tanh(x, scale=3.0)

    g = graph()
    x = g[0]
    a = scaled_tanh(x, scale=0.5)
    b = scaled_tanh(a, 1.0)
    c = block(b)
    d = ops.cond(ops.sum(x) > 0, lambda: scaled_tanh(c), lambda: c)
    e = ops.for_loop(3, lambda i, s: scaled_tanh(s, x), d)
    g.output(a=a, b=b, c=c, d=d, e=e)
    return g


def expected(x: Array) -> list[Array]:
    a = np.tanh(x) * np.float32(0.5)
    b = np.tanh(a) + 1
    c = np.tanh(b) * 3
    e = d = np.tanh(c) if x.sum() > 0 else c
    for _ in range(3):
        e = np.tanh(e) + x
    return [a, b, c, d, e]


def same(value: Graph) -> None:
    for x in (X, -X):
        for item, wanted in zip(result(value, x), expected(x), strict=True):
            np.testing.assert_allclose(item, wanted, rtol=1e-5, atol=1e-6)


def test_nodes_run_in_bodies_and_functions() -> None:
    same(everywhere())


def test_graphs_with_them_are_copied_pickled_and_optimised() -> None:
    g = everywhere()
    for again in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.optimize()):
        same(again)
    assert copy.deepcopy(scaled_tanh) is scaled_tanh
    assert pickle.loads(pickle.dumps(scaled_tanh)) is scaled_tanh


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("inline", [False, True])
def test_files_have_functions_of_the_domain_and_run_anywhere(target: TargetName, inline: bool) -> None:
    g = everywhere()
    proto = g.to_onnx(target=target, inline=inline)
    onnx.checker.check_model(proto, full_check=True)
    assert any(n.domain == DOMAIN for n in proto.graph.node) is not inline
    assert {f.domain for f in proto.functions} == (set() if inline else {DOMAIN, "graphcore.functions"})
    same(Graph.load(proto))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for item, wanted in zip(session.run(None, {"x": X}), expected(X), strict=True):
        np.testing.assert_allclose(item, wanted, rtol=1e-5, atol=1e-6)


def test_files_keep_attributes_and_places_of_operands() -> None:
    def rule(x: TensorType, y: TensorType | None = None, z: TensorType | None = None, *, k: int = 2) -> TensorType:
        return x

    op = gc.custom_op(f"{DOMAIN}::Places", rule, body=lambda x, y, z, *, k: x * k + (z if y is None else y))
    g = graph()
    g.output(op(g[0], None, g[0], k=5))
    proto = g.to_onnx(target="onnx")
    (node,) = proto.graph.node
    assert (node.domain, node.op_type, list(node.input)) == (DOMAIN, "Places", ["x", "", "x"])
    assert {a.name: a.i for a in node.attribute} == {"k": 5}
    onnx.checker.check_model(proto, full_check=True)
    np.testing.assert_array_equal(result(Graph.load(proto), X)[0], X * 6)
    np.testing.assert_array_equal(result(g, X)[0], X * 6)


def test_jit_traces_them() -> None:
    result = gc.jit(lambda x: scaled_tanh(x, scale=2.0))(X)
    np.testing.assert_allclose(np.asarray(result), np.tanh(X) * 2, rtol=1e-6)


def test_model_of_an_operator_without_a_body_keeps_the_node() -> None:
    op = fresh("Bare")
    g = graph()
    g.output(op(g[0], scale=0.5))
    targets: tuple[TargetName, ...] = ("onnx", "cpu")
    for target in targets:
        (node,) = g.to_onnx(target=target).graph.node
        assert (node.domain, node.op_type) == (DOMAIN, "Bare")
    with pytest.raises(GraphError, match="neither a body nor a Python function") as caught:
        gc.InferenceSession().load(g)
    assert ".python" in caught.value.help


# Third-party models


def model(name: str, attributes: dict[str, Any], inputs: list[str]) -> onnx.ModelProto:
    helper = onnx.helper
    node = helper.make_node(name, inputs, ["y"], domain=DOMAIN, **attributes)
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    out = helper.make_value_info("y", onnx.TypeProto())
    body = helper.make_graph([node], "g", [value], [out])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=10)


def test_reading_types_nodes_by_their_declaration() -> None:
    g = Graph.load(model("ScaledTanh", {"scale": 2.0}, ["x"]))
    assert g.outputs[0].type == TensorType(DType.float32, ["n", 3])
    np.testing.assert_allclose(result(g, X)[0], np.tanh(X) * 2, rtol=1e-6)
    defaulted = Graph.load(model("ScaledTanh", {}, ["x"]))
    np.testing.assert_allclose(result(defaulted, X)[0], np.tanh(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "inputs", "text"),
    [
        ({"alpha": 1.0}, ["x"], "no attribute 'alpha'"),
        ({"scale": "a"}, ["x"], "'scale' is 'a'"),
        ({}, ["x", "x", "x"], "it takes 2 operands, got 3"),
        ({}, ["", "x"], "the operand 'x' is missing"),
    ],
)
def test_reading_refuses_nodes_that_are_not_as_declared(
    attributes: dict[str, Any], inputs: list[str], text: str
) -> None:
    with pytest.raises(ModelError, match=text):
        Graph.load(model("ScaledTanh", attributes, inputs))


def test_load_says_what_to_declare_when_an_operator_is_undeclared() -> None:
    proto = model("Undeclared", {}, ["x"])
    with pytest.raises(ModelError, match=rf"the operator {DOMAIN}::Undeclared is not declared") as caught:
        gc.InferenceSession().load(proto)
    assert f"@gc.custom_op('{DOMAIN}::Undeclared')" in caught.value.help


def test_reading_what_uses_the_result_of_an_undeclared_operator_says_so() -> None:
    proto = model("Unheard", {}, ["x"])
    proto.graph.node.append(onnx.helper.make_node("Add", ["y", "y"], ["z"]))
    proto.graph.output[0].name = "z"
    with pytest.raises(ModelError, match=f"the runtime has the result type of {DOMAIN}::Unheard") as caught:
        Graph.load(proto)
    assert f"@gc.custom_op('{DOMAIN}::Unheard')" in caught.value.help


def test_unpickling_without_the_declaration_says_so() -> None:
    fresh("Gone")
    data = pickle.dumps(lookup(DOMAIN, "Gone"))
    program = f"import pickle, graphcore\npickle.loads({data!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"ModelError: the operator {DOMAIN}::Gone is not declared in this process" in done.stderr


def test_import_leaves_the_extension_and_the_runtimes_operators_alone() -> None:
    program = (
        "import sys, graphcore; from graphcore import ops\n"
        "assert not {'onnxruntime_extensions', 'onnxruntime', 'graphcore.ops.microsoft'} & set(sys.modules)\n"
        "assert ops.microsoft.Gelu.label == 'com.microsoft::Gelu'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
