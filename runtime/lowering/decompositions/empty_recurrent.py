"""Recurrent networks of nothing: onnxruntime's GRU and LSTM end the process where there are no sequences or steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_ENDS: dict[str, dict[int, str]] = {
    "GRU": {0: "GRU without steps", 1: "GRU without sequences"},
    "LSTM": {1: "LSTM without sequences"},
    "RNN": {0: "RNN without steps"},
}
"""The axes of X of which a length of 0 is a trap, and its name: 0 is the steps, 1 the sequences."""
_FEATURELESS = "GRU without features"


def occupied(on: Legaliser, op: str, inputs: Inputs, types: Sequence[Any], attributes: dict[str, Any]) -> Made:
    """The operator on at least one step of at least one sequence, made of zeros and cut off again.

    Without steps the last states are the first ones. None where no axis can be empty. Raises `GraphError` for a GRU
    without features.
    """
    x, w, r, bias, ends, h, c, peepholes = [*inputs, *[None] * 8][:8]
    assert x is not None
    assert w is not None
    shape = x.type.shape
    trapped = {axis for axis, trap in _ENDS.get(op, {}).items() if on.rules.has_trap(trap)}
    if not shape.is_ranked or len(shape) != 3:
        return None
    features = w.shape[2] if w.shape.is_ranked and len(w.shape) == 3 else None
    is_featureless = op == "GRU" and features is not None and features.is_static and not int(features)
    if is_featureless and on.rules.has_trap(_FEATURELESS):
        raise GraphError("GRU: it has no features, which onnxruntime does not survive", operands={"X": x, "W": w})
    axes = [a for a in sorted(trapped) if not (shape[a].is_static and int(shape[a]))]
    if not axes:
        return None
    sizes = {a: on.op("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=a, end=a + 1) for a in axes}
    lacking = {a: on.op("Max", on.op("Sub", on.ints([1]), n), on.ints([0])) for a, n in sizes.items()}
    given = [
        _padded(on, x, lacking),
        w,
        r,
        bias,
        _padded(on, ends, {0: lacking[1]} if 1 in axes else {}),
        _padded(on, h, {1: lacking[1]} if 1 in axes else {}),
        _padded(on, c, {1: lacking[1]} if 1 in axes else {}),
        peepholes,
    ][: len(inputs)]
    wide = [_loose(t, (0, 2) if i == 0 else (1,)) for i, t in enumerate(types)]
    made = list(on.graph._emit_many(op, tuple(given), wide, attributes))
    made[0] = _cut(on, made[0], {0: sizes.get(0), 2: sizes.get(1)}, types[0])
    for i in range(1, len(made)):
        state = _cut(on, made[i], {1: sizes.get(1)}, types[i])
        if 0 in axes:
            first = h if h is not None else on.const(0.0, state.dtype)
            nothing = on.op("Equal", sizes[0], on.ints([0]), dtype=DType.bool)
            state = on.op("Where", nothing, first, state, dtype=state.dtype, shape=types[i].shape)
        made[i] = state
    return tuple(made)


def _padded(on: Legaliser, x: Symbol | None, lacking: dict[int, Symbol]) -> Symbol | None:
    """The tensor with as many zeros behind each axis as it lacks."""
    if x is None or not lacking:
        return x
    rank = len(x.shape)
    zero = on.ints([0])
    pads = on.op(
        "Concat",
        on.ints([0] * rank),
        *(lacking.get(a, zero) for a in range(rank)),
        shape=_shape([Dim(2 * rank)]),
        axis=0,
    )
    return on.op("Pad", x, pads, shape=_loose(x.type, tuple(lacking)).shape)


def _cut(on: Legaliser, x: Symbol, sizes: dict[int, Symbol | None], type_: TensorType) -> Symbol:
    """The tensor up to a size along each axis that has one."""
    for axis, size in sizes.items():
        if size is not None:
            x = on.op("Slice", x, on.ints([0]), size, on.ints([axis]), shape=type_.shape)
    return x


def _loose(type_: TensorType, axes: Sequence[int]) -> TensorType:
    """The type with nothing known of some axes."""
    shape: Shape = type_.shape
    if not shape.is_ranked:
        return type_
    return tensor_type(type_.dtype, _shape([Dim.dynamic() if a in axes else d for a, d in enumerate(shape)]))
