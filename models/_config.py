"""Read the `config.json` of a checkpoint, in which unknown fields are errors, and its weights."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array, is_masked
from graphcore.checkpoints import Tensors, load_tensors
from graphcore.errors import DTypeError, ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

Source: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]
"""A configuration as a dict, or the path of its file."""

MAX_FILE_BYTES = 16 << 20
"""Maximum size of a `config.json`."""

MAX_LAYERS = 10_000

NEUTRAL_FIELDS = frozenset(
    "architectures attention_dropout auto_map bos_token_id chunk_size_feed_forward dtype eos_token_id "
    "finetuning_task id2label initializer_range label2id output_attentions output_hidden_states pad_token_id "
    "problem_type return_dict task_specific_params tokenizer_class torch_dtype torchscript transformers_version "
    "unsloth_version use_cache".split()
)
"""Fields of any model without influence on the results of inference."""

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of the configuration of a model family.

    Attributes:
        kinds: The values of `model_type`.
        types: The type of each field: int for integers above 0, float for numbers of at least 0, bool, str, dict, list
            for integers above 0, or tuple for a list of layers. None is accepted where it is the default.
        fields: Defaults by name; `REQUIRED` if there is none.
        fixed: Fields of which only some values are supported, and those values.
        ignored: Fields without influence on the results.
    """

    kinds: tuple[str, ...]
    types: Mapping[str, type]
    fields: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()


class BaseConfig:
    """The configuration of a model: a frozen dataclass with the values of a `config.json`."""

    __slots__ = ()

    @classmethod
    def read(cls, source: Source, ignore: Collection[str] = ()) -> Self:
        """Read a Config from a `config.json`: a dict of its fields, or its path.

        Args:
            ignore: Unknown fields to ignore.

        Raises:
            ModelError: With the names of all fields that are missing, unknown, or have unsupported values.
        """
        return cls(**cls._values(content_of(source), ignore))

    @classmethod
    def _values(cls, content: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
        raise NotImplementedError


def from_file(names: str, default: Any, missing: Any = REQUIRED) -> Any:
    """Return a field of a Config.

    names: the fields of configurations that have its value. missing: the value of the first one if it is not there.
    """
    return field(default=default, metadata={"names": names.split(), "missing": missing})


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields of a Config by the names of fields of configurations."""
    return {name: entry for entry in dataclasses.fields(config) for name in entry.metadata.get("names", ())}


def schema_of(
    config: Any, kinds: Collection[str], fixed: Mapping[str, tuple[Any, ...]], ignored: str, **types: type
) -> Schema:
    """Return the schema of configurations with the fields of a Config. types: of further fields."""
    named = fields_of(config)
    defaults = {entry.metadata["names"][0]: entry.metadata["missing"] for entry in named.values()}
    defaults |= dict.fromkeys(types)
    types |= {name: _ANNOTATED[entry.type.removesuffix(" | None")] for name, entry in named.items()}
    return Schema((*kinds,), types, defaults, fixed, frozenset(ignored.split()))


def values_of(config: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a Config by the fields of a configuration that are not None."""
    named = {name: fields[name] for name in reversed(fields_of(config)) if fields.get(name) is not None}
    return {fields_of(config)[name].name: value for name, value in named.items()}


_FIX = "give the path of a config.json"


def content_of(source: Source) -> dict[str, Any]:
    """Return the fields of a configuration. Raises `ModelError` if it is invalid."""
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source)
        name = f"{kind.__module__.rpartition('.')[2]}.Config" if issubclass(kind, BaseConfig) else kind.__name__
        raise ModelError(
            f"config: config must be a Config of this model, a dict or a path, got {name}",
            help="give a dict, or the path of a config.json",
        )
    path = os.fsdecode(source)
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"config: {path} must hold a JSON object, got {type(content).__name__}", help=_FIX)
    return content


