"""kernel_float's tests (github.com/KernelTuner/kernel_float, tests/ at f4e2d65), check by check.

A vector is a tensor with one axis. `char` is a third type of C++ beside `signed char` and `unsigned char`, with the
values of one of them; it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from tests.publications.rows import Array, Row

D = DType
CHECKS = {
    "basics.cu": 32, "binops.cu": 24, "cast.cu": 2, "constant.cu": 36, "iterate.cu": 18, "memory.cu": 76,
    "promotion.cu": 84, "reduce.cu": 94, "tiling.cu": 42, "triops.cu": 4, "unops.cu": 20,
}  # fmt: skip
"""The checks of each file of the suite."""

PROMOTION = """
              int    float  double uint   bool   half   bf16   char schar  uchar
    int       int    float  double -      int    half   bf16   -    int    -
    float     float  float  double float  float  float  float  x    float  float
    double    double double double double double double double x    double double
    uint      -      float  double uint   uint   half   bf16   -    -      uint
    bool      int    float  double uint   bool   half   bf16   x    schar  uchar
    half      half   float  double half   half   half   float  x    half   half
    bf16      bf16   float  double bf16   bf16   float  bf16   x    bf16   bf16
    char      -      x      x      -      x      x      x      x    -      -
    schar     int    float  double -      schar  half   bf16   -    schar  -
    uchar     -      float  double uint   uchar  half   bf16   -    -      uchar
