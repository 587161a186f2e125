"""Transport dtypes: values of dtypes that NumPy lacks go into a session and come out of it in these.

onnxruntime returns an output as an OrtValue, from which any dtype can be read, only in runs that are fed OrtValues, and
strings, lists and None cannot be fed so. If a graph has such inputs or outputs, the graph itself converts its outputs
to dtypes that come back as arrays.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

import numpy as np
import onnxruntime

from graphcore.arrays import big_integers, casting
from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.onnx import notes
from graphcore.onnx.proto.value_protos import raw
from graphcore.promotion.complex_operators import is_complex
from graphcore.types.dims import Dim
from graphcore.types.dtypes import TRANSPORT, DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, TensorType, Type


def check(model: str, types: Mapping[str, Type]) -> None:
    """Raise `ModelError` for a sequence or an optional of a dtype that onnxruntime does not support in them."""
    for name, type_ in types.items():
        leaf = type_
        while isinstance(leaf, (SequenceType, OptionalType)):
            leaf = leaf.element
        if leaf is not type_ and isinstance(leaf, TensorType) and leaf.dtype.storage not in PLAIN:
            kind = "sequences" if isinstance(type_, SequenceType) else "optionals"
            raise ModelError(
                f"load: {model}: {name} is {type_}, but onnxruntime has no {kind} of {leaf.dtype}",
                help="cast the elements to float32 or int8, and cast them back where they are used",
            )


def is_unusual(type_: Type) -> TypeGuard[TensorType]:
    """Return True if the type is a tensor of a dtype that onnxruntime does not return as an array."""
    return isinstance(type_, TensorType) and type_.dtype.storage not in PLAIN


def is_bindable(inputs: Mapping[str, Type], outputs: Mapping[str, Type]) -> bool:
    """Return True if all inputs and outputs can be OrtValues."""
    fed = all(isinstance(t, TensorType) and t.dtype is not DType.string for t in inputs.values())
    return fed and all(isinstance(t, TensorType) for t in outputs.values())


def transport_dtype(dtype: DType) -> DType:
    """Return the dtype that lowered graphs have instead of a stored one."""
    return TRANSPORT.get(dtype, dtype)


def to_value(array: Array, dtype: DType) -> onnxruntime.OrtValue:
    """Return an OrtValue of an array of a stored dtype, in its transport dtype."""
    transport = transport_dtype(dtype)
    return to_ort(array if transport is dtype else array.astype(transport.numpy), transport)


def from_value(value: onnxruntime.OrtValue, dtype: DType) -> Array:
    """Return the array of a stored dtype that an OrtValue of a lowered graph's output holds."""
    transport = transport_dtype(dtype)
    array = from_ort(value, transport)
    return array if transport is dtype else array.astype(dtype.numpy)


def is_needed(inputs: Mapping[str, Type], outputs: Mapping[str, Type]) -> bool:
    """Return True if some output can be read neither as an array nor as an OrtValue."""
    if not any(map(is_unusual, outputs.values())):
        return False
    if any(isinstance(t, TensorType) and t.dtype is DType.string for t in inputs.values()):
        return True
    return not all(isinstance(t, TensorType) for t in (*inputs.values(), *outputs.values()))


def with_transport_outputs(graph: Graph) -> Graph:
    """Return a copy of the graph whose outputs all have types that `run` returns."""
    new = copied(graph)
    outputs = [(name, new.symbols[s.id]) for name, s in graph.named_outputs]
    readable = [(None, _transported(s)) if is_unusual(s.type) else (name, s) for name, s in outputs]
    new.build.outputs(new.names.of_outputs(readable))
    return new


def restored(array: Array, dtype: DType) -> Array:
    """Return an array of a transport dtype in the stored dtype."""
    return array.view(dtype.numpy) if dtype is DType.bfloat16 else array.astype(dtype.numpy)


