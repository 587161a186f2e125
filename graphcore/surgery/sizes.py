"""Change the dims of the inputs of a graph: sizes for names, names for sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from graphcore import ops
from graphcore.build.declare import LIBRARY
from graphcore.errors import GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Results
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.ops.shared import einsum
from graphcore.ops.shared.dims import provably_differ
from graphcore.support.escaping import suggestion
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.replay import Edit, Replay, at_node
from graphcore.surgery.result_types import describe_node, labelled_operands
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import DimLike, Shape, TensorType, Type, tensor_type

_WHAT = "with_dims"


@method(Graph)
def with_dims(self: Graph, shapes: Mapping[str, Sequence[DimLike]] | None = None, **dims: DimLike) -> Graph:
    """Return a new graph whose inputs have other dims. All types are inferred again.

    Sizes that become names are also replaced inside of the graph: in a Reshape, Expand or Concat with the old number.

    Args:
        shapes: Dims by the names of inputs, one per axis: ints, names, or "?" for any size.
        dims: New dims by the names of dims in the inputs: `batch=4`, `seq="length"`.

    Raises:
        ShapeError: The meaning of a number in a node is ambiguous, or a node does not support the new size.
        GraphError: A name does not exist.

    Example:
        model.with_dims(batch=1)                                  # from names to sizes
        model.with_dims({"image": ["batch", 3, 224, 224]})        # from sizes to names
    """
    shapes, inputs = shapes or {}, {s.name: s for s in self.input_symbols}
    names = _substitutions(inputs, shapes, dims)
    types: dict[int, Type] = {}
    for label, dims_of_input in shapes.items():
        symbol = inputs[label]
        types[symbol.id] = tensor_type(symbol.dtype, Shape([_dim(d) for d in dims_of_input]), symbol.ambiguous)
    return finish(replica(self, _WHAT, types=types, dims=names, policy=_SizeFixes()))


def _dim(value: DimLike) -> Dim:
    return Shape([value])[0]


def _substitutions(
    inputs: Mapping[str, Symbol], shapes: Mapping[str, Sequence[DimLike]], dims: Mapping[str, DimLike]
) -> dict[str, Dim]:
    """Return the new dims by old name. Raises `GraphError`, `ShapeError` for impossible ones."""
    names = {name for s in inputs.values() for dim in _sizes(s) or () for name in dim.parameters}
    substitutions: dict[str, Dim] = {}
    for name, value in dims.items():
        if name not in names:
            inputs_text = ", ".join(f"{label}: {s.type}" for label, s in inputs.items()) or "none"
            raise GraphError(
                f"{_WHAT}: no input has a dim called {name!r}",
                help=f"{suggestion(name, sorted(names))}the inputs: {inputs_text}",
            )
        substitutions[name] = _dim(value)
    for label, wanted in shapes.items():
        if label not in inputs:
            raise GraphError(
                f"{_WHAT}: no input is called {label!r}", help=f"the inputs: {', '.join(map(repr, inputs)) or 'none'}"
            )
        symbol = inputs[label]
        if not isinstance(symbol.type, TensorType):
            raise GraphError(
                f"{_WHAT}: input {label!r} must be a tensor, got {symbol.type}",
                operands={label: symbol},
                help="only tensors have dims: leave it out",
            )
        if isinstance(wanted, str) or (symbol.shape.is_ranked and len(wanted) != len(symbol.shape)):
            raise ShapeError(
                f"{_WHAT}: input {label!r} has {len(symbol.shape)} dims, got {wanted!r}",
                operands={label: symbol},
                help="give one int or name for each axis",
            )
        for old, new in zip(symbol.shape, map(_dim, wanted), strict=True) if symbol.shape.is_ranked else ():
            if old.name is None or new.is_dynamic:
                continue
            if substitutions.setdefault(old.name, new) != new:
                raise ShapeError(
                    f"{_WHAT}: dim {old} would be {substitutions[old.name]} and {new}",
                    operands={label: symbol},
                    help="a dim name has one size in all inputs: give one size, or rename the dim first",
                )
    return substitutions


class _SizeFixes(Edit):
    """Replaces old sizes inside of nodes by the new ones, also in bodies and inlined functions."""

    def replace_node(self, rewrite: Replay, node: Node, inputs: Inputs) -> Results | None:
        before = [None if s is None else rewrite.type_of(s) for s in node.inputs]
        changed = [_has_lost_sizes(_dims(a), _sizes(s)) for a, s in zip(before, inputs, strict=True)]
        # The sizes of a Reshape may change although its operand does not, and so may the product of its symbolic dims.
        if not any(changed) and node.op_type != "Reshape":
            return None
        with at_node(rewrite.new, node), rewrite.new:
            return fix_sizes(_WHAT, rewrite, node, before, inputs)


# Sizes inside of a graph that its inputs no longer have: found, and fixed if their meaning is clear.
#
# An exporter that saw a batch of 8 writes `Reshape(x, [8, -1])`. Where the first dim of `x` becomes another one, so
# does that 8. An unclear size is an error that names the node.

Sizes: TypeAlias = "list[Dim]"

_BROADCAST = having(Trait.BROADCASTS)
_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
"""The operands of recurrent operators that have a row for each sequence, on axis 1."""


def fix_sizes(
    what: str, replay: Replay, node: Node, before: Sequence[Type | None], inputs: tuple[Symbol | None, ...]
) -> Sequence[Symbol] | None:
    """Return the new results of a node that has an old size inside, None if it has none.

    before: the old types of its operands. Raises `ShapeError` for a node that cannot work with the new sizes.
    """
    if node.domain not in ("", LIBRARY):
        return None
    place = f"{what}: {describe_node(node)}"
    for sizes in _equal_dims(node, inputs):
        numbers, names = [d for d in sizes if d.is_static], [d for d in sizes if d.is_symbolic]
        others = names or [d for d in numbers if d != numbers[0]]
        if numbers and others:
            raise _size_error(place, f"an operand has {numbers[0]} elements where another has {others[0]} now", inputs)
    if node.domain:
        return None
    if node.op_type == "Reshape":
        return _fix_reshape(place, replay, node, before, inputs)
    if node.op_type == "Expand":
        return _fix_expand(place, node, before, inputs)
    if node.op_type == "Concat":
        return _fix_concat(place, replay, node, inputs)
    if node.op_type in _STATES:
        return _fix_states(replay, node, inputs)
    return None


def _size_error(place: str, why: str, inputs: Sequence[Symbol | None]) -> ShapeError:
    return ShapeError(
        f"{place}: {why}",
        operands=labelled_operands(inputs),
        help="replace the node with one for the new sizes first: graph.replace(...)",
    )


def _sizes(symbol: Symbol | None) -> Sizes | None:
    return None if symbol is None else _dims(symbol.type)


def _dims(type_: Type | None) -> Sizes | None:
    """Return the dims of a tensor, None if its rank is unknown."""
    return [*type_.shape] if isinstance(type_, TensorType) and type_.shape.is_ranked else None


# Reshape


def _fix_reshape(
    place: str, replay: Replay, node: Node, before: Sequence[Type | None], inputs: tuple[Symbol | None, ...]
) -> Sequence[Symbol] | None:
    """Return a Reshape to the new sizes of its operand, None if its result has those already.

    Its sizes may be a constant, or computed from constants and sizes of other values: the old result tells which dims
    of the operand are merged or split.
    """
    x, was, result = inputs[0], before[0], replay.type_of(node.outputs[0])
    now, inferred = _sizes(x), _inferred_dims(replay, node, inputs)
    if x is None or now is None or not isinstance(was, TensorType) or not isinstance(result, TensorType):
        return None
    old, out = _known_dims(was), _known_dims(result)
    if node.inputs[0] is not None and node.inputs[0].type == x.type and inferred == _sizes(node.outputs[0]):
        return None
    if old is not None and out is not None and len(old) == len(now) and _product(old) == _product(out) != 0:
        try:
            sizes = _new_sizes(place, old, now, out, inputs)
        except ShapeError:
            if inferred is None or _have_other_counts(now, inferred):
                raise
            return None
        if inferred is not None and all(map(_may_be_equal, inferred, sizes)):
            return None
        return (ops.reshape(x, sizes),)
    target = constant_array(inputs[1], weights=True, outer=True)
    if target is not None and any(n > 0 for n in target.tolist()) and _has_lost_sizes(_dims(was), now):
        return _replace_known_sizes(place, target.tolist(), was, now, inputs)
    if inferred is not None and provably_differ(_product(now), _product(inferred)):
        raise _size_error(
            place, f"its operand has {_product(now)} elements now, and its result {_product(inferred)}", inputs
        )
    return None


def _inferred_dims(replay: Replay, node: Node, inputs: tuple[Symbol | None, ...]) -> Sizes | None:
    """Return the dims of the result of the unchanged node, None if it is invalid or has no known rank."""
    try:
        (type_,) = replay.results(node, inputs)
    except ShapeError:
        return None
    return _dims(type_)


def _known_dims(type_: TensorType) -> Sizes | None:
    """Return the dims of a type, None if some are unknown."""
    return [*type_.shape] if type_.shape.is_ranked and not any(d.is_dynamic for d in type_.shape) else None


def _product(dims: Sequence[Dim]) -> Dim:
    return math.prod(dims, start=Dim(1))


def _may_be_equal(inferred: Dim, new: Dim) -> bool:
    """Return True if an inferred dim may equal the new one; a number for an unknown dim is an old size."""
    return inferred == new or inferred.is_dynamic or (new.is_dynamic and not inferred.is_static)


def _has_lost_sizes(old: Sizes | None, new: Sizes | None) -> bool:
    """Return True if a dim that was a number is another one now."""
    if old is None or new is None or len(old) != len(new):
        return False
    return any(a.is_static and a != b for a, b in zip(old, new, strict=True))


def _have_other_counts(now: Sizes, out: Sizes) -> bool:
    """Return True if an operand and a result of these dims differ in the number of elements for some sizes."""
    count, result = _product(now), _product(out)
    if count.is_dynamic or result.is_dynamic:
        return count.is_dynamic and result.is_static
    names = sorted(count.parameters | result.parameters)
    trials = [{name: first + 2 * i for i, name in enumerate(names)} for first in (3, 4, 7)]
    return any(count.evaluate(sizes) != result.evaluate(sizes) for sizes in trials)


def _replace_known_sizes(
    place: str, target: list[int], was: TensorType, now: Sizes, inputs: Sequence[Symbol | None]
) -> Sequence[Symbol] | None:
    """Return a Reshape whose sizes equal to old dims of the operand become the new dims; other dims are not numbers."""
    x = present(inputs[0])
    new_target: list[Dim | int] = []
    changed = [i for i, (a, b) in enumerate(zip(was.shape, now, strict=True)) if a != b]
    for i, number in enumerate(target):
        is_own = i in changed and was.shape[i].is_static and number == int(was.shape[i])
        new_target.append(now[i] if is_own or (number == 0 and i < len(now)) else number)
        changed = [c for c in changed if not (is_own and c == i)]
    if changed and -1 not in target:
        sizes = ", ".join(f"{was.shape[c]} (now {now[c]})" for c in changed)
        raise _size_error(place, f"its sizes {target} include the old {sizes}, and it is unclear where", inputs)
    return None if new_target == target else (ops.reshape(x, new_target),)


def _new_sizes(place: str, old: Sizes, now: Sizes, out: Sizes, inputs: Sequence[Symbol | None]) -> Sizes:
    """Return the new sizes of a Reshape: runs of dims of equal product correspond."""
    sizes: Sizes = []
    i = j = 0
    while i < len(old) or j < len(out):
        first, second = (old[i] if i < len(old) else Dim(1)), (out[j] if j < len(out) else Dim(1))
        if i < len(old) and j < len(out) and first == second:
            sizes.append(now[i])
            i, j = i + 1, j + 1
            continue
        if i < len(old) and first == 1:
            if now[i] != 1:
                raise _size_error(place, f"it drops a dim of 1 that is {now[i]} now", inputs)
            i += 1
            continue
        if j < len(out) and second == 1:
            sizes.append(Dim(1))
            j += 1
            continue
        ends = ((a, b) for a in range(i + 1, len(old) + 1) for b in range(j + 1, len(out) + 1))
        equal = ((a, b) for a, b in ends if _product(old[i:a]) == _product(out[j:b]))
        a, b = next(equal, (len(old), len(out)))
        sizes += _new_run(place, old[i:a], now[i:a], out[j:b], inputs)
        i, j = a, b
    return sizes


def _new_run(place: str, old: Sizes, now: Sizes, out: Sizes, inputs: Sequence[Symbol | None]) -> Sizes:
    """Return the new sizes of a run of dims that became another run."""
    if old == now:
        return out
    total = _product(now)
    if len(out) == 1:
        return [total]
    candidates = []
    for position, size in enumerate(out):
        others = _product(out[:position] + out[position + 1 :])
        quotient = total // others
        if quotient * others == total and quotient != size:
            candidates.append([*out[:position], quotient, *out[position + 1 :]])
    if len(candidates) != 1:
        was, became = (f"[{', '.join(map(str, dims))}]" for dims in (old, out))
        raise _size_error(
            place,
            f"it reshapes {was} to {became}, {was} has {total} elements now, and it is unclear which size changes",
            inputs,
        )
    return candidates[0]


# Others


def _fix_expand(
    place: str, node: Node, before: Sequence[Type | None], inputs: tuple[Symbol | None, ...]
) -> Sequence[Symbol] | None:
    """Return an Expand to the new size if its sizes include the old size of its operand."""
    target = constant_array(inputs[1], weights=True, outer=True)
    x, was, now = inputs[0], before[0], _sizes(inputs[0])
    if target is None or x is None or now is None or not isinstance(was, TensorType):
        return None
    sizes: list[Dim | int] = target.tolist()
    for back in range(1, min(len(sizes), len(now)) + 1):
        old, new, wanted = was.shape[-back], now[-back], sizes[-back]
        if old == new or wanted == 1:
            continue
        if not old.is_static or wanted != int(old):
            raise _size_error(
                place, f"its sizes {target.tolist()} have {wanted} where its operand has {new} now", inputs
            )
        sizes[-back] = new
    return (ops.broadcast_to(x, sizes),)


def _equal_dims(node: Node, inputs: Sequence[Symbol | None]) -> Iterable[Sizes]:
    """Return groups of dims of operands that must be equal."""
    shapes = [_sizes(s) for s in inputs]
    if node.op_type in _BROADCAST:
        return _aligned_dims([shape for shape in shapes if shape is not None])
    if node.op_type == "Einsum":
        return _einsum_dims(node, inputs)
    x, other, *rest = (*shapes, None, None)
    return (
        []
        if node.domain or x is None or other is None
        else _paired_dims(node.op_type, node.attributes, x, other, *rest)
    )


def _aligned_dims(shapes: Sequence[Sizes]) -> list[Sizes]:
    backs = range(1, max(map(len, shapes), default=0) + 1)
    return [[shape[-back] for shape in shapes if len(shape) >= back and shape[-back] != 1] for back in backs]


def _broadcast_dims(shape: Sizes | None, whole: Sizes) -> list[Sizes]:
    """Return the dims of a shape that is broadcast to another one, each with its counterpart."""
    return [[b, a] for a, b in zip(reversed(shape or []), reversed(whole), strict=False) if a != 1]


def _einsum_dims(node: Node, inputs: Sequence[Symbol | None]) -> Iterable[Sizes]:
    """Return the dims of operands of Einsum that share a letter."""
    named = labelled_operands(inputs)
    text = str(node.attributes["equation"])
    shapes = [_sizes(s) for s in inputs]
    ranked = [shape for shape in shapes if shape is not None]
    if len(ranked) < len(shapes):
        return []
    equation = einsum.spelled(einsum.parse(text, len(shapes), named), [*map(len, ranked)])
    sizes: dict[str, Sizes] = {}
    for labels, shape in zip(equation.inputs, ranked, strict=True):
        for label, dim in zip(labels, shape, strict=False):
            sizes.setdefault(label, []).extend([dim] if dim != 1 else [])
    return sizes.values()


def _paired_dims(
    op_type: str, attributes: Mapping[str, Any], x: Sizes, other: Sizes, third: Sizes | None, *rest: Sizes | None
) -> list[Sizes]:
    """Return the dims of operands that must be equal by the definition of the operator."""
    if op_type == "PRelu":
        return _broadcast_dims(other, x)
    if op_type == "MatMul" and x and other:
        return [[x[-1], other[-2] if len(other) > 1 else other[0]], *_aligned_dims([x[:-2], other[:-2]])]
    if op_type == "Gemm" and len(x) == len(other) == 2:
        rows, depth = x[::-1] if attributes.get("transA") else x
        inner, columns = other[::-1] if attributes.get("transB") else other
        return [[depth, inner], *_broadcast_dims(third, [rows, columns])]
    axis = {"DequantizeLinear": "axis", "QuantizeLinear": "axis", "ReverseSequence": "batch_axis"}.get(op_type)
    at = attributes.get(axis, 1) if axis else len(x)
    is_blocked = bool(attributes.get("block_size"))
    return [[x[at], *other]] if -len(x) <= at < len(x) and len(other) == 1 and other[0] != 1 and not is_blocked else []


def _fix_concat(place: str, replay: Replay, node: Node, inputs: tuple[Symbol | None, ...]) -> Sequence[Symbol] | None:
    """Return a Concat whose other operands are broadcast along a dim that was 1."""
    shapes = [_sizes(s) for s in inputs]
    symbols = [s for s in inputs if s is not None]
    if any(shape is None for shape in shapes) or len({len(shape or ()) for shape in shapes}) != 1:
        return None
    rank = len(shapes[0] or ())
    axis = node.attributes["axis"] % rank
    wanted: Sizes = []
    for at in range(rank):
        sizes = [shape[at] for shape in shapes if shape is not None]
        symbolic = next((d for d in sizes if d.is_symbolic), sizes[0])
        wanted.append(symbolic)
        wrong = [d for d in sizes if at != axis and d.is_static and d != 1 and symbolic.is_symbolic]
        if wrong:
            raise _size_error(place, f"an operand has {wrong[0]} elements where another has {symbolic} now", inputs)
    operands = []
    for symbol in symbols:
        sizes = [
            n if at != axis and d == 1 and n.is_symbolic else d
            for at, (d, n) in enumerate(zip(symbol.shape, wanted, strict=True))
        ]
        operands.append(symbol if sizes == [*symbol.shape] else ops.broadcast_to(symbol, sizes))
    if all(a is b for a, b in zip(operands, symbols, strict=True)):
        return None
    return (ops.concat(operands, axis=axis),)


def _fix_states(replay: Replay, node: Node, inputs: tuple[Symbol | None, ...]) -> Sequence[Symbol] | None:
    """Return a recurrent node whose initial states are broadcast to the new batch size."""
    x = _sizes(inputs[0])
    layout = node.attributes.get("layout", 0)
    if x is None or len(x) != 3 or layout:
        return None
    operands = list(inputs)
    for position in _STATES[node.op_type]:
        state = inputs[position] if position < len(inputs) else None
        sizes = _sizes(state)
        if state is not None and sizes is not None and sizes[1] != x[1] and sizes[1] == 1:
            operands[position] = ops.broadcast_to(state, [sizes[0], x[1], sizes[2]])
    if all(a is b for a, b in zip(operands, inputs, strict=True)):
        return None
    return replay.append(node, operands, replay.results(node, operands), node.attributes)
