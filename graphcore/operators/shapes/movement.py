"""Shape rules of views, transposes, joins, splits, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, OperatorCall, Size, axis_of, dim_of, joint_dims, size_of
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_ONE = Dim(1)


def open_shape(rank: int) -> Shape:
    """Return a shape of known rank with unknown dims."""
    return _shape([UNKNOWN] * rank)


def length_of(call: OperatorCall, position: int) -> int | None:
    """Return the length of a vector operand, None if it is unknown."""
    dims = call.dims(position)
    return int(dims[0]) if dims is not None and len(dims) == 1 and dims[0].is_static else None


def numbers_of(call: OperatorCall, position: int, name: str) -> tuple[Size, ...] | None:
    """Return the numbers of a vector operand, or of an attribute of older opsets; None if they are unknown."""
    numbers = call.value(position) if call.has(position) else call.attributes.get(name)
    return tuple(numbers) if isinstance(numbers, (tuple, list)) else None


def known_numbers(call: OperatorCall, position: int, name: str) -> tuple[int, ...] | None:
    """Return numbers as `numbers_of` does; None if one is unknown."""
    numbers = numbers_of(call, position, name)
    return numbers if numbers is not None and all(isinstance(n, int) for n in numbers) else None  # type: ignore[return-value]


# Views


def reshaped(call: OperatorCall) -> Shape | None:
    """Reshape."""
    source, target = call.dims(0), call.value(1)
    if not call.has(1):  # of opset 1
        return None
    if not isinstance(target, tuple):
        length = length_of(call, 1)
        return Shape.unknown() if length is None else open_shape(length)
    copies = not call.attributes.get("allowzero")
    sizes: list[Size] = []
    for axis, size in enumerate(target):
        is_copy = size == 0 and isinstance(size, int) and copies
        if is_copy and source is not None and axis >= len(source):
            raise ShapeError(f"the shape copies axis {axis} of an operand of rank {len(source)}", help="state its size")
        if isinstance(size, int) and size < -1:
            raise ShapeError(f"the shape has the size {size}", help="use sizes >= 0, and at most one -1")
        sizes.append(size_of(source[axis]) if is_copy and source is not None else None if is_copy else size)
    if sizes.count(-1) > 1:
        raise ShapeError("the shape has several sizes of -1", help="use -1 for at most one size")
    dims = [dim_of(size) for size in sizes]
    rest = [i for i, size in enumerate(sizes) if size is None or size == -1]
    if len(rest) == 1 and source is not None:
        dims[rest[0]] = _quotient(source, [d for i, d in enumerate(dims) if i != rest[0]], -1 in sizes)
    return _shape(dims)


def _quotient(factors: Sequence[Dim], divisors: Sequence[Dim], is_inferred: bool) -> Dim:
    """Return a product of dims divided by others, `?` if it is unknown. The division is exact in valid models.

    is_inferred: the size is -1. Raises `ShapeError` if there is no such size then.
    """
    above, below = [*factors], []
    for dim in divisors:
        if dim in above:
            above.remove(dim)
        else:
            below.append(dim)
    if any(d == 0 for d in divisors):
        if is_inferred:
            raise ShapeError("the shape has sizes of 0 and of -1", help="state all of its sizes")
        return UNKNOWN
    if any(d.is_dynamic for d in (*above, *below)):
        return UNKNOWN
    numerator, denominator = (math.prod(dims, start=_ONE) for dims in (above, below))
    if numerator.is_static and denominator.is_static and int(numerator) % int(denominator):
        if is_inferred:
            raise ShapeError(
                f"{numerator} elements cannot be divided into rows of {denominator}",
                help="use a shape with the same number of elements",
            )
        return UNKNOWN
    return numerator // denominator


def flattened(call: OperatorCall) -> Shape:
    """Flatten."""
    dims, axis = call.dims(0), call.attributes.get("axis", 1)
    if dims is None:
        return open_shape(2)
    if axis < 0 and call.since < 11:
        raise ShapeError(f"there is no axis {axis} in this opset", help="count axes from 0")
    if axis != len(dims):
        axis = axis_of(axis, len(dims))
    return _shape([math.prod(part, start=_ONE) for part in (dims[:axis], dims[axis:])])


def squeezed(call: OperatorCall) -> Shape:
    """Squeeze."""
    dims = call.ranked(0)
    if not call.has(1) and "axes" not in call.attributes:
        return _shape([d for d in dims if d != 1]) if all(d.is_static for d in dims) else Shape.unknown()
    numbers = known_numbers(call, 1, "axes")
    if numbers is None:
        rank = len(dims) - (length_of(call, 1) or len(dims) + 1)
        return open_shape(rank) if rank >= 0 else Shape.unknown()
    axes = {axis_of(axis, len(dims)) for axis in numbers}
    for axis in axes:
        if dims[axis].is_static and dims[axis] != 1:
            raise ShapeError(f"axis {axis} has the length {dims[axis]}", help="squeeze axes of length 1")
    return _shape([d for i, d in enumerate(dims) if i not in axes])


def unsqueezed(call: OperatorCall) -> Shape:
    """Unsqueeze."""
    dims, numbers = call.ranked(0), known_numbers(call, 1, "axes")
    if numbers is None:
        length = length_of(call, 1)
        return Shape.unknown() if length is None else open_shape(len(dims) + length)
    rank = len(dims) + len(numbers)
    axes = {axis_of(axis, rank) for axis in numbers}
    if len(axes) < len(numbers):
        raise ShapeError(f"axes {[*numbers]} has a duplicate", help="name each axis once")
    rest = iter(dims)
    return _shape([_ONE if i in axes else next(rest) for i in range(rank)])


def transposed(call: OperatorCall) -> Shape:
    """Transpose."""
    dims, perm = call.ranked(0), call.attributes.get("perm")
    if perm is None:
        return _shape(dims[::-1])
    if sorted(perm) != [*range(len(dims))]:
        raise ShapeError(f"perm {[*perm]} is not a permutation of {len(dims)} axes", help="name each axis once")
    return _shape([dims[axis] for axis in perm])


# Joins and parts


def joined(call: OperatorCall) -> Shape:
    """Concat."""
    ranked = [call.ranked(i) for i in range(len(call.shapes))]
    first = ranked[0]
    axis = axis_of(call.attributes.get("axis", 1), len(first))
    for dims in ranked:
        if len(dims) != len(first):
            raise ShapeError(f"ranks differ: {len(first)} and {len(dims)}", help="join tensors of one rank")
    columns = enumerate(zip(*ranked, strict=True))
    return _shape([alike(dims, i) if i != axis else sum(dims[1:], start=dims[0]) for i, dims in columns])


def alike(dims: Sequence[Dim], axis: int) -> Dim:
    """Return the most specific of dims that must be equal. Raises `ShapeError` for two different numbers."""
    numbers = sorted({int(d) for d in dims if d.is_static})
    if len(numbers) > 1:
        raise ShapeError(f"{numbers[0]} and {numbers[1]} at axis {axis}", help="make the dims equal")
    return Dim(numbers[0]) if numbers else next((d for d in dims if not d.is_dynamic), UNKNOWN)


def parts(call: OperatorCall) -> list[Shape]:
    """Split: by sizes, or into equal parts, of which the last may be smaller since opset 18."""
    dims, count = call.ranked(0), call.count
    axis = axis_of(call.attributes.get("axis", 0), len(dims))
    whole = dims[axis]
    sizes: tuple[Size, ...] | None = numbers_of(call, 1, "split")
    if sizes is None and not call.has(1):
        sizes = _equal_parts(whole, count, "num_outputs" in call.attributes)
    if sizes is None:
        sizes = (None,) * count
    if len(sizes) != count:
        raise ShapeError(f"got sizes of {len(sizes)} parts for {count} results", help="state one size per result")
    numbers = [size for size in sizes if isinstance(size, int)]
    if whole.is_static and len(numbers) == count and sum(numbers) != int(whole):
        raise ShapeError(
            f"the parts {[*sizes]} do not add up to {whole} elements", help="use sizes that add up to the axis"
        )
    return [_shape([*dims[:axis], dim_of(size), *dims[axis + 1 :]]) for size in sizes]


def _equal_parts(whole: Dim, count: int, may_differ: bool) -> tuple[Size, ...] | None:
    if may_differ and count == 2 and not whole.is_dynamic:
        return size_of(whole.ceildiv(2)), size_of(whole // 2)
    if not whole.is_static:
        return None
    if int(whole) % count and not may_differ:
        raise ShapeError(
            f"{whole} elements cannot be split into {count} equal parts", help="state the size of each part"
        )
    size = -(-int(whole) // count)
    return *[size] * (count - 1), int(whole) - size * (count - 1)


def expanded(call: OperatorCall) -> Shape:
    """Expand."""
    dims, target = call.ranked(0), call.value(1)
    if not isinstance(target, tuple):
        length = length_of(call, 1)
        return Shape.unknown() if length is None else _shape(joint_dims([dims, [UNKNOWN] * length]))
    return _shape(joint_dims([dims, [dim_of(size) for size in target]]))


def tiled(call: OperatorCall) -> Shape | None:
    """Tile."""
    if call.since < 6:
        return None
    dims, repeats = call.ranked(0), call.value(1)
    if not isinstance(repeats, tuple):
        return open_shape(len(dims))
    if len(repeats) != len(dims):
        raise ShapeError(f"got {len(repeats)} repeats for {len(dims)} axes", help="use one number per axis")
    return _shape([UNKNOWN if count is None else dim * count for dim, count in zip(dims, repeats, strict=True)])


# Elements by position


def gathered(call: OperatorCall) -> Shape:
    """Gather."""
    dims, indices = call.ranked(0), call.ranked(1)
    axis = axis_of(call.attributes.get("axis", 0), len(dims))
    return _shape([*dims[:axis], *indices, *dims[axis + 1 :]])


def as_indices(call: OperatorCall) -> Shape | None:
    """GatherElements: the shape of operand 1."""
    return call.shapes[1]


def gathered_rows(call: OperatorCall) -> Shape:
    """GatherND: the rows of indices, then the axes of the data that they do not index."""
    dims, indices = call.ranked(0), call.dims(1)
    if not indices or not indices[-1].is_static:
        return Shape.unknown()
    indexed = call.attributes.get("batch_dims", 0) + int(indices[-1])
    if indexed > len(dims):
        raise ShapeError(f"indices select {indexed} axes of {len(dims)}", help="use at most as many indices as axes")
    return _shape([*indices[:-1], *dims[indexed:]])


def compressed(call: OperatorCall) -> Shape:
    """Compress."""
    axis = call.attributes.get("axis")
    if axis is None:
        return open_shape(1)
    dims = call.ranked(0)
    dims[axis_of(axis, len(dims))] = UNKNOWN
    return _shape(dims)


def in_blocks(call: OperatorCall) -> Shape:
    """DepthToSpace."""
    dims, block = call.dims(0), call.attributes.get("blocksize", 0)
    if dims is None:
        return open_shape(4)
    if len(dims) != 4 or block < 1:
        raise ShapeError(
            f"blocks of size {block} need a tensor of rank 4, got rank {len(dims)}",
            help="use a positive block size and [batch, channels, height, width]",
        )
    n, c, h, w = dims
    return _shape([n, c // (block * block), h * block, w * block])


def out_of_blocks(call: OperatorCall) -> Shape:
    """SpaceToDepth."""
    shape, block = in_blocks(call), call.attributes["blocksize"]
    n, c, h, w = call.dims(0) or shape
    return _shape([n, c * (block * block), h // block, w // block])
