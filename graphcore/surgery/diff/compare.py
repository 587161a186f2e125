"""Compare two graphs: align them, record the differences of pairs and what is unpaired."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.buffers import stored
from graphcore.ir.definitions import Definition, definition_of, names_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Constant, Node, Symbol, present, root_of
from graphcore.surgery.calling import dim_pairs
from graphcore.surgery.diff.alignment import Alignment
from graphcore.surgery.diff.records import (
    Contents,
    Diff,
    DimChange,
    EdgeChange,
    MetadataChange,
    NodeChange,
    TypeChange,
    WeightChange,
    array_of,
    distance,
    is_default,
    is_named,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, known_type


@method(Graph)
def diff(self: Graph, other: Graph) -> Any:
    """Return the differences between this graph and another one; printed as lines with "-", "+" and "~".

    Nodes are matched by the names of their results, then by their operands and consumers, so that order, numbers and
    generated names do not matter. Weights are compared by value. A renamed dim, or one with a size, is reported once.
    Bodies and functions are compared; source lines and layers are not.

    Returns:
        A `Diff`, which is False if nothing differs, with tuples of frozen records: `inputs`, `outputs`, `dims`,
        `nodes`, `types` of inner values, `weights` and `metadata`. `as_dict()` is for JSON.

    Raises:
        GraphError: `other` is not a Graph.

    Example:
        print(model.diff(Graph.load("quantised.onnx")))
    """
    if not isinstance(other, Graph):
        raise GraphError(
            f"diff: the other graph must be a Graph, got {type(other).__name__}",
            help="load the file first: Graph.load(path)",
        )
    return _Comparison().run(self, other)


class _Comparison:
    """One comparison of two graphs, with the bodies and functions in them."""

    def __init__(self) -> None:
        self._contents = Contents()
        self._inputs: list[EdgeChange] = []
        self._outputs: list[EdgeChange] = []
        self._nodes: list[NodeChange] = []
        self._types: list[TypeChange] = []
        self._weights: list[WeightChange] = []
        self._dims: dict[str, Dim] = {}
        """Dims of the second graph by the names of the first, where each name is one dim."""
        self._matched_constants: set[int] = set()
        """Named constants that the other graph has without a name, by identity."""
        self._compared: set[tuple[Definition, Definition]] = set()

    def run(self, old: Graph, new: Graph) -> Diff:
        """Return the differences."""
        pairs = Alignment(old, new, self._contents)
        self._find_dims(pairs)
        dims = tuple(DimChange(name, other) for name, other in self._dim_changes)
        self._compare_inputs(pairs)
        self._compare_outputs(pairs)
        self._compare(pairs, "")
        return Diff(
            tuple(self._inputs),
            tuple(self._outputs),
            dims,
            tuple(self._nodes),
            tuple(self._types),
            tuple(self._weights),
            tuple(_metadata(old, new)),
        )

    # Types

    def _find_dims(self, pairs: Alignment) -> None:
        """Find the dims of inputs that are other dims in the second graph."""
        ends = [(s.type, pairs.values[s.id].type) for s in pairs.old.input_symbols if s.id in pairs.values]
        places = [pair for old, new in ends for pair in dim_pairs(old, new)]
        named: dict[str, Dim] = {}
        refused: set[str] = set()
        for a, b in places:
            if a.name is not None and not b.is_dynamic and named.setdefault(a.name, b) != b:
                refused.add(a.name)
        for a, b in places:  # names that are only in expressions
            named |= _renames(a, b, named) or {}
        self._dims = {k: d for k, d in named.items() if k not in refused and d.name != k}
        pairs_of_dims = [(a, b) for a, b in places if a.substitute(self._dims) != b]
        changes = [*self._dims.items(), *pairs_of_dims]
        self._dim_changes = dict.fromkeys((str(a), str(b)) for a, b in changes)
        self._places = {*places}
        self._classes = _classes(places)

    def _same_type(self, old: Type, new: Type) -> bool:
        """Return True if types are equal in the dims of the second graph. Dim names that no input has may differ."""
        old, new = known_type(old), known_type(new)
        if old == new:
            return True
        if self._dims and substituted(old, self._dims) == new:
            return True
        if not isinstance(old, TensorType) or not isinstance(new, TensorType) or old.dtype is not new.dtype:
            return False
        fits = len(old.shape) == len(new.shape) if old.shape.is_ranked and new.shape.is_ranked else False
        return fits and all(
            a.substitute(self._dims) == b or self._is_own_name(a, b) for a, b in zip(old.shape, new.shape, strict=True)
        )

    def _is_own_name(self, old: Dim, new: Dim) -> bool:
        """Return True if dims have names that no input has, consistently renamed."""
        if old.name is not None and new.name is not None:
            own = {old.name: new} if self._inner.get(old.name, new) == new else None
        else:
            own = _renames(old, new, {**self._shared, **self._dims, **self._inner})
        if own is None or self._old_names & own.keys() or self._new_names & {d.name for d in own.values()}:
            return False
        self._inner |= own
        return True

    def _follows(self, old: Type, new: Type) -> bool:
        """Return True if types inside of the graphs are equal, or differ as dims of the inputs do."""
        if self._same_type(old, new):
            return True
        before, after = known_type(old), known_type(new)
        first, second = (substituted(t, dims) for t, dims in zip((before, after), self._classes, strict=True))
        if first == second:
            return True
        dims = zip(dim_pairs(before, after), dim_pairs(first, second), strict=True)
        return (
            isinstance(before, TensorType)
            and isinstance(after, TensorType)
            and before.dtype is after.dtype
            and bool(dim_pairs(before, after))
            and all(c == d or a == b or (a, b) in self._places or self._is_own_name(a, b) for (a, b), (c, d) in dims)
        )

    # Edges

    def _compare_inputs(self, pairs: Alignment) -> None:
        old, new = pairs.old, pairs.new
        self._old_names, self._new_names = ({*names_of(s.type for s in g.input_symbols)} for g in (old, new))
        self._shared = {name: Dim(name) for name in self._old_names - self._dims.keys()}
        self._inner: dict[str, Dim] = {}
        for symbol in old.input_symbols:
            partner = pairs.values.get(symbol.id)
            if partner is None:
                self._inputs.append(EdgeChange("-", symbol.name, str(symbol)))
                continue
            details = self._interface_details(symbol.name, partner.name, symbol.type, partner.type)
            old_buffer, new_buffer = (g.buffers.get(s.given_name or "") for g, s in ((old, symbol), (new, partner)))
            if (old_buffer is None) != (new_buffer is None):
                details.append("is no longer a buffer" if new_buffer is None else "is a buffer")
            elif (
                old_buffer is not None
                and new_buffer is not None
                and not _same_initial(old_buffer.buffer.initial, new_buffer.buffer.initial)
            ):
                details.append("another initial value")
            if not _same_initial(old.defaults.get(symbol.name), new.defaults.get(partner.name)):
                details.append("another default")
            if details:
                self._inputs.append(EdgeChange("~", symbol.name, symbol.name, tuple(details)))
        for symbol in new.input_symbols:
            if symbol.id not in pairs.sources:
                self._inputs.append(EdgeChange("+", symbol.name, str(symbol)))
        shared = [s for s in old.input_symbols if s.id in pairs.values]
        order = [pairs.values[s.id].name for s in shared]
        now = [s.name for s in new.input_symbols if s.id in pairs.sources]
        if order != now:
            self._inputs.append(EdgeChange("~", "", "order", (f"{', '.join(order)} -> {', '.join(now)}",)))

    def _interface_details(self, name: str, other: str, before: Type, after: Type) -> list[str]:
        details = [] if name == other else [f"named {other}"]
        if not self._same_type(before, after):
            details.append(f"{known_type(before)} -> {known_type(after)}")
        return details

    def _compare_outputs(self, pairs: Alignment) -> None:
        old, new = pairs.old.outputs.asdict(), pairs.new.outputs.asdict()
        lost, more = [n for n in old if n not in new], [n for n in new if n not in old]
        names = {name: name for name in old if name in new}
        for name in lost:
            partner = next((n for n in more if pairs.are_one(old[name], new[n])), None)
            if partner is None:
                self._outputs.append(EdgeChange("-", name, f"{name}: {known_type(old[name].type)}"))
            else:
                more.remove(partner)
                names[name] = partner
        for name, other in names.items():
            details = self._interface_details(name, other, old[name].type, new[other].type)
            if not pairs.are_one(old[name], new[other]):
                details.append(f"made by {_maker(old[name])} -> {_maker(new[other])}")
            if details:
                self._outputs.append(EdgeChange("~", name, name, tuple(details)))
        self._outputs += [EdgeChange("+", name, f"{name}: {known_type(new[name].type)}") for name in more]
        order, now = [names[n] for n in old if n in names], [n for n in new if n in {*names.values()}]
        if order != now:
            self._outputs.append(EdgeChange("~", "", "order", (f"{', '.join(order)} -> {', '.join(now)}",)))
        old_stores, new_stores = stored(pairs.old), stored(pairs.new)
        for name in {**old_stores, **new_stores}:
            a, b = old_stores.get(name), new_stores.get(name)
            if a is None or b is None or not pairs.are_one(a, b):
                text = f"{_maker(a) if a is not None else 'nothing'} -> {_maker(b) if b is not None else 'nothing'}"
                self._outputs.append(EdgeChange("~", name, f"buffer {name}", (f"stores {text}",)))

    # Nodes

    def _compare(self, pairs: Alignment, place: str) -> None:
        """Compare the nodes, their results, and the weights of two graphs, bodies or functions."""
        ends = {s.id for s in pairs.old.outputs} if not place else set()
        for node in pairs.old.nodes:
            partner = pairs.nodes.get(id(node))
            if partner is None:
                self._nodes.append(NodeChange("-", _label(node), node.op_type, _text(node), (), place))
                continue
            details = self._node_details(pairs, node, partner, place)
            if details:
                self._nodes.append(NodeChange("~", _label(node), node.op_type, _text(node), tuple(details), place))
            for a, b in zip(node.outputs, partner.outputs, strict=True):
                if a.id not in ends and not self._follows(a.type, b.type):
                    types = str(known_type(a.type)), str(known_type(b.type))
                    self._types.append(TypeChange(a.name, b.name, *types, place))
        for node in pairs.new.nodes:
            if id(node) not in pairs.taken:
                self._nodes.append(NodeChange("+", _label(node), node.op_type, _text(node), (), place))
        self._compare_weights(pairs, place)

    def _node_details(self, pairs: Alignment, old: Node, new: Node, place: str) -> list[str]:
        """Return the differences of two paired nodes. Differences of their bodies are recorded too."""
        details = []
        if (old.op_type, old.domain) != (new.op_type, new.domain):
            is_same = old.op_type == new.op_type
            names = [f"{n.op_type} of {n.domain or 'ONNX'}" if is_same else _operator(n) for n in (old, new)]
            details.append(" -> ".join(names))
        if len(old.inputs) != len(new.inputs):
            details.append(f"{len(old.inputs)} -> {len(new.inputs)} operands")
        for i, (a, b) in enumerate(zip(old.inputs, new.inputs, strict=False)):
            if a is None or b is None:
                if a is not b:
                    details.append(f"operand {i}: {_operand(a)} -> {_operand(b)}")
            elif not pairs.are_one(a, b) and not self._compare_constants(old, i, a, b, place):
                details.append(f"operand {i}: {_operand(a)} -> {_operand(b)}")
        return details + self._compare_attributes(pairs, old, new, place)

    def _compare_constants(self, node: Node, position: int, old: Symbol, new: Symbol, place: str) -> bool:
        """Return True if both are constants; a difference of unnamed ones is recorded."""
        a, b = array_of(old), array_of(new)
        if a is None or b is None:
            return False
        name = old.name if is_named(old) else f"operand {position} of {_label(node)}"
        if is_named(old) and is_named(new):
            return False  # each has its own pair
        # An exporter may name a constant that the other graph has without a name.
        self._matched_constants |= {id(root_of(old)), id(root_of(new))}
        self._compare_arrays(name, name, old, new, place)
        return True

    def _compare_arrays(self, name: str, other: str, old: Symbol, new: Symbol, place: str) -> None:
        a, b = present(array_of(old)), present(array_of(new))
        if a is b and old.dtype is new.dtype and name == other:
            return
        gap = distance(a, b)
        if gap.differing == 0 and old.dtype is new.dtype and name == other:
            return
        types = str(known_type(old.type)), str(known_type(new.type))
        self._weights.append(WeightChange("~", name, other, *types, int(a.size), gap.differing, gap.largest, place))

    def _compare_weights(self, pairs: Alignment, place: str) -> None:
        for symbol in pairs.old.symbols:
            if not isinstance(symbol.producer, Constant) or not is_named(symbol):
                continue
            partner = pairs.values.get(symbol.id)
            if partner is None and id(symbol) not in self._matched_constants:
                self._weights.append(_unpaired_weight("-", symbol, place))
            elif partner is not None:
                self._compare_arrays(symbol.name, partner.name, symbol, partner, place)
        for symbol in pairs.new.symbols:
            is_alone = symbol.id not in pairs.sources and id(symbol) not in self._matched_constants
            if is_alone and isinstance(symbol.producer, Constant) and is_named(symbol):
                self._weights.append(_unpaired_weight("+", symbol, place))

    def _compare_attributes(self, pairs: Alignment, old: Node, new: Node, place: str) -> list[str]:
        a, b = _attributes_of(old), _attributes_of(new)
        details = []
        for key in {**a, **b}:
            first, second = a.get(key), b.get(key)
            if isinstance(first, Graph) and isinstance(second, Graph):
                self._compare_bodies(pairs, first, second, f"{place}{' in ' if place else ''}{key} of {_label(old)}")
            elif isinstance(first, Definition) and isinstance(second, Definition):
                if first.name != second.name:
                    details.append(f"function {first.name} -> {second.name}")
                self._compare_functions(first, second)
            elif key not in a or key not in b:
                value = a.get(key, second)
                if not is_default(old, key, value):
                    details.append(f"{'-' if key in a else '+'} {key}={_value(value)}")
            elif self._contents.attribute(first) != self._contents.attribute(second):
                details.append(f"{key}: {_value(first)} -> {_value(second)}")
        return details

    # Bodies and functions

    def _compare_bodies(self, outer: Alignment | None, old: Graph, new: Graph, place: str) -> None:
        pairs = Alignment(old, new, self._contents, outer)
        self._compare(pairs, place)
        self._compare_ends(pairs, place)

    def _compare_functions(self, old: Definition, new: Definition) -> None:
        if old is new or (old, new) in self._compared:
            return
        self._compared.add((old, new))
        self._compare_bodies(None, old.body, new.body, f"function {old.name}")

    def _compare_ends(self, pairs: Alignment, place: str) -> None:
        """Record the differences of a body's inputs and outputs as one change of a node."""
        details = []
        sizes = [(len(pairs.old.input_symbols), len(pairs.new.input_symbols), "inputs")]
        sizes.append((len(pairs.old.outputs), len(pairs.new.outputs), "outputs"))
        details += [f"{a} -> {b} {what}" for a, b, what in sizes if a != b]
        for i, (a, b) in enumerate(zip(pairs.old.outputs, pairs.new.outputs, strict=False)):
            if not pairs.are_one(a, b):
                details.append(f"output {i}: {_operand(a)} -> {_operand(b)}")
        if details:
            self._nodes.append(NodeChange("~", place, "", "inputs and outputs", tuple(details), place))
        for a, b in zip(pairs.old.input_symbols, pairs.new.input_symbols, strict=False):
            if not self._follows(a.type, b.type):
                self._types.append(TypeChange(a.name, b.name, str(a.type), str(b.type), place))


