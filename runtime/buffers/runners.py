"""The two ways to run a session beside its own call, with the buffers of a Model: bound memory, or plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.buffers.state import ModelBuffer, Program, State, Stored, Value
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.memory import LATER
from graphcore.runtime.ort.transport_dtypes import PLAIN
from graphcore.runtime.stopping.limit import is_count, run, run_once
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type


class _Last(NamedTuple):
    """The binding of a call, which the next call uses again.

    values: of the buffers, to which the call has stored in place.
    """

    session: onnxruntime.InferenceSession
    values: Mapping[str, Value]
    stored: dict[str, Value]
    binding: onnxruntime.IOBinding


class IoBindingRunner:
    """Runs a session with buffers as OrtValues that the runtime reads and writes.

    Buffers of NumPy's dtypes are on the device of the session's first provider. Others are on the CPU, because they
    could not be read from the device.
    """

    checks_shapes = True

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        buffers: Sequence[ModelBuffer],
    ) -> None:
        self._session = session
        self._inputs = {n: t.dtype.storage for n, t in inputs.items() if isinstance(t, TensorType)}
        self._outputs = {n: t.dtype.storage for n, t in outputs.items() if isinstance(t, TensorType)}
        self._complex = [(i, t) for i, t in enumerate(outputs.values()) if is_complex(t)]
        self._returned = [i for i, name in enumerate(outputs) if name in inputs]
        """Outputs that are inputs, and share their memory."""
        self._changed = [buffer for buffer in buffers if buffer.output is not None]
        self._run = run_once if any(buffer.in_place for buffer in self._changed) else run
        self._device = _device(session)
        # Binding an input copies it to the device immediately.
        is_host = session.get_providers()[0] == "CPUExecutionProvider"
        is_plain = {*self._inputs.values(), *self._outputs.values()} <= PLAIN
        optional = {value.name for value in session.get_overridable_initializers()}
        self._plain = {name for name, storage in self._inputs.items() if storage in PLAIN} - optional
        stays = is_host and is_plain and not optional
        self._stays_bound = stays and all(buffer.in_place for buffer in self._changed)
        self.writes_to_arrays = is_host and is_plain
        self._host = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
        self._later = LATER.get(session)

    def make_value(self, buffer: ModelBuffer, array: Array) -> onnxruntime.OrtValue:
        """Return a value that takes over an array."""
        storage = buffer.type.dtype.storage
        if self._device[0] != "cpu" and storage in PLAIN:
            return onnxruntime.OrtValue.ortvalue_from_numpy(array, *self._device)
        return transport_dtypes.to_value(array, storage)

    def read(self, buffer: ModelBuffer, value: onnxruntime.OrtValue) -> Array:
        """Return a copy of a value as an array."""
        storage = buffer.type.dtype.storage
        array = transport_dtypes.from_value(value, storage)
        return array.copy() if storage in PLAIN else array

    def shape(self, value: onnxruntime.OrtValue) -> tuple[int, ...]:
        return tuple(value.shape())

    def run(self, feed: Mapping[str, Any], values: Mapping[str, Any], spare: Mapping[str, Any], last: Any) -> Stored:
        """Return the outputs, the stored values, and `last` for the next call of the state.

        spare: values that may be overwritten.
        """
        later = self._later
        if later is not None and later.after_call():
            self._later = None
        # Measured: binding 24 buffers again takes 0.15 ms after a step that reads 400 MB, which evicts Python from the
        # processor's caches. The public methods of a binding take three times as long as the functions that they call.
        is_bound = last is not None and last.values is values and last.session is self._session
        binding = last.binding if is_bound else self._session.io_binding()
        bound = binding._iobinding
        for name, array in feed.items():
            if name in self._plain:  # a third of the time of the other way
                bound.bind_input(name, array)
            else:
                binding.bind_ortvalue_input(name, transport_dtypes.to_value(array, self._inputs[name]))
        for name in self._outputs:  # else the runtime would write to the memory of the last call
            bound.bind_output(name, self._host)
        targets = [] if is_bound else self._bind_buffers(binding, values, spare)
        self._run(self._session._sess.run_with_iobinding, bound)
        count = len(self._outputs)
        if is_bound:
            outputs = bound.get_outputs()
            results = [outputs[i].numpy() for i in range(count)]
        else:
            binding.synchronize_outputs()
            outputs = binding.get_outputs()
            results = [transport_dtypes.from_value(v, t) for v, t in zip(outputs, self._outputs.values(), strict=False)]
        for position in self._returned:
            results[position] = results[position].copy()
        for position, type_ in self._complex:
            results[position] = transport_dtypes.unpaired(results[position], type_)
        if is_bound:
            return results, last.stored, last
        # For bound memory the runtime returns another OrtValue, which does not keep the memory alive.
        new = [value if target is None else target for value, target in zip(outputs[count:], targets, strict=True)]
        stored = {buffer.name: value for buffer, value in zip(self._changed, new, strict=True)}
        return results, stored, _Last(self._session, values, stored, binding) if self._stays_bound else None

    def _bind_buffers(
        self, binding: onnxruntime.IOBinding, values: Mapping[str, Any], spare: Mapping[str, Any]
    ) -> list[Any]:
        """Bind the values of buffers and the targets of stores, and return the targets."""
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        return [self._bind(binding, buffer, values[buffer.name], spare.get(buffer.name)) for buffer in self._changed]

    def _bind(self, binding: onnxruntime.IOBinding, buffer: ModelBuffer, now: Any, spare: Any) -> Any:
        """Bind the target of a store and return it: a value of its size if that is known, or None for new memory."""
        if not buffer.keeps_shape:
            device = self._device if buffer.type.dtype.storage in PLAIN else ("cpu", 0)
            binding.bind_output(buffer.output, *device)
            return None
        if buffer.in_place:
            target = now
        elif spare is not None and spare.shape() == now.shape():
            target = spare
        else:
            target = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                now.shape(), now.element_type(), now.device_name().lower(), self._device[1]
            )
        binding.bind_ortvalue_output(buffer.output, target)
        return target


class ArrayRunner:
    """Runs a session with buffers as fed and fetched arrays, for strings, lists and optionals, which cannot be
    bound."""

    checks_shapes = False
    writes_to_arrays = False

    def __init__(
        self,
        run: Callable[[list[str], dict[str, Any], None], list[Any]],
        names: Sequence[str],
        fed: Mapping[str, DType],
        restored: Sequence[tuple[int, DType]],
        buffers: Sequence[ModelBuffer],
    ) -> None:
        self._run = run
        self._names = list(names)
        self._fed = fed
        self._restored = restored
        self._changed = [buffer.name for buffer in buffers if buffer.output is not None]

    def make_value(self, buffer: ModelBuffer, array: Array) -> Array:
        return array

    def read(self, buffer: ModelBuffer, value: Array) -> Array:
        return value.copy()

    def shape(self, value: Array) -> tuple[int, ...]:
        return tuple(value.shape)

    def run(self, feed: Mapping[str, Any], values: Mapping[str, Any], spare: Mapping[str, Any], last: Any) -> Stored:
        """Return the outputs, the stored values, and None for the next call."""
        arrays = {
            name: transport_dtypes.to_value(value, self._fed[name]) if name in self._fed else value
            for name, value in {**feed, **values}.items()
        }
        results = run(self._run, self._names, arrays)
        for position, dtype in self._restored:
            results[position] = transport_dtypes.restored(results[position], dtype)
        count = len(results) - len(self._changed)
        return results[:count], dict(zip(self._changed, results[count:], strict=True)), None


def _device(session: onnxruntime.InferenceSession) -> tuple[str, int]:
    provider = session.get_providers()[0]
    if provider != "CUDAExecutionProvider":
        return "cpu", 0
    return "cuda", int(session.get_provider_options()[provider].get("device_id", 0))


# Slots: the buffers of a Model for several streams in one array; a call runs any range of its rows.


class Slots:
    """Rows of the buffers of a Model: one row of the first dim of each buffer for each stream. Made by `Model.slots`.

    `slots.run(start, stop, *arrays)` runs the Model on these rows only, with inputs of as many rows. `slots.arrays` has
    the arrays of all rows by name, to read and write between calls: move rows there. Only one thread at a time may use
    the slots.

    If the runtime writes buffers in place in host memory, a range is a view, and no row is copied. Otherwise the rows
    of a range are copied to its call, and back when another range runs or `arrays` is read.
    """

    def __init__(self, program: Program, count: int) -> None:
        """Raise `ModelError` if the buffers do not all begin with the same named dim, `FeedError` for a count below 1,
        and `ResourceLimitError` if there is not enough memory."""
        if not is_count(count):
            raise FeedError(f"slots: {program.name}: count={count!r:.80}", help="give a whole number of 1 or above")
        self._program = program
        self._count = int(count)
        dim = _batch(program)
        try:
            self._arrays = {k.name: self._rows(k, str(dim)) for k in program.buffers}
        except (MemoryError, ValueError):
            raise ResourceLimitError(
                f"slots: {program.name}: there is not enough memory for {count} rows of its buffers",
                operands={k.name: str(k.type) for k in program.buffers[:2]},
                help="use fewer rows",
            ) from None
        self._shares = program.is_in_place and program.runner.writes_to_arrays
        self._states: dict[tuple[int, int], State] = {}
        self._is_lost = False

    def __len__(self) -> int:
        return self._count

    def run(self, start: int, stop: int, /, *arrays: Any, **named: Any) -> list[Any]:
        """Run the Model on rows start to stop and return its outputs. named: inputs by name, such as an adapter.

        A failed call does not change other rows, and writes to its own rows only what it would have stored. On another
        device a failed call loses all rows, and the next one raises `RunError`. Raises as a call of a State, and
        `FeedError` for an empty range or one outside of the rows.
        """
        state = self._states.get((start, stop))
        if state is None:
            state = self._state(start, stop)
        try:
            return state(*arrays, **named)
        except BaseException:
            # The state refuses further calls. Shared memory loses only the values that this call would have stored.
            if self._shares:
                del self._states[start, stop]
            elif self._program.writes_in_place:
                self._is_lost = True
            raise

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays of the buffers by name, all rows: valid until the next call."""
        self._bring_back()
        return self._arrays

    def __repr__(self) -> str:
        return escaped(f"<Slots of {self._program.name}: {self._count} rows>")

    def _rows(self, buffer: ModelBuffer, dim: str) -> Array:
        first = buffer.initial_value({dim: self._count})
        return first.copy() if first is buffer.declaration.initial else first

    def _state(self, start: int, stop: int) -> State:
        if not 0 <= start < stop <= self._count:
            raise FeedError(
                f"slots: {self._program.name}: rows {start} to {stop} of {self._count}", help="give 0 <= start < stop"
            )
        self._bring_back()
        program = self._program
        rows = {name: array[start:stop] for name, array in self._arrays.items()}
        if self._shares:  # adjacent rows are a contiguous array, whose memory `make_value` shares
            state = State(program, {}, {k.name: program.runner.make_value(k, rows[k.name]) for k in program.buffers})
        else:
            state = State(program, rows)
        self._states[start, stop] = state
        return state

    def _bring_back(self) -> None:
        """Copy the rows of the last range to the arrays of all rows, if they do not share memory."""
        if self._shares:
            return
        if self._is_lost:
            raise RunError(
                f"slots: a failed call of {self._program.name} may have written to its rows in place",
                help="create new slots: model.slots(count)",
            )
        while self._states:
            (start, stop), state = self._states.popitem()
            for name, array in self._arrays.items():
                now = state.buffers[name]
                if now.shape != array[start:stop].shape:
                    raise RunError(
                        f"slots: a call on rows {start} to {stop} of {self._program.name} has stored another shape",
                        operands={name: f"{now.dtype}{list(now.shape)}"},
                        help="store one row for each stream",
                    )
                array[start:stop] = now


def _batch(program: Program) -> object:
    """Return the first dim of all buffers. Raises `ModelError` if it is not one named dim."""
    shapes = [k.type.shape for k in program.buffers]
    are_rows = all(s.is_ranked and len(s) and all(dim.is_static for dim in s[1:]) for s in shapes)
    first = shapes[0][0] if are_rows else None
    if first is None or first.is_static or first.is_dynamic or any(s[0] is not first for s in shapes):
        raise ModelError(
            f"slots: the buffers of {program.name} must begin with the same named dim, followed by static dims",
            operands={k.name: str(k.type) for k in program.buffers[:4]},
            help='declare them as gc.Buffer("float32", ["batch", 1024, 64], in_place=True)',
        )
    return first
