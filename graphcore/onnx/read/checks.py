"""Checks of a whole model before ONNX's inference, which trusts its input, goes over it.

Names, arity, nesting, and of attributes the kind and the numbers: what can be told from a node alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import USUAL, Limits
from graphcore.errors import ModelError, ResourceLimitError
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx.proto.limits import check_text, check_values, has_limits
from graphcore.onnx.read.statements import Body, Statement, key_of
from graphcore.onnx.schemas.schemas import Operator, check_arity, operator, schema_of
from graphcore.types.tensor_types import TensorType, Type

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


_MOST_SHOWN = 64
"""Dims that errors show."""

_UNKNOWN_DIM = -1
"""The dim that PaddlePaddle writes for one that is not known, in files that are in use."""


@dataclass(slots=True)
class Checked:
    """A model whose nodes were checked.

    statements: its nodes. count: of its nodes, those in bodies included, those of functions not. limits: that they keep
    to. functions: the domains and names of the model's own.
    """

    limits: Limits = USUAL
    functions: Set[tuple[str, str]] = frozenset()
    statements: list[Statement] = field(default_factory=list)
    count: int = 0


def check_model(model: onnx.ModelProto, versions: Versions, limits: Limits = USUAL) -> Checked:
    """Return the nodes of a model.

    Raises `ModelError` for one that its operator's schema rules out, `ResourceLimitError` for deep nesting.
    """
    if not 0 <= model.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            f"load: the model has the IR version {model.ir_version}, and 0 to {onnx.IR_VERSION} are read",
            help="install a newer onnx, or export the model again",
        )
    made = Checked(limits, {(_domain(f.domain), f.name) for f in model.functions})
    made.statements = _check_graph(model.graph, versions, False, 0, made)
    made.count = sum(map(_size, made.statements))
    seen: set[tuple[str, str, str]] = set()
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        check_text((*key, *function.input, *function.output, *function.attribute), "a function")
        if key in seen:
            raise ModelError(f"load: two functions are called {function.name[:_SHOWN]!r}", help="name them otherwise")
        seen.add(key)
        own = {**versions, **{_domain(o.domain): o.version for o in function.opset_import}}
        checked(function.node, own, made, in_function=True)
    return made


def _size(statement: Statement) -> int:
    if not statement.bodies:
        return 1
    return 1 + sum(_size(inner) for body in statement.bodies.values() for inner in body.statements)


def _check_graph(
    graph: onnx.GraphProto, versions: Versions, in_function: bool, depth: int, into: Checked
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
            raise ModelError(f"load: {what} has no name", help="export the model again")
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ModelError(f"load: {what} is called {twice[:_SHOWN]!r}, and another too", help="name it otherwise")
    for sparse in graph.sparse_initializer:
        _check_dense(sparse, into)
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if any(dim.dim_value < _UNKNOWN_DIM for dim in dims):
            raise ModelError(
                f"load: {value.name[:_SHOWN]!r} has the dims {[dim.dim_value for dim in dims][:_MOST_SHOWN]}",
                help="export the model again: no dim is negative",
            )
    return checked(graph.node, versions, into, in_function=in_function, depth=depth)


def _check_dense(tensor: onnx.SparseTensorProto, into: Checked) -> None:
    count = math.prod(tensor.dims)
    into.limits.check("elements", count, f"a sparse tensor has {count} elements")


def checked(
    nodes: Iterable[onnx.NodeProto], versions: Versions, into: Checked, *, in_function: bool = False, depth: int = 0
) -> list[Statement]:
    """Return nodes and those of their bodies, all of which were checked."""
    made = []
    is_strict = into.limits.strict is not None
    for node in nodes:
        op_type, name, given = node.op_type, node.name, node.domain
        inputs, outputs = tuple(node.input), tuple(node.output)
        try:  # a tenth of the time of looking at each
            "".join((op_type, name, given, node.overload, *inputs, *outputs))
        except TypeError:
            check_text((op_type, name, given, node.overload, *inputs, *outputs), "a node")
        if not op_type:
            place = f"{op_type[:_SHOWN]} {(name or next(iter(outputs), ''))[:_SHOWN]!r}"
            raise ModelError(f"load: the node {place.strip()} names no operator", help="export the model again")
        domain = _domain(given) if given else ""
        version = versions.get(domain)
        key = key_of(node, op_type, domain, version, inputs, outputs)
        statement = Statement(node, op_type, domain, inputs, outputs, name, key, True)
        made.append(statement)
        if is_strict and (domain, op_type) not in into.functions:
            into.limits.check_operator(domain, op_type, statement)
        if key is not None and key in _sound:
            continue
        place = f"{op_type[:_SHOWN]} {(name or next(iter(outputs), ''))[:_SHOWN]!r}"
        if not any(outputs):
            raise ModelError(f"load: {place} gives no results", help="leave the node out")
        if not _is_constant(node, op_type, domain, inputs, outputs, version):
            check_node(node, versions, place, in_function)
        if key is not None:
            if len(_sound) >= _MAX_REMEMBERED:
                _sound.clear()
            _sound.add(key)
            continue
        for attribute in node.attribute:
            if attribute.type == _Kinds.SPARSE_TENSOR:
                _check_dense(attribute.sparse_tensor, into)
            if attribute.type == _Kinds.GRAPH and not attribute.ref_attr_name:
                inner = _check_graph(attribute.g, versions, in_function, depth + 1, into)
                statement.bodies = statement.bodies or {}
                statement.bodies[attribute.name] = Body(attribute.g, inner)
    return made


_sound: set[Hashable] = set()
"""The keys of nodes that were checked."""
_MAX_REMEMBERED = 4096


def _is_constant(
    node: onnx.NodeProto,
    op_type: str,
    domain: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    version: int | None,
) -> bool:
    """Return whether a node is a Constant with one tensor: many of them have weights."""
    if op_type != "Constant" or domain or inputs or len(outputs) != 1 or len(node.attribute) != 1 or not version:
        return False
    attribute = node.attribute[0]
    if attribute.name != "value" or attribute.type != _Kinds.TENSOR or attribute.ref_attr_name:
        return False
    return attribute.HasField("t") and bool(attribute.t.data_type)


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
    if results < op.min_outputs or len(node.output) > op.max_outputs:
        raise ModelError(
            f"load: {place} has {len(node.output)} results, and {_count(op)} are given", help="export the model again"
        )
    check_arity(op, [bool(name) for name in node.input], place)  # inference reads one that is missing all the same
    said: dict[str, Any] = {}
    for attribute in node.attribute:
        _check_attribute(attribute, kinds, place, in_function)
        if attribute.type in _READ and not attribute.ref_attr_name and has_limits(node.op_type, attribute.name):
            said[attribute.name] = _READ[attribute.type](attribute)
    if node.op_type in OPERATORS:
        check_trees(node.attribute, place)
    if said:
        check_values(node.op_type, said, place)
        # ONNX's inference ends the process for results without a name beyond that number too.
        if node.op_type == "Split" and said.get("num_outputs", len(node.output)) < len(node.output):
            raise ModelError(
                f"load: {place} has {len(node.output)} results and num_outputs={said['num_outputs']}",
                help="export the model again",
            )


def check_declared(symbol: Symbol, declared: Type, name: str) -> None:
    """Raise `ModelError` for an output that is declared in another dtype than an ensemble of trees gives."""
    node = symbol.producer
    if not isinstance(node, Node) or node.op_type not in OPERATORS or node.domain != "ai.onnx.ml":
        return
    if isinstance(declared, TensorType) and isinstance(symbol.type, TensorType) and declared.dtype is not symbol.dtype:
        raise ModelError(
            f"load: the output {name[:_SHOWN]!r} is declared as {declared.dtype}, and {node.op_type} gives "
            f"{symbol.dtype}",
            operands={"output": symbol},
            help=f"declare it as {symbol.dtype}, and add a Cast after the node where {declared.dtype} is meant",
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
            help="export the model again",
        )
    if attribute.ref_attr_name:
        if not in_function:
            raise ModelError(
                f"load: {place}: attribute {name!r} refers to one of a function, and is in none",
                help="export the model again",
            )
        return
    field = _MESSAGES.get(attribute.type)
    if field is not None and not attribute.HasField(field):
        raise ModelError(f"load: {place}: attribute {name!r} is empty", help="export the model again")
    if field == "t" and not attribute.t.data_type:
        raise ModelError(f"load: {place}: attribute {name!r} is a tensor of no dtype", help="export the model again")


@functools.cache
def _kinds(op_type: str, domain: str, version: int) -> dict[str, int]:
    """The kind of each attribute that a schema knows."""
    schema = onnx.defs.get_schema(op_type, version, domain)
    attributes: Mapping[str, Any] = schema.attributes
    return {name: int(a.type) for name, a in attributes.items()}


def _kind_name(kind: int) -> str:
    return str(_Kinds.AttributeType.Name(kind)) if kind in _Kinds.AttributeType.values() else f"{kind}, which is none"


def _count(op: Operator) -> str:
    if op.max_outputs > 1 << 30:
        return f"at least {op.min_outputs}"
    if op.min_outputs == op.max_outputs:
        return str(op.min_outputs)
    return f"{op.min_outputs} to {op.max_outputs}"


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def checked_call(function: onnx.FunctionProto, node: onnx.NodeProto, place: str) -> None:
    """Raise `ModelError` for a call that gives a function more than it takes, or wants more than it gives."""
    for what, given, taken in (
        ("operands", node.input, function.input),
        ("results", node.output, function.output),
    ):
        if len(given) > len(taken):
            raise ModelError(
                f"load: {place} has {len(given)} {what}, and the function {len(taken)}", help="export the model again"
            )
    kinds = references(function.node)
    for attribute in node.attribute:
        wanted = kinds.get(attribute.name)
        if wanted is not None and wanted != attribute.type:
            raise ModelError(
                f"load: {place}: attribute {attribute.name[:_SHOWN]!r} is of kind {_kind_name(attribute.type)}, and "
                f"{_kind_name(wanted)} is taken",
                help="export the model again",
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


# Checks of the trees of `ai.onnx.ml`: kernels follow them from a root until they meet a leaf.

OPERATORS = frozenset({"TreeEnsembleClassifier", "TreeEnsembleRegressor"})
DEEPEST = 4096
"""The greatest depth of a tree, whose nodes the runtime puts in order by a function that calls itself."""

_LEAF = b"LEAF"
_TEXTS = ("classlabels_strings",)
_COUNTED = frozenset(
    """class_ids class_nodeids class_treeids target_ids target_nodeids target_treeids nodes_featureids
    nodes_nodeids nodes_treeids""".split()
)
_WAYS = frozenset({"nodes_falsenodeids", "nodes_truenodeids"})
_NAMES = _WAYS | {"nodes_modes", "nodes_nodeids", "nodes_treeids"}


def check_trees(attributes: Sequence[onnx.AttributeProto], place: object) -> None:
    """Raise `ModelError` for numbers of nodes that are none, and for trees in which a way leads from a node back to it,
    which a kernel would never leave."""
    said: Mapping[str, Any] = {a.name: a for a in attributes}
    _check_labels(said, place)
    lists = {name: np.array(said[name].ints, np.int64) for name in (_COUNTED | _WAYS) & said.keys()}
    for name in _COUNTED & lists.keys():
        if not _are_numbers(lists[name]):
            raise ModelError(f"load: {place}: {name} is beyond 0 to 2^31 - 1", help="export the model again")
    if not said.keys() >= _NAMES:
        return
    modes = said["nodes_modes"].strings
    goes_on = np.fromiter(map(_LEAF.__ne__, modes), bool, len(modes))
    numbered = (lists[f"nodes_{of}ids"] for of in ("tree", "node", "truenode", "falsenode"))
    columns = goes_on, *numbered
    count = min(map(len, columns))
    goes_on, trees, ids, *after = (column[:count] for column in columns)
    if not all(_are_numbers(numbers[goes_on]) for numbers in after):  # kernels read 32 bits of them
        raise ModelError(f"load: {place}: its trees have nodes beyond 0 to 2^31 - 1", help="export the model again")
    depth = _depth(trees << 32 | ids, [np.where(goes_on, trees << 32 | numbers, -1) for numbers in after])
    if depth is None:
        raise ModelError(f"load: {place}: its trees have a circle", help="export the model again")
    if depth > DEEPEST:
        raise ResourceLimitError(
            f"load: {place}: its trees are more than {DEEPEST} nodes deep",
            help="limit the depth of the trees when they are trained",
        )


def _check_labels(said: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for labels of two kinds, and for one string alone, where kernels read a second one."""
    labels = [*(said[name].strings for name in _TEXTS if name in said)]
    numbers = [*(said[name].ints for name in ("classlabels_int64s",) if name in said)]
    if any(labels) and any(numbers):
        raise ModelError(f"load: {place}: its labels are strings and integers", help="give labels of one kind")
    if any(len(found) == 1 for found in labels):
        raise ModelError(f"load: {place}: it has one label, a string", help="give a label for each class")


