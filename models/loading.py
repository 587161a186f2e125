"""`models.load`: a model of the Hugging Face Hub that takes text, from its folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from graphcore.arrays.casting import Array
from graphcore.errors import MissingExtraError

if TYPE_CHECKING:
    from graphcore.runtime import InferenceSession


def load(
    folder: str | os.PathLike[str],
    *,
    cache: int | None = None,
    session: InferenceSession | None = None,
    dtype: str | None = None,
    slots: int = 8,
    max_waiting: int = 64,
    draft: Any = None,
    adapters: Mapping[str, str | os.PathLike[str]] = MappingProxyType({}),
    ignore: Collection[str] = (),
    cache_scales: Mapping[str, Array] | None = None,
) -> Any:
    """Load a folder of the Hugging Face Hub: `config.json`, weights in safetensors and `tokenizer.json`.

    Args:
        folder: The folder, such as a snapshot in the cache of the Hub.
        cache: The maximum number of tokens of a prompt and its text; by default 1024, or fewer if the model has fewer.
        session: Loads the graph; by default a new one on the CPU.
        dtype: A scheme of `gc.quantize`, such as "int4"; by default the weights as they are.
        slots: The maximum number of texts that run together.
        max_waiting: The maximum number of texts that wait for a slot.
        draft: A smaller decoder with the same tokenizer, from `load`, which proposes tokens, as in `generate`.
        adapters: Folders of LoRA adapters that PEFT saved, by name: `decoder.generate(..., adapter="name")`.
        ignore: Fields of `config.json` to ignore.
        cache_scales: The result of `models.cache_scales` on the model of this folder, for int8 caches of keys and
            values.

    Returns:
        A `TextDecoder`; of a model like BERT a `TextEncoder`, with the pooling, normalisation and prompts of the files
        of sentence-transformers, and `cache` as the maximum number of tokens of a text.

    Raises:
        MissingExtraError: The packages tokenizers and jinja2 are not installed.
        ModelError: The `model_type` is unknown, a field has an unsupported value, or files do not match.
    """
    folders = text_folders()
    options = folders.Options(cache, session, dtype, slots, max_waiting, draft, adapters, ignore, cache_scales)
    return folders.load(os.fsdecode(folder), options)


def text_folders() -> Any:
    """Return the module of folders. Raises `MissingExtraError`."""
    try:
        from graphcore.models.text import folders  # an extra; also imports onnxruntime, which building does not need
    except ImportError as error:
        raise MissingExtraError(
            f"load: the package {error.name} is not installed", help="pip install 'graphcore-engine[models]'"
        ) from None
    return folders
