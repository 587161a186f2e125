"""Checks of a whole model before ONNX's inference, which trusts its input, goes over it.

Names, arity, nesting, and of attributes the kind and the numbers: what can be told from a node alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx

from graphcore.errors import ModelError, ResourceLimitError
from graphcore.onnx.proto.limits import check_text, check_values
from graphcore.onnx.schemas.schemas import Operator, as_meant, check_arity, is_misread, operator, schema_of

DEEPEST = 40
"""The greatest depth of nested bodies and calls of functions."""

Versions = Mapping[str, int]

_Kinds = onnx.AttributeProto
_MESSAGES = {_Kinds.GRAPH: "g", _Kinds.TENSOR: "t", _Kinds.SPARSE_TENSOR: "sparse_tensor", _Kinds.TYPE_PROTO: "tp"}
_READ: dict[int, Callable[[onnx.AttributeProto], Any]] = {
    _Kinds.INT: lambda a: a.i,
    _Kinds.INTS: lambda a: list(a.ints),
    _Kinds.STRING: lambda a: a.s,
}

_SHOWN = 100
"""Characters of a name that errors show."""


def check_model(model: onnx.ModelProto, versions: Versions) -> None:
    """Raise `ModelError` for a node that its operator's schema rules out, `ResourceLimitError` for deep nesting."""
    _check_graph(model.graph, versions, False, 0)
    seen: set[tuple[str, str, str]] = set()
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        check_text((*key, *function.input, *function.output, *function.attribute), "a function")
        if key in seen:
            raise ModelError(f"load: two functions are called {function.name[:_SHOWN]!r}", help="name them otherwise")
        seen.add(key)
        own = {**versions, **{_domain(o.domain): o.version for o in function.opset_import}}
        _check_nodes(function.node, own, True, 0)


def _check_graph(graph: onnx.GraphProto, versions: Versions, in_function: bool, depth: int) -> None:
    if depth > DEEPEST:
        raise ResourceLimitError(f"load: the model nests bodies deeper than {DEEPEST}", help="flatten it")
    for what, names in (
        ("an input", [v.name for v in graph.input]),
        ("an output", [v.name for v in graph.output]),
        ("a constant", [t.name for t in graph.initializer]),
        ("a constant", [s.values.name for s in graph.sparse_initializer]),
        ("the graph", [graph.name or "graph"]),
    ):
        check_text(names, what)
        if "" in names:
            raise ModelError(f"load: {what} has no name", help="write the model again")
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ModelError(f"load: {what} is called {twice[:_SHOWN]!r}, and another too", help="name it otherwise")
    _check_nodes(graph.node, versions, in_function, depth)


def _check_nodes(nodes: Iterable[onnx.NodeProto], versions: Versions, in_function: bool, depth: int) -> None:
    for node in nodes:
        check_text((node.op_type, node.name, node.domain, node.overload, *node.input, *node.output), "a node")
        place = f"{node.op_type[:_SHOWN]} {(node.name or next(iter(node.output), ''))[:_SHOWN]!r}"
        if not node.op_type:
            raise ModelError(f"load: the node {place.strip()} names no operator", help="write the model again")
        if not any(node.output):
            raise ModelError(f"load: {place} gives no results", help="leave the node out")
        check_node(node, versions, place, in_function)
        for attribute in node.attribute:
            if attribute.type == _Kinds.GRAPH and not attribute.ref_attr_name:
                _check_graph(attribute.g, versions, in_function, depth + 1)


def check_node(node: onnx.NodeProto, versions: Versions, place: str, in_function: bool = False) -> None:
    """Raise `ModelError` where the number of operands or results or an attribute is not what the schema says."""
    domain = _domain(node.domain)
    schema = schema_of(node.op_type, domain, versions.get(domain, 1))
    if schema is None:
        return
    op, kinds = operator(schema), _kinds(node.op_type, domain, schema.since_version)
    results = len(node.output)
    while results and not node.output[results - 1]:
        results -= 1
    if not op.fewest_results <= results <= op.most_results:
        raise ModelError(
            f"load: {place} has {results} results, and {_count(op)} are given", help="write the model again"
        )
    check_arity(op, [bool(name) for name in node.input], place)  # inference reads one that is missing all the same
    said: dict[str, Any] = {}
    for attribute in node.attribute:
        _check_attribute(attribute, kinds, place, in_function)
        if attribute.type in _READ and not attribute.ref_attr_name:
            said[attribute.name] = _READ[attribute.type](attribute)
    if said:
        check_values(node.op_type, said, place)
        if node.op_type == "Split" and said.get("num_outputs", results) < results:
            raise ModelError(
                f"load: {place} has {results} results and num_outputs={said['num_outputs']}",
                help="write the model again",
            )


