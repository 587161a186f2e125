"""Declared operators, by domain and name: they emit and type nodes, and can have a body."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from graphcore.build import operands
from graphcore.custom_ops.signature import (
    NONE,
    OpSignature,
    TracedBody,
    allowed_dtypes,
    cache_key,
    groups,
    signature_of,
    translate_error,
)
from graphcore.errors import DTypeError, GraphError, ModelError
from graphcore.ir.definitions import Definition, Dims, names_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, present
from graphcore.promotion.rules import Key, Rule
from graphcore.support.escaping import counted
from graphcore.support.parameters import P, R
from graphcore.support.source_lines import Line
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type

Types: TypeAlias = "Sequence[Type | None]"
Kernel: TypeAlias = Callable[[str, Types, Mapping[str, Any], int], bool]
"""(target, types of operands, attributes, number of results) -> True if the runtime's own kernel is correct."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_RESERVED = re.compile(r"(ai\.onnx|ai\.onnx\..*|graphcore|graphcore\..*)?")
_NAME = re.compile(r"([A-Za-z_][\w.\-]*)::([A-Za-z_]\w*)", re.ASCII)

_MAX_CACHED = 512  # signatures of an operator

_SHIPPED = {"com.microsoft": "graphcore.ops.microsoft"}
"""The modules with the library's own declarations, by domain."""

_registry: dict[tuple[str, str], CustomOp] = {}
_lock = threading.RLock()


def lookup(domain: str, name: str) -> CustomOp | None:
    """Return the declaration of an operator, or None."""
    if domain in _SHIPPED:
        import_module(_SHIPPED[domain])
    return _registry.get((domain, name))


