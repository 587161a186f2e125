"""Recurrent networks of empty operands: onnxruntime's GRU and LSTM end the process without sequences or steps."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

ENDS: dict[str, dict[int, str]] = {
    "GRU": {0: "GRU without steps", 1: "GRU without sequences"},
    "LSTM": {1: "LSTM without sequences"},
    "RNN": {0: "RNN without steps"},
}
"""The axes of X of which a length of 0 is a trap, and its name: 0 is the steps, 1 the sequences."""
_FEATURELESS = "GRU without features"


def occupied(b: Builder, call: Call) -> Replacement:
    """Compute the operator on at least one step of at least one sequence: pad with zeros, and cut the result.

    Without steps the last states are the first ones. None where no axis can be empty. Raises `GraphError` for a GRU
    without features.
    """
    x, w, r, bias, ends, h, c, peepholes = [*call.inputs, *[None] * 8][:8]
    assert x is not None
    assert w is not None
    shape = x.type.shape
    trapped = {axis for axis, trap in ENDS.get(call.op, {}).items() if b.rules.has_trap(trap)}
    if not shape.is_ranked or len(shape) != 3:
        return None
    features = w.shape[2] if w.shape.is_ranked and len(w.shape) == 3 else None
    is_featureless = call.op == "GRU" and features is not None and features.is_static and not int(features)
    if is_featureless and b.rules.has_trap(_FEATURELESS):
        raise GraphError("GRU: it has no features, which onnxruntime does not survive", operands={"X": x, "W": w})
    axes = [a for a in sorted(trapped) if not (shape[a].is_static and int(shape[a]))]
    if not axes:
        return None
    sizes = {a: b.op("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=a, end=a + 1) for a in axes}
    lacking = {a: b.op("Max", b.op("Sub", b.vector([1]), n), b.vector([0])) for a, n in sizes.items()}
    given = [
        _padded(b, x, lacking),
        w,
        r,
        bias,
        _padded(b, ends, {0: lacking[1]} if 1 in axes else {}),
        _padded(b, h, {1: lacking[1]} if 1 in axes else {}),
        _padded(b, c, {1: lacking[1]} if 1 in axes else {}),
        peepholes,
    ][: len(call.inputs)]
    wide = [_loose(t, (0, 2) if i == 0 else (1,)) for i, t in enumerate(call.types)]
    made = list(b.emit_many(call.op, tuple(given), wide, call.attributes))
    made[0] = _cut(b, made[0], {0: sizes.get(0), 2: sizes.get(1)}, call.types[0])
    for i in range(1, len(made)):
        state = _cut(b, made[i], {1: sizes.get(1)}, call.types[i])
        if 0 in axes:
            first = h if h is not None else b.scalar(0.0, state.dtype)
            nothing = b.op("Equal", sizes[0], b.vector([0]), dtype=DType.bool)
            state = b.op("Where", nothing, first, state, dtype=state.dtype, shape=call.types[i].shape)
        made[i] = state
    return tuple(made)


def _padded(b: Builder, x: Symbol | None, lacking: dict[int, Symbol]) -> Symbol | None:
    """Return the tensor with as many zeros appended to each axis as it lacks."""
    if x is None or not lacking:
        return x
    rank = len(x.shape)
    zero = b.vector([0])
    pads = b.op(
        "Concat",
        b.vector([0] * rank),
        *(lacking.get(a, zero) for a in range(rank)),
        shape=_shape([Dim(2 * rank)]),
        axis=0,
    )
    return b.op("Pad", x, pads, shape=_loose(x.type, tuple(lacking)).shape)


def _cut(b: Builder, x: Symbol, sizes: dict[int, Symbol | None], type_: TensorType) -> Symbol:
    """Return the tensor cut to a size along each axis that has one."""
    for axis, size in sizes.items():
        if size is not None:
            x = b.op("Slice", x, b.vector([0]), size, b.vector([axis]), shape=type_.shape)
    return x


def _loose(type_: TensorType, axes: Sequence[int]) -> TensorType:
    """Return the type with nothing known of some axes."""
    shape: Shape = type_.shape
    if not shape.is_ranked:
        return type_
    return tensor_type(type_.dtype, _shape([Dim.dynamic() if a in axes else d for a, d in enumerate(shape)]))