_MAX_NAMES = 4
"""The number of names in an expression whose renaming is searched."""


def _renames(old: Dim, new: Dim, renamed: Mapping[str, Dim]) -> dict[str, Dim] | None:
    """Return new names with which two dims are equal, beside those that are known; None if there are none."""
    taken = {dim.name for dim in renamed.values()}
    names = sorted(old.parameters - renamed.keys())
    others = sorted(new.parameters - taken)
    if len(names) > _MAX_NAMES or len(names) != len(others):
        return None
    for order in itertools.permutations(map(Dim, others)):
        trial = dict(zip(names, order, strict=True))
        if old.substitute({**renamed, **trial}) == new:
            return trial
    return None


def _classes(pairs: Iterable[tuple[Dim, Dim]]) -> tuple[dict[str, Dim], dict[str, Dim]]:
    """Return dims by the names of two graphs, equal for names and sizes that stand for each other in some input.

    Names that stand for two sizes or expressions are left out.
    """
    members: dict[tuple[int, Dim], set[tuple[int, Dim]]] = {}
    for pair in pairs:
        joined = {each for key in enumerate(pair) for each in members.get(key, {key})}
        members |= dict.fromkeys(joined, joined)
    dims: tuple[dict[str, Dim], dict[str, Dim]] = {}, {}
    for (graph, dim), joined in members.items():
        others = {each for _, each in joined if each.name is None}
        if dim.name is not None and len(others) < 2:
            dims[graph][dim.name] = min(others or {each for _, each in joined}, key=str)
    return dims


