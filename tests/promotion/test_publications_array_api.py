"""Statements of the array API's proposal that no table of it holds: prior art, codes and arrays without axes."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.errors import PromotionError
from graphcore.promotion import explain, system
from graphcore.promotion.array_api import _CODES

D = DType
KINDS = ((D.bool,), (D.int8, D.int64, D.uint8, D.uint64), (D.float16, D.float32, D.float64))


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_kinds_are_a_hierarchy_in_numpy_and_pytorch(package: str) -> None:
    def kind(dtype: DType) -> int:
        return next(i for i, dtypes in enumerate(KINDS) if dtype in dtypes)

    for lhs, rhs in itertools.product(itertools.chain(*KINDS), repeat=2):
        if kind(lhs) < kind(rhs) and explain(lhs, rhs, package).dtype is not None:
            met = implicit_cast_type(lhs, rhs, package)
            assert met.is_float is (kind(rhs) == 2), (lhs, rhs)
            assert met is not D.bool


def test_numpy_names_the_common_dtype_by_promote_types_and_result_type() -> None:
    for lhs, rhs in itertools.product(itertools.chain(*KINDS), repeat=2):
        met = implicit_cast_type(lhs, rhs, "numpy")
        assert met.numpy == np.promote_types(lhs.numpy, rhs.numpy) == np.result_type(lhs.numpy, rhs.numpy)


# The dtype of x + y in Dask 2026.8: rows are left operands, columns right ones.
DASK = """
bool       : bool  int8  int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
int8       : int8  int8  int16 int32 int64 int16 int32 int64 float64 float16 float32 float64 complex64 complex128
int16      : int16 int16 int16 int32 int64 int16 int32 int64 float64 float32 float32 float64 complex64 complex128
int32      : int32 int32 int32 int32 int64 int32 int32 int64 float64 float64 float64 float64 complex128 complex128
int64      : int64 int64 int64 int64 int64 int64 int64 int64 float64 float64 float64 float64 complex128 complex128
uint8      : uint8 int16 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
uint16     : uint16 int32 int32 int32 int64 uint16 uint16 uint32 uint64 float32 float32 float64 complex64 complex128
uint32     : uint32 int64 int64 int64 int64 uint32 uint32 uint32 uint64 float64 float64 float64 complex128 complex128
uint64     : uint64 float64 float64 float64 float64 uint64 uint64 uint64 uint64 float64 float64 float64 complex128 complex128
float16    : float16 float16 float32 float64 float64 float16 float32 float64 float64 float16 float32 float64 complex64 complex128
float32    : float32 float32 float32 float64 float64 float32 float32 float64 float64 float32 float32 float64 complex64 complex128
float64    : float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 float64 complex128 complex128
complex64  : complex64 complex64 complex64 complex128 complex128 complex64 complex64 complex128 complex128 complex64 complex64 complex128 complex64 complex128
complex128 : complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128 complex128
"""  # noqa: E501
DASK_ROWS = {row.split(":")[0].strip(): row.split(":")[1].split() for row in DASK.strip().splitlines()}


def test_dask_follows_numpys_rules() -> None:
    graph = Graph("dask", {d: TensorType(d, ["n"]) for d in DASK_ROWS}, promotion="numpy")
    for lhs, row in DASK_ROWS.items():
        for rhs, cell in zip(DASK_ROWS, row, strict=True):
            assert implicit_cast_type(lhs, rhs, "numpy").name == (graph[lhs] + graph[rhs]).dtype.name == cell
    if importlib.util.find_spec("dask") is not None:
        da: Any = importlib.import_module("dask.array")
        x = {d: da.ones(2, dtype=d, chunks=2) for d in DASK_ROWS}
        assert {lhs: [str((x[lhs] + x[rhs]).dtype) for rhs in DASK_ROWS] for lhs in DASK_ROWS} == DASK_ROWS


def test_cupy_follows_numpys_rules_and_reads_no_values_of_arrays_without_axes() -> None:
    # CuPy's page "Data type routines": its promote_types is NumPy's own. Its arrays without axes, whose values are on
    # the device, count as others do, as they have in NumPy too since release 2.
    types = {f"{d}{rank}": TensorType(d, ["n"] * rank) for d in DASK_ROWS for rank in (0, 1)}
    graph = Graph("cupy", types, promotion="numpy")
    for lhs, rhs in itertools.product(DASK_ROWS, repeat=2):
        want = np.promote_types(lhs, rhs).name
        for x, y in ((0, 0), (0, 1), (1, 0)):
            assert (graph[f"{lhs}{x}"] + graph[f"{rhs}{y}"]).dtype.name == want


def test_jax_is_biased_to_narrow_floats_and_has_bfloat16() -> None:
    for integer, real in itertools.product(KINDS[1], (D.float16, D.bfloat16, D.float32)):
        assert implicit_cast_type(integer, real, "jax") is real
    assert implicit_cast_type(D.int64, D.float16, "numpy") is D.float64


def test_pytorch_never_looks_at_the_size_of_values() -> None:
    graph = Graph("sizes", {"x": TensorType("int8", ["n"])}, promotion="torch")
    assert {(graph["x"] + value).dtype for value in (0, 1, 100, -128)} == {D.int8}


def test_codes_count_bytes() -> None:
    kinds = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
    for code, dtype in _CODES.items():
        assert dtype is DType.of(f"{kinds[code[0]]}{8 * int(code[1:])}")
        assert dtype.numpy == np.dtype(code)


def test_int64_with_float16_is_float16_in_jax_float64_in_numpy_and_undefined_in_the_standard() -> None:
    assert implicit_cast_type("int64", "float16", "jax") is D.float16
    assert implicit_cast_type("int64", "float16", "numpy") is D.float64
    for profile in ("seed", "2025.12"):
        assert explain("int64", "float16", system("array_api", profile=profile)).kind == "undefined"


def test_int64_with_uint64_is_float64_in_numpy_and_jax_and_undefined_in_the_standard() -> None:
    assert implicit_cast_type("int64", "uint64", "numpy") is implicit_cast_type("int64", "uint64", "jax") is D.float64
    for profile in ("seed", "2025.12"):
        assert explain("int64", "uint64", system("array_api", profile=profile)).kind == "undefined"


@pytest.mark.parametrize("profile", ["seed", "2025.12"])
def test_arrays_without_axes_take_part_as_all_others_do(profile: str) -> None:
    rules = system("array_api", profile=profile)
    dtypes = [d for d in _CODES.values() if d in rules.dtypes]
    graph = Graph("axes", promotion=rules, inputs={
        **{f"{d}_n": TensorType(d, ["n"]) for d in dtypes}, **{f"{d}_0": TensorType(d, []) for d in dtypes},
    })  # fmt: skip
    for lhs, rhs in itertools.product(dtypes, repeat=2):
        met = explain(lhs, rhs, rules).dtype
        for x, y in itertools.product("n0", repeat=2):
            if met is None:
                with pytest.raises(PromotionError, match="undefined"):
                    graph[f"{lhs}_{x}"] + graph[f"{rhs}_{y}"]
            else:
                assert (graph[f"{lhs}_{x}"] + graph[f"{rhs}_{y}"]).dtype is met


NUMBERS = ("int32", "uint8", "float32", "complex64")
# The dtypes of the operands of each function in the standard's section of functions.
TAKEN: dict[str, tuple[Callable[[Symbol], Symbol], tuple[str, ...]]] = {
    "add": (lambda x: x + x, NUMBERS),
    "subtract": (lambda x: x - x, NUMBERS),
    "equal": (lambda x: ops.equal(x, x), ("bool", *NUMBERS)),
    "isnan": (ops.is_nan, NUMBERS),
    "sum": (ops.sum, NUMBERS),
    "divide": (lambda x: x / x, ("float32", "complex64")),
    "sqrt": (ops.sqrt, ("float32", "complex64")),
    "mean": (ops.mean, ("float32", "complex64")),
    "bitwise_and": (lambda x: x & x, ("bool", "int32", "uint8")),
    "bitwise_left_shift": (lambda x: x << x, ("int32", "uint8")),
    "logical_and": (lambda x: ops.logical_and(x, x), ("bool",)),
}


@pytest.mark.parametrize("function", TAKEN)
def test_functions_take_the_kinds_that_the_standard_names(function: str) -> None:
    build, taken = TAKEN[function]
    graph = Graph("kinds", {d: TensorType(d, ["n"]) for d in ("bool", *NUMBERS)}, promotion="array_api")
    for x in graph.inputs:
        if x.dtype.name in taken:
            build(x)
        else:
            with pytest.raises(PromotionError, match="undefined"):
                build(x)


def test_common_dtype_is_the_narrowest_that_holds_the_values_of_both() -> None:
    for lhs, rhs in itertools.product(_CODES.values(), repeat=2):
        met = explain(lhs, rhs, system("array_api", profile="2025.12")).dtype
        if met is not None and met.is_integer:
            assert met.min <= min(lhs.min, rhs.min)
            assert met.max >= max(lhs.max, rhs.max)
