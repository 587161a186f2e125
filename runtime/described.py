"""The types of a finished model's inputs and outputs, as onnxruntime and the model's metadata describe them."""

from __future__ import annotations

import json
from typing import Any

import onnxruntime

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, ModelError
from graphcore.types import Shape, TensorType

_METADATA = "graphcore.dtypes"

# onnxruntime's spellings that are not ours.
_ELEMENTS = {
    "float": DType.float32,
    "double": DType.float64,
    "float8e4m3fn": DType.float8_e4m3fn,
    "float8e5m2": DType.float8_e5m2,
}


def types_of(
    session: onnxruntime.InferenceSession, model: str
) -> tuple[dict[str, TensorType], dict[str, TensorType], frozenset[str]]:
    """Types of the inputs and of the outputs by name, and the inputs whose rank may be any.

    Raises `ModelError` for sequences, optionals and dtypes that the library does not know.
    """
    semantic = _semantic(session.get_modelmeta().custom_metadata_map.get(_METADATA, "{}"))
    inputs = {v.name: _type(v, semantic, model) for v in session.get_inputs()}
    outputs = {v.name: _type(v, semantic, model) for v in session.get_outputs()}
    # onnxruntime says [] of a scalar and of a tensor of unknown rank alike.
    return inputs, outputs, frozenset(name for name, type_ in inputs.items() if type_.rank == 0)


def _semantic(text: str) -> dict[str, object]:
    """The semantic dtypes that a model notes; none where the note, which may be anybody's, cannot be read."""
    try:
        noted = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _type(value: Any, semantic: dict[str, object], model: str) -> TensorType:
    stored = _stored(value.type)
    if stored is None:
        raise ModelError(
            f"load: {model}: {value.name} is {value.type}, which is fed and read as no array",
            help="run it with onnxruntime itself",
        )
    return TensorType(_noted(semantic.get(value.name), stored), Shape(_dim(d) for d in value.shape or ()))


def _stored(described: str) -> DType | None:
    if not described.startswith("tensor("):
        return None
    element = described.removeprefix("tensor(").removesuffix(")")
    try:
        return _ELEMENTS.get(element) or DType.of(element)
    except DTypeError:
        return None


def _noted(name: object, stored: DType) -> DType:
    """The dtype that a model notes, where tensors of it are stored as the model's are."""
    if not isinstance(name, str):
        return stored
    try:
        noted = DType.of(name)
    except DTypeError:
        return stored
    return noted if noted.storage is stored else stored


def _dim(size: int | str | None) -> Dim:
    if size is None or (isinstance(size, int) and size < 0):
        return Dim.dynamic()
    try:
        return Dim(size)
    except ValueError:
        return Dim.dynamic()  # names of other tools may be anything
