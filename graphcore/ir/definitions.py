"""Definitions of functions: graphs that nodes of other graphs call, and bodies of If, Loop and Scan.

A call is a node of the domain `FUNCTIONS`. Its attribute "definition" is the Definition, which all calls share, and
"dims" maps the names of dims in the body to the dims of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.errors import ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.names import first_free
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.support.escaping import escaped
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type

FUNCTIONS = "graphcore.functions"
"""The domain of function calls, in graphs and in files."""

Dims: TypeAlias = Mapping[str, Dim]
"""Dims of the caller by the names of dims in the body."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Definition:
    """A function traced for one signature. The inputs of its finished body are the operands, then the weights."""

    name: str
    body: Graph
    domain: str = FUNCTIONS
    """The domain of the function in a file; for the body of a custom operator, the domain of the operator."""
    attributes: tuple[str, ...] = ()
    """The attributes that calls have in a file. The body was traced for their values."""

    def __repr__(self) -> str:
        return escaped(f"<function {self.name}>")

    def __copy__(self) -> Definition:
        return self

    def __deepcopy__(self, memo: object) -> Definition:
        return self


def definition_of(node: Node) -> Definition | None:
    """Return the definition that a node calls; None if the node is not a call."""
    definition = node.attributes.get("definition") if node.domain else None
    return (
        definition if isinstance(definition, Definition) else None
    )  # nodes of imported models may have any attribute of that name


def dims_of(node: Node) -> dict[str, Dim]:
    """Return the dims of a call by the names of dims in the body."""
    return dict(node.attributes["dims"])


def definitions(graph: Graph) -> dict[Definition, str]:
    """Return all definitions that a graph calls with unique names, callees before callers."""
    names: dict[Definition, str] = {}
    _collect(graph, names, set())
    return names


def _collect(graph: Graph, names: dict[Definition, str], taken: set[str]) -> None:
    for node in [node for node in graph._nodes if node.attributes]:
        for value in node.attributes.values():
            if isinstance(value, Graph):
                _collect(value, names, taken)
            elif isinstance(value, Definition) and value not in names:
                _collect(value.body, names, taken)
                names[value] = unlike(value.name, taken)


def unlike(name: str, taken: set[str]) -> str:
    """Return the name, with a number appended if it is taken, and add it to `taken`."""
    unique = first_free(name, taken.__contains__)
    taken.add(unique)
    return unique


# Dims


def names_of(types: Iterable[Type]) -> list[str]:
    """Return the names of dims in types, in the order of their first occurrence."""
    names: dict[str, None] = {}
    for type_ in dict.fromkeys(types):
        for dim in _dims(type_):
            names.update(dict.fromkeys(sorted(dim.parameters)))
    return [*names]


def _dims(type_: Type) -> Iterable[Dim]:
    if isinstance(type_, (SequenceType, OptionalType)):
        return _dims(type_.element)
    return type_.shape if isinstance(type_, TensorType) and type_.shape.is_ranked else ()


