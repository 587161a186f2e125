"""Allo's tests of types, check by check.

The frontend that the publication describes is in its author's fork (github.com/kkkaishao/allo at b22ed84): those of
its tests are stated that are of types and values, in tests/test_arith_operator.py, tests/test_math_operator.py and
tests/test_linalg_operator.py. Most look for the name of an instruction in the text of the compiled kernel, which tells
the type that it computes in. Of tests/test_types.py in github.com/cornell-zhang/allo at a098603, an older frontend,
those that need no loops are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import ShapeError
from graphcore.promotion import system

D = DType
STYLES = ["allo_hls", "allo_cpp"]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "rsqrt": lambda x: 1 / np.sqrt(x), "tan": np.tan, "floor": np.floor, "ceil": np.ceil, "abs": np.abs,
}  # fmt: skip

# The operands' types and values, what is computed, the type under hls and under cpp, and the values.
Row = tuple[list[tuple[str, Any]], Callable[..., Symbol], str, str, Any]
ROWS: dict[str, Row] = {
    # test_arith_operator.py
    "f32 + f32, of vectors": ([("f32", [1, 2]), ("f32", [3, 4])], lambda x, y: x + y, "f32", "f32", [4, 6]),
    "f32 + f32, without axes": ([("f32", 1), ("f32", 2)], lambda x, y: x + y, "f32", "f32", 3),
    "f32 + 1.0": ([("f32", [1, 2])], lambda x: x + 1.0, "f32", "f32", [2, 3]),
    "u32 // u32 is of unsigned integers": (
        [("u32", [7, 2**32 - 1]), ("u32", [2, 2])],
        lambda x, y: x // y,
        "u32",
        "u32",
        [3, 2**31 - 1],
    ),
    "i32 // i32 is of signed integers": (
        [("i32", [8, -8]), ("i32", [2, 2])],
        lambda x, y: x // y,
        "i32",
        "i32",
        [4, -4],
    ),
    "i32 % i32 is of signed integers": ([("i32", [7, -8]), ("i32", [4, 4])], lambda x, y: x % y, "i32", "i32", [3, 0]),
    "u32 % u32 is of unsigned integers": (
        [("u32", [7, 2**32 - 1]), ("u32", [4, 4])],
        lambda x, y: x % y,
        "u32",
        "u32",
        [3, 3],
    ),
    "u32 / u32 is of unsigned integers": (
        [("u32", [7, 2**32 - 1]), ("u32", [2, 2])],
        lambda x, y: x / y,
        "u32",
        "u32",
        [3, 2**31 - 1],
    ),
    "i32 >> 2 fills in the sign": ([("i32", [-8, 9])], lambda x: x >> 2, "i32", "i32", [-2, 2]),
    "u32 >> 2 fills in zeros": ([("u32", [2**32 - 8, 9])], lambda x: x >> 2, "u32", "u32", [2**30 - 2, 2]),
    "-7 / 2 truncates": ([("i32", [-7])], lambda x: x / ops.constant(2, "int32"), "i32", "i32", [-3]),
    "a quotient of large i64 is exact": (
        [("i64", [987654321987654321])],
        lambda x: x / ops.constant(7, "int64"),
        "i64",
        "i64",
        [987654321987654321 // 7],
    ),
    "f32 < f32 is a u1": ([("f32", [1, 2]), ("f32", [2, 1])], lambda x, y: x < y, "u1", "u1", [1, 0]),
    "max of f32 passes NaN on": ([("f32", [1, np.nan]), ("f32", [2, 1])], ops.maximum, "f32", "f32", [2, np.nan]),
    # test_math_operator.py
    **{
        f"{name} of f32 is an f32": (
            [("f32", [0.5, 0.25])],
            getattr(ops, name),
            "f32",
            "f32",
            formula(np.array([0.5, 0.25])),
        )
        for name, formula in FUNCTIONS.items()
    },
    "erf of f32 is an f32": ([("f32", [0.5])], ops.erf, "f32", "f32", [0.5204998778130465]),
    "abs of i32 is an i32": ([("i32", [-3])], ops.abs, "i32", "i32", [3]),
    "f32 ** f32": ([("f32", [2, 3]), ("f32", [3, 0.5])], lambda x, y: x**y, "f32", "f32", [8, 3**0.5]),
    "f32 ** i32": ([("f32", [2, 3]), ("i32", [3, 2])], lambda x, y: x**y, "f32", "f32", [8, 9]),
    "i32 ** i32": ([("i32", [2, -3]), ("i32", [3, 3])], lambda x, y: x**y, "i32", "i32", [8, -27]),
    "f32 ** 0 is 1": ([("f32", [2, np.nan])], lambda x: x**0, "f32", "f32", [1, 1]),
    "f32 ** 2, of vectors": ([("f32", [2, 3])], lambda x: x**2, "f32", "f32", [4, 9]),
    "fma of f32": ([("f32", [2]), ("f32", [3]), ("f32", [1])], ops.fma, "f32", "f32", [7]),
    "exp of 0 is 1": ([("f32", [0])], ops.exp, "f32", "f32", [1]),
    # test_linalg_operator.py
    "matmul of f32": ([("f32", [[1, 2]]), ("f32", [[3], [4]])], lambda x, y: x @ y, "f32", "f32", [[11]]),
    "dot of f32 has no axes": ([("f32", [1, 2]), ("f32", [3, 4])], ops.vecdot, "f32", "f32", 11),
    # cornell-zhang: test_types.py
    "float(int(float(1))) + float(i32)": (
        [("i32", 1)],
        lambda a: ops.constant(1.0, "f32").cast("i32").cast("f32") + a.cast("f32"),
        "f32",
        "f32",
        2,
    ),
    "u17 + u17 is a u18 under hls": ([("u17", [2**17 - 1]), ("u17", [1])], lambda x, y: x + y, "u18", "u17", None),
    "an index becomes an f32": ([("index", 1)], lambda a: a.cast("f32"), "f32", "f32", 1),
    "an f32 becomes an index, plus 2": (
        [("f32", 2)],
        lambda a: a.cast("index") + ops.constant(2, "index"),
        "index",
        "index",
        4,
    ),
    "int(f32) + i32": (
        [("f32", [1.7, -1.7]), ("i32", 1)],
        lambda a, v: (a.cast("i32") + v).cast("i32"),
        "i32",
        "i32",
        [2, 0],
    ),
    "i5 * i5, added up in an i14": (
        [("i5", [[-10, 9]]), ("i5", [[7], [-6]])],
        lambda a, b: (a @ b).cast("i14"),
        "i14",
        "i14",
        None,
    ),
    "f16 + 1": ([("f16", [1, 2])], lambda a: a + 1, "f16", "f16", [2, 3]),
    "bf16 + 1": ([("bf16", [1, 2])], lambda a: a + 1, "bf16", "bf16", [2, 3]),
    "i5 > i5 or i5 + 1 < 0.0": (
        [("i5", [2, -3, 0])],
        lambda a: ops.logical_or(a > ops.constant(0, "i5"), a + 1 < ops.constant(0.0, "f32")),
        "u1",
        "u1",
        [1, 1, 0],
    ),
    "u1 ^ u1, added up": (
        [("u1", [1, 0, 1]), ("u1", [1, 1, 0])],
        lambda a, f: ops.sum((a ^ f).cast("i32")),
        "i32",
        "i32",
        2,
    ),
    "f32 / (i32 * i32)": (
        [("f32", [6])],
        lambda v: v / (ops.constant(2, "i32") * ops.constant(2, "i32")),
        "f32",
        "f32",
        [1.5],
    ),
    "i5 + i5 stored to an i8": (
        [("i5", [-8, 7]), ("i5", [-8, 7])],
        lambda a, b: (a + b).cast("i8"),
        "i8",
        "i8",
        [-16, 14],
    ),
    "f32 + i32": ([("f32", [0.5]), ("i32", [2])], lambda a, b: a + b, "f32", "f32", [2.5]),
    "a bool chooses 1 or 0": (
        [("bool", [1, 0])],
        lambda a: ops.where(a, ops.constant(True), ops.constant(False)),
        "u1",
        "u1",
        [1, 0],
    ),
    "sin of f64 is an f64": ([("f64", [0.5])], ops.sin, "f64", "f64", [np.sin(0.5)]),
    "exp + log + sqrt of f64": (
        [("f64", [0.5])],
        lambda a: ops.exp(a) + ops.log(a) + ops.sqrt(a),
        "f64",
        "f64",
        [np.exp(0.5) + np.log(0.5) + np.sqrt(0.5)],
    ),
    "sin + cos + tan of f64": (
        [("f64", [0.5])],
        lambda a: ops.sin(a) + ops.cos(a) + ops.tan(a),
        "f64",
        "f64",
        [np.sin(0.5) + np.cos(0.5) + np.tan(0.5)],
    ),
}

NOT_STATED = {
    "i65536 + i345 is built": "under hls the sum has 65,537 bits, one more than a dtype may have",
    "a choice between f32 and i32 is an f32": "the publication's own frontend refuses a choice between two types",
    "// and % of integers truncate": "since 9b6842d (2026-07-08), after the publication, whose // rounds down",
    "acc, and memory that a result is written to": "a Symbol is a value, which is written nowhere",
    "Fixed and UFixed": "fixed-point numbers: the publication has none",
    "structs": "the publication has none",
    "polymorphic kernels, and attributes of types in them": "Python functions of Symbols are polymorphic",
    "gemm, pooling and convolution in loops": "the same sums as matmul here; the types of their terms are stated above",
    "what the code of other backends looks like": "Vitis and VHLS code: there is one backend",
}
"""Checks that have no row above, and why."""


@pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ROWS)
def test_check_holds_here(name: str, style: str) -> None:
    values, call, hls, cpp, want = ROWS[name]
    wanted, *dtypes = map(system(style).dtype_of, (hls if style == "allo_hls" else cpp, *(d for d, _ in values)))
    types = [TensorType(dtype, np.shape(value)) for dtype, (_, value) in zip(dtypes, values, strict=True)]
    graph = Graph("suite", types, promotion=style)
    with graph:
        result = call(*graph.inputs)
    assert result.dtype.bits == wanted.bits
    assert result.dtype.kind is wanted.kind or wanted.bits == 1
    if want is None:
        return
    graph.output(result)
    arrays = [np.array(value, dtype.numpy) for dtype, (_, value) in zip(dtypes, values, strict=True)]
    (got,) = gc.InferenceSession().load(graph)(*arrays)
    if wanted.is_float:
        np.testing.assert_allclose(np.asarray(got, float), want, rtol=2e-6)
    else:
        np.testing.assert_array_equal(got, np.array(want, got.dtype))


@pytest.mark.parametrize("style", STYLES)
def test_matrices_whose_sizes_do_not_go_together_are_refused(style: str) -> None:
    a, b = Graph("shapes", [TensorType("float32", [2, 3]), TensorType("float32", [2, 4])], promotion=style).inputs
    with pytest.raises(ShapeError, match="matmul: inner dimensions differ: 3 and 2"):
        a @ b


def test_types_are_equal_to_themselves_alone() -> None:
    types = [D.float32, D.float64, *(make(n) for make in (D.int, D.uint) for n in range(2, 66, 4))]
    for i, one in enumerate(types):
        assert [one == other for other in types] == [i == j for j in range(len(types))]
    assert [(d.bits, np.finfo(d.numpy).nmant, np.finfo(d.numpy).nexp) for d in (D.float32, D.float64)] == [
        (32, 23, 8),
        (64, 52, 11),
    ]
