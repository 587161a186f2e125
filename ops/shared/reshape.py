"""Reshape with symbolic dims, and the layouts and arguments per axis of ops on images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.operands import graph_of
from graphcore.build.shapes import Roles, check_integers, check_scalar, retype
from graphcore.errors import ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol
from graphcore.operators.shapes.reductions import window_count
from graphcore.ops.shared.attributes import whole
from graphcore.ops.shared.dims import Axis, Size, dims_of, listed, product, provably_differ, shape_vector
from graphcore.support.escaping import suggestion
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

TargetSize: TypeAlias = Dim | Axis | Symbol | None
"""A size to reshape to: a dim, the size of an axis, an int64 Symbol of shape [1], or None for the one to infer."""


def reshaped(
    op: str,
    x: Symbol,
    target: Sequence[TargetSize],
    roles: Mapping[str, object],
    *,
    out: Shape | None = None,
    sources: Sequence[Symbol] = (),
) -> Symbol:
    """Reshape `x`.

    out: the dims of the result, where more is known about them than `target` has. sources: as for `shape_vector`,
    after `x`. Raises `ShapeError` where the element counts provably differ.
    """
    dims = [dim_of(size) for size in target]
    before, after = _counts(x, target)
    exact = not before.is_dynamic and before is after
    position = next((i for i, size in enumerate(target) if size is None), None)
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
    if len(shape) == x.rank and all(_stays(x, i, size, dims[i]) for i, size in enumerate(target)):
        return x if shape == x.shape else x.graph.build.emit("Identity", (x,), retype(x, shape=shape))
    type_ = retype(x, shape=shape)
    numbers = _as_constant(x, target, dims, exact)
    if numbers is not None:
        attributes = {"allowzero": 1} if 0 in dims else None
        return x.graph.build.emit("Reshape", (x, x.graph.build.vector(numbers)), type_, attributes)
    if len(dims) == 2 and x.rank > 1 and exact and _stays(x, 0, target[0], dims[0]):
        return x.graph.build.emit("Flatten", (x,), type_, {"axis": 1})
    vector = shape_vector(x.graph, _sizes(op, x, target, dims, sources), (x, *sources), op=op)
    return x.graph.build.emit("Reshape", (x, vector), type_, {"allowzero": 1})


def reshaped_by(op: str, x: Symbol, vector: Symbol, shape: Shape, roles: Mapping[str, object]) -> Symbol:
    """Reshape `x` to the values of an integer Symbol. shape: the dims that are known of it."""
    before = x.shape.size
    if provably_differ(before, shape.size):
        raise ShapeError(
            f"{op}: {x.shape} has {before} elements and {shape} has {shape.size}",
            operands=roles,
            help="give out_dims with as many elements",
        )
    sizes = x.graph.build.cast(vector, DType.int64)
    return x.graph.build.emit("Reshape", (x, sizes), retype(x, shape=shape), {"allowzero": 1})


def graph_and_sizes(op: str, shape: Any, *values: object) -> tuple[Graph, list[Size]]:
    """Return the graph of a new tensor, and its sizes: dims, and int64 Symbols of shape [1] for scalar Symbols.

    values: other arguments, whose graph is that of the tensor. Raises as `graph_of`, `dims_of` and `scalar_size`.
    """
    if isinstance(shape, Symbol) and shape.rank:
        dims_of(op, shape, help="give a list of sizes; ops.broadcast_to takes a Symbol for all of them")  # raises
    sizes = listed(shape)
    graph = graph_of(op, (*values, *sizes))
    return graph, [
        scalar_size(op, graph, size, {}) if isinstance(size, Symbol) else dims_of(op, [size])[0] for size in sizes
    ]


def scalar_size(op: str, graph: Graph, size: Symbol, roles: Mapping[str, object]) -> Symbol:
    """Return a size that the graph computes as an int64 Symbol of shape [1]. Raises `DTypeError`, `ShapeError`."""
    graph.build.own(size, op, "shape")
    check_integers(op, "size", size, {**roles, "size": size})
    check_scalar(op, "size", size, {**roles, "size": size}, help="take one element")
    return as_size(size)


def as_size(value: Symbol) -> Symbol:
    """Return an integer scalar as an int64 Symbol of shape [1]."""
    return e.unsqueeze(value.graph.build.cast(value, DType.int64), 0)


def dim_of(size: TargetSize) -> Dim:
    """Return the dim of a size; an unknown one if the graph computes it."""
    if isinstance(size, Axis):
        return size.dim
    return size if isinstance(size, Dim) else Dim.dynamic()


def _counts(x: Symbol, target: Sequence[TargetSize]) -> tuple[Dim, Dim]:
    """Return the element counts of `x` and of the target shape, without the axes of `x` that stay in place."""
    unchanged = {size.axis for size in target if isinstance(size, Axis) and size.symbol is x}
    before, after = Dim(1), Dim(1)
    for axis, dim in enumerate(x.shape):
        if axis not in unchanged:
            before *= dim
    for size in target:
        if size is not None and not (isinstance(size, Axis) and size.symbol is x):
            after *= dim_of(size)
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
            f"{op}: {before} elements are not divisible by {after}, the product of the other dims",
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
            f"{op}: out_dims {out} has {len(out)} dims and the shape has {len(shape)}",
            operands=roles,
            help="give one dim for each size of the shape",
        )
    for dim, out_dim in zip(shape, out, strict=True):
        if provably_differ(dim, out_dim):
            raise ShapeError(
                f"{op}: out_dims has {out_dim} where the shape has {dim}",
                operands=roles,
                help="omit out_dims, or give the dims of the shape",
            )
    return out


def _stays(x: Symbol, axis: int, size: TargetSize, dim: Dim) -> bool:
    """Return True if the target size at `axis` provably equals that axis of `x`."""
    if axis >= x.rank:
        return False
    return size.is_of(x, axis) if isinstance(size, Axis) else not dim.is_dynamic and dim is x.shape[axis]


def _as_constant(x: Symbol, target: Sequence[TargetSize], dims: Sequence[Dim], exact: bool) -> list[int] | None:
    """Return the shape in ONNX's form, 0 for an unchanged axis and -1 for an inferred one, if right for all sizes."""
    if 0 in dims:  # then 0 means 0
        return [int(d) for d in dims] if all(d.is_static for d in dims) else None
    numbers = []
    for axis, (size, dim) in enumerate(zip(target, dims, strict=True)):
        stays = _stays(x, axis, size, dim)
        numbers.append(int(dim) if dim.is_static else 0 if stays else -1)
    unknown = numbers.count(-1)
    if not unknown:
        return numbers
    position = numbers.index(-1)
    # -1 cannot be inferred where another dim may be 0.
    full = math.prod(max(d.lower_bound or 0, 0) for i, d in enumerate(dims) if i != position) >= 1
    return numbers if unknown == 1 and full and (exact or target[position] is None) else None