class CustomOp(Generic[P, R]):
    """A declared operator: call it on Symbols, arrays and numbers. Created by `gc.custom_op`.

    For type checkers it has the parameters of the declaration, and returns Symbols in place of types.
    """

    def __init__(
        self,
        label: str,
        rule: Callable[..., Any] | None,
        promote: str | Mapping[str, str],
        dtypes: Mapping[str, str],
        body: Callable[..., Any] | None,
        python: Callable[..., Any] | None,
        kernel: Kernel | None,
        line: Line | None,
        default_outputs: int | None = None,
    ) -> None:
        """
        Args:
            default_outputs: The number of results of a call without `outputs`; None for all.
        """
        self.domain, _, self.name = label.partition("::")
        self.label = label
        function = present(rule if rule is not None else body)
        self.signature: OpSignature = signature_of(label, function)
        self.implementation = python
        """The Python function that computes it, or None."""
        self.kernel = kernel
        self.unsafe: Callable[[Sequence[object]], str] | None = None
        """Returns the reason why the runtime's kernel would abort the process on such operands, or ""."""
        self._rule = rule
        self._body = None if body is None else TracedBody(label, self.signature, body)
        self._line = line
        self._default_outputs = default_outputs
        self._cached_types: dict[Any, tuple[Sequence[Type], bool]] = {}
        self._function = function
        self._groups = groups(label, self.signature, promote)
        self._dtypes = allowed_dtypes(label, self.signature, dtypes)
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<custom op {self.label}{self.signature.text}>"

    def __copy__(self) -> CustomOp:
        return self

    def __deepcopy__(self, memo: object) -> CustomOp:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.domain, self.name)

    @property
    def has_body(self) -> bool:
        """True if the operator has a body of graphcore's ops."""
        return self._body is not None

    def body(self, function: _Function) -> _Function:
        """Decorate the function of Symbols that defines the operator by other ops.

        Args:
            function: Takes the parameters of the declaration.

        Returns:
            The function.

        Raises:
            GraphError: The function has other parameters.
        """
        self.signature.check(self.label, function)
        self._body = TracedBody(self.label, self.signature, function)
        self._cached_types.clear()
        return function

    def python(self, function: _Function) -> _Function:
        """Decorate the function of NumPy arrays that computes the operator.

        Args:
            function: Takes the parameters of the declaration, with copies of the operands, and returns an array or a
                tuple of arrays of the declared dtypes and shapes.

        Returns:
            The function.

        Raises:
            GraphError: The function has other parameters.
        """
        self.signature.check(self.label, function)
        self.implementation = function
        return function

    # Calls

    @overload
    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R: ...
    @overload
    def __call__(self, *arguments: Any, outputs: None = None, **named: Any) -> R: ...
    @overload
    def __call__(self, *arguments: Any, outputs: int, **named: Any) -> Any: ...
    def __call__(  # type: ignore[misc]  # no parameter is called `outputs`
        self, *arguments: Any, outputs: int | None = None, **named: Any
    ) -> Any:
        """Emit a node of the operator, in the graph of the Symbols or the current one.

        Args:
            *arguments: Operands, as declared.
            outputs: Return only the first results, this many; by default all.
            **named: Operands and attributes by name, as declared.

        Returns:
            A Symbol, or a tuple if the declaration returns a tuple.

        Raises:
            GraphError: Wrong arguments.
            DTypeError, PromotionError, ShapeError: Wrong operands.
        """
        values, passed = self.signature.bind(self.label, arguments, named)
        graph = operands.graph_of(self.label, [v for v in values if v is not None])
        attributes = self.signature.node_attributes(self.label, passed)
        inputs = self._promote(graph, values)
        types, is_single = self._result_types(graph, inputs, attributes, outputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        results = graph.build.emit_many(
            self.name, tuple(inputs), types, self._written_attributes(attributes), self.domain
        )
        return results[0] if is_single else results

    def _written_attributes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Return a node's attributes. The runtime's own operators omit defaults: older releases may not have them."""
        if self.kernel is None:
            return attributes
        declared = self.signature.attributes
        defaults = {
            n: a.kind.to_node(a.default) for n, a in declared.items() if not a.is_required and a.default is not None
        }
        return {name: value for name, value in attributes.items() if name not in defaults or defaults[name] != value}

    def _result_types(
        self, graph: Graph, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], outputs: int | None
    ) -> tuple[Sequence[Type], bool]:
        """Return the result types of a node, cached, and True if a call returns a single Symbol."""
        operand_types = [None if s is None else s.type for s in inputs]
        key = tuple(operand_types), cache_key(attributes), outputs, type(outputs)
        cached = self._cached_types.get(key)
        if cached is not None:
            return cached
        self._check_dtypes(inputs)
        types, is_single = self._types(inputs, attributes, f"{graph.site.layer}{self.name}_{len(graph.symbols)}_")
        if outputs is not None and (type(outputs) is not int or not 1 <= outputs <= len(types)):
            raise GraphError(
                f"{self.label}: outputs must be an int from 1 to {len(types)}, got {outputs!r:.80}",
                help="give the number of results that are used, or leave it out",
            )
        count = outputs
        if outputs is None and self._default_outputs is not None:
            count, is_single = self._default_outputs, self._default_outputs == 1
        types = types[:count]
        if self._body is not None:
            self.definition(operand_types, attributes, types, _operands_by_label(self, inputs))
        return self._cached(key, operand_types, types, is_single)

    def _cached(
        self, key: Hashable, operand_types: Sequence[Type | None], types: Sequence[Type], is_single: bool
    ) -> tuple[Sequence[Type], bool]:
        """Return result types and `is_single`, and keep them, but for types with new dims: each call has its own."""
        if set(names_of(types)) <= set(names_of([t for t in operand_types if t is not None])):
            while len(self._cached_types) >= _MAX_CACHED:
                self._cached_types.pop(next(iter(self._cached_types)), None)
            self._cached_types[key] = types, is_single
        return types, is_single

    def _promote(self, graph: Graph, values: Sequence[Any]) -> list[Symbol | None]:
        labels = self.signature.labels(len(values))
        symbols_by_position: list[Any] = [None] * len(values)
        fixed = len([o for o in self.signature.operands if not o.is_variadic])
        for rule, names in self._groups:
            chosen = [
                i
                for i, value in enumerate(values)
                if value is not None and self.signature.operands[min(i, fixed)].name in names
            ]
            roles = {labels[i]: values[i] for i in chosen}
            if not roles:
                continue
            if rule == NONE:
                symbols: Sequence[Symbol | None] = [self._to_symbol(graph, label, v) for label, v in roles.items()]
            else:
                tensors, literals = operands._split(graph, self.label, roles)
                resolution = operands.resolve(graph, Key(self.label, cast(Rule, rule)), roles, tensors, literals)
                symbols = operands.apply(graph, self.label, roles, tensors, literals, resolution)
            for i, symbol in zip(chosen, symbols, strict=True):
                symbols_by_position[i] = symbol
        return symbols_by_position

    def _to_symbol(self, graph: Graph, label: str, value: Any) -> Symbol:
        allowed = self._dtypes.get(label.partition("[")[0], frozenset())
        if type(value) in (bool, int, float) and len(allowed) == 1:
            return graph.scalar(value, next(iter(allowed)))
        return graph.build.operand(value, self.label, label)

    def _check_dtypes(self, inputs: Sequence[Symbol | None]) -> None:
        for label, symbol in zip(self.signature.labels(len(inputs)), inputs, strict=True):
            allowed = self._dtypes.get(label.partition("[")[0])
            if symbol is None or allowed is None:
                continue
            if not isinstance(symbol.type, TensorType) or symbol.dtype not in allowed:
                what = symbol.dtype if isinstance(symbol.type, TensorType) else symbol.type
                raise DTypeError(
                    f"{self.label}: {label} is {what}, which it does not take",
                    operands=_operands_by_label(self, inputs),
                    help=f"it takes {', '.join(sorted(map(str, allowed)))}",
                )

    # Types

    def _types(
        self, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], layer: str
    ) -> tuple[list[Type], bool]:
        """Return the types of all results, and True if the rule returned a single type. Raises at the user's line.

        layer: the prefix of names of new dims of a body.
        """
        types = [None if s is None else s.type for s in inputs]
        roles = _operands_by_label(self, inputs)
        if self._rule is None:
            definition, dims = self.definition(types, attributes, None, roles, layer)
            return [substituted(s.type, dims) for s in definition.body.outputs], len(definition.body.outputs) == 1
        try:
            result = self._rule(*types, **self.signature.python_attributes(attributes))
        except Exception as error:
            raise translate_error(self.label, "its type rule", error, roles) from error
        result_types = list(result) if isinstance(result, (tuple, list)) else [result]
        wrong = [t for t in result_types if not isinstance(t, (TensorType, SequenceType, OptionalType))]
        if wrong or not result_types:
            raise GraphError(
                f"{self.label}: its type rule must return types, got {wrong[0] if wrong else result!r:.80}",
                operands=roles,
                help="return a TensorType, or a tuple of them: TensorType(x.dtype, x.shape)",
            )
        return result_types, not isinstance(result, (tuple, list))

    def read(
        self, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], count: int, layer: str = ""
    ) -> list[Type] | None:
        """Return the result types of a node in a file; None if the type of an operand is unknown.

        Raises:
            GraphcoreError: For a node that does not match the declaration.
        """
        if any(s is not None and isinstance(s.type, OpaqueType) for s in inputs):
            return None
        node_attributes = self.signature.node_attributes(self.label, attributes)
        padded = self._pad_operands(inputs)
        operand_types = [None if s is None else s.type for s in padded]
        key = tuple(operand_types), cache_key(node_attributes)
        types, _ = self._cached_types.get(key, (None, False))
        if types is None:
            self._check_dtypes(padded)
            types, _ = self._cached(key, operand_types, *self._types(padded, node_attributes, layer))
        if count > len(types):
            raise GraphError(
                f"{self.label}: the node has {count} results, but the operator has {len(types)}",
                help="declare the results as the model uses them",
            )
        return list(types[:count])

    def _pad_operands(self, inputs: Sequence[Any]) -> list[Any]:
        """Return operands by position, None for missing ones at the end. Raises `GraphError` for a wrong number."""
        fixed = [o for o in self.signature.operands if not o.is_variadic]
        if len(inputs) > len(fixed) and self.signature.variadic is None:
            raise self.signature.call_error(self.label, f"it takes {counted(len(fixed), 'operand')}, got {len(inputs)}")
        padded = [*inputs, *[None] * (len(fixed) - len(inputs))]
        missing = [o.name for o, value in zip(fixed, padded, strict=False) if value is None and not o.is_optional]
        if missing:
            raise self.signature.call_error(self.label, f"the operand {missing[0]!r} is missing")
        return padded

    def definition(
        self,
        types: Types,
        attributes: Mapping[str, Any],
        results: Sequence[Type] | None,
        roles: Mapping[str, object] | None = None,
        layer: str = "",
    ) -> tuple[Definition, Dims]:
        """Return the definition of the body for operands of these types, and the dims of a call of it.

        Args:
            results: The declared types.

        Raises:
            GraphError: For a body that does not match the declaration.
        """
        assert self._body is not None
        node_attributes = self.signature.node_attributes(self.label, attributes)
        return self._body.definition(self._pad_operands(types), node_attributes, results, roles or {}, layer)


def require_open(label: str) -> None:
    """Raise `GraphError` for a label that is not domain::Name, or of a reserved domain."""
    match = _NAME.fullmatch(label) if isinstance(label, str) else None
    if match is None:
        raise GraphError(
            f"custom_op: the name must be domain::Name, got {label!r:.80}", help="give domain::Name: 'my.domain::Clamp'"
        )
    if _RESERVED.fullmatch(match[1]):
        raise GraphError(f"custom_op: the domain {match[1]!r} is reserved", help="use a domain of your own")


def _operands_by_label(op: CustomOp, inputs: Sequence[Symbol | None]) -> dict[str, Symbol]:
    """Return the operands by their labels, for errors."""
    labels = op.signature.labels(len(inputs))
    return {label: s for label, s in zip(labels, inputs, strict=True) if s is not None}


def _unpickle(domain: str, name: str) -> CustomOp:
    op = lookup(domain, name)
    if op is None:
        raise ModelError(
            f"the operator {domain}::{name} is not declared in this process",
            help=f"import the module with its @gc.custom_op({f'{domain}::{name}'!r}) first",
        )
    return op


def register(op: CustomOp) -> CustomOp:
    """Register a declaration. Raises `GraphError` if the name is declared by another function."""
    before = lookup(op.domain, op.name) if op.domain not in _SHIPPED else _registry.get((op.domain, op.name))
    with _lock:
        if before is not None and not _is_same_declaration(before, op):
            where = f" at {before._line}" if before._line else ""
            raise GraphError(
                f"custom_op: {op.label} is already declared{where}, by another function",
                help="choose another name, or use the existing operator",
            )
        _registry[op.domain, op.name] = op
    return op


def _is_same_declaration(before: CustomOp, op: CustomOp) -> bool:
    """Return True for the same declaration, run again: in a notebook, or by a module that is reloaded."""
    old, new = before._function, op._function
    same = all(getattr(old, a, None) == getattr(new, a, None) for a in ("__module__", "__qualname__"))
    return (same and "<lambda>" not in getattr(new, "__qualname__", "<lambda>")) or old is new
