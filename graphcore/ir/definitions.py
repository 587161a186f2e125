"""Definitions of functions: bodies that many nodes of a graph, and of other bodies, call.

A call is a node of the domain `FUNCTIONS`. Its attribute "definition" is the Definition, one object for all calls, and
"dims" says what the names of dims in its body are called where it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.errors import ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.support.escaping import escaped
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type

FUNCTIONS = "graphcore.functions"
"""The domain of calls, in graphs and in files."""

Dims: TypeAlias = Mapping[str, Dim]
"""The dim that stands for each name."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Definition:
    """A function traced for one signature. The body is finished: its inputs are the operands, then the weights."""

    name: str
    body: Graph
    domain: str = FUNCTIONS
    """Of the function in a file: another one where it says what a declared operator of that domain is made of."""
    attributes: tuple[str, ...] = ()
    """Those that calls of such a function have in a file. Its body was made for their values."""

    def __repr__(self) -> str:
        return escaped(f"<function {self.name}>")

    def __copy__(self) -> Definition:
        return self

    def __deepcopy__(self, memo: object) -> Definition:
        return self


def definition_of(node: Node) -> Definition | None:
    """Return the definition that a node calls; None where it is no call."""
    found = node.attributes.get("definition") if node.domain else None
    return found if isinstance(found, Definition) else None  # a node that was read may have anything there


def dims_of(node: Node) -> dict[str, Dim]:
    """Return the dims that stand for the names in the body that a node calls."""
    return dict(node.attributes["dims"])


def definitions(graph: Graph) -> dict[Definition, str]:
    """All that a graph calls, what is called before its callers, each under a name of its own."""
    found: dict[Definition, str] = {}
    _collect(graph, found, set())
    return found


def _collect(graph: Graph, found: dict[Definition, str], taken: set[str]) -> None:
    for node in [node for node in graph._nodes if node.attributes]:
        for value in node.attributes.values():
            if isinstance(value, Graph):
                _collect(value, found, taken)
            elif isinstance(value, Definition) and value not in found:
                _collect(value.body, found, taken)
                found[value] = unlike(value.name, taken)


