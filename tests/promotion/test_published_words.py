"""Sentences and examples of the publications that are not in their tables, one row each."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
import graphcore.array_api as xp
from graphcore import Buffer, DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import DTypeError, PromotionError, ShapeError
from graphcore.promotion import common_dtype, explain, system
from graphcore.types.tensor_types import SequenceType

D = DType
ALLO = ("allo_hls", "allo_cpp")


def graph_of(promotion: str, **types: Any) -> Graph:
    named = {name: t if isinstance(t, (TensorType, Buffer)) else TensorType(t, ["n"]) for name, t in types.items()}
    return Graph("words", named, promotion=promotion)


def run(graph: Graph, outputs: list[Symbol], *arrays: Any) -> list[Any]:
    graph.output(*outputs)
    return [result.tolist() for result in gc.InferenceSession().load(graph)(*map(np.asarray, arrays))]


# Spellings


@pytest.mark.parametrize(
    ("name", "spelling", "dtype"),
    [
        ("anvil", "i1", D.bool), ("anvil", "pred", D.bool), ("anvil", "ui8", D.uint8), ("anvil", "f64", D.float64),
        ("kernel_float", "b", D.bool), ("kernel_float", "f8", D.float8_e4m3fn), ("kernel_float", "int", D.int32),
        ("kernel_float", "long", D.int64), ("kernel_float", "unsigned int", D.uint32),
        ("kernel_float", "size_t", D.uint64), ("kernel_float", "half", D.float16), ("kernel_float", "float", D.float32),
        ("kernel_float", "bfloat16", D.bfloat16), ("kernel_float", "double", D.float64),
        ("allo_hls", "u1", D.bool), ("allo_cpp", "u1", D.bool), ("allo_cpp", D.uint(1), D.bool),
        ("allo_hls", "apint(23, signed=True)", D.int(23)), ("allo_hls", "apint(17)", D.uint(17)),
        ("allo_cpp", "apint(1)", D.bool), ("allo_cpp", "index", D.index), ("allo_cpp", "bf16", D.bfloat16),
        ("max", "tensor_float_32", D.tensor_float32), ("max", "address", D.address),
        ("array_api", "f2", D.float16), ("array_api", "f4", D.float32), ("array_api", "f8", D.float64),
        ("array_api", "i8", D.int64), ("array_api", "u1", D.uint8), ("array_api", "u4", D.uint32),
    ],
)  # fmt: skip
def test_dtype_is_read_as_its_publication_writes_it(name: str, spelling: object, dtype: DType) -> None:
    assert system(name).dtype_of(spelling) is dtype
    if dtype in system(name).dtypes or name in ALLO:
        assert implicit_cast_type(spelling, dtype, name) is dtype
        assert explain(spelling, spelling, name).dtype is dtype


def test_spellings_of_one_system_are_not_those_of_another() -> None:
    for spelling in ("i1", "u1", "f8"):
        with pytest.raises(DTypeError, match=f"'{spelling}' is not accepted: it means"):
            DType.of(spelling)
    with pytest.raises(DTypeError, match="no dtype is called 'apint"):
        system("allo_hls").dtype_of("apint(0)")


def test_casts_and_constants_read_the_spellings_of_their_graph() -> None:
    graph = graph_of("allo_cpp", x="int32")
    assert graph["x"].cast("u1").dtype is D.bool
    assert graph["x"].cast("apint(23, signed=True)").dtype is D.int(23)
    assert graph.constant(1, "u1").dtype is D.bool
    assert graph_of("kernel_float", x="int8")["x"].cast("unsigned int").dtype is D.uint32
    with graph_of("anvil"):
        assert ops.full([2], True, "i1").dtype is D.bool


# anvil


@pytest.mark.parametrize(
    ("requested", "dtype", "ambiguous"),
    [
        (("f64", "f32"), D.float64, False), (("i64", "f32"), D.float32, False),
        (("f32", "f64", False, True), D.float32, False), (("f32", "f64", True, True), D.float64, True),
        (("f32", "f64", False, False), D.float64, False), (("f32", "f64?"), D.float32, False),
        (("i1", "i32?"), D.int32, True), (("i32?", "i16"), D.int16, False),
    ],
)  # fmt: skip
def test_common_dtype_answers_as_the_vignette_prints(requested: Any, dtype: DType, ambiguous: bool) -> None:
    assert common_dtype(*requested) == (dtype, ambiguous)
    assert gc.common_dtype(*requested).dtype is dtype


# MAX


def test_tensor_float_32_is_an_attribute() -> None:
    assert DType.tensor_float_32 is DType.tensor_float32


@pytest.mark.parametrize("name", ["max", "max_published"])
def test_implicit_cast_type_raises_for_a_dtype_that_promotion_does_not_support(name: str) -> None:
    for outside in (D.string, D.int4, D.float8_e5m2, D.int(7)):
        with pytest.raises(PromotionError, match=f"{outside} isn't supported by promotion in {name}"):
            implicit_cast_type(outside, outside, name)
        assert explain(outside, outside, name).kind == "unknown"


# Allo


@pytest.mark.parametrize("name", ALLO)
def test_bool_and_u1_are_one_type(name: str) -> None:
    graph = graph_of(name, u=D.uint(1), b="bool", i="int32", kept=Buffer(D.uint(1), [2]))
    u, b, i, remaining = graph.inputs
    assert u.type is b.type
    assert remaining.dtype is D.bool
    assert i.cast(D.uint(1)) is i.cast(D.bool)
    assert ops.where(b, u, b).dtype is D.bool, "which needs operands of one type"
    assert (u & b).dtype is (u < b).dtype is ops.logical_not(i).dtype is D.bool
    assert (u + b).dtype is (D.uint(2) if name == "allo_hls" else D.bool)
    array = np.array([True, False])
    assert run(graph, [u ^ b, i.cast(D.uint(1))], array, array[::-1], np.array([2, 0], np.int32)) == [
        [True, True],
        [True, False],
    ]


@pytest.mark.parametrize("name", ALLO)
def test_number_of_an_iteration_is_an_index(name: str) -> None:
    graph = graph_of(name, x=TensorType("int32", [4]), f=TensorType("float32", []))
    x, f = graph.inputs
    seen: list[DType] = []

    def body(i: Symbol, total: Symbol) -> Symbol:
        seen.append(i.dtype)
        return (total + x[i] + (i * 2).cast("int32")).cast("int32")

    total = ops.for_loop(4, body, x[0])
    assert set(seen) == {D.index}
    with pytest.raises(PromotionError, match=r"operator '(mul|add)' with operand types index, float32"):
        ops.for_loop(4, lambda i, s: i + f, f)
    assert run(graph, [total], np.array([1, 2, 3, 4], np.int32), np.float32(0)) == [1 + 10 + 12]


@pytest.mark.parametrize("name", ALLO)
def test_store_converts_to_what_it_is_stored_to(name: str) -> None:
    graph = graph_of(
        name, a=TensorType("int32", []), b=TensorType("int32", []), f=TensorType("float32", []), out=Buffer("int8", [3])
    )
    a, b, f, out = graph.inputs
    assert (a + b).dtype is (D.int(33) if name == "allo_hls" else D.int32)
    out[0] = a + b
    out[1] = f
    out[2] = a < b
    graph.output(kept=ops.buffer_load(out))
    model = gc.InferenceSession().load(graph)
    (remaining,) = model(np.array(300, np.int32), np.array(1, np.int32), np.array(-2.9, np.float32))
    assert remaining.tolist() == [301 - 256, -2, 0]
    assert remaining.dtype == np.int8


def test_store_of_a_wider_value_is_refused_where_no_publication_converts() -> None:
    graph = graph_of("max", a=TensorType("int32", []), out=Buffer("int8", [3]))
    with pytest.raises(DTypeError, match="the buffer holds int8, which cannot hold every value of int32"):
        graph.inputs[1][0] = graph["a"]


REFUSED: list[tuple[str, str, Callable[[Any, Any, Any], Symbol], str]] = [
    ("allo_hls", "pow", lambda x, i, f: x**2, "pow"),
    ("allo_hls", "exp of index", lambda x, i, f: ops.exp(x), "exp"),
    ("allo_hls", "index << int", lambda x, i, f: x << i, "lshift"),
    ("allo_cpp", "index << int", lambda x, i, f: x << i, "lshift"),
    ("allo_hls", "abs of index", lambda x, i, f: ops.abs(x), "abs"),
    ("allo_cpp", "abs of index", lambda x, i, f: ops.abs(x), "abs"),
    ("allo_hls", "index & int", lambda x, i, f: x & i, "bitwise_and"),
    ("allo_cpp", "index & int", lambda x, i, f: x & i, "bitwise_and"),
    ("allo_hls", "index + float", lambda x, i, f: x + f, "add"),
    ("allo_cpp", "index < float", lambda x, i, f: x < f, "lt"),
    ("allo_cpp", "float & float", lambda x, i, f: f & f, "bitwise_and"),
    ("allo_cpp", "float << int", lambda x, i, f: f << i, "lshift"),
    ("allo_hls", "index and int", lambda x, i, f: ops.logical_and(x, i), "logical_and"),
]


@pytest.mark.parametrize(("name", "what", "call", "operator"), REFUSED, ids=[f"{r[0]} {r[1]}" for r in REFUSED])
def test_operator_without_a_rule_is_refused_in_allo_words(
    name: str, what: str, call: Callable[[Any, Any, Any], Symbol], operator: str
) -> None:
    graph = graph_of(name, x="index", i="int32", f="float32")
    style = name.removeprefix("allo_")
    with pytest.raises(PromotionError, match=f"No {style} type promotion rule for operator '{operator}'"):
        call(*graph.inputs)
    assert not graph.nodes


# kernel_float


def test_into_vec_makes_a_vector_of_a_list() -> None:
    graph = graph_of("kernel_float", s=TensorType("int8", []), f=TensorType("float16", []), v="int8")
    s, f, v = graph.inputs
    with graph:
        results = [ops.into_vec([1, 2, 3]), ops.into_vec((s, 2, f)), ops.into_vec([True]), ops.into_vec([0.5, 2])]
    assert [str(m.type) for m in results] == ["int32[3]", "float16[3]", "bool[1]", "float64[2]"]
    assert run(graph, results, np.int8(-1), np.float16(0.5), np.zeros(2, np.int8)) == [
        [1, 2, 3], [-1, 2, 0.5], [True], [0.5, 2],
    ]  # fmt: skip
    with pytest.raises(ShapeError, match="into_vec: the list is empty"):
        ops.into_vec([])
    with pytest.raises(ShapeError, match="into_vec: element 1 must be a scalar, got shape"):
        ops.into_vec([s, v])
    with pytest.raises(PromotionError, match="into_vec: mixing int8 and uint8 is forbidden"):
        ops.into_vec([s, s.cast("uint8")])


def test_functions_make_vectors_of_one_of_scalars() -> None:
    graph = graph_of("kernel_float", x=TensorType("float32", []), y=TensorType("float32", []), v="float32")
    x, y, v = graph.inputs
    results = [
        ops.exp(x), ops.maximum(x, y), ops.fma(x, y, x), ops.where(x, y, x), ops.maximum(x, 2.0), abs(x), x**y,
        ops.is_nan(x),
    ]  # fmt: skip
    assert all(m.shape == (1,) for m in results)
    assert ops.exp(v).shape == v.shape
    assert ops.maximum(v, x).shape == v.shape
    assert run(graph, results[1:5], np.float32(3), np.float32(4), np.zeros(2, np.float32)) == [[4], [15], [4], [3]]


def test_operators_of_plain_scalars_are_those_of_c() -> None:
    graph = graph_of("kernel_float", x=TensorType("int32", []), y=TensorType("float32", []), v="float32")
    x, y, v = graph.inputs
    results = [x < y, x == 3, y >= x, ops.logical_not(x), ops.logical_and(x, y)]
    assert all(m.dtype is D.bool and m.shape == () for m in results)
    assert (x + y).shape == (-x).shape == ()
    assert (v < x).dtype is (v < 1).dtype is D.float32, "of vectors it is 1 or 0 in the promoted dtype"
    counted = ops.while_loop(lambda i: i < 5, lambda i: i + 2, x)
    assert run(graph, [*results, counted], np.int32(3), np.float32(3.5), np.zeros(2, np.float32)) == [
        True, True, True, False, True, 5,
    ]  # fmt: skip


def test_lengths_other_than_n_and_1_are_refused_in_the_guides_words() -> None:
    graph = graph_of("kernel_float", x=TensorType("float32", [4]), y=TensorType("float32", [3]))
    with pytest.raises(ShapeError) as raised:
        graph["x"] + graph["y"]
    assert "all lengths must be N or 1" in raised.value.help


# Spellings that depend on the promotion system, read by the graph that meets them

SPELLINGS = [
    ("array_api", "i8", D.int64), ("array_api", "u4", D.uint32), ("array_api", "f2", D.float16),
    ("array_api", "c8", D.complex64), ("anvil", "i8", D.int8), ("anvil", "i1", D.bool), ("anvil", "pred", D.bool),
    ("max", "u8", D.uint8), ("kernel_float", "i8", D.int8), ("kernel_float", "f8", D.float8_e4m3fn),
    ("kernel_float", "unsigned int", D.uint32), ("kernel_float", "__half", D.float16), ("allo_hls", "u1", D.bool),
    ("allo_hls", "apint(23, signed=True)", D.int(23)), ("allo_cpp", "apint(17)", D.uint(17)),
    ("allo_cpp", "i8", D.int8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "spelling", "dtype"), SPELLINGS)
def test_inputs_and_buffers_are_read_by_the_graphs_system(name: str, spelling: str, dtype: D) -> None:
    inputs: dict[str, Any] = {
        "x": TensorType(spelling, ["n"]),
        "b": Buffer(spelling, [2], initial=[1, 0]),
        "s": SequenceType(TensorType(spelling, [2])),
    }
    graph = Graph("words", inputs, promotion=name)
    x, b, s = graph.inputs
    assert (x.type, b.type) == (TensorType(dtype, ["n"]), TensorType(dtype, [2]))
    assert s.type == SequenceType(TensorType(dtype, [2]))


def test_ambiguous_spelling_declares_an_ambiguous_input() -> None:
    graph = Graph("words", {"x": TensorType("f32?", ["n"]), "i": TensorType("i16", ["n"])}, promotion="anvil")
    assert str(graph["x"].type) == "float32?[n]"
    assert str((graph["x"] * graph["i"]).type) == "float32?[n]"


def test_array_api_input_of_i8_holds_64_bits() -> None:
    types: dict[str, Any] = {"x": TensorType("i8", ["n"]), "total": Buffer("i8", [1], initial=2**40)}
    graph = Graph("words", types, promotion="array_api")
    graph.output(graph["x"] + graph["total"])
    assert gc.InferenceSession().load(graph)(np.array([2**40]))[0].tolist() == [2**41]


@pytest.mark.parametrize(("name", "spelling"), [("max", "i4"), ("max", "apint(17)"), ("anvil", "f2"), ("jax", "pred")])
def test_spelling_of_another_publication_is_refused_by_the_graph(name: str, spelling: str) -> None:
    with pytest.raises(DTypeError):
        Graph("words", {"x": TensorType(spelling, ["n"])}, promotion=name)


def test_spelling_has_no_dtype_outside_of_a_graph() -> None:
    type_ = TensorType("i8", ["n"])
    assert (str(type_), repr(type_)) == ("i8[n]", "TensorType('i8', [n])")
    assert str(pickle.loads(pickle.dumps(type_))) == "i8[n]"
    assert repr(Buffer("i8", [2])) == repr(pickle.loads(pickle.dumps(Buffer("i8", [2])))) == "Buffer('i8', [2])"
    with pytest.raises(DTypeError, match="the dtype 'i8' depends on the promotion system of a graph"):
        _ = type_.dtype
    assert D.of("i8") is D.int8, "which has no system, and counts bits"


def test_arguments_of_ops_are_read_by_the_operands_graph() -> None:
    types = {"x": TensorType("float32", ["n"]), "k": TensorType("int32", [])}
    graph = Graph("words", types, promotion="array_api")
    x, k = graph.inputs
    long: Any = "i8"
    double: Any = "f8"
    results = [
        ops.bitcast(x, "i4"), ops.full([2], k, long), ops.range(k, dtype=long), ops.hann_window(k, dtype=double),
        xp.astype(x, long), xp.full_like(x, 1, dtype=double), x.cast(long),
    ]  # fmt: skip
    assert [s.dtype for s in results] == [D.int32, D.int64, D.int64, D.float64, D.int64, D.float64, D.int64]
    with graph:
        of_lists = [ops.list_empty("i8").type, ops.list_empty(TensorType("i8", [2])).type]
    assert [str(t) for t in of_lists] == ["seq(int64[...])", "seq(int64[2])"]
    assert graph.op("Neg", [k], out_types=[TensorType("i4")])[0].dtype is D.int32
    assert xp.asarray([1, 2], dtype=long).dtype is xp.int64
    graph.output(x * 2)
    assert graph.astype(double, keep_io=False).inputs[0].dtype is D.float64
