"""Recurrent networks of empty operands: onnxruntime's end the process, or give what lay in memory before."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

ENDS: dict[str, dict[int, str]] = {
    "GRU": {0: "GRU without steps", 1: "GRU without sequences", 2: "GRU without features"},
    "LSTM": {1: "LSTM without sequences", 2: "LSTM without features"},
    "RNN": {0: "RNN without steps"},
}
"""The axes of X of which a length of 0 is a trap, and its name: 0 is the steps, 1 the sequences, 2 the features."""
FEATURES = 2
FLAT = "recurrent operators of fewer axes"
"""A trap of models that run as they are; here a Pad refuses operands of another rank than 3."""
_UNKNOWN = _shape([Dim.dynamic()] * 3)


def occupied(b: Builder, call: Call) -> Replacement:
    """Compute the operator on at least one step of at least one sequence: pad with zeros, and cut the result.

    Without steps the last states are the first ones; a feature of zeros changes nothing. None where no axis can be
    empty.
    """
    x, w, r, bias, ends, h, c, peepholes = [*call.inputs, *[None] * 8][:8]
    assert x is not None
    assert w is not None
    shapes = {0: x.type.shape, FEATURES: w.type.shape}
    # Of what has another rank the kernel says so.
    for place, shape in shapes.items():
        if not shape.is_ranked:
            shapes[place] = _UNKNOWN
        elif len(shape) != 3:
            return None
    # Features of X and W that differ are refused by the kernel, in words.
    lengths = {0: shapes[0][0], 1: shapes[0][1], FEATURES: shapes[FEATURES][FEATURES]}
    trapped = {axis for axis, trap in ENDS.get(call.op, {}).items() if b.rules.has_trap(trap)}
    axes = [a for a in sorted(trapped) if not (lengths[a].is_static and int(lengths[a]))]
    if not axes:
        return None
    sizes = {a: b.op("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=a, end=a + 1) for a in axes}
    lacking = {a: b.op("Max", b.op("Sub", b.vector([1]), n), b.vector([0])) for a, n in sizes.items()}
    given = [
        _padded(b, x, lacking),
        _padded(b, w, {FEATURES: lacking[FEATURES]} if FEATURES in axes else {}),
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
    rank = x.rank if x.shape.is_ranked else 3
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
