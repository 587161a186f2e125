"""The expression that builds a node: the shortest one that a trial in a graph of its own accepts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import load_tensors
from graphcore.decompile.text import Expr, call, display, is_name, keywords, operation, quoted, value
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.onnx.notes import ONNX_DOMAINS
from graphcore.surgery.diff.records import Contents, array_of, is_default
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, Shape, TensorType

_TYPES = (DType, Graph, OptionalType, SequenceType, Shape, Symbol, TensorType)
PUBLIC = {**{type_.__name__: type_ for type_ in _TYPES}, "load_tensors": load_tensors, "ops": ops}
"""The names that modules import from graphcore."""
NAMESPACE = {**PUBLIC, "onnx": ops.onnx, "np": np, "cache": functools.cache}

_SIGNS = {
    "Or": ("|", 8), "Xor": ("^", 9), "And": ("&", 10), "Add": ("+", 12), "Sub": ("-", 12), "Mul": ("*", 13),
    "Div": ("/", 13), "MatMul": ("@", 13), "Less": ("<", 7), "LessOrEqual": ("<=", 7), "Greater": (">", 7),
    "GreaterOrEqual": (">=", 7), "Equal": ("==", 7), "Neg": ("-", 14), "Not": ("~", 14), "Pow": ("**", 15),
}  # fmt: skip
"""The operators of Python by those of ONNX, with their precedence."""

MAX_LITERAL = 8
"""The elements of constants that are literals."""

MAX_ELEMENTS = 16
"""The elements of attributes that are literals."""

Template = Callable[[Sequence[Any]], Expr]
"""Makes the expression of a node of those of its operands, which are None where there is none."""


def literal(symbol: Symbol) -> Expr | None:
    """Return the expression of a small constant: a literal with its dtype; None for other values."""
    array = array_of(symbol)
    if array is None or not isinstance(symbol.type, TensorType):
        return None
    dtype = symbol.type.dtype
    is_long = array.size > MAX_LITERAL and dtype is not DType.string
    if is_long or dtype.bits > 64 or (not array.size and array.ndim != 1):
        return None
    plain = value(array, dtype)
    return None if plain is None else call("graph.constant(", [plain, Expr(f"DType.{dtype.name}")])


def _refusal(node: Node, what: str) -> GraphError:
    return GraphError(
        f"to_python: node {node.outputs[0].name!r} ({node.op_type}) has {what}",
        help="cut the node off with graph.extract, or replace it",
    )


class Templates:
    """Finds templates of nodes, and remembers them by what they build. arrays: long attributes, by name."""

    def __init__(self, graph: Graph) -> None:
        self.arrays: dict[str, Array] = {}
        self._promotion = graph.promotion
        self._contents = Contents()
        self._cached: dict[Hashable, Template] = {}

    def of(self, node: Node, literals: Sequence[Expr | None]) -> Template:
        """Return the template of a node. literals: of its operands."""
        names: dict[int, str] = {}
        operands = [
            own if symbol is None or own is not None else Expr(names.setdefault(symbol.id, f"v{len(names)}"))
            for symbol, own in zip(node.inputs, literals, strict=True)
        ]
        record = self._record(node, names)
        key = record, *(s.type for s in (*node.inputs, *node.outputs) if s is not None)
        if key not in self._cached:
            candidates = self._candidates(node, literals)
            fits = (template for template in candidates if self._build(node, template, operands, names) == record)
            self._cached[key] = next(fits, None) or self.declared(node)
        return self._cached[key]

    def declared(self, node: Node) -> Template:
        """Return the call of `Graph.op`, which builds any node whose results have types that can be written."""
        label = Expr(quoted(f"{node.domain}::{node.op_type}" if node.domain else node.op_type))
        attributes = {key: self._attribute(node, key, item) for key, item in node.attributes.items()}
        types = []
        for symbol in node.outputs:
            own = value(symbol.type)
            if own is None:
                raise _refusal(node, f"a result of type {symbol.type}, which no expression makes")
            types.append(own)
        end = display(attributes) if attributes else Expr("None"), display(types)
        return lambda own: call("graph.op(", [label, display(e or Expr("None") for e in own), *end])

    def with_bodies(self, node: Node, functions: Mapping[str, str]) -> Template:
        """Return the template of a node with bodies. functions: their names, by attribute. Raises `GraphError`."""
        if node.domain not in ONNX_DOMAINS or not all(map(is_name, node.attributes)):
            raise _refusal(node, "bodies, and an operator or attributes that are not ONNX's")
        return _by_schema(node, self._attributes(node) | {key: Expr(name) for key, name in functions.items()})

    def array(self, name: str, array: Array) -> Expr:
        """Return the expression of an array, which goes to the file."""
        self.arrays[name] = array
        return Expr(f"tensors[{quoted(name)}]")

    def _candidates(self, node: Node, literals: Sequence[Expr | None]) -> Iterator[Template]:
        if node.domain not in ONNX_DOMAINS or not all(map(is_name, (node.op_type, *node.attributes))):
            return  # names in files may be any text
        attributes = self._attributes(node)
        attributes.pop("num_outputs", None)  # follows from `outputs`
        outputs = {"outputs": Expr(str(len(node.outputs)))}
        makers = [*_short(node, attributes), _by_schema(node, attributes), _by_schema(node, attributes | outputs)]
        if any(literals):
            yield from (_plain(make, literals) for make in makers)
        yield from makers

    def _attributes(self, node: Node) -> dict[str, Expr]:
        return {
            key: self._attribute(node, key, item)
            for key, item in node.attributes.items()
            if not isinstance(item, Graph) and not is_default(node, key, item)
        }

    def _attribute(self, node: Node, key: str, item: Any) -> Expr:
        name = f"{node.outputs[0].name}.{key}"
        if isinstance(item, np.ndarray):
            if item.dtype.kind in "OU":
                return call("np.array(", [present(value(item))])
            if 0 < item.size <= MAX_LITERAL and item.ndim == 1 and item.dtype in (np.int64, np.float32):
                plain = present(value(item, DType.of(item.dtype)))
                return plain if item.dtype == np.int64 else call("np.array(", [plain, Expr("np.float32")])
            return self.array(name, item)
        if isinstance(item, (list, tuple)) and len(item) > MAX_ELEMENTS and not isinstance(item[0], (str, bytes)):
            return Expr(f"{self.array(name, np.asarray(item)).text}.tolist()")
        own = value(item)
        if own is None:
            raise _refusal(node, f"an attribute {key} of type {type(item).__name__}, which has no expression")
        return own

    def _build(
        self, node: Node, template: Template, operands: Sequence[Expr | None], names: Mapping[int, str]
    ) -> Hashable:
        """Return the record of the node that an expression builds from operands of the same types."""
        graph = Graph("trial", promotion=self._promotion)
        try:
            for name, symbol in {names[s.id]: s for s in node.inputs if s is not None and s.id in names}.items():
                array = array_of(symbol)
                if array is None:
                    graph.build.input(symbol.type, name)
                else:
                    graph.build.symbol(symbol.type, Constant(array, True, None), name)
            values = {s.name: s for s in graph.symbols}
            space = {**NAMESPACE, **values, "graph": graph, "tensors": self.arrays}
            eval(template(operands).text, space)  # of our own text
            (built,) = graph.nodes
            return self._record(built, {symbol.id: name for name, symbol in values.items()})
        except Exception:  # whatever it is, the expression builds other nodes or none
            return None

    def _record(self, node: Node, names: Mapping[int, str]) -> Hashable:
        """Return a key of the node that an expression must build. names: of the operands that are not literals."""
        operands = tuple(
            None if s is None else names.get(s.id) or (s.dtype, self._contents.of(present(array_of(s))))
            for s in node.inputs
        )
        results = tuple(getattr(s.type, "dtype", s.type) for s in node.outputs)
        return node.op_type, node.domain, self._contents.attributes(node), operands, results


def _short(node: Node, attributes: Mapping[str, Expr]) -> Iterator[Template]:
    """Yield expressions of operators and methods of Python and of the operator library."""
    op, name = node.op_type, snake(node.op_type)
    if node.domain or len(node.outputs) != 1:
        return
    if op in _SIGNS:
        yield lambda own: operation(*_SIGNS[op], own)
    if op == "Cast":
        yield lambda own: call(f"{_atom(own[0])}.cast(", [attributes["to"]])
    if op == "Reshape":
        yield lambda own: call(f"{_atom(own[0])}.reshape(", own[1].parts)
    if op == "Transpose":
        yield lambda own: call(f"{_atom(own[0])}.permute(", attributes["perm"].parts)
    if name in ops.__all__:
        if op == "Concat":
            yield lambda own: call(f"ops.{name}(", [display(own), *keywords(attributes)])
        yield lambda own: call(f"ops.{name}(", [*own, *keywords(attributes)])


def _by_schema(node: Node, attributes: Mapping[str, Expr]) -> Template:
    """Return the call of the function of `ops.onnx`."""
    head = f"onnx{node.domain.removeprefix('ai.onnx')}.{node.op_type}("
    return lambda own: call(head, [*(expr or Expr("None") for expr in own), *keywords(attributes)])


def _plain(make: Template, literals: Sequence[Expr | None]) -> Template:
    """Return the template with literals without their dtypes."""
    return lambda own: make([a.parts[0] if a else b for a, b in zip(literals, own, strict=True)])


def _atom(expr: Expr) -> str:
    return expr.text if expr.rank == 20 and not expr.text[0].isdigit() else f"({expr.text})"
