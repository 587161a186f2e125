"""Operators on strings."""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

from graphcore.ir.symbol import Symbol, present
from graphcore.ir.transform.walk import node_of
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import shape_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_ALL_CATEGORIES = 0x1FBF
"""LC_ALL_MASK of glibc."""


def normalizer(b: Builder, call: OpCall) -> Replacement:
    """Compute StringNormalizer in an installed locale: the kernel's default may not be installed."""
    chosen = None if call.attributes.get("locale") else locale()
    if chosen is None:
        return None
    return b.emit_many(call.op, tuple(call.inputs), call.types, {**call.attributes, "locale": chosen})


def split(b: Builder, call: OpCall) -> Replacement:
    """Compute StringSplit by a delimiter: "" has one part, "", but the kernel counts none."""
    if not call.attributes.get("delimiter"):
        return None
    (x,) = call.inputs
    parts, counts = call.types
    first, part_counts = b.emit_many(call.op, (x,), call.types, call.attributes)
    part_counts = b.op("Max", part_counts, b.scalar(1, DType.int64), dtype=DType.int64, shape=counts.shape)
    sizes = b.op("Concat", shape_of(b, x), b.vector([1]), axis=0)
    empty = b.constant(np.array("", object), DType.string)
    more = b.op("Expand", empty, sizes, shape=parts.shape)
    longer = b.op("Concat", first, more, shape=parts.shape, axis=-1)
    every = b.op("Concat", b.op("Reshape", part_counts, b.vector([-1])), b.vector([0]), axis=0)
    max_count = b.op("ReduceMax", every, b.vector([0]), keepdims=1)
    return b.op("Slice", longer, b.vector([0]), max_count, b.vector([-1]), shape=parts.shape), part_counts


def gather(b: Builder, call: OpCall) -> Replacement:
    """Compute Gather of strings by single elements: the kernel copies only the first element of longer slices."""
    x, indices = call.inputs
    axis = call.attributes.get("axis", 0)
    if axis == -1 or (x.shape.is_ranked and axis == x.rank - 1):
        return None
    places = b.cast(indices, DType.int64)
    if axis == 0 or (x.shape.is_ranked and axis == -x.rank):
        return b.native("GatherND", x, b.op("Unsqueeze", places, b.vector([-1])), shape=call.shape)
    sizes, taken = shape_of(b, x), shape_of(b, places)
    before = b.op("Slice", sizes, b.vector([0]), b.vector([axis]))
    after_axis = b.op("Slice", sizes, b.vector([axis + 1]), b.vector([1 << 62]))
    length = b.op("Slice", sizes, b.vector([axis]), b.vector([axis + 1]))
    outer, inner, count = (b.op("ReduceProd", s, b.vector([0]), keepdims=1) for s in (before, after_axis, taken))
    cube_sizes = b.op("Concat", outer, length, inner, shape=_shape([Dim(3)]), axis=0)
    cube = b.op("Transpose", b.op("Reshape", x, cube_sizes, allowzero=1), perm=[0, 2, 1])
    line = b.op("Reshape", places, count, allowzero=1)
    gathered = b.op("Transpose", b.native("Gather", cube, line, axis=2), perm=[0, 2, 1])
    return b.op("Reshape", gathered, b.op("Concat", before, taken, after_axis, axis=0), shape=call.shape, allowzero=1)


@functools.cache
def locale() -> str | None:
    """Return the locale for models that name none; None if the kernel's own default is installed.

    C.UTF-8, which is part of glibc, maps the cases of all letters as en_US.UTF-8 does.
    """
    if sys.platform != "linux" or _exists("en_US.UTF-8"):
        return None
    return next((name for name in ("C.UTF-8", "C.utf8") if _exists(name)), "C")


def _exists(name: str) -> bool:
    library = ctypes.CDLL(None)
    library.newlocale.restype = ctypes.c_void_p
    library.newlocale.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    handle = library.newlocale(_ALL_CATEGORIES, name.encode(), None)
    if not handle:
        return False
    library.freelocale.argtypes = (ctypes.c_void_p,)
    library.freelocale(handle)
    return True


# Optionals of any dtype that are created and read in one graph: the runtime supports few dtypes.


def replace_call(b: Builder, call: OpCall) -> tuple[Symbol, ...] | None:
    """Return the element of an optional, or True for its presence; None if the optional comes from elsewhere."""
    source = node_of(call.inputs[0], "Optional") if call.inputs else None
    if source is None or not source.inputs:
        return None
    (element,) = map(present, source.inputs)
    return (element if call.op == "OptionalGetElement" else b.scalar(True, DType.bool),)
