"""Read the `config.json` of a checkpoint, whose unknown fields are errors, and its weights."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.checkpoints import Tensors, load_tensors
from graphcore.errors import DTypeError, ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

Source: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]
"""A configuration as a dict, or the path of its file."""

LARGEST = 16 << 20
"""Bytes of a file that is read."""

MOST_LAYERS = 10_000

HOUSEKEEPING = frozenset(
    "architectures attention_dropout auto_map bos_token_id chunk_size_feed_forward dtype eos_token_id "
    "finetuning_task id2label initializer_range label2id output_attentions output_hidden_states pad_token_id "
    "problem_type return_dict task_specific_params tokenizer_class torch_dtype torchscript transformers_version "
    "unsloth_version use_cache".split()
)
"""Fields that say nothing of what one pass computes, in the configuration of any model."""

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a family's configuration.

    kinds: its values of `model_type`. fields: defaults by name, `REQUIRED` where there is none. types: int for integers
    above 0, float for numbers of 0 and above, bool, str, dict, or list for integers above 0; None is accepted where it
    is the default. fixed: fields of which only some values are computed, and those values. ignored: fields without
    influence.
    """

    kinds: tuple[str, ...]
    types: Mapping[str, type]
    fields: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()


def content_of(source: Source) -> dict[str, Any]:
    """Return the fields of a configuration. Raises `ModelError` for anything else."""
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source)
        name = f"{kind.__module__.rpartition('.')[2]}.Config" if kind.__name__ == "Config" else kind.__name__
        raise ModelError(
            f"config: a {name} is no configuration of this model", help="give a dict, or the path of a config.json"
        )
    path = os.fsdecode(source)
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"config: {path[:256]!r} cannot be read: {error}", help="give the path of a config.json"
        ) from None
    if len(text) > LARGEST:
        raise ResourceLimitError(f"config: {path} has more than {LARGEST} bytes", help="give the path of a config.json")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"config: {path} is no JSON: {error}", help="give the path of a config.json") from None
    if not isinstance(content, dict):
        raise ModelError(f"config: {path} holds a {type(content).__name__}", help="the file is an object of fields")
    return content


def read(source: Source, schema: Schema, ignore: Collection[str] = ()) -> dict[str, Any]:
    """Return the values of a family's fields. ignore: further fields to ignore.

    Raises `ModelError` with the names of all fields that are missing, unknown, or of unsupported values.
    """
    if isinstance(ignore, str) or not isinstance(ignore, Collection) or not all(isinstance(n, str) for n in ignore):
        raise ModelError(f"config: ignore={_shown(ignore)} are no names of fields", help="give a list: ignore=['name']")
    given = content_of(source)
    kind = given.pop("model_type", None)
    faults = []
    if kind not in schema.kinds and "model_type" not in ignore:
        faults.append(f"model_type is {_shown(kind)}, not {' or '.join(map(repr, schema.kinds))}")
    passed = HOUSEKEEPING | schema.ignored | {*ignore}
    known = schema.fields.keys() | schema.fixed.keys()
    unknown = sorted(str(name)[:80] for name in given.keys() - known - passed if not str(name).startswith("_"))
    missing = [name for name, default in schema.fields.items() if default is REQUIRED and name not in given]
    if missing:
        faults.append(f"missing: {', '.join(missing)}")
    if unknown:
        faults.append(f"unknown: {', '.join(unknown[:50])}")
    for name, values in schema.fixed.items():
        if name in given and not any(type(given[name]) is type(v) and given[name] == v for v in values):
            faults.append(f"{name} is {_shown(given[name])}; computed is {' or '.join(map(repr, values))}")
    found: dict[str, Any] = {}
    for name, default in schema.fields.items():
        value = found[name] = given.get(name, default)
        if value is not REQUIRED and not (value is default or _fits(value, schema.types[name])):
            faults.append(f"{name} is {_shown(value)}, not {_WANTED[schema.types[name]]}")
    if faults:
        raise ModelError(
            f"config: {'; '.join(faults)}",
            help="a field that changes nothing in what is computed can be passed over: ignore=['name']",
        )
    return found


_WANTED = {
    int: "a whole number above 0",
    float: "a number of 0 or above",
    bool: "true or false",
    list: "a list of whole numbers above 0",
    dict: "an object of fields",
    str: "text",
}


def _fits(value: Any, wanted: type) -> bool:
    if wanted is int:
        return type(value) is int and 0 < value < 2**31
    if wanted is float:
        return type(value) in (int, float) and 0 <= value < float("inf")
    if wanted is list:
        return type(value) is list and 0 < len(value) <= MOST_LAYERS and all(_fits(v, int) for v in value)
    return type(value) is wanted


def _shown(value: Any) -> str:
    return f"{value!r:.80}"


_ANNOTATED = {"int": int, "float": float, "bool": bool, "str": str, "tuple[int, ...]": list}


def require_values(config: Any) -> None:
    """Raise `ModelError` that names all fields of a family's `Config` whose values are not of their kind.

    NumPy's numbers become Python's, and lists tuples.
    """
    faults = []
    for entry in dataclasses.fields(config):
        wanted = _ANNOTATED.get(str(entry.type))
        value = getattr(config, entry.name)
        plain = [_plain(v) for v in value] if isinstance(value, (list, tuple)) else _plain(value)
        if wanted is not None and not _fits(plain, wanted):
            faults.append(f"{entry.name} is {_shown(value)}, not {_WANTED[wanted]}")
        elif wanted is not None:
            object.__setattr__(config, entry.name, tuple(plain) if isinstance(plain, list) else plain)
    layers = getattr(config, "layers", 0)
    if type(layers) is int and layers > MOST_LAYERS:
        faults.append(f"layers is {layers}, and {MOST_LAYERS} are the most")
    require(not faults, "; ".join(faults), "leave them out for the defaults")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def require(condition: bool, fault: str, help: str = "") -> None:
    """Raise `ModelError` for fields that do not go together."""
    if not condition:
        raise ModelError(f"config: {fault}", help=help)


def classes(content: Mapping[str, Any]) -> int:
    """Return how many classes a model tells apart: those of `id2label`, 2 where there is none, which is its default."""
    named = content.get("id2label")
    if named is None:
        return 2
    if not isinstance(named, Mapping) or not named:
        raise ModelError(
            f"config: id2label is {_shown(named)}, not an object of names", help="or leave it out for 2 classes"
        )
    return len(named)


# The weights of a model by name: of a checkpoint, all of which must match, or random.

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
