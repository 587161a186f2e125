"""Find the per-channel affine steps that lead to a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.surgery.result_types import describe_node
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType

Vector: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Neg", "Sub"})
_RESHAPES = having(Trait.VIEWS)


@dataclass(frozen=True, slots=True)
class AffineChain:
    """The input of a product as `scale * value + shift` per channel of the value before the steps.

    order: the position of each channel in the value before the steps, where channels are permuted. dropped: by the id
    of each folded node, the position of the operand that replaces its results. count: of the steps and permutations.
    stop: why the steps end where they do, "" at an input.
    """

    scale: Vector
    shift: Vector
    order: Places
    dropped: Mapping[int, int]
    count: int
    stop: str


def chain_to(
    product: Node, operand: int, axis: int, channels: int, readers: Mapping[int, list[Node | None]]
) -> AffineChain:
    """Return the steps that lead to an operand of a product.

    axis: the channel axis of the operand. readers: the nodes that read each Symbol, by its id; None stands for the
    graph's outputs and bodies.
    """
    symbol = present(product.inputs[operand])
    return _ChainWalk(product, symbol, axis, channels, readers).run()


class _ChainWalk:
    """A walk from a product up to the first node that cannot be folded.

    A channel of the product is a position on the flattened channel axes of the current value. Permutations of channels
    change the positions.
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

    def run(self) -> AffineChain:
        stop = self._step()
        while stop is None:
            stop = self._step()
        return AffineChain(self._scale, self._shift, self._place, self._dropped, self._count, stop)

    def _step(self) -> str | None:
        """Go one node up. Return the reason if that is impossible."""
        node = self._at.producer
        if not isinstance(node, Node):
            return ""
        place = describe_node(node)
        others = [r for r in self._readers.get(self._at.id, []) if r is not self._reader and not _is_of_shapes(r)]
        if others or len(node.outputs) > 1:
            return f"{place} is used elsewhere too"
        if node.domain or not isinstance(self._at.type, TensorType) or not self._at.shape.is_ranked:
            return f"{place} cannot be folded"
        if node.op_type in _ARITHMETIC:
            return self._fold_arithmetic(node, place)
        if node.op_type == "BatchNormalization":
            return self._fold_batch_norm(node, place)
        if node.op_type == "Concat":
            return self._fold_split_concat(node, place)
        operand = node.inputs[0] if node.inputs else None
        if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
            return f"{place} cannot be folded"
        if node.op_type in ("Gather", "Slice"):
            return self._pass_selection(node, operand, place)
        if not self._passes(node, operand):
            return f"{place} cannot be folded"
        self._go(node, operand)
        return None

    def _go(self, node: Node, operand: Symbol) -> None:
        self._at, self._reader = operand, node

    # Steps

    def _fold_arithmetic(self, node: Node, place: str) -> str | None:
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
            scale, shift = _compose_step(node.op_type, position, self._scale, self._shift, by)
        return self._take_in(node, position, place, scale, shift)

    def _fold_batch_norm(self, node: Node, place: str) -> str | None:
        """Fold a BatchNormalization of constant statistics."""
        if self._bound:
            return f"{place} comes before {self._bound}"
        operand, statistics = node.inputs[0], [constant_array(s, weights=True) for s in node.inputs[1:]]
        if operand is None or not isinstance(operand.type, TensorType) or not operand.shape.is_ranked:
            return f"{place} cannot be folded"
        vectors = [
            None if a is None else self._by_channel(a.reshape(-1, *[1] * (len(operand.shape) - 2)), operand.shape)
            for a in statistics
        ]
        gain, offset, mean, variance = vectors
        if gain is None or offset is None or mean is None or variance is None or node.attributes.get("training_mode"):
            return f"{place} has no constant statistics of the channels"
        with np.errstate(all="ignore"):
            factor = gain / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
            shift = self._shift + self._scale * (offset - mean * factor)
            return self._take_in(node, 0, place, self._scale * factor, shift)

    def _take_in(self, node: Node, position: int, place: str, scale: Vector | None, shift: Vector) -> str | None:
        """Fold a node into scale and shift, and go on with its operand."""
        if scale is None or not (np.isfinite(scale).all() and np.isfinite(shift).all()):
            return f"{place} gives a factor that is not finite"
        operand = present(node.inputs[position])
        self._scale, self._shift = scale, shift
        self._drop(node, position)
        self._go(node, operand)
        return None

    def _drop(self, node: Node, position: int) -> None:
        self._dropped[id(node)] = position
        self._count += 1

    def _by_channel(self, array: npt.NDArray[np.generic], shape: Shape) -> Vector | None:
        """Return the values of a constant by channel, None if it changes the shape or varies within a channel."""
        rank = len(shape)
        if array.ndim > rank:
            return None
        values = array.astype(np.float64).reshape((1,) * (rank - array.ndim) + array.shape)
        for axis in range(rank):
            size = values.shape[axis]
            if size != 1 and (axis not in self._axes or shape[axis] != size):
                return None
        sizes = [values.shape[axis] for axis in self._axes]
        ordered = values.transpose([*self._axes, *(a for a in range(rank) if a not in self._axes)]).reshape(sizes)
        flat: Vector = np.broadcast_to(ordered, self._sizes).reshape(-1)[self._place]
        return flat

    # Nodes that do not mix channels

    def _passes(self, node: Node, operand: Symbol) -> bool:
        """Return True if a node keeps channels apart, and move the channel axes to those of its operand."""
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
                self._bound = self._bound or "a Resize that fills in its own value outside of the image"
            here, there = self._at.shape, operand.shape
            has_axes = all(here[a].is_static and here[a] == there[a] for a in self._axes)
            return has_axes and _preserves_axes(node, self._axes, len(there))
        return node.op_type in _RESHAPES and self._regroup(operand)

    def _regroup(self, operand: Symbol) -> bool:
        """Find the channel axes before a Reshape: a run of axes of the same positions."""
        total, here, there = int(np.prod(self._sizes)), [*self._at.shape], [*operand.shape]
        if total == 1:
            self._axes, self._sizes = [], []
            return True
        first, end = self._axes[0], self._axes[0] + len(self._axes)
        if self._axes != [*range(first, end)]:
            return False
        before, after = Shape(here[:first]).size, Shape(here[end:]).size
        for start in range(len(there)):
            for stop in range(start + 1, len(there) + 1):
                is_there = _is_same(before, Shape(there[:start]).size) or _is_same(after, Shape(there[stop:]).size)
                if is_there and Shape(there[start:stop]).size == total:
                    self._axes, self._sizes = [*range(start, stop)], [int(d) for d in there[start:stop]]
                    return True
        return False

    # Permutations of channels

    def _pass_selection(self, node: Node, operand: Symbol, place: str) -> str | None:
        """Fold a Gather or Slice that permutes channels, and pass a Slice of other axes."""
        steps = (
            _slices_by_axis(node, len(operand.shape))
            if node.op_type == "Slice"
            else _gather_indices(node, len(operand.shape))
        )
        if steps is None:
            return f"{place} cannot be folded"
        changed: dict[int, Places | None] = {}
        for axis, index in steps.items():
            if axis not in self._axes:
                changed[axis] = None
                continue
            size = self._sizes[self._axes.index(axis)]
            if operand.shape[axis] != size:
                return f"{place} selects some of the channels"
            try:
                order = np.arange(size)[index]
            except (IndexError, ValueError):  # of a model that cannot run
                return f"{place} selects channels that do not exist"
            if order.ndim != 1 or sorted(order.tolist()) != [*range(size)]:
                return f"{place} selects some of the channels"
            changed[axis] = order
        flips = {axis: order for axis, order in changed.items() if order is not None}
        if flips and len(changed) > len(flips):
            return f"{place} selects a part of other axes too"
        for axis, order in flips.items():
            self._reorder(axis, order)
        if flips:
            self._drop(node, 0)
        self._go(node, operand)
        return None

    def _fold_split_concat(self, node: Node, place: str) -> str | None:
        """Fold a Concat of all results of a Split of the channels, in another order."""
        first = node.inputs[0]
        split = None if first is None else first.producer
        if not isinstance(split, Node) or split.op_type != "Split" or split.domain:
            return f"{place} cannot be folded"
        operand, rank = split.inputs[0], len(self._at.shape)
        axes = {node.attributes.get("axis", 0) % rank, split.attributes.get("axis", 0) % rank}
        axis = min(axes)
        numbers = [s.id for s in split.outputs]
        inputs = [-1 if s is None else s.id for s in node.inputs]
        is_whole = sorted(inputs) == sorted(numbers) and all(self._readers.get(n, []) == [node] for n in numbers)
        sizes = [s.shape[axis] for s in split.outputs if isinstance(s.type, TensorType) and s.shape.is_ranked]
        if operand is None or len(axes) > 1 or axis not in self._axes or not is_whole or len(sizes) < len(numbers):
            return f"{place} cannot be folded"
        total = self._sizes[self._axes.index(axis)]
        if not all(d.is_static for d in sizes) or sum(map(int, sizes)) != total:
            return f"{place} cannot be folded"
        ends = np.cumsum([int(d) for d in sizes])
        parts = dict(zip(numbers, np.split(np.arange(total), ends[:-1]), strict=True))
        self._reorder(axis, np.concatenate([parts[n] for n in inputs]))
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
    """Return the position of the only operand that is not a constant, None if there is no such operand."""
    if node.op_type == "Neg":
        return 0
    constants = [constant_array(s, weights=True) is not None for s in node.inputs]
    return constants.index(False) if sum(constants) == 1 else None