def read_json(path: str) -> Any:
    """Return the content of a JSON file. Raises `ModelError` if it is not JSON."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ModelError(f"config: {path[:256]!r} cannot be read: {error}", help=_FIX) from None
    if len(text) > MAX_FILE_BYTES:
        raise ResourceLimitError(f"config: {path} has more than {MAX_FILE_BYTES} bytes", help=_FIX)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"config: {path} is not JSON: {error}", help=_FIX) from None


def read(source: Source, schema: Schema, ignore: Collection[str] = ()) -> dict[str, Any]:
    """Return the values of the fields of a family. ignore: additional fields to ignore.

    Raises `ModelError` with the names of all fields that are missing, unknown, or have unsupported values.
    """
    if isinstance(ignore, str) or not isinstance(ignore, Collection) or not all(isinstance(n, str) for n in ignore):
        raise ModelError(
            f"config: ignore must be a list of names, got {_text(ignore)}", help="give a list: ignore=['name']"
        )
    fields = content_of(source)
    kind = fields.pop("model_type", None)
    faults = []
    if kind not in schema.kinds and "model_type" not in ignore:
        faults.append(f"model_type is {_text(kind)}, not {' or '.join(map(repr, schema.kinds))}")
    ignored = NEUTRAL_FIELDS | schema.ignored | {*ignore}
    supported = schema.fields.keys() | schema.fixed.keys()
    unknown = sorted(str(name)[:80] for name in fields.keys() - supported - ignored if not str(name).startswith("_"))
    missing = [name for name, default in schema.fields.items() if default is REQUIRED and name not in fields]
    if missing:
        faults.append(f"missing: {', '.join(missing)}")
    if unknown:
        faults.append(f"unknown: {', '.join(unknown[:50])}")
    for name, values in schema.fixed.items():
        if name in fields and not any(type(fields[name]) is type(v) and fields[name] == v for v in values):
            faults.append(f"{name} is {_text(fields[name])}; supported is {' or '.join(map(repr, values))}")
    result: dict[str, Any] = {}
    for name, default in schema.fields.items():
        value = result[name] = fields.get(name, default)
        if value is not REQUIRED and not (value is default or _fits(value, schema.types[name])):
            faults.append(f"{name} is {_text(value)}, not {_DESCRIPTIONS[schema.types[name]]}")
        elif name in ("num_hidden_layers", "n_layer") and type(value) is int and value > MAX_LAYERS:
            faults.append(f"{name} is {value}, but at most {MAX_LAYERS} are supported")
    if faults:
        raise ModelError(
            f"config: {'; '.join(faults)}",
            help="to ignore a field that does not change results: ignore=['name']",
        )
    return result


_DESCRIPTIONS = {
    int: "a whole number above 0",
    float: "a number of 0 or above",
    bool: "true or false",
    list: "a list of whole numbers above 0",
    tuple: "a list of numbers of layers",
    dict: "an object of fields",
    str: "text",
}


def _fits(value: Any, kind: type) -> bool:
    if kind is int:
        return type(value) is int and 0 < value < 2**31
    if kind is float:
        return type(value) in (int, float) and 0 <= value < float("inf")
    if kind is list:
        return type(value) is list and 0 < len(value) <= MAX_LAYERS and all(_fits(v, int) for v in value)
    if kind is tuple:
        return type(value) is list and len(value) <= MAX_LAYERS and all(type(v) is int and v >= 0 for v in value)
    return type(value) is kind


def _text(value: Any) -> str:
    return f"{value!r:.80}"


_ANNOTATED = {"int": int, "float": float, "bool": bool, "str": str, "tuple[int, ...]": list}


def require_values(config: Any) -> None:
    """Raise `ModelError` with the names of all fields of a `Config` that have invalid values.

    Converts NumPy scalars to Python numbers, and lists to tuples.
    """
    faults = []
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        kind = _ANNOTATED.get(entry.type.removesuffix(" | None"))
        plain = [_to_python(v) for v in value] if isinstance(value, (list, tuple)) else _to_python(value)
        if value is None and "None" in entry.type:
            continue
        if kind is not None and not _fits(plain, kind):
            faults.append(f"{entry.name} is {_text(value)}, not {_DESCRIPTIONS[kind]}")
        elif kind is not None:
            converted = tuple(plain) if isinstance(plain, list) else float(plain) if kind is float else plain
            object.__setattr__(config, entry.name, converted)
    layers = getattr(config, "layers", 0)
    if type(layers) is int and layers > MAX_LAYERS:
        faults.append(f"layers is {layers}, but at most {MAX_LAYERS} are supported")
    require(not faults, "; ".join(faults), "omit them for the defaults")


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def require(condition: bool, fault: str, help: str = "") -> None:
    """Raise `ModelError` unless the condition holds."""
    if not condition:
        raise ModelError(f"config: {fault}", help=help)


def class_count(content: Mapping[str, Any]) -> int:
    """Return the number of classes of a model: those of `id2label`, by default 2."""
    named = content.get("id2label")
    if named is None:
        return 2
    if not isinstance(named, Mapping) or not named:
        raise ModelError(f"config: id2label is {_text(named)}, not an object of names", help="or omit it for 2 classes")
    return len(named)


# The weights of a model by name, from a checkpoint or random.

WeightsSource: TypeAlias = "Mapping[str, Array] | str | os.PathLike[str] | None"
"""Arrays by name, the path of a checkpoint, or None for random weights."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

