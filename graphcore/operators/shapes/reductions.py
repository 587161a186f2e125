"""Reductions, norms, softmax, products of matrices, recurrent layers, and windows: convolutions, pools, transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from typing import Any

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, Call, Rule, Value, axis_of, dim_of, joint_dims, same
from graphcore.operators.shapes.movement import open_shape
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_ONE = Dim(1)


def reduced_shape(shape: Sequence[Dim], axes: Collection[int], keepdims: bool) -> Shape:
    """Return a shape whose axes are reduced: of length 1, or gone."""
    if keepdims:
        return _shape([_ONE if i in axes else d for i, d in enumerate(shape)])
    return _shape([d for i, d in enumerate(shape) if i not in axes])


def reduced(call: Call) -> Shape:
    """Reductions along the axes that operand 1 or an attribute of older opsets names, or along all."""
    dims, keepdims = call.dims(0), bool(call.attributes.get("keepdims", 1))
    if dims is None:
        return Shape.unknown()
    axes = call.value(1) if call.has(1) else tuple(call.attributes.get("axes", ()))
    count = None if not isinstance(axes, tuple) or None in axes else len(axes)
    if count is None:
        if keepdims:
            return _shape([UNKNOWN] * len(dims))
        given = call.dims(1)
        named = int(given[0]) if given and given[0].is_static else 0
        return _shape([UNKNOWN] * (len(dims) - named)) if 0 < named <= len(dims) else Shape.unknown()
    if not count and call.attributes.get("noop_with_empty_axes", 0):
        return _shape(dims)
    chosen = {axis_of(int(axis), len(dims)) for axis in axes} if count else {*range(len(dims))}  # type: ignore[union-attr, arg-type]
    return reduced_shape(dims, chosen, keepdims)


def position(call: Call) -> Shape:
    """ArgMax and ArgMin."""
    dims, attributes = call.dims(0), call.attributes
    if dims is None:
        return Shape.unknown()
    return reduced_shape(dims, [axis_of(attributes.get("axis", 0), len(dims))], bool(attributes.get("keepdims", 1)))


def along_axis(call: Call) -> Shape | None:
    """Norms: the shape of operand 0, which has the axis that an attribute names."""
    dims, axis = call.dims(0), call.attributes.get("axis")
    if dims is not None and axis is not None:
        axis_of(axis, len(dims))
    return call.shapes[0]


def softmax(call: Call) -> Shape | None:
    """Softmax, LogSoftmax and Hardmax. The axis that opset 11 takes where none is named is not the last one."""
    dims = call.dims(0)
    if dims is not None and 11 <= call.since < 13:
        axis_of(call.attributes.get("axis", 1), len(dims))
    return along_axis(call)


def from_axis(call: Call) -> list[Shape]:
    """LayerNormalization: its mean and deviation have axes of length 1 from the axis on."""
    dims = call.dims(0)
    if dims is None:
        return [Shape.unknown()] * call.count
    axis = axis_of(call.attributes.get("axis", -1), len(dims))
    return [_shape(dims), *[_shape([*dims[:axis], *[_ONE] * (len(dims) - axis)])] * (call.count - 1)]


def by_channels(call: Call) -> list[Shape]:
    """BatchNormalization: what it keeps has a number for each channel."""
    given = [(call.dims(0) or [])[1:2], *[call.dims(i) or [] for i in range(1, 5)]]
    sizes = [dim for own in given for dim in own if not dim.is_dynamic]
    numbers = {int(dim) for dim in sizes if dim.is_static}
    if len(numbers) > 1 and call.since >= 14:  # before 9, there may be one for each feature
        raise ShapeError(f"there are {sorted(numbers)} channels", help="give one number for each channel")
    channels = Dim(min(numbers)) if numbers else next(iter(sizes), UNKNOWN)
    assert call.shapes[0] is not None
    return [call.shapes[0], *[_shape([channels])] * (call.count - 1)]


# Products of matrices, and recurrent layers.


def product_shape(batch: Sequence[Dim], left: Sequence[Dim], right: Sequence[Dim]) -> Shape:
    """Return the shape of a product of stacks of matrices, or of vectors, whose axis goes. batch: of both stacks."""
    return _shape([*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ())])


def matmul(right: int = 1) -> Rule:
    """MatMul and its like. right: the position of the second matrix."""

    def rule(call: Call) -> Shape:
        a, b = call.dims(0), call.dims(right)
        if a is None or b is None:
            return Shape.unknown()
        if not a or not b:
            raise ShapeError("an operand is a scalar", help="multiply by Mul")
        inner, other = a[-1], b[-2 if len(b) > 1 else 0]
        if inner.is_static and other.is_static and inner is not other:
            raise ShapeError(f"inner dimensions differ: {inner} and {other}", help="transpose an operand")
        return product_shape(joint_dims([a[:-2], b[:-2]]), a, b)

    return rule


def gemm(call: Call) -> Shape:
    """Gemm."""
    a, b, attributes = call.dims(0), call.dims(1), call.attributes
    for dims in (a, b):
        if dims is not None and len(dims) != 2:
            raise ShapeError(f"an operand has {len(dims)} axes", help="give matrices")
    rows = UNKNOWN if a is None else a[-1 if attributes.get("transA") else 0]
    return _shape([rows, UNKNOWN if b is None else b[0 if attributes.get("transB") else -1]])


def recurrent(call: Call) -> list[Shape]:
    """RNN, GRU and LSTM: all states, and the last ones."""
    x, attributes = call.dims(0), call.attributes
    if x is not None and len(x) != 3:
        raise ShapeError(f"the operand has {len(x)} axes", help="give [length, batch, size]")
    hidden = Dim(attributes["hidden_size"]) if attributes.get("hidden_size", 0) > 0 else UNKNOWN
    ways = Dim(2 if attributes.get("direction") == "bidirectional" else 1)
    length, batch = (UNKNOWN, UNKNOWN) if x is None else x[:2]
    if attributes.get("layout"):
        length, batch = batch, length
        return [_shape([batch, length, ways, hidden]), *[_shape([batch, ways, hidden])] * 2][: call.count]
    return [_shape([length, ways, batch, hidden]), *[_shape([ways, batch, hidden])] * 2][: call.count]


def rotated(call: Call) -> Shape | None:
    """RotaryEmbedding: caches that no positions pick from have the batch and the sequence of x."""
    x = call.dims(0)
    own = () if x is None or len(x) < 2 or call.has(3) else (x[0], x[-2])
    for place in (1, 2):
        sizes = zip(call.dims(place) or (), own, strict=False)
        if any(d.is_static and size.is_static and d != size for d, size in sizes):
            raise ShapeError(
                f"operand {place} has not the batch and the sequence of x", help="give [batch, sequence, pairs]"
            )
    return same(call)


# What windows go over: convolutions and their transposes, pools, images of columns, and Fourier transforms.

_COMPLEX = Dim(2)


def window_count(
    size: Dim | int, kernel: Dim | int, stride: int, dilation: int, before: int, after: int, *, ceil_mode: bool = False
) -> Dim | int:
    """Return how many places a kernel has along an axis, in ONNX's Conv and pools; below 1 where it does not fit.

    ceil_mode: count a last window that reaches beyond the padded end, unless all of it lies after the input.
    """
    room = size + (before + after) - (kernel - 1) * dilation - 1
    if ceil_mode:
        return Dim.minimum(-(-room // stride) + 1, (size + (before - 1)) // stride + 1)
    return room // stride + 1


def transposed_size(
    size: Dim | int, kernel: Dim | int, stride: int, dilation: int, before: int, after: int, extra: int = 0
) -> Dim | int:
    """Return the size that ONNX's ConvTranspose gives along an axis: before, after are cut off, extra is added."""
    return (size - 1) * stride + (kernel - 1) * dilation + 1 - before - after + extra


