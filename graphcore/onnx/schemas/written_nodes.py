"""The last check of what is written: every node's operands and results are of dtypes that its operator has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

import onnx

from graphcore.errors import ExportError
from graphcore.ir.definitions import definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.onnx.opset import ONNX_DOMAINS
from graphcore.onnx.schemas.catalogue import types
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import Operator, Parameter, element, operator, schema_of
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type


def check(parts: Iterable[Graph], versions: Mapping[str, int]) -> None:
    """Raise `ExportError` for a node with an operand or a result of a dtype that its operator does not have.

    parts: lowered graphs. versions: of the domains that the file is written in. ONNX's schemas say what its operators
    take, the installed runtime's what others do; operators that neither knows are not checked.
    """
    for part in parts:
        # One node of each kind: operands and results of the same types, which are interned.
        kinds = {
            (n.op_type, n.domain, len(n.inputs), *[s if s is None else s.type for s in (*n.inputs, *n.outputs)]): n
            for n in part.nodes
        }
        for node in kinds.values():
            _check(node, versions)


def _check(node: Node, versions: Mapping[str, int]) -> None:
    if definition_of(node) is not None:
        return
    known = _operator(node, versions)
    if known is None:
        return
    bound: dict[str, tuple[str, str, Type]] = {}
    given = [(known.input(i), s) for i, s in enumerate(node.inputs)]
    for parameter, symbol in [*given, *((known.output(i), s) for i, s in enumerate(node.outputs))]:
        if symbol is None or parameter is None or not _is_told(symbol.type):
            continue
        found = element(symbol.type)
        if parameter.allowed and found not in parameter.allowed and not _is_newer(node, parameter, found):
            taken = textwrap.shorten(types(parameter.allowed), 200)
            raise _refused(node, known, f"{parameter.name} is {_shown(symbol.type)}, and it has {taken}")
        if parameter.is_variadic and not parameter.is_homogeneous:
            continue
        first = bound.setdefault(parameter.type, (found, parameter.name, symbol.type))
        if first[0] != found and _is_variable(parameter):
            mixed = f"{first[1]} is {_shown(first[2])} and {parameter.name} {_shown(symbol.type)}"
            raise _refused(node, known, f"{mixed}, which are of one dtype")


def _operator(node: Node, versions: Mapping[str, int]) -> Operator | None:
    version = versions.get(node.domain, 1)
    if node.domain in ONNX_DOMAINS:
        schema = schema_of(node.op_type, node.domain, version)
        return None if schema is None else operator(schema)
    runtime = installed()
    return None if runtime is None else runtime.operator(node.domain, node.op_type, version)


def _is_newer(node: Node, parameter: Parameter, found: str) -> bool:
    """Return whether a newer version of one of ONNX's operators has a dtype, as Optional has float8 from opset 28 on.

    Lowering writes it at the newest opset that files have: that one may be older.
    """
    if node.domain not in ONNX_DOMAINS:
        return False
    newest = operator(onnx.defs.get_schema(node.op_type, domain=node.domain))
    return any(p.name == parameter.name and found in p.allowed for p in (*newest.inputs, *newest.outputs))


def _is_told(type_: Type) -> bool:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return not isinstance(type_, ForeignType)


def _is_variable(parameter: Parameter) -> bool:
    return parameter.allowed != frozenset({parameter.type})


def _shown(type_: Type) -> str:
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _refused(node: Node, known: Operator, why: str) -> ExportError:
    shown: dict[str, object] = {}
    for i, symbol in enumerate(node.inputs):
        parameter = known.input(i)
        if symbol is not None:
            shown[f"input {i}" if parameter is None else parameter.name] = symbol
    for i, symbol in enumerate(node.outputs):
        parameter = known.output(i)
        shown[f"output {i}" if parameter is None else parameter.name] = symbol
    label = f"{node.domain}::{known.name}" if node.domain else known.name
    at = f", made at {node.line}" if node.line is not None else ""
    return ExportError(
        f"export: {label} {node.outputs[0].name!r}{at}: {why}",
        operands=shown,
        help="cast the operand before the node, or give the node the out_types that the operator has",
    )
