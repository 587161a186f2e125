# Made by docs/make_stubs.py from ONNX's schemas.
# fmt: off
# ruff: noqa: E501, N802

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.types.dtypes import DType

_V: TypeAlias = TensorLike | str | Sequence[Any]  # an operand
_I: TypeAlias = int | DType
_S: TypeAlias = str | bytes
_Is: TypeAlias = Sequence[int]
_Fs: TypeAlias = Sequence[float]
_Ss: TypeAlias = Sequence[str] | Sequence[bytes]
_Body: TypeAlias = Graph | Callable[..., Any]

def Adagrad(R: _V, T: _V, *inputs: _V, decay_factor: float = 0.0, epsilon: float = 1e-06, norm_coefficient: float = 0.0, outputs: int | None = None) -> list[Symbol]: ...
def Adam(R: _V, T: _V, *inputs: _V, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-06, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0, outputs: int | None = None) -> list[Symbol]: ...
def Gradient(*Inputs: _V, xs: _Ss, y: _S, zs: _Ss | None = None, outputs: int | None = None) -> list[Symbol]: ...
def Momentum(R: _V, T: _V, *inputs: _V, alpha: float, beta: float, mode: _S, norm_coefficient: float, outputs: int | None = None) -> list[Symbol]: ...
