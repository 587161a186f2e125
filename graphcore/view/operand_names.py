"""The names of the operands of nodes: ONNX's for its operators, the parameters of functions for calls."""

from __future__ import annotations

import functools
import inspect

from graphcore.build.declare import EXPANSIONS, LIBRARY
from graphcore.ir.definitions import Definition
from graphcore.ir.symbol import Node
from graphcore.onnx.opset import OPSET
from graphcore.onnx.schemas.schemas import operator, schema_of
from graphcore.view.text import short_name


def of(node: Node, definition: Definition | None) -> list[str]:
    """Return a name for each operand of a node; "" where the operator is not known."""
    count = len(node.inputs)
    if definition is not None:
        names = [short_name(s.name) for s in definition.body.input_symbols]
        return [*names[:count], *[""] * (count - len(names))]
    return list(_named(node.op_type, node.domain, count))


@functools.lru_cache(4096)  # operators that models name may be anything
def _named(op_type: str, domain: str, count: int) -> tuple[str, ...]:
    if domain == LIBRARY:
        return _of_library(op_type, count)
    schema = schema_of(op_type, domain, OPSET) if domain in ("", "ai.onnx.ml") else None
    if schema is None:
        return ("",) * count
    inputs = operator(schema).inputs
    names = [parameter.name for parameter in inputs if not parameter.is_variadic]
    if inputs and inputs[-1].is_variadic:
        names += [f"{inputs[-1].name}[{i}]" for i in range(count - len(names))]
    return (*names[:count], *[""] * (count - len(names)))


def _of_library(op_type: str, count: int) -> tuple[str, ...]:
    made = EXPANSIONS.get(op_type)
    if made is None:
        return ("",) * count
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(made).parameters.values() if p.kind in kinds]
    return (*names[:count], *[""] * (count - len(names)))
