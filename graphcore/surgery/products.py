"""Fold preprocessing into the first products of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from graphcore.errors import GraphError
from graphcore.ir.emit import type_of
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Results
from graphcore.ir.transform.walk import constant_array, reads
from graphcore.operators import ONNX, Trait, having
from graphcore.surgery.chain import AffineChain, Places, Vector, chain_to
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.replay import Edit, Replay
from graphcore.surgery.result_types import describe_node
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_WHAT = "fold_preprocessing"


@method(Graph)
def fold_preprocessing(self: Graph) -> Graph:
    """Return a new graph with affine preprocessing folded into the first products.

    The products are Conv, ConvTranspose, MatMul and Gemm. BatchNormalization, and Add, Sub, Mul, Div, Neg by constants
    with one value, or one per channel, are folded into their weights and bias. So are Gather, Slice, and Split with
    Concat that reorder channels (RGB and BGR). Cast, Transpose, Reshape and Resize in between are kept. Only values
    whose consumers are all float32 and float64 products are folded. A shift before a convolution with zero padding
    remains as one Add, since the padding is not shifted.

    Weights are read immediately; changed weights are new arrays, others are the same. Results are equal up to the
    rounding of the dtype, not bit for bit.

    Raises:
        GraphError: Nothing can be folded; the message gives the reason.

    Example:
        small = gc.compose(preprocess, model).fold_preprocessing()
    """
    self.verify()
    readers = _readers(self)
    folds: list[Fold] = []
    unfolded: list[tuple[Node, str]] = []
    for node in _first_products(self):
        try:
            folds.append(fold_into(node, readers))
        except Unfoldable as error:
            unfolded.append((node, str(error)))
    if not folds:
        why = (
            "; ".join(f"{describe_node(node)}: {why}" for node, why in unfolded)
            or f"no {', '.join(sorted(FOLDED_INTO))} comes after an input"
        )
        raise GraphError(
            f"{_WHAT}: nothing is folded: {why}",
            help="run graph.optimize() first, which folds constants; products in bodies and functions are skipped",
        )
    policy = _Folding(folds)
    replay = replica(self, _WHAT, policy=policy)
    for fold in folds:
        for node, position, array in fold.constants():
            policy.constants[id(node), position] = _constant(replay, node, position, array, readers)
    return finish(replay)


def _readers(graph: Graph) -> Readers:
    """Return the nodes that read each Symbol; None stands for outputs, buffers, watched values and bodies."""
    readers: dict[int, list[Node | None]] = {}
    for node in graph.nodes:
        own = [s.id for s in node.inputs if s is not None]
        for number in dict.fromkeys(own):
            readers.setdefault(number, []).append(node)
        for symbol in reads(node)[len(own) :]:
            readers.setdefault(symbol.id, []).append(None)
    ends = [*graph.outputs, *graph.watched.values(), *(buffer.value for buffer in graph.buffers.values())]
    for symbol in ends:
        if symbol.graph is graph:
            readers.setdefault(symbol.id, []).append(None)
    return readers


def _first_products(graph: Graph) -> list[Node]:
    """Return the products that no other product comes before."""
    later: set[int] = set()
    products = []
    for node in graph.nodes:
        is_later = any(s.id in later for s in reads(node))
        if node.op_type in FOLDED_INTO and not node.domain and not is_later:
            products.append(node)
        if is_later or node.op_type in PRODUCTS:
            later.update(s.id for s in node.outputs)
    return products


class _Folding(Edit):
    """Replaces the constants of products, and drops the nodes that are folded into them."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self._dropped = {number: position for fold in folds for number, position in fold.chain.dropped.items()}
        self._products = {id(fold.node): fold for fold in folds}
        self.constants: dict[tuple[int, int], Symbol] = {}

    def operands(self, rewrite: Replay, node: Node) -> Inputs:
        return () if id(node) in self._dropped else super().operands(rewrite, node)

    def replace_node(self, rewrite: Replay, node: Node, inputs: Inputs) -> Results | None:
        if id(node) in self._dropped:
            operand = present(node.inputs[self._dropped[id(node)]])
            return rewrite.put(node, [rewrite.of(operand)] * len(node.outputs))
        own = {position: s for (number, position), s in self.constants.items() if number == id(node)}
        if not own:
            return None
        new_inputs = [own.get(position, s) for position, s in enumerate(inputs)]
        fold = self._products.get(id(node))
        if fold is not None and fold.before is not None:
            data = present(new_inputs[fold.operand])
            new_inputs[fold.operand] = _sum(rewrite, node, data, fold.before)
        types = rewrite.results(node, new_inputs)
        if fold is None:
            return rewrite.append(node, new_inputs, types, node.attributes)
        if fold.bias is not None:
            new_inputs[2:] = [own[2]]
        return _product(rewrite, fold, new_inputs, types)


