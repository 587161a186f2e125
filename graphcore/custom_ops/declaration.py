"""Declare custom operators of any domain: `gc.custom_op`.

The node of an operator is plain ONNX. Its declaration is looked up by domain and name to type, read, lower or run the
node. `graphcore.ops.microsoft` declares the runtime's own operators in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack, overload

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


class _Options(TypedDict, total=False):
    promote: str | Mapping[str, str]
    dtypes: Mapping[str, str] | None
    python: Callable[..., Any] | None


class _OptionsOfRule(_Options, total=False):
    body: Callable[..., Any] | None


@overload
def custom_op(name: str, types: Callable[P, _OneType], **options: Unpack[_OptionsOfRule]) -> CustomOp[P, Symbol]: ...
@overload
def custom_op(
    name: str, types: Callable[P, tuple[_OneType, _OneType]], **options: Unpack[_OptionsOfRule]
) -> CustomOp[P, tuple[Symbol, Symbol]]: ...
@overload
def custom_op(
    name: str, types: Callable[P, tuple[_OneType, _OneType, _OneType]], **options: Unpack[_OptionsOfRule]
) -> CustomOp[P, tuple[Symbol, Symbol, Symbol]]: ...
@overload
def custom_op(
    name: str, types: Callable[P, Sequence[_OneType]], **options: Unpack[_OptionsOfRule]
) -> CustomOp[P, tuple[Symbol, ...]]: ...
@overload
def custom_op(name: str, types: Callable[P, Any], **options: Unpack[_OptionsOfRule]) -> CustomOp[P, Any]: ...
@overload
def custom_op(
    name: str, types: None = None, *, body: Callable[P, R], **options: Unpack[_Options]
) -> CustomOp[P, R]: ...
@overload
def custom_op(name: str, types: None = None, *, body: None = None, **options: Unpack[_Options]) -> Declare: ...
def custom_op(
    name: str,
    types: Callable[..., Any] | None = None,
    *,
    promote: str | Mapping[str, str] = NONE,
    dtypes: Mapping[str, str] | None = None,
    body: Callable[..., Any] | None = None,
    python: Callable[..., Any] | None = None,
) -> Any:
    """Declare an operator of any domain; calling the result emits a node.

    Declaring a name again replaces the declaration if it is the same function, defined again.

    Args:
        name: `domain::Name`.
        types: The type rule: a function from the operands' types to the result type, or to a tuple of types. Its
            parameters are the operator's: positional ones are operands (None by default if optional, `*rest` for any
            number), keywords are attributes, with their kind by annotation or default. If it is left out, the result
            is a decorator for it.
        promote: How the graph's system promotes operands: one rule for all, such as "arithmetic" or "float", or rules
            by operands, `{"x bias": "float"}`; "none" does not promote.
        dtypes: The dtypes that operands can have, `{"x": "float32 float64"}`.
        body: A function of Symbols that defines the operator by other ops; without `types` it decides the types, too.
            `op.body` is the decorator for it.
        python: A function of NumPy arrays that computes the operator if there is no body; needs the package
            onnxruntime-extensions. `op.python` is the decorator for it.

    Returns:
        The operator, or a decorator of a type rule.

    Raises:
        GraphError: The name is taken by another function, or names, parameters or rules are invalid.

    Example:
        @gc.custom_op("my.domain::Clamp", promote="arithmetic")
        def clamp(x, *, most: float = 1.0):
            return TensorType(x.dtype, x.shape)

        @clamp.python
        def _(x, *, most): return np.minimum(x, x.dtype.type(most))
    """
    require_open(name)
    line = line_of(user_origin())

    def declare(rule: Callable[..., Any] | None) -> CustomOp:
        for what, function in (("types", rule), ("body", body), ("python", python)):
            if function is not None and not callable(function):
                raise GraphError(
                    f"{name}: {what} must be a function, got {type(function).__name__}", help="give a function"
                )
        op = CustomOp(name, rule, promote, dtypes or {}, body, python, None, line)
        for implementation in (body if rule is not None else None, python):
            if implementation is not None:
                op.signature.check(op.label, implementation)
        return register(op)

    return declare(types) if types is not None or body is not None else declare


# The custom ops whose Python functions a loaded model may call; empty by default.


def callable_labels(custom_ops: Iterable[str | CustomOp[..., Any]]) -> Set[str]:
    """Return the labels of custom ops in a user's argument. Raises `GraphError` for anything else."""
    labels = [
        op.label if isinstance(op, CustomOp) else op for op in ([] if isinstance(custom_ops, str) else custom_ops)
    ]
    if isinstance(custom_ops, str) or not all(isinstance(label, str) and "::" in label for label in labels):
        raise GraphError(
            f"load: custom_ops must be a list of custom ops or their names, got {custom_ops!r:.60}",
            help='for example ["domain::Name"]',
        )
    return frozenset(labels)


def require_callable(domain: str, op_type: str, allowed: Set[str] | None, place: object) -> None:
    """Raise `ModelError` for a node that would call the Python function of a custom op that is not allowed.

    allowed: labels of custom ops; None for all.
    """
    if allowed is None or f"{domain}::{op_type}" in allowed:
        return
    op = lookup(domain, op_type)
    if op is not None and op.implementation is not None and not op.has_body:
        raise ModelError(
            f"load: {place} would call the Python function of {op.label}, which is not allowed by default",
            help=f"if you trust the model, load it with custom_ops=[{op.label!r}]",
        )
