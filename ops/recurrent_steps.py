"""The expansion of recurrent layers of float64 over steps that only the run knows: a Scan."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.ir.symbol import Symbol
from graphcore.ops.activation import relu, sigmoid
from graphcore.ops.axes import unsqueeze
from graphcore.ops.control import scan
from graphcore.ops.gathering import where
from graphcore.ops.joining import concat, split, stack
from graphcore.ops.mathematics import tanh
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


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
    ends = None if lengths is None else unsqueeze(e.cast(lengths, DType.int64), 1)
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
    y = concat([unsqueeze(made, 1) for made in rows], 1)
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
