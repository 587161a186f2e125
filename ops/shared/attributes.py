"""Arguments that become attributes of ONNX operators."""

from __future__ import annotations

import math
import operator

import numpy as np

from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.support.suggestions import suggestion
from graphcore.types.dtypes import DType


def real(op: str, name: str, value: object, *, least: float | None = None) -> float:
    """Return an argument that must be a finite number, of at least `least`. Raises `DTypeError` or `ShapeError`."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise DTypeError(f"{op}: {name} must be a Python number, not {value!r:.60}", help=f"give a float: {name}=0.5")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the range of floats
        number = math.inf
    if not math.isfinite(number) or (least is not None and number < least):
        bound = "finite" if least is None else f"finite and at least {least:g}"
        raise ShapeError(f"{op}: {name}={value} is not {bound}", help=f"give a {name} that is {bound}")
    return number


def whole(op: str, name: str, value: object, least: int) -> int:
    """Return an argument that must be an int of at least `least`. Raises `DTypeError` or `ShapeError`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(f"{op}: {name}={value!r} is no int", help=f"give an int >= {least}") from None
    if number < least:
        raise ShapeError(f"{op}: {name}={number} is below {least}", help=f"give an int >= {least}")
    return number


def choice(op: str, name: str, value: object, known: tuple[str, ...]) -> str:
    """Return an argument that must be one of the known words. Raises `GraphError`."""
    if not isinstance(value, str) or value not in known:
        close = suggestion(value, known)
        raise GraphError(
            f"{op}: {name}={value!r:.80} is not known", help=f"{close}use one of {', '.join(map(repr, known))}"
        )
    return value


def domain_for(dtype: DType, *numbers: float | None) -> str:
    """Return an operator's domain: the library's where float64 would show that ONNX rounds attributes to float32."""
    with np.errstate(over="ignore"):
        rounded = any(n is not None and float(np.float32(n)) != n for n in numbers)
    return LIBRARY if dtype is DType.float64 and rounded else ""