def unpaired(value: Any, type_: Type) -> Any:
    """Return a session's output with complex numbers, also those in lists, as views of NumPy's complex dtypes."""
    if not is_complex(type_):
        return value
    if isinstance(type_, TensorType):
        return casting.unpaired(value)
    assert isinstance(type_, (SequenceType, OptionalType))
    if isinstance(type_, OptionalType):
        return None if value is None else unpaired(value, type_.element)
    return [unpaired(each, type_.element) for each in value]


def with_complex(run: Callable[..., Any], types: Iterable[Type]) -> Callable[..., Any]:
    """Return a function that runs a session, and returns its complex outputs in NumPy's complex dtypes."""
    pairs = [(position, type_) for position, type_ in enumerate(types) if is_complex(type_)]

    def with_complex_outputs(*arguments: Any) -> Any:
        results = run(*arguments)
        for position, type_ in pairs:
            results[position] = unpaired(results[position], type_)
        return results

    return with_complex_outputs


def _transported(symbol: Symbol) -> Symbol:
    """Return bfloat16 as its bits, and narrower dtypes cast to one that holds their values: they have no views."""
    if symbol.dtype is DType.bfloat16:
        out = TensorType(DType.uint16, symbol.shape)
        return symbol.graph.op("BitCast", [symbol], {"to": DType.uint16.onnx}, [out])[0]
    if symbol.dtype.storage.is_float:
        return symbol.cast(DType.float32)
    return symbol.cast(DType.int8 if symbol.dtype.storage.is_signed else DType.uint8)


# NumPy and ml_dtypes arrays to OrtValues and back, without a copy where onnxruntime can share the memory.

PLAIN = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float16, DType.float32, DType.float64, DType.string,
    }
)  # fmt: skip
"""The stored dtypes that onnxruntime's Python API takes and returns as NumPy arrays."""

_BITS = {1: np.uint8, 2: np.uint16}


def to_ort(array: Array, dtype: DType) -> onnxruntime.OrtValue:
    """Return an OrtValue of a C-contiguous array of a stored dtype other than string, which OrtValues do not support.

    It shares the array's memory, except for dtypes of less than a byte, and keeps the array alive. A session that
    uses the OrtValue keeps neither alive.
    """
    if dtype in PLAIN:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if dtype.bits < 8:
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.onnx)
        packed = np.frombuffer(raw(array, dtype), np.uint8)
        if packed.size:
            ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
        return value
    bits = array.view(_BITS[array.dtype.itemsize])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, dtype.onnx)


def from_ort(value: onnxruntime.OrtValue, dtype: DType) -> Array:
    """Return the array of an OrtValue of a stored dtype.

    It shares the memory, and keeps it alive, for dtypes in `PLAIN`; for others it is a copy.
    """
    if dtype in PLAIN:
        return value.numpy()  # type: ignore[no-any-return]
    shape = tuple(value.shape())
    if dtype.bits < 8:
        return _unpacked(value, dtype, shape)
    array = np.empty(shape, dtype.numpy)
    if array.size:
        ctypes.memmove(array.ctypes.data, value.data_ptr(), array.nbytes)
    return array


