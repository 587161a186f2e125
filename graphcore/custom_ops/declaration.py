"""Operators of any domain that users declare: `gc.custom_op`.

A declaration is looked up by domain and name where a node is typed, read, lowered or run; the node itself is plain
ONNX. `graphcore.ops.microsoft` declares the runtime's own operators in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeAlias, overload

from graphcore.custom_ops.custom_op import CustomOp, lookup, register, require_open
from graphcore.custom_ops.signature import NONE
from graphcore.errors import GraphError, ModelError
from graphcore.ir.symbol import Symbol
from graphcore.support.parameters import P, R
from graphcore.support.source_lines import line_of, user_origin
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType

_OneType: TypeAlias = TensorType | SequenceType | OptionalType


class Declare(Protocol):
    """The decorator of a type rule that `custom_op` returns."""

    @overload
    def __call__(self, types: Callable[P, _OneType], /) -> CustomOp[P, Symbol]: ...
    @overload
    def __call__(self, types: Callable[P, tuple[_OneType, _OneType]], /) -> CustomOp[P, tuple[Symbol, Symbol]]: ...
    @overload
    def __call__(
        self, types: Callable[P, tuple[_OneType, _OneType, _OneType]], /
    ) -> CustomOp[P, tuple[Symbol, Symbol, Symbol]]: ...
    @overload
    def __call__(self, types: Callable[P, Sequence[_OneType]], /) -> CustomOp[P, tuple[Symbol, ...]]: ...
    @overload
    def __call__(self, types: Callable[P, Any], /) -> CustomOp[P, Any]: ...


@overload
def custom_op(
    name: str,
    types: Callable[P, _OneType],
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, Symbol]: ...
@overload
def custom_op(
    name: str,
    types: Callable[P, tuple[_OneType, _OneType]],
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, tuple[Symbol, Symbol]]: ...
@overload
def custom_op(
    name: str,
    types: Callable[P, tuple[_OneType, _OneType, _OneType]],
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, tuple[Symbol, Symbol, Symbol]]: ...
@overload
def custom_op(
    name: str,
    types: Callable[P, Sequence[_OneType]],
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, tuple[Symbol, ...]]: ...
@overload
def custom_op(
    name: str,
    types: Callable[P, Any],
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, Any]: ...
@overload
def custom_op(
    name: str,
    types: None = None,
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[P, R],
    python: Callable[..., Any] | None = None,
) -> CustomOp[P, R]: ...
@overload
def custom_op(
    name: str,
    types: None = None,
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: None = None,
    python: Callable[..., Any] | None = None,
) -> Declare: ...
def custom_op(
    name: str,
    types: Callable[..., Any] | None = None,
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> Any:
    """Declare an operator of any domain; calling it makes a node.

    name: `domain::Name`. types: a function from the operands' types to the result's, or to a tuple of results'; what is
    left out decorates it. Its parameters are the operator's: positional ones are operands (optional ones are None by
    default, `*rest` takes any number), keywords are attributes, of the kind that their annotation or default says.
    promote: how operands meet, by the graph's system: one rule for all, such as "arithmetic" or "float", or rules by
    operands, `{"x bias": "float"}`; "none" leaves them as they are. dtypes: the dtypes that operands may have,
    `{"x": "float32 float64"}`. body: a function of Symbols that the operator is made of; without `types` it says the
    types too. python: a function of NumPy arrays that computes it where there is no body; that takes the package
    onnxruntime-extensions. `op.body` and `op.python` decorate them.

    Declaring a name again replaces the declaration if it is the same function, defined again, and else raises
    `GraphError`, as names, parameters and rules that are none do.

        @gc.custom_op("my.domain::Clamp", promote="arithmetic")
        def clamp(x, *, most: float = 1.0):
            return TensorType(x.dtype, x.shape)

        @clamp.python
        def _(x, *, most): return np.minimum(x, x.dtype.type(most))
    """
    require_open(name)
    line = line_of(user_origin())

    def declare(rule: Callable[..., Any] | None) -> CustomOp:
        for what, given in (("types", rule), ("body", body), ("python", python)):
            if given is not None and not callable(given):
                raise GraphError(f"{name}: {what} is a {type(given).__name__}", help="give a function")
        made = CustomOp(name, rule, promote, dtypes or {}, body, python, None, line)
        for other in (body if rule is not None else None, python):
            if other is not None:
                made._checked(other)
        return register(made)

    return declare(types) if types is not None or body is not None else declare


# Leave to call the Python functions of custom ops: a model that is loaded has none but those that its user names.


def called(custom_ops: Iterable[str | CustomOp[..., Any]]) -> Set[str]:
    """Return the labels of custom ops that a user names. Raises `GraphError` for what names none."""
    found = [op.label if isinstance(op, CustomOp) else op for op in ([] if isinstance(custom_ops, str) else custom_ops)]
    if isinstance(custom_ops, str) or not all(isinstance(label, str) and "::" in label for label in found):
        raise GraphError(
            f"load: custom_ops={custom_ops!r:.60} are no custom ops",
            help='give a list of what gc.custom_op made, or of their names: ["domain::Name"]',
        )
    return frozenset(found)


def require_callable(domain: str, op_type: str, allowed: Set[str] | None, place: object) -> None:
    """Raise `ModelError` where a node would call a Python function of a custom op that its user did not name.

    allowed: the labels of those named; None for all.
    """
    if allowed is None or f"{domain}::{op_type}" in allowed:
        return
    op = lookup(domain, op_type)
    if op is not None and op.implementation is not None and not op.has_body:
        raise ModelError(
            f"load: {place} calls the Python function of {op.label}, which a model may only where you say so",
            help=f"if you trust the model with it, load it with custom_ops=[{op.label!r}]",
        )