def _sizes(
    op: str, x: Symbol, target: Sequence[TargetSize], dims: Sequence[Dim], sources: Sequence[Symbol]
) -> list[Size]:
    """Return the parts of the shape at run time; a dim without a name is computed from the element counts."""
    sizes: list[Size] = []
    for size, dim in zip(target, dims, strict=True):
        if size is not None:
            sizes.append(size)
        elif not dim.is_dynamic:
            sizes.append(dim)
        else:
            graph = x.graph
            total = product(graph, [Axis(x, i) for i in range(x.rank)], op=op)
            others = product(graph, [s for s in target if s is not None], (x, *sources), op=op)
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
    """Return a default for `rank` spatial axes: a number for one axis, else a tuple."""
    return value if rank == 1 else (value,) * rank


def numbers(dims: Iterable[Dim]) -> list[Dim | int]:
    """Return dims, static ones as ints: their arithmetic is ten times as fast."""
    return [dim if dim.value is None else dim.value for dim in dims]


def static(size: Dim | int) -> int | None:
    """Return a size as an int; None where it is not known."""
    return size.value if isinstance(size, Dim) else size


def per_axis(op: str, name: str, value: PerAxis, count: int, least: int = 1) -> list[int]:
    """Return one int per spatial axis, from one for each or one for all."""
    values = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(values) != count:
        raise ShapeError(
            f"{op}: {name}={value} has {len(values)} numbers, expected {count}",
            help=f"give one int, or one for each of {', '.join(_AXIS_NAMES[count])}",
        )
    return [v if type(v) is int and v >= least else whole(op, name, v, least) for v in values]


