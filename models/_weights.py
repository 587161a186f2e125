"""The weights of a model by name: of a checkpoint, all of which must match, or random."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.checkpoints import Tensors, load_tensors
from graphcore.errors import DTypeError, ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

Given: TypeAlias = "Mapping[str, Array] | str | os.PathLike[str] | None"
"""Arrays by name, the path of a checkpoint, or None for random weights."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

FLOATS = (DType.float32, DType.float16, DType.bfloat16)
"""Dtypes of weights: float32 holds the values of all."""

MOST_RANDOM = 1 << 34
"""Bytes of random weights."""

_SHOWN = 20


class Weights:
    """A model's arrays by name, as Symbols of the graph under construction."""

    def __init__(self, graph: Graph, arrays: Mapping[str, Array]) -> None:
        self._graph = graph
        self._arrays = arrays
        self._made: dict[str, Symbol] = {}

    def __getitem__(self, name: str) -> Symbol:
        """Return a weight in float32. A narrower one keeps its dtype in memory and files, and is cast in the graph."""
        if name not in self._made:
            self._made[name] = self._graph.weight(name, self._arrays[name]).cast(DType.float32)
        return self._made[name]

    def get(self, name: str) -> Symbol | None:
        """Return an optional weight, such as a bias, or None."""
        return self[name] if name in self._arrays else None


def arrays_of(
    given: Given,
    shapes: Shapes,
    *,
    seed: int = 0,
    renamed: Callable[[str], str] = str,
    gguf: Callable[[Tensors[Array]], Mapping[str, Array]] | None = None,
    architecture: str = "",
    tied: Mapping[str, str] | None = None,
    ignored: str = "",
) -> dict[str, Array]:
    """Return the weights of a model by name.

    shapes: of the model's weights. seed: of random ones, where none are given. renamed: maps the names of a file. gguf:
    gives a GGUF file's tensors the names and layout of the model; architecture: its name in such a file. tied: names
    that a checkpoint may have for a tensor that it has under another name too. ignored: a pattern of names that are no
    weights. Raises `ModelError` with the names of all weights that are missing, unexpected, or of another shape or
    dtype, or for an invalid seed, and `ResourceLimitError` for too many random ones.
    """
    if given is None:
        return random(shapes, seed)
    found = load_tensors(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(found, Mapping):
        raise ModelError(
            f"weights: a {type(given).__name__} is no checkpoint",
            help="give a path, arrays by name, or None for random weights",
        )
    if isinstance(found, Tensors) and "general.architecture" in found.metadata:
        if gguf is None:
            raise ModelError("weights: there is no GGUF file of this model", help="give a safetensors file")
        kind = found.metadata["general.architecture"]
        if kind != architecture:
            raise ModelError(
                f"weights: the GGUF file is of a {kind!r:.80}, and the configuration of a {architecture!r}",
                help="give the configuration that belongs to the file",
            )
        named = gguf(found)
    else:
        named = _renamed(found, renamed)
    names = [name for name in named if not ignored or not re.fullmatch(ignored, name)]
    tied = {name: other for name, other in (tied or {}).items() if name in named}
    faults = {
        "missing": [f"{name} {list(shape)}" for name, shape in shapes.items() if name not in named],
        "there for nothing": [name for name in names if name not in shapes and name not in tied],
        "of another shape": [],
        "of another dtype": [],
        f"not the same as what it is tied to ({', '.join(tied.values())})": [],
    }
    _, _, misshapen, mistyped, untied = faults.values()
    held = {}
    for name, shape in shapes.items():
        if name not in named:
            continue
        array = held[name] = named[name]
        if not isinstance(array, np.ndarray) or is_masked(array):
            mistyped.append(f"{name} is a {type(array).__name__}")
            continue
        if array.shape != shape:
            misshapen.append(f"{name} is {list(array.shape)}, not {list(shape)}")
        if not _is_float(array):
            mistyped.append(f"{name} is {array.dtype}")
    untied += [name for name, other in tied.items() if other in held and not np.array_equal(named[name], held[other])]
    shown = {what: which for what, which in faults.items() if which}
    if shown:
        raise ModelError(
            "weights: " + "; ".join(f"{len(which)} {what}: {_listed(which)}" for what, which in shown.items()),
            help="weights are float32, float16 or bfloat16 arrays of the names and shapes that the configuration gives"
            + ("; with a head of its own it says tie_word_embeddings: false" if untied else ""),
        )
    return held


def _renamed(found: Mapping[str, Array], renamed: Callable[[str], str]) -> dict[str, Array]:
    """Rename tensors. Of two that would get one name, one keeps its own and is then unexpected."""
    made: dict[str, Array] = {}
    for name in found:
        new = renamed(name) if isinstance(name, str) else repr(name)
        made[name if _is_taken(new, name, made, found) else new] = found[name]
    return made


def _is_taken(new: str, name: str, made: Mapping[str, Array], found: Mapping[str, Array]) -> bool:
    """Return whether a tensor's new name is that of another, which has it already or by itself."""
    return new in made or (new != name and new in found)


def _gguf_parts(name: str) -> tuple[str | None, str, str]:
    """Split `blk.3.attn_q.weight` into "3", "attn_q" and ".weight"; the first is None outside of a block."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(.*?)(\.\w+)?", name, re.DOTALL)
    assert found is not None
    return found[1], found[2], found[3] or ""


def from_gguf(
    tensors: Tensors[Array],
    known: Mapping[str, str],
    layers: str,
    brought: Callable[[str | None, str, Array], Array],
) -> dict[str, Array]:
    """Return the tensors of a GGUF file by the names of the model; unknown and duplicate ones keep the file's names.

    known: names in a block or outside of all blocks, by the file's. layers: the prefix of the model's names of blocks.
    brought: maps the block, the name and the array in the file to the array in the model.
    """
    made: dict[str, Array] = {}
    for name in tensors:
        block, stem, kind = _gguf_parts(name)
        path = "" if block is None else f"{layers}.{block}."
        own = f"{path}{known[stem]}{kind}" if stem in known else name
        made[name if _is_taken(own, name, made, tensors) else own] = brought(block, stem, tensors[name])
    return made


def _is_float(array: Array) -> bool:
    try:
        return DType.of(array.dtype) in FLOATS
    except DTypeError:
        return False


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(name[:200] for name in names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def random(shapes: Shapes, seed: int) -> dict[str, Array]:
    """Return random weights that keep activations near 1: normal ones of variance 1 / inputs, scales of 1, biases of 0.

    Raises `ModelError` for a seed that is no integer from 0 on, and `ResourceLimitError` for too many.
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ModelError(f"weights: seed={seed!r:.80} begins no random numbers", help="give a whole number from 0 on")
    size = 4 * sum(math.prod(shape) for shape in shapes.values())
    if size > MOST_RANDOM:
        raise ResourceLimitError(
            f"weights: {size} bytes of random weights", help=f"{MOST_RANDOM} are the most; give a checkpoint"
        )
    generator = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            scale = np.float32(math.prod(shape[1:]) ** -0.5)
            made[name] = generator.standard_normal(shape, np.float32) * scale
        else:
            made[name] = (np.ones if name.endswith(("weight", "var")) else np.zeros)(shape, np.float32)
    return made
