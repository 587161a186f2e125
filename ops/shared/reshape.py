"""Reshape with symbolic dims, and the layouts and arguments per axis of ops on images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from graphcore.build.shapes import Roles, retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Constant, Symbol
from graphcore.operators.shapes.reductions import window_count
from graphcore.ops.shared.attributes import whole
from graphcore.ops.shared.dims import Axis, Size, product, provably_differ, shape_vector
from graphcore.support.escaping import suggestion
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

Wanted: TypeAlias = Dim | Axis | Symbol | None
"""A size to reshape to: a dim, that of an axis, an int64 Symbol of shape [1], or None for the one to infer."""


def reshaped(
    op: str,
    x: Symbol,
    wanted: Sequence[Wanted],
    roles: Mapping[str, object],
    *,
    out: Shape | None = None,
    sources: Sequence[Symbol] = (),
) -> Symbol:
    """Return the elements of `x`, in order, under another shape.

    out: the dims of the result, where more of them is known than in `wanted`. sources: as for `shape_vector`, after
    `x`. Raises `ShapeError` where the element counts provably differ.
    """
    dims = [_dim_of(size) for size in wanted]
    before, after = _counts(x, wanted)
    exact = not before.is_dynamic and before is after
    position = next((i for i, size in enumerate(wanted) if size is None), None)
    if position is not None:
        dims[position] = _inferred(op, x, dims, before, after, roles)
        exact = not before.is_dynamic and dims[position] * after is before
    elif provably_differ(before, after):
        raise ShapeError(
            f"{op}: {x.shape} has {before} elements and {_shape(dims)} has {after}",
            operands=roles,
            help="give a shape with as many elements, or -1 for the dim that follows from the others",
        )
    shape = _merged(op, _shape(dims), out, roles)
    if len(shape) == x.rank and all(_stays(x, i, size, dims[i]) for i, size in enumerate(wanted)):
        return x if shape == x.shape else x.graph.build.emit("Identity", (x,), retype(x, shape=shape))
    type_ = retype(x, shape=shape)
    numbers = _as_constant(x, wanted, dims, exact)
    if numbers is not None:
        attributes = {"allowzero": 1} if 0 in dims else None
        return x.graph.build.emit("Reshape", (x, x.graph.build.vector(numbers)), type_, attributes)
    if len(dims) == 2 and x.rank > 1 and exact and _stays(x, 0, wanted[0], dims[0]):
        return x.graph.build.emit("Flatten", (x,), type_, {"axis": 1})
    vector = shape_vector(x.graph, _sizes(op, x, wanted, dims, sources), (x, *sources), op=op)
    return x.graph.build.emit("Reshape", (x, vector), type_, {"allowzero": 1})


def reshaped_by(op: str, x: Symbol, vector: Symbol, shape: Shape, roles: Mapping[str, object]) -> Symbol:
    """Return `x` under the shape in an integer Symbol; `shape`: what is known of its values."""
    before = x.shape.size
    if provably_differ(before, shape.size):
        raise ShapeError(
            f"{op}: {x.shape} has {before} elements and {shape} has {shape.size}",
            operands=roles,
            help="give out_dims with as many elements",
        )
    sizes = x.graph.build.cast(vector, DType.int64)
    return x.graph.build.emit("Reshape", (x, sizes), retype(x, shape=shape), {"allowzero": 1})


def as_size(value: Symbol) -> Symbol:
    """Return an integer scalar as an int64 Symbol of shape [1]."""
    wide = value.graph.build.cast(value, DType.int64)
    return wide.graph.build.emit(
        "Unsqueeze", (wide, wide.graph.build.vector([0])), tensor_type(DType.int64, _shape((Dim(1),)))
    )


def _dim_of(size: Wanted) -> Dim:
    if isinstance(size, Axis):
        return size.dim
    return size if isinstance(size, Dim) else Dim.dynamic()


def _counts(x: Symbol, wanted: Sequence[Wanted]) -> tuple[Dim, Dim]:
    """Return the element counts of `x` and of the wanted shape, without the axes of `x` that stay."""
    kept = {size.axis for size in wanted if isinstance(size, Axis) and size.symbol is x}
    before, after = Dim(1), Dim(1)
    for axis, dim in enumerate(x.shape):
        if axis not in kept:
            before *= dim
    for size in wanted:
        if size is not None and not (isinstance(size, Axis) and size.symbol is x):
            after *= _dim_of(size)
    return before, after


def _inferred(op: str, x: Symbol, dims: Sequence[Dim], before: Dim, after: Dim, roles: Mapping[str, object]) -> Dim:
    if after == 0:
        raise ShapeError(
            f"{op}: -1 cannot be inferred beside a dim of 0", operands=roles, help="write the size in its place"
        )
    if before.is_dynamic or after.is_dynamic:
        return Dim.dynamic()
    rest = before % after
    if rest.is_static and rest != 0:
        raise ShapeError(
            f"{op}: {before} elements do not divide by {after}, the product of the other dims",
            operands=roles,
            help=f"the other dims must multiply to a divisor of {before}",
        )
    return before // after


def _merged(op: str, shape: Shape, out: Shape | None, roles: Mapping[str, object]) -> Shape:
    """Merge the shape with `out`. Raises `ShapeError` where the two provably differ."""
    if out is None:
        return shape
    if len(out) != len(shape):
        raise ShapeError(
            f"{op}: out_dims {out} has {len(out)} dims and the shape {len(shape)}",
            operands=roles,
            help="give one dim for each size of the shape",
        )
    for dim, said in zip(shape, out, strict=True):
        if provably_differ(dim, said):
            raise ShapeError(
                f"{op}: out_dims says {said} where the shape says {dim}",
                operands=roles,
                help="leave out_dims out, or give the dims that the shape has",
            )
    return out


def _stays(x: Symbol, axis: int, size: Wanted, dim: Dim) -> bool:
    """Return whether the size at `axis` is provably that of the axis of `x` there."""
    if axis >= x.rank:
        return False
    return size.is_of(x, axis) if isinstance(size, Axis) else not dim.is_dynamic and dim is x.shape[axis]


def _as_constant(x: Symbol, wanted: Sequence[Wanted], dims: Sequence[Dim], exact: bool) -> list[int] | None:
    """Return the shape in ONNX's numbers, 0 for a kept axis and -1 for an inferred one, if right for all sizes."""
    if 0 in dims:  # then 0 means 0
        return [int(d) for d in dims] if all(d.is_static for d in dims) else None
    numbers = []
    for axis, (size, dim) in enumerate(zip(wanted, dims, strict=True)):
        stays = _stays(x, axis, size, dim)
        numbers.append(int(dim) if dim.is_static else 0 if stays else -1)
    unknown = numbers.count(-1)
    if not unknown:
        return numbers
    position = numbers.index(-1)
    # -1 cannot be inferred where another dim may be 0.
    full = math.prod(max(d.lower_bound or 0, 0) for i, d in enumerate(dims) if i != position) >= 1
    return numbers if unknown == 1 and full and (exact or wanted[position] is None) else None


