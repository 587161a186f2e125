"""Recurrent networks: one layer, over all steps of sequences."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import promote
from graphcore.build.shapes import Roles, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Constant, Symbol, TensorLike
from graphcore.ops.activation import relu, sigmoid
from graphcore.ops.control import scan
from graphcore.ops.elementwise import tanh
from graphcore.ops.gathering import where
from graphcore.ops.joining import concat, split, stack
from graphcore.ops.shared.attributes import choice
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

MOST_STEPS = 256
"""Steps of float64, for which onnxruntime has no kernel, that lowering computes one after the other without a loop."""

_DIRECTIONS = ("forward", "reverse", "bidirectional")
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


@op(onnx="LSTM", rule="float")
def lstm(
    x: TensorLike,
    weight: TensorLike,
    recurrent_weight: TensorLike,
    bias: TensorLike | None = None,
    recurrent_bias: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    initial_c: TensorLike | None = None,
    *,
    direction: str = "forward",
    lengths: TensorLike | None = None,
    batch_first: bool = False,
    gates: str = "ifgo",
) -> tuple[Symbol, Symbol, Symbol]:
    """A layer of long short-term memory: its output at each step, and the last states.

    x: [steps, batch, features], or [batch, steps, features] if batch_first. weight: [4 * hidden, features].
    recurrent_weight: [4 * hidden, hidden]. bias, recurrent_bias: [4 * hidden], added together; None for zeros.
    initial_h, initial_c: [batch, hidden]; None for zeros. They are promoted together; integers become floats.
    direction: "forward", "reverse" (from the last step to the first), or "bidirectional": then weights, biases and
    states have a first axis of size 2, forward and reverse. lengths: integers [batch], the steps that each sequence
    has, of which no more are read; None for all. gates: the order in which the rows of weights and biases have the
    four gates i, f, g, o: "ifgo" is PyTorch's, whose weight_ih_l0 and weight_hh_l0 are taken as they are, and "iofg"
    ONNX's, which needs no reordering.
    Returns y: [steps, batch, hidden], batch first if x is, 0 after the end of a sequence; and h and c: the states after
    the last step, [batch, hidden]. Of both directions y has 2 * hidden features, forward and reverse, and h and c have
    a first axis of size 2. i, f, o are sigmoids and g is a tanh of weight @ x + bias + recurrent_weight @ h +
    recurrent_bias; c' = f * c + i * g; h' = o * tanh(c'). Raises `ShapeError` for other shapes, `DTypeError` for
    lengths that are not integers. Hochreiter and Schmidhuber 1997; ONNX LSTM, which has peepholes too: `ops.onnx.LSTM`.
    """
    operands = {
        "x": x, "weight": weight, "recurrent_weight": recurrent_weight, "bias": bias, "recurrent_bias": recurrent_bias,
        "initial_h": initial_h, "initial_c": initial_c,
    }  # fmt: skip
    y, h, c = _layer("lstm", "LSTM", operands, direction, lengths, batch_first, (gates, "ifgo", "iofg"), {})
    return y, h, c


@op(onnx="GRU", rule="float")
def gru(
    x: TensorLike,
    weight: TensorLike,
    recurrent_weight: TensorLike,
    bias: TensorLike | None = None,
    recurrent_bias: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    *,
    direction: str = "forward",
    lengths: TensorLike | None = None,
    batch_first: bool = False,
    gates: str = "rzn",
    reset_after: bool = True,
) -> tuple[Symbol, Symbol]:
    """A layer of gated recurrent units: its output at each step, and the last state.

    weight: [3 * hidden, features]. recurrent_weight: [3 * hidden, hidden]. bias, recurrent_bias: [3 * hidden]. gates:
    the order of the three gates r, z, n in their rows: "rzn" is PyTorch's, "zrn" ONNX's and Keras'. reset_after: n is
    tanh(weight @ x + bias + r * (recurrent_weight @ h + recurrent_bias)), as in PyTorch and on GPUs; else r * h is
    taken before the product, as in the paper. The rest, and what is returned but c, and raised: as for `lstm`.
    r and z are sigmoids; h' = (1 - z) * n + z * h. Cho et al. 2014, arXiv:1406.1078; ONNX GRU.
    """
    operands = {
        "x": x, "weight": weight, "recurrent_weight": recurrent_weight, "bias": bias, "recurrent_bias": recurrent_bias,
        "initial_h": initial_h,
    }  # fmt: skip
    attributes = {"linear_before_reset": int(bool(reset_after))}
    y, h = _layer("gru", "GRU", operands, direction, lengths, batch_first, (gates, "rzn", "zrn"), attributes)
    return y, h


@op(onnx="RNN", rule="float")
def rnn(
    x: TensorLike,
    weight: TensorLike,
    recurrent_weight: TensorLike,
    bias: TensorLike | None = None,
    recurrent_bias: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    *,
    direction: str = "forward",
    lengths: TensorLike | None = None,
    batch_first: bool = False,
    activation: str = "tanh",
) -> tuple[Symbol, Symbol]:
    """A plain recurrent layer: its output at each step, and the last state.

    weight: [hidden, features]. recurrent_weight: [hidden, hidden]. bias, recurrent_bias: [hidden]. activation: "tanh"
    or "relu". h' = activation(weight @ x + bias + recurrent_weight @ h + recurrent_bias). The rest, and what is
    returned but c, and raised: as for `lstm`. Elman 1990; ONNX RNN.
    """
    choice("rnn", "activation", activation, tuple(_ACTIVATIONS))
    operands = {
        "x": x, "weight": weight, "recurrent_weight": recurrent_weight, "bias": bias, "recurrent_bias": recurrent_bias,
        "initial_h": initial_h,
    }  # fmt: skip
    count = 2 if direction == "bidirectional" else 1
    attributes = {"activations": [_ACTIVATIONS[activation]] * count}
    y, h = _layer("rnn", "RNN", operands, direction, lengths, batch_first, ("h", "h", "h"), attributes)
    return y, h


def _layer(
    name: str,
    op_type: str,
    operands: dict[str, TensorLike | None],
    direction: str,
    lengths: TensorLike | None,
    batch_first: bool,
    gates: tuple[str, str, str],
    attributes: dict[str, Any],
) -> tuple[Symbol, ...]:
    """Emit a recurrent operator. gates: their order as given, their default order, and ONNX's."""
    choice(name, "direction", direction, _DIRECTIONS)
    order, known, wanted = gates
    if not isinstance(order, str) or sorted(order) != sorted(known):
        raise ShapeError(
            f"{name}: gates={order!r} is no order of its gates",
            help=f"write each of {', '.join(known)} once: {known!r} is PyTorch's order, {wanted!r} ONNX's",
        )
    given = {role: value for role, value in operands.items() if value is not None}
    symbols, dtype = promote(name, "float", given)
    roles = dict(zip(given, symbols, strict=True))
    both = direction == "bidirectional"
    hidden = _checked(name, roles, len(known), batch_first=batch_first, both=both)
    x = roles["x"]
    graph = x.graph
    if batch_first:
        x = _turned(x, [1, 0, 2])
    steps, batch, _ = x.shape
    first = {role: s if both else _unsqueezed(s) for role, s in roles.items() if role != "x"}
    for role in ("weight", "recurrent_weight", "bias", "recurrent_bias"):
        if role in first:
            first[role] = _ordered(first[role], [order.index(gate) for gate in wanted], hidden)
    ends = None if lengths is None else _lengths(name, x, lengths, batch)
    inputs = [
        x,
        first["weight"],
        first["recurrent_weight"],
        _biases(first, hidden * len(known), both=both),
        ends,
        first.get("initial_h"),
    ]
    count = 2 if both else 1
    state = tensor_type(dtype, _shape([Dim(count), batch, Dim(hidden)]))
    types = [tensor_type(dtype, _shape([steps, Dim(count), batch, Dim(hidden)])), state]
    if op_type == "LSTM":
        inputs.append(first.get("initial_c"))
        types.append(state)
    attributes = {"hidden_size": hidden, "direction": direction, **attributes}
    if dtype is DType.float64 and not (steps.is_static and 0 < int(steps) <= MOST_STEPS):
        attributes["cell"] = op_type
        y, *states = graph.build.emit_many("RecurrentSteps", tuple(inputs), types, attributes, LIBRARY)
    else:
        y, *states = graph.build.emit_many(op_type, tuple(inputs), types, attributes)
    begun = [first.get("initial_h"), first.get("initial_c")]
    empty = _without_steps(op_type, x, ends) if any(s is not None for s in begun) else None
    if empty is not None:
        states = [
            s if h is None else graph.build.emit("Where", (empty, h, s), s.type)
            for s, h in zip(states, begun, strict=False)
        ]
    if not both:
        states = [_squeezed(s, 0) for s in states]
    return _outputs(y, batch_first=batch_first, both=both), *states


def _checked(name: str, roles: dict[str, Symbol], gates: int, *, batch_first: bool, both: bool) -> int:
    """Return the size of the state. Raises `ShapeError` for operands of other shapes."""
    x, recurrent = roles["x"], roles["recurrent_weight"]
    if x.rank != 3:
        order = "[batch, steps, features]" if batch_first else "[steps, batch, features]"
        raise ShapeError(
            f"{name}: x has rank {x.rank}, not 3",
            operands=roles,
            help=f"give {order}; ops.unsqueeze adds an axis for a batch of one",
        )
    size = recurrent.shape[-1] if recurrent.rank else Dim.dynamic()
    if not size.is_static or int(size) < 1:
        raise ShapeError(
            f"{name}: the size of the state is not known: recurrent_weight has shape {recurrent.shape}",
            operands=roles,
            help="make its last dim, the hidden size, a number of 1 or more",
        )
    rows, batch = Dim(gates * int(size)), x.shape[0 if batch_first else 1]
    wanted = {
        "weight": [rows, x.shape[2]],
        "recurrent_weight": [rows, size],
        "bias": [rows],
        "recurrent_bias": [rows],
        "initial_h": [batch, size],
        "initial_c": [batch, size],
    }
    for role, dims in wanted.items():
        if role in roles:
            _check_shape(name, role, [Dim(2), *dims] if both else dims, roles, both=both)
    return int(size)


def _check_shape(name: str, role: str, wanted: Sequence[Dim], roles: Roles, *, both: bool) -> None:
    found: Shape = roles[role].shape
    if len(found) == len(wanted) and all(map(same_dim, found, wanted)):
        return
    both_ways = ": one for each direction on a first axis" if both else ""
    raise ShapeError(
        f"{name}: {role} has shape {found}, not {_shape(wanted)}",
        operands=roles,
        help=f"with such an x and recurrent_weight it must be {_shape(wanted)}{both_ways}",
    )


def _lengths(name: str, x: Symbol, lengths: TensorLike, batch: Dim) -> Symbol:
    found = x.graph.build.operand(lengths, name, "lengths")
    roles = {"x": x, "lengths": found}
    if not found.dtype.is_integer:
        raise DTypeError(
            f"{name}: lengths must be integers, not {found.dtype}",
            operands=roles,
            help="cast them: .cast(DType.int32)",
        )
    if found.rank != 1 or not same_dim(found.shape[0], batch):
        raise ShapeError(
            f"{name}: lengths has shape {found.shape}", operands=roles, help=f"give one for each sequence: [{batch}]"
        )
    return x.graph.build.cast(found, DType.int32)


def _without_steps(op_type: str, x: Symbol, lengths: Symbol | None) -> Symbol | None:
    """Return which sequences have no steps: their last states are the initial ones, where onnxruntime gives zeros.

    None where every sequence has steps, or the lowering of the operator sees to them.
    """
    graph = x.graph
    if lengths is not None:
        shape = _shape([lengths.shape[0], Dim(1)])
        column = e.emit("Unsqueeze", lengths, graph.build.vector([1]), dtype=lengths.dtype, shape=shape)
        return e.equal(column, e.const(column, 0))
    if op_type != "LSTM" or (x.shape[0].is_static and x.shape[0] != 0):
        return None
    return e.equal(shape_vector(graph, [Axis(x, 0)]), graph.build.vector([0]))


def _ordered(weights: Symbol, order: Sequence[int], hidden: int) -> Symbol:
    """Return weights [directions, gates * hidden, ...] with their gates in another order."""
    if list(order) == sorted(order):
        return weights
    graph, producer = weights.graph, weights.producer
    if type(producer) is Constant and not producer.is_weight:
        parts = np.split(producer.array, len(order), axis=1)
        return graph.build.constant(np.concatenate([parts[i] for i in order], axis=1), weights.dtype)
    shape = _shape([weights.shape[0], Dim(hidden), *weights.shape[2:]])
    types = [tensor_type(weights.dtype, shape)] * len(order)
    apart = graph.build.emit_many("Split", (weights,), types, {"axis": 1, "num_outputs": len(order)})
    return e.emit("Concat", *(apart[i] for i in order), shape=weights.shape, axis=1)


def _biases(given: dict[str, Symbol], rows: int, *, both: bool) -> Symbol | None:
    """Return both biases side by side, zeros for one that is missing."""
    found = [given.get(role) for role in ("bias", "recurrent_bias")]
    some = next((s for s in found if s is not None), None)
    if some is None:
        return None
    zeros = np.zeros([2 if both else 1, rows], some.dtype.numpy)
    parts = [s if s is not None else some.graph.build.constant(zeros, some.dtype) for s in found]
    return e.emit("Concat", *parts, shape=_shape([some.shape[0], Dim(2 * rows)]), axis=1)


def _outputs(y: Symbol, *, batch_first: bool, both: bool) -> Symbol:
    """Return the output [steps, directions, batch, hidden] without the axis of directions."""
    if not both:
        y = _squeezed(y, 1)
        return _turned(y, [1, 0, 2]) if batch_first else y
    y = _turned(y, [2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
    wide = y.shape[3] * 2
    vector = shape_vector(y.graph, [*(d if d.is_static else Axis(y, i) for i, d in enumerate(y.shape[:2])), wide])
    return e.emit("Reshape", y, vector, dtype=y.dtype, shape=_shape([*y.shape[:2], wide]), allowzero=1)


def _turned(x: Symbol, order: list[int]) -> Symbol:
    return e.emit("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order)


def _unsqueezed(x: Symbol) -> Symbol:
    producer = x.producer
    if type(producer) is Constant and not producer.is_weight:
        return x.graph.build.constant(producer.array[None], x.dtype)
    return e.emit("Unsqueeze", x, x.graph.build.vector([0]), dtype=x.dtype, shape=_shape([Dim(1), *x.shape]))


def _squeezed(x: Symbol, axis: int) -> Symbol:
    shape = _shape([d for i, d in enumerate(x.shape) if i != axis])
    return e.emit("Squeeze", x, x.graph.build.vector([axis]), dtype=x.dtype, shape=shape)


# The expansion of layers of float64 over steps that only the run knows: a Scan


@expansion("RecurrentSteps")
def _recurrent_steps(
    x: Symbol,
    weight: Symbol,
    recurrent_weight: Symbol,
    bias: Symbol | None = None,
    lengths: Symbol | None = None,
    initial_h: Symbol | None = None,
    initial_c: Symbol | None = None,
    *,
    cell: str,
    hidden_size: int,
    direction: str,
    activations: Sequence[str] = (),
    linear_before_reset: int = 0,
) -> tuple[Symbol, ...]:
    """Compute each direction by a Scan over the steps. Weights and states as ONNX has them."""
    count = 2 if direction == "bidirectional" else 1
    step = _Step(cell, hidden_size, "Relu" in activations, bool(linear_before_reset))
    ends = None if lengths is None else e.cast(lengths, DType.int64).unsqueeze(1)
    counted = e.emit("Squeeze", shape_vector(x.graph, [Axis(x, 0)]), dtype=DType.int64, shape=_shape(()))
    places = e.emit("Range", e.const(counted, 0), counted, e.const(counted, 1), shape=x.shape[:1])
    rows, states = [], []
    for i in range(count):
        zeros = _zeros(x, hidden_size)
        start = tuple(zeros if s is None else s[i] for s in (initial_h, initial_c))
        around = recurrent_weight[i].T
        mine = x @ weight[i].T
        theirs = None
        if bias is not None:
            half, theirs = split(bias[i], [step.width, step.width])
            mine = mine + half
        backward = i == 1 or direction == "reverse"
        run = functools.partial(_advanced, step, around, theirs, ends)
        last, made = scan(run, start, (mine, places), reverse=backward)
        rows.append(made)
        states.append(last)
    y = concat([made.unsqueeze(1) for made in rows], 1)
    return (y, *(stack([state[i] for state in states]) for i in range(2 if cell == "LSTM" else 1)))


def _zeros(x: Symbol, hidden: int) -> Symbol:
    size = shape_vector(x.graph, [Axis(x, 1), Dim(hidden)])
    return e.emit("Expand", e.const(x, 0.0), size, shape=_shape([x.shape[1], Dim(hidden)]))


def _advanced(
    step: _Step,
    around: Symbol,
    bias: Symbol | None,
    ends: Symbol | None,
    state: tuple[Symbol, Symbol],
    along: tuple[Symbol, Symbol],
) -> tuple[tuple[Symbol, Symbol], Symbol]:
    """Return the states after a step, and its output: 0 after the end of a sequence, where the states stay."""
    (h, c), (mine, place) = state, along
    new_h, new_c = step(mine, h, c, around, bias)
    if ends is None:
        return (new_h, new_c), new_h
    goes = place < ends
    return (where(goes, new_h, h), where(goes, new_c, c)), where(goes, new_h, 0.0)


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of one direction. Gates in ONNX's order: iofg, zrn."""

    cell: str
    hidden: int
    rectifies: bool
    resets_last: bool

    @property
    def width(self) -> int:
        return self.hidden * {"LSTM": 4, "GRU": 3, "RNN": 1}[self.cell]

    def __call__(
        self, mine: Symbol, h: Symbol, c: Symbol, around: Symbol, bias: Symbol | None
    ) -> tuple[Symbol, Symbol]:
        """Return the next states. mine: weight @ x + bias. around, bias: those of the state."""
        if self.cell == "GRU":
            return self._gru(mine, h, around, bias), c
        total = mine + h @ around
        if bias is not None:
            total = total + bias
        if self.cell == "RNN":
            return (relu if self.rectifies else tanh)(total), c
        i, o, f, g = split(total, [self.hidden] * 4, 1)
        memory = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(memory), memory

    def _gru(self, mine: Symbol, h: Symbol, around: Symbol, bias: Symbol | None) -> Symbol:
        widths = [2 * self.hidden, self.hidden]
        (gates, new), (gates_around, new_around) = split(mine, widths, 1), split(around, widths, 1)
        gates_bias, new_bias = (None, None) if bias is None else split(bias, widths)
        z, r = split(sigmoid(_plus(gates + h @ gates_around, gates_bias)), [self.hidden] * 2, 1)
        if self.resets_last:
            kept = r * _plus(h @ new_around, new_bias)
        else:
            kept = _plus((r * h) @ new_around, new_bias)
        return (1.0 - z) * tanh(new + kept) + z * h


def _plus(x: Symbol, bias: Symbol | None) -> Symbol:
    return x if bias is None else x + bias
