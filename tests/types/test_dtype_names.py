"""Names of dtypes: the spellings of publications, NumPy's codes, and names that are nearly right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.errors import DTypeError
from graphcore.promotion.system import SHORT

# As kernel_float, anvil, MAX and Allo write them: digits are bits.
PUBLISHED = {
    "b": DType.bool, "bool": DType.bool, "i8": DType.int8, "i16": DType.int16, "i32": DType.int32,
    "i64": DType.int64, "u8": DType.uint8, "u16": DType.uint16, "u32": DType.uint32, "u64": DType.uint64,
    "ui8": DType.uint8, "ui16": DType.uint16, "ui32": DType.uint32, "ui64": DType.uint64, "f16": DType.float16,
    "bf16": DType.bfloat16, "f32": DType.float32, "f64": DType.float64, "tf32": DType.tensor_float32,
    "tensor_float_32": DType.tensor_float32, "index": DType.index, "address": DType.address,
    "u33": DType.uint(33), "i10": DType.int(10),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_spelling_of_a_publication_means_what_it_means_there(name: str) -> None:
    assert DType.of(name) is PUBLISHED[name]
    assert Graph("g", {"x": TensorType(name, [2])})["x"].type is TensorType(PUBLISHED[name], [2])


def test_short_names_of_the_tables_agree_with_the_names_that_users_write() -> None:
    for short, dtype in SHORT.items():
        if short not in ("idx", "adr"):
            assert DType.of(short) is dtype


# What NumPy says in bytes, and what the same letters say in bits.
CODES = {
    "i1": ("int8", "bool"), "i2": ("int16", "int2"), "i4": ("int32", "int4"), "u1": ("uint8", "uint1"),
    "u2": ("uint16", "uint2"), "u4": ("uint32", "uint4"), "f4": ("float32", "float4_e2m1"),
    "f8": ("float64", "float8_e4m3fn"), "f2": ("float16",), "d": ("float64",), "f": ("float32",), "e": ("float16",),
    "h": ("int16",), "B": ("uint8",), "?": ("bool",), "q": ("int64",), "Q": ("uint64",), "H": ("uint16",),
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_code_of_numpy_is_an_error_that_names_all_that_it_means(code: str) -> None:
    with pytest.raises(DTypeError) as error:
        Graph("g", {"x": TensorType(code, [2])})
    for meaning in CODES[code]:
        assert f'"{meaning}"' in error.value.help
    assert error.value.help.endswith(f"the object np.dtype({code!r})")
    assert DType.of(np.dtype(code)).name == CODES[code][0]


@pytest.mark.parametrize("code", ["l", "L", "i", "I", "p"])
def test_code_whose_width_is_the_platforms_names_the_dtype_of_this_one(code: str) -> None:
    with pytest.raises(DTypeError, match=f'"{np.dtype(code).name}"'):
        DType.of(code)


@pytest.mark.parametrize("code", ["<i8", ">i8", "<f4", "|u1", "<u2", "=i4"])
def test_code_with_a_byte_order_is_numpys(code: str) -> None:
    assert DType.of(code).numpy == np.dtype(code).newbyteorder("=")


@pytest.mark.parametrize("dtype", [np.int64, np.dtype("i8"), np.dtype(">f4"), ml_dtypes.bfloat16, bool, np.float16])
def test_objects_of_numpy_are_taken_as_they_are(dtype: object) -> None:
    wanted = np.dtype(dtype).newbyteorder("=")  # type: ignore[call-overload]
    assert DType.of(dtype).numpy == wanted


@pytest.mark.parametrize(
    ("requested", "close"),
    [("flaot32", "float32"), ("Float32", "float32"), ("bloat16", "bfloat16"), ("unit8", "uint8"), ("fp16", "float16")],
)
def test_name_that_is_nearly_right_is_asked_for(requested: str, close: str) -> None:
    with pytest.raises(DTypeError, match=f"help: did you mean .*{close}.*use one of bool, int4"):
        TensorType(requested, [2])


def test_name_that_is_like_none_gets_the_list_alone() -> None:
    with pytest.raises(DTypeError, match="help: use one of bool, int4"):
        gc.DType.of("money")
