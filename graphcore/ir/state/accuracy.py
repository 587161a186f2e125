"""The accuracy of single nodes: what `with gc.accuracy("fast"):` and `accuracy="fast"` of an op leave in the graph.

A node whose result may be less accurate has an attribute that says so. Passes and surgery hand attributes on, files
have it in the node's metadata, and lowering reads it.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, TypeAlias

from graphcore.errors import GraphError
from graphcore.support.escaping import suggestion

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
