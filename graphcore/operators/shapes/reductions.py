"""Shape rules of reductions, norms, softmax, matrix products, recurrent layers, convolutions, pools and transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from typing import Any

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, OperatorCall, Rule, Value, axis_of, dim_of, joint_dims, same
from graphcore.operators.shapes.movement import length_of, open_shape
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_ONE = Dim(1)


def reduced_shape(shape: Sequence[Dim], axes: Collection[int], keepdims: bool) -> Shape:
    """Return a shape whose axes are reduced: of length 1, or removed."""
    if keepdims:
        return _shape([_ONE if i in axes else d for i, d in enumerate(shape)])
    return _shape([d for i, d in enumerate(shape) if i not in axes])


def reduced(call: OperatorCall) -> Shape:
    """Reductions along the axes in operand 1 or in an attribute of older opsets, or along all axes."""
    dims, keepdims = call.ranked(0), bool(call.attributes.get("keepdims", 1))
    axes = call.value(1) if call.has(1) else tuple(call.attributes.get("axes", ()))
    count = None if not isinstance(axes, tuple) or None in axes else len(axes)
    if count is None:
        if keepdims:
            return _shape([UNKNOWN] * len(dims))
        axes_shape = call.dims(1)
        axis_count = int(axes_shape[0]) if axes_shape and axes_shape[0].is_static else 0
        return _shape([UNKNOWN] * (len(dims) - axis_count)) if 0 < axis_count <= len(dims) else Shape.unknown()
    if not count and call.attributes.get("noop_with_empty_axes", 0):
        return _shape(dims)
    chosen = {axis_of(int(axis), len(dims)) for axis in axes} if count else {*range(len(dims))}  # type: ignore[union-attr, arg-type]
    return reduced_shape(dims, chosen, keepdims)


def position(call: OperatorCall) -> Shape:
    """ArgMax and ArgMin."""
    dims, attributes = call.ranked(0), call.attributes
    return reduced_shape(dims, [axis_of(attributes.get("axis", 0), len(dims))], bool(attributes.get("keepdims", 1)))


def along_axis(call: OperatorCall) -> Shape | None:
    """Norms: the shape of operand 0, which must have the axis in the attribute."""
    dims, axis = call.dims(0), call.attributes.get("axis")
    if dims is not None and axis is not None:
        axis_of(axis, len(dims))
    return call.shapes[0]


def softmax(call: OperatorCall) -> Shape | None:
    """Softmax, LogSoftmax and Hardmax. The default axis of opset 11 is 1, not the last one."""
    dims = call.dims(0)
    if dims is not None and 11 <= call.since < 13:
        axis_of(call.attributes.get("axis", 1), len(dims))
    return along_axis(call)


def from_axis(call: OperatorCall) -> list[Shape]:
    """LayerNormalization: in the mean and the deviation, axes from `axis` on have length 1."""
    dims = call.ranked(0)
    axis = axis_of(call.attributes.get("axis", -1), len(dims))
    return [_shape(dims), *[_shape([*dims[:axis], *[_ONE] * (len(dims) - axis)])] * (call.count - 1)]


def by_channels(call: OperatorCall) -> list[Shape]:
    """BatchNormalization: its statistics have one number per channel."""
    operands = [(call.dims(0) or [])[1:2], *[call.dims(i) or [] for i in range(1, 5)]]
    sizes = [dim for dims in operands for dim in dims if not dim.is_dynamic]
    numbers = {int(dim) for dim in sizes if dim.is_static}
    if len(numbers) > 1 and call.since >= 14:  # before 9, there may be one number per feature
        raise ShapeError(f"numbers of channels differ: {sorted(numbers)}", help="use one number per channel")
    channels = Dim(min(numbers)) if numbers else next(iter(sizes), UNKNOWN)
    assert call.shapes[0] is not None
    return [call.shapes[0], *[_shape([channels])] * (call.count - 1)]


# Matrix products and recurrent layers.


def product_shape(batch: Sequence[Dim], left: Sequence[Dim], right: Sequence[Dim]) -> Shape:
    """Return the shape of a product of batches of matrices, or of vectors. batch: the broadcast batch dims."""
    return _shape([*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ())])


def matmul(right: int = 1) -> Rule:
    """MatMul and similar operators. right: the position of the second matrix."""

    def rule(call: OperatorCall) -> Shape:
        a, b = call.ranked(0), call.ranked(right)
        if not a or not b:
            raise ShapeError("an operand is a scalar", help="use Mul")
        inner, other = a[-1], b[-2 if len(b) > 1 else 0]
        if inner.is_static and other.is_static and inner is not other:
            raise ShapeError(f"inner dimensions differ: {inner} and {other}", help="transpose an operand")
        return product_shape(joint_dims([a[:-2], b[:-2]]), a, b)

    return rule


def gemm(call: OperatorCall) -> Shape:
    """Gemm."""
    a, b, attributes = call.dims(0), call.dims(1), call.attributes
    for dims in (a, b):
        if dims is not None and len(dims) != 2:
            raise ShapeError(f"an operand has {len(dims)} axes instead of 2", help="use matrices")
    rows = UNKNOWN if a is None else a[-1 if attributes.get("transA") else 0]
    return _shape([rows, UNKNOWN if b is None else b[0 if attributes.get("transB") else -1]])


def recurrent(call: OperatorCall) -> list[Shape]:
    """RNN, GRU and LSTM: all states, and the final ones."""
    x, attributes = call.dims(0), call.attributes
    if x is not None and len(x) != 3:
        raise ShapeError(f"the operand has {len(x)} axes instead of 3", help="use [length, batch, size]")
    hidden = Dim(attributes["hidden_size"]) if attributes.get("hidden_size", 0) > 0 else UNKNOWN
    ways = Dim(2 if attributes.get("direction") == "bidirectional" else 1)
    length, batch = (UNKNOWN, UNKNOWN) if x is None else x[:2]
    if attributes.get("layout"):
        length, batch = batch, length
        return [_shape([batch, length, ways, hidden]), *[_shape([batch, ways, hidden])] * 2][: call.count]
    return [_shape([length, ways, batch, hidden]), *[_shape([ways, batch, hidden])] * 2][: call.count]


def rotated(call: OperatorCall) -> Shape | None:
    """RotaryEmbedding: without positions, caches must have the batch and sequence dims of x."""
    x = call.dims(0)
    expected = () if x is None or len(x) < 2 or call.has(3) else (x[0], x[-2])
    for operand in (1, 2):
        sizes = zip(call.dims(operand) or (), expected, strict=False)
        if any(d.is_static and size.is_static and d != size for d, size in sizes):
            raise ShapeError(
                f"operand {operand} must have the batch and sequence dims of x", help="use [batch, sequence, pairs]"
            )
    return same(call)


# Windows: convolutions and their transposes, pools, Col2Im, and Fourier transforms.

_COMPLEX = Dim(2)


@functools.lru_cache(1024, typed=True)
def window_count(
    size: Dim | int, kernel: Dim | int, stride: int, dilation: int, before: int, after: int, *, ceil_mode: bool = False
) -> Dim | int:
    """Return the output size of ONNX's Conv and pools along an axis; below 1 if the kernel does not fit.

    ceil_mode: count a last window that reaches beyond the padded end, unless it lies entirely after the input.
    """
    span = size + (before + after) - (kernel - 1) * dilation - 1
    if ceil_mode:
        return Dim.minimum(-(-span // stride) + 1, (size + (before - 1)) // stride + 1)
    return span // stride + 1


def transposed_size(
    size: Dim | int, kernel: Dim | int, stride: int, dilation: int, before: int, after: int, extra: int = 0
) -> Dim | int:
    """Return the output size of ONNX's ConvTranspose along an axis: `before` and `after` are cropped, `extra` added."""
    return (size - 1) * stride + (kernel - 1) * dilation + 1 - before - after + extra


