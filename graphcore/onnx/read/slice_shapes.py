"""Dims of what is cut, padded, repeated, joined or resized: what the operands' sizes tell beyond ONNX's inference."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from graphcore.build.shapes import transposed_size, window_count
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import Size, Value
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType

Inputs = Sequence[Symbol | None]
Attributes = Mapping[str, Any]

_UNKNOWN = Dim.dynamic()
_EVERYTHING = (1 << 31) - 1
"""An end from which on a slice goes to the end of any axis."""

_SHORT = 64
"""The greatest number above or below the line of a scale by which dims are multiplied."""


class Sizes(Protocol):
    """The values of the integer tensors of a graph."""

    def of(self, symbol: Symbol | None) -> Value:
        """Return the value of a scalar or short vector; None where it is not known at all."""


def dims_of(symbol: Symbol | None) -> list[Dim] | None:
    """The dims of a tensor, None where not even their number is known."""
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.shape.is_ranked:
        return None
    return [*symbol.shape]


def cut(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Slice."""
    x, *rest = inputs
    dims = dims_of(x)
    starts, ends, axes, steps = ([*map(sizes.of, rest), None, None])[:4]
    if dims is None or not isinstance(starts, tuple) or not isinstance(ends, tuple):
        return None
    if len(rest) > 2 and rest[2] is not None and axes is None:
        return None
    places = tuple(range(len(starts))) if axes is None else axes
    strides = (1,) * len(starts) if len(rest) < 4 or rest[3] is None else steps
    if not isinstance(places, tuple) or not isinstance(strides, tuple):
        return None
    for place, start, end, step in zip(places, starts, ends, strides, strict=True):
        if not isinstance(place, int) or not -len(dims) <= place < len(dims):
            return None
        dims[place] = _cut_dim(dims[place], start, end, step)
    return dims


def _cut_dim(whole: Dim, start: Size, end: Size, step: Size) -> Dim:
    if whole.is_dynamic or start is None or end is None:
        return _UNKNOWN
    if isinstance(end, int) and end >= _EVERYTHING and step != 1 and not (isinstance(step, int) and step > 0):
        return _UNKNOWN  # backwards to there is nothing to ONNX, and everything to onnxruntime
    if whole.is_static and isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step:
        return Dim(len(range(int(whole))[start:end:step]))
    if isinstance(step, int) and step < 0 and isinstance(start, int) and (start >= _EVERYTHING or start == -1):
        return whole.ceildiv(-step) if isinstance(end, int) and end <= -_EVERYTHING else _UNKNOWN
    if not isinstance(step, int) or step < 1 or not _is_natural(start):
        return _UNKNOWN
    if isinstance(end, int) and end >= _EVERYTHING:
        stop = whole
    elif _is_natural(end):
        stop = Dim.minimum(whole, end)
    elif isinstance(end, int):  # so many from the end
        stop = Dim.maximum(whole + end, 0)
    else:
        return _UNKNOWN
    length = stop if start == 0 else Dim.maximum(stop - start, 0)
    return length if step == 1 else length.ceildiv(step)


def _is_natural(size: Size) -> bool:
    """Return whether it is certainly not negative."""
    least = size.lower_bound if isinstance(size, Dim) else size
    return least is not None and least >= 0