def _are_numbers(numbers: Array) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < 1 << 31)


def _depth(nodes: Array, after: Sequence[Array]) -> int | None:
    """Return the number of nodes on the longest way; None where one leads from a node back to it.

    nodes: their numbers. after: the numbers of those that each leads to. One beyond `DEEPEST` is not measured further.
    """
    order = np.argsort(nodes, kind="stable")
    known = nodes[order]
    is_last = np.append(known[1:] != known[:-1], np.ones(min(1, known.size), bool))
    order, known = order[is_last], known[is_last]  # of nodes with one number, kernels that take them keep one
    columns = []
    for numbers in after:
        wanted = numbers[order]
        place = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        columns.append(np.where(known[place] == wanted, place, -1))
    ways = np.stack(columns, 1)
    waiting = np.bincount(ways[ways >= 0], minlength=known.size)
    free, seen, depth = np.flatnonzero(waiting == 0), 0, 0
    place_in = np.empty_like(waiting)
    while free.size and depth <= DEEPEST:
        seen, depth = seen + free.size, depth + 1
        below = ways[free].ravel()
        below = below[below >= 0]
        np.subtract.at(waiting, below, 1)
        free = below[waiting[below] == 0]
        places = np.arange(free.size)
        place_in[free] = places
        free = free[place_in[free] == places]  # each once, in less time than by np.unique
    return depth if seen == known.size or depth > DEEPEST else None