def _sizes(op: str, x: Symbol, wanted: Sequence[Wanted], dims: Sequence[Dim], sources: Sequence[Symbol]) -> list[Size]:
    """Return what the runtime's shape is made of; a dim that has no name is worked out from the counts."""
    sizes: list[Size] = []
    for size, dim in zip(wanted, dims, strict=True):
        if size is not None:
            sizes.append(size)
        elif not dim.is_dynamic:
            sizes.append(dim)
        else:
            graph = x.graph
            total = product(graph, [Axis(x, i) for i in range(x.rank)], op=op)
            others = product(graph, [s for s in wanted if s is not None], (x, *sources), op=op)
            sizes.append(graph.build.emit("Div", (total, others), total.type))
    return sizes


# Layouts and arguments per axis, shared by the ops on images.

PerAxis: TypeAlias = int | Sequence[int]
"""A number for each spatial axis, or one for all of them."""

Padding: TypeAlias = PerAxis | str
"""Numbers before and after each spatial axis, "same" or "valid"."""

INPUTS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}
"""The layouts of images by the number of spatial axes; the last one is ONNX's."""

FILTERS = {1: ("SCF", "FCS"), 2: ("RSCF", "FCRS"), 3: ("QRSCF", "FCQRS")}
"""The layouts of filters: F and C count channels, the other letters are the kernel's axes. The last one is ONNX's."""

