"""Help of errors that ops raise: the layout that fits, the dims that certainly differ, the name that is close."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.support import escaping


def graph(*shape: int | str | Dim) -> Graph:
    return Graph("g", {"x": TensorType(DType.float32, shape)})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# Layouts


@pytest.mark.parametrize(
    ("shape", "filter", "layout", "fits"),
    [
        ((2, 32, 8, 8), ones(3, 3, 32, 5), "NHWC", "NCHW"),
        ((2, 8, 8, 32), ones(3, 3, 32, 5), "NCHW", "NHWC"),
        (("batch", 3, "h", "w"), ones(3, 3, 3, 5), "NHWC", "NCHW"),
    ],
)
def test_convolution_names_the_layout_that_would_fit(
    shape: tuple[int | str, ...], filter: np.ndarray, layout: str, fits: str
) -> None:
    x = graph(*shape)["x"]
    with pytest.raises(ShapeError, match=f"help: x looks like {fits}: give input_layout='{fits}'"):
        ops.conv2d(x, filter, input_layout=layout)
    assert ops.conv2d(x, filter, input_layout=fits).rank == 4


def test_convolution_in_groups_names_the_layout_that_would_fit() -> None:
    x = graph(2, 32, 8, 8)["x"]
    with pytest.raises(ShapeError, match="give input_layout='NCHW'"):
        ops.conv2d(x, ones(3, 3, 8, 4), groups=4)
    with pytest.raises(ShapeError, match="give input_layout='NCHW'"):
        ops.conv2d_transpose(x, ones(3, 3, 5, 32))
    with pytest.raises(ShapeError, match="x looks like NCDHW: give input_layout='NCDHW'"):
        ops.conv3d(graph(2, 32, 8, 8, 8)["x"], ones(3, 3, 3, 32, 5))


def test_convolution_names_no_layout_where_none_fits() -> None:
    with pytest.raises(ShapeError, match="help: the C of filter_layout='RSCF' must be"):
        ops.conv2d(graph(2, 32, 8, 8)["x"], ones(3, 3, 9, 5))


# Broadcasting


@pytest.mark.parametrize(
    ("shape", "other", "blamed"),
    [
        (("batch", 4), (3, 5), "4 and 5 at axis -1"),
        ((4, "n"), (5, 3), "4 and 5 at axis -2"),
        (("batch", 4), (3, 4), "batch and 3 at axis -2"),
        (("a", "b"), (2, 3), "a and 2 at axis -2"),
        (("a", 2, "b"), (7, 3, 9), "2 and 3 at axis -2"),
    ],
)
def test_dims_that_certainly_differ_are_blamed_first(
    shape: tuple[int | str, ...], other: tuple[int, ...], blamed: str
) -> None:
    with pytest.raises(ShapeError, match=f"add: shapes do not broadcast: {blamed}\n"):
        graph(*shape)["x"] + ones(*other)


# Dims as operands

OPERATORS: list[Callable[[Symbol, Dim], Symbol]] = [
    lambda x, n: x / n,
    lambda x, n: n * x,
    lambda x, n: n - x,
    lambda x, n: x + n,
    lambda x, n: x // n,
    lambda x, n: x % n,
    lambda x, n: x**n,
    lambda x, n: ops.maximum(x, n),
    lambda x, n: ops.where(x > n, x, n),
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_static_dim_is_an_operand_like_its_number(operator: Callable[[Symbol, Dim], Symbol]) -> None:
    g = graph("batch", 4)
    g.output(dim=operator(g["x"], g["x"].shape[1]), number=operator(g["x"], 4))  # type: ignore[arg-type]
    first, second = InferenceSession().load(g)(np.arange(8, dtype=np.float32).reshape(2, 4))
    assert first.dtype == second.dtype == np.float32
    assert np.array_equal(first, second)


@pytest.mark.parametrize("operator", OPERATORS)
def test_dim_that_is_not_known_names_the_way_out(operator: Callable[[Symbol, Dim], Symbol]) -> None:
    x = graph("batch", 4)["x"]
    with pytest.raises(
        DTypeError, match=r"is the dim batch, whose size is not known.*\n.*\n  help: .*ops.shape_of\(x\)\[axis\]"
    ):
        operator(x, x.shape[0])


# Names


@pytest.mark.parametrize(
    ("requested", "close"),
    [("sotfmax", "softmax"), ("reshap", "reshape"), ("layernorm", "layer_norm"), ("Concat", "concat")],
)
def test_op_that_is_misspelled_is_asked_for(requested: str, close: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"'graphcore.ops' has no attribute '{requested}'; did you mean .*{close}"
    ):
        getattr(ops, requested)


@pytest.mark.parametrize(
    ("requested", "written"), [("cat", "ops.concat"), ("mm", "ops.matmul"), ("inv", "graphcore.array_api.linalg.inv")]
)
def test_op_that_has_another_name_elsewhere_is_told(requested: str, written: str) -> None:
    with pytest.raises(AttributeError, match=rf"'graphcore.ops' has no attribute '{requested}'; it is {written}"):
        getattr(ops, requested)


@pytest.mark.parametrize(
    ("requested", "written"),
    [
        *[("exp", r"; write ops\.exp\(x\)"), ("astype", r"; write x\.cast\(dtype\)"), ("std", r"; write x\.stdev\(\)")],
        *[
            ("mm", r"; write ops\.matmul\(x\)"),
            ("reshpae", r"; did you mean reshape\?"),
            ("zzzzzz", "$"),
            ("_none", "$"),
        ],
    ],
)
def test_attribute_that_a_symbol_has_not_is_told_otherwise(requested: str, written: str) -> None:
    symbol = Graph("g", {"x": TensorType("float32", [2])})["x"]
    for value in (symbol, gc.tensor([1.0])):
        with pytest.raises(AttributeError, match=rf"has no attribute '{requested}'{written}"):
            getattr(value, requested)
        assert not hasattr(value, requested)
    with pytest.raises(AttributeError, match="it has a value when the graph has run"):
        symbol.numpy  # type: ignore[attr-defined]  # noqa: B018


def test_other_names_are_not_ops_and_lead_to_some() -> None:
    assert not {*escaping._OPS} & {*ops.__all__}
    assert {*escaping._OPS.values()} <= {*ops.__all__}
    assert not {*escaping._METHODS} & {name for name in dir(Symbol) if name[0] != "_"}
    assert all(hasattr(gc.array_api.linalg, name) for name in escaping._LINALG)


def test_op_that_is_like_none_has_no_suggestion() -> None:
    assert not hasattr(ops, "zzzzzz")
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzzzz'$"):
        ops.zzzzzz  # type: ignore[attr-defined]  # noqa: B018


# Graphs of one name


def test_graphs_of_one_name_are_told_apart_by_where_they_were_made() -> None:
    first = graph("n")
    second = graph("n")
    with pytest.raises(GraphError) as error:
        first["x"] + second["x"]
    result = first.inputs[0].line, second.inputs[0].line
    assert f"belongs to graph 'g' of {result[1]}, not to 'g' of {result[0]}" in str(error.value)


def test_graphs_of_one_name_without_inputs_are_told_apart_by_what_they_have() -> None:
    first, second = Graph("g"), Graph("g")
    x = first.constant(1.0)
    with pytest.raises(GraphError, match=rf"belongs to graph 'g' of {x.line}, not to 'g'\n"):
        second.output(x)


def test_graphs_of_two_names_are_told_apart_by_those() -> None:
    other = Graph("h", {"x": TensorType(DType.float32, [2])})
    with pytest.raises(GraphError, match="belongs to graph 'h', not to 'g'\n"):
        graph(2)["x"] + other["x"]


def test_uncaught_error_has_one_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    symbol = Graph("g", {"x": TensorType("float32", [2])})["x"]
    for value in (symbol, gc.tensor([1.0]), ops):
        with pytest.raises(AttributeError) as raised:
            getattr(value, "reshpe")  # noqa: B009 - type checkers know that there is none
        sys.__excepthook__(raised.type, raised.value, None)  # which adds Python's own suggestion
        assert capsys.readouterr().err.lower().count("did you mean") == 1