def convolved(filters: int) -> Rule:
    """Conv and similar operators. filters: the position of the filters."""

    def rule(call: OperatorCall) -> Shape:
        if call.attributes.get("group", 1) < 1:  # of a function body; kernels divide by it
            raise ShapeError("the operand has no channels", help="use at least one channel")
        x, weights = call.ranked(0), call.dims(filters)
        features = weights[0] if weights else UNKNOWN
        return _shape([*x[:1], features, *_windows(call, x, weights[2:] if weights else None)])

    return rule


def pooled(call: OperatorCall) -> Shape:
    """AveragePool, LpPool and MaxPool."""
    x = call.ranked(0)
    return _shape([*x[:2], *_windows(call, x, None)])


def pooled_whole(call: OperatorCall) -> Shape:
    """GlobalAveragePool and similar operators."""
    x = call.ranked(0)
    return _shape([*x[:2], *[_ONE] * (len(x) - 2)])


def transposed(call: OperatorCall) -> Shape | None:
    """ConvTranspose."""
    x, filters, attributes = call.ranked(0), call.ranked(1), call.attributes
    count = len(x) - 2
    kernel, strides, dilations, pads = _window_parameters(call, count, filters[2:])
    channels = filters[1] * attributes.get("group", 1) if len(filters) > 1 else UNKNOWN
    output_shape, extra = attributes.get("output_shape"), attributes.get("output_padding") or [0] * count
    if output_shape:
        return (
            _shape([x[0], channels, *[Dim(n) for n in output_shape[-count:]]]) if len(output_shape) >= count else None
        )
    if pads is None or len(extra) != count:
        return None
    columns = zip(x[2:], kernel, strides, dilations, pads[:count], pads[count:], extra, strict=True)
    return _shape([x[0], channels, *[_positive_dim(transposed_size(*column)) for column in columns]])


