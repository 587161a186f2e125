"""Dims of what is cut, padded, repeated, joined or resized: what the operands' sizes tell beyond ONNX's inference."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from graphcore.build.shapes import transposed_size, window_count
from graphcore.ir.symbol import Symbol
from graphcore.operators.shapes.call import Value
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

Inputs = Sequence[Symbol | None]
Attributes = Mapping[str, Any]

_UNKNOWN = Dim.dynamic()


class Sizes(Protocol):
    """The values of the integer tensors of a graph."""

    def of(self, symbol: Symbol | None) -> Value:
        """Return the value of a scalar or short vector; None where it is not known at all."""


def dims_of(symbol: Symbol | None) -> list[Dim] | None:
    """The dims of a tensor, None where not even their number is known."""
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.shape.is_ranked:
        return None
    return [*symbol.shape]


# Dims of what windows go over: convolutions and their transposes, pools, images of columns, Fourier transforms.

_COMPLEX = Dim(2)


def convolved(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Conv and ConvInteger."""
    return _convolved(dims_of(inputs[0]), dims_of(inputs[1]), attributes)


def convolved_quantised(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """QLinearConv."""
    return _convolved(dims_of(inputs[0]), dims_of(inputs[3]), attributes)


def _convolved(x: list[Dim] | None, filters: list[Dim] | None, attributes: Attributes) -> list[Dim] | None:
    kernel = _kernel(attributes, filters)
    if x is None or kernel is None or len(x) != len(kernel) + 2:
        return None
    spatial = _windows(x[2:], kernel, attributes)
    return None if spatial is None else [x[0], filters[0] if filters is not None else _UNKNOWN, *spatial]


def pooled(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """AveragePool, LpPool and MaxPool."""
    x, kernel = dims_of(inputs[0]), _kernel(attributes, None)
    if x is None or kernel is None or len(x) != len(kernel) + 2:
        return None
    spatial = _windows(x[2:], kernel, attributes)
    return None if spatial is None else [*x[:2], *spatial]


def transposed(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """ConvTranspose."""
    x, filters = dims_of(inputs[0]), dims_of(inputs[1])
    kernel = _kernel(attributes, filters)
    if x is None or kernel is None or filters is None or len(x) != len(kernel) + 2:
        return None
    channels = filters[1] * attributes.get("group", 1)
    given = attributes.get("output_shape")
    if given:
        return [x[0], channels, *[Dim(n) for n in given[-len(kernel) :]]] if len(given) >= len(kernel) else None
    count = len(kernel)
    pads = _pads(attributes, count)
    if pads is None:
        return None
    steps, apart = (attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    extra = attributes.get("output_padding") or [0] * count
    columns = zip(x[2:], kernel, steps, apart, pads[:count], pads[count:], extra, strict=True)
    return [x[0], channels, *[_natural(transposed_size(*column)) for column in columns]]


def _kernel(attributes: Attributes, filters: list[Dim] | None) -> list[Dim] | None:
    given = attributes.get("kernel_shape")
    if given:
        return [Dim(size) for size in given]
    return None if filters is None or len(filters) < 3 else filters[2:]


def _pads(attributes: Attributes, count: int) -> Sequence[int] | None:
    """Return the pads before all axes and after them; None where they depend on sizes."""
    padding = attributes.get("auto_pad", "NOTSET")
    if padding == "VALID":
        return [0] * (2 * count)
    return (attributes.get("pads") or [0] * (2 * count)) if padding == "NOTSET" else None


def _windows(x: Sequence[Dim], kernel: Sequence[Dim], attributes: Attributes) -> list[Dim] | None:
    count = len(kernel)
    steps, apart = (attributes.get(name) or [1] * count for name in ("strides", "dilations"))
    pads = _pads(attributes, count)
    if any(len(each) != count for each in (steps, apart)) or (pads is not None and len(pads) != 2 * count):
        return None
    if pads is None:  # SAME_UPPER or SAME_LOWER: as many as steps fit
        return [size.ceildiv(step) for size, step in zip(x, steps, strict=True)]
    columns = zip(x, kernel, steps, apart, pads[:count], pads[count:], strict=True)
    ceil_mode = bool(attributes.get("ceil_mode", 0))
    return [_natural(_count(*column, ceil_mode)) for column in columns]


@functools.lru_cache(1024)
def _count(size: Dim, kernel: Dim, step: int, apart: int, before: int, after: int, ceil_mode: bool) -> Dim | int:
    return window_count(size, kernel, step, apart, before, after, ceil_mode=ceil_mode)


def _natural(dim: Dim | int) -> Dim:
    """Return a dim, `?` for a number below 1: such a model does not run."""
    size = dim.value if isinstance(dim, Dim) else dim
    return _UNKNOWN if size is not None and size < 1 else Dim(dim)


def images(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Col2Im."""
    x, image, block = dims_of(inputs[0]), sizes.of(inputs[1]), sizes.of(inputs[2])
    if x is None or len(x) != 3 or not isinstance(image, tuple):
        return None
    area = math.prod(block) if isinstance(block, tuple) and all(isinstance(n, int) for n in block) else 0  # type: ignore[arg-type]
    return [x[0], x[1] // area if area else _UNKNOWN, *[_UNKNOWN if n is None else Dim(n) for n in image]]


def transformed(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """DFT: the length along the axis, or half of it, of complex numbers."""
    x = dims_of(inputs[0])
    axis: Any = attributes.get("axis")
    if len(inputs) > 2 and inputs[2] is not None:
        axis = sizes.of(inputs[2])
    if x is None or not isinstance(axis, int) or not -len(x) <= axis < len(x):
        return None
    dims, length = [*x], x[axis]
    if len(inputs) > 1 and inputs[1] is not None:
        given = sizes.of(inputs[1])
        length = Dim(given) if isinstance(given, (int, Dim)) and given != 0 else _UNKNOWN
    halved, inverse = attributes.get("onesided", 0), attributes.get("inverse", 0)
    if halved and inverse:
        return None
    dims[axis] = length // 2 + 1 if halved else length
    dims[-1] = _COMPLEX
    return dims


def framed(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """STFT: frames along the signal, each with its frequencies."""
    x, step = dims_of(inputs[0]), sizes.of(inputs[1])
    if x is None or len(x) not in (2, 3) or not isinstance(step, (int, Dim)):
        return None
    length: Any = sizes.of(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
    window = dims_of(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
    if length is None and window is not None and len(window) == 1:
        length = None if window[0].is_dynamic else window[0]
    if not isinstance(length, (int, Dim)):
        return [x[0], _UNKNOWN, _UNKNOWN, _COMPLEX]
    whole = Dim(length)
    frames = (x[1] - whole) // step + 1
    return [x[0], _natural(frames), whole // 2 + 1 if attributes.get("onesided", 1) else whole, _COMPLEX]


WINDOWS: Mapping[str, tuple[int, Callable[[Sizes, Inputs, Attributes], list[Dim] | None]]] = {
    "Conv": (2, convolved), "ConvInteger": (2, convolved), "QLinearConv": (8, convolved_quantised),
    "ConvTranspose": (2, transposed), "AveragePool": (1, pooled), "LpPool": (1, pooled), "MaxPool": (1, pooled),
    "Col2Im": (3, images), "DFT": (1, transformed), "STFT": (2, framed),
}  # fmt: skip
"""By operator: the operands that the rule needs, and the rule."""