def _check_attribute(attribute: onnx.AttributeProto, kinds: Mapping[str, int], place: str, in_function: bool) -> None:
    name = attribute.name
    check_text((name, attribute.ref_attr_name), place)
    kind = kinds.get(name)
    if kind is None:
        if name.startswith("__"):  # onnxruntime's own notes
            return
        raise ModelError(
            f"load: {place} has no attribute {name[:_SHOWN]!r}; its attributes: {', '.join(kinds) or 'none'}",
            help="leave it out, or write the model with the opset that has it",
        )
    if attribute.type != kind:
        raise ModelError(
            f"load: {place}: attribute {name!r} is of kind {_kind_name(attribute.type)}, "
            f"and {_kind_name(kind)} is taken",
            help="write the model again",
        )
    if attribute.ref_attr_name:
        if not in_function:
            raise ModelError(
                f"load: {place}: attribute {name!r} refers to one of a function, and is in none",
                help="write the model again",
            )
        return
    field = _MESSAGES.get(attribute.type)
    if field is not None and not attribute.HasField(field):
        raise ModelError(f"load: {place}: attribute {name!r} is empty", help="write the model again")
    if field == "t" and not attribute.t.data_type:
        raise ModelError(f"load: {place}: attribute {name!r} is a tensor of no dtype", help="write the model again")


@functools.cache
def _kinds(op_type: str, domain: str, version: int) -> dict[str, int]:
    """The kind of each attribute that a schema knows."""
    schema = onnx.defs.get_schema(op_type, version, domain)
    attributes: Mapping[str, Any] = schema.attributes
    return {name: int(a.type) for name, a in attributes.items()}


def _kind_name(kind: int) -> str:
    return str(_Kinds.AttributeType.Name(kind)) if kind in _Kinds.AttributeType.values() else f"{kind}, which is none"


def _count(op: Operator) -> str:
    if op.most_results > 1 << 30:
        return f"at least {op.fewest_results}"
    if op.fewest_results == op.most_results:
        return str(op.fewest_results)
    return f"{op.fewest_results} to {op.most_results}"


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


_ENDING = frozenset({"DictVectorizer", "EyeLike", "GatherND", "LabelEncoder", "RegexFullMatch", "TreeEnsemble"})
"""Operators whose inference reads types that its operands may not have, and ends the process. Found by asking for the
inference of every operator on operands of no type, no shape, no rank."""


def survivable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, the operators of `_ENDING` made into ones that inference knows nothing of, and `MISREAD` put right."""
    graphs = [model.graph.node, *(f.node for f in model.functions)]
    if not any(_ends(nodes) for nodes in graphs):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.add(domain=_UNKNOWN, version=1)
    for function in made.functions:
        function.opset_import.add(domain=_UNKNOWN, version=1)
        _hide(function.node)
    _hide(made.graph.node)
    return made


_UNKNOWN = "graphcore.unknown"


def _ends(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(
        node.op_type in _ENDING
        or is_misread(node)
        or any(a.type == _Kinds.GRAPH and _ends(a.g.node) for a in node.attribute)
        for node in nodes
    )


def _hide(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        if node.op_type in _ENDING:
            node.domain = _UNKNOWN
        elif is_misread(node):
            node.CopyFrom(as_meant(node))
        for attribute in node.attribute:
            if attribute.type == _Kinds.GRAPH:
                _hide(attribute.g.node)


def checked_call(function: onnx.FunctionProto, node: onnx.NodeProto, place: str) -> None:
    """Raise `ModelError` for a call that gives a function more than it takes, or wants more than it gives."""
    for what, given, taken in (
        ("operands", node.input, function.input),
        ("results", node.output, function.output),
    ):
        if len(given) > len(taken):
            raise ModelError(
                f"load: {place} has {len(given)} {what}, and the function {len(taken)}", help="write the model again"
            )
    kinds = references(function.node)
    for attribute in node.attribute:
        wanted = kinds.get(attribute.name)
        if wanted is not None and wanted != attribute.type:
            raise ModelError(
                f"load: {place}: attribute {attribute.name[:_SHOWN]!r} is of kind {_kind_name(attribute.type)}, and "
                f"{_kind_name(wanted)} is taken",
                help="write the model again",
            )


def references(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """The attributes of a function that its nodes refer to, and of what kind they are."""
    found: dict[str, int] = {}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                found.setdefault(attribute.ref_attr_name, attribute.type)
            elif attribute.type == _Kinds.GRAPH:
                found.update(references(attribute.g.node))
    return found
