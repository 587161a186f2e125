"""The expression that builds a node: the shortest one that a trial in a graph of its own accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.decompile.text import (
    Expr,
    call,
    dict_text,
    display,
    elements,
    is_name,
    operation,
    quoted,
    type_text,
    value,
)
from graphcore.errors import GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.symbol import Constant, Node, Symbol, root_of
from graphcore.onnx.notes import ONNX_DOMAINS
from graphcore.onnx.schemas.catalogue import entry
from graphcore.surgery.diff.records import Contents, is_default
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, TensorType

_SIGNS = {
    "Or": ("|", 8), "Xor": ("^", 9), "And": ("&", 10), "Add": ("+", 12), "Sub": ("-", 12), "Mul": ("*", 13),
    "Div": ("/", 13), "MatMul": ("@", 13), "Less": ("<", 7), "LessOrEqual": ("<=", 7), "Greater": (">", 7),
    "GreaterOrEqual": (">=", 7), "Equal": ("==", 7), "Neg": ("-", 14), "Not": ("~", 14), "Pow": ("**", 15),
}  # fmt: skip
"""The operators of Python by those of ONNX, with their precedence."""

MAX_LITERAL = 8
"""The elements of constants that are literals."""

Template = Callable[[Sequence[Expr | None]], Expr]
"""Makes the expression of a node of those of its operands."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A small constant: as Python's literal, and with its dtype."""

    plain: Expr
    typed: Expr
    key: str


def literal(symbol: Symbol) -> Literal | None:
    """Return the literal of a small constant; None for other values."""
    producer = root_of(symbol).producer
    if not isinstance(producer, Constant) or not isinstance(symbol.type, TensorType):
        return None
    array, dtype = producer.array, symbol.type.dtype
    if (
        (array.size > MAX_LITERAL and dtype is not DType.string)
        or dtype.bits > 64
        or (not array.size and array.ndim != 1)
    ):
        return None
    plain = value(elements(array), dtype)
    if plain is None:
        return None
    typed = call("graph.constant(", [("", plain), ("", Expr(f"DType.{dtype.name}"))])
    return Literal(plain, typed, typed.text)


