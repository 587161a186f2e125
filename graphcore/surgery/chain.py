"""The affine steps that lead to a product, channel by channel: how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.surgery.result_types import described
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType

Vector: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Neg", "Sub"})
_RESHAPES = having(Trait.VIEWS)


@dataclass(frozen=True, slots=True)
class Chain:
    """The input of a product, by its channels: `scale * value + shift` of what comes in where no step is made.

    order: the channel at which each one comes in where flips of channels are not made either. dropped: the operand
    that stands for the results of each node that is not made, by the node's id. count: of the steps and flips. stop:
    why the steps end where they do, "" at an input.
    """

    scale: Vector
    shift: Vector
    order: Places
    dropped: Mapping[int, int]
    count: int
    stop: str


def chain_to(product: Node, operand: int, axis: int, channels: int, readers: Mapping[int, list[Node | None]]) -> Chain:
    """Return the steps that lead to an operand of a product.

    axis: of the operand that the channels are on. readers: by the numbers of Symbols what reads each; None stands for
    the graph's outputs and bodies.
    """
    symbol = product.inputs[operand]
    assert symbol is not None
    return _Walk(product, symbol, axis, channels, readers).run()


class _Walk:
    """A walk from a product up to where no further step can be taken in.

    A channel of the product is a place on some axes of the value that the walk is at, as if these were flattened. Flips
    of channels change the places.
    """

    def __init__(
        self, product: Node, symbol: Symbol, axis: int, channels: int, readers: Mapping[int, list[Node | None]]
    ) -> None:
        self._at = symbol
        self._reader = product
        self._dtype = symbol.dtype
        self._readers = readers
        self._axes = [axis]
        self._sizes = [channels]
        self._place = np.arange(channels)
        self._scale = np.ones(channels)
        self._shift = np.zeros(channels)
        self._dropped: dict[int, int] = {}
        self._count = 0
        self._bound = ""  # why no arithmetic is folded any more, though flips may be

    def run(self) -> Chain:
        stop = self._step()
        while stop is None:
            stop = self._step()
        return Chain(self._scale, self._shift, self._place, self._dropped, self._count, stop)

    def _step(self) -> str | None:
        """Go one node up. Return why not, where that cannot be."""
        node = self._at.producer
        if not isinstance(node, Node):
            return ""
        place = described(node)
        others = [r for r in self._readers.get(self._at.id, []) if r is not self._reader and not _is_of_shapes(r)]
        if others or len(node.outputs) > 1:
            return f"{place} is used elsewhere too"
        if node.domain or not isinstance(self._at.type, TensorType) or not self._at.shape.is_ranked:
            return f"{place} is no step that can be folded"
        if node.op_type in _ARITHMETIC:
            return self._affine(node, place)
        if node.op_type == "BatchNormalization":
            return self._normalised(node, place)
        if node.op_type == "Concat":
            return self._joined(node, place)
        operand = node.inputs[0] if node.inputs else None
        if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
            return f"{place} is no step that can be folded"
        if node.op_type in ("Gather", "Slice"):
            return self._chosen(node, operand, place)
        if not self._passes(node, operand):
            return f"{place} is no step that can be folded"
        self._go(node, operand)
        return None

    def _go(self, node: Node, operand: Symbol) -> None:
        self._at, self._reader = operand, node

    # Steps

    def _affine(self, node: Node, place: str) -> str | None:
        if self._bound:
            return f"{place} comes before {self._bound}"
        position = _data_of(node)
        operand = None if position is None else node.inputs[position]
        if position is None or operand is None or not isinstance(operand.type, TensorType):
            return f"{place} has no constant operand"
        if not operand.shape.is_ranked or len(operand.shape) != len(self._at.shape):
            return f"{place} adds axes"
        by: Vector | None = None
        if node.op_type != "Neg":
            array = constant_array(node.inputs[1 - position], weights=True)
            by = None if array is None else self._by_channel(array, operand.shape)
            if by is None:
                shape = "?" if array is None else [*array.shape]
                return f"{place}: its constant of shape {shape} is not one value for each channel"
        with np.errstate(all="ignore"):
            scale, shift = _after(node.op_type, position, self._scale, self._shift, by)
        return self._take_in(node, position, place, scale, shift)

    def _normalised(self, node: Node, place: str) -> str | None:
        """Take in a BatchNormalization by known statistics."""
        if self._bound:
            return f"{place} comes before {self._bound}"
        operand, known = node.inputs[0], [constant_array(s, weights=True) for s in node.inputs[1:]]
        if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
            return f"{place} is no step that can be folded"
        vectors = [
            None if a is None else self._by_channel(a.reshape(-1, *[1] * (len(operand.shape) - 2)), operand.shape)
            for a in known
        ]
        gain, offset, mean, variance = vectors
        if gain is None or offset is None or mean is None or variance is None or node.attributes.get("training_mode"):
            return f"{place} has no constant statistics of the channels"
        with np.errstate(all="ignore"):
            factor = gain / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
            shift = self._shift + self._scale * (offset - mean * factor)
            return self._take_in(node, 0, place, self._scale * factor, shift)

    def _take_in(self, node: Node, position: int, place: str, scale: Vector | None, shift: Vector) -> str | None:
        """Make a node a part of the factors, and go on with its operand."""
        if scale is None or not (np.isfinite(scale).all() and np.isfinite(shift).all()):
            return f"{place} gives no finite factor"
        operand = node.inputs[position]
        assert operand is not None
        self._scale, self._shift = scale, shift
        self._drop(node, position)
        self._go(node, operand)
        return None

    def _drop(self, node: Node, position: int) -> None:
        self._dropped[id(node)] = position
        self._count += 1

    def _by_channel(self, array: npt.NDArray[np.generic], shape: Shape) -> Vector | None:
        """Return the values of a constant by channels; None where it changes the shape or differs inside of one."""
        rank = len(shape)
        if array.ndim > rank:
            return None
        values = array.astype(np.float64).reshape((1,) * (rank - array.ndim) + array.shape)
        for axis in range(rank):
            size = values.shape[axis]
            if size != 1 and (axis not in self._axes or shape[axis] != size):
                return None
        kept = [values.shape[axis] for axis in self._axes]
        ordered = values.transpose([*self._axes, *(a for a in range(rank) if a not in self._axes)]).reshape(kept)
        flat: Vector = np.broadcast_to(ordered, self._sizes).reshape(-1)[self._place]
        return flat

    # What keeps channels apart

    def _passes(self, node: Node, operand: Symbol) -> bool:
        """Return whether a node gives each channel what it has of it, and go on with the axes of its operand."""
        if node.op_type == "Identity":
            return True
        if node.op_type == "Cast":
            if operand.dtype is not self._dtype:
                self._bound = self._bound or f"a Cast from {operand.dtype}"
            return True
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm", [*range(len(operand.shape))][::-1])
            self._axes = [perm[axis] for axis in self._axes]
            return True
        if node.op_type == "Resize":
            if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
                self._bound = self._bound or "a Resize that has a value of its own outside of the image"
            return self._has_axes_of(operand) and _keeps(node, self._axes, len(operand.shape))
        return node.op_type in _RESHAPES and self._regroup(operand)

    def _has_axes_of(self, operand: Symbol) -> bool:
        here, there = self._at.shape, operand.shape
        return all(here[a].is_static and here[a] == there[a] for a in self._axes)

    def _regroup(self, operand: Symbol) -> bool:
        """Find the axes before a Reshape that the channels are on, as a run of axes of the same positions."""
        total, here, there = int(np.prod(self._sizes)), [*self._at.shape], [*operand.shape]
        if total == 1:
            self._axes, self._sizes = [], []
            return True
        first, end = self._axes[0], self._axes[0] + len(self._axes)
        if self._axes != [*range(first, end)]:
            return False
        before, after = _product(here[:first]), _product(here[end:])
        for start in range(len(there)):
            for stop in range(start + 1, len(there) + 1):
                is_there = _is_same(before, _product(there[:start])) or _is_same(after, _product(there[stop:]))
                if is_there and _is_same(Dim(total), _product(there[start:stop])):
                    self._axes, self._sizes = [*range(start, stop)], [int(d) for d in there[start:stop]]
                    return True
        return False

    # Flips of channels

    def _chosen(self, node: Node, operand: Symbol, place: str) -> str | None:
        """Take in a Gather or Slice that puts channels in another order, and pass a Slice of other axes."""
        steps = _slices(node, len(operand.shape)) if node.op_type == "Slice" else _taken(node, len(operand.shape))
        if steps is None:
            return f"{place} is no step that can be folded"
        changed: dict[int, Places | None] = {}
        for axis, index in steps.items():
            if axis not in self._axes:
                changed[axis] = None
                continue
            size = self._sizes[self._axes.index(axis)]
            if operand.shape[axis] != size:
                return f"{place} takes some channels"
            try:
                order = np.arange(size)[index]
            except (IndexError, ValueError):  # of a model that cannot run
                return f"{place} takes channels that do not exist"
            if order.ndim != 1 or sorted(order.tolist()) != [*range(size)]:
                return f"{place} takes some channels"
            changed[axis] = order
        flips = {axis: order for axis, order in changed.items() if order is not None}
        if flips and len(changed) > len(flips):
            return f"{place} takes a part of other axes"
        for axis, order in flips.items():
            self._reorder(axis, order)
        if flips:
            self._drop(node, 0)
        self._go(node, operand)
        return None

    def _joined(self, node: Node, place: str) -> str | None:
        """Take in a Concat of all that a Split of the channels gives, in another order."""
        first = node.inputs[0]
        split = None if first is None else first.producer
        if not isinstance(split, Node) or split.op_type != "Split" or split.domain:
            return f"{place} is no step that can be folded"
        operand, rank = split.inputs[0], len(self._at.shape)
        axes = {node.attributes.get("axis", 0) % rank, split.attributes.get("axis", 0) % rank}
        axis = min(axes)
        numbers = [s.id for s in split.outputs]
        given = [-1 if s is None else s.id for s in node.inputs]
        is_whole = sorted(given) == sorted(numbers) and all(self._readers.get(n, []) == [node] for n in numbers)
        sizes = [s.shape[axis] for s in split.outputs if isinstance(s.type, TensorType) and s.shape.is_ranked]
        if operand is None or len(axes) > 1 or axis not in self._axes or not is_whole or len(sizes) < len(numbers):
            return f"{place} is no step that can be folded"
        total = self._sizes[self._axes.index(axis)]
        if not all(d.is_static for d in sizes) or sum(map(int, sizes)) != total:
            return f"{place} is no step that can be folded"
        ends = np.cumsum([int(d) for d in sizes])
        parts = dict(zip(numbers, np.split(np.arange(total), ends[:-1]), strict=True))
        self._reorder(axis, np.concatenate([parts[n] for n in given]))
        self._drop(node, 0)
        self._dropped[id(split)] = 0
        self._go(split, operand)
        return None

    def _reorder(self, axis: int, order: Places) -> None:
        where = [*np.unravel_index(self._place, self._sizes)]
        number = self._axes.index(axis)
        where[number] = order[where[number]]
        self._place = np.ravel_multi_index(tuple(where), tuple(self._sizes)).astype(np.int64)


def _is_of_shapes(node: Node | None) -> bool:
    return node is not None and node.op_type in ("Shape", "Size") and not node.domain


def _data_of(node: Node) -> int | None:
    """Return which operand of arithmetic is no constant; None where both are none."""
    if node.op_type == "Neg":
        return 0
    constants = [constant_array(s, weights=True) is not None for s in node.inputs]
    return constants.index(False) if sum(constants) == 1 else None


def _after(
    op_type: str, position: int, scale: Vector, shift: Vector, by: Vector | None
) -> tuple[Vector | None, Vector]:
    """Return scale and shift of a step's operand, from those of its result; None where the step is not affine."""
    if by is None:
        return -scale, shift
    if op_type == "Add":
        return scale, shift + scale * by
    if op_type == "Sub":
        return (scale, shift - scale * by) if position == 0 else (-scale, shift + scale * by)
    if op_type == "Mul":
        return scale * by, shift
    return (scale / by if position == 0 else None), shift


