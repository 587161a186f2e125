"""Check a whole model before ONNX's inference, which trusts its input.

These checks need only one node: names, numbers of operands, nesting, kinds and ranges of attributes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import USUAL, Limits
from graphcore.errors import ResourceLimitError
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx.proto.limits import MAX_NAME_LENGTH, check_text, check_values, has_limits, invalid
from graphcore.onnx.proto.opened import domain_of
from graphcore.onnx.proto.tensors import all_nodes
from graphcore.onnx.read.statements import BodyStatements, Statement, key_of, remember, signatures
from graphcore.onnx.schemas.schemas import check_arity, count_text, operator, schema_of
from graphcore.types.tensor_types import TensorType, Type

Versions = Mapping[str, int]

_Kinds = onnx.AttributeProto
_MESSAGES = {_Kinds.GRAPH: "g", _Kinds.TENSOR: "t", _Kinds.SPARSE_TENSOR: "sparse_tensor", _Kinds.TYPE_PROTO: "tp"}
_READ: dict[int, Callable[[onnx.AttributeProto], Any]] = {
    _Kinds.INT: lambda a: a.i,
    _Kinds.INTS: lambda a: list(a.ints),
    _Kinds.STRING: lambda a: a.s,
}

_MAX_DIMS_IN_ERRORS = 64
"""Dims that are shown in errors."""

_UNKNOWN_DIM = -1
"""PaddlePaddle writes this for an unknown dim, also in files that are in use."""


@dataclass(slots=True)
class CheckedModel:
    """A model with checked nodes.

    statements: its nodes. count: the number of nodes, with those in bodies, without those of functions. functions: the
    domains and names of the model's functions.
    """

    limits: Limits = USUAL
    functions: Set[tuple[str, str]] = frozenset()
    statements: list[Statement] = field(default_factory=list)
    count: int = 0


def check_model(model: onnx.ModelProto, versions: Versions, limits: Limits = USUAL) -> CheckedModel:
    """Return the checked nodes of a model.

    Raises `ModelError` for a node that its operator's schema does not allow, `ResourceLimitError` for deep nesting.
    """
    if not 0 <= model.ir_version <= onnx.IR_VERSION:
        raise invalid(
            f"the model has IR version {model.ir_version}, but only 0 to {onnx.IR_VERSION} can be read",
            help="install a newer onnx, or export the model again",
        )
    result = CheckedModel(limits, {(domain_of(f.domain), f.name) for f in model.functions})
    result.statements = _check_graph(model.graph, versions, False, 0, result)
    result.count = sum(map(_count_nodes, result.statements))
    seen: set[tuple[str, str, str]] = set()
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        check_text((*key, *function.input, *function.output, *function.attribute), "a function")
        if key in seen:
            raise invalid(f"two functions are called {function.name[:MAX_NAME_LENGTH]!r}", help="rename one of them")
        seen.add(key)
        function_versions = {**versions, **{domain_of(o.domain): o.version for o in function.opset_import}}
        check_nodes(function.node, function_versions, result, in_function=True)
    return result


def _count_nodes(statement: Statement) -> int:
    if not statement.bodies:
        return 1
    return 1 + sum(_count_nodes(inner) for body in statement.bodies.values() for inner in body.statements)


def _check_graph(
    graph: onnx.GraphProto, versions: Versions, in_function: bool, depth: int, into: CheckedModel
) -> list[Statement]:
    into.limits.check("depth", depth, f"the model nests bodies {depth} deep")
    for what, names in (
        ("an input", [v.name for v in graph.input]),
        ("an output", [v.name for v in graph.output]),
        ("a constant", [t.name for t in graph.initializer]),
        ("a constant", [s.values.name for s in graph.sparse_initializer]),
        ("the graph", [graph.name or "graph"]),
    ):
        check_text(names, what)
        if "" in names:
            raise invalid(f"{what} has no name")
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise invalid(
                f"{what} has the same name as another one: {twice[:MAX_NAME_LENGTH]!r}", help="rename one of them"
            )
    for sparse in graph.sparse_initializer:
        _check_dense(sparse, into)
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if any(dim.dim_value < _UNKNOWN_DIM for dim in dims):
            raise invalid(
                f"{value.name[:MAX_NAME_LENGTH]!r} has negative dims: "
                f"{[dim.dim_value for dim in dims][:_MAX_DIMS_IN_ERRORS]}",
                help="export the model again without negative dims",
            )
    return check_nodes(graph.node, versions, into, in_function=in_function, depth=depth)


def _check_dense(tensor: onnx.SparseTensorProto, into: CheckedModel) -> None:
    count = math.prod(tensor.dims)
    into.limits.check("elements", count, f"a sparse tensor has {count} elements")


def check_nodes(
    nodes: Iterable[onnx.NodeProto],
    versions: Versions,
    into: CheckedModel,
    *,
    in_function: bool = False,
    depth: int = 0,
) -> list[Statement]:
    """Check nodes and those of their bodies, and return their statements."""
    statements = []
    is_strict = into.limits.strict is not None
    for node in nodes:
        op_type, name, node_domain = node.op_type, node.name, node.domain
        inputs, outputs = tuple(node.input), tuple(node.output)
        try:  # a tenth of the time of checking each
            "".join((op_type, name, node_domain, node.overload, *inputs, *outputs))
        except TypeError:
            check_text((op_type, name, node_domain, node.overload, *inputs, *outputs), "a node")
        if not op_type:
            raise invalid(f"the node {place_of(node).strip()} has no operator type")
        domain = domain_of(node_domain) if node_domain else ""
        version = versions.get(domain)
        key = key_of(node, domain, version, inputs, outputs)
        statement = Statement(node, op_type, domain, inputs, outputs, name, key, True)
        statements.append(statement)
        if is_strict and (domain, op_type) not in into.functions:
            into.limits.check_operator(domain, op_type, statement)
        if key is not None and key in signatures:
            continue
        place = place_of(node)
        if not any(outputs):
            raise invalid(f"{place} has no results", help="remove the node")
        if not _is_constant(statement) or not version:
            check_node(node, versions, place, in_function)
        if key is not None:
            remember(key, None)
            continue
        for attribute in node.attribute:
            if attribute.type == _Kinds.SPARSE_TENSOR:
                _check_dense(attribute.sparse_tensor, into)
            if attribute.type == _Kinds.GRAPH and not attribute.ref_attr_name:
                inner = _check_graph(attribute.g, versions, in_function, depth + 1, into)
                statement.bodies = statement.bodies or {}
                statement.bodies[attribute.name] = BodyStatements(attribute.g, inner)
    return statements


def place_of(node: onnx.NodeProto) -> str:
    """Return the place of a node for errors."""
    return f"{node.op_type[:MAX_NAME_LENGTH]} {(node.name or next(iter(node.output), ''))[:MAX_NAME_LENGTH]!r}"


def _is_constant(node: Statement) -> bool:
    """Return True if a node is a Constant with one tensor: some models store their weights so."""
    if node.op_type != "Constant" or node.domain or node.inputs or len(node.outputs) != 1:
        return False
    if len(node.proto.attribute) != 1:
        return False
    attribute = node.proto.attribute[0]
    if attribute.name != "value" or attribute.type != _Kinds.TENSOR or attribute.ref_attr_name:
        return False
    return attribute.HasField("t") and bool(attribute.t.data_type)


def check_node(node: onnx.NodeProto, versions: Versions, place: str, in_function: bool = False) -> None:
    """Raise `ModelError` for a wrong number of operands or results, or a wrong attribute, by the schema."""
    domain = domain_of(node.domain)
    schema = schema_of(node.op_type, domain, versions.get(domain, 1))
    if schema is None:
        return
    op, kinds = operator(schema), _kinds(node.op_type, domain, schema.since_version)
    results = len(node.output)
    while results and not node.output[results - 1]:
        results -= 1
    if results < op.min_outputs or len(node.output) > op.max_outputs:
        needed = count_text(op.min_outputs, op.max_outputs)
        raise invalid(f"{place} has {len(node.output)} results, but needs {needed}")
    check_arity(op, [bool(name) for name in node.input], place)  # inference reads missing ones, too
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        _check_attribute(attribute, kinds, place, in_function)
        if attribute.type in _READ and not attribute.ref_attr_name and has_limits(node.op_type, attribute.name):
            attributes[attribute.name] = _READ[attribute.type](attribute)
    if node.op_type in OPERATORS:
        check_trees(node.attribute, place)
    if attributes:
        check_values(node.op_type, attributes, place)
        # ONNX's inference aborts the process for more results, even unnamed ones.
        if node.op_type == "Split" and attributes.get("num_outputs", len(node.output)) < len(node.output):
            raise invalid(f"{place} has {len(node.output)} results, but num_outputs={attributes['num_outputs']}")


def check_declared(symbol: Symbol, declared: Type, name: str) -> None:
    """Raise `ModelError` for an output of a tree ensemble that is declared with another dtype."""
    node = symbol.producer
    if not isinstance(node, Node) or node.op_type not in OPERATORS or node.domain != "ai.onnx.ml":
        return
    if isinstance(declared, TensorType) and isinstance(symbol.type, TensorType) and declared.dtype is not symbol.dtype:
        raise invalid(
            f"the output {name[:MAX_NAME_LENGTH]!r} is declared as {declared.dtype}, but {node.op_type} returns "
            f"{symbol.dtype}",
            operands={"output": symbol},
            help=f"declare it as {symbol.dtype}, or add a Cast to {declared.dtype} after the node",
        )


def check_declared_default(declared: Type, default: TensorType, name: str) -> None:
    """Raise `ModelError` for an input whose default has another dtype, rank or size than it declares."""
    dims = declared.shape if isinstance(declared, TensorType) and declared.shape.is_ranked else default.shape
    pairs = zip(dims, default.shape, strict=False)
    fits = len(dims) == len(default.shape) and all(not d.is_static or d is n for d, n in pairs)
    if not fits or not isinstance(declared, TensorType) or declared.dtype is not default.dtype:
        raise invalid(
            f"the input {name[:MAX_NAME_LENGTH]!r} is declared as {declared}, but its default is {default}",
            help="export the model again with one type for both",
        )


def _check_attribute(attribute: onnx.AttributeProto, kinds: Mapping[str, int], place: str, in_function: bool) -> None:
    name = attribute.name
    check_text((name, attribute.ref_attr_name), place)
    kind = kinds.get(name)
    if kind is None:
        if name.startswith("__"):  # onnxruntime's own attributes
            return
        raise invalid(
            f"{place} has no attribute {name[:MAX_NAME_LENGTH]!r}; its attributes: {', '.join(kinds) or 'none'}",
            help="remove it, or export the model with an opset that has it",
        )
    if attribute.type != kind:
        raise invalid(
            f"{place}: attribute {name!r} has kind {_kind_name(attribute.type)}, but must have kind {_kind_name(kind)}"
        )
    if attribute.ref_attr_name:
        if not in_function:
            raise invalid(f"{place}: attribute {name!r} refers to a function's attribute, but is not in a function")
        return
    field = _MESSAGES.get(attribute.type)
    if field is not None and not attribute.HasField(field):
        raise invalid(f"{place}: attribute {name!r} is empty")
    if field == "t" and not attribute.t.data_type:
        raise invalid(f"{place}: attribute {name!r} is a tensor without dtype")


@functools.cache
def _kinds(op_type: str, domain: str, version: int) -> dict[str, int]:
    """Return the kind of each attribute of a schema."""
    schema = onnx.defs.get_schema(op_type, version, domain)
    attributes: Mapping[str, Any] = schema.attributes
    return {name: int(a.type) for name, a in attributes.items()}


def _kind_name(kind: int) -> str:
    return str(_Kinds.AttributeType.Name(kind)) if kind in _Kinds.AttributeType.values() else f"{kind} (unknown)"


def check_call(function: onnx.FunctionProto, node: onnx.NodeProto) -> None:
    """Raise `ModelError` for a call with more operands or results than the function, or wrong kinds of attributes."""
    place = place_of(node)
    for what, actual, formal in (
        ("operands", node.input, function.input),
        ("results", node.output, function.output),
    ):
        if len(actual) > len(formal):
            raise invalid(f"{place} has {len(actual)} {what}, but the function has {len(formal)}")
    kinds = references(function.node)
    for attribute in node.attribute:
        expected = kinds.get(attribute.name)
        if expected is not None and expected != attribute.type:
            raise invalid(
                f"{place}: attribute {attribute.name[:MAX_NAME_LENGTH]!r} has kind "
                f"{_kind_name(attribute.type)}, but must have kind {_kind_name(expected)}"
            )


def references(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """Return the attributes of a function that its nodes refer to, with their kinds."""
    attributes = [attribute for node in all_nodes(nodes) for attribute in node.attribute]
    return {attribute.ref_attr_name: attribute.type for attribute in attributes if attribute.ref_attr_name}


# Checks of the trees of `ai.onnx.ml`: kernels follow them from a root until they reach a leaf.

OPERATORS = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
MAX_DEPTH = 4096
"""The maximum depth of a tree, since the runtime sorts its nodes by a recursive function."""

_LEAF = b"LEAF"
_NUMBERS = frozenset(
    """class_ids class_nodeids class_treeids target_ids target_nodeids target_treeids nodes_featureids
    nodes_nodeids nodes_treeids""".split()
)
_CHILDREN = frozenset({"nodes_falsenodeids", "nodes_truenodeids"})
_NAMES = _CHILDREN | {"nodes_modes", "nodes_nodeids", "nodes_treeids"}


def check_trees(attributes: Sequence[onnx.AttributeProto], place: object) -> None:
    """Raise `ModelError` for invalid node numbers and for cycles in trees, in which a kernel would never end."""
    by_name: Mapping[str, Any] = {a.name: a for a in attributes}
    _check_labels(by_name, place)
    lists = {name: np.array(by_name[name].ints, np.int64) for name in (_NUMBERS | _CHILDREN) & by_name.keys()}
    for name in _NUMBERS & lists.keys():
        if not _are_numbers(lists[name]):
            raise invalid(f"{place}: {name} must be in 0 to 2^31 - 1")
    if not by_name.keys() >= _NAMES:
        return
    modes = by_name["nodes_modes"].strings
    is_inner = np.fromiter(map(_LEAF.__ne__, modes), bool, len(modes))
    numbered = (lists[f"nodes_{of}ids"] for of in ("tree", "node", "truenode", "falsenode"))
    columns = is_inner, *numbered
    count = min(map(len, columns))
    is_inner, trees, ids, *children = (column[:count] for column in columns)
    if not all(_are_numbers(numbers[is_inner]) for numbers in children):  # kernels read 32 bits of them
        raise invalid(f"{place}: node ids of its trees must be in 0 to 2^31 - 1")
    depth = _depth(trees << 32 | ids, [np.where(is_inner, trees << 32 | numbers, -1) for numbers in children])
    if depth is None:
        raise invalid(f"{place}: its trees have a cycle")
    if depth > MAX_DEPTH:
        raise ResourceLimitError(
            f"load: {place}: its trees are more than {MAX_DEPTH} nodes deep",
            help="limit the depth of the trees when they are trained",
        )


def _check_labels(by_name: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for labels of two kinds, and for a single string, since kernels read a second one."""
    empty = onnx.AttributeProto()
    labels = by_name.get("classlabels_strings", empty).strings
    if labels and by_name.get("classlabels_int64s", empty).ints:
        raise invalid(f"{place}: its labels must be all strings or all integers", help="use labels of one kind")
    if len(labels) == 1:
        raise invalid(f"{place}: it has only one label, a string", help="give one label for each class")