def convolved(filters: int) -> Rule:
    """Conv and its like. filters: the position of that operand."""

    def rule(call: Call) -> Shape:
        x, weights = call.dims(0), call.dims(filters)
        if x is None:
            return Shape.unknown()
        features = weights[0] if weights else UNKNOWN
        return _shape([*x[:1], features, *_windows(call, x, weights[2:] if weights else None)])

    return rule


def pooled(call: Call) -> Shape:
    """AveragePool, LpPool and MaxPool."""
    x = call.dims(0)
    return Shape.unknown() if x is None else _shape([*x[:2], *_windows(call, x, None)])


def pooled_whole(call: Call) -> Shape:
    """GlobalAveragePool and its like."""
    x = call.dims(0)
    return Shape.unknown() if x is None else _shape([*x[:2], *[_ONE] * (len(x) - 2)])


def transposed(call: Call) -> Shape | None:
    """ConvTranspose."""
    x, filters, attributes = call.dims(0), call.dims(1), call.attributes
    if x is None or filters is None:
        return Shape.unknown()
    count = len(x) - 2
    kernel, steps, apart, pads = _laid(call, count, filters[2:])
    channels = filters[1] * attributes.get("group", 1) if len(filters) > 1 else UNKNOWN
    given, extra = attributes.get("output_shape"), attributes.get("output_padding") or [0] * count
    if given:
        return _shape([x[0], channels, *[Dim(n) for n in given[-count:]]]) if len(given) >= count else None
    if pads is None or len(extra) != count:
        return None
    columns = zip(x[2:], kernel, steps, apart, pads[:count], pads[count:], extra, strict=True)
    return _shape([x[0], channels, *[_natural(transposed_size(*column)) for column in columns]])