def _product(replay: Replay, fold: Fold, inputs: Sequence[Symbol | None], types: Sequence[Type]) -> Sequence[Symbol]:
    node, attributes = fold.node, dict(fold.attributes)
    if fold.after is None or fold.add is not None:
        return replay.append(node, inputs, types, attributes)
    build = replay.new.build
    (result,) = build.append(node.op_type, tuple(inputs), types, attributes, node.domain, node.layer, node.origin)
    return [_sum(replay, node, result, fold.after, replay.free_name(node.outputs[0].given_name, replay.new))]


def _sum(replay: Replay, node: Node, symbol: Symbol, array: npt.NDArray[Any], name: str | None = None) -> Symbol:
    """Return the sum of a value and a constant that broadcasts to it, with the layer and line of a node."""
    build = replay.new.build
    other = build.symbol(type_of(array, DType.of(array.dtype)), Constant(array, False, node.origin))
    (result,) = build.append("Add", (symbol, other), [symbol.type], {}, "", node.layer, node.origin, [name])
    return result


def _constant(replay: Replay, node: Node, position: int, array: npt.NDArray[Any], readers: Readers) -> Symbol:
    """Return a constant for an operand. It replaces the old one if nothing else reads that."""
    old = node.inputs[position] if position < len(node.inputs) else None
    name = None if old is None else old.given_name
    is_weight = old is not None and isinstance(old.producer, Constant) and old.producer.is_weight
    is_only = old is not None and readers.get(old.id, []) == [node] and sum(s is old for s in node.inputs) == 1
    if name is not None:
        name = replay.free_name(name if is_only else f"{name}_folded", replay.new, numbered=True)
    constant = replay.new.build.symbol(
        type_of(array, DType.of(array.dtype)), Constant(array, is_weight, node.origin), name
    )
    if old is not None and is_only:
        replay.bind(old, constant)
    return constant


# The products that preprocessing is folded into: their weights, biases and padding.

Array = npt.NDArray[Any]
Readers = Mapping[int, list[Node | None]]

FOLDED_INTO = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
PRODUCTS = having(Trait.PRODUCT) & ONNX - {"CausalConvWithState", "LinearAttention"} | {"FusedConv", "FusedMatMul"}
"""Operators that end the preprocessing."""

_ERROR = 1e-6
"""The maximum rounding error of new weights, relative to the largest weight."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The new operands of a product.

    operand: the position of its input. weights: the new ones, at position `1 - operand`. before: added to its input.
    bias: the new one, at position 2. after: added to its result, or the new constant operand of the Add that reads it.
    attributes: the new ones.
    """

    node: Node
    chain: AffineChain
    operand: int
    weights: Array
    attributes: Mapping[str, Any]
    before: Array | None = None
    bias: Array | None = None
    after: Array | None = None
    add: tuple[Node, int] | None = None

    def constants(self) -> Iterator[tuple[Node, int, Array]]:
        """Yield the operands that change: the node, the position, and the new array."""
        yield self.node, 1 - self.operand, self.weights
        if self.bias is not None:
            yield self.node, 2, self.bias
        if self.add is not None and self.after is not None:
            node, position = self.add
            yield node, 1 - position, self.after


class Unfoldable(Exception):
    """Raised if nothing can be folded into a product, with the reason as its text."""


