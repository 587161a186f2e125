"""A Model for shapes that stay the same: memory for inputs and outputs, bound once. See docs/howto/fast_calls.md."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnxruntime
from numpy import ndarray

from graphcore.arrays import big_integers, casting
from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunCancelledError, RunError, RunTimeoutError
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.transport_dtypes import PLAIN, from_value, to_ort, unpaired
from graphcore.runtime.stopping.limit import Limit, run, seconds_of
from graphcore.support.escaping import escaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import TensorType, Type, tensor_type

_HOST = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
"""Where outputs are made whose size only the run knows."""

OnError: TypeAlias = tuple[
    Callable[[Exception, Mapping[str, Any]], RunError], Callable[[Exception, Mapping[str, Any]], list[Any] | None]
]
"""(the error to raise for one of the runtime, the results of a call that failed on empty arrays or None)."""


class Arrays(Mapping[str, Array]):
    """The arrays of a `Bound` by name."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __setitem__(self, name: str, array: object) -> None:
        raise FeedError(
            f"bind: {name!r:.80} has an array that the runtime knows, and takes no other",
            help=f"fill it, bound.inputs[{name!r:.80}][...] = array, or give the array to the call",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return repr(dict(self._arrays))


class Bound:
    """A Model whose inputs and outputs have arrays of their own, made by `Model.bind`.

    `bound.inputs["x"][...] = array` fills an input where the runtime reads it, `bound()` runs, and `bound.outputs["y"]`
    is the array that the runtime wrote to: the same one in each call, which the next call overwrites. `bound(array)`
    and `bound(x=array)` copy arrays to the inputs first; inputs that are not given hold what they held.

    Calls from several threads wait for each other. They share the arrays: give each thread a `Bound` of its own, which
    costs its arrays and no more.
    """

    def __init__(
        self,
        name: str,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        sizes: Mapping[str, int],
        examples: Mapping[str, Array],
        on_error: OnError,
        keep: object,
    ) -> None:
        """sizes: of named dims. examples: arrays of the inputs. keep: what must live as long as the session."""
        self.name = name
        self._keep = session, keep
        self._failed, self._of_nothing = on_error
        self._lock = threading.Lock()
        self._binding = session.io_binding()
        tensors, results = _tensors(inputs), _tensors(outputs)
        self._feeds = Feeds(name, {n: TensorType(t.dtype, _meant(t, examples[n].shape)) for n, t in tensors})
        slots = {n: self._slot(n, t, examples[n].shape) for n, t in tensors}
        for n, slot in slots.items():
            slot.array[...] = examples[n]
            self._binding.bind_ortvalue_input(n, slot.value)
        held = {n: shape for n, t in results if (shape := _shape(t, sizes)) is not None and t.dtype is not DType.string}
        made = {n: self._slot(n, t, held[n]) for n, t in results if n in held}
        for n, _ in results:
            if n in made:
                self._binding.bind_ortvalue_output(n, made[n].value)
            else:
                self._binding.bind_output(n)
        self._raw = {n: slot.array for n, slot in slots.items()}
        self._inputs = {n: unpaired(self._raw[n], t) for n, t in tensors}
        stored = {
            n: made[n].array if n in made else np.zeros((0, *big_integers.carried_axis(t.dtype)), t.dtype.storage.numpy)
            for n, t in results
        }
        self._outputs = {n: unpaired(stored[n], t) for n, t in results}
        self._put = tuple(slot.put for slot in slots.values() if not slot.is_shared)
        # Whoever fills bools in place may give bytes that are neither 0 nor 1, which kernels take for numbers.
        self._bools = tuple((a, a.view(np.uint8)) for a in self._inputs.values() if a.dtype == np.bool_)
        self._fetch = tuple(slot.fetch for slot in made.values() if not slot.is_shared)
        self._fresh = tuple(
            (n, position, _reader(t, n in inputs)) for position, (n, t) in enumerate(results) if n not in made
        )
        self._is_host = session.get_providers()[0] == "CPUExecutionProvider"
        # What is bound is moved to a device at once, as it is then.
        self._moved = () if self._is_host else tuple((n, slot.value) for n, slot in slots.items())
        # Measured: what `run_with_iobinding` does in Python beforehand is a seventh of a small call.
        self._run = session._sess.run_with_iobinding
        self._bound = self._binding._iobinding
        self._bind_output = self._bound.bind_output
        self._values = self._bound.get_outputs
        self._targets = tuple((a, a.dtype, a.shape) for a in self._inputs.values())
        self._has_more = bool(self._bools or self._put or self._fetch or not self._is_host)
        # Where the runtime makes all outputs, nothing is gained by binding them: measured, it takes as long as a call.
        is_plain = not made and all(read is None for _, _, read in self._fresh)
        self._fed = self._raw if is_plain and not self._has_more else None
        self._names = [n for n, _ in results]
        self._last: list[Array] = []
        self._run_fed = session._sess.run

    @property
    def inputs(self) -> Mapping[str, Array]:
        """Return the arrays that are read in a call, to be filled in place."""
        return Arrays(self._inputs)

    @property
    def outputs(self) -> Mapping[str, Array]:
        """Return the arrays that a call writes to; of outputs whose size only the run knows, those that the last call
        gave."""
        return Arrays(dict(zip(self._outputs, self._last, strict=True)) if self._last else self._outputs)

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Array]:
        """Run on what the inputs hold, after copying what is given to them. Returns the arrays of `outputs`, in order.

        timeout: seconds that the call may take, as of a call of the model. Raises `FeedError` for an array that is not
        of the bound dtype and shape, of which none is copied then, `RunTimeoutError` where the time is over, and
        `RunError` where the runtime fails; the outputs may have been written to by then.
        """
        if timeout is not None:
            if "timeout" not in self._inputs:
                with Limit(self.name, seconds_of(self.name, timeout)):
                    return self(*arrays, **named)
            named["timeout"] = timeout
        with self._lock:
            if arrays or named:
                self._fill(arrays, named)
            try:
                if self._fed is None:
                    self._run_bound()
                else:
                    made: list[Array] = run(self._run_fed, self._names, self._fed)
                    self._last = [*made]
                    return made
            except (RunTimeoutError, RunCancelledError):
                raise
            except Exception as error:
                found = self._of_nothing(error, self._inputs)
                if found is None:
                    raised = self._failed(error, self._inputs)
                    raise raised from raised.__cause__ or error
                self._take(found)
            return [*self._outputs.values()]

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: a Bound is not copied or pickled: its arrays are where the runtime reads them",
            help="bind the model again: model.bind",
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._feeds.types.items())
        return escaped(f"<Bound {self.name}({inputs}) -> {', '.join(self._outputs)}>")

    def _slot(self, name: str, type_: TensorType, shape: Sequence[int]) -> Slot:
        try:
            return Slot(shape, type_.dtype.storage)
        except (MemoryError, ValueError):  # of a size that no array has NumPy raises a ValueError
            raise ResourceLimitError(
                f"bind: {self.name}: there is no memory for {name}, {type_.dtype}{list(shape)}",
                help="bind smaller shapes",
            ) from None

    def _fill(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> None:
        targets = self._targets
        if len(arrays) == 1 and not named and targets:
            array, (target, dtype, shape) = arrays[0], targets[0]
            if type(array) is ndarray and array.dtype is dtype and array.shape == shape:
                target[...] = array
                return
        elif not named and len(arrays) <= len(targets):
            for array, (_, dtype, shape) in zip(arrays, targets, strict=False):
                if type(array) is not ndarray or array.dtype is not dtype or array.shape != shape:
                    break
            else:
                for array, (target, _, _) in zip(arrays, targets, strict=False):
                    target[...] = array
                return
        held = {n: a for n, a in list(self._inputs.items())[len(arrays) :] if n not in named}
        for name, array in self._feeds.take(arrays, {**held, **named}).items():
            np.copyto(self._raw[name], array)

    def _take(self, results: Sequence[Array]) -> None:
        """Write results that another session gave to the outputs."""
        self._last = []
        fresh = {name for name, _, _ in self._fresh}
        for name, array in zip([*self._outputs], results, strict=True):
            if name in fresh:
                self._outputs[name] = array
            else:
                self._outputs[name][...] = array

    def _run_bound(self) -> None:
        if self._has_more:
            self._prepare()
        for name, _, _ in self._fresh:  # or the runtime would write to what it made in the last call
            self._bind_output(name, _HOST)
        run(self._run, self._bound)
        if self._has_more:
            self._fetch_all()
        if self._fresh:
            values = self._values()
            for name, position, read in self._fresh:
                value = values[position]
                self._outputs[name] = value.numpy() if read is None else read(value)

    def _prepare(self) -> None:
        for bools, octets in self._bools:
            bools[...] = octets
        for put in self._put:
            put()
        for name, value in self._moved:
            self._binding.bind_ortvalue_input(name, value)

    def _fetch_all(self) -> None:
        if not self._is_host:
            self._bound.synchronize_outputs()
        for fetch in self._fetch:
            fetch()


def _reader(type_: TensorType, is_input: bool) -> Callable[[Any], Array] | None:
    """Return what reads an output of which the runtime makes the memory; None where `numpy()` does.

    Measured: through the package's own OrtValue that takes four times as long.
    """
    if type_.dtype.is_complex:
        plain = _reader(tensor_type(type_.dtype.storage, type_.shape), is_input) or (lambda value: value.numpy())
        return lambda value: casting.unpaired(plain(value))
    storage = type_.dtype.storage
    if is_input:  # of which the memory may be the input's own
        return lambda value: from_value(onnxruntime.OrtValue(value), storage).copy()
    return None if storage in PLAIN else lambda value: from_value(onnxruntime.OrtValue(value), storage)


def bound(
    name: str,
    session: onnxruntime.InferenceSession,
    inputs: Mapping[str, Type],
    outputs: Mapping[str, Type],
    arrays: Sequence[Any],
    named: Mapping[str, Any],
    on_error: OnError,
    keep: object,
) -> Bound:
    """See `Model.bind`."""
    if not transport_dtypes.is_bindable(inputs, outputs):
        raise ModelError(
            f"bind: {name} has strings, lists or optionals, which the runtime binds no memory to",
            operands={n: str(t) for n, t in (*inputs.items(), *outputs.items())},
            help="call the model",
        )
    given, sizes = _taken_apart(name, inputs, arrays, named)
    feeds = Feeds(name, inputs)
    tensors = dict(_tensors(inputs))
    shapes = _shapes(name, tensors, given, sizes)
    feed = feeds.take([], {n: given[n] if n in given else _zeros(name, n, tensors[n], shapes[n]) for n in inputs})
    known = feeds.sizes_of(feed)
    for dim, size in sizes.items():
        if known.get(dim, size) != size:
            raise FeedError(
                f"{name}: {dim} is {size}, and {known[dim]} in the arrays and shapes that are given",
                help="leave one of them out",
            )
    return Bound(name, session, inputs, outputs, {**sizes, **known}, feed, on_error, keep)


def _taken_apart(
    name: str, inputs: Mapping[str, Type], arrays: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return what is given for inputs, shapes as tuples, and the sizes that are given for dims."""
    if len(arrays) > len(inputs):
        raise FeedError(
            f"{name}: {len(arrays)} arrays given for {len(inputs)} inputs", help=f"the inputs: {_listed(inputs)}"
        )
    given = dict(zip(inputs, arrays, strict=False))
    sizes = {}
    dims = {p for _, t in _tensors(inputs) if t.shape.is_ranked for d in t.shape for p in d.parameters}
    for key, value in named.items():
        if key in given:
            raise FeedError(f"{name}: input {key!r} is given twice", help="give it by position or by name")
        if key in inputs and not (_is_size(value) and key in dims):
            given[key] = value
        elif key in dims:
            if not _is_size(value):
                raise FeedError(f"{name}: {key}={value!r:.80} is no size", help=f"give a number: model.bind({key}=8)")
            sizes[key] = int(value)
        else:
            raise FeedError(
                f"{name}: there is no input and no dim {key!r} to bind",
                help=f"the inputs: {_listed(inputs)}; the dims: {', '.join(sorted(dims)) or 'all are numbers'}",
            )
    for key, value in given.items():
        if isinstance(value, (tuple, list)):
            if not all(map(_is_size, value)):
                raise FeedError(f"{name}: input {key!r}: {value!r:.80} is no shape", help="give a tuple of sizes")
            given[key] = tuple(map(int, value))
        elif not isinstance(value, (np.ndarray, np.generic)):
            raise FeedError(
                f"{name}: input {key!r}: {value!r:.80} is no shape and no array",
                help=f"give a tuple of sizes, or an example: model.bind({key}=(8, 128))",
            )
    return given, sizes


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def _shapes(
    name: str, inputs: Mapping[str, TensorType], given: dict[str, Any], sizes: dict[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs for which no array is given; take given shapes out of what is given."""
    stated: dict[str, tuple[int, ...]] = {n: given.pop(n) for n in [*given] if isinstance(given[n], tuple)}
    known = dict(sizes)
    for n, type_ in inputs.items():
        shape = stated.get(n, getattr(given.get(n), "shape", None))
        if shape is not None and type_.shape.is_ranked:
            pairs = zip(type_.shape, shape, strict=False)
            known.update({d.name: size for d, size in pairs if d.name is not None and d.name not in known})
    made: dict[str, tuple[int, ...]] = {}
    for n, type_ in inputs.items():
        if n in given:
            made[n] = ()
        elif n in stated:
            made[n] = (*stated[n], *big_integers.carried_axis(type_.dtype))
        else:
            shape = _shape(type_, known)
            if shape is None:
                _unknown(name, n, type_, known)
            if any(size < 0 for size in shape):
                used = {p: known[p] for d in type_.shape for p in sorted(d.parameters)}
                said = ", ".join(f"{p}={size}" for p, size in used.items())
                raise FeedError(
                    f"{name}: {said} makes {type_.dtype}{list(shape)} of input {n!r}",
                    operands={n: str(type_)},
                    help="give sizes of which no dim is below 0",
                )
            made[n] = shape
    return made


def _unknown(name: str, input_: str, type_: TensorType, known: Mapping[str, int]) -> NoReturn:
    missing = sorted({p for d in type_.shape for p in d.parameters} - known.keys()) if type_.shape.is_ranked else []
    example = f"bind({missing[0]}=8)" if missing else f"bind({input_}=(8, 128))"
    raise FeedError(
        f"{name}: nothing says what {', '.join(missing) or f'the shape of input {input_!r}'} is bound to",
        operands={input_: str(type_)},
        help=f"give sizes of dims, shapes or example arrays: model.{example}",
    )


def _zeros(name: str, input_: str, type_: TensorType, shape: Sequence[int]) -> Array:
    try:
        return np.zeros(shape, type_.dtype.storage.numpy)
    except (MemoryError, ValueError):
        raise ResourceLimitError(
            f"bind: {name}: there is no memory for {input_}, {type_.dtype}{list(shape)}", help="bind smaller shapes"
        ) from None


def _shape(type_: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape as numbers, with the axis that stored ones have more; None where only the run knows it."""
    if not type_.shape.is_ranked or not all(_is_known(dim, sizes) for dim in type_.shape):
        return None
    return (*(dim.evaluate(sizes) for dim in type_.shape), *big_integers.carried_axis(type_.dtype))


def _meant(type_: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a value whose stored one is given."""
    return shape[:-1] if is_carried(type_.dtype) else shape


def _is_known(dim: Dim, sizes: Mapping[str, int]) -> bool:
    return not dim.is_dynamic and bool(dim.parameters <= sizes.keys())


def _tensors(types: Mapping[str, Type]) -> list[tuple[str, TensorType]]:
    return [(name, type_) for name, type_ in types.items() if isinstance(type_, TensorType)]


def _listed(types: Mapping[str, Type]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in types.items()) or "none"


# Arrays that the runtime reads from and writes to where they lie.


class Slot:
    """An array of zeros of a stored dtype, and the OrtValue to bind for it.

    They share their memory where the runtime has the dtype in the form that NumPy has it in. Of others, float4 and what
    is packed several elements a byte, `put` copies from the array to the value and `fetch` from the value to the array.
    """

    __slots__ = ("_storage", "_transport", "array", "is_shared", "value")

    def __init__(self, shape: Sequence[int], storage: DType) -> None:
        transport = transport_dtypes.transport_dtype(storage)
        self._storage = storage
        self.array = np.zeros(shape, storage.numpy)
        self.is_shared = transport is storage and storage.bits >= 8
        self._transport = self.array if transport is storage else np.zeros(shape, transport.numpy)
        if transport.bits >= 8:
            self.value = to_ort(self._transport, transport)
        else:
            self.value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), transport.onnx)

    def put(self) -> None:
        """Copy the array to where the runtime reads it."""
        if self._transport is not self.array:
            self._transport[...] = self.array.astype(self._transport.dtype)
        elif not self.is_shared and self.array.size:
            packed = np.frombuffer(raw(self.array, self._storage), np.uint8)
            ctypes.memmove(self.value.data_ptr(), packed.ctypes.data, packed.nbytes)

    def fetch(self) -> None:
        """Copy what the runtime has written to the array."""
        if not self.is_shared:
            self.array[...] = transport_dtypes.from_value(self.value, self._storage)
