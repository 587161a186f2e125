"""A Model with fixed shapes: memory for inputs and outputs that is bound once. See docs/howto/fast_calls.md."""

from __future__ import annotations

import contextlib
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
from graphcore.runtime.stopping.limit import Limit, is_count, run, seconds_of
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import TensorType, Type, tensor_type

_HOST = onnxruntime.OrtDevice.make("cpu", 0)._get_c_device()
"""The device of outputs whose size is only known at run time."""

OnError: TypeAlias = tuple[
    Callable[[Exception, Mapping[str, Any]], RunError], Callable[[Exception, Mapping[str, Any]], list[Any] | None]
]
"""(the error for an exception of the runtime, the results of a call that failed because of empty arrays or None)."""


class Arrays(Mapping[str, Array]):
    """The arrays of a `Bound` by name."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __setitem__(self, name: str, array: object) -> None:
        raise FeedError(
            f"bind: the array of {name!r:.80} is bound and cannot be replaced",
            help=f"fill it, bound.inputs[{name!r:.80}][...] = array, or pass the array to the call",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return repr(dict(self._arrays))


class Bound:
    """A Model whose inputs and outputs are bound to fixed arrays. Made by `Model.bind`.

    `bound.inputs["x"][...] = array` fills an input in place, `bound()` runs, and `bound.outputs["y"]` is the array that
    the runtime writes to. The next call overwrites this array. `bound(array)` and `bound(x=array)` copy arrays to the
    inputs first; other inputs keep their values.

    Calls from several threads wait for each other and share the arrays. Create a `Bound` for each thread: it costs only
    its arrays.
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
        """
        Args:
            sizes: Of named dims.
            examples: Arrays of the inputs.
            keep: Objects that must live as long as the session.
        """
        self.name = name
        self._keep = session, keep
        self._failed, self._empty_results = on_error
        self._lock = threading.Lock()
        self._binding = session.io_binding()
        tensors, results = _tensors(inputs), _tensors(outputs)
        self._feeds = Feeds(name, {n: TensorType(t.dtype, _semantic_shape(t, examples[n].shape)) for n, t in tensors})
        slots = {n: self._slot(n, t, examples[n].shape) for n, t in tensors}
        for n, slot in slots.items():
            slot.array[...] = examples[n]
            self._binding.bind_ortvalue_input(n, slot.value)
        shapes = {
            n: shape for n, t in results if (shape := _shape(t, sizes)) is not None and t.dtype is not DType.string
        }
        bound_outputs = {n: self._slot(n, t, shapes[n]) for n, t in results if n in shapes}
        for n, _ in results:
            if n in bound_outputs:
                self._binding.bind_ortvalue_output(n, bound_outputs[n].value)
            else:
                self._binding.bind_output(n)
        self._raw = {n: slot.array for n, slot in slots.items()}
        self._inputs = {n: unpaired(self._raw[n], t) for n, t in tensors}
        stored = {
            n: bound_outputs[n].array
            if n in bound_outputs
            else np.zeros((0, *big_integers.storage_axis(t.dtype)), t.dtype.storage.numpy)
            for n, t in results
        }
        self._outputs = {n: unpaired(stored[n], t) for n, t in results}
        self._puts = tuple(slot.put for slot in slots.values() if not slot.is_shared)
        # In-place writes to bools may leave bytes other than 0 and 1, which kernels use as numbers.
        self._bools = tuple((a, a.view(np.uint8)) for a in self._inputs.values() if a.dtype == np.bool_)
        self._fetches = tuple(slot.fetch for slot in bound_outputs.values() if not slot.is_shared)
        self._fresh = tuple(
            (n, position, _reader(t, n in inputs)) for position, (n, t) in enumerate(results) if n not in bound_outputs
        )
        self._is_host = session.get_providers()[0] == "CPUExecutionProvider"
        # Binding an input copies it to the device immediately.
        self._moved = () if self._is_host else tuple((n, slot.value) for n, slot in slots.items())
        # Measured: the Python code of `run_with_iobinding` takes a seventh of a small call.
        self._run = session._sess.run_with_iobinding
        self._bound = self._binding._iobinding
        self._bind_output = self._bound.bind_output
        self._values = self._bound.get_outputs
        self._targets = tuple((a, a.dtype, a.shape) for a in self._inputs.values())
        self._has_more = bool(self._bools or self._puts or self._fetches or not self._is_host)
        # If the runtime allocates all outputs, binding them gains nothing: measured, it takes as long as a call.
        is_plain = not bound_outputs and all(read is None for _, _, read in self._fresh)
        self._fed = self._raw if is_plain and not self._has_more else None
        self._names = [n for n, _ in results]
        self._last: list[Array] = []
        self._run_fed = session._sess.run

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The arrays that a call reads; fill them in place."""
        return Arrays(self._inputs)

    @property
    def outputs(self) -> Mapping[str, Array]:
        """The arrays that a call writes to; for outputs with sizes known only at run time, those of the last call."""
        return Arrays(dict(zip(self._outputs, self._last, strict=True)) if self._last else self._outputs)

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Array]:
        """Copy arrays to the inputs, run, and return the arrays of `outputs`, in order.

        Args:
            arrays: Arrays for the first inputs.
            timeout: Seconds that the call may take, as in a call of the model.
            named: Arrays for inputs by name.

        Raises:
            FeedError: If an array has another dtype or shape than the bound one. No array is copied then.
            RunTimeoutError: If the time is over.
            RunError: If the runtime fails. The outputs may be partly written.
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
                    results: list[Array] = run(self._run_fed, self._names, self._fed)
                    self._last = [*results]
                    return results
            except (RunTimeoutError, RunCancelledError):
                raise
            except Exception as error:
                empty_results = self._empty_results(error, self._inputs)
                if empty_results is None:
                    raised = self._failed(error, self._inputs)
                    raise raised from raised.__cause__ or error
                self._take(empty_results)
            return [*self._outputs.values()]

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: a Bound cannot be copied or pickled: its arrays are bound to the session",
            help="bind the model again: model.bind",
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._feeds.types.items())
        return escaped(f"<Bound {self.name}({inputs}) -> {', '.join(self._outputs)}>")

    def _slot(self, name: str, type_: TensorType, shape: Sequence[int]) -> Slot:
        with _enough_memory(self.name, name, type_, shape):
            return Slot(shape, type_.dtype.storage)

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
        current = {n: a for n, a in list(self._inputs.items())[len(arrays) :] if n not in named}
        for name, array in self._feeds.take(arrays, {**current, **named}).items():
            np.copyto(self._raw[name], array)

    def _take(self, results: Sequence[Array]) -> None:
        """Copy the results of another session to the outputs."""
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
        for name, _, _ in self._fresh:  # else the runtime would write to the memory of the last call
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
        for put in self._puts:
            put()
        for name, value in self._moved:
            self._binding.bind_ortvalue_input(name, value)

    def _fetch_all(self) -> None:
        if not self._is_host:
            self._bound.synchronize_outputs()
        for fetch in self._fetches:
            fetch()


