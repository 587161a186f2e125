"""The two ways to run a session with what the buffers of a Model hold: memory that is bound, or plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.buffers.state import Kept, Program, State, Stored, Value
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.memory import memory_of
from graphcore.runtime.ort.transport_dtypes import PLAIN
from graphcore.runtime.stopping.limit import run, run_once
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type


class _Last(NamedTuple):
    """The binding that a call leaves for the next one.

    held: what the buffers hold, which is where the call has stored it.
    """

    held: Mapping[str, Value]
    stored: dict[str, Value]
    binding: onnxruntime.IOBinding


class IoBindingRunner:
    """Runs a session with buffers as OrtValues, given to the runtime to read from and to write to.

    Those of dtypes that NumPy has lie on the device of the session's first provider, the others, which could not be
    read there, on the CPU.
    """

    checks_shapes = True

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        kept: Sequence[Kept],
    ) -> None:
        self._session = session
        self._inputs = {n: t.dtype.storage for n, t in inputs.items() if isinstance(t, TensorType)}
        self._outputs = {n: t.dtype.storage for n, t in outputs.items() if isinstance(t, TensorType)}
        self._complex = [(i, t) for i, t in enumerate(outputs.values()) if is_complex(t)]
        self._changed = [kept for kept in kept if kept.output is not None]
        self._run = run_once if any(kept.in_place for kept in self._changed) else run
        self._device = _device(session)
        # What is bound is moved to a device at once, as it is then.
        is_host = session.get_providers()[0] == "CPUExecutionProvider"
        is_plain = {*self._inputs.values(), *self._outputs.values()} <= PLAIN
        self._stays_bound = is_host and is_plain and all(kept.in_place for kept in self._changed)
        self.writes_to_arrays = is_host and is_plain
        self._host = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
        self._later = memory_of(session)

    def hold(self, kept: Kept, array: Array) -> onnxruntime.OrtValue:
        """Return a value of an array that has no other owner."""
        storage = kept.type.dtype.storage
        if self._device[0] != "cpu" and storage in PLAIN:
            return onnxruntime.OrtValue.ortvalue_from_numpy(array, *self._device)
        return transport_dtypes.to_value(array, storage)

    def read(self, kept: Kept, value: onnxruntime.OrtValue) -> Array:
        """Return the array of a value, a copy."""
        storage = kept.type.dtype.storage
        array = transport_dtypes.from_value(value, storage)
        return array.copy() if storage in PLAIN else array

    def shape(self, value: onnxruntime.OrtValue) -> tuple[int, ...]:
        return tuple(value.shape())

    def run(self, feed: Mapping[str, Any], held: Mapping[str, Any], spare: Mapping[str, Any], last: Any) -> Stored:
        """Return the outputs, what was stored, and what the next call of the state is given as last.

        spare: values that may be written to.
        """
        later = self._later
        if later is not None and later.after_call():
            self._later = None
        if last is not None and last.held is held:
            return self._run_again(feed, last)
        binding = self._session.io_binding()
        self._feed(binding, feed)
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name)
        targets = [self._bind(binding, kept, held[kept.name], spare.get(kept.name)) for kept in self._changed]
        self._run(self._session._sess.run_with_iobinding, binding._iobinding)  # a fifth of the time of the public one
        binding.synchronize_outputs()
        made = binding.get_outputs()
        count = len(self._outputs)
        results = [transport_dtypes.from_value(v, t) for v, t in zip(made[:count], self._outputs.values(), strict=True)]
        for position, type_ in self._complex:
            results[position] = transport_dtypes.unpaired(results[position], type_)
        # Of memory that was bound the OrtValue that comes out is another, which does not keep the memory alive.
        new = [value if target is None else target for value, target in zip(made[count:], targets, strict=True)]
        stored = {kept.name: value for kept, value in zip(self._changed, new, strict=True)}
        return results, stored, _Last(held, stored, binding) if self._stays_bound else None

    def _run_again(self, feed: Mapping[str, Any], last: _Last) -> Stored:
        """Run on the buffers as they are bound.

        Measured: to bind 24 buffers anew takes 0.15 ms after a step that reads 400 MB, for the processor's caches have
        forgotten Python by then; so do the public methods of a binding take three times as long as what they call.
        """
        bound = last.binding._iobinding
        for name, array in feed.items():
            bound.bind_input(name, array)
        for name in self._outputs:  # or the runtime would write to what it made in the last call
            bound.bind_output(name, self._host)
        self._run(self._session._sess.run_with_iobinding, bound)
        made = bound.get_outputs()
        results = [made[i].numpy() for i in range(len(self._outputs))]
        for position, type_ in self._complex:
            results[position] = transport_dtypes.unpaired(results[position], type_)
        return results, last.stored, last

    def _feed(self, binding: onnxruntime.IOBinding, feed: Mapping[str, Any]) -> None:
        for name, array in feed.items():
            storage = self._inputs[name]
            if storage in PLAIN:  # a third of the time of the other way
                binding.bind_cpu_input(name, array)
            else:
                binding.bind_ortvalue_input(name, transport_dtypes.to_value(array, storage))

    def _bind(self, binding: onnxruntime.IOBinding, kept: Kept, now: Any, spare: Any) -> Any:
        """Bind where what is stored to a buffer goes, and return it: a value of its size, where that is known, or None
        for new one."""
        if not kept.keeps_shape:
            device = self._device if kept.type.dtype.storage in PLAIN else ("cpu", 0)
            binding.bind_output(kept.output, *device)
            return None
        if kept.in_place:
            target = now
        elif spare is not None and spare.shape() == now.shape():
            target = spare
        else:
            target = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                now.shape(), now.element_type(), now.device_name().lower(), self._device[1]
            )
        binding.bind_ortvalue_output(kept.output, target)
        return target


class ArrayRunner:
    """Runs a session with buffers as arrays, fed and fetched: for strings, lists and optionals, which the runtime binds
    no memory to."""

    checks_shapes = False
    writes_to_arrays = False

    def __init__(
        self,
        run: Callable[[list[str], dict[str, Any], None], list[Any]],
        names: Sequence[str],
        fed: Mapping[str, DType],
        restored: Sequence[tuple[int, DType]],
        kept: Sequence[Kept],
    ) -> None:
        self._run = run
        self._names = list(names)
        self._fed = fed
        self._restored = restored
        self._changed = [kept.name for kept in kept if kept.output is not None]

    def hold(self, kept: Kept, array: Array) -> Array:
        return array

    def read(self, kept: Kept, value: Array) -> Array:
        return value.copy()

    def shape(self, value: Array) -> tuple[int, ...]:
        return tuple(value.shape)

    def run(self, feed: Mapping[str, Any], held: Mapping[str, Any], spare: Mapping[str, Any], last: Any) -> Stored:
        """Return the outputs, what was stored, and nothing for the next call."""
        given = {
            name: transport_dtypes.to_value(value, self._fed[name]) if name in self._fed else value
            for name, value in {**feed, **held}.items()
        }
        results = run(self._run, self._names, given)
        for position, dtype in self._restored:
            results[position] = transport_dtypes.restored(results[position], dtype)
        count = len(results) - len(self._changed)
        return results[:count], dict(zip(self._changed, results[count:], strict=True)), None


def _device(session: onnxruntime.InferenceSession) -> tuple[str, int]:
    provider = session.get_providers()[0]
    if provider != "CUDAExecutionProvider":
        return "cpu", 0
    return "cuda", int(session.get_provider_options()[provider].get("device_id", 0))


# Slots: the buffers of a Model for several streams of calls in one memory, of which a call runs any range of rows.


class Slots:
    """Rows of the buffers of a Model: the first dim of each buffer, one row a stream.

    `slots.run(start, stop, *arrays)` runs the Model on these rows alone, with inputs of so many rows. `slots.arrays`
    are the memory, by name an array of all rows, to read and to write to between calls: that is how a row is moved.
    Made by `Model.slots`. One thread at a time uses it.

    Where the runtime writes buffers in place in host memory, a range is a view, and no row is copied. Otherwise what a
    range holds is copied to its call and back again when another range is run, or its memory is asked for.
    """

    def __init__(self, program: Program, count: int) -> None:
        """Raise `ModelError` for buffers that do not all begin with one named dim, `FeedError` for a count below 1, and
        `ResourceLimitError` where there is no memory for so many."""
        if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
            raise FeedError(f"slots: {program.name}: count={count!r:.80}", help="give a whole number of 1 or above")
        self._program = program
        self._count = int(count)
        dim = _batch(program)
        try:
            self._arrays = {k.name: self._rows(k, str(dim)) for k in program.kept}
        except (MemoryError, ValueError):
            raise ResourceLimitError(
                f"slots: {program.name}: there is no memory for {count} rows of its buffers",
                operands={k.name: str(k.type) for k in program.kept[:2]},
                help="ask for fewer rows",
            ) from None
        self._shares = program.is_in_place and program.runner.writes_to_arrays
        self._states: dict[tuple[int, int], State] = {}
        self._is_lost = False

    def __len__(self) -> int:
        return self._count

    def run(self, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        """Return the outputs of a call on rows start to stop, as calling the Model gives them.

        A call that fails has written to no other rows, and to its own only what this call would have stored; on another
        device all rows are lost then, and `RunError` says so. Raises what a call of a State does, and `FeedError` for a
        range that is empty or not inside.
        """
        state = self._states.get((start, stop))
        if state is None:
            state = self._state(start, stop)
        try:
            return state(*arrays)
        except BaseException:
            # The state would be refused from now on. Of memory that is shared no more is lost than was to be stored.
            if self._shares:
                del self._states[start, stop]
            elif self._program.writes_in_place:
                self._is_lost = True
            raise

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Return the memory of the buffers by name, all rows: valid until the next call."""
        self._bring_back()
        return self._arrays

    def __repr__(self) -> str:
        return escaped(f"<Slots of {self._program.name}: {self._count} rows>")

    def _rows(self, kept: Kept, dim: str) -> Array:
        first = kept.at_first({dim: self._count})
        return first.copy() if first is kept.buffer.initial else first

    def _state(self, start: int, stop: int) -> State:
        if not 0 <= start < stop <= self._count:
            raise FeedError(
                f"slots: {self._program.name}: rows {start} to {stop} of {self._count}", help="give 0 <= start < stop"
            )
        self._bring_back()
        program = self._program
        rows = {name: array[start:stop] for name, array in self._arrays.items()}
        if self._shares:  # rows side by side are an array of their own, whose memory `hold` shares
            state = State(program, {}, {k.name: program.runner.hold(k, rows[k.name]) for k in program.kept})
        else:
            state = State(program, rows)
        self._states[start, stop] = state
        return state

    def _bring_back(self) -> None:
        """Copy what the last range holds to the memory of all rows, where it is not the same."""
        if self._shares:
            return
        if self._is_lost:
            raise RunError(
                f"slots: a call of {self._program.name} failed that may have written to its rows in place",
                help="make other slots: model.slots(count)",
            )
        while self._states:
            (start, stop), state = self._states.popitem()
            for name, array in self._arrays.items():
                now = state.buffers[name]
                if now.shape != array[start:stop].shape:
                    raise RunError(
                        f"slots: a call on rows {start} to {stop} of {self._program.name} has stored another shape",
                        operands={name: f"{now.dtype}{list(now.shape)}"},
                        help="store as many rows as there are: a stream has one",
                    )
                array[start:stop] = now


def _batch(program: Program) -> object:
    """Return the dim that all buffers begin with. Raises `ModelError`."""
    shapes = [k.type.shape for k in program.kept]
    are_rows = all(s.is_ranked and len(s) and all(dim.is_static for dim in s[1:]) for s in shapes)
    first = shapes[0][0] if are_rows else None
    if first is None or first.is_static or first.is_dynamic or any(s[0] is not first for s in shapes):
        raise ModelError(
            f"slots: the buffers of {program.name} are not one named dim, the same of all, and then numbers",
            operands={k.name: str(k.type) for k in program.kept[:4]},
            help='declare them so: gc.Buffer("float32", ["batch", 1024, 64], in_place=True)',
        )
    return first
