"""Read the `config.json` of a checkpoint: unknown fields are errors."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import ModelError, ResourceLimitError

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
