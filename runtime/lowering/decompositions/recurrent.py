"""Recurrent networks: the layout that the kernels refuse, and float64, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.empty_recurrent import occupied
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

MOST_STEPS = 256
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_PLAIN = frozenset({"Sigmoid", "Tanh", "Relu", "Softplus", "Softsign"})


def batch_second(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels refuse layout=1: the axes are brought to layout 0 and back."""
    if not attributes.get("layout"):
        return occupied(on, op, inputs, types, attributes)
    given = list(inputs)
    for i in (0, 5, 6):  # X, initial_h, initial_c
        if i < len(given) and given[i] is not None:
            given[i] = _turned(on, given[i], [1, 0, 2])
    turned = [_turned_type(t, [1, 2, 0, 3] if i == 0 else [1, 0, 2]) for i, t in enumerate(types)]
    made = on.legal(op, given, turned, {**attributes, "layout": 0}, "")
    return tuple(
        _turned(on, m, [2, 0, 1, 3] if i == 0 else [1, 0, 2], t.shape)
        for i, (m, t) in enumerate(zip(made, types, strict=True))
    )


def _turned(on: Legaliser, x: Symbol, order: list[int], shape: Shape | None = None) -> Symbol:
    return on.op("Transpose", x, shape=shape or _shape([x.shape[a] for a in order]), perm=order)


def _turned_type(type_: TensorType, order: list[int]) -> TensorType:
    return tensor_type(type_.dtype, _shape([type_.shape[a] for a in order]))


