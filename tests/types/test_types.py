"""Dtypes, shapes and types as values: their names, limits, identities and what they refuse."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore import Dim, DType, OptionalType, SequenceType, Shape, TensorType
from graphcore.errors import DTypeError, ShapeError
from graphcore.types.dtypes import Kind

D = DType
P = onnx.TensorProto

# name, kind, bits, NumPy dtype, ONNX type, least, greatest
NAMED = [
    ("bool", "bool", 1, np.bool_, P.BOOL, 0, 1),
    ("int4", "signed", 4, ml_dtypes.int4, P.INT4, -8, 7),
    ("uint4", "unsigned", 4, ml_dtypes.uint4, P.UINT4, 0, 15),
    ("int8", "signed", 8, np.int8, P.INT8, -128, 127),
    ("int16", "signed", 16, np.int16, P.INT16, -32768, 32767),
    ("int32", "signed", 32, np.int32, P.INT32, -(2**31), 2**31 - 1),
    ("int64", "signed", 64, np.int64, P.INT64, -(2**63), 2**63 - 1),
    ("uint8", "unsigned", 8, np.uint8, P.UINT8, 0, 255),
    ("uint16", "unsigned", 16, np.uint16, P.UINT16, 0, 65535),
    ("uint32", "unsigned", 32, np.uint32, P.UINT32, 0, 2**32 - 1),
    ("uint64", "unsigned", 64, np.uint64, P.UINT64, 0, 2**64 - 1),
    ("index", "unsigned", 64, np.uint64, P.UINT64, 0, 2**64 - 1),
    ("address", "unsigned", 64, np.uint64, P.UINT64, 0, 2**64 - 1),
    ("float8_e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn, P.FLOAT8E4M3FN, -448.0, 448.0),
    ("float8_e5m2", "float", 8, ml_dtypes.float8_e5m2, P.FLOAT8E5M2, -57344.0, 57344.0),
    ("float6_e2m3fn", "float", 6, ml_dtypes.float6_e2m3fn, P.FLOAT6E2M3, -7.5, 7.5),
    ("float6_e3m2fn", "float", 6, ml_dtypes.float6_e3m2fn, P.FLOAT6E3M2, -28.0, 28.0),
    ("float16", "float", 16, np.float16, P.FLOAT16, -65504.0, 65504.0),
    ("bfloat16", "float", 16, ml_dtypes.bfloat16, P.BFLOAT16, -(2 - 2**-7) * 2.0**127, (2 - 2**-7) * 2.0**127),
    ("tensor_float32", "float", 19, np.float32, P.FLOAT, -(2 - 2**-10) * 2.0**127, (2 - 2**-10) * 2.0**127),
    ("float32", "float", 32, np.float32, P.FLOAT, -(2 - 2**-23) * 2.0**127, (2 - 2**-23) * 2.0**127),
    ("float64", "float", 64, np.float64, P.DOUBLE, -np.finfo(np.float64).max, np.finfo(np.float64).max),
]
NAMES = [row[0] for row in NAMED] + ["string"]
SEMANTIC = {"index", "address", "tensor_float32"}


def named(name: str) -> DType:
    attribute = getattr(DType, name)
    assert isinstance(attribute, DType)
    return attribute


# DType


@pytest.mark.parametrize(("name", "kind", "bits", "numpy", "proto", "least", "greatest"), NAMED, ids=NAMES[:-1])
def test_named_dtype_is_what_its_row_says(
    name: str, kind: str, bits: int, numpy: object, proto: int, least: float, greatest: float
) -> None:
    dtype = named(name)
    assert (dtype.name, dtype.kind, dtype.bits, dtype.onnx) == (name, kind, bits, proto)
    assert dtype.numpy == np.dtype(numpy)  # type: ignore[call-overload]
    assert (dtype.min, dtype.max) == (least, greatest)
    assert dtype.is_integer == (kind in ("signed", "unsigned"))
    assert dtype.is_float == (kind == "float")
    assert dtype.is_number == (kind != "bool")
    assert (dtype.is_signed, dtype.is_unsigned) == (kind == "signed", kind == "unsigned")
    assert (dtype.storage is dtype) == (name not in SEMANTIC)
    assert dtype.storage.numpy == dtype.numpy
    assert dtype.storage.onnx == proto
    assert type(dtype.max) is (float if kind == "float" else int)


def test_string_has_no_bits_and_no_limits() -> None:
    assert (D.string.kind, D.string.bits, D.string.numpy) == (Kind.string, 0, np.dtype(object))
    assert not D.string.is_number
    with pytest.raises(DTypeError, match="string has no minimum or maximum value"):
        _ = D.string.max


@pytest.mark.parametrize("name", NAMES)
def test_dtype_prints_its_name(name: str) -> None:
    assert str(named(name)) == name
    assert repr(named(name)) == f"DType.{name}"
    assert f"{named(name)}" == name


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_one_object_when_named_pickled_or_copied(name: str) -> None:
    dtype = named(name)
    assert DType.of(name) is dtype
    assert DType.of(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy([dtype])[0] is dtype
    assert {dtype: 1}[named(name)] == 1


def test_dtype_has_no_order() -> None:
    with pytest.raises(TypeError, match="not supported between"):
        _ = D.int8 < D.int16  # type: ignore[operator]


@pytest.mark.parametrize(
    ("alias", "dtype"),
    [("tf32", D.tensor_float32), ("float", D.float32), ("double", D.float64), ("half", D.float16), ("bool_", D.bool)],
)
def test_alias_names_the_dtype(alias: str, dtype: DType) -> None:
    assert DType.of(alias) is dtype


def test_tf32_is_an_attribute() -> None:
    assert D.tf32 is D.tensor_float32


@pytest.mark.parametrize("row", [r for r in NAMED if r[0] not in SEMANTIC], ids=lambda r: r[0])
def test_of_reads_numpy_and_onnx(row: tuple[str, str, int, object, int, float, float]) -> None:
    dtype, numpy = named(row[0]), row[3]
    assert DType.of(numpy) is dtype
    assert DType.of(np.dtype(numpy)) is dtype  # type: ignore[call-overload]
    assert DType.of(row[4]) is dtype
    assert DType.of(np.zeros(2, numpy).dtype) is dtype  # type: ignore[call-overload]


def test_of_reads_other_spellings() -> None:
    assert DType.of("|u1") is D.uint8
    assert DType.of("<f4") is D.float32
    assert DType.of(">i8") is D.int64
    assert DType.of(np.dtype(">f8")) is D.float64
    assert DType.of(float) is D.float64
    assert DType.of(int) is DType.of(np.dtype(int))
    assert DType.of(bool) is D.bool
    assert DType.of(np.longlong) is D.int64
    assert DType.of("int12") is D.int(12)
    assert DType.of("uint100") is D.uint(100)


@pytest.mark.parametrize(
    "x", [str, np.str_, np.dtype("U5"), np.dtype("S3"), object, np.dtype(object), P.STRING, "string"]
)
def test_of_gives_string_when_it_is_text(x: object) -> None:
    assert DType.of(x) is D.string


@pytest.mark.parametrize(
    "x",
    ["int0", "intx", "float17", "", None, 0, 99, -1, True, 1.5, P.COMPLEX64, np.clongdouble, "complex256", "M8[s]",
     np.dtype("m8[ns]"), [("a", "i4")], "int-3", "int08", Ellipsis],
    ids=repr,
)  # fmt: skip
def test_of_raises_when_there_is_no_such_dtype(x: object) -> None:
    with pytest.raises(DTypeError, match="no dtype is called") as raised:
        DType.of(x)
    assert "use one of bool, int4, uint4, int8" in raised.value.help
    assert raised.value.help.endswith("or DType.int(n) / DType.uint(n)")


@given(st.integers(1, 300))
def test_widths_are_dtypes(bits: int) -> None:
    signed, unsigned = DType.int(bits), DType.uint(bits)
    assert (signed.name, unsigned.name) == (f"int{bits}", f"uint{bits}")
    assert (signed.min, signed.max) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (unsigned.min, unsigned.max) == (0, 2**bits - 1)
    assert DType.int(bits) is signed
    assert pickle.loads(pickle.dumps(unsigned)) is unsigned
    assert signed.is_integer
    if bits > 64:  # a tensor of them has one more axis, of digits
        assert signed.storage is unsigned.storage is D.uint32
        assert signed.numpy.hasobject
        return
    assert signed.storage.bits >= bits
    assert signed.storage.is_signed
    assert unsigned.storage.is_unsigned


def test_widths_are_the_named_dtypes_when_there_are_such() -> None:
    assert [DType.int(n) for n in (4, 8, 16, 32, 64)] == [D.int4, D.int8, D.int16, D.int32, D.int64]
    assert [DType.uint(n) for n in (4, 8, 16, 32, 64)] == [D.uint4, D.uint8, D.uint16, D.uint32, D.uint64]
    assert repr(DType.int(7)) == "DType.int(7)"
    assert repr(DType.uint(7)) == "DType.uint(7)"
    assert DType.int(1).min == -1
    assert DType.int(7).storage is D.int8
    assert DType.uint(33).storage is D.uint64


@pytest.mark.parametrize("bits", [0, -1, 1.0, True, "8", None])
def test_width_is_refused_when_it_is_not_a_count_of_bits(bits: object) -> None:
    with pytest.raises(DTypeError, match="the width must be a positive int"):
        DType.int(bits)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="the width must be a positive int"):
        DType.uint(bits)  # type: ignore[arg-type]


def test_dtype_is_immutable_and_not_made_by_hand() -> None:
    with pytest.raises(AttributeError, match="a DType is immutable"):
        D.int8.bits = 9
    with pytest.raises(AttributeError):
        D.int8.other = 9
    with pytest.raises(TypeError, match=r"use a named one such as DType\.int8"):
        DType()


# Shape


def test_shape_takes_ints_names_and_dims() -> None:
    shape = Shape([2, "batch", Dim("batch") * 2, np.int64(5)])  # type: ignore[list-item]
    assert shape == [2, "batch", Dim("batch") * 2, 5]
    assert shape == Shape(shape)
    assert shape.rank == len(shape) == 4
    assert all(isinstance(d, Dim) for d in shape)
    assert str(shape) == "[2, batch, 2 * batch, 5]"
    assert repr(Shape([2, "n"])) == "Shape(2, n)"


def test_shape_knows_what_is_static() -> None:
    assert Shape([2, 3]).is_static
    assert Shape().is_static
    assert not Shape([2, "n"]).is_static
    assert not Shape([2, "n"]).is_dynamic
    assert Shape([Dim.dynamic()]).is_dynamic
    assert Shape([2, "n", 3]).static_dims == [2, 3]
    assert Shape(["n", Dim("m") + 1]).parameters == {"n", "m"}
    assert Shape([2, "n", 3]).size == Dim("n") * 6
    assert Shape().size == 1
    assert Shape().parameters == frozenset()


def test_shape_compares_with_sequences() -> None:
    assert Shape([2, "n"]) == (2, "n")
    assert Shape([2, "n"]) != [2, "m"]
    assert Shape([2]) != [2, 3]
    assert Shape([2]) != 2
    assert hash(Shape([2, "n"])) == hash(Shape([2, "n"]))


def test_shape_slices_and_adds_to_shapes() -> None:
    shape = Shape([1, 2, "n"])
    assert isinstance(shape[1:], Shape)
    assert shape[1:] == [2, "n"]
    assert shape[-1] == "n"
    assert shape + [4] == [1, 2, "n", 4]  # noqa: RUF005 - the operator is what is tested
    assert [4] + shape == [4, 1, 2, "n"]  # noqa: RUF005 - the operator is what is tested
    assert isinstance(shape * 2, Shape)
    assert shape.substitute({"n": 7}) == [1, 2, 7]


def test_shape_pickles_and_copies() -> None:
    shape = Shape([1, "n", Dim("n") + 1])
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert copy.deepcopy(shape) == shape


@pytest.mark.parametrize(
    ("dims", "text"),
    [([-1], "-1"), ([None], "None is not a valid dim"), ([1.5], "1.5 is not a valid dim"),
     ([True], "True is not a valid dim"), ([""], "''"),
     ([[2]], r"\[2\] is not a valid dim"), (["2 batch"], "2 batch")],
)  # fmt: skip
def test_shape_raises_when_something_is_not_a_dim(dims: list[object], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        Shape(dims)  # type: ignore[arg-type]


# TensorType


def test_tensor_types_are_one_object_when_equal() -> None:
    type_ = TensorType(D.float32, ["batch", 4])
    assert TensorType("float32", ("batch", 4)) is type_
    assert TensorType(np.float32, Shape(["batch", 4])) is type_
    assert TensorType(D.float32, ["batch", 5]) is not type_
    assert TensorType(D.float16, ["batch", 4]) is not type_
    assert copy.deepcopy(type_) is copy.copy(type_) is type_
    assert pickle.loads(pickle.dumps(type_)) is type_


def test_tensor_type_prints_dtype_and_shape() -> None:
    assert str(TensorType(D.float32, ["batch", 4])) == "float32[batch, 4]"
    assert str(TensorType(D.bool)) == "bool[]"
    assert repr(TensorType(D.float32, ["batch", 4])) == "TensorType(DType.float32, ['batch', 4])"


def test_tensor_type_knows_rank_dims_and_elements() -> None:
    type_ = TensorType(D.float32, ["n", 3, 4])
    assert (type_.rank, type_.is_static) == (3, False)
    assert type_.dim(-1) == 4
    assert TensorType(D.float32, [3, 4]).num_elements() == 12
    assert TensorType(D.float32).num_elements() == 1
    assert type_.cast(D.int8) is TensorType(D.int8, ["n", 3, 4])
    with pytest.raises(TypeError):
        type_.num_elements()


def test_tensor_type_is_immutable() -> None:
    type_ = TensorType(D.float32, [2])
    with pytest.raises(AttributeError, match="a TensorType is immutable"):
        type_.dtype = D.int8
    assert type_.dtype is D.float32


def test_tensor_type_raises_when_dtype_or_shape_is_none() -> None:
    with pytest.raises(DTypeError, match="no dtype is called 'flot32'"):
        TensorType("flot32", [2])
    with pytest.raises(ShapeError, match="'batch' is not a valid shape") as raised:
        TensorType(D.float32, "batch")
    assert raised.value.help == "a shape is a list of dims: ['batch']"
    with pytest.raises(ShapeError, match=r"None is not a valid shape(.|\n)*a list of dims"):
        TensorType(D.float32, None)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="3 is not a valid shape"):
        TensorType(D.float32, 3)  # type: ignore[arg-type]


# Sequence and optional


def test_sequence_and_optional_types_are_values() -> None:
    element = TensorType(D.float32, ["n"])
    sequence, optional = SequenceType(element), OptionalType(SequenceType(element))
    assert str(sequence) == "seq(float32[n])"
    assert str(optional) == "optional(seq(float32[n]))"
    assert repr(sequence) == "SequenceType(TensorType(DType.float32, ['n']))"
    assert sequence == SequenceType(element)
    assert sequence != OptionalType(element)
    assert sequence != SequenceType(TensorType(D.int8, ["n"]))
    assert len({sequence, SequenceType(element), optional}) == 2
    for item in (sequence, optional):
        assert pickle.loads(pickle.dumps(item)) == item
        assert copy.deepcopy(item) == item
    with pytest.raises(AttributeError, match="a SequenceType is immutable"):
        sequence.element = element