"""
"""promotion.cu: what the sum of two vectors is of. -: the check is commented out. x: it is of `char`."""
NAMES = {
    "int": D.int32, "float": D.float32, "double": D.float64, "uint": D.uint32, "bool": D.bool, "half": D.float16,
    "bf16": D.bfloat16, "schar": D.int8, "uchar": D.uint8,
}  # fmt: skip

FLOATS = (D.float32, D.float64, D.float16, D.bfloat16)
NUMBERS = (D.int32, *FLOATS)
ALL = (D.bool, *NUMBERS)


def drawn(count: int) -> Callable[[DType], Sequence[Array]]:
    """Vectors as the suite draws them: of floats with zeros, infinities and NaN among them."""

    def make(dtype: DType) -> Sequence[Array]:
        random = np.random.default_rng(7)
        if dtype.is_float:
            values = random.uniform(-1, 1, (count, 40))
            values[:, :8] = random.choice([np.nan, np.inf, -np.inf, 0.0], (count, 8))
            return list(values.astype(dtype.numpy))
        if dtype is D.bool:
            return list(random.integers(0, 2, (count, 40)) != 0)
        return list(random.integers(-(2**31), 2**31, (count, 40)).astype(dtype.numpy))

    return make


def fixed(*vectors: Sequence[float]) -> Callable[[DType], Sequence[Array]]:
    return lambda dtype: [np.array(vector, np.float64).astype(dtype.numpy) for vector in vectors]


def each(formula: Callable[..., Any]) -> Callable[..., Array]:
    """A formula in the dtype of the operands, where 16-bit floats are computed in float32 and rounded."""

    def want(*x: Array) -> Array:
        own = x[0].dtype
        narrow = own.itemsize == 2 and own.kind not in "iu"
        result = formula(*(v.astype(np.float32) for v in x)) if narrow else formula(*x)
        return np.asarray(result).astype(own)

    return want


def constant(value: float) -> Symbol:
    return ops.constant(value, ambiguous=True)


def _elementwise(file: str, dtypes: Sequence[DType], count: int, table: dict[str, tuple[Any, Any]]) -> list[Row]:
    return [
        Row(file, states, 1, dtypes, call, each(formula), drawn(count)) for states, (call, formula) in table.items()
    ]


BINOPS = [
    *_elementwise(
        "binops.cu",
        ALL,
        2,
        {
            "a + b": (lambda a, b: a + b, lambda a, b: a + b),
            "a - b, of bools where they differ": (
                lambda a, b: a - b, lambda a, b: a ^ b if a.dtype == bool else a - b,
            ),
            "a * b": (lambda a, b: a * b, lambda a, b: a * b),
            "a < b is 1 or 0 of the same type": (lambda a, b: a < b, lambda a, b: a < b),
            "a > b is 1 or 0 of the same type": (lambda a, b: a > b, lambda a, b: a > b),
            "a <= b is 1 or 0 of the same type": (lambda a, b: a <= b, lambda a, b: a <= b),
            "a >= b is 1 or 0 of the same type": (lambda a, b: a >= b, lambda a, b: a >= b),
            "a == b is 1 or 0 of the same type": (ops.equal, lambda a, b: a == b),
            "a != b is 1 or 0 of the same type": (ops.not_equal, lambda a, b: a != b),
        },
    ),
    Row("binops.cu", "a += b, a -= b and a *= b write into a vector", 3,
        reason="a Symbol is a value: a = a + b names another one, which the rows of + - * show"),
    *_elementwise("binops.cu", FLOATS, 2, {"a / b": (lambda a, b: a / b, lambda a, b: a / b)}),
    Row("binops.cu", "min and max of bools and integers", 2, (D.bool, D.int32),
        lambda a, b: ops.concat([ops.minimum(a, b), ops.maximum(a, b)]),
        lambda a, b: np.concatenate([np.minimum(a, b), np.maximum(a, b)]), drawn(2)),
    Row("binops.cu", "min and max of floats, of which neither is NaN", 6, FLOATS,
        lambda a, b: ops.concat([ops.minimum(a, b), ops.maximum(a, b)]),
        lambda a, b: np.concatenate([np.minimum(a, b), np.maximum(a, b)]),
        fixed([1, -2, np.inf, 0.25], [3, -4, -np.inf, 0.5])),
    Row("binops.cu", "the cross product of two vectors", 3, FLOATS, ops.cross,
        lambda a, b: np.array([-3, 6, -3]).astype(a.dtype), fixed([1, 2, 3], [4, 5, 6])),
]  # fmt: skip

UNOPS = [
    *_elementwise(
        "unops.cu",
        (D.bool, D.int32),
        1,
        {
            "-a, of bools the same": (lambda a: -a, lambda a: a if a.dtype == bool else -a),
            "!a": (ops.logical_not, lambda a: a == 0),
        },
    ),
    Row("unops.cu", "~a of integers", 1, (D.int32,), lambda a: ~a, lambda a: ~a, drawn(1)),
    Row("unops.cu", "~a of bools is true", 0,
        reason="C++ makes an int of a bool, whose complement is never 0; here ~ of a bool is the other one"),
    *_elementwise(
        "unops.cu", FLOATS, 1, {"-a": (lambda a: -a, lambda a: -a), "!a is 1 of 0": (ops.logical_not, lambda a: a == 0)}
    ),
    *(
        Row("unops.cu", f"{name}(a)", 1 if name == "erf" else 2, FLOATS, call, each(formula), drawn(1), near=2e-6)
        for name, call, formula in (
            ("sqrt", ops.sqrt, np.sqrt), ("sin", ops.sin, np.sin), ("cos", ops.cos, np.cos), ("log", ops.log, np.log),
            ("exp", ops.exp, np.exp), ("rcp", ops.reciprocal, lambda x: 1 / x),
            ("rsqrt", ops.rsqrt, lambda x: 1 / np.sqrt(x)),
        )
    ),
    Row("unops.cu", "erf(a)", 1, (D.float32, D.float64), ops.erf,
        lambda a: np.array([0, 0.5204998778130465, -0.8427007929497149, 1]).astype(a.dtype),
        fixed([0, 0.5, -1, np.inf]), near=2e-7),
]  # fmt: skip

TRIOPS = [
    Row("triops.cu", "where(a, b, c): b where a is not 0", 1, NUMBERS, ops.where,
        lambda a, b, c: np.where(a != 0, b, c), drawn(3)),
    Row("triops.cu", "where(a, b): b, or 0", 1, NUMBERS, lambda a, b: ops.where(a, b, constant(0)),
        lambda a, b: np.where(a != 0, b, np.zeros_like(b)), drawn(2)),
    Row("triops.cu", "where(a): 1 or 0", 1, NUMBERS,
        lambda a: ops.where(a, ops.ones(a.shape, a.dtype), ops.zeros(a.shape, a.dtype)),
        lambda a: (a != 0).astype(a.dtype), drawn(1)),
    Row("triops.cu", "fma(a, b, c), as a * b + c is rounded or closer", 1, NUMBERS, ops.fma,
        lambda a, b, c: each(lambda x, y, z: x * y + z)(a, b, c), drawn(3), near=2e-7),
]  # fmt: skip

_REDUCED = [[0], [1], [5], [0, 0], [5, 0], [5, -3], [0, 0, 0], [5, 0, -1], [5, -3, 1], [0, 0, 0, 0], [5, 0, -1, 0],
            [5, -3, 1, -2]]  # fmt: skip
_DOTS = [([-1], [2]), ([3, -4], [2, 1]), ([2, -3, 6], [2, -1, 3]), ([2, -4, 5, 6], [2, 1, -3, 1]),
         ([1, -3, 4, 5, 7], [2, 0, 1, -1, 2])]  # fmt: skip


def _own(formula: Callable[[Array], Any]) -> Callable[..., Any]:
    return lambda a: np.asarray(formula(a.astype(np.float64))).astype(a.dtype)


REDUCE = [
    *(
        Row("reduce.cu", f"{name} of {vector}", 1, NUMBERS, call, want, fixed(vector))
        for vector in _REDUCED
        for name, call, want in (
            ("min", ops.min, _own(np.min)), ("max", ops.max, _own(np.max)), ("sum", ops.sum, _own(np.sum)),
            ("product", ops.prod, _own(np.prod)), ("all is a bool", ops.all, lambda a: np.all(a != 0)),
            ("any is a bool", ops.any, lambda a: np.any(a != 0)),
            ("count is an int", ops.count_nonzero, lambda a: np.int32((a != 0).sum())),
        )
    ),
    *(Row("reduce.cu", f"dot of {x} and {y}", 1, FLOATS, ops.vecdot,
          lambda a, b: np.asarray((a.astype(float) * b.astype(float)).sum()).astype(a.dtype), fixed(x, y))
      for x, y in _DOTS),
    *(Row("reduce.cu", f"mag of {x}", 1, FLOATS, ops.mag,
          lambda a: np.asarray(np.sqrt((a.astype(float) ** 2).sum())).astype(a.dtype), fixed(x)) for x, _ in _DOTS),
]  # fmt: skip

_PLAIN = (
    D.bool, D.int8, D.uint8, D.int16, D.uint16, D.int32, D.uint32, D.int64, D.uint64, D.float32, D.float64, D.float16,
    D.bfloat16,
)  # fmt: skip
CAST = [
    Row("cast.cu", f"0 and 1 become 0 and 1 of {target}", 2 if target is D.bool else 0, _PLAIN,
        lambda a, target=target: a.cast(target),
        lambda a, target=target: a.astype(np.float32).astype(target.numpy), fixed([0, 1]))
    for target in _PLAIN
]  # fmt: skip


def _meets(states: str, call: Callable[[Symbol], Symbol], formula: Callable[[Array], Any]) -> Row:
    return Row("constant.cu", states, 4, NUMBERS, call, each(formula), drawn(1))


CONSTANT = [
    _meets("a constant 5.0 and a value are added, in both orders, in the value's type",
           lambda a: ops.concat([constant(5.0) + a, a + constant(5.0)]),
           lambda a: np.concatenate([a.dtype.type(5) + a, a + a.dtype.type(5)])),
    _meets("a constant 5.0 and a value are subtracted, in both orders, in the value's type",
           lambda a: ops.concat([constant(5.0) - a, a - constant(5.0)]),
           lambda a: np.concatenate([a.dtype.type(5) - a, a - a.dtype.type(5)])),
    _meets("a constant 5.0 and a value are multiplied, in both orders, in the value's type",
           lambda a: ops.concat([constant(5.0) * a, a * constant(5.0)]),
           lambda a: np.concatenate([a.dtype.type(5) * a, a * a.dtype.type(5)])),
    *(Row("constant.cu", f"a constant of any type is cast to {target}", 1 if target in (D.float64, D.float32, D.int32)
          else 0, (D.int32,), lambda a, target=target: constant(5.0).cast(target),
          lambda a, target=target: np.asarray(5).astype(target.numpy), fixed([0]))
      for target in NUMBERS),
    Row("constant.cu", "a constant 5.0, 5.0f or 5 is cast to the type", 3, NUMBERS,
        lambda a: ops.stack([constant(v).cast(a.dtype) for v in (5.0, np.float32(5).item(), 5)]),
        lambda a: np.full(3, 5).astype(a.dtype), fixed([0])),
    Row("constant.cu", "fma of a value and constants of several types is of the value's", 6, NUMBERS,
        lambda a: ops.concat([ops.fma(a, constant(y), constant(z))
                              for y, z in ((5.0, 5.0), (5, 5), (5.0, 5), (5, 5.0))]),
        lambda a: np.full(4, 30).astype(a.dtype), fixed([5])),
    Row("constant.cu", "a constant 5 equals 5 of another type, and is not 6", 12, NUMBERS,
        lambda a: ops.concat([f(*pair) for f, n in ((ops.equal, 0), (ops.not_equal, 1))
                              for pair in ((constant(5), a + n), (a + n, constant(5.0)))]),
        lambda a: np.full(4, 1).astype(a.dtype), fixed([5])),
]  # fmt: skip


def _vector(count: int) -> Callable[[DType], Sequence[Array]]:
    return lambda dtype: [np.arange(count).astype(np.float32).astype(dtype.numpy)]


_OF_C = "addresses of memory, iterators and setters of a C++ object: a tensor has none"
BASICS = [
    Row("basics.cu", "a vector is of zeros, of ones, of steps or of one value repeated", 4, (D.int32, D.float32),
        lambda a: ops.concat([ops.zeros([3], a.dtype), ops.ones([3], a.dtype), ops.range(0, 3, dtype=a.dtype),
                              ops.full([3], 7, a.dtype)]),
        lambda a: np.array([0, 0, 0, 1, 1, 1, 0, 1, 2, 7, 7, 7], a.dtype), _vector(1)),
    Row("basics.cu", "an element is read by its place, in four spellings", 4, (D.int32, D.float32), lambda a: a[2],
        lambda a: a[2], _vector(4)),
    Row("basics.cu", "size, begin, end, data and their constant forms; set", 8, reason=_OF_C),
    Row("basics.cu", "into_vec of a scalar is a vector of one", 2, (D.int32, D.float32), lambda a: ops.into_vec(a[2]),
        lambda a: a[2:3], _vector(4)),
    Row("basics.cu", "into_vec of CUDA's int1 to float4, and of an array", 10, (D.int32, D.float32),
        lambda a: ops.into_vec([a[i] for i in range(4)]), lambda a: a, _vector(4)),
    Row("basics.cu", "into_vec of a vector is that vector", 2, (D.int32, D.float32), ops.into_vec, lambda a: a,
        _vector(3)),
    Row("basics.cu", "make_vec of a bool, a narrower number and one of the type is of the type", 2,
        (D.int32, D.float32),
        lambda a: ops.vec(ops.constant(True), ops.constant(2, D.int16), a), lambda a: np.array([1, 2, 3], a.dtype),
        fixed([3])),
]  # fmt: skip


def _select(states: str, checks: int, call: Callable[[Symbol], Any], places: list[int]) -> Row:
    return Row("iterate.cu", states, checks, NUMBERS, call, lambda a: a[places], _vector(8))


ITERATE = [
    _select("select of no places is empty", 3, lambda a: ops.gather(a, np.array([], np.int64)), []),
    _select("select of one place", 4, lambda a: ops.into_vec(a[5]), [5]),
    _select("select of two and three places", 7, lambda a: ops.vec(a[5], a[0], a[7]), [5, 0, 7]),
    _select("select of a vector of places", 4, lambda a: ops.gather(a, np.array([6, 7, 2])), [6, 7, 2]),
]

_ADDRESS = (
    "alignment, cache modifiers and vector pointers say how memory is read; the values are those of the rows above"
)


def _stored(places: list[int], values: list[int]) -> Callable[[Symbol], Symbol]:
    return lambda a: ops.scatter(a, ops.constant(np.array(values), a.dtype), np.array(places), 0)


def _with(places: list[int], values: list[int]) -> Callable[[Array], Array]:
    def want(a: Array) -> Array:
        result = a.copy()
        result[places] = np.array(values).astype(a.dtype)
        return result

    return want


MEMORY = [
    Row("memory.cu", "read at places", 2, NUMBERS, lambda a: ops.gather(a, np.array([3, 2, 7])), lambda a: a[[3, 2, 7]],
        _vector(8)),
    Row("memory.cu", "read at places under a mask, 0 where it is false", 1, NUMBERS,
        lambda a: ops.where(np.array([True, False, True]), ops.gather(a, np.array([3, 0, 7])), constant(0)),
        lambda a: np.array([3, 0, 7]).astype(a.dtype), _vector(8)),
    Row("memory.cu", "read of the first three, and of three from an offset", 2, NUMBERS,
        lambda a: ops.concat([a[:3], a[2:5]]), lambda a: a[[0, 1, 2, 2, 3, 4]], _vector(8)),
    Row("memory.cu", "write at places", 8, NUMBERS, _stored([1, 3], [100, 200]), _with([1, 3], [100, 200]),
        _vector(4)),
    Row("memory.cu", "write at places under a mask", 4, NUMBERS,
        lambda a: ops.where(np.array([False, True, False, False]), _stored([1, 3], [100, 200])(a), a),
        _with([1], [100]), _vector(4)),
    Row("memory.cu", "write to the front, and from an offset", 8, NUMBERS, _stored([1, 2], [100, 200]),
        _with([1, 2], [100, 200]), _vector(4)),
    Row("memory.cu", "an assignment with cast_to converts", 1, NUMBERS, lambda a: a.cast(D.float32),
        lambda a: a.astype(np.float32), drawn(1)),
    Row("memory.cu", "aligned reads and writes, cache modifiers, vector pointers", 50, reason=_ADDRESS),
]  # fmt: skip

TILING = [
    Row("tiling.cu", "which elements a thread of a block has", 42,
        reason="the layout of threads on a processor: a graph has no threads"),
]  # fmt: skip

ROWS = [*BASICS, *BINOPS, *CAST, *CONSTANT, *ITERATE, *MEMORY, *REDUCE, *TILING, *TRIOPS, *UNOPS]

__all__ = ["CHECKS", "NAMES", "PROMOTION", "ROWS"]
