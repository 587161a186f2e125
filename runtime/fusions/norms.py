"""Normalisations written as means and roots: what PyTorch exports, and other spellings than onnxruntime knows."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol, array_of
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.matching import is_float32, node_of, number_of
from graphcore.types.tensor_types import TensorType

_NORMS = ("LayerNormalization", "RMSNormalization")


def normalised(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """x / sqrt(mean(x * x) + eps), the same of x less its mean, and either times a reciprocal."""
    pairs = [inputs] if node.op_type == "Div" else [inputs, inputs[::-1]]
    for x, root in pairs:
        epsilon = _epsilon(x, root if node.op_type == "Div" else _reciprocal(root))
        if epsilon is not None and x is not None:
            break
    else:
        return None
    if x.type is not node.outputs[0].type or not x.shape[-1].is_static or not int(x.shape[-1]):
        return None
    whole = _less_its_mean(x)
    source, operator = (x, "RMSNormalization") if whole is None else (whole, "LayerNormalization")
    ones = sweep.constant(node, np.ones(int(x.shape[-1]), np.float32))
    return sweep.add(node, operator, (source, ones), x.type, {"axis": -1, "epsilon": epsilon})


def scaled(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """A normalisation times a vector, which is its scale."""
    for made, scale in (inputs, inputs[::-1]):
        norm = node_of(made, *_NORMS)
        if norm is None or made is None or scale is None or len(norm.inputs) > 2 or not _is_vector(scale, made):
            continue
        held = array_of(norm.inputs[1])
        if held is None or not (held == 1).all() or made.type is not node.outputs[0].type:
            continue
        return sweep.add(node, norm.op_type, (norm.inputs[0], scale), made.type, norm.attributes)
    return None


def shifted(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """A layer normalisation plus a vector, which is its bias."""
    for made, bias in (inputs, inputs[::-1]):
        norm = node_of(made, "LayerNormalization")
        if norm is None or made is None or bias is None or len(norm.inputs) > 2 or not _is_vector(bias, made):
            continue
        if made.type is not node.outputs[0].type:
            continue
        return sweep.add(node, norm.op_type, (*norm.inputs, bias), made.type, norm.attributes)
    return None


def _is_vector(symbol: Symbol, beside: Symbol) -> bool:
    """Whether it has one number for each place of the last axis."""
    return is_float32(symbol) and symbol.rank == 1 and symbol.shape[0] == beside.shape[-1]


def _reciprocal(symbol: Symbol | None) -> Symbol | None:
    """What a Symbol is one over."""
    node = node_of(symbol, "Reciprocal", "Div")
    if node is None:
        return None
    if node.op_type == "Reciprocal":
        return node.inputs[0]
    return node.inputs[1] if number_of(node.inputs[0]) == 1 else None


def _epsilon(x: Symbol | None, root: Symbol | None) -> float | None:
    """What is added to the mean of the squares of `x`, of which `root` is the square root."""
    square_root = node_of(root, "Sqrt")
    total = None if square_root is None else node_of(square_root.inputs[0], "Add")
    if total is None or x is None or not is_float32(x) or not x.rank:
        return None
    for mean, added in (total.inputs, total.inputs[::-1]):
        epsilon, averaged = number_of(added), _mean_along_last(mean)
        if epsilon is not None and epsilon > 0 and averaged is not None and _square_root_of(averaged) is x:
            return epsilon
    return None


def _mean_along_last(symbol: Symbol | None) -> Symbol | None:
    """What a Symbol is the mean of along the last axis, which stays as one of 1."""
    node = node_of(symbol, "ReduceMean")
    if node is None or len(node.inputs) < 2 or not node.attributes.get("keepdims", 1):
        return None
    x, axes = node.inputs[0], array_of(node.inputs[1])
    if x is None or axes is None or axes.size != 1 or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    return x if int(axes.reshape(-1)[0]) in (-1, x.rank - 1) else None


def _square_root_of(symbol: Symbol) -> Symbol | None:
    """What a Symbol is the square of."""
    node = node_of(symbol, "Mul", "Pow")
    if node is None:
        return None
    x, other = node.inputs
    is_square = x is other if node.op_type == "Mul" else number_of(other) == 2
    return x if is_square else None


def _less_its_mean(symbol: Symbol) -> Symbol | None:
    """What a Symbol is, less its mean along the last axis."""
    node = node_of(symbol, "Sub")
    return node.inputs[0] if node is not None and _mean_along_last(node.inputs[1]) is node.inputs[0] else None