def substituted(type_: Type, dims: Dims) -> Type:
    """Return a type with the names of dims substituted simultaneously."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(substituted(type_.element, dims))
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not dims:
        return type_
    return tensor_type(type_.dtype, _shape([dim.substitute(dims) for dim in type_.shape]), type_.ambiguous)


def bound(what: str, labels: Sequence[str], declared: Sequence[Type], types: Sequence[Type]) -> dict[str, Dim]:
    """Return the dims of a call by the names in the declared types. Raises `ShapeError` if the types do not fit."""
    dims: dict[str, Dim] = {}
    for declared_type, type_ in zip(declared, types, strict=True):
        for dim, actual in zip(_dims(declared_type), _dims(type_), strict=False):
            if dim.name is not None:
                dims.setdefault(dim.name, actual)
    for label, declared_type, type_ in zip(labels, declared, types, strict=True):
        expected_type = substituted(declared_type, dims)
        if not isinstance(declared_type, TensorType) or not declared_type.shape.is_ranked:
            continue
        assert isinstance(expected_type, TensorType)
        assert isinstance(type_, TensorType)
        fits = type_.shape.is_ranked and len(expected_type.shape) == len(type_.shape)
        for dim, expected, actual in (
            zip(declared_type.shape, expected_type.shape, type_.shape, strict=False) if fits else ()
        ):
            # An unknown dim cannot be checked against a name that occurs twice.
            fits = fits and (dim.is_dynamic or expected == actual or _is_alone(dim, declared))
        if not fits:
            raise ShapeError(
                f"{what}: operand {label} is declared as {declared_type}",
                operands={label: str(type_)},
                help="pass a tensor of that shape; if only the run can check it, state the dims with .rebind(...)",
            )
    return {**{name: Dim(name) for name in names_of(declared)}, **dims}


def _is_alone(dim: Dim, declared: Sequence[Type]) -> bool:
    """Return True if the name of a dim occurs once in the declared types."""
    return dim.name is not None and sum(dim.name in d.parameters for t in declared for d in _dims(t)) == 1


def with_own(dims: Dims, names: Sequence[str], layer: str) -> dict[str, Dim]:
    """Add fresh dims for names that only the body has, since two calls may differ in them."""
    renamed = {name: re.sub(r"[^\w.:/]", "_", f"{layer}{name}") for name in names}
    return {**dims, **{name: Dim(f"_{new}" if new[0].isdigit() else new) for name, new in renamed.items()}}


# Bodies of If, Loop and Scan: graphs that are built inside another one and use its Symbols.


@contextmanager
def body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Iterator[Graph]:
    """Yield a body under construction: new nodes on Symbols of outer graphs go into it.

    See `new_body`. Nothing can be added after the block. `finish` or `build.outputs` sets the results.

        with body(outer, "then_branch") as then:
            finish(then, [make()])
    """
    new = new_body(outer, name, inputs)
    with building(new):
        yield new


def new_body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Graph:
    """Return an empty body with the promotion system, layer and source lines of its outer graph.

    inputs: types by name, which get underscores until they differ from names of outer graphs, or types without names.
    """
    taken: set[str] = set()
    enclosing: Graph | None = outer if isinstance(inputs, Mapping) else None
    while enclosing is not None:
        taken |= enclosing.names.taken.keys()
        enclosing = enclosing.scope.outer
    named = {}
    for label, type_ in inputs.items() if isinstance(inputs, Mapping) else ():
        while label in taken:
            label += "_"
        named[label] = type_
    new = Graph(name, named, promotion=outer.promotion, strict=outer.strict)
    new.scope.outer = outer
    new.site.layer = outer.site.layer
    if not outer.site.is_user:
        new.site.is_user, new.site.origin = False, outer.site.origin
    for type_ in () if isinstance(inputs, Mapping) else inputs:
        new.build.input(type_)
    return new


def outermost(graph: Graph) -> Graph:
    """Return the outermost graph around a body; the graph itself if it is not a body."""
    while graph.scope.outer is not None:
        graph = graph.scope.outer
    return graph


@contextmanager
def building(body: Graph) -> Iterator[None]:
    """Add new nodes on Symbols of outer graphs to the body, which is finished after the block."""
    outer = present(body.scope.outer)
    assert outer.scope.is_open
    outer.scope.building, body.scope.is_finished = body, False
    try:
        with body:
            yield
    finally:
        outer.scope.building, body.scope.is_finished = None, True


def finish(body: Graph, results: Sequence[Symbol]) -> Graph:
    """Set the outputs of a body under construction, each computed by a node of the body, as ONNX requires."""
    own = body.build.own
    for node in body._nodes:
        if any(s is not None and s.graph is not body for s in node.inputs):
            inputs = tuple([None if s is None else own(s, node.op_type, "an operand") for s in node.inputs])
            change(node, inputs=inputs)
    outputs: list[Symbol] = []
    for result in results:
        is_new = isinstance(result.producer, Node) and not any(result is other for other in outputs)
        outputs.append(result if is_new else body.build.emit("Identity", (result,), result.type))
    body.output(outputs)
    return body