def _product(dims: list[Dim]) -> Dim | None:
    made = Dim(1)
    for dim in dims:
        if dim.is_dynamic:
            return None
        made = made * dim
    return made


def _keeps(resize: Node, axes: list[int], rank: int) -> bool:
    """Return whether a Resize leaves some axes, whose sizes stay, as they are."""
    resized = {int(axis) % rank for axis in resize.attributes.get("axes", range(rank))}
    chosen = [axis for axis in axes if axis in resized]
    if not chosen:
        return True
    if len(resized) < rank or resize.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if len(resize.inputs) > 3 and resize.inputs[3] is not None:
        return True
    scales = constant_array(resize.inputs[2], weights=True)
    return scales is not None and all(scales[axis] == 1 for axis in chosen)


def _is_same(a: Dim | None, b: Dim | None) -> bool:
    return a is not None and b is not None and a == b


def _taken(node: Node, rank: int) -> dict[int, Places] | None:
    indices = constant_array(node.inputs[1], weights=True)
    if indices is None or indices.ndim != 1:
        return None
    return {node.attributes.get("axis", 0) % rank: indices.astype(np.int64)}


def _slices(node: Node, rank: int) -> dict[int, slice] | None:
    """Return what a Slice takes of each axis; None where that is not known."""
    known = [constant_array(s, weights=True) for s in node.inputs[1:]]
    if any(array is None and s is not None for array, s in zip(known, node.inputs[1:], strict=True)):
        starts = known[2] if len(known) > 2 else None
        if starts is None:
            return None
        # Axes alone are known: what is taken of them is not.
        return {int(a) % rank: slice(0, 0) for a in starts}
    starts, ends = known[0], known[1]
    if starts is None or ends is None:
        return None
    axes = known[2] if len(known) > 2 and known[2] is not None else np.arange(len(starts))
    steps = known[3] if len(known) > 3 and known[3] is not None else np.ones(len(starts), np.int64)
    made = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        made[int(axis) % rank] = slice(int(start), int(end), int(step))
    return made
