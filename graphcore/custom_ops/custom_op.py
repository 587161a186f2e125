"""Operators that were declared, by domain and name: each makes its nodes, types them, and may be made of a function."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from graphcore.build import operands
from graphcore.custom_ops.signature import NONE, Body, Signature, allowed, frozen, groups, signature_of, translated
from graphcore.errors import DTypeError, GraphError, ModelError
from graphcore.ir.definitions import Definition, Dims, names_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.promotion.rules import Key, Rule
from graphcore.support.parameters import P, R
from graphcore.support.source_lines import Line
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type

Types: TypeAlias = "Sequence[Type | None]"
Kernel: TypeAlias = Callable[[str, Types, Mapping[str, Any], int], bool]
"""(target, types of the operands, attributes, number of results) -> whether the runtime's own kernel is right."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

_CLOSED = re.compile(r"(ai\.onnx|ai\.onnx\..*|graphcore|graphcore\..*)?")
_NAME = re.compile(r"([A-Za-z_][\w.\-]*)::([A-Za-z_]\w*)", re.ASCII)

_KEPT = 512  # signatures of an operator

_SHIPPED = {"com.microsoft": "graphcore.ops.microsoft"}
"""Domains that the library itself declares, and where."""

_registry: dict[tuple[str, str], CustomOp] = {}
_lock = threading.RLock()


def lookup(domain: str, name: str) -> CustomOp | None:
    """Return the declaration of an operator, None where there is none."""
    if domain in _SHIPPED:
        import_module(_SHIPPED[domain])
    return _registry.get((domain, name))


