"""What windows go over: convolutions and their transposes, pools, images of columns, and Fourier transforms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, Call, Rule, Value, dim_of
from graphcore.operators.shapes.movement import open_shape
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_ONE, _COMPLEX = Dim(1), Dim(2)


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