FLOATS = (DType.float32, DType.float16, DType.bfloat16)
"""Dtypes of weights. float32 represents the values of all of them."""

MAX_RANDOM_BYTES = 1 << 34
"""Maximum size of random weights."""

_MAX_NAMES = 20


class ModelWeights:
    """The weights of a model by name, as Symbols of the graph under construction.

    dtype: that of the Symbols; None for the dtypes of the arrays.
    """

    def __init__(self, graph: Graph, arrays: Mapping[str, Array], dtype: DType | None = DType.float32) -> None:
        self._graph = graph
        self._dtype = dtype
        self._symbols: dict[str, Symbol] = {}
        self.arrays = arrays

    def __getitem__(self, name: str) -> Symbol:
        """Return a weight. A narrower one keeps its dtype in memory and files, and the graph casts it."""
        if name not in self._symbols:
            weight = self._graph.weight(name, self.arrays[name])
            self._symbols[name] = weight if self._dtype is None else weight.cast(self._dtype)
        return self._symbols[name]

    def get(self, name: str) -> Symbol | None:
        """Return an optional weight, such as a bias, or None."""
        return self[name] if name in self.arrays else None

    def dense(self, x: Symbol, name: str) -> Symbol:
        """Return the result of a dense layer."""
        return ops.linear(x, self[f"{name}.weight"], self.get(f"{name}.bias"))

    def layer_norm(self, x: Symbol, name: str, epsilon: float) -> Symbol:
        """Return the result of LayerNorm."""
        return ops.layer_norm(x, self[f"{name}.weight"], self.get(f"{name}.bias"), epsilon=epsilon)