def unrolled(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """RNN, GRU and LSTM of sequences of a length that is known, one step after the other."""
    if attributes.get("layout"):
        return batch_second(on, op, inputs, types, attributes)
    x, w, r, bias, ends, h, c, peepholes = [*inputs, *[None] * 8][:8]
    steps = x.shape[0]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    names = attributes.get("activations") or _ACTIVATIONS[op] * directions
    if not steps.is_static or not 0 < int(steps) <= MOST_STEPS or not set(names) <= _PLAIN:
        return None
    hidden = int(attributes.get("hidden_size") or r.shape[2])
    each = len(names) // directions
    state = _shape([x.shape[1], Dim(hidden)])
    if ends is not None:
        ends = on.op("Unsqueeze", ends, on.ints([1]), shape=_shape([x.shape[1], Dim(1)]))
    rows, lasts, cells = [], [], []
    for i in range(directions):
        cell = _Cell(on, op, attributes, names[each * i : each * (i + 1)], hidden, state)
        cell.weigh(*(_part(on, s, i) for s in (w, r, bias, peepholes)))
        start = [_part(on, s, i) if s is not None else cell.zeros(x) for s in (h, c)]
        backward = i == 1 or attributes.get("direction") == "reverse"
        made, last, memory = _run(on, cell, x, start, ends, int(steps), backward=backward)
        rows.append(made)
        lasts.append(last)
        cells.append(memory)
    results = [_stacked(on, [_stacked(on, list(at)) for at in zip(*rows, strict=True)])]
    results += [_stacked(on, lasts), _stacked(on, cells)]
    return tuple(on.op("Identity", s, shape=t.shape) for s, t in zip(results, types, strict=False))


def _run(
    on: Legaliser, cell: _Cell, x: Symbol, start: list[Symbol], ends: Symbol | None, steps: int, *, backward: bool
) -> tuple[list[Symbol], Symbol, Symbol]:
    """The output of each step, and the last states. Behind a sequence's end the output is 0 and the states stay."""
    h, c = start
    made: list[Symbol] = []
    for step in reversed(range(steps)) if backward else range(steps):
        now = on.op("Gather", x, on.const(step, DType.int64), shape=x.shape[1:], axis=0)
        new_h, new_c = cell(now, h, c)
        output = new_h
        if ends is not None:
            goes = on.op("Less", on.const(step, ends.dtype), ends, dtype=DType.bool)
            output = on.op("Where", goes, new_h, on.const(0.0, x.dtype), dtype=x.dtype, shape=new_h.shape)
            new_h, new_c = (
                on.op("Where", goes, new, old, dtype=x.dtype, shape=new.shape) for new, old in ((new_h, h), (new_c, c))
            )
        made.append(output)
        h, c = new_h, new_c
    return made[::-1] if backward else made, h, c


class _Cell:
    """One step of one direction."""

    def __init__(
        self, on: Legaliser, op: str, attributes: dict[str, Any], activations: list[str], hidden: int, state: Shape
    ) -> None:
        self._on = on
        self._op = op
        self._clip = attributes.get("clip")
        self._couples = attributes.get("input_forget", 0)
        self._resets_last = attributes.get("linear_before_reset", 0)
        self._activations = activations
        self._hidden = hidden
        self._state = state

    def weigh(self, w: Symbol, r: Symbol, bias: Symbol | None, peepholes: Symbol | None) -> None:
        """Takes the weights of all gates apart."""
        count = _GATES[self._op]
        self._w, self._r = ([_turned(self._on, g, [1, 0]) for g in self._gates(s, count)] for s in (w, r))
        parts = self._gates(bias, 2 * count) if bias is not None else [None] * (2 * count)
        self._bias_w, self._bias_r = parts[:count], parts[count:]
        self._peepholes = self._gates(peepholes, 3) if peepholes is not None else [None] * 3

    def _gates(self, x: Symbol, count: int) -> list[Any]:
        n = self._hidden
        ends = [(self._on.ints([i * n]), self._on.ints([(i + 1) * n])) for i in range(count)]
        shape = _shape([Dim(n), *x.shape[1:]])
        return [self._on.op("Slice", x, *pair, self._on.ints([0]), shape=shape) for pair in ends]

    def zeros(self, x: Symbol) -> Symbol:
        on = self._on
        first = on.op("Gather", x, on.const(0, DType.int64), shape=x.shape[1:], axis=0)
        size = on.op("Shape", first, dtype=DType.int64, shape=_shape([Dim(1)]), start=0, end=1)
        target = on.op("Concat", size, on.ints([self._hidden]), shape=_shape([Dim(2)]), axis=0)
        return on.op("Expand", on.const(0.0, x.dtype), target, shape=self._state)

    def _linear(self, x: Symbol, weights: Symbol, bias: Symbol | None) -> Symbol:
        made = self._on.op("MatMul", x, weights, shape=self._state)
        return made if bias is None else self._on.op("Add", made, bias)

    def _gate(self, x: Symbol, h: Symbol, i: int) -> Symbol:
        left = self._linear(x, self._w[i], self._bias_w[i])
        return self._on.op("Add", left, self._linear(h, self._r[i], self._bias_r[i]))

    def _active(self, which: int, x: Symbol) -> Symbol:
        # The memory of an LSTM is not clipped on its way out: the float32 kernel does not either.
        if self._clip and which < 2:
            bound = float(self._clip)
            x = self._on.op("Clip", x, self._on.const(-bound, x.dtype), self._on.const(bound, x.dtype), shape=x.shape)
        name = self._activations[which]
        if name == "Softsign":
            one = self._on.const(1.0, x.dtype)
            return self._on.op("Div", x, self._on.op("Add", self._on.op("Abs", x), one))
        return self._on.op(name, x)

    def __call__(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        if self._op == "RNN":
            return self._active(0, self._gate(x, h, 0)), c
        return self._gru(x, h, c) if self._op == "GRU" else self._lstm(x, h, c)

    def _gru(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        op = self._on.op
        update, reset = (self._active(0, self._gate(x, h, i)) for i in (0, 1))
        fresh = self._linear(x, self._w[2], self._bias_w[2])
        if self._resets_last:
            kept = op("Mul", reset, self._linear(h, self._r[2], self._bias_r[2]))
        else:
            kept = self._linear(op("Mul", reset, h), self._r[2], self._bias_r[2])
        fresh = self._active(1, op("Add", fresh, kept))
        rest = op("Sub", self._on.const(1.0, x.dtype), update)
        return op("Add", op("Mul", rest, fresh), op("Mul", update, h)), c

    def _peeped(self, gate: Symbol, c: Symbol, i: int) -> Symbol:
        factor = self._peepholes[i]
        return gate if factor is None else self._on.op("Add", gate, self._on.op("Mul", factor, c, shape=self._state))

    def _lstm(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        op = self._on.op
        taken = self._active(0, self._peeped(self._gate(x, h, 0), c, 0))
        if self._couples:
            kept = op("Sub", self._on.const(1.0, x.dtype), taken)
        else:
            kept = self._active(0, self._peeped(self._gate(x, h, 2), c, 2))
        fresh = self._active(1, self._gate(x, h, 3))
        memory = op("Add", op("Mul", kept, c), op("Mul", taken, fresh))
        shown = self._active(0, self._peeped(self._gate(x, h, 1), memory, 1))
        return op("Mul", shown, self._active(2, memory)), memory


def _part(on: Legaliser, x: Symbol | None, direction: int) -> Any:
    """The weights or the state of one direction."""
    if x is None:
        return None
    return on.op("Gather", x, on.const(direction, DType.int64), shape=x.shape[1:], axis=0)


def _stacked(on: Legaliser, parts: list[Symbol]) -> Symbol:
    each = [on.op("Unsqueeze", p, on.ints([0]), shape=_shape([Dim(1), *p.shape])) for p in parts]
    shape = _shape([Dim(len(parts)), *parts[0].shape])
    return each[0] if len(each) == 1 else on.op("Concat", *each, shape=shape, axis=0)