def _are_numbers(numbers: Array) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < 1 << 31)


def _depth(nodes: Array, children: Sequence[Array]) -> int | None:
    """Return the number of nodes on the longest path, measured up to `MAX_DEPTH`; None if there is a cycle.

    nodes: their numbers. children: the numbers of the children of each node.
    """
    order = np.argsort(nodes, kind="stable")
    numbered = nodes[order]
    is_last = np.append(numbered[1:] != numbered[:-1], np.ones(min(1, numbered.size), bool))
    order, numbered = order[is_last], numbered[is_last]  # kernels keep one node of each number
    columns = []
    for numbers in children:
        targets = numbers[order]
        place = np.minimum(np.searchsorted(numbered, targets), numbered.size - 1)
        columns.append(np.where(numbered[place] == targets, place, -1))
    ways = np.stack(columns, 1)
    waiting = np.bincount(ways[ways >= 0], minlength=numbered.size)
    free, seen, depth = np.flatnonzero(waiting == 0), 0, 0
    place_in = np.empty_like(waiting)
    while free.size and depth <= MAX_DEPTH:
        seen, depth = seen + free.size, depth + 1
        below = ways[free].ravel()
        below = below[below >= 0]
        np.subtract.at(waiting, below, 1)
        free = below[waiting[below] == 0]
        places = np.arange(free.size)
        place_in[free] = places
        free = free[place_in[free] == places]  # each once, faster than np.unique
    return depth if seen == numbered.size or depth > MAX_DEPTH else None