def arrays_of(
    source: WeightsSource,
    shapes: Shapes,
    *,
    seed: int = 0,
    rename: Callable[[str], str] = str,
    gguf: Callable[[Tensors[Array]], Mapping[str, Array]] | None = None,
    architecture: str = "",
    tied: Mapping[str, str] | None = None,
    ignored: str = "",
) -> dict[str, Array]:
    """Return the weights of a model by name.

    Args:
        source: A checkpoint, or None for random weights.
        shapes: The shapes of the weights.
        seed: The seed of random weights.
        rename: Maps names in the checkpoint to names of weights.
        gguf: Converts the tensors of a GGUF file to the names and layout of the model.
        architecture: The name of the model in a GGUF file.
        tied: Names in a checkpoint of tensors that are also there under another name, and those names.
        ignored: A pattern of names that are not weights.

    Raises:
        ModelError: Weights are missing, unexpected, or have another shape or dtype, or the seed is invalid.
        ResourceLimitError: There would be too many random weights.
    """
    if source is None:
        return random(shapes, seed)
    tensors = load_tensors(source) if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(tensors, Mapping):
        raise ModelError(
            f"weights: weights must be a path or a dict of arrays, got {type(source).__name__}",
            help="give a path, arrays by name, or None for random weights",
        )
    if isinstance(tensors, Tensors) and "general.architecture" in tensors.metadata:
        if gguf is None:
            raise ModelError("weights: GGUF files are not supported for this model", help="give a safetensors file")
        kind = tensors.metadata["general.architecture"]
        if kind != architecture:
            raise ModelError(
                f"weights: the GGUF file has the architecture {kind!r:.80}, but the configuration {architecture!r}",
                help="give the configuration that belongs to the file",
            )
        by_name = gguf(tensors)
    else:
        by_name = renamed(tensors, rename)
    names = [name for name in by_name if not ignored or not re.fullmatch(ignored, name)]
    tied = {name: other for name, other in (tied or {}).items() if name in by_name}
    arrays = {name: by_name[name] for name in shapes if name in by_name}
    plain = {name: a for name, a in arrays.items() if isinstance(a, np.ndarray) and not is_masked(a)}
    misshapen = {name: list(array.shape) for name, array in plain.items() if array.shape != shapes[name]}
    types = {name: f"has type {type(array).__name__}" for name, array in arrays.items() if name not in plain}
    types |= {name: f"is {array.dtype}" for name, array in plain.items() if not _is_float(array)}
    untied = [n for n, other in tied.items() if other in arrays and not np.array_equal(by_name[n], arrays[other])]
    faults = {
        "missing": [f"{name} {list(shape)}" for name, shape in shapes.items() if name not in by_name],
        "unexpected": [name for name in names if name not in shapes and name not in tied],
        "of another shape": [f"{name} is {shape}, not {list(shapes[name])}" for name, shape in misshapen.items()],
        "of another dtype": [f"{name} {types[name]}" for name in arrays if name in types],
        f"different from the tied weight ({', '.join(tied.values())})": untied,
    }
    nonempty = {what: which for what, which in faults.items() if which}
    if nonempty:
        raise ModelError(
            "weights: " + "; ".join(f"{len(which)} {what}: {_name_list(which)}" for what, which in nonempty.items()),
            help="weights must be float32, float16 or bfloat16 arrays with the names and shapes of the configuration"
            + ("; for a separate head it must have tie_word_embeddings: false" if untied else ""),
        )
    return arrays


def renamed(tensors: Mapping[str, Array], rename: Callable[[str], str]) -> dict[str, Array]:
    """Rename tensors. If two would get the same name, one keeps its own name and is then unexpected."""
    result: dict[str, Array] = {}
    for name in tensors:
        new = rename(name) if isinstance(name, str) else repr(name)
        has_clash = new in result or (new != name and new in tensors)
        result[name if has_clash else new] = tensors[name]
    return result


def _is_float(array: Array) -> bool:
    try:
        return DType.of(array.dtype) in FLOATS
    except DTypeError:
        return False


def _name_list(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(name[:200] for name in names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def random(shapes: Shapes, seed: int) -> dict[str, Array]:
    """Return random weights that keep activations near 1: normal with variance 1 / inputs, scales of 1, biases of 0.

    Raises `ModelError` for an invalid seed, and `ResourceLimitError` for too many weights.
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ModelError(f"weights: seed must be an integer of at least 0, got {seed!r:.80}", help="give seed=0")
    size = 4 * sum(math.prod(shape) for shape in shapes.values())
    if size > MAX_RANDOM_BYTES:
        raise ResourceLimitError(
            f"weights: {size} bytes of random weights exceed the limit of {MAX_RANDOM_BYTES}", help="give a checkpoint"
        )
    generator = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            scale = np.float32(math.prod(shape[1:]) ** -0.5)
            arrays[name] = generator.standard_normal(shape, np.float32) * scale
        else:
            arrays[name] = (np.ones if name.endswith(("weight", "var")) else np.zeros)(shape, np.float32)
    return arrays