def unlike(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is then."""
    made, count = name, 0
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made)
    return made


# Dims


def names_of(types: Iterable[Type]) -> list[str]:
    """The names of dims in types, in the order in which they come first."""
    found: dict[str, None] = {}
    for type_ in types:
        for dim in _dims(type_):
            found.update(dict.fromkeys(sorted(dim.parameters)))
    return [*found]


def _dims(type_: Type) -> Iterable[Dim]:
    if isinstance(type_, (SequenceType, OptionalType)):
        return _dims(type_.element)
    return type_.shape if isinstance(type_, TensorType) and type_.shape.is_ranked else ()


def substituted(type_: Type, dims: Dims) -> Type:
    """A type with names of dims replaced, all at once."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(substituted(type_.element, dims))
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not dims:
        return type_
    return tensor_type(type_.dtype, _shape([dim.substitute(dims) for dim in type_.shape]), type_.ambiguous)


def bound(what: str, labels: Sequence[str], declared: Sequence[Type], given: Sequence[Type]) -> dict[str, Dim]:
    """Return the dims of a call for the names in declared types. Raises `ShapeError` where they do not fit."""
    found: dict[str, Dim] = {}
    for wanted, type_ in zip(declared, given, strict=True):
        for dim, actual in zip(_dims(wanted), _dims(type_), strict=False):
            if dim.name is not None:
                found.setdefault(dim.name, actual)
    for label, wanted, type_ in zip(labels, declared, given, strict=True):
        here = substituted(wanted, found)
        if not isinstance(wanted, TensorType) or not wanted.shape.is_ranked:
            continue
        assert isinstance(here, TensorType)
        assert isinstance(type_, TensorType)
        same = type_.shape.is_ranked and len(here.shape) == len(type_.shape)
        for dim, expected, actual in zip(wanted.shape, here.shape, type_.shape, strict=False) if same else ():
            # A dim that is not known may be the one of the same name or not.
            same = same and (dim.is_dynamic or expected == actual or _is_alone(dim, declared))
        if not same:
            raise ShapeError(
                f"{what}: operand {label} is declared as {wanted}",
                operands={label: str(type_)},
                help="give it that shape; where only the run can tell, say so with .rebind(...)",
            )
    return {**{name: Dim(name) for name in names_of(declared)}, **found}


def _is_alone(dim: Dim, declared: Sequence[Type]) -> bool:
    """Return whether a name occurs once."""
    return dim.name is not None and sum(dim.name in d.parameters for t in declared for d in _dims(t)) == 1


def with_own(dims: Dims, own: Sequence[str], layer: str) -> dict[str, Dim]:
    """The dims of a call, with names for those that the body names itself: two calls need not agree in them."""
    made = {name: re.sub(r"[^\w.:/]", "_", f"{layer}{name}") for name in own}
    return {**dims, **{name: Dim(f"_{new}" if new[0].isdigit() else new) for name, new in made.items()}}


# Bodies of If, Loop and Scan: graphs that are built inside another, and use its Symbols.


@contextmanager
def body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Iterator[Graph]:
    """Yield a body under construction: what is built inside on Symbols of outer graphs goes into it.

    See `new_body`. It is finished at the end; what it gives is said by `finish`, or `build.outputs`.

        with body(outer, "then_branch") as then:
            finish(then, [make()])
    """
    made = new_body(outer, name, inputs)
    with building(made):
        yield made


def new_body(outer: Graph, name: str, inputs: Mapping[str, Type] | Sequence[Type] = ()) -> Graph:
    """Return a body that is not built yet, of the promotion system, the layer and the lines of its outer graph.

    inputs: types by name, which are made unlike those of the outer graphs, or types of inputs without names.
    """
    taken: set[str] = set()
    around: Graph | None = outer if isinstance(inputs, Mapping) else None
    while around is not None:
        taken |= around.names.taken.keys()
        around = around.scope.outer
    named = {}
    for label, type_ in inputs.items() if isinstance(inputs, Mapping) else ():
        while label in taken:
            label += "_"
        named[label] = type_
    made = Graph(name, named, promotion=outer.promotion, strict=outer.strict)
    made.scope.outer = outer
    made.site.layer = outer.site.layer
    if not outer.site.is_user:
        made.site.is_user, made.site.origin = False, outer.site.origin
    for type_ in () if isinstance(inputs, Mapping) else inputs:
        made.build.input(type_)
    return made


def outermost(graph: Graph) -> Graph:
    """Return the graph around all bodies that a graph is in; itself where it is no body."""
    while graph.scope.outer is not None:
        graph = graph.scope.outer
    return graph


@contextmanager
def building(body: Graph) -> Iterator[None]:
    """Let what is built inside on Symbols of outer graphs go into the body, which is finished afterwards."""
    outer = body.scope.outer
    assert outer is not None
    assert outer.scope.is_open
    outer.scope.building, body.scope.is_finished = body, False
    try:
        with body:
            yield
    finally:
        outer.scope.building, body.scope.is_finished = None, True


def finish(body: Graph, results: Sequence[Symbol]) -> Graph:
    """Return the body with its outputs, each made by a node of its own, as ONNX has it. To be called while building."""
    own = body.build.own
    for node in body._nodes:
        if any(s is not None and s.graph is not body for s in node.inputs):
            inputs = tuple([None if s is None else own(s, node.op_type, "an operand") for s in node.inputs])
            change(node, inputs=inputs)
    made: list[Symbol] = []
    for result in results:
        is_new = isinstance(result.producer, Node) and not any(result is other for other in made)
        made.append(result if is_new else body.build.emit("Identity", (result,), result.type))
    body.output(made)
    return body
