"""Settings stored in a graph: the accuracy of single nodes, and the minimum sizes of named dims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, TypeAlias

from graphcore.errors import GraphError
from graphcore.support.escaping import suggestion
from graphcore.types.dim_polynomial import BOUND, MAX_BOUND, parse
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

NOTE = "graphcore.dims"
"""The metadata key of the lower bounds by name, as JSON."""


def without_minima(type_: Type, metadata: dict[str, str]) -> Type:
    """Return the type of an input without the lower bounds of its dims, which are stored in the metadata."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(BOUND in str(dim) for dim in type_.shape):
        return type_
    bounds = minima(metadata)

    def plain(text: int | str) -> Dim:
        dim = Dim(text)
        if dim.name is None:
            return dim
        bounds[dim.name] = max(dim.min, bounds.get(dim.name, 0))
        return Dim(dim.name)

    dims = [parse(str(dim), plain, {"max": Dim.maximum, "min": Dim.minimum}) for dim in type_.shape]
    metadata[NOTE] = json.dumps({name: least for name, least in sorted(bounds.items()) if least})
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def minima(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the lower bounds in the metadata by the names of dims; none if the untrusted note is invalid."""
    text = metadata.get(NOTE)
    if text is None:
        return {}
    try:
        bounds = json.loads(text)
        return {
            Dim(name).name or "": Dim(name, min=least).min for name, least in bounds.items() if 0 < least <= MAX_BOUND
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def with_minima(type_: Type, bounds: Mapping[str, int]) -> Type:
    """Return the type of an input with the lower bounds of its dims."""
    if not bounds or not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(dim.name in bounds for dim in type_.shape):
        return type_
    dims = [dim if dim.name is None else Dim(dim, min=bounds.get(dim.name, 0)) for dim in type_.shape]
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def least(dim: Dim, bounds: Mapping[str, int]) -> int:
    """Return a lower bound of a dim, from the lower bounds of names."""
    bounded = dim.substitute({name: Dim(name, min=bounds[name]) for name in dim.parameters & bounds.keys()})
    return bounded.lower_bound or 0


# The accuracy of single nodes, set by `with gc.accuracy("fast"):` and `accuracy="fast"` of an op.
#
# A node whose result may be less accurate has an attribute. Passes and surgery copy attributes, files store it in the
# metadata of the node, and lowering reads it.

Accuracy: TypeAlias = Literal["exact", "fast"]

LEVELS: tuple[Accuracy, ...] = ("exact", "fast")

KEY = "accuracy"
"""The name of the attribute. No operator of ONNX has an attribute of this name."""
FAST = "fast"

OPERATORS = frozenset(
    "Acos Acosh Add Asin Asinh Atan Atan2 Atanh Celu Cos Cosh Div Elu Erf Exp Exp10 Exp2 Expm1 Fma Gelu Gemm "
    "HardSigmoid HardSwish Log Log10 Log1p Log2 LogAddExp LogSoftmax MatMul Mish Mul Pow Reciprocal ReduceMean "
    "ReduceProd ReduceSum Rsqrt Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Square Sub Swish Tan Tanh".split()
)
"""The operators with a fast form: those whose results are rounded."""

current: ContextVar[str | None] = ContextVar("accuracy", default=None)
"""The attribute value of new nodes; None for no attribute."""


class accuracy:  # noqa: N801 - a context manager, called like a function
    """Allow ops that are built in a block to be less accurate where that is faster: `with gc.accuracy("fast"):`.

    Under "fast", float16, bfloat16, float8 and tensor_float32 values are not rounded between two such ops, and some
    functions have shorter forms: see docs/numbers.md. The setting applies to the current thread or asyncio task. Blocks
    nest.

    Args:
        level: "fast" or "exact". Outside of all blocks it is "exact".

    Raises:
        GraphError: The level is unknown.

    Example:
        with gc.accuracy("fast"):
            y = ops.exp2(x) / z
    """

    __slots__ = ("_level", "_tokens")

    def __init__(self, level: Accuracy) -> None:
        if level not in LEVELS:
            raise GraphError(
                f"accuracy: unknown level {level!r}",
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
    """Return True if the attributes of a node allow it to be less accurate."""
    return bool(attributes) and attributes.get(KEY) == FAST


def without(attributes: Any) -> Any:
    """Return the attributes of a node without the accuracy."""
    return {k: v for k, v in attributes.items() if k != KEY} if KEY in attributes else attributes
