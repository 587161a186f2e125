"""The results of a case by ONNX's own evaluator, and their comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from graphcore import DType
from graphcore.arrays.casting import cast_array
from graphcore.runtime.kernel_probe.kernels.case import SWEPT, Case, Operand
from tests.support.operators.building import Place
from tests.support.operators.formulas import FORMULAS

Array = np.ndarray[Any, Any]

OF_BITS = frozenset("BitCast BitShift BitwiseNot QuantizeLinear".split())
"""Operators whose numbers depend on the dtype: they are evaluated in it, and no other way."""

OPTIONAL = frozenset({"Optional", "OptionalGetElement"})
"""Operators whose results the evaluator has in a list."""


def wanted(place: Place, case: Case) -> list[Any] | None:
    """The values: by a formula, or as ONNX's evaluator has them; None where it has none.

    Floats are evaluated in float64, of the very operands, and rounded at the end; all else in the dtype, and in float64
    where the evaluator does not know the dtype. Operators of ai.onnx.ml compute in floats whatever they take.
    """
    dtype = place.dtype
    if place.name in FORMULAS:
        return _by_formula(FORMULAS[place.name], case, dtype)
    ways = [dtype]
    if dtype.is_number and place.name not in OF_BITS:
        ways = [DType.float64, dtype] if dtype.is_float or place.domain else [dtype, DType.float64]
    found = next((f for way in ways if (f := _evaluated(place, case, way)) is not None), None)
    if found is not None and place.name in OPTIONAL:
        return [f[0] if isinstance(f, list) else f for f in found]
    return found


def _by_formula(formula: Callable[..., Any], case: Case, dtype: DType) -> list[Any]:
    is_cast = formula in (FORMULAS["Cast"], FORMULAS["CastLike"])
    arrays: list[Array | None] = []
    for operand in case.inputs:
        array = operand.array(dtype) if isinstance(operand, Operand) else None
        if array is not None and array.dtype != object and not is_cast and DType.of(array.dtype).is_float:
            array = cast_array(array, DType.of(array.dtype), DType.float64)
        arrays.append(array)
    made = formula(*arrays, {n: dtype.onnx if v is SWEPT else v for n, v in case.attributes.items()})
    return made if isinstance(made, list) and formula is not FORMULAS["ZipMap"] else [made]


def _evaluated(place: Place, case: Case, way: DType) -> list[Any] | None:
    own, asked = place.question(case), place.question(case, way)
    feeds = {}
    for name, (array, dtype) in own.feeds.items():
        other = asked.feeds[name][1]
        feeds[name] = array if dtype is other else cast_array(array, dtype, other)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(asked.model).run(None, feeds))
    except Exception:  # of many kinds
        return None


def difference(found: Any, want: Any, dtype: DType | None = None) -> str:
    """ "" where the two are the same bits, "near" where they are as near as docs/numbers.md promises, or how not.

    dtype: where it is not that of the array found.
    """
    if isinstance(found, list) or isinstance(want, list):
        if not isinstance(found, list) or not isinstance(want, list) or len(found) != len(want):
            return f"{found!r:.80} for {want!r:.80}"
        return max((difference(f, w) for f, w in zip(found, want, strict=True)), key=len, default="")
    if found is None or want is None or isinstance(want, dict):
        return "" if found is want or found == want else f"{found!r:.80} for {want!r:.80}"
    want = np.asarray(want)
    if found.shape != want.shape:
        return f"shape {found.shape} for {want.shape}"
    if found.dtype == object or want.dtype.kind in "OUST":
        return "" if found.astype(str).tolist() == want.astype(str).tolist() else f"{found} for {want}"
    dtype = dtype or DType.of(found.dtype)
    if DType.of(want.dtype) is not dtype:
        want = cast_array(want, DType.of(want.dtype), dtype)
    if not dtype.is_float:
        return "" if (found == want).all() else f"{found.tolist()} for {want.tolist()}"
    x, y = found.astype(np.float64), want.astype(np.float64)
    if ((x == y) | (np.isnan(x) & np.isnan(y))).all():
        return ""
    return "near" if np.allclose(x, y, rtol=_step(dtype), atol=_NEAR.get(dtype, 1e-6), equal_nan=True) else _shown(x, y)


_NEAR = {DType.float64: 1e-12}


def _step(dtype: DType) -> float:
    """4 units in the last place of float32, and one of a narrower float that such a number is rounded to."""
    if dtype is DType.float64:
        return 1e-12
    return 4 * 2.0**-23 if dtype is DType.float32 else 2.0 ** -_MANTISSAS[dtype]


_MANTISSAS = {
    DType.float16: 10, DType.bfloat16: 7, DType.float8_e4m3fn: 3, DType.float8_e5m2: 2, DType.float8_e4m3fnuz: 3,
    DType.float8_e5m2fnuz: 2, DType.tensor_float32: 10, DType.float8_e8m0: 0, DType.float4_e2m1: 1,
}  # fmt: skip


def _shown(x: Array, y: Array) -> str:
    return f"{x.ravel()[:8].tolist()} for {y.ravel()[:8].tolist()}"