def _reader(type_: TensorType, is_input: bool) -> Callable[[Any], Array] | None:
    """Return a function that reads an output that the runtime allocates; None if `numpy()` can.

    Measured: reading it through onnxruntime's Python OrtValue takes four times as long.
    """
    if type_.dtype.is_complex:
        plain = _reader(tensor_type(type_.dtype.storage, type_.shape), is_input) or (lambda value: value.numpy())
        return lambda value: casting.unpaired(plain(value))
    storage = type_.dtype.storage
    if is_input:  # the output may be the memory of the input
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
            f"bind: {name} has strings, lists or optionals, which the runtime cannot bind",
            operands={n: str(t) for n, t in (*inputs.items(), *outputs.items())},
            help="call the model instead",
        )
    values, sizes = _split_arguments(name, inputs, arrays, named)
    feeds = Feeds(name, inputs)
    tensors = dict(_tensors(inputs))
    shapes = _shapes(name, tensors, values, sizes)
    feed = feeds.take([], {n: values[n] if n in values else _zeros(name, n, tensors[n], shapes[n]) for n in inputs})
    bound_sizes = feeds.sizes_of(feed)
    for dim, size in sizes.items():
        if bound_sizes.get(dim, size) != size:
            raise FeedError(
                f"{name}: {dim} is {size}, but {bound_sizes[dim]} in the arrays and shapes",
                help="omit one of them",
            )
    return Bound(name, session, inputs, outputs, {**sizes, **bound_sizes}, feed, on_error, keep)