class CustomOp(Generic[P, R]):
    """An operator that was declared: call it on Symbols, arrays and numbers. Made by `gc.custom_op`.

    To type checkers its parameters are the declaration's, and its results Symbols where that has types.
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
        usual: int | None = None,
    ) -> None:
        """usual: how many results a call gives that does not say; None for all."""
        self.domain, _, self.name = label.partition("::")
        self.label = label
        shown = rule if rule is not None else body
        assert shown is not None
        self.signature: Signature = signature_of(label, shown)
        self.implementation = python
        """The Python function that computes it, None where there is none."""
        self.kernel = kernel
        self.unsafe: Callable[[Sequence[object]], str] | None = None
        """Return why the runtime's kernel would end the process on such operands, "" where it would not."""
        self._rule = rule
        self._body = None if body is None else Body(label, self.signature, body)
        self._line = line
        self._usual = usual
        self._answers: dict[Any, tuple[Sequence[Type], bool]] = {}
        self._function = shown
        self._groups = groups(label, self.signature, promote)
        self._dtypes = allowed(label, self.signature, dtypes)
        self.__doc__ = shown.__doc__
        self.__name__ = self.name
        self.__wrapped__ = shown

    def __repr__(self) -> str:
        return f"<custom op {self.label}{self.signature.text}>"

    def __copy__(self) -> CustomOp:
        return self

    def __deepcopy__(self, memo: object) -> CustomOp:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _declared, (self.domain, self.name)

    @property
    def has_body(self) -> bool:
        """True for an operator that is made of graphcore's ops."""
        return self._body is not None

    def body(self, function: _Function) -> _Function:
        """Decorate the function of Symbols that the operator is made of; it takes what the declaration takes.

        Returns the function. Raises `GraphError` for one that takes something else.
        """
        self._checked(function)
        self._body = Body(self.label, self.signature, function)
        self._answers.clear()
        return function

    def python(self, function: _Function) -> _Function:
        """Decorate the function of NumPy arrays that computes the operator; it takes what the declaration takes.

        It gets arrays of its own and returns arrays of the dtypes and shapes declared, one or a tuple of them. Returns
        the function. Raises `GraphError` for one that takes something else.
        """
        self._checked(function)
        self.implementation = function
        return function

    def _checked(self, function: Callable[..., Any]) -> None:
        self.signature.check(self.label, function)

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
        """A node of the operator, in the graph of the Symbols given or the current one.

        arguments, named: operands by position or name and attributes by name, as declared. outputs: how many of the
        results are wanted, the first ones; by default all. Returns a Symbol, or a tuple where the declaration has one.
        Raises `GraphError` for arguments that it does not take, `DTypeError`, `PromotionError` and `ShapeError` for
        operands that it does not take.
        """
        values, said = self.signature.bound(self.label, arguments, named)
        graph = operands.graph_of(self.label, [v for v in values if v is not None])
        attributes = self.signature.held(self.label, said)
        inputs = self._promoted(graph, values)
        types, is_single = self._answer(graph, inputs, attributes, outputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        made = graph.build.emit_many(self.name, tuple(inputs), types, self._told(attributes), self.domain)
        return made[0] if is_single else made

    def _told(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Return a node's attributes. The runtime's own operators omit defaults, which older releases may not know."""
        if self.kernel is None:
            return attributes
        said = self.signature.attributes
        defaults = {n: a.kind.held(a.default) for n, a in said.items() if not a.is_required and a.default is not None}
        return {name: value for name, value in attributes.items() if name not in defaults or defaults[name] != value}

    def _answer(
        self, graph: Graph, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], outputs: int | None
    ) -> tuple[Sequence[Type], bool]:
        """The types of a node's results, and whether a call gives the only one alone; asked once for each signature."""
        given = [None if s is None else s.type for s in inputs]
        key = tuple(given), frozen(attributes), outputs, type(outputs)
        found = self._answers.get(key)
        if found is not None:
            return found
        self._check_dtypes(inputs)
        types, is_single = self._types(inputs, attributes, f"{graph.site.layer}{self.name}_{len(graph.symbols)}_")
        if outputs is not None and (type(outputs) is not int or not 1 <= outputs <= len(types)):
            raise GraphError(f"{self.label}: outputs={outputs!r:.80}, and it has {len(types)} results")
        count = outputs
        if outputs is None and self._usual is not None:
            count, is_single = self._usual, self._usual == 1
        types = types[:count]
        if self._body is not None:
            self.definition(given, attributes, types, _shown(self, inputs))
        if set(names_of(types)) <= set(names_of([t for t in given if t is not None])):  # others are new in each call
            while len(self._answers) >= _KEPT:
                self._answers.pop(next(iter(self._answers)), None)
            self._answers[key] = types, is_single
        return types, is_single

    def _promoted(self, graph: Graph, values: Sequence[Any]) -> list[Symbol | None]:
        labels = self.signature.labels(len(values))
        made: list[Any] = [None] * len(values)
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
                symbols: Sequence[Symbol | None] = [self._as_it_is(graph, label, v) for label, v in roles.items()]
            else:
                given, literals = operands._split(graph, self.label, roles)
                found = operands.resolve(graph, Key(self.label, cast(Rule, rule)), roles, given, literals)
                symbols = operands.apply(graph, self.label, roles, given, literals, found)
            for i, symbol in zip(chosen, symbols, strict=True):
                made[i] = symbol
        return made

    def _as_it_is(self, graph: Graph, label: str, value: Any) -> Symbol:
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
                    operands=_shown(self, inputs),
                    help=f"it takes {', '.join(sorted(map(str, allowed)))}",
                )

    # Types

    def _types(
        self, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], layer: str
    ) -> tuple[list[Type], bool]:
        """The types of all results, and whether the rule gave one alone. Raises at the user's line.

        layer: what the names of dims begin with that a body makes.
        """
        types = [None if s is None else s.type for s in inputs]
        roles = _shown(self, inputs)
        if self._rule is None:
            definition, dims = self.definition(types, attributes, None, roles, layer)
            return [substituted(s.type, dims) for s in definition.body.outputs], len(definition.body.outputs) == 1
        try:
            made = self._rule(*types, **self.signature.given(attributes))
        except Exception as error:
            raise translated(self.label, "its type rule", error, roles) from error
        found = list(made) if isinstance(made, (tuple, list)) else [made]
        wrong = [t for t in found if not isinstance(t, (TensorType, SequenceType, OptionalType))]
        if wrong or not found:
            raise GraphError(
                f"{self.label}: its type rule gave {wrong[0] if wrong else made!r:.80}, which is no type",
                operands=roles,
                help="return a TensorType, or a tuple of them: TensorType(x.dtype, x.shape)",
            )
        return found, not isinstance(made, (tuple, list))

    def read(
        self, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], count: int, layer: str = ""
    ) -> list[Type] | None:
        """The types of a node's results in a model that is read; None where an operand's type is not known.

        Raises `GraphcoreError` for a node that is not as declared.
        """
        if any(s is not None and isinstance(s.type, ForeignType) for s in inputs):
            return None
        held = self.signature.held(self.label, attributes)
        given = self._padded(inputs)
        self._check_dtypes(given)
        types, _ = self._types(given, held, layer)
        if count > len(types):
            raise GraphError(f"{self.label}: {count} results are asked for, and it has {len(types)}")
        return types[:count]

    def _padded(self, inputs: Sequence[Any]) -> list[Any]:
        """Operands by position, None for those after the last one. Raises `GraphError` for too few or too many."""
        fixed = [o for o in self.signature.operands if not o.is_variadic]
        if len(inputs) > len(fixed) and self.signature.variadic is None:
            raise self.signature.misused(self.label, f"it takes {len(fixed)} operands, and has {len(inputs)}")
        made = [*inputs, *[None] * (len(fixed) - len(inputs))]
        missing = [o.name for o, value in zip(fixed, made, strict=False) if value is None and not o.is_optional]
        if missing:
            raise self.signature.misused(self.label, f"the operand {missing[0]!r} is missing")
        return made

    def definition(
        self,
        types: Types,
        attributes: Mapping[str, Any],
        results: Sequence[Type] | None,
        roles: Mapping[str, object] | None = None,
        layer: str = "",
    ) -> tuple[Definition, Dims]:
        """The function that the operator is made of for operands of these types, and the dims of a call of it.

        results: the types that it must give. Raises `GraphError` for a body that does not go with the declaration.
        """
        assert self._body is not None
        held = self.signature.held(self.label, attributes)
        return self._body.definition(self._padded(types), held, results, roles or {}, layer)