def _same_initial(old: Any, new: Any) -> bool:
    if old is None or new is None:
        return old is new
    return old.dtype == new.dtype and old.shape == new.shape and distance(old, new).differing == 0


def _unpaired_weight(kind: str, symbol: Symbol, place: str) -> WeightChange:
    type_ = str(known_type(symbol.type))
    before, after = (type_, "") if kind == "-" else ("", type_)
    array = array_of(symbol)
    return WeightChange(
        kind, symbol.name, symbol.name, before, after, 0 if array is None else int(array.size), place=place
    )


def _metadata(old: Graph, new: Graph) -> list[MetadataChange]:
    a, b = _notes(old), _notes(new)
    return [MetadataChange(key, a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)]


def _notes(graph: Graph) -> dict[str, str]:
    notes = {"name": graph.name, "promotion": str(graph.promotion)}
    notes |= {f"metadata {key}": value for key, value in graph.metadata.items()}
    return notes | {f"opset of {domain}": str(version) for domain, version in graph.opsets.items()}


def _attributes_of(node: Node) -> Mapping[str, Any]:
    """Return the attributes, without the dims of a call, which follow from types."""
    if definition_of(node) is None:
        return node.attributes
    return {key: value for key, value in node.attributes.items() if key != "dims"}


def _operator(node: Node) -> str:
    return node.op_type if node.domain in ("", "graphcore") else f"{node.domain}.{node.op_type}"


def _label(node: Node) -> str:
    return node.outputs[0].name if node.outputs else node.op_type


def _maker(symbol: Symbol) -> str:
    return f"{symbol.producer.op_type} {symbol.name!r}" if isinstance(symbol.producer, Node) else repr(symbol.name)


def _operand(symbol: Symbol | None) -> str:
    if symbol is None:
        return "_"
    array = array_of(symbol)
    if array is None or is_named(symbol):
        return symbol.name
    return f"{symbol.dtype}({array.tolist()})" if array.size <= 8 else f"{symbol.dtype}{list(array.shape)}"


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= 8 else f"{value.dtype}{list(value.shape)}"
    return str(value) if isinstance(value, DType) else repr(value)


def _text(node: Node) -> str:
    """Return the text of a node in one line."""
    attributes = [f"{k}={_value(v)}" for k, v in _attributes_of(node).items() if not isinstance(v, (Graph, Definition))]
    results = ", ".join(s.name for s in node.outputs)
    return f"{results} = {_operator(node)}({', '.join([*map(_operand, node.inputs), *attributes])})"
