# Made by docs/make_stubs.py from ONNX's schemas.
# fmt: off
# ruff: noqa: E501, N802

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.onnx.preview import training as training
from graphcore.types.dtypes import DType

_V: TypeAlias = TensorLike | str | Sequence[Any]  # an operand
_I: TypeAlias = int | DType
_S: TypeAlias = str | bytes
_Is: TypeAlias = Sequence[int]
_Fs: TypeAlias = Sequence[float]
_Ss: TypeAlias = Sequence[str] | Sequence[bytes]
_Body: TypeAlias = Graph | Callable[..., Any]

def FlexAttention(Q: _V, K: _V, V: _V, *, prob_mod: _Body | None = None, scale: float | None = None, score_mod: _Body | None = None, softmax_precision: _I | None = None) -> Symbol: ...
