"""The versions of operators and of the file format that a file can have: ONNX's own history."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node
from graphcore.ir.transform import walk
from graphcore.onnx.schemas.schemas import Operator, element, operator, schema_of
from graphcore.onnx.versions.table import target
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type

OLDEST_OPSET = 17
"""The oldest opset that files are written at."""

OLDEST: dict[str, int] = {"": OLDEST_OPSET, "ai.onnx.ml": 3}
"""The oldest versions of domains that files are written at: those of one release of ONNX."""

_WITH_BODIES = having(Trait.BODIES)

OLDEST_IR = 8
"""The oldest version of the file format that files are written in: the one of opset 17."""

IR_OF_OPSET: dict[int, int] = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13}
"""The version of the file format that came with each opset. Whatever takes an opset takes that."""

IR_OF_DTYPE: dict[DType, int] = {
    **dict.fromkeys((DType.float8_e4m3fn, DType.float8_e4m3fnuz, DType.float8_e5m2, DType.float8_e5m2fnuz), 9),
    **dict.fromkeys((DType.int4, DType.uint4), 10),
    DType.float4_e2m1: 11,
    DType.float8_e8m0: 12,
    **dict.fromkeys((DType.int2, DType.uint2), 13),
}
"""The version of the file format that brought a dtype; the others are older than the oldest that is written."""


@functools.cache
def versions(op_type: str, domain: str = "") -> tuple[Operator, ...]:
    """Return the versions of an operator that files can have, newest first; none of an operator that ONNX lacks."""
    found: list[Operator] = []
    version = target(domain) if domain in OLDEST else 0
    while version > 0:
        schema = schema_of(op_type, domain, version)
        if schema is None:
            break
        if not schema.deprecated:
            found.append(operator(schema))
        if schema.since_version <= OLDEST[domain]:
            break
        version = schema.since_version - 1
    return tuple(found)


@functools.cache
def changes(op_type: str, domain: str = "") -> tuple[tuple[Operator, Operator | None], ...]:
    """Return the versions of an operator that files can have, newest first, each with the one before it."""
    known = versions(op_type, domain)
    return tuple(zip(known, (*known[1:], None), strict=True)) if known else ()


def is_recent(op_type: str, domain: str = "") -> bool:
    """Return whether an operator changed, or came, after the oldest version that files can have."""
    known = versions(op_type, domain)
    return bool(known) and known[0].version > OLDEST[domain]


def takes_types(version: Operator, node: Node) -> bool:
    """Return whether a version of an operator takes the types of a node's operands and results.

    Operands that it does not have are not looked at: what brought them has a row in `downgrade`.
    """
    key = (version.name, version.version, *[None if s is None else s.type for s in node.inputs])
    key += tuple([s.type for s in node.outputs])
    found = _taken.get(key)
    if found is None:
        if len(_taken) > _MOST:
            _taken.clear()
        found = _taken[key] = _takes_types(version, node)
    return found


_taken: dict[tuple[object, ...], bool] = {}
_MOST = 1 << 14


def _takes_types(version: Operator, node: Node) -> bool:
    given = [(version.input(i), s.type) for i, s in enumerate(node.inputs) if s is not None]
    given += [(version.output(i), s.type) for i, s in enumerate(node.outputs)]
    return all(
        parameter is None
        or not parameter.allowed
        or isinstance(type_, ForeignType)
        or element(type_) in parameter.allowed
        for parameter, type_ in given
    )


# The version of the file format


def ir_of(graphs: Iterable[Graph]) -> tuple[int, str]:
    """Return the oldest version of the file format that has all dtypes of graphs, and one of those that need it."""
    types = {symbol.type for graph in graphs for symbol in graph.symbols}
    found = (OLDEST_IR, "")
    for dtype in {dtype.storage for type_ in types for dtype in _dtypes(type_)}:
        found = max(found, (IR_OF_DTYPE.get(dtype, OLDEST_IR), dtype.name))
    return found


def _dtypes(type_: Type) -> Iterator[DType]:
    if isinstance(type_, (SequenceType, OptionalType)):
        yield from _dtypes(type_.element)
    elif isinstance(type_, TensorType):
        yield type_.dtype


def parts(graph: Graph, there: set[tuple[str, str]]) -> list[Graph]:
    """Return a graph, its bodies and the functions that it calls, with theirs. there: its operators."""
    if all(domain in OLDEST and op_type not in _WITH_BODIES for op_type, domain in there):
        return [graph]
    return [*walk.parts(graph)]


def constants_of(graph: Graph) -> set[Type]:
    """Return the types of the constants of a graph, which a function has as nodes."""
    return {s.type for s in graph.symbols if isinstance(s.producer, Constant)}


@functools.cache
def since(op_type: str, result: Type) -> int:
    """Return the oldest version of an operator without operands that gives a type."""
    found = OLDEST_OPSET
    for version in versions(op_type):
        if element(result) not in version.outputs[0].allowed:
            break
        found = max(version.version, OLDEST_OPSET)
    return found
