"""The ops that ask for an order of numbers, which complex ones have not."""

from __future__ import annotations

from graphcore.errors import DTypeError
from graphcore.promotion.rules.question import Key, NoPromotion
from graphcore.types.dtypes import DType

ORDERED = frozenset(
    {
        "arg_max", "argmax", "argmin", "argsort", "bottom_k", "ceil", "clip", "floor", "floor_div", "fmod", "greater",
        "greater_equal", "less", "less_equal", "max", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d", "maximum",
        "median", "min", "minimum", "mod", "modf", "quantile", "relu", "rint", "scatter_max", "scatter_min",
        "scatter_nd_max", "scatter_nd_min", "sort", "top_k", "trunc",
    }
)  # fmt: skip
"""Those that ask which of two numbers is the greater, or for the whole number next to one."""

IN_PARTS = "compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)"


def check_order(key: Key, dtype: DType) -> None:
    """Raise `NoPromotion` for an op that asks for an order of complex numbers."""
    if dtype.is_complex and key.op in ORDERED:
        raise NoPromotion("complex numbers have no order", help=IN_PARTS, error=DTypeError)
