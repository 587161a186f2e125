"""Recurrent networks: the layout that the kernels refuse, and float64, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions import older
from graphcore.runtime.lowering.decompositions.shape_arithmetic import transpose
from graphcore.support.lazy import Lazy
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

if TYPE_CHECKING:
    from graphcore.ops import recurrent as ops
else:  # files that run as they are need no ops
    ops = Lazy("graphcore.ops.recurrent")

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_PLAIN = frozenset({"Sigmoid", "Tanh", "Relu", "Softplus", "Softsign"})


def batch_second(b: Builder, call: OpCall) -> Replacement:
    """Compute layout=1, which the kernels refuse, in layout 0: transpose the operands and the results."""
    if not call.attributes.get("layout"):
        return pad_empty(b, call)
    operands = list(call.inputs)
    for i in (0, 5, 6):  # X, initial_h, initial_c
        if i < len(operands) and operands[i] is not None:
            operands[i] = transpose(b, operands[i], [1, 0, 2])
    types = [_transposed_type(t, [1, 2, 0, 3] if i == 0 else [1, 0, 2]) for i, t in enumerate(call.types)]
    results = b.legal(call._replace(inputs=operands, types=types, attributes={**call.attributes, "layout": 0}))
    return tuple(transpose(b, m, [2, 0, 1, 3] if i == 0 else [1, 0, 2]) for i, m in enumerate(results))


def _transposed_type(type_: TensorType, order: list[int]) -> TensorType:
    return tensor_type(type_.dtype, _shape([type_.shape[a] for a in order]))


def unroll(b: Builder, call: OpCall) -> Replacement:
    """Compute RNN, GRU and LSTM of sequences of known length, one step after the other."""
    if call.attributes.get("layout"):
        return batch_second(b, call)
    x, w, r, bias, ends, h, c, peepholes = [*call.inputs, *[None] * 8][:8]
    steps = x.shape[0]
    directions = 2 if call.attributes.get("direction") == "bidirectional" else 1
    names = call.attributes.get("activations") or _ACTIVATIONS[call.op] * directions
    if not steps.is_static or not 0 < int(steps) <= ops.MAX_UNROLLED_STEPS or not set(names) <= _PLAIN:
        return None
    hidden = int(call.attributes.get("hidden_size") or r.shape[2])
    each = len(names) // directions
    state = _shape([x.shape[1], Dim(hidden)])
    if ends is not None:
        ends = b.op("Unsqueeze", ends, b.vector([1]), shape=_shape([x.shape[1], Dim(1)]))
    rows, lasts, cells = [], [], []
    for i in range(directions):
        weights = [_part(b, s, i) for s in (w, r, bias, peepholes)]
        cell = _Cell(b, call, names[each * i : each * (i + 1)], hidden, state, weights)
        start = [_part(b, s, i) if s is not None else cell.zeros(x) for s in (h, c)]
        backward = i == 1 or call.attributes.get("direction") == "reverse"
        outputs, last, memory = _run(b, cell, x, start, ends, int(steps), backward=backward)
        rows.append(outputs)
        lasts.append(last)
        cells.append(memory)
    results = [_stack(b, [_stack(b, list(at)) for at in zip(*rows, strict=True)])]
    results += [_stack(b, lasts), _stack(b, cells)]
    return tuple(b.op("Identity", s, shape=t.shape) for s, t in zip(results, call.types, strict=False))


def _run(
    b: Builder, cell: _Cell, x: Symbol, start: list[Symbol], ends: Symbol | None, steps: int, *, backward: bool
) -> tuple[list[Symbol], Symbol, Symbol]:
    """Return the output of each step, and the last states. After the end of a sequence the output is 0."""
    h, c = start
    outputs: list[Symbol] = []
    for step in reversed(range(steps)) if backward else range(steps):
        now = b.op("Gather", x, b.scalar(step, DType.int64), shape=x.shape[1:], axis=0)
        new_h, new_c = cell(now, h, c)
        output = new_h
        if ends is not None:
            goes = b.op("Less", b.scalar(step, ends.dtype), ends)
            output = b.op("Where", goes, new_h, b.scalar(0.0, x.dtype))
            new_h, new_c = (b.op("Where", goes, new, old) for new, old in ((new_h, h), (new_c, c)))
        outputs.append(output)
        h, c = new_h, new_c
    return outputs[::-1] if backward else outputs, h, c


class _Cell:
    """One step of one direction. weights: W, R, B and P."""

    def __init__(
        self, b: Builder, call: OpCall, activations: list[str], hidden: int, state: Shape, weights: list[Any]
    ) -> None:
        self._b = b
        self._op = call.op
        self._clip = call.attributes.get("clip")
        self._couples = call.attributes.get("input_forget", 0)
        self._resets_last = call.attributes.get("linear_before_reset", 0)
        self._activations = activations
        self._hidden = hidden
        self._state = state
        (w, r, bias, peepholes), count = weights, _GATES[call.op]
        self._w, self._r = ([transpose(self._b, g, [1, 0]) for g in self._gates(s, count)] for s in (w, r))
        parts = self._gates(bias, 2 * count) if bias is not None else [None] * (2 * count)
        self._bias_w, self._bias_r = parts[:count], parts[count:]
        self._peepholes = self._gates(peepholes, 3) if peepholes is not None else [None] * 3

    def _gates(self, x: Symbol, count: int) -> list[Any]:
        n = self._hidden
        ends = [(self._b.vector([i * n]), self._b.vector([(i + 1) * n])) for i in range(count)]
        return [self._b.op("Slice", x, *pair, self._b.vector([0])) for pair in ends]

    def zeros(self, x: Symbol) -> Symbol:
        b = self._b
        first = b.op("Gather", x, b.scalar(0, DType.int64), axis=0)
        target = b.op("Concat", b.op("Shape", first, start=0, end=1), b.vector([self._hidden]), axis=0)
        return b.op("Expand", b.scalar(0.0, x.dtype), target, shape=self._state)

    def _linear(self, x: Symbol, weights: Symbol, bias: Symbol | None) -> Symbol:
        result = self._b.op("MatMul", x, weights, shape=self._state)
        return result if bias is None else self._b.op("Add", result, bias)

    def _gate(self, x: Symbol, h: Symbol, i: int) -> Symbol:
        from_input = self._linear(x, self._w[i], self._bias_w[i])
        return self._b.op("Add", from_input, self._linear(h, self._r[i], self._bias_r[i]))

    def _active(self, which: int, x: Symbol) -> Symbol:
        # The output activation of an LSTM is not clipped, as in the float32 kernel.
        if self._clip and which < 2:
            bound = float(self._clip)
            x = self._b.op("Clip", x, self._b.scalar(-bound, x.dtype), self._b.scalar(bound, x.dtype), shape=x.shape)
        name = self._activations[which]
        if name == "Softsign":
            one = self._b.scalar(1.0, x.dtype)
            return self._b.op("Div", x, self._b.op("Add", self._b.op("Abs", x), one))
        return self._b.op(name, x)

    def __call__(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        if self._op == "RNN":
            return self._active(0, self._gate(x, h, 0)), c
        return self._gru(x, h, c) if self._op == "GRU" else self._lstm(x, h, c)

    def _gru(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        op = self._b.op
        update, reset = (self._active(0, self._gate(x, h, i)) for i in (0, 1))
        fresh = self._linear(x, self._w[2], self._bias_w[2])
        if self._resets_last:
            from_state = op("Mul", reset, self._linear(h, self._r[2], self._bias_r[2]))
        else:
            from_state = self._linear(op("Mul", reset, h), self._r[2], self._bias_r[2])
        fresh = self._active(1, op("Add", fresh, from_state))
        rest = op("Sub", self._b.scalar(1.0, x.dtype), update)
        return op("Add", op("Mul", rest, fresh), op("Mul", update, h)), c

    def _add_peephole(self, gate: Symbol, c: Symbol, i: int) -> Symbol:
        factor = self._peepholes[i]
        return gate if factor is None else self._b.op("Add", gate, self._b.op("Mul", factor, c, shape=self._state))

    def _lstm(self, x: Symbol, h: Symbol, c: Symbol) -> tuple[Symbol, Symbol]:
        op = self._b.op
        input_gate = self._active(0, self._add_peephole(self._gate(x, h, 0), c, 0))
        if self._couples:
            forget_gate = op("Sub", self._b.scalar(1.0, x.dtype), input_gate)
        else:
            forget_gate = self._active(0, self._add_peephole(self._gate(x, h, 2), c, 2))
        fresh = self._active(1, self._gate(x, h, 3))
        memory = op("Add", op("Mul", forget_gate, c), op("Mul", input_gate, fresh))
        output_gate = self._active(0, self._add_peephole(self._gate(x, h, 1), memory, 1))
        return op("Mul", output_gate, self._active(2, memory)), memory


def _part(b: Builder, x: Symbol | None, direction: int) -> Any:
    """Return the weights or the state of one direction."""
    if x is None:
        return None
    return b.op("Gather", x, b.scalar(direction, DType.int64), shape=x.shape[1:], axis=0)


def _stack(b: Builder, parts: list[Symbol]) -> Symbol:
    each = [b.op("Unsqueeze", p, b.vector([0])) for p in parts]
    return each[0] if len(each) == 1 else b.op("Concat", *each, axis=0)


# Recurrent networks of empty operands: onnxruntime's crash, or return uninitialised memory.

ENDS: dict[str, dict[int, str]] = {
    "GRU": {0: "GRU without steps", 1: "GRU without sequences", 2: "GRU without features"},
    "LSTM": {0: "LSTM without steps", 1: "LSTM without sequences", 2: "LSTM without features"},
    "RNN": {0: "RNN without steps"},
}
"""The axes of X for which a length of 0 is a trap, with its name: 0 is the steps, 1 the sequences, 2 the features."""
FEATURES = 2
FLAT = "recurrent operators of fewer axes"
"""A trap of models that run unchanged; here a Pad refuses operands of another rank than 3."""
_UNKNOWN = _shape([Dim.dynamic()] * 3)


def pad_empty(b: Builder, call: OpCall) -> Replacement:
    """Compute the operator on at least one step of at least one sequence: pad with zeros, and cut the result.

    Without steps the last states are the initial ones; a feature of zeros has no effect. None if no axis can be empty.
    """
    x, w, r, bias, ends, h, c, peepholes = [*call.inputs, *[None] * 8][:8]
    assert x is not None
    assert w is not None
    shapes = {0: x.type.shape, FEATURES: w.type.shape}
    # The kernel refuses operands of another rank.
    for place, shape in shapes.items():
        if not shape.is_ranked:
            shapes[place] = _UNKNOWN
        elif len(shape) != 3:
            return None
    # The kernel refuses X and W with different numbers of features.
    lengths = {0: shapes[0][0], 1: shapes[0][1], FEATURES: shapes[FEATURES][FEATURES]}
    trapped = {axis for axis, trap in ENDS.get(call.op, {}).items() if b.rules.has_trap(trap)}
    axes = [a for a in sorted(trapped) if not (lengths[a].is_static and int(lengths[a]))]
    if not axes:
        return None
    sizes = {a: older.size_of(b, x, a) for a in axes}
    missing = older.missing_of(b, sizes)
    of_sequences, of_ends = ({1: missing[1]}, {0: missing[1]}) if 1 in axes else ({}, {})
    operands = [
        older.padded(b, x, missing, 3),
        older.padded(b, w, {FEATURES: missing[FEATURES]} if FEATURES in axes else {}, 3),
        r,
        bias,
        None if ends is None else older.padded(b, ends, of_ends, 1),
        *(None if s is None else older.padded(b, s, of_sequences, 3) for s in (h, c)),
        peepholes,
    ][: len(call.inputs)]
    # The first result is [steps, directions, sequences, hidden], and the others are [directions, sequences, hidden].
    of_states = {1: sizes[1]} if 1 in axes else {}
    cuts = [{2 * a: sizes[a] for a in axes if a != FEATURES}, *[of_states] * (len(call.types) - 1)]
    wide = [older.with_elements(t, cut) for t, cut in zip(call.types, cuts, strict=True)]
    parts = b.emit_many(call.op, tuple(operands), wide, call.attributes)
    results = [older.cut(b, part, cut, t) for part, cut, t in zip(parts, cuts, call.types, strict=True)]
    if 0 in axes:
        has_no_steps = b.op("Equal", sizes[0], b.vector([0]), dtype=DType.bool)
        for i, initial in zip(range(1, len(results)), (h, c), strict=False):
            first, state = b.scalar(0.0, x.dtype) if initial is None else initial, results[i]
            results[i] = b.op("Where", has_no_steps, first, state, dtype=state.dtype, shape=call.types[i].shape)
    return tuple(results)