def _laid(
    call: Call, count: int, sides: Sequence[Dim] | None
) -> tuple[list[Dim], Sequence[int], Sequence[int], Sequence[int] | None]:
    """Return the kernel, the steps, the dilations, and the pads before all axes and after them, None where these depend
    on sizes. sides: of the filter. Raises `ShapeError` where they are not of as many axes."""
    attributes = call.attributes
    given = attributes.get("kernel_shape")
    kernel = [Dim(size) for size in given] if given else [UNKNOWN] * count if sides is None else [*sides]
    steps, apart = (attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    padding, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads") or [0] * (2 * count)
    for name, said, wanted in (
        *(("kernel", kernel, count), ("strides", steps, count), ("dilations", apart, count)),
        ("pads", pads, 2 * count),
    ):
        if len(said) != wanted or count < 0:
            raise ShapeError(f"{name} is of {len(said)} numbers for {count} axes", help="give numbers for each axis")
    return kernel, steps, apart, pads if padding == "NOTSET" else [0] * (2 * count) if padding == "VALID" else None


def _windows(call: Call, x: Sequence[Dim], sides: Sequence[Dim] | None) -> list[Dim]:
    count = len(x) - 2
    kernel, steps, apart, pads = _laid(call, count, sides)
    if pads is None:  # SAME_UPPER or SAME_LOWER: as many as steps fit
        return [size.ceildiv(step) for size, step in zip(x[2:], steps, strict=True)]
    columns = zip(x[2:], kernel, steps, apart, pads[:count], pads[count:], strict=True)
    ceil_mode = bool(call.attributes.get("ceil_mode", 0))
    return [_natural(_count(*column, ceil_mode)) for column in columns]


@functools.lru_cache(1024)
def _count(size: Dim, kernel: Dim, step: int, apart: int, before: int, after: int, ceil_mode: bool) -> Dim | int:
    return window_count(size, kernel, step, apart, before, after, ceil_mode=ceil_mode)


def _natural(dim: Dim | int) -> Dim:
    """Return a dim, `?` for a number below 1: such a model does not run."""
    size = dim.value if isinstance(dim, Dim) else dim
    return UNKNOWN if size is not None and size < 1 else Dim(dim)


def images(call: Call) -> Shape | None:
    """Col2Im."""
    x, image, block = call.dims(0), call.value(1), call.value(2)
    if x is None or len(x) != 3 or not isinstance(image, tuple):
        return None
    area = math.prod(block) if isinstance(block, tuple) and all(isinstance(n, int) for n in block) else 0  # type: ignore[arg-type]
    return _shape([x[0], x[1] // area if area else UNKNOWN, *map(dim_of, image)])


def transformed(call: Call) -> Shape | None:
    """DFT: the length along the axis, or half of it, of complex numbers."""
    x, attributes = call.dims(0), call.attributes
    axis: Any = call.value(2) if call.has(2) else attributes.get("axis")
    if x is None or not isinstance(axis, int) or not -len(x) <= axis < len(x):
        return None
    length: Any = x[axis]
    if call.has(1):
        given = call.value(1)
        length = Dim(given) if isinstance(given, (int, Dim)) and given != 0 else UNKNOWN
    halved = attributes.get("onesided", 0)
    if halved and attributes.get("inverse", 0):
        return None
    if halved and x[-1].is_static and x[-1] != 1:
        raise ShapeError("half of the frequencies of complex numbers do not tell the others", help="leave out onesided")
    x[axis] = length // 2 + 1 if halved else length
    return _shape([*x[:-1], _COMPLEX])


def framed(call: Call) -> Shape | None:
    """STFT: frames along the signal, each with its frequencies."""
    x, step, window = call.dims(0), call.value(1), call.dims(2)
    if x is None or len(x) not in (2, 3) or not isinstance(step, (int, Dim)):
        return open_shape(4)
    length: Value = call.value(3)
    if length is None and window is not None and len(window) == 1:
        length = None if window[0].is_dynamic else window[0]
    if not isinstance(length, (int, Dim)):
        return _shape([x[0], UNKNOWN, UNKNOWN, _COMPLEX])
    whole = Dim(length)
    frames = (x[1] - whole) // step + 1
    return _shape([x[0], _natural(frames), whole // 2 + 1 if call.attributes.get("onesided", 1) else whole, _COMPLEX])
