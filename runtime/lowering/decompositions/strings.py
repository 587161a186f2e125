"""Operators on strings."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_ALL_CATEGORIES = 0x1FBF
"""LC_ALL_MASK of glibc."""


def normalizer(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """StringNormalizer in a locale that this machine has: the kernel's default need not be installed."""
    chosen = None if attributes.get("locale") else locale()
    if chosen is None:
        return None
    made: tuple[Any, ...] = on.graph._emit_many(op, tuple(inputs), types, {**attributes, "locale": chosen})
    return made


def split(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """StringSplit by a delimiter: "" is one part, "", of which the kernel counts none."""
    if not attributes.get("delimiter"):
        return None
    (x,) = inputs
    parts, counts = types
    first, found = on.graph._emit_many(op, (x,), types, attributes)
    found = on.op("Max", found, on.const(1, DType.int64), dtype=DType.int64, shape=counts.shape)
    rank = Dim(x.rank + 1) if x.shape.is_ranked else Dim.dynamic()
    sizes = on.op("Shape", x, dtype=DType.int64, shape=_shape([rank - 1 if rank.is_static else rank]))
    sizes = on.op("Concat", sizes, on.ints([1]), shape=_shape([rank]), axis=0)
    nothing = on.graph._constant(np.array("", object), DType.string)
    more = on.op("Expand", nothing, sizes, shape=parts.shape)
    longer = on.op("Concat", first, more, shape=parts.shape, axis=-1)
    every = on.op("Concat", on.op("Reshape", found, on.ints([-1]), shape=_LINE), on.ints([0]), shape=_LINE, axis=0)
    most = on.op("ReduceMax", every, on.ints([0]), shape=_shape([Dim(1)]), keepdims=1)
    return on.op("Slice", longer, on.ints([0]), most, on.ints([-1]), shape=parts.shape), found


def gather(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Gather of single elements: of those that go together the kernel copies the first alone."""
    x, indices = inputs
    axis = attributes.get("axis", 0)
    if axis == -1 or (x.shape.is_ranked and axis == x.rank - 1):
        return None
    places = on.casts.cast(indices, indices.dtype, DType.int64)
    if axis == 0 or (x.shape.is_ranked and axis == -x.rank):
        rank = [*places.shape, Dim(1)] if places.shape.is_ranked else None
        column = on.op("Unsqueeze", places, on.ints([-1]), shape=Shape.unknown() if rank is None else _shape(rank))
        return on.native("GatherND", x, column, shape=types[0].shape)
    sizes, taken = _shape_of(on, x), _shape_of(on, places)
    before = on.op("Slice", sizes, on.ints([0]), on.ints([axis]), shape=_LINE)
    behind = on.op("Slice", sizes, on.ints([axis + 1]), on.ints([1 << 62]), shape=_LINE)
    length = on.op("Slice", sizes, on.ints([axis]), on.ints([axis + 1]), shape=_LINE)
    outer, inner, count = (
        on.op("ReduceProd", s, on.ints([0]), shape=_ONE, keepdims=1) for s in (before, behind, taken)
    )
    cube = on.op("Reshape", x, _joined(on, outer, length, inner), shape=_CUBE, allowzero=1)
    cube = on.op("Transpose", cube, shape=_CUBE, perm=[0, 2, 1])
    line = on.op("Reshape", places, count, shape=_LINE, allowzero=1)
    made = on.native("Gather", cube, line, shape=_CUBE, axis=2)
    made = on.op("Transpose", made, shape=_CUBE, perm=[0, 2, 1])
    return on.op("Reshape", made, _joined(on, before, taken, behind), shape=types[0].shape, allowzero=1)


def _shape_of(on: Legaliser, x: Symbol) -> Symbol:
    return on.op("Shape", x, dtype=DType.int64, shape=_LINE)


def _joined(on: Legaliser, *sizes: Symbol) -> Symbol:
    return on.op("Concat", *sizes, shape=_LINE, axis=0)


_LINE, _CUBE, _ONE = _shape([Dim.dynamic()]), _shape([Dim.dynamic()] * 3), _shape([Dim(1)])


@functools.cache
def locale() -> str | None:
    """The locale to name where a model names none; None where the kernel's own default serves.

    C.UTF-8, which is part of glibc, maps the cases of all letters as en_US.UTF-8 does.
    """
    if sys.platform != "linux" or _exists("en_US.UTF-8"):
        return None
    return next((name for name in ("C.UTF-8", "C.utf8") if _exists(name)), "C")


def _exists(name: str) -> bool:
    library = ctypes.CDLL(None)
    library.newlocale.restype = ctypes.c_void_p
    library.newlocale.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    found = library.newlocale(_ALL_CATEGORIES, name.encode(), None)
    if not found:
        return False
    library.freelocale.argtypes = (ctypes.c_void_p,)
    library.freelocale(found)
    return True