def require_open(label: str) -> None:
    """Raise `GraphError` for a label that is not domain::Name, or of a domain that is closed."""
    found = _NAME.fullmatch(label) if isinstance(label, str) else None
    if found is None:
        raise GraphError(f"custom_op: {label!r:.80} names no operator", help="give domain::Name: 'my.domain::Clamp'")
    if _CLOSED.fullmatch(found[1]):
        raise GraphError(f"custom_op: the domain {found[1]!r} is not open", help="choose a domain of your own")


def _shown(op: CustomOp, inputs: Sequence[Symbol | None]) -> dict[str, Symbol]:
    """The operands as errors show them."""
    labels = op.signature.labels(len(inputs))
    return {label: s for label, s in zip(labels, inputs, strict=True) if s is not None}


def _declared(domain: str, name: str) -> CustomOp:
    found = lookup(domain, name)
    if found is None:
        raise ModelError(
            f"{domain}::{name} is not declared here",
            help=f"declare it first: import the module with its @gc.custom_op({f'{domain}::{name}'!r})",
        )
    return found


def register(op: CustomOp) -> CustomOp:
    """Register a declaration. Raises `GraphError` where another has its name."""
    before = lookup(op.domain, op.name) if op.domain not in _SHIPPED else _registry.get((op.domain, op.name))
    with _lock:
        if before is not None and not _is_again(before, op):
            where = f" at {before._line}" if before._line else ""
            raise GraphError(
                f"custom_op: {op.label} is declared already{where}, by another function",
                help="choose another name, or use the one declared",
            )
        _registry[op.domain, op.name] = op
    return op


def _is_again(before: CustomOp, op: CustomOp) -> bool:
    """Return whether a declaration is the one before, run again: in a notebook, or by a module that is reloaded."""
    old, new = before._function, op._function
    same = all(getattr(old, a, None) == getattr(new, a, None) for a in ("__module__", "__qualname__"))
    return (same and "<lambda>" not in getattr(new, "__qualname__", "<lambda>")) or old is new
