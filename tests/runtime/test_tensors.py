"""Eager Tensors: what they hold, compute and print, and how ambiguity goes from call to call."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, Tensor, TensorType
from graphcore import ops as functions
from graphcore.errors import DTypeError, GraphcoreError, GraphError, PromotionError, ShapeError
from graphcore.promotion import NAMES, system

D = DType
ops: Any = functions  # whose types are those of Symbols


def anvil(value: Any, dtype: object = None, **options: Any) -> Any:
    return gc.tensor(value, dtype, promotion="anvil", **options)


def shown(tensor: Tensor) -> str:
    return str(tensor.type)


def lines(tensor: Tensor) -> list[str]:
    return str(tensor).split("\n")


# The vignette's examples


def test_sum_of_f32_and_f64_prints_as_the_vignette() -> None:
    add = gc.jit(lambda x, y: x + y, promotion="anvil")
    assert lines(add(anvil(1.0, "f32"), anvil(1.0, "f64"))) == ["AnvilTensor", " 2.0000", "[ CPUf64{} ]"]


def test_literals_have_the_default_types_of_the_vignette() -> None:
    results = gc.jit(lambda: [1, 1.0, True], promotion="anvil")()
    assert isinstance(results, list)
    assert [lines(m) for m in results] == [
        ["AnvilTensor", " 1", "[ CPUi32{} ]"],
        ["AnvilTensor", " 1.0000", "[ CPUf32{} ]"],
        ["AnvilTensor", " 1", "[ CPUpred{} ]"],
    ]
    assert [shown(m) for m in results] == ["int32?[]", "float32?[]", "bool[]"]
    assert {m.device for m in results} == {"cpu"}


def test_ambiguity_is_propagated_as_in_the_vignette() -> None:
    f = gc.jit(lambda x, y: (x + 1) * y, promotion="anvil")
    result = f(anvil(True), anvil(2, "i16"))
    assert lines(result) == ["AnvilTensor", " 4", "[ CPUi16{} ]"]
    assert not result.ambiguous


def test_ambiguity_survives_a_call_and_the_next_one() -> None:
    z = gc.jit(lambda x: x + 1, promotion="anvil")(anvil(True))
    assert shown(z) == "int32?[]"
    assert shown(gc.jit(lambda x: x * 2, promotion="anvil")(z)) == "int32?[]"
    assert shown(gc.jit(lambda x, y: x * y, promotion="anvil")(z, anvil(2, "i16"))) == "int16[]"
    assert shown(z * anvil(2, "i16")) == "int16[]"
    assert shown(anvil(2, "i32") * anvil(2, "i16")) == "int32[]", "which is what a known int32 makes"
    assert repr(z) == "Tensor(2, dtype=int32?, promotion=anvil)"


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.0, -2.5], [" 1.0000", "-2.5000", "[ CPUf32{2} ]"]),
        ([[1, 20], [300, 4]], ["   1   20", " 300    4", "[ CPUi32{2,2} ]"]),
        (np.array([7], np.uint8), [" 7", "[ CPUui8{1} ]"]),
        (np.zeros((2, 0)), [" ", " ", "[ CPUf64{2,0} ]"]),
        (np.arange(4).reshape(2, 1, 2), ["(1,.,.) =", " 0  1", "(2,.,.) =", " 2  3", "[ CPUi64{2,1,2} ]"]),
    ],
)
def test_arrays_print_in_aligned_columns(values: Any, want: list[str]) -> None:
    result = lines(anvil(values))
    assert result[0] == "AnvilTensor"
    assert [line.strip() for line in result[1:]] == [line.strip() for line in want]
    assert str(anvil(np.zeros(40))).endswith(" ... [10 more rows]\n[ CPUf64{40} ]")


# What they hold


def test_tensor_has_the_dtype_that_is_said_or_its_own() -> None:
    assert shown(anvil(2.0, "f32")) == "float32[]"
    assert shown(anvil(2)) == "int32[]"
    assert shown(anvil([True, False])) == "bool[2]"
    assert shown(anvil(2, ambiguous=True)) == "int32?[]"
    assert shown(gc.tensor(2)) == "int64[]"
    assert shown(gc.tensor(2.5, promotion="kernel_float")) == "float64[]"
    assert shown(gc.tensor(np.array([1, 2], np.float16))) == "float16[2]"
    assert shown(gc.tensor(ml_dtypes.bfloat16(2))) == "bfloat16[]"
    assert shown(gc.tensor(1, "u1", promotion="allo_cpp")) == "bool[]"
    assert shown(gc.tensor(1 << 70, DType.int(80))) == "int80[]"
    assert shown(gc.tensor(1, "tf32")) == "tensor_float32[]"
    assert shown(anvil(xp.asarray([1, 2]))) == "int64[2]"
    assert shown(anvil(anvil(2, ambiguous=True))) == "int32?[]"
    assert shown(anvil(anvil(2, ambiguous=True), "i8")) == "int8[]"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: anvil(300, "i8"), DTypeError, "tensor: 300 cannot be held in int8"),
        (lambda: anvil(object()), DTypeError, "tensor: <object"),
        (lambda: gc.tensor(Graph("g", [TensorType("int8")])[0]), DTypeError, "cannot be converted to a tensor"),
        (lambda: gc.tensor(1j), PromotionError, "max has no complex numbers"),
        (lambda: gc.tensor(object()), DTypeError, "cannot be converted to a tensor"),
        (lambda: anvil([[1], [1, 2]]), DTypeError, "cannot be converted to a tensor"),
        (lambda: anvil(1, "no such"), DTypeError, "no dtype is called"),
        (lambda: gc.tensor(1, promotion="none"), PromotionError, "no promotion system is called 'none'"),
        (lambda: gc.tensor(1, ambiguous=True), GraphError, "promotion system max has no ambiguous dtypes"),
        (lambda: Tensor(1), GraphError, "a Tensor is not created by its class"),
        (lambda: anvil(1) + gc.tensor(1), PromotionError, "Tensors must be of one promotion system, got anvil and max"),
        (lambda: anvil(np.float16(1)) + 1, PromotionError, "anvil has no float16"),
        (lambda: anvil(1, "i8") + 300, DTypeError, "300 cannot be held in int8"),
        (lambda: gc.tensor([1, 2]) + gc.tensor([1, 2, 3]), ShapeError, "broadcast"),
        (lambda: anvil([1, 2])[2], IndexError, "index 2 is out of bounds"),
        (lambda: anvil([1, 2])["a"], GraphcoreError, ""),
        (lambda: anvil([1, 2]).item(), ShapeError, "has 2 elements"),
        (lambda: bool(anvil([1, 2])), DTypeError, "an array of rank 1 is not a scalar"),
        (lambda: operator.setitem(anvil([1, 2]), 0, 1), GraphError, "a Tensor is immutable"),
        (lambda: anvil(1).nothing, AttributeError, "a Tensor has no attribute 'nothing'"),
        (lambda: anvil(1) + None, TypeError, "unsupported operand"),
        (lambda: hash(anvil(1)), TypeError, "unhashable"),
        (
            lambda: gc.jit(lambda x: x)(anvil(1)),
            PromotionError,
            "the function is traced under max, got a Tensor of anvil",
        ),
        (lambda: ops.concat([anvil([1]), {1}]), DTypeError, "or hashable, got set"),
    ],
)
def test_bad_input_is_an_error_that_says_what(make: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert says in str(raised.value)


def test_values_go_to_python_and_other_libraries() -> None:
    x = anvil([[1.5, 2.0]], "f64")
    assert (x.shape, x.ndim, x.rank, x.size, len(x)) == ((1, 2), 2, 2, 2, 1)
    assert x.numpy().tolist() == x.tolist() == [[1.5, 2.0]]
    assert np.asarray(x).dtype == np.float64
    assert np.array(x, np.float32).dtype == np.float32
    assert np.from_dlpack(x).tolist() == [[1.5, 2.0]]
    assert (float(x[0, 1]), int(x[0, 1]), x[0, 1].item(), bool(x[0, 1])) == (2.0, 2, 2.0, True)
    assert [1, 2, 3][anvil(1)] == 2
    assert [row.tolist() for row in x] == [[1.5, 2.0]]
    assert 2.0 in x
    assert (f"{x[0, 0]:.2f}", f"{gc.tensor(1.5, 'bfloat16'):>5}", f"{gc.tensor(7):03d}") == ("1.50", "  1.5", "007")
    assert f"{x}" == str(x)
    with pytest.raises(DTypeError, match="format: an array of rank 2 is not a scalar"):
        f"{x:.2f}"
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0, 0] = 1
    own = np.zeros(2)
    result = gc.tensor(own)
    own[0] = 1
    assert result.tolist() == [0, 0], "values are copied"
    again = pickle.loads(pickle.dumps(anvil(1, ambiguous=True)))
    assert (shown(again), again.promotion) == ("int32?[]", system("anvil"))
    assert copy.deepcopy(x) is x
    assert x.type == TensorType("float64", [1, 2])


# What they compute


OPERATORS: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt,
    operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.pow,
]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NAMES if name != "max_published"])
def test_operators_give_what_a_graph_of_the_system_gives(name: str) -> None:
    a, b = np.array([7, -3, 2], np.int32), np.array([2, 2, 3], np.int32)
    for call in OPERATORS:
        graph = Graph("g", {"x": TensorType("int32", [3]), "y": TensorType("int32", [3])}, promotion=name)
        try:
            want = call(*graph.inputs)
        except GraphcoreError as error:
            with pytest.raises(type(error)):
                call(gc.tensor(a, promotion=name), gc.tensor(b, promotion=name))
            continue
        graph.output(want)
        (values,) = gc.InferenceSession().load(graph)(a, b)
        x, y = gc.tensor(a, promotion=name), gc.tensor(b, promotion=name)
        for item in (call(x, y), call(x, b), call(a, y)):
            assert (item.dtype, item.promotion) == (want.dtype, system(name)), call
            if want.dtype.bits <= 64:
                assert np.array_equal(item.numpy(), values), call
        assert call(x, y).numpy().dtype == want.dtype.numpy


def test_ufuncs_of_numpy_give_tensors() -> None:
    x, y = np.array([1.0, 4.0]), np.array([2.0, 3.0])
    tensor: Any = gc.tensor(x)
    ufunc: Any
    for ufunc in (np.sqrt, np.exp, np.negative, np.isfinite, np.signbit):
        result = ufunc(tensor)
        assert type(result) is Tensor
        np.testing.assert_allclose(result.numpy(), ufunc(x), rtol=1e-15)
    for ufunc in (np.add, np.power, np.maximum, np.less, np.hypot, np.copysign):
        for got, want in ((ufunc(tensor, y), ufunc(x, y)), (ufunc(y, tensor), ufunc(y, x))):
            assert type(got) is Tensor
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-15)
    assert str(np.add(tensor, np.float32(1)).type) == "float64[2]"
    assert str(np.multiply(anvil(1, "int8"), anvil(2, ambiguous=True)).type) == "int8[]"


def test_properties_of_symbols_are_those_of_tensors() -> None:
    z = gc.tensor([[1 + 2j, 3 - 1j]], promotion="array_api")
    assert (z.real.tolist(), z.imag.tolist(), z.conj().tolist()) == ([[1, 3]], [[2, -1]], [[1 - 2j, 3 + 1j]])
    assert z.mT.tolist() == [[1 + 2j], [3 - 1j]]
    for name in ("allo_hls", "allo_cpp", "max"):
        x = gc.tensor([0xABCD, 0x1234], "uint16", promotion=name)
        assert (shown(x.bits[7:4]), x.bits[7:4].tolist()) == ("uint4[2]", [0xC, 3])
        assert (shown(x.bits[3]), x.bits[3].tolist()) == ("bool[2]", [True, False])
        assert x.bits[np.int64(0)].tolist() == x.bits[gc.tensor(0, promotion=name)].tolist() == [True, False]
        assert x.with_bits(7, 4, 5).tolist() == [0xAB5D, 0x1254]
    wide = (1 << 149) + 12345
    assert gc.tensor(wide, "uint150", promotion="allo_hls").bits[149:3].item() == wide >> 3
    with pytest.raises(GraphError, match="a Tensor is immutable"):
        x.bits[0] = 1
    with pytest.raises(ShapeError, match="higher end first"):
        x.bits[0:7]


def test_a_complex_number_beside_a_tensor_is_a_literal() -> None:
    z = gc.tensor([1 + 2j, 3 - 1j], promotion="array_api")
    assert (z * 1j).tolist() == (1j * z).tolist() == [-2 + 1j, 1 + 3j]
    assert shown(z * 1j) == "complex64[2]"
    assert (z == 1 + 2j).tolist() == [True, False]
    with pytest.raises(GraphcoreError, match="has no complex numbers"):
        gc.tensor([1.0, 2.0]) * 1j


def test_ops_methods_and_indices_take_tensors() -> None:
    x = anvil([[1.0, 4.0], [9.0, 16.0]])
    assert ops.sqrt(x).tolist() == [[1, 2], [3, 4]]
    assert x.sum(axis=0).tolist() == ops.sum(x, axis=0).tolist() == [10, 20]
    assert ops.concat([x, x], axis=1).shape == (2, 4)
    assert (x @ x).tolist() == [[37, 68], [153, 292]]
    assert x.T.tolist() == [[1, 9], [4, 16]]
    assert ops.where(x > 4, x, 0).tolist() == [[0, 0], [9, 16]]
    assert x.cast("i8").dtype is D.int8
    values, positions = ops.top_k(x, 1)
    assert (values.tolist(), positions.dtype) == ([[4], [16]], D.int32)
    assert abs(-x).tolist() == x.tolist()
    assert (+x).dtype is (2 - x).dtype is D.float32
    keys: list[Any] = [0, -1, (0, 1), slice(None, None, -1), (..., 1), (None, 0), (slice(0, 1), slice(1))]
    for key in keys:
        assert x[key].tolist() == x.numpy()[key].tolist(), key
    assert x[anvil([1, 0])].tolist() == [[9, 16], [1, 4]]
    assert x[x > 4].tolist() == [9, 16]
    assert ops.cond(anvil(True), lambda: x, lambda: -x).tolist() == x.tolist()
    assert shown(ops.into_vec(gc.tensor(2, promotion="kernel_float"))) == "int32[1]"
    assert isinstance(np.array([1, 1], np.float32) * x, Tensor)
    assert x._data is not x.numpy()


def test_every_width_computes_at_once() -> None:
    x = gc.tensor([3, -4], "i64", promotion="allo_hls")
    product = x * gc.tensor(1 << 40, "i64", promotion="allo_hls") * x
    assert (str(product.dtype), product.tolist()) == ("int192", [9 << 40, 16 << 40])
    assert (product + product).tolist() == [18 << 40, 32 << 40]
    assert gc.tensor(300, DType.int(23), promotion="allo_cpp").cast("i8").item() == 44
    assert (gc.tensor(1, "u1", promotion="allo_hls") + gc.tensor(True, promotion="allo_hls")).item() == 2
    assert (gc.tensor(1.5, "bf16") * 2).dtype is D.bfloat16


def test_tensor_beside_a_symbol_is_a_constant_as_ambiguous_as_it_is() -> None:
    graph = Graph("g", {"x": TensorType("int16", [2])}, promotion="anvil")
    x = graph["x"]
    guess, expected = anvil([1, 2], ambiguous=True), anvil([1, 2])
    items = [x + guess, x + expected, ops.mul(guess, x), guess * x, expected - x]
    assert [s.dtype for s in items] == [D.int16, D.int32, D.int16, D.int16, D.int32]
    graph.output(*items)
    results = gc.InferenceSession().load(graph)(np.array([5, 6], np.int16))
    assert [r.tolist() for r in results] == [[6, 8], [6, 8], [5, 12], [5, 12], [-4, -4]]
    with graph:
        assert ops.constant(expected).dtype is D.int32


def test_jit_gives_tensors_for_tensors_and_arrays_for_arrays() -> None:
    double = gc.jit(lambda tree: {"twice": tree["x"] * 2, "both": (tree["x"], tree["y"])}, promotion="anvil")
    x, y = anvil([1, 2], "i8"), anvil([0.5])
    result = double({"x": x, "y": y})
    assert result["twice"].tolist() == [2, 4]
    assert [shown(m) for m in result["both"]] == ["int8[2]", "float32[1]"]
    assert type(gc.jit(lambda a: a + 1, promotion="anvil")(np.array([1], np.int8))) is np.ndarray
    assert type(gc.jit(lambda a, b: a + b, promotion="anvil")(np.array([1], np.int8), anvil(1))) is Tensor
    assert type(gc.jit(lambda a: a + 1)(gc.tensor([1]))) is Tensor
    assert type(gc.jit(lambda a: a + 1)(xp.asarray([1]))) is np.ndarray
    bias = anvil([10, 20], "i8")
    assert gc.jit(lambda a: a + bias * 2, promotion="anvil")(x).tolist() == [21, 42]
    assert gc.jit(lambda: bias, promotion="anvil")().tolist() == [10, 20]
    assert [str(s.type) for s in double.graph({"x": anvil(1, ambiguous=True), "y": y}).inputs] == [
        "int32?[]",
        "float32[?]",
    ]


def test_function_is_traced_once_for_a_signature() -> None:
    from graphcore.runtime.tracing import dispatch

    x, y = anvil([1.0, 2.0]), anvil([3.0, 4.0, 5.0])
    before = dispatch._trace.cache_info().misses
    ops.maximum(x, x)
    after = dispatch._trace.cache_info().misses
    assert after - before <= 1
    ops.maximum(y, y)
    assert dispatch._trace.cache_info().misses == after, "sizes are names"


def test_accuracy_of_a_block_counts_for_calls_within_it() -> None:
    x = anvil(1e-6, "f32")
    jitted = gc.jit(lambda a: ops.expm1(a), promotion="anvil")
    exact = ops.expm1(x).item()
    for call in (ops.expm1, jitted):
        with gc.accuracy("fast"):
            assert call(x).item() != exact
        assert call(x).item() == exact
    assert ops.expm1(x, accuracy="fast").item() != exact