def fold_into(node: Node, readers: Readers) -> Fold:
    """Return the product with the steps before it folded in. Raises `Unfoldable`."""
    operand = 1 if node.op_type == "MatMul" and constant_array(node.inputs[0], weights=True) is not None else 0
    symbol, other = node.inputs[operand], node.inputs[1 - operand]
    weights = constant_array(other, weights=True)
    if symbol is None or other is None or weights is None:
        raise Unfoldable("its weights are not constant")
    if not isinstance(symbol.type, TensorType) or not symbol.shape.is_ranked:
        raise Unfoldable("the rank of its input is unknown")
    if symbol.dtype not in (DType.float32, DType.float64):
        raise Unfoldable(f"it computes in {symbol.dtype}, whose rounding error would be too large")
    form = _channel_layout(node, operand, len(symbol.shape), weights)
    if not form.channels:
        raise Unfoldable("it has no channels")
    chain = chain_to(node, operand, form.data_axis, form.channels, readers)
    if not chain.count:
        raise Unfoldable(chain.stop or "it reads an input of the graph directly")
    is_flipped = bool((chain.order != np.arange(form.channels)).any())
    if is_flipped and form.groups > 1:
        raise Unfoldable("the channels are permuted, and it has several groups of channels")
    scaled = _in_dtype(form.scale_weights(weights.astype(np.float64), chain.scale, chain.order), weights.dtype)
    fold = Fold(node, chain, operand, scaled, node.attributes)
    if not chain.shift.any():
        return fold
    if form.takes_no_shift:
        return _add_shift_before(fold, form, chain, weights.dtype)
    return _add_shift_after(fold, form.shift_result(weights.astype(np.float64), chain.shift), readers, weights.dtype)