def padded(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Pad."""
    dims, pads = dims_of(inputs[0]), sizes.of(inputs[1])
    if dims is None or not isinstance(pads, tuple):
        return None
    axes: Value = tuple(range(len(dims))) if len(inputs) < 4 or inputs[3] is None else sizes.of(inputs[3])
    if not _are_axes(axes, len(dims)) or len(pads) != 2 * len(axes):
        return None
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        dims[axis] = _sum(None if dims[axis].is_dynamic else dims[axis], before, after)
    return dims


def _are_axes(axes: object, rank: int) -> TypeGuard[tuple[int, ...]]:
    """Return whether axes are known, and are some of a tensor of that rank, each named once."""
    if not isinstance(axes, tuple) or not all(isinstance(a, int) and -rank <= a < rank for a in axes):
        return False
    return len({a % rank for a in axes}) == len(axes)


def _sum(*sizes: Size) -> Dim:
    total = Dim(0)
    for size in sizes:
        if size is None:
            return _UNKNOWN
        total = total + size
    return total if (total.lower_bound or 0) >= 0 else _UNKNOWN


def tiled(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Tile."""
    dims, repeats = dims_of(inputs[0]), sizes.of(inputs[1])
    if dims is None or not isinstance(repeats, tuple) or len(repeats) != len(dims):
        return None
    return [_UNKNOWN if count is None else dim * count for dim, count in zip(dims, repeats, strict=True)]


def resized(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Resize to sizes, or by scales that are short fractions."""
    dims = dims_of(inputs[0])
    if dims is None or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = tuple(attributes.get("axes", range(len(dims))))
    if not _are_axes(axes, len(dims)):
        return None
    target = sizes.of(inputs[3]) if len(inputs) > 3 else None
    if isinstance(target, tuple):
        made = [_UNKNOWN if size is None else Dim(size) for size in target]
    else:
        scales = constant_array(inputs[2], weights=True, outer=True)
        if scales is None or scales.ndim != 1 or len(scales) != len(axes):
            return None
        made = [_scaled(dims[axis], float(scale)) for axis, scale in zip(axes, scales, strict=True)]
    if len(made) != len(axes):
        return None
    for axis, dim in zip(axes, made, strict=True):
        dims[axis] = dim
    return dims


def _scaled(dim: Dim, scale: float) -> Dim:
    """Return a dim times a number, rounded down; `?` where float32, in which kernels multiply, may round otherwise."""
    if not 0 < scale <= _SHORT:
        return _UNKNOWN
    above, below = scale.as_integer_ratio()
    return dim * above // below if above <= _SHORT and below <= _SHORT else _UNKNOWN


def cropped(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """CenterCropPad."""
    dims, target = dims_of(inputs[0]), sizes.of(inputs[1])
    if dims is None or not isinstance(target, tuple):
        return None
    axes = tuple(attributes.get("axes", range(len(dims))))
    if not _are_axes(axes, len(dims)) or len(axes) != len(target):
        return None
    for axis, size in zip(axes, target, strict=True):
        dims[axis] = _UNKNOWN if size is None else Dim(size)
    return dims


def picked(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """GatherND: rows of indices, and what they leave of the data."""
    dims, places = dims_of(inputs[0]), dims_of(inputs[1])
    if dims is None or not places or not places[-1].is_static:
        return None
    return [*places[:-1], *dims[attributes.get("batch_dims", 0) + int(places[-1]) :]]


def greatest(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """TopK."""
    dims, count = dims_of(inputs[0]), sizes.of(inputs[1])
    axis = attributes.get("axis", -1)
    if dims is None or not -len(dims) <= axis < len(dims):
        return None
    dims[axis] = _UNKNOWN if not isinstance(count, tuple) or len(count) != 1 or count[0] is None else Dim(count[0])
    return dims


def in_blocks(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """DepthToSpace."""
    dims, block = dims_of(inputs[0]), attributes.get("blocksize", 0)
    if dims is None or len(dims) != 4 or block < 1:
        return None
    return [dims[0], dims[1] // (block * block), dims[2] * block, dims[3] * block]


def out_of_blocks(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """SpaceToDepth."""
    dims, block = dims_of(inputs[0]), attributes.get("blocksize", 0)
    if dims is None or len(dims) != 4 or block < 1:
        return None
    return [dims[0], dims[1] * (block * block), dims[2] // block, dims[3] // block]


def parts(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[list[Dim]] | None:
    """Split: the dims of each result."""
    dims, axis = dims_of(inputs[0]), attributes.get("axis", 0)
    if dims is None or not -len(dims) <= axis < len(dims):
        return None
    given: Value = sizes.of(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    if attributes.get("num_outputs") == 2:
        given = (dims[axis].ceildiv(2), dims[axis] // 2)
    if not isinstance(given, tuple):
        return None
    made = []
    for size in given:
        made.append([*dims])
        made[-1][axis] = _UNKNOWN if size is None else Dim(size)
    return made


def joined(sizes: Sizes, inputs: Inputs, attributes: Attributes) -> list[Dim] | None:
    """Concat."""
    shapes = [dims_of(s) for s in inputs]
    known = [s for s in shapes if s is not None]
    axis = attributes.get("axis", 0)
    if len(known) < len(shapes) or len({len(s) for s in known}) != 1 or not -len(known[0]) <= axis < len(known[0]):
        return None
    dims = [next((d for d in column if not d.is_dynamic), _UNKNOWN) for column in zip(*known, strict=True)]
    dims[axis] = _sum(*[None if s[axis].is_dynamic else s[axis] for s in known])
    return dims


def left(have: Sequence[Dim], taken: Sequence[Dim]) -> Dim:
    """Return a product of dims divided by others. It leaves no remainder, or the model does not run.

    `?` where that is not told.
    """
    above, below = [*have], []
    for dim in taken:
        if dim in above:
            above.remove(dim)
        else:
            below.append(dim)
    if any(d.is_dynamic for d in (*above, *below)) or any(d == 0 for d in taken):
        return _UNKNOWN
    whole, part = (math.prod(dims, start=Dim(1)) for dims in (above, below))
    if part == 0 or (whole.is_static and part.is_static and int(whole) % int(part)):
        return _UNKNOWN
    return whole // part


CUTS: dict[str, tuple[int, Callable[[Sizes, Inputs, Attributes], list[Dim] | None]]] = {
    "Slice": (3, cut), "Pad": (2, padded), "Tile": (2, tiled), "Resize": (3, resized), "Concat": (1, joined),
    "CenterCropPad": (2, cropped), "GatherND": (2, picked), "TopK": (2, greatest), "DepthToSpace": (1, in_blocks),
    "SpaceToDepth": (1, out_of_blocks),
}  # fmt: skip
"""By operator: the operands that the rule needs (older opsets may have attributes instead), and the rule."""


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