def _compose_step(
    op_type: str, position: int, scale: Vector, shift: Vector, by: Vector | None
) -> tuple[Vector | None, Vector]:
    """Return the scale and shift of a step's operand from those of its result; no scale if the step is not affine."""
    if by is None:
        return -scale, shift
    if op_type == "Add":
        return scale, shift + scale * by
    if op_type == "Sub":
        return (scale, shift - scale * by) if position == 0 else (-scale, shift + scale * by)
    if op_type == "Mul":
        return scale * by, shift
    return (scale / by if position == 0 else None), shift


def _preserves_axes(resize: Node, axes: list[int], rank: int) -> bool:
    """Return True if a Resize does not change the values along some axes, whose sizes stay."""
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


def _is_same(a: Dim, b: Dim) -> bool:
    return not a.is_dynamic and a == b


def _gather_indices(node: Node, rank: int) -> dict[int, Places] | None:
    indices = constant_array(node.inputs[1], weights=True)
    if indices is None or indices.ndim != 1:
        return None
    return {node.attributes.get("axis", 0) % rank: indices.astype(np.int64)}


def _slices_by_axis(node: Node, rank: int) -> dict[int, slice] | None:
    """Return the slice of each axis, None if it is not constant."""
    arrays = [constant_array(s, weights=True) for s in node.inputs[1:]]
    if any(array is None and s is not None for array, s in zip(arrays, node.inputs[1:], strict=True)):
        starts = arrays[2] if len(arrays) > 2 else None
        if starts is None:
            return None
        # Only the axes are constant.
        return {int(a) % rank: slice(0, 0) for a in starts}
    starts, ends = arrays[0], arrays[1]
    if starts is None or ends is None:
        return None
    axes = arrays[2] if len(arrays) > 2 and arrays[2] is not None else np.arange(len(starts))
    steps = arrays[3] if len(arrays) > 3 and arrays[3] is not None else np.ones(len(starts), np.int64)
    slices = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        slices[int(axis) % rank] = slice(int(start), int(end), int(step))
    return slices
