"""The types of a finished model's inputs and outputs, as onnxruntime and the model's metadata describe them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.errors import DTypeError
from graphcore.onnx import notes
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, Shape, TensorType, Type

# onnxruntime's spellings that are not ours.
_ELEMENTS = {
    "float": DType.float32,
    "double": DType.float64,
    "float4e2m1": DType.float4_e2m1,
    "float8e4m3fn": DType.float8_e4m3fn,
    "float8e4m3fnuz": DType.float8_e4m3fnuz,
    "float8e5m2": DType.float8_e5m2,
    "float8e5m2fnuz": DType.float8_e5m2fnuz,
    "float8e8m0": DType.float8_e8m0,
}


def types_of(session: onnxruntime.InferenceSession) -> tuple[dict[str, Type], dict[str, Type]]:
    """Return the types of the inputs and of the outputs by name. What graphcore has no type for is foreign."""
    semantic = _semantic(notes.read(session.get_modelmeta().custom_metadata_map).get(notes.DTYPES, "{}"))
    inputs = {v.name: _type(v, semantic) for v in session.get_inputs()}
    outputs = {v.name: _type(v, semantic) for v in session.get_outputs()}
    return inputs, outputs


def outputs_of(session: onnxruntime.InferenceSession) -> dict[str, Type]:
    """Return the types of the outputs of a session whose model notes nothing."""
    return {v.name: _type(v, {}) for v in session.get_outputs()}


def _semantic(text: str) -> dict[str, object]:
    """Return the semantic dtypes that a model notes; none where the note, which is untrusted, cannot be read."""
    try:
        noted = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


def noted(types: Mapping[str, Type], metadata: Mapping[str, str]) -> dict[str, Type]:
    """Return the types of a graph's inputs or outputs, with dtypes that are stored along one more axis where it was
    read from a file whose metadata notes them."""
    if notes.DTYPES not in metadata:
        return dict(types)
    semantic = _semantic(metadata[notes.DTYPES])
    return {
        name: _meant(type_, _noted(semantic.get(name), type_.dtype)) if isinstance(type_, TensorType) else type_
        for name, type_ in types.items()
    }


def _meant(stored: TensorType, dtype: DType) -> TensorType:
    """Return the type of a dtype whose stored one is given: of wide integers and complex numbers that has one more
    axis, of their digits or parts."""
    shape = stored.shape
    axis = big_integers.carried_axis(dtype)
    if not axis:
        return TensorType(dtype, shape)
    if not shape.is_ranked or not shape or shape[-1:] != axis:
        return stored
    return TensorType(dtype, shape[:-1])


def _type(value: Any, semantic: dict[str, object]) -> Type:
    # onnxruntime says [] of a scalar and of a tensor of unknown rank alike, and says no shapes of elements.
    shape = Shape(map(_dim, value.shape)) if value.shape else Shape.unknown()
    type_ = _parsed(value.type, shape)
    if not isinstance(type_, TensorType):
        return type_
    return _meant(type_, _noted(semantic.get(value.name), type_.dtype))


def _parsed(described: str, shape: Shape) -> Type:
    kind, _, rest = described.removesuffix(")").partition("(")
    if kind == "tensor":
        try:
            return TensorType(_ELEMENTS.get(rest) or DType.of(rest), shape)
        except DTypeError:
            return ForeignType(described)
    if kind == "seq":
        return SequenceType(_parsed(rest, Shape.unknown()))
    if kind == "optional":
        return OptionalType(_parsed(rest, shape))
    return ForeignType(described)


def _noted(name: object, stored: DType) -> DType:
    """Return the dtype that a model notes, where tensors of it are stored as the model's are."""
    if not isinstance(name, str):
        return stored
    try:
        noted = DType.of(name)
    except (DTypeError, ValueError):  # a width of more digits than Python reads is a ValueError
        return stored
    return noted if noted.storage is stored else stored


def _dim(size: int | str | None) -> Dim:
    if size is None or (isinstance(size, int) and size < 0):
        return Dim.dynamic()
    try:
        return Dim(size)
    except ValueError:
        return Dim.dynamic()  # names of other tools may be anything


def are_told(outputs: Mapping[str, Type], inputs: Mapping[str, Type]) -> bool:
    """Return whether the types of the inputs tell each dim of the outputs that is no number."""
    known = {d for t in inputs.values() if isinstance(t, TensorType) and t.shape.is_ranked for d in t.shape}
    return all(
        isinstance(type_, TensorType)
        and type_.shape.is_ranked
        and all(dim.is_static or (dim in known and not dim.is_dynamic) for dim in type_.shape)
        for type_ in outputs.values()
    )