def _unpacked(value: onnxruntime.OrtValue, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Unpack several elements a byte, the first in the lowest bits."""
    packed = np.frombuffer(ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()), np.uint8)
    mask = np.uint8((1 << dtype.bits) - 1)
    places = [packed >> np.uint8(place) & mask for place in range(0, 8, dtype.bits)]
    codes = np.stack(places, axis=-1).reshape(-1)[: math.prod(shape)]
    return codes.view(dtype.numpy).reshape(shape)  # ml_dtypes stores one element a byte, in its low bits


# The types of a finished model's inputs and outputs, as onnxruntime and the model's metadata describe them.

# onnxruntime's spellings that differ from graphcore's.
_ELEMENTS = {
    "float4e2m1": DType.float4_e2m1,
    "float8e4m3fn": DType.float8_e4m3fn,
    "float8e4m3fnuz": DType.float8_e4m3fnuz,
    "float8e5m2": DType.float8_e5m2,
    "float8e5m2fnuz": DType.float8_e5m2fnuz,
    "float8e8m0": DType.float8_e8m0,
}


def dtype_named(name: str) -> DType:
    """Return the dtype of a name of onnxruntime. Raises `DTypeError` for one that graphcore lacks."""
    return _ELEMENTS.get(name) or DType.of(name)


def types_of(session: onnxruntime.InferenceSession) -> tuple[dict[str, Type], dict[str, Type]]:
    """Return the types of the inputs and of the outputs by name; `OpaqueType` for types that graphcore lacks."""
    metadata = notes.read(session.get_modelmeta().custom_metadata_map)
    inputs, outputs = ({v.name: type_of(v) for v in ends} for ends in (session.get_inputs(), session.get_outputs()))
    return noted(inputs, metadata), noted(outputs, metadata)


def _semantic(text: str) -> dict[str, object]:
    """Return the semantic dtypes in a model's metadata; {} if the untrusted text cannot be parsed."""
    try:
        noted = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


def noted(types: Mapping[str, Type], metadata: Mapping[str, str]) -> dict[str, Type]:
    """Return the types of a graph's inputs or outputs, with the semantic dtypes that the metadata of its file notes."""
    if notes.DTYPES not in metadata:
        return dict(types)
    semantic = _semantic(metadata[notes.DTYPES])
    return {
        name: _meant(type_, _noted(semantic.get(name), type_.dtype)) if isinstance(type_, TensorType) else type_
        for name, type_ in types.items()
    }


def _meant(stored: TensorType, dtype: DType) -> TensorType:
    """Return the type of a dtype from its stored type, which has one more axis for digits or parts of wide integers and
    complex numbers."""
    shape = stored.shape
    axis = big_integers.storage_axis(dtype)
    if not axis:
        return TensorType(dtype, shape)
    if not shape.is_ranked or not shape or shape[-1:] != axis:
        return stored
    return TensorType(dtype, shape[:-1])


def type_of(described: Any) -> Type:
    """Return the type of an input or output as onnxruntime describes it."""
    # onnxruntime reports [] for scalars and for tensors of unknown rank, and no shapes of elements.
    return _parsed(described.type, Shape(map(_dim, described.shape)) if described.shape else Shape.unknown())


def _parsed(described: str, shape: Shape) -> Type:
    kind, _, rest = described.removesuffix(")").partition("(")
    if kind == "tensor":
        try:
            return TensorType(dtype_named(rest), shape)
        except DTypeError:
            return OpaqueType(described)
    if kind == "seq":
        return SequenceType(_parsed(rest, Shape.unknown()))
    if kind == "optional":
        return OptionalType(_parsed(rest, shape))
    return OpaqueType(described)


def _noted(name: object, stored: DType) -> DType:
    """Return the dtype that a model notes, if it is stored in the model's dtype; else the stored dtype."""
    if not isinstance(name, str):
        return stored
    try:
        noted = DType.of(name)
    except (DTypeError, ValueError):  # a width with more digits than Python parses is a ValueError
        return stored
    return noted if stored in (noted.storage, TRANSPORT.get(noted)) else stored


def _dim(size: int | str | None) -> Dim:
    if size is None or (isinstance(size, int) and size < 0):
        return Dim.dynamic()
    try:
        return Dim(size)
    except ValueError:
        return Dim.dynamic()  # other tools write any text


def are_determined(outputs: Mapping[str, Type], inputs: Mapping[str, Type]) -> bool:
    """Return True if the inputs determine each symbolic dim of the outputs."""
    input_dims = {d for t in inputs.values() if isinstance(t, TensorType) and t.shape.is_ranked for d in t.shape}
    return all(
        isinstance(type_, TensorType)
        and type_.shape.is_ranked
        and all(dim.is_static or (dim in input_dims and not dim.is_dynamic) for dim in type_.shape)
        for type_ in outputs.values()
    )
