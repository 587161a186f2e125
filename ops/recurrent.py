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
from graphcore.build.shapes import check_integers, check_shape
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Constant, Symbol, TensorLike
from graphcore.ops.activation import relu, sigmoid
from graphcore.ops.control import scan
from graphcore.ops.elementwise import tanh
from graphcore.ops.gathering import where
from graphcore.ops.joining import concat, split, stack
from graphcore.ops.shared.attributes import choice
from graphcore.ops.shared.dims import Axis, places_of, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

MAX_UNROLLED_STEPS = 256
"""Number of steps of float64, which has no kernel in onnxruntime, that lowering unrolls instead of a loop."""

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
    """A long short-term memory (LSTM) layer: its output at each step, and the last states.

    Args:
        x: [steps, batch, features], or [batch, steps, features] if batch_first.
        weight: [4 * hidden, features].
        recurrent_weight: [4 * hidden, hidden].
        bias: [4 * hidden], added together; None for zeros.
        recurrent_bias: [4 * hidden], added together; None for zeros.
        initial_h: [batch, hidden]; None for zeros.
        initial_c: [batch, hidden]; None for zeros. All are promoted together; integers become floats.
        direction: "forward", "reverse" (from the last step to the first), or "bidirectional": then weights, biases and
            states have a first axis of size 2, forward and reverse.
        lengths: Integers [batch], the number of steps in each sequence; later steps are ignored; None for all.
        gates: The order of the four gates i, f, g, o in the rows of weights and biases: "ifgo" is PyTorch's
            (weight_ih_l0 and weight_hh_l0 need no change), and "iofg" ONNX's, which needs no reordering.

    Returns:
        Y: [steps, batch, hidden], batch first if x is, 0 after the end of a sequence; and h and c: the states after the
        last step, [batch, hidden]. For both directions y has 2 * hidden features, forward and reverse, and h and c have
        a first axis of size 2. i, f, o are sigmoids and g is a tanh of weight @ x + bias + recurrent_weight @ h +
        recurrent_bias; c' = f * c + i * g; h' = o * tanh(c').

    Raises:
        ShapeError: For other shapes.
        DTypeError: For lengths that are not integers.

    Hochreiter and Schmidhuber 1997; ONNX LSTM, which has peepholes too: `ops.onnx.LSTM`.
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
    """A gated recurrent unit (GRU) layer: its output at each step, and the last state.

    Args:
        weight: [3 * hidden, features].
        recurrent_weight: [3 * hidden, hidden].
        bias: [3 * hidden].
        recurrent_bias: [3 * hidden].
        gates: The order of the three gates r, z, n in their rows: "rzn" is PyTorch's, "zrn" ONNX's and Keras'.
        reset_after: N is tanh(weight @ x + bias + r * (recurrent_weight @ h + recurrent_bias)), as in PyTorch and on
            GPUs; else h is multiplied by r before the product, as in the paper. Other arguments, results (without c)
            and errors as for `lstm`. r and z are sigmoids; h' = (1 - z) * n + z * h.

    Cho et al. 2014, arXiv:1406.1078; ONNX GRU.
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

    Args:
        weight: [hidden, features].
        recurrent_weight: [hidden, hidden].
        bias: [hidden].
        recurrent_bias: [hidden].
        activation: "tanh" or "relu". h' = activation(weight @ x + bias + recurrent_weight @ h + recurrent_bias). Other
            arguments, results (without c) and errors as for `lstm`.

    Elman 1990; ONNX RNN.
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
    """Emit a recurrent operator. gates: the order of the caller, the default order, and ONNX's."""
    choice(name, "direction", direction, _DIRECTIONS)
    order, default, onnx_order = gates
    if not isinstance(order, str) or sorted(order) != sorted(default):
        raise ShapeError(
            f"{name}: gates={order!r} is not an order of its gates",
            help=f"give each of {', '.join(default)} once: {default!r} is PyTorch's order, {onnx_order!r} ONNX's",
        )
    present = {role: value for role, value in operands.items() if value is not None}
    symbols, dtype = promote(name, "float", present)
    roles = dict(zip(present, symbols, strict=True))
    both = direction == "bidirectional"
    hidden = _hidden_size(name, roles, len(default), batch_first=batch_first, both=both)
    x = roles["x"]
    graph = x.graph
    if batch_first:
        x = e.transpose(x, [1, 0, 2])
    steps, batch, _ = x.shape
    first = {role: s if both else _unsqueezed(s) for role, s in roles.items() if role != "x"}
    for role in ("weight", "recurrent_weight", "bias", "recurrent_bias"):
        if role in first:
            first[role] = _reorder_gates(first[role], [order.index(gate) for gate in onnx_order], hidden)
    ends = None if lengths is None else _lengths(name, x, lengths, batch)
    inputs = [
        x,
        first["weight"],
        first["recurrent_weight"],
        _biases(first, hidden * len(default), both=both),
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
    if dtype is DType.float64 and not (steps.is_static and 0 < int(steps) <= MAX_UNROLLED_STEPS):
        attributes["cell"] = op_type
        y, *states = graph.build.emit_many("RecurrentSteps", tuple(inputs), types, attributes, LIBRARY)
    else:
        y, *states = graph.build.emit_many(op_type, tuple(inputs), types, attributes)
    initial_states = [first.get("initial_h"), first.get("initial_c")]
    empty = _without_steps(op_type, x, ends) if any(s is not None for s in initial_states) else None
    if empty is not None:
        states = [
            s if h is None else graph.build.emit("Where", (empty, h, s), s.type)
            for s, h in zip(states, initial_states, strict=False)
        ]
    if not both:
        states = [e.squeeze(s, 0) for s in states]
    return _outputs(y, batch_first=batch_first, both=both), *states


def _hidden_size(name: str, roles: dict[str, Symbol], gates: int, *, batch_first: bool, both: bool) -> int:
    """Return the size of the state. Raises `ShapeError` for operands of other shapes."""
    x, recurrent = roles["x"], roles["recurrent_weight"]
    if x.rank != 3:
        order = "[batch, steps, features]" if batch_first else "[steps, batch, features]"
        raise ShapeError(
            f"{name}: x must have rank 3, got {x.rank}",
            operands=roles,
            help=f"give {order}; ops.unsqueeze adds an axis for a batch of one",
        )
    size = recurrent.shape[-1] if recurrent.rank else Dim.dynamic()
    if not size.is_static or int(size) < 1:
        raise ShapeError(
            f"{name}: the hidden size must be static: recurrent_weight has shape {recurrent.shape}",
            operands=roles,
            help="make the last dim of recurrent_weight a number of 1 or more",
        )
    rows, batch = Dim(gates * int(size)), x.shape[0 if batch_first else 1]
    expected = {
        "weight": [rows, x.shape[2]],
        "recurrent_weight": [rows, size],
        "bias": [rows],
        "recurrent_bias": [rows],
        "initial_h": [batch, size],
        "initial_c": [batch, size],
    }
    for role, dims in expected.items():
        if role in roles:
            both_ways = ": one for each direction on a first axis" if both else ""
            why = f"as the shapes of x and recurrent_weight require{both_ways}"
            check_shape(name, role, roles, [Dim(2), *dims] if both else dims, why)
    return int(size)


def _lengths(name: str, x: Symbol, lengths: TensorLike, batch: Dim) -> Symbol:
    symbol = x.graph.build.operand(lengths, name, "lengths")
    roles = {"x": x, "lengths": symbol}
    check_integers(name, "lengths", symbol, roles)
    check_shape(name, "lengths", roles, [batch], "give one length for each sequence")
    return x.graph.build.cast(symbol, DType.int32)


def _without_steps(op_type: str, x: Symbol, lengths: Symbol | None) -> Symbol | None:
    """Return a mask of sequences without steps: their last states are the initial ones; onnxruntime returns zeros.

    None if every sequence has steps, or if the lowering of the operator handles those without.
    """
    graph = x.graph
    if lengths is not None:
        column = e.unsqueeze(lengths, 1)
        return e.equal(column, e.const(column, 0))
    if op_type != "LSTM" or (x.shape[0].is_static and x.shape[0] != 0):
        return None
    return e.equal(shape_vector(graph, [Axis(x, 0)]), graph.build.vector([0]))


def _reorder_gates(weights: Symbol, order: Sequence[int], hidden: int) -> Symbol:
    """Return weights [directions, gates * hidden, ...] with their gates in another order."""
    if list(order) == sorted(order):
        return weights
    graph, producer = weights.graph, weights.producer
    if type(producer) is Constant and not producer.is_weight:
        parts = np.split(producer.array, len(order), axis=1)
        return graph.build.constant(np.concatenate([parts[i] for i in order], axis=1), weights.dtype)
    shape = _shape([weights.shape[0], Dim(hidden), *weights.shape[2:]])
    types = [tensor_type(weights.dtype, shape)] * len(order)
    parts_by_gate = graph.build.emit_many("Split", (weights,), types, {"axis": 1, "num_outputs": len(order)})
    return e.emit("Concat", *(parts_by_gate[i] for i in order), shape=weights.shape, axis=1)


def _biases(operands: dict[str, Symbol], rows: int, *, both: bool) -> Symbol | None:
    """Concatenate both biases, with zeros for a missing one."""
    biases = [operands.get(role) for role in ("bias", "recurrent_bias")]
    present = next((s for s in biases if s is not None), None)
    if present is None:
        return None
    zeros = np.zeros([2 if both else 1, rows], present.dtype.numpy)
    parts = [s if s is not None else present.graph.build.constant(zeros, present.dtype) for s in biases]
    return e.emit("Concat", *parts, shape=_shape([present.shape[0], Dim(2 * rows)]), axis=1)


def _outputs(y: Symbol, *, batch_first: bool, both: bool) -> Symbol:
    """Merge the axis of directions of [steps, directions, batch, hidden] into the features."""
    if not both:
        y = e.squeeze(y, 1)
        return e.transpose(y, [1, 0, 2]) if batch_first else y
    y = e.transpose(y, [2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
    wide = y.shape[3] * 2
    vector = shape_vector(y.graph, [*(d if d.is_static else Axis(y, i) for i, d in enumerate(y.shape[:2])), wide])
    return e.emit("Reshape", y, vector, dtype=y.dtype, shape=_shape([*y.shape[:2], wide]), allowzero=1)


def _unsqueezed(x: Symbol) -> Symbol:
    producer = x.producer
    if type(producer) is Constant and not producer.is_weight:
        return x.graph.build.constant(producer.array[None], x.dtype)
    return e.unsqueeze(x, 0)


# The expansion of layers of float64 with a number of steps that is known only at run time: a Scan


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
    """Compute each direction by a Scan over the steps. Weights and states have ONNX's layout."""
    count = 2 if direction == "bidirectional" else 1
    step = _CellStep(cell, hidden_size, "Relu" in activations, bool(linear_before_reset))
    ends = None if lengths is None else e.cast(lengths, DType.int64).unsqueeze(1)
    places = places_of(x, 0)
    rows, states = [], []
    for i in range(count):
        size = shape_vector(x.graph, [Axis(x, 1), Dim(hidden_size)])
        zeros = e.emit("Expand", e.const(x, 0.0), size, shape=_shape([x.shape[1], Dim(hidden_size)]))
        start = tuple(zeros if s is None else s[i] for s in (initial_h, initial_c))
        state_weight = recurrent_weight[i].T
        projected = x @ weight[i].T
        state_bias = None
        if bias is not None:
            half, state_bias = split(bias[i], [step.width, step.width])
            projected = projected + half
        backward = i == 1 or direction == "reverse"
        run = functools.partial(_advance, step, state_weight, state_bias, ends)
        last, row = scan(run, start, (projected, places), reverse=backward)
        rows.append(row)
        states.append(last)
    y = concat([row.unsqueeze(1) for row in rows], 1)
    return (y, *(stack([state[i] for state in states]) for i in range(2 if cell == "LSTM" else 1)))


def _advance(
    step: _CellStep,
    state_weight: Symbol,
    bias: Symbol | None,
    ends: Symbol | None,
    state: tuple[Symbol, Symbol],
    along: tuple[Symbol, Symbol],
) -> tuple[tuple[Symbol, Symbol], Symbol]:
    """Return the states after a step, and its output. After the end of a sequence the states stay, the output is 0."""
    (h, c), (projected, place) = state, along
    new_h, new_c = step(projected, h, c, state_weight, bias)
    if ends is None:
        return (new_h, new_c), new_h
    is_inside = place < ends
    return (where(is_inside, new_h, h), where(is_inside, new_c, c)), where(is_inside, new_h, 0.0)


@dataclass(frozen=True, slots=True)
class _CellStep:
    """One step of one direction. Gates in ONNX's order: iofg, zrn."""

    cell: str
    hidden: int
    rectifies: bool
    resets_last: bool

    @property
    def width(self) -> int:
        return self.hidden * {"LSTM": 4, "GRU": 3, "RNN": 1}[self.cell]

    def __call__(
        self, projected: Symbol, h: Symbol, c: Symbol, state_weight: Symbol, bias: Symbol | None
    ) -> tuple[Symbol, Symbol]:
        """Return the next states. projected: weight @ x + bias. state_weight, bias: those of the state."""
        if self.cell == "GRU":
            return self._gru(projected, h, state_weight, bias), c
        total = projected + h @ state_weight
        if bias is not None:
            total = total + bias
        if self.cell == "RNN":
            return (relu if self.rectifies else tanh)(total), c
        i, o, f, g = split(total, [self.hidden] * 4, 1)
        memory = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(memory), memory

    def _gru(self, projected: Symbol, h: Symbol, state_weight: Symbol, bias: Symbol | None) -> Symbol:
        widths = [2 * self.hidden, self.hidden]
        (gates, new), (gates_around, new_around) = split(projected, widths, 1), split(state_weight, widths, 1)
        gates_bias, new_bias = (None, None) if bias is None else split(bias, widths)
        z, r = split(sigmoid(_add_bias(gates + h @ gates_around, gates_bias)), [self.hidden] * 2, 1)
        if self.resets_last:
            hidden_part = r * _add_bias(h @ new_around, new_bias)
        else:
            hidden_part = _add_bias((r * h) @ new_around, new_bias)
        return (1.0 - z) * tanh(new + hidden_part) + z * h


def _add_bias(x: Symbol, bias: Symbol | None) -> Symbol:
    return x if bias is None else x + bias