def _split_arguments(
    name: str, inputs: Mapping[str, Type], arrays: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the arrays and shapes of inputs, and the sizes of dims, from the arguments of `Model.bind`."""
    if len(arrays) > len(inputs):
        raise FeedError(
            f"{name}: {len(arrays)} arrays given for {len(inputs)} inputs", help=f"the inputs: {_listed(inputs)}"
        )
    values = dict(zip(inputs, arrays, strict=False))
    sizes = {}
    dims = {p for _, t in _tensors(inputs) if t.shape.is_ranked for d in t.shape for p in d.parameters}
    for key, value in named.items():
        if key in values:
            raise FeedError(f"{name}: input {key!r} is given twice", help="give it by position or by name")
        if key in inputs and not (is_count(value, 0) and key in dims):
            values[key] = value
        elif key in dims:
            if not is_count(value, 0):
                raise FeedError(
                    f"{name}: {key}={value!r:.80} is not a size", help=f"give a number: model.bind({key}=8)"
                )
            sizes[key] = int(value)
        else:
            raise FeedError(
                f"{name}: there is no input and no dim {key!r} to bind",
                help=f"the inputs: {_listed(inputs)}; the dims: {', '.join(sorted(dims)) or 'all are numbers'}",
            )
    for key, value in values.items():
        if isinstance(value, (tuple, list)):
            if not all(is_count(size, 0) for size in value):
                raise FeedError(f"{name}: input {key!r}: {value!r:.80} is not a shape", help="give a tuple of sizes")
            values[key] = tuple(map(int, value))
        elif not isinstance(value, (np.ndarray, np.generic)):
            array = casting.third_party_array(value)
            if array is None:
                raise FeedError(
                    f"{name}: input {key!r}: {value!r:.80} is not a shape or an array",
                    help=f"give a tuple of sizes, or an example: model.bind({key}=(8, 128))",
                )
            values[key] = array
    return values, sizes


def _shapes(
    name: str, inputs: Mapping[str, TensorType], values: dict[str, Any], sizes: dict[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs without an array, and remove shapes from `values`."""
    stated: dict[str, tuple[int, ...]] = {n: values.pop(n) for n in [*values] if isinstance(values[n], tuple)}
    known_sizes = dict(sizes)
    for n, type_ in inputs.items():
        shape = stated.get(n, getattr(values.get(n), "shape", None))
        if shape is not None and type_.shape.is_ranked:
            pairs = zip(type_.shape, shape, strict=False)
            known_sizes.update({d.name: size for d, size in pairs if d.name is not None and d.name not in known_sizes})
    shapes: dict[str, tuple[int, ...]] = {}
    for n, type_ in inputs.items():
        if n in values:
            shapes[n] = ()
        elif n in stated:
            shapes[n] = (*stated[n], *big_integers.storage_axis(type_.dtype))
        else:
            shape = _shape(type_, known_sizes)
            if shape is None:
                _fail_unknown(name, n, type_, known_sizes)
            if any(size < 0 for size in shape):
                used = {p: known_sizes[p] for d in type_.shape for p in sorted(d.parameters)}
                text = ", ".join(f"{p}={size}" for p, size in used.items())
                raise FeedError(
                    f"{name}: with {text}, input {n!r} would be {type_.dtype}{list(shape)}",
                    operands={n: str(type_)},
                    help="give sizes for which no dim is below 0",
                )
            shapes[n] = shape
    return shapes


def _fail_unknown(name: str, input_: str, type_: TensorType, known_sizes: Mapping[str, int]) -> NoReturn:
    missing = (
        sorted({p for d in type_.shape for p in d.parameters} - known_sizes.keys()) if type_.shape.is_ranked else []
    )
    example = f"bind({missing[0]}=8)" if missing else f"bind({input_}=(8, 128))"
    raise FeedError(
        f"{name}: no size is given for {', '.join(missing) or f'the shape of input {input_!r}'}",
        operands={input_: str(type_)},
        help=f"give sizes of dims, shapes or example arrays: model.{example}",
    )


def _zeros(name: str, input_: str, type_: TensorType, shape: Sequence[int]) -> Array:
    with _enough_memory(name, input_, type_, shape):
        return np.zeros(shape, type_.dtype.storage.numpy)


@contextlib.contextmanager
def _enough_memory(model: str, value: str, type_: TensorType, shape: Sequence[int]) -> Iterator[None]:
    """Raise `ResourceLimitError` if there is not enough memory for an array."""
    try:
        yield
    except (MemoryError, ValueError):  # NumPy raises a ValueError for a size beyond any array
        raise ResourceLimitError(
            f"bind: {model}: there is not enough memory for {value}, {type_.dtype}{list(shape)}",
            help="bind smaller shapes",
        ) from None


def _shape(type_: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the stored shape as numbers, with the axis of digits or parts; None if it is only known at run time."""
    if not type_.shape.is_ranked or not all(dim.depends_on(sizes) for dim in type_.shape):
        return None
    return (*(dim.evaluate(sizes) for dim in type_.shape), *big_integers.storage_axis(type_.dtype))


def _semantic_shape(type_: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the semantic shape of a value from its stored shape."""
    return shape[:-1] if has_storage_axis(type_.dtype) else shape


def _tensors(types: Mapping[str, Type]) -> list[tuple[str, TensorType]]:
    return [(name, type_) for name, type_ in types.items() if isinstance(type_, TensorType)]


def _listed(types: Mapping[str, Type]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in types.items()) or "none"


# Arrays that the runtime reads and writes in place.


class Slot:
    """An array of zeros of a stored dtype, and the OrtValue to bind for it.

    They share their memory if onnxruntime and NumPy store the dtype in the same form. For others, float4 and dtypes
    with several elements a byte, `put` copies the array to the value, and `fetch` copies the value to the array.
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
        """Copy the array to the value."""
        if self._transport is not self.array:
            self._transport[...] = self.array.astype(self._transport.dtype)
        elif not self.is_shared and self.array.size:
            packed = np.frombuffer(raw(self.array, self._storage), np.uint8)
            ctypes.memmove(self.value.data_ptr(), packed.ctypes.data, packed.nbytes)

    def fetch(self) -> None:
        """Copy the value to the array."""
        if not self.is_shared:
            self.array[...] = transport_dtypes.from_value(self.value, self._storage)