class Templates:
    """Finds templates of nodes, and remembers them by operator, attributes and types."""

    def __init__(self, graph: Graph, attribute: Callable[[Node, str, Any], Expr]) -> None:
        self._promotion = graph.promotion
        self._attribute = attribute
        self._contents = Contents()
        self._cached: dict[Any, Template] = {}

    def of(self, node: Node, literals: Sequence[Literal | None], *, is_forced: bool = False) -> Template:
        """Return the template of a node. literals: of its operands. is_forced: True for `Graph.op`."""
        if is_forced:
            return self._any(node, literals)
        operands = tuple(
            None if s is None else constants.key if constants else s.type
            for s, constants in zip(node.inputs, literals, strict=True)
        )
        results = tuple(s.type for s in node.outputs)
        key = (node.op_type, node.domain, self._contents.attributes(node), operands, results, _pattern(node))
        cached = self._cached.get(key)
        if cached is None:
            candidates = self._candidates(node, literals)
            cached = next((template for template in candidates if self._builds(node, template, literals)), None)
            cached = self._cached[key] = cached or self._any(node, literals)
        return cached

    def with_bodies(self, node: Node, literals: Sequence[Literal | None], functions: Mapping[str, str]) -> Template:
        """Return the template of a node with bodies. functions: their names, by attribute. Raises `GraphError`."""
        if node.domain not in ONNX_DOMAINS or not all(map(is_name, node.attributes)):
            raise GraphError(
                f"to_python: node {node.outputs[0].name!r} ({node.op_type}) has bodies, and an operator or attributes "
                "that are not ONNX's",
                help="cut the node off with graph.extract, or replace it",
            )
        return self._schema_call(node, literals, functions)

    def _candidates(self, node: Node, literals: Sequence[Literal | None]) -> Iterator[Template]:
        if not all(map(is_name, node.attributes)):  # names in files may be any text
            return
        for form in ("plain", "typed") if any(literals) else ("plain",):
            constants = [None if own is None else getattr(own, form) for own in literals]
            if not node.domain and len(node.outputs) == 1:
                yield from self._short(node, constants)
            if node.domain in ONNX_DOMAINS:
                yield self._schema_call(node, literals, {}, form)

    def _short(self, node: Node, constants: Sequence[Expr | None]) -> Iterator[Template]:
        """Yield templates of operators and methods of Python and of the operator library."""
        op, attributes = node.op_type, self._attributes(node)
        if op in _SIGNS and not attributes:
            sign, rank = _SIGNS[op]
            if (len(node.inputs) == 1) == (op in ("Neg", "Not")):
                yield lambda operands: operation(sign, rank, _filled(operands, constants))
        if op == "Cast" and [*attributes] == ["to"]:
            yield lambda operands: call(f"{_atom(_filled(operands, constants)[0])}.cast(", [("", attributes["to"])])
        if op == "Transpose" and "perm" in attributes:
            yield lambda operands: call(f"{_atom(_filled(operands, constants)[0])}.permute(", attributes["perm"].parts)
        if op == "Reshape" and constants[1] is not None and constants[1].head == "[":
            sizes = constants[1].parts
            yield lambda operands: call(f"{_atom(_filled(operands, constants)[0])}.reshape(", sizes)
        name = snake(op)
        if hasattr(ops, name) and not any(s is None for s in node.inputs):
            named = [(f"{key}=", expr) for key, expr in attributes.items()]
            if op == "Concat":
                yield lambda operands: call(f"ops.{name}(", [("", display(_filled(operands, constants))), *named])
            yield lambda operands: call(f"ops.{name}(", [*(("", e) for e in _filled(operands, constants)), *named])

    def _schema_call(
        self, node: Node, literals: Sequence[Literal | None], functions: Mapping[str, str], form: str = "typed"
    ) -> Template:
        constants = [None if own is None else getattr(own, form) for own in literals]
        module = f"onnx{node.domain.removeprefix('ai.onnx')}" if node.domain else "onnx"
        named = [(f"{key}=", expr) for key, expr in self._attributes(node).items()]
        named += [(f"{key}=", Expr(name)) for key, name in functions.items()]
        try:
            spec = entry(node.op_type, node.domain)
        except GraphcoreError:
            return lambda operands: Expr("unknown")
        if spec.takes_outputs and not spec.gives_list and len(node.outputs) > spec.least_results:
            named.append(("outputs=", Expr(str(len(node.outputs)))))
        if spec.gives_list and len(node.outputs) != 1 and node.op_type == "Split" and len(node.inputs) < 2:
            named = [part for part in named if part[0] != "num_outputs="]
            named.append(("outputs=", Expr(str(len(node.outputs)))))
        return lambda operands: call(
            f"{module}.{node.op_type}(", [*(("", e or Expr("None")) for e in _filled(operands, constants)), *named]
        )

    def _any(self, node: Node, literals: Sequence[Literal | None]) -> Template:
        """Return the call of `Graph.op`, which builds any node whose results have types that can be written."""
        constants = [None if own is None else own.typed for own in literals]
        label = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        attributes = {key: self._attribute(node, key, item) for key, item in node.attributes.items()}
        types = [type_text(s.type) for s in node.outputs]
        if None in types:
            raise GraphError(
                f"to_python: node {node.outputs[0].name!r} ({node.op_type}) has a result of type "
                f"{next(s.type for s in node.outputs if type_text(s.type) is None)}, which no expression makes",
                help="cut the node off with graph.extract, or replace it",
            )
        end = [("", dict_text(attributes))] if attributes else [("", Expr("None"))]
        end.append(("", display([t for t in types if t is not None])))
        return lambda operands: call(
            "graph.op(",
            [("", Expr(quoted(label))), ("", display(e or Expr("None") for e in _filled(operands, constants))), *end],
        )

    def _attributes(self, node: Node) -> dict[str, Expr]:
        return {
            key: self._attribute(node, key, item)
            for key, item in node.attributes.items()
            if not isinstance(item, Graph) and not is_default(node, key, item)
        }

    def _builds(self, node: Node, template: Template, literals: Sequence[Literal | None]) -> bool:
        """Return True if the expression builds exactly the node, from operands of the same types."""
        names: dict[int, str] = {}
        values: dict[str, Any] = {}
        graph = Graph("trial", promotion=self._promotion)
        if any(isinstance(s.type, OpaqueType) for s in (*node.inputs, *node.outputs) if s is not None):
            return False
        for symbol, own in zip(node.inputs, literals, strict=True):
            if symbol is None or own is not None or symbol.id in names:
                continue
            name = names[symbol.id] = f"v{len(names)}"
            producer = root_of(symbol).producer
            if isinstance(producer, Constant):
                values[name] = graph.build.symbol(symbol.type, Constant(producer.array, True, None), name)
            else:
                values[name] = graph.build.input(symbol.type, name)
        operands = [
            None if s is None or own is not None else Expr(names[s.id])
            for s, own in zip(node.inputs, literals, strict=True)
        ]
        space = {**values, **_namespace(), "graph": graph, "tensors": _Arrays(node)}
        try:
            eval(template(operands).text, space)  # of our own text
        except Exception:  # whatever it is, the expression builds another node or none
            return False
        if len(graph.nodes) != 1:
            return False
        (built,) = graph.nodes
        return (
            (built.op_type, built.domain, len(built.inputs), len(built.outputs))
            == (node.op_type, node.domain, len(node.inputs), len(node.outputs))
            and self._key(built) == self._key(node)
            and all(
                (a is None and b is None) or (a is not None and b is not None and self._are_one(a, b, own, names))
                for a, b, own in zip(node.inputs, built.inputs, literals, strict=True)
            )
            and all(
                getattr(a.type, "dtype", a.type) == getattr(b.type, "dtype", b.type)
                for a, b in zip(node.outputs, built.outputs, strict=True)
            )
        )

    def _key(self, node: Node) -> dict[str, Any]:
        """Return the attributes that differ from the operator's defaults."""
        own = {k: v for k, v in node.attributes.items() if not is_default(node, k, v)}
        return {key: self._contents.attribute(item) for key, item in own.items()}

    def _are_one(self, old: Symbol, new: Symbol, own: Literal | None, names: Mapping[int, str]) -> bool:
        if own is None:
            return new.given_name == names[old.id]
        a, b = root_of(old).producer, new.producer
        return (
            isinstance(a, Constant)
            and isinstance(b, Constant)
            and old.type.dtype is new.type.dtype
            and a.array.shape == b.array.shape
            and self._contents.of(a.array) == self._contents.of(b.array)
        )


class _Arrays:
    """Stands for the file of arrays in trials."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, name: str) -> Any:
        return np.asarray(self._node.attributes[name.rpartition(".")[2]])


def gives_list(node: Node) -> bool:
    """Return True if the function of `ops.onnx` returns a list."""
    return entry(node.op_type, node.domain).gives_list


def _namespace() -> dict[str, Any]:
    return {
        "ops": ops, "onnx": ops.onnx, "DType": DType, "TensorType": TensorType, "SequenceType": SequenceType,
        "OptionalType": OptionalType, "Shape": Shape, "np": np,
    }  # fmt: skip


def _filled(operands: Sequence[Expr | None], constants: Sequence[Expr | None]) -> list[Any]:
    return [operand if own is None else own for operand, own in zip(operands, constants, strict=True)]


def _atom(expr: Expr) -> str:
    return expr.text if expr.rank == 20 and not expr.text[0].isdigit() else f"({expr.text})"


def _pattern(node: Node) -> tuple[int | None, ...]:
    """Return the number of each operand, equal for operands that are one."""
    first: dict[int, int] = {}
    return tuple(None if s is None else first.setdefault(s.id, len(first)) for s in node.inputs)
