"""Other dims for the inputs of a graph: sizes for names, names for sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.surgery.copying import finish, replica
from graphcore.surgery.replay import Replay
from graphcore.surgery.sizes.old_sizes import mended
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import DimLike, Shape, TensorType, Type, tensor_type

_WHAT = "with_dims"


def with_dims(graph: Graph, shapes: Mapping[str, Sequence[DimLike]], dims: Mapping[str, DimLike]) -> Graph:
    """Return a graph whose inputs have other dims. See `Graph.with_dims`."""
    inputs = {s.name: s for s in graph.input_symbols}
    names = _substitutions(inputs, shapes, dims)
    types: dict[int, Type] = {}
    for label, dims_of_input in shapes.items():
        symbol = inputs[label]
        types[symbol.id] = tensor_type(symbol.dtype, Shape([_dim(d) for d in dims_of_input]), symbol.ambiguous)
    replay = replica(graph, _WHAT, types=types, dims=names)
    _mend(replay)
    return finish(replay)


def _mend(replay: Replay) -> None:
    """Let nodes that have an old size inside be made with the new one, those of bodies and inlined functions too."""
    replay.instead, replay.enter = _mending(replay), _mend


def _dim(value: DimLike) -> Dim:
    return Shape([value])[0]


def _substitutions(
    inputs: Mapping[str, Symbol], shapes: Mapping[str, Sequence[DimLike]], dims: Mapping[str, DimLike]
) -> dict[str, Dim]:
    """Return the dims that stand for names from now on. Raises `GraphError`, `ShapeError` for what cannot be."""
    known = {name for s in inputs.values() for dim in _dims_of(s) for name in dim.parameters}
    found: dict[str, Dim] = {}
    for name, value in dims.items():
        if name not in known:
            shown = ", ".join(f"{label}: {s.type}" for label, s in inputs.items()) or "none"
            raise GraphError(f"{_WHAT}: no input has a dim called {name!r}", help=f"the inputs: {shown}")
        found[name] = _dim(value)
    for label, wanted in shapes.items():
        if label not in inputs:
            raise GraphError(
                f"{_WHAT}: no input is called {label!r}", help=f"the inputs: {', '.join(map(repr, inputs)) or 'none'}"
            )
        symbol = inputs[label]
        if not isinstance(symbol.type, TensorType):
            raise GraphError(f"{_WHAT}: input {label!r} is {symbol.type}, no tensor", operands={label: symbol})
        if isinstance(wanted, str) or (symbol.shape.is_ranked and len(wanted) != len(symbol.shape)):
            raise ShapeError(
                f"{_WHAT}: input {label!r} has {len(symbol.shape)} dims, and {wanted!r} is given",
                operands={label: symbol},
                help="give one int or name for each axis",
            )
        for old, new in zip(symbol.shape, map(_dim, wanted), strict=True) if symbol.shape.is_ranked else ():
            if old.name is None or new.is_dynamic:
                continue
            if found.setdefault(old.name, new) != new:
                raise ShapeError(
                    f"{_WHAT}: dim {old} would be {found[old.name]} and {new}",
                    operands={label: symbol},
                    help="one name is one dim in all inputs: give it one size, or rename it first",
                )
    return found


def _dims_of(symbol: Symbol) -> Iterator[Dim]:
    if isinstance(symbol.type, TensorType) and symbol.type.shape.is_ranked:
        yield from symbol.type.shape


def _mending(replay: Replay) -> Callable[[Node, tuple[Symbol | None, ...]], Sequence[Symbol] | None]:
    """Return what is asked for each node: one that has an old size inside is made with the new one."""
    site = replay.new.site

    def instead(node: Node, inputs: tuple[Symbol | None, ...]) -> Sequence[Symbol] | None:
        before = [None if s is None else replay.type_of(s) for s in node.inputs]
        changed = [
            a is not None and s is not None and _lost_sizes(a, s.type) for a, s in zip(before, inputs, strict=True)
        ]
        # The sizes of a Reshape may change where its operand does not, and the product of other dims than numbers.
        if not any(changed) and node.op_type != "Reshape":
            return None
        place = site.layer, site.origin, site.is_user
        site.layer, site.origin, site.is_user = node.layer, node.origin, False
        try:
            with replay.new:
                return mended(_WHAT, replay, node, before, inputs)
        finally:
            site.layer, site.origin, site.is_user = place

    return instead


def _lost_sizes(old: Type, new: Type) -> bool:
    """Return whether a dim that was a number is another dim now."""
    if not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return False
    if not old.shape.is_ranked or not new.shape.is_ranked or len(old.shape) != len(new.shape):
        return False
    return any(a.is_static and a != b for a, b in zip(old.shape, new.shape, strict=True))