_AXIS_NAMES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def each(value: int, rank: int) -> PerAxis:
    """Return a default for so many spatial axes: a number for one of them, else a tuple."""
    return value if rank == 1 else (value,) * rank


def numbers(dims: Iterable[Dim]) -> list[Dim | int]:
    """Return dims with static ones as ints, whose arithmetic takes a tenth of the time."""
    return [dim if dim.value is None else dim.value for dim in dims]


def static(size: Dim | int) -> int | None:
    """Return a size as an int; None where it is not known."""
    return size.value if isinstance(size, Dim) else size


def per_axis(op: str, name: str, value: PerAxis, count: int, least: int = 1) -> list[int]:
    """Return one int per spatial axis, from one for each or one for all."""
    given = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(given) != count:
        raise ShapeError(
            f"{op}: {name}={value} has {len(given)} numbers",
            help=f"give one int, or one for each of {', '.join(_AXIS_NAMES[count])}",
        )
    return [v if type(v) is int and v >= least else whole(op, name, v, least) for v in given]


def padding_of(op: str, value: PerAxis, count: int) -> tuple[list[int], list[int]]:
    """Return the padding before and after each spatial axis.

    value: (before, after) of each axis in turn, or one int for both sides of each axis, or one int for all.
    """
    given = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(given) == count:
        given = [v for v in given for _ in range(2)]
    if len(given) != 2 * count:
        pairs = ", ".join(f"{axis}_before, {axis}_after" for axis in _AXIS_NAMES[count])
        raise ShapeError(f"{op}: padding={value} has {len(given)} numbers", help=f"give ({pairs})")
    pads = [v if type(v) is int and v >= 0 else whole(op, "padding", v, 0) for v in given]
    return pads[::2], pads[1::2]