def padding_of(op: str, value: PerAxis, count: int) -> tuple[list[int], list[int]]:
    """Return the padding before and after each spatial axis.

    value: (before, after) of each axis in turn, or one int for both sides of each axis, or one int for all.
    """
    values = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(values) == count:
        values = [v for v in values for _ in range(2)]
    if len(values) != 2 * count:
        pairs = ", ".join(f"{axis}_before, {axis}_after" for axis in _AXIS_NAMES[count])
        raise ShapeError(f"{op}: padding={value} has {len(values)} numbers", help=f"give ({pairs})")
    pads = [v if type(v) is int and v >= 0 else whole(op, "padding", v, 0) for v in values]
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
    """Return the padding before and after each spatial axis; None for "same" where it depends on sizes at run time.

    value: numbers as for `padding_of`; "valid" for none; "same" for one window every `stride` elements, with the odd
    element of padding after the axis. Raises `ShapeError` for other strings, and for "same" of a dilated kernel whose
    padding depends on sizes at run time: onnxruntime refuses it for convolutions and miscounts the windows of pools.
    """
    if not isinstance(value, str):
        return padding_of(op, value, len(sizes))
    if value == "valid":
        return [0] * len(sizes), [0] * len(sizes)
    if value != "same":
        raise ShapeError(f"{op}: unknown padding {value!r}", help="give 'same', 'valid' or numbers")
    totals = []
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        covered = (k - 1) * d + 1
        total = static(covered - 1 if s == 1 else Dim.maximum((-(-size // s) - 1) * s + covered - size, 0))
        if total is not None:
            totals.append(total)
        elif any(step != 1 for step in dilation):
            raise ShapeError(
                f"{op}: padding='same' of a dilated kernel needs static sizes",
                operands=roles,
                help="make the sizes of the image static, use a stride of 1, or give the padding in numbers",
            )
        else:
            return None
    return [total // 2 for total in totals], [total - total // 2 for total in totals]


def window_attributes(
    strides: Sequence[int], dilations: Sequence[int], pads: tuple[Sequence[int], Sequence[int]] | None
) -> dict[str, Any]:
    """Return the attributes of an operator on windows. pads: the result of `pads_of`."""
    padding = {"auto_pad": "SAME_UPPER"} if pads is None else {"pads": [*pads[0], *pads[1]]}
    return {"strides": strides, "dilations": dilations, **padding}


def output_padding_of(
    op: str,
    value: Padding,
    kernel: Sequence[Dim | int],
    stride: Sequence[int],
    dilation: Sequence[int],
    extra: list[int],
    roles: Roles,
) -> tuple[list[int], list[int], list[int]]:
    """Return the elements to crop from a transposed convolution before and after each axis, and those to add."""
    if value == "valid":
        return [0] * len(extra), [0] * len(extra), extra
    if value != "same":
        if isinstance(value, str):
            raise ShapeError(f"{op}: unknown padding {value!r}", help="give 'same', 'valid' or numbers")
        return *padding_of(op, value, len(extra)), extra
    sides = [k for k in map(static, kernel) if k is not None]
    if len(sides) != len(kernel):
        raise ShapeError(
            f"{op}: padding='same' needs a filter of static size",
            operands=roles,
            help="make the sizes of the filter static, or give the padding in numbers",
        )
    # Of (size - 1) * stride + covered + extra elements, size * stride remain.
    surplus = [(k - 1) * d + 1 + more - s for k, s, d, more in zip(sides, stride, dilation, extra, strict=True)]
    totals = [max(n, 0) for n in surplus]
    added = [more + max(-n, 0) for n, more in zip(surplus, extra, strict=True)]
    return [n // 2 for n in totals], [n - n // 2 for n in totals], added


def layout_of(op: str, name: str, layout: str, layouts: Sequence[str]) -> str:
    """Return the name of a layout. Raises `ShapeError` for one that is not in `layouts`."""
    if not isinstance(layout, str) or layout not in layouts:
        close = suggestion(layout, layouts)
        raise ShapeError(
            f"{op}: {name}={layout!r:.80} is not a layout of {op}",
            help=f"{close}use one of {', '.join(map(repr, layouts))}",
        )
    return layout


def check_rank(op: str, role: str, symbol: Symbol, axes: str, roles: Roles) -> None:
    """Raise `ShapeError` unless `symbol` has an axis for each letter of a layout."""
    if symbol.rank != len(axes):
        raise ShapeError(
            f"{op}: {role} has rank {symbol.rank}, not {len(axes)}",
            operands=roles,
            help=f"its axes must be {axes}: add or remove axes with ops.unsqueeze or ops.reshape",
        )


def change_layout(symbol: Symbol, source: str, target: str) -> Symbol:
    """Transpose a tensor from one layout to another; a constant becomes a transposed constant."""
    if source == target:
        return symbol
    order = [source.index(axis) for axis in target]
    producer = symbol.producer
    if type(producer) is Constant and not producer.is_weight:
        return symbol.graph.build.constant(np.ascontiguousarray(producer.array.transpose(order)), symbol.dtype)
    dims = tuple(symbol.shape)
    type_ = tensor_type(symbol.dtype, _shape([dims[a] for a in order]))
    return symbol.graph.build.emit("Transpose", (symbol,), type_, {"perm": order})


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
    """Return the number of windows of a kernel along each axis. Raises `ShapeError` where there is none.

    pads: before and after each axis, None for one window every `stride` elements. ceil_mode: count a last window that
    reaches beyond the padded end, unless all of it lies after the input.
    """
    if pads is None:
        return [Dim(-(-size // s)) for size, s in zip(sizes, stride, strict=True)]
    counts = []
    for axis, size, k, s, d, p, q in zip(_AXIS_NAMES[len(sizes)], sizes, kernel, stride, dilation, *pads, strict=True):
        free = static(size + (p + q) - (k - 1) * d - 1)
        if free is not None and free < 0:
            raise ShapeError(
                f"{op}: the kernel does not fit: it covers {(k - 1) * d + 1} elements along the {axis}, "
                f"the padded input has {size + (p + q)}",
                operands=roles,
                help="use a smaller kernel or dilation, or more padding",
            )
        counts.append(Dim(window_count(size, k, s, d, p, q, ceil_mode=ceil_mode)))
    return counts
