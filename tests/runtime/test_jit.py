"""Functions of Symbols called with arrays."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import Symbol, ops
from graphcore.errors import DTypeError, FeedError, GraphError

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]


def test_function_computes_on_arrays_when_jitted() -> None:
    @gc.jit
    def scaled(x: Symbol, y: Symbol) -> Symbol:
        """Its own docstring."""
        return x * y + 1

    assert scaled.__doc__ == "Its own docstring."
    x, y = np.arange(3, dtype=np.int8), np.array([0.5, 1, 2], np.float32)
    got = scaled(x, y)
    assert got.dtype == np.float32
    assert np.array_equal(got, x * y + 1)


def test_function_is_traced_once_for_each_signature() -> None:
    traced = []

    @gc.jit
    def double(x: Symbol) -> Symbol:
        traced.append(x.type)
        return x * 2

    for size in (3, 5, 0):
        assert double(np.ones(size, np.float32)).shape == (size,)
    double(np.ones((2, 2), np.float32))
    double(np.ones(3, np.int32))
    double(np.ones(3, ">i4"))
    assert [str(t) for t in traced] == ["float32[?]", "float32[?, ?]", "int32[?]"]


def test_other_arguments_are_part_of_the_signature() -> None:
    @gc.jit
    def power(x: Symbol, n: int, *, negative: bool = False) -> Symbol:
        return -(x**n) if negative else x**n

    x = np.array([1.0, 2.0], np.float32)
    assert power(x, 2).tolist() == [1, 4]
    assert power(x, 3).tolist() == [1, 8]
    assert power(x, 3, negative=True).tolist() == [-1, -8]
    with pytest.raises(FeedError, match="argument 1 must be a Symbol, an array or hashable, got set"):
        power(x, {2})
    with pytest.raises(FeedError, match=r"argument 1\.k\.0 must be a Symbol, an array or hashable, got bytearray"):
        power(x, {"k": [bytearray()]})


def test_arrays_in_tuples_lists_and_dicts_are_traced() -> None:
    traced = []

    @gc.jit
    def layer(params: dict[str, Any], xs: list[Symbol], *, scale: tuple[Any, int]) -> dict[str, Any]:
        traced.append(params)
        return {"y": (xs[0] @ params["w"] + params["b"], xs[1] * scale[0] ** scale[1]), "b": [params["b"]]}

    rng = np.random.default_rng(0)
    for size in (2, 3):
        params = {"w": rng.random((4, size)).astype(np.float32), "b": np.ones(size, np.float32)}
        x, factor = rng.random((3, 4)).astype(np.float32), np.array([2], np.int32)
        got = layer(params, [x, np.arange(2)], scale=(factor, 3))
        assert np.allclose(got["y"][0], x @ params["w"] + 1)
        assert got["y"][1].tolist() == [0, 8]
        assert got["b"][0].tolist() == [1] * size
    assert len(traced) == 1
    layer(params, [x, np.arange(2)], scale=(factor, 2))
    layer(dict(reversed(params.items())), [x, np.arange(2)], scale=(factor, 2))
    assert len(traced) == 3
    assert [s.name for s in traced[0].values()] == ["params.w", "params.b"]


def test_result_has_the_structure_that_was_returned() -> None:
    x = np.array([3, 1], np.int32)
    assert isinstance(gc.jit(lambda s: (s, s + 1))(x), tuple)
    assert isinstance(gc.jit(lambda s: [s, s + 1])(x), list)
    named = gc.jit(lambda s: {"least": ops.min(s, axis=0), "all": s})(x)
    assert named["least"] == 1
    assert named["all"].tolist() == [3, 1]


def test_result_that_is_not_a_symbol_is_refused() -> None:
    with pytest.raises(GraphError, match="jit: the function must return Symbols, got set"):
        gc.jit(lambda s: {3})(np.ones(2))


def test_promotion_system_is_the_one_asked_for() -> None:
    x, y = np.array([True]), np.array([3], np.uint64)
    assert gc.jit(lambda a, b: a + b, promotion="max_published")(x, y).dtype == np.uint64


def test_threads_share_one_trace() -> None:
    traced = []

    @gc.jit
    def slow(x: Symbol) -> Symbol:
        traced.append(x)
        return x + 1

    results: list[Array] = []
    threads = [threading.Thread(target=lambda: results.append(slow(np.ones(4)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1
    assert all(r.tolist() == [2.0] * 4 for r in results)


def test_zeros_of_both_signs_and_bools_are_different_arguments() -> None:
    @gc.jit
    def times(x: Symbol, factor: Any) -> Any:
        return x * (factor[0] if isinstance(factor, tuple) else factor)

    x = np.ones(1, np.float32)
    for zero in (0.0, -0.0, np.float32(0.0), np.float32(-0.0), (0.0,), (-0.0,)):
        expected = zero[0] if isinstance(zero, tuple) else zero
        assert np.signbit(times(x, zero)[0]) == np.signbit(expected)
    assert gc.jit(lambda a, b: a + b)(np.ones(1, np.int8), 1).dtype == np.int8


def test_nan_is_traced_once() -> None:
    traced = []

    @gc.jit
    def plus(x: Symbol, y: float) -> Symbol:
        traced.append(y)
        return x + y

    for _ in range(3):
        plus(np.ones(1), float("nan"))
    assert len(traced) == 1


def test_arguments_are_told_apart_whatever_they_are_called() -> None:
    @gc.jit
    def minus(*arguments: Symbol, **named: Symbol) -> Symbol:
        return arguments[0] - named["arg0"]

    assert minus(np.array([3]), arg0=np.array([1])).tolist() == [2]

    @gc.jit
    def order(a: Symbol, b: Symbol) -> Symbol:
        return a - b

    three, one = np.array([3]), np.array([1])
    assert order(three, one) == order(three, b=one) == order(b=one, a=three) == 2
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        order(three)


def test_function_builds_into_the_graph_when_called_while_another_is_traced() -> None:
    inner = gc.jit(lambda x: x + 1)
    outer = gc.jit(lambda x: inner(x) * 2)
    assert outer(np.array([1, 2])).tolist() == [4, 6]


def test_method_can_be_jitted() -> None:
    class Scale:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        @gc.jit
        def apply(self, x: Symbol) -> Symbol:
            return x * self.factor

    assert [Scale(f).apply(np.array([2]))[0] for f in (3, 4)] == [6, 8]


def test_dtype_that_no_graph_has_is_refused() -> None:
    with pytest.raises(FeedError, match=r"jit: argument 'x' has dtype datetime64\[D\], which graphs do not support"):
        gc.jit(lambda x: x)(np.ones(1, "M8[D]"))


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(GraphError, match="jit: function must be callable, got int"):
        gc.jit(3)  # type: ignore[call-overload]


def test_failed_trace_is_not_kept() -> None:
    broken = [True]

    @gc.jit
    def sometimes(x: Symbol) -> Any:
        return None if broken[0] else x

    with pytest.raises(GraphError):
        sometimes(np.ones(1))
    broken[0] = False
    assert sometimes(np.ones(1)).tolist() == [1]


# NumPy scalars, constants and the graph


def test_numpy_scalars_promote_by_the_graphs_rules() -> None:
    def fused(x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    with pytest.warns(gc.LossyCastWarning, match="mul: the implicit cast of rhs from uint64 to int64"):
        got = gc.jit(fused, promotion="anvil")(np.int64(2), np.uint64(3), np.zeros(1, np.int64))
    assert got.dtype == np.int64
    assert got.tolist() == [6]


SCALARS = [
    np.bool_(True), np.int8(-3), np.uint16(7), np.int64(1 << 40), np.float16(1.5), np.float32(0.1),
    np.float64(0.1), ml_dtypes.bfloat16(2.5), ml_dtypes.float8_e4m3fn(0.5),
]  # fmt: skip


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_numpy_scalar_is_an_operand_of_its_own_dtype(scalar: Any) -> None:
    traced = []

    @gc.jit
    def same(x: Symbol, more: list[Any]) -> Any:
        traced.append((x.type, more[0].type))
        return x, {"more": more}

    for value in (scalar, type(scalar)(0)):
        got, rest = same(value, [value])
        for array in (got, rest["more"][0]):
            assert array.dtype == np.asarray(scalar).dtype
            assert array.shape == ()
            assert array.tobytes() == np.asarray(value).tobytes()
    assert traced == [(gc.TensorType(np.asarray(scalar).dtype),) * 2]


def test_numpy_text_belongs_to_the_signature() -> None:
    @gc.jit
    def scaled(x: Symbol, how: str) -> Symbol:
        return x * 2 if how == "twice" else x

    assert scaled(np.ones(1, np.float32), np.str_("twice")).tolist() == [2]
    assert scaled(np.ones(1, np.float32), np.str_("once")).tolist() == [1]


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long doubles are float64 on this system")
def test_numpy_scalar_that_no_graph_computes_with_is_refused() -> None:
    with pytest.raises(FeedError, match=r"jit: argument 'x' has dtype float\d+, which graphs do not support"):
        gc.jit(lambda x: x)(np.longdouble(1))


def test_numbers_and_arrays_that_are_returned_are_constants() -> None:
    @gc.jit
    def mixed(x: Symbol) -> Any:
        return {"one": 1, "all": [x, (2.5, True)], "none": None, "array": np.arange(2), "scalar": np.float16(3)}

    got = mixed(np.ones(2, np.float32))
    assert list(got) == ["one", "all", "none", "array", "scalar"]
    assert got["none"] is None
    assert (got["one"].dtype, got["one"].item()) == (np.int64, 1)
    assert got["all"][0].tolist() == [1, 1]
    assert [(a.dtype, a.item()) for a in got["all"][1]] == [(np.float32, 2.5), (np.bool_, True)]
    assert got["array"].tolist() == [0, 1]
    assert got["scalar"].dtype == np.float16


def test_function_of_constants_alone_runs() -> None:
    assert gc.jit(lambda: 7)().item() == 7
    assert [a.item() for a in gc.jit(lambda x: (1, 1))(np.ones(3))] == [1, 1]


@pytest.mark.parametrize("result", [None, (), [None], "text", 1j, object()])
def test_function_that_returns_no_values_is_refused(result: Any) -> None:
    with pytest.raises(GraphError, match=f"jit: the function must return Symbols, got {type(result).__name__}"):
        gc.jit(lambda x: result)(np.ones(3))


def test_dim_that_is_returned_names_the_way_out() -> None:
    with pytest.raises(DTypeError, match=r"jit: a result is the dim \?.*\n.*\n  help: .*ops.shape_of\(x\)\[axis\]"):
        gc.jit(lambda x: x.shape[0])(np.ones(3))


def test_graph_of_a_call_is_traced_and_not_run() -> None:
    @gc.jit
    def scaled(x: Symbol, params: dict[str, Any], n: int = 1) -> Any:
        return {"y": x @ params["w"] * n, "n": n}

    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    graph = scaled.graph(x, {"w": w}, n=3)
    assert isinstance(graph, gc.Graph)
    assert [(s.name, str(s.type)) for s in graph.inputs] == [("x", "float32[?, ?]"), ("params.w", "float32[?, ?]")]
    assert [n.op_type for n in graph.nodes] == ["MatMul", "Mul"]
    first, second = gc.InferenceSession().load(graph)(x, w)
    assert np.array_equal(first, scaled(x, {"w": w}, n=3)["y"])
    assert second == 3
    assert scaled.graph(x, {"w": w}, n=3) is not graph


def test_graph_of_a_call_follows_the_promotion_and_takes_numbers() -> None:
    graph = gc.jit(lambda x, y: x * y, promotion="anvil").graph(np.int64(2), 3)
    assert graph.promotion.name == "anvil"
    assert [str(s.type) for s in graph.inputs] == ["int64[]", "int32?[]"]


def test_graph_of_a_call_refuses_what_a_call_refuses() -> None:
    double = gc.jit(lambda x: x * 2)
    with pytest.raises(FeedError, match="or hashable, got set"):
        double.graph({1})
    with pytest.raises(FeedError, match=r"jit: \.graph\(\) traces arrays, got a Symbol"):
        double.graph(gc.Graph("g", {"x": gc.TensorType("float32")})["x"])
    with pytest.raises(GraphError, match="must return Symbols, got NoneType"):
        gc.jit(lambda x: None).graph(np.ones(2))