def pads_of(
    op: str,
    value: Padding,
    sizes: Sequence[Dim | int],
    kernel: Sequence[Dim | int],
    stride: Sequence[int],
    dilation: Sequence[int],
    roles: Roles,
) -> tuple[list[int], list[int]] | None:
    """Return the padding before and after each spatial axis; None for "same" where only the run knows it.

    value: numbers as for `padding_of`; "valid" for none; "same" for as much as gives a window every `stride` elements,
    an odd one after the axis. Raises `ShapeError` for other words, and for "same" of a dilated kernel where only the
    run knows it: onnxruntime refuses that for convolutions and has other numbers of windows for pools.
    """
    if not isinstance(value, str):
        return padding_of(op, value, len(sizes))
    if value == "valid":
        return [0] * len(sizes), [0] * len(sizes)
    if value != "same":
        raise ShapeError(f"{op}: there is no padding {value!r}", help="give 'same', 'valid' or numbers")
    totals = []
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        covered = (k - 1) * d + 1
        total = static(covered - 1 if s == 1 else Dim.maximum((-(-size // s) - 1) * s + covered - size, 0))
        if total is not None:
            totals.append(total)
        elif any(step != 1 for step in dilation):
            raise ShapeError(
                f"{op}: padding='same' of a dilated kernel needs sizes that are known now",
                operands=roles,
                help="make the sizes of the image static, use a stride of 1, or give the padding in numbers",
            )
        else:
            return None
    return [total // 2 for total in totals], [total - total // 2 for total in totals]


def cut_of(
    op: str,
    value: Padding,
    kernel: Sequence[Dim | int],
    stride: Sequence[int],
    dilation: Sequence[int],
    extra: list[int],
    roles: Roles,
) -> tuple[list[int], list[int], list[int]]:
    """Return how much is cut off a transposed convolution before and after each axis, and how much is added."""
    if value == "valid":
        return [0] * len(extra), [0] * len(extra), extra
    if value != "same":
        if isinstance(value, str):
            raise ShapeError(f"{op}: there is no padding {value!r}", help="give 'same', 'valid' or numbers")
        return *padding_of(op, value, len(extra)), extra
    sides = [k for k in map(static, kernel) if k is not None]
    if len(sides) != len(kernel):
        raise ShapeError(
            f"{op}: padding='same' needs a filter of known size",
            operands=roles,
            help="make the sizes of the filter static, or give the padding in numbers",
        )
    # Of what is made, (size - 1) * stride + covered + extra, there remain size * stride elements.
    surplus = [(k - 1) * d + 1 + more - s for k, s, d, more in zip(sides, stride, dilation, extra, strict=True)]
    totals = [max(n, 0) for n in surplus]
    added = [more + max(-n, 0) for n, more in zip(surplus, extra, strict=True)]
    return [n // 2 for n in totals], [n - n // 2 for n in totals], added


def layout_of(op: str, name: str, layout: str, known: Sequence[str]) -> str:
    """Return a checked layout's name. Raises `ShapeError`."""
    if not isinstance(layout, str) or layout not in known:
        close = suggestion(layout, known)
        raise ShapeError(
            f"{op}: {name}={layout!r:.80} is no layout of it", help=f"{close}use one of {', '.join(map(repr, known))}"
        )
    return layout


def of_rank(op: str, role: str, symbol: Symbol, axes: str, roles: Roles) -> None:
    """Raise `ShapeError` unless `symbol` has an axis for each letter of a layout."""
    if symbol.rank != len(axes):
        raise ShapeError(
            f"{op}: {role} has rank {symbol.rank}, not {len(axes)}",
            operands=roles,
            help=f"its axes must be {axes}: add or remove axes with ops.unsqueeze or ops.reshape",
        )


def relaid(symbol: Symbol, source: str, target: str) -> Symbol:
    """Convert a tensor from one layout to another: by a Transpose, or for a constant by a transposed constant."""
    if source == target:
        return symbol
    order = [source.index(axis) for axis in target]
    producer = symbol.producer
    if type(producer) is Constant and not producer.is_weight:
        return symbol.graph.build.constant(np.ascontiguousarray(producer.array.transpose(order)), symbol.dtype)
    dims = tuple(symbol.shape)
    made = tensor_type(symbol.dtype, _shape([dims[a] for a in order]))
    return symbol.graph.build.emit("Transpose", (symbol,), made, {"perm": order})


def windows(
    op: str,
    sizes: Sequence[Dim | int],
    kernel: Sequence[Dim | int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]] | None,
    roles: Roles,
    *,
    ceil_mode: bool = False,
) -> list[Dim]:
    """Return how many places a kernel has along each axis. Raises `ShapeError` where it has none.

    pads: before and after each axis, None for one window every `stride` elements. ceil_mode: count a last window that
    reaches beyond the padded end, unless all of it lies after the input.
    """
    if pads is None:
        return [Dim(-(-size // s)) for size, s in zip(sizes, stride, strict=True)]
    counts = []
    for axis, size, k, s, d, p, q in zip(_AXIS_NAMES[len(sizes)], sizes, kernel, stride, dilation, *pads, strict=True):
        room = static(size + (p + q) - (k - 1) * d - 1)
        if room is not None and room < 0:
            raise ShapeError(
                f"{op}: the kernel does not fit: it covers {(k - 1) * d + 1} along the {axis}, "
                f"the padded input has {size + (p + q)}",
                operands=roles,
                help="use a smaller kernel or dilation, or more padding",
            )
        counts.append(Dim(window_count(size, k, s, d, p, q, ceil_mode=ceil_mode)))
    return counts
