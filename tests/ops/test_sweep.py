"""Every pair of the lattice's 16 dtypes through every operator, end to end, against `tests.support.reference`.

One graph a pair holds all the operators that the system allows for it; the model is exported, run on the CPU
provider and compared bit for bit, but for float `**` and sums, where docs/numbers.md allows an error.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, implicit_cast_type, ops
from graphcore.arrays import casting
from graphcore.errors import DTypeError, LossyCastWarning
from graphcore.promotion.max import DTYPES
from tests.support import reference

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType

ARITHMETIC: dict[str, Callable[..., Symbol]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "max": ops.max, "min": ops.min,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
BITWISE: dict[str, Callable[..., Any]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
SHIFTS: dict[str, Callable[..., Any]] = {"<<": operator.lshift, ">>": operator.rshift}

COUNT = 132
PAIRS = [pytest.param(a, b, id=f"{a}-{b}") for a in DTYPES for b in DTYPES]


def matrices(dtype: DType, common: DType, seed: int) -> tuple[Array, Array]:
    """Two matrices whose product is exact: any integers, and small whole numbers where it is made of floats."""
    if common.is_float:
        random = np.random.default_rng(seed)
        low = 0 if dtype.is_unsigned or dtype is D.bool else -4
        left, right = random.integers(low, 5, (5, 6)), random.integers(low, 5, (6, 3))
        return left.astype(np.float32).astype(dtype.numpy), right.astype(np.float32).astype(dtype.numpy)
    return reference.samples(dtype, 30, seed).reshape(5, 6), reference.samples(dtype, 18, seed + 1).reshape(6, 3)


def assert_same(name: str, got: Array, want: Array, *operands: Array) -> None:
    """Equal bits, any NaN being equal to any other, and 0.0 to -0.0 where NumPy itself does not care which."""
    assert got.dtype == want.dtype, f"{name}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{name}: {got.shape}, not {want.shape}"
    if got.dtype.kind == "c":
        got, want = casting.paired(got), casting.paired(want)
    plain_got, plain_want = reference.exact(got), reference.exact(want)
    same = (plain_got == plain_want) | (np.isnan(plain_got) & np.isnan(plain_want))
    if name not in ("max", "min") and got.dtype.kind not in "iub":
        zero = plain_want == 0
        same &= ~zero | (np.signbit(plain_got) == np.signbit(plain_want))
    if not same.all():
        at = int(np.flatnonzero(~same.ravel())[0])
        shown = [str(o.ravel()[at]) for o in operands if o.size == got.size]
        pytest.fail(f"{name}: {int((~same).sum())} wrong, such as {got.ravel()[at]} for {want.ravel()[at]} of {shown}")


def assert_near(name: str, got: Array, want: Array, dtype: DType, ulps: float) -> None:
    """Within `ulps` units in the last place of the dtype or 1e-6 (1e-12 for float64), whichever is larger."""
    assert got.dtype == want.dtype, f"{name}: {got.dtype}, not {want.dtype}"
    a, b = reference.exact(got), reference.exact(want)
    if dtype is D.float64:
        unit, least = np.longdouble(1e-12), 1e-12
    else:
        unit, least = np.longdouble(2.0) ** -reference.FORMATS[dtype][0] * ulps, 1e-6
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= np.maximum(np.abs(b) * unit, least)
    same = near | (a == b) | (np.isnan(a) & np.isnan(b))
    if not same.all():
        at = int(np.flatnonzero(~same.ravel())[0])
        pytest.fail(f"{name}: {int((~same).sum())} wrong, such as {got.ravel()[at]} for {want.ravel()[at]}")


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_operators_equal_reference_when_two_dtypes_meet(left: DType, right: DType) -> None:
    seed = DTYPES.index(left) * 16 + DTYPES.index(right)
    x, y = reference.samples(left, COUNT, seed), reference.samples(right, COUNT, seed + 1000)
    common = implicit_cast_type(left, right)
    (m, _), (_, n) = matrices(left, common, seed), matrices(right, common, seed + 7)
    graph = Graph(
        "pair",
        {
            "x": TensorType(left, ["n"]),
            "y": TensorType(right, ["n"]),
            "m": TensorType(left, [5, "k"]),
            "w": TensorType(right, ["k", 3]),
        },
    )
    sx, sy, sm, sn = graph.inputs
    cx, cy = reference.cast(x, left, common), reference.cast(y, right, common)
    quotient = common if common.is_float else D.float64
    by_name: dict[str, Symbol] = {}
    want: dict[str, Array] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for name, function in ARITHMETIC.items():
            if name == "-" and common is D.bool:
                with pytest.raises(DTypeError, match="sub has no meaning for bool"):
                    function(sx, sy)
                continue
            by_name[name] = function(sx, sy)
            want[name] = reference.arithmetic(name, cx, cy, common)
        by_name["/"] = sx / sy
        fx, fy = reference.cast(cx, common, quotient), reference.cast(cy, common, quotient)
        if not common.is_float:
            fx, fy = reference.cast(x, left, D.float64), reference.cast(y, right, D.float64)
        want["/"] = reference._float(np.divide, quotient, fx, fy)
        for name, function in COMPARISONS.items():
            by_name[name] = function(sx, sy)
            want[name] = reference.compare(name, cx, cy)
        for name, function in BITWISE.items():
            if common.is_float:
                with pytest.raises(DTypeError, match="works on the bits of integers and bools"):
                    function(sx, sy)
                continue
            by_name[name] = function(sx, sy)
            want[name] = {"&": cx & cy, "|": cx | cy, "^": cx ^ cy}[name]
        for name, function in SHIFTS.items():
            if not (left.is_integer and right.is_integer):
                with pytest.raises(DTypeError, match="cannot be shifted"):
                    function(sx, sy)
                continue
            by_name[name] = function(sx, sy)
            want[name] = reference.shift(name, x, y, left)
        by_name["@"] = sm @ sn
        want["@"] = reference.product(reference.cast(m, left, common), reference.cast(n, right, common), common)
    assert by_name["+"].dtype is common
    graph.output(**{f"out{i}": s for i, s in enumerate(by_name.values())})
    results = gc.InferenceSession().load(graph)(x, y, m, n)
    for (name, symbol), got in zip(by_name.items(), results, strict=True):
        if name == "**" and symbol.dtype.is_float:
            assert_near(name, got, want[name], symbol.dtype, 4 if symbol.dtype is D.float32 else 1)
        else:
            assert_same(name, got, want[name], x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_equal_reference_when_of_any_dtype(dtype: DType) -> None:
    x = reference.samples(dtype, 6 * 35, DTYPES.index(dtype)).reshape(6, 35)
    tame = x
    if dtype.is_float:  # sums of infinities are NaN, which says little
        tame = np.random.default_rng(1).integers(-9, 9, (6, 35)).astype(np.float32).astype(dtype.numpy)
    graph = Graph("reductions", {"x": TensorType(dtype, ["a", "b"]), "t": TensorType(dtype, ["a", "b"])})
    sx, st = graph.inputs
    graph.output(
        sum=ops.sum(st, axis=1), mean=ops.mean(st, axis=1), max=ops.max(sx, axis=1), min=ops.min(sx, axis=1),
        argmax=ops.argmax(sx, axis=1), all=ops.sum(st),
    )  # fmt: skip
    total, mean, greatest, least, where, all_of = gc.InferenceSession().load(graph)(x, tame)
    assert_same("sum", total, reference.total(tame, dtype))
    assert_near("mean", mean, reference.mean(tame, dtype), D.of(mean.dtype) if dtype is not D.tf32 else dtype, 1)
    wide = x.astype(np.float32) if dtype.is_float and dtype.bits < 32 else x
    assert_same("max", greatest, wide.max(axis=1).astype(x.dtype))
    assert_same("min", least, wide.min(axis=1).astype(x.dtype))
    assert (where == np.argmax(wide, axis=1)).all()
    assert_same("sum of all", all_of, reference.total(tame.reshape(-1), dtype))


@pytest.mark.parametrize("source", [*DTYPES, D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2], ids=str)
def test_cast_equals_reference_when_between_any_two_dtypes(source: DType) -> None:
    targets = [*DTYPES, D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2]
    x = reference.samples(source, 400, 5)
    graph = Graph("casts", {"x": TensorType(source, ["n"])})
    (symbol,) = graph.inputs
    graph.output(**{f"out{i}": ops.cast(symbol, target) for i, target in enumerate(targets)})
    for target, got in zip(targets, gc.InferenceSession().load(graph)(x), strict=True):
        assert_same(f"cast to {target}", got, reference.cast(x, source, target), x)
