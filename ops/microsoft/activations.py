"""Activations with a bias drawn in."""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.ops.activation import gelu, sigmoid
from graphcore.ops.microsoft._declare import FLOATS, contrib, rounded_once


@contrib(promote="float", dtypes={"X": FLOATS}, kernels="float32")
@rounded_once()
def Gelu(X: Symbol) -> Symbol:  # noqa: N802 - the operator's name
    """x * Phi(x), by the error function. X: floats of any shape. Returns its type."""
    return gelu(X)


@contrib(promote="float", dtypes={"A B": FLOATS}, kernels="float32")
@rounded_once()
def BiasGelu(A: Symbol, B: Symbol) -> Symbol:  # noqa: N802
    """gelu(A + B). A: [..., size]; B: [size]. Returns the type of A."""
    return gelu(_biased(A, B))


@contrib(promote="float", dtypes={"X bias": FLOATS}, kernels="float32")
@rounded_once()
def FastGelu(X: Symbol, bias: Symbol | None = None) -> Symbol:  # noqa: N802
    """gelu(X + bias) with tanh in place of the error function. X: [..., size]; bias: [size]. Returns the type of X."""
    return gelu(X if bias is None else _biased(X, bias), approximate="tanh")


@contrib(promote="float", dtypes={"X": FLOATS}, note="the kernel's sigmoid is further off than 4 ulp in its tail")
@rounded_once()
def QuickGelu(X: Symbol, *, alpha: float = 1.702) -> Symbol:  # noqa: N802
    """X * sigmoid(alpha * X). X: floats of any shape. Returns its type."""
    return X * sigmoid(X * alpha)


@contrib(promote="float", dtypes={"X bias skip": FLOATS}, note="the CPU has no kernel")
@rounded_once()
def BiasAdd(X: Symbol, bias: Symbol, skip: Symbol) -> Symbol:  # noqa: N802
    """X + bias + skip. X, skip: [batch, positions, size]; bias: [size]. Returns the type of X."""
    return _biased(X, bias) + skip


def _biased(x: Symbol, bias: Symbol) -> Symbol:
    if x.rank < 1 or bias.rank != 1:
        raise ValueError(f"a bias has one axis, the last one of what it is added to, not shape {bias.shape}")
    made = x + bias
    if made.rank != x.rank or made.shape[-1] != x.shape[-1]:
        raise ValueError(f"a bias of {bias.shape[0]} numbers is added to {x.shape[-1]}")
    return made