@dataclass(frozen=True, slots=True)
class _ChannelLayout:
    """The channel axes of a product. axis: of the weights. rank: of its input."""

    data_axis: int
    axis: int
    channels: int
    rank: int
    groups: int = 1
    factor: float = 1.0
    takes_no_shift: str = ""
    is_convolution: bool = False
    is_gemm: bool = False

    def scale_weights(self, weights: Array, scale: Vector, order: Places) -> Array:
        """Return weights times the factors of the channels, in the given order of channels."""
        by = scale.reshape([-1 if axis == self.axis else 1 for axis in range(weights.ndim)])
        if self.groups > 1 and self.axis == 1:
            own = scale.reshape(self.groups, -1).repeat(weights.shape[0] // self.groups, axis=0)
            by = own.reshape(own.shape + (1,) * (weights.ndim - 2))
        result = np.empty_like(weights)
        if self.groups > 1:
            return np.asarray(weights * by)
        result[(slice(None),) * self.axis + (order,)] = weights * by
        return result

    def shift_result(self, weights: Array, shift: Vector) -> Array:
        """Return the change of the result when the channels are shifted, broadcastable to the result."""
        if self.is_convolution:
            own = shift.reshape(self.groups, -1).repeat(weights.shape[0] // self.groups, axis=0)
            return np.asarray((weights.reshape(*weights.shape[:2], -1).sum(-1) * own).sum(-1))
        result = np.moveaxis(weights, self.axis, -1) @ shift * self.factor
        if weights.ndim < 2 or self.rank < 2 or self.is_gemm:
            return np.asarray(result)
        # The last remaining axis of the weights is that of the rows or columns of the result.
        is_left = self.axis == weights.ndim - 1 and self.data_axis == self.rank - 2
        return np.asarray(result[..., None] if is_left else result if weights.ndim == 2 else result[..., None, :])


def _channel_layout(node: Node, operand: int, rank: int, weights: Array) -> _ChannelLayout:
    if node.op_type == "MatMul":
        if operand:
            return _ChannelLayout(max(rank - 2, 0), weights.ndim - 1, weights.shape[-1], rank)
        axis = max(weights.ndim - 2, 0)
        return _ChannelLayout(rank - 1, axis, weights.shape[axis], rank)
    if node.op_type == "Gemm":
        axis = 1 if node.attributes.get("transB", 0) else 0
        data_axis = 0 if node.attributes.get("transA", 0) else 1
        factor = node.attributes.get("alpha", 1.0)
        return _ChannelLayout(data_axis, axis, weights.shape[axis], rank, factor=factor, is_gemm=True)
    groups = node.attributes.get("group", 1)
    if weights.ndim < 3 or rank != weights.ndim:
        raise Unfoldable(f"its weights have {weights.ndim} axes, and its input {rank}")
    if node.op_type == "ConvTranspose":
        why = "ConvTranspose sums fewer terms at the borders"
        return _ChannelLayout(1, 0, weights.shape[0], rank, groups, takes_no_shift=why, is_convolution=True)
    why = "it pads with zeros" if _pads(node, weights) else ""
    return _ChannelLayout(1, 1, weights.shape[1] * groups, rank, groups, takes_no_shift=why, is_convolution=True)


def _pads(node: Node, weights: Array) -> bool:
    """Return True if a convolution may pad its input with zeros."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return any(size != 1 for size in weights.shape[2:])
    return mode != "VALID" and any(node.attributes.get("pads", ()))


def _add_shift_before(fold: Fold, form: _ChannelLayout, chain: AffineChain, dtype: np.dtype[Any]) -> Fold:
    """Add the shift before the product, as one step."""
    if chain.count < 2:
        raise Unfoldable(f"{form.takes_no_shift}, which a shift before it would change")
    if not chain.scale.all():
        raise Unfoldable(f"{form.takes_no_shift}, and a channel is multiplied by 0")
    with np.errstate(all="ignore"):
        shift = chain.shift / chain.scale
    before = np.empty_like(shift)
    before[chain.order] = shift
    shape = [-1 if axis == form.data_axis else 1 for axis in range(form.rank)]
    return replace(fold, before=_in_dtype(before, dtype).reshape(shape))


def _add_shift_after(fold: Fold, total: Array, readers: Readers, dtype: np.dtype[Any]) -> Fold:
    """Add the effect of the shift to the bias, or after the product."""
    node = fold.node
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    array = constant_array(bias, weights=True)
    if node.op_type != "MatMul" and (bias is None or array is not None):
        own = np.zeros(1) if array is None else array.astype(np.float64)
        attributes = dict(node.attributes)
        if node.op_type == "Gemm":
            own = own * attributes.get("beta", 1.0)
            attributes["beta"] = 1.0
        return replace(fold, bias=_in_dtype(own + total, dtype), attributes=attributes)
    add = _add_after(node, readers)
    if add is not None:
        other = present(constant_array(add[0].inputs[1 - add[1]], weights=True))
        return replace(fold, after=_in_dtype(other.astype(np.float64) + total, dtype), add=add)
    if fold.chain.count < 2:
        raise Unfoldable("it has no bias for the shift, and an Add after it would cost as much as the step")
    if node.op_type == "Conv":
        total = total.reshape([-1] + [1] * (fold.weights.ndim - 2))
    return replace(fold, after=_in_dtype(total, dtype))


def _add_after(node: Node, readers: Readers) -> tuple[Node, int] | None:
    """Return the Add of a constant that is the only reader of a MatMul, and the position of the MatMul in it."""
    (result,) = node.outputs
    users = readers.get(result.id, [])
    add = users[0] if len(users) == 1 else None
    if add is None or add.op_type != "Add" or add.domain or not isinstance(result.type, TensorType):
        return None
    position = [s is result for s in add.inputs].index(True)
    array = constant_array(add.inputs[1 - position], weights=True)
    if array is None or not result.shape.is_ranked or array.ndim > len(result.shape):
        return None
    return add, position


def _in_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array rounded to a dtype. Raises `Unfoldable` if the error is too large."""
    with np.errstate(all="ignore"):
        rounded = array.astype(dtype)
        largest = float(np.abs(array).max(initial=0))
        error = float(np.abs(rounded.astype(np.float64) - array).max(initial=0))
    if not np.isfinite(largest) or not error <= _ERROR * largest:
        raise Unfoldable(f"{dtype} cannot represent its folded weights or bias")
    return rounded
