"""Checkpoints: read weights by name from safetensors and GGUF files, and write safetensors files."""

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
    """Open a checkpoint and return its tensors by name; each tensor is read on access.

    Arrays have the dtypes and shapes of the file. They are read-only and map the file, so that `Graph.weight` uses them
    without a copy.

    Args:
        path: A safetensors file, an index of several (`model.safetensors.index.json`), or a GGUF file.
        dequantize: Return quantised tensors (of GGUF) as float32; if False, as a `QuantizedTensor` of the blocks.
        external_data: "links" follows symbolic links to the files of an index, as in the cache of the Hugging Face Hub,
            within external_data_root; see `Graph.load`.
        external_data_root: The folder that links can lead to.

    Returns:
        A mapping of names to arrays. Its attribute `metadata` has the metadata of the file.

    Raises:
        ModelError: The file does not exist, is truncated, or contradicts itself.
        UnsafePathError: An index names files outside of its folder.
        ResourceLimitError: The header exceeds the limits of docs/security.md.

    Source: The documents of the formats.
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
    """Write arrays to a safetensors file atomically.

    A temporary file is written to disk and renamed; processes that have mapped an older file keep its content.

    Args:
        path: The file.
        tensors: Arrays of any shape by name, of bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32,
            float64 and the float8 dtypes.
        metadata: Strings by name.

    Raises:
        DTypeError: A value is not an array of these dtypes.
        ExportError: A name or metadata is not text, or the file cannot be written.
        ResourceLimitError: The header is larger than `load_tensors` reads.

    Source: The document of the format.
    """
    file = os.fsdecode(path)
    safetensors.check_path(file)
    safetensors.save(file, tensors, metadata)
