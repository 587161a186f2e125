"""Checkpoints: weights by name, in safetensors files and out of them, and out of GGUF files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, overload

from graphcore.arrays.external_data import ExternalData, links_of, model_bytes
from graphcore.checkpoints import gguf, safetensors
from graphcore.checkpoints.safetensors import Array, Tensors
from graphcore.errors import ModelError
from graphcore.quantization.tensors import QuantizedTensor

__all__ = ["QuantizedTensor", "Tensors", "load_tensors", "save_tensors"]


@overload
def load_tensors(
    path: str | os.PathLike[str],
    *,
    dequantize: Literal[True] = True,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
) -> Tensors[Array]: ...
@overload
def load_tensors(
    path: str | os.PathLike[str],
    *,
    dequantize: bool,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
) -> Tensors[Array | QuantizedTensor]: ...
def load_tensors(
    path: str | os.PathLike[str],
    *,
    dequantize: bool = True,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
) -> Tensors[Array | QuantizedTensor]:
    """The tensors of a checkpoint by name, each read when it is asked for.

    path: a safetensors file, the index of several (`model.safetensors.index.json`) or a GGUF file. Arrays have the
    file's dtypes and shapes; they are read-only and map the file, so that `Graph.weight` takes them without a copy.
    dequantize: what is quantised (in GGUF) is float32, or else a `QuantizedTensor` of the blocks as they are.
    external_data: "links" follows symbolic links to the files of an index, as the cache of Hugging Face's hub has them,
    within external_data_root, as `Graph.load` does.

    Returns a mapping, whose `metadata` is what the file says besides. Raises `ModelError` for a file that is not there,
    cut short or not what it says of itself, `UnsafePathError` for an index that leads out of its folder,
    `ResourceLimitError` for a header beyond the limits of docs/security.md. Source: none in ONNX; the formats' own
    documents.
    """
    file = os.fsdecode(path)
    links = links_of(external_data, external_data_root)
    try:
        content = model_bytes(file)
    except ModelError as error:
        raise ModelError(
            error.summary, help="give the path of a .safetensors, .safetensors.index.json or .gguf file"
        ) from None
    if content[:4] == gguf.MAGIC:
        return Tensors(file, *gguf.read(content, file), not dequantize)
    if file.lower().endswith(".json"):
        return Tensors(file, *safetensors.read_index(content, file, links), not dequantize)
    return Tensors(file, *safetensors.read(content, file), not dequantize)


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to a safetensors file, whole or not at all.

    tensors: arrays of any shape by name, of bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64
    and the float8 dtypes. metadata: strings by name. The file is written beside its place and renamed when all of it is
    on the disk; what was there before stays as it is for those that have it mapped.

    Raises `DTypeError` for what is no such array, `ExportError` for names and metadata that are no text and for a file
    that cannot be written, `ResourceLimitError` for a header larger than `load_tensors` reads. Source: none in ONNX;
    the format's own document.
    """
    file = os.fsdecode(path)
    safetensors.check_path(file)
    safetensors.save(file, tensors, metadata)