def _window_parameters(
    call: OperatorCall, count: int, sides: Sequence[Dim] | None
) -> tuple[list[Dim], Sequence[int], Sequence[int], Sequence[int] | None]:
    """Return kernel, strides, dilations and pads (all begins, then all ends); None for pads that depend on sizes.

    sides: the sizes of the filter. Raises `ShapeError` if their lengths differ from the number of axes.
    """
    attributes = call.attributes
    kernel_shape = attributes.get("kernel_shape")
    kernel = [Dim(size) for size in kernel_shape] if kernel_shape else [UNKNOWN] * count if sides is None else [*sides]
    strides, dilations = (attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    padding, pads = attributes.get("auto_pad", "NOTSET"), attributes.get("pads") or [0] * (2 * count)
    for name, numbers, expected in (
        *(("kernel", kernel, count), ("strides", strides, count), ("dilations", dilations, count)),
        ("pads", pads, 2 * count),
    ):
        if len(numbers) != expected or count < 0:
            raise ShapeError(f"{name} has {len(numbers)} numbers for {count} axes", help="use numbers for each axis")
    return (
        kernel,
        strides,
        dilations,
        pads if padding == "NOTSET" else [0] * (2 * count) if padding == "VALID" else None,
    )


def _windows(call: OperatorCall, x: Sequence[Dim], sides: Sequence[Dim] | None) -> list[Dim]:
    count = len(x) - 2
    kernel, strides, dilations, pads = _window_parameters(call, count, sides)
    if pads is None:  # SAME_UPPER or SAME_LOWER: the size depends only on the stride
        return [size.ceildiv(stride) for size, stride in zip(x[2:], strides, strict=True)]
    columns = zip(x[2:], kernel, strides, dilations, pads[:count], pads[count:], strict=True)
    ceil_mode = bool(call.attributes.get("ceil_mode", 0))
    return [_positive_dim(window_count(*column, ceil_mode=ceil_mode)) for column in columns]


def _positive_dim(dim: Dim | int) -> Dim:
    """Return a dim, `?` for a number below 1, with which a model cannot run."""
    size = dim.value if isinstance(dim, Dim) else dim
    return UNKNOWN if size is not None and size < 1 else Dim(dim)


def images(call: OperatorCall) -> Shape | None:
    """Col2Im."""
    x, image, block, attributes = call.dims(0), call.value(1), call.value(2), call.attributes
    counts = {length_of(call, 1), length_of(call, 2)} - {None}
    counts |= {len(numbers) // (2 if name == "pads" else 1) for name, numbers in attributes.items() if numbers}
    if len(counts) > 1:
        raise ShapeError("image and block have different numbers of axes", help="use numbers for each axis")
    if x is None or len(x) != 3 or not isinstance(image, tuple):
        return None
    area = math.prod(block) if isinstance(block, tuple) and all(isinstance(n, int) for n in block) else 0  # type: ignore[arg-type]
    return _shape([x[0], x[1] // area if area else UNKNOWN, *map(dim_of, image)])


def transformed(call: OperatorCall) -> Shape | None:
    """DFT: complex numbers, with the length along the axis or half of it."""
    x, attributes = call.dims(0), call.attributes
    axis: Any = call.value(2) if call.has(2) else attributes.get("axis")
    if x is None or not isinstance(axis, int) or not -len(x) <= axis < len(x):
        return None
    length: Any = x[axis]
    if call.has(1):
        size = call.value(1)
        length = Dim(size) if isinstance(size, (int, Dim)) and size != 0 else UNKNOWN
    halved = attributes.get("onesided", 0)
    if halved and attributes.get("inverse", 0):
        return None
    if halved and x[-1].is_static and x[-1] != 1:
        raise ShapeError("onesided needs real input, got complex numbers", help="leave out onesided")
    x[axis] = length // 2 + 1 if halved else length
    return _shape([*x[:-1], _COMPLEX])


def framed(call: OperatorCall) -> Shape | None:
    """STFT: frames along the signal, and frequencies."""
    x, step, window = call.dims(0), call.value(1), call.dims(2)
    if x is None or len(x) not in (2, 3) or not isinstance(step, (int, Dim)):
        return open_shape(4)
    length: Value = call.value(3)
    if length is None and window is not None and len(window) == 1:
        length = None if window[0].is_dynamic else window[0]
    if not isinstance(length, (int, Dim)):
        return _shape([x[0], UNKNOWN, UNKNOWN, _COMPLEX])
    frame_length = Dim(length)
    frames = (x[1] - frame_length) // step + 1
    return _shape(
        [
            x[0],
            _positive_dim(frames),
            frame_length // 2 + 1 if call.attributes.get("onesided", 1) else frame_length,
            _COMPLEX,
        ]
    )
