"""Settings kept in a graph: the accuracy of single nodes, and the least sizes of named dims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, TypeAlias

from graphcore.errors import GraphError
from graphcore.support.escaping import suggestion
from graphcore.types.dim_polynomial import BOUND, MOST, parse
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

NOTE = "graphcore.dims"
"""The key of the note: the bounds by name, as JSON."""


def without_minima(type_: Type, metadata: dict[str, str]) -> Type:
    """Return the type of an input with its dims called by their names alone, after noting the bounds that it states."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(BOUND in str(dim) for dim in type_.shape):
        return type_
    found = minima(metadata)

    def plain(text: int | str) -> Dim:
        dim = Dim(text)
        if dim.name is None:
            return dim
        found[dim.name] = max(dim.min, found.get(dim.name, 0))
        return Dim(dim.name)

    dims = [parse(str(dim), plain, {"max": Dim.maximum, "min": Dim.minimum}) for dim in type_.shape]
    metadata[NOTE] = json.dumps({name: least for name, least in sorted(found.items()) if least})
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def minima(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the bounds that a graph notes, by the names of dims; none where the note, which is untrusted, is wrong."""
    text = metadata.get(NOTE)
    if text is None:
        return {}
    try:
        found = json.loads(text)
        return {Dim(name).name or "": Dim(name, min=least).min for name, least in found.items() if 0 < least <= MOST}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def with_minima(type_: Type, known: Mapping[str, int]) -> Type:
    """Return the type of an input with the bounds of its dims."""
    if not known or not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(dim.name in known for dim in type_.shape):
        return type_
    dims = [dim if dim.name is None else Dim(dim, min=known.get(dim.name, 0)) for dim in type_.shape]
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def least(dim: Dim, known: Mapping[str, int]) -> int:
    """Return a number that a dim is never below, for names that have these bounds."""
    bounded = dim.substitute({name: Dim(name, min=known[name]) for name in dim.parameters & known.keys()})
    return bounded.lower_bound or 0


# The accuracy of single nodes: what `with gc.accuracy("fast"):` and `accuracy="fast"` of an op leave in the graph.
#
# A node whose result may be less accurate has an attribute that says so. Passes and surgery hand attributes on, files
# have it in the node's metadata, and lowering reads it.

Accuracy: TypeAlias = Literal["exact", "fast"]

LEVELS: tuple[Accuracy, ...] = ("exact", "fast")

KEY = "accuracy"
"""The name of the attribute; no operator of ONNX has one of this name."""
FAST = "fast"

OPERATORS = frozenset(
    "Acos Acosh Add Asin Asinh Atan Atan2 Atanh Celu Cos Cosh Div Elu Erf Exp Exp10 Exp2 Expm1 Fma Gelu Gemm "
    "HardSigmoid HardSwish Log Log10 Log1p Log2 LogSoftmax MatMul Mish Mul Pow Reciprocal ReduceMean ReduceProd "
    "ReduceSum Rsqrt Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Square Sub Swish Tan Tanh".split()
)
"""The operators that have a fast form: those whose results are rounded."""

current: ContextVar[str | None] = ContextVar("accuracy", default=None)
"""The mark of the nodes that are being built; None for no mark."""


class accuracy:  # noqa: N801 - a context manager, called like a function
    """Let what is built in a block be less accurate where that is faster: `with gc.accuracy("fast"):`.

    level: "fast" or "exact", which is what it is outside of all blocks. Under "fast" a float16, bfloat16, float8 or
    tensor_float32 is not rounded between one such op and the next, and some functions have shorter forms: see
    docs/numbers.md. It counts for the thread, or asyncio task, that the block runs in; blocks nest. Raises `GraphError`
    for another level.

        with gc.accuracy("fast"):
            y = ops.exp2(x) / z
    """

    __slots__ = ("_level", "_tokens")

    def __init__(self, level: Accuracy) -> None:
        if level not in LEVELS:
            raise GraphError(
                f"accuracy: there is no level {level!r}",
                help=f"{suggestion(level, LEVELS)}use one of {', '.join(map(repr, LEVELS))}",
            )
        self._level = FAST if level == FAST else None
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(current.set(self._level))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current.reset(self._tokens.pop())


def is_fast(attributes: Any) -> bool:
    """Return whether a node's attributes say that it may be less accurate."""
    return bool(attributes) and attributes.get(KEY) == FAST


def without(attributes: Any) -> Any:
    """Return a node's attributes without what they say of accuracy."""
    return {k: v for k, v in attributes.items() if k != KEY} if KEY in attributes else attributes
