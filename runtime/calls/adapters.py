"""LoRA adapters: values of inputs that have defaults, from files of onnxruntime and PEFT. See howto/adapters.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.checkpoints import load_tensors
from graphcore.errors import ModelError
from graphcore.runtime.ort.transport_dtypes import from_ort
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_MAX_CONFIG_BYTES = 1 << 20
_PREFIX = "base_model.model."
"""PEFT's prefix of the names of modules."""


def read_adapter(path: str | os.PathLike[str], inputs: Mapping[str, Type]) -> dict[str, Array]:
    """Return the arrays of an adapter by name, for PEFT's by the names of inputs. Raises `ModelError`."""
    file = os.fsdecode(os.fspath(path))
    if os.path.isdir(file):
        file = os.path.join(file, _WEIGHTS)
    if not file.endswith((".onnx_adapter", ".safetensors")):
        raise ModelError(
            f"adapter: {file} is neither an .onnx_adapter file nor a .safetensors file",
            help="give one of these, the folder that PEFT saved, or arrays by name",
        )
    if not os.path.isfile(file):
        raise ModelError(f"adapter: {file} is not a file", help="check the path")
    return _of_peft(file, inputs) if file.endswith(".safetensors") else _of_onnxruntime(file)


def _of_onnxruntime(file: str) -> dict[str, Array]:
    try:
        adapter = onnxruntime.AdapterFormat.read_adapter(file)
        values = adapter.get_parameters()
        return {name: np.array(from_ort(v, DType.of(v.element_type()))) for name, v in values.items()}
    except Exception as error:  # of any kind, from C++
        raise ModelError(
            f"adapter: {file} is not an adapter of onnxruntime: {error}",
            help="write it with onnxruntime.AdapterFormat().export_adapter(path)",
        ) from error


def _of_peft(file: str, inputs: Mapping[str, Type]) -> dict[str, Array]:
    """Return PEFT's A and B for MatMul, B times alpha / r, by the inputs of the same modules."""
    config = _Config(os.path.join(os.path.dirname(file), _CONFIG))
    inputs_by_key = {_key(name): name for name in inputs}
    arrays: dict[str, dict[str, Array]] = {}
    for name, array in load_tensors(file).items():
        key = _key(name)
        module, _, kind = key.rpartition(".")
        if key not in inputs_by_key or kind not in ("lora_A", "lora_B"):
            raise ModelError(
                f"adapter: {file} has {name!r:.200}, for which the model has no input with a default",
                help=f"name it {key!r:.200}; its inputs: {', '.join([*inputs][:20]) or 'none'}",
            )
        if kind == "lora_B" and array.ndim >= 2:
            scaled = array.astype(np.float32) * np.float32(config.factor(module, array.shape[1]))
            array = scaled.astype(array.dtype)
        arrays.setdefault(kind, {})[inputs_by_key[key]] = array
    return {n: a for kind, named in arrays.items() for n, a in _laid_out(file, kind, named, inputs).items()}


def _key(name: str) -> str:
    """Return the name of a tensor as PEFT's module and kind: "encoder.0.query.lora_A"."""
    return name.removeprefix(_PREFIX).removesuffix(".weight").removesuffix(".default")


def _laid_out(file: str, kind: str, arrays: dict[str, Array], inputs: Mapping[str, Type]) -> dict[str, Array]:
    """Return the arrays of a kind as they are, or transposed for operands of MatMul, as the sizes of the inputs say."""
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    plain, turned = (all(_fits(inputs[n], a.shape[::step]) for n, a in matrices.items()) for step in (1, -1))
    if matrices and plain and turned:
        raise ModelError(
            f"adapter: {file}: the sizes of the inputs do not tell whether they are {kind} or its transpose",
            operands={name: str(inputs[name]) for name in [*matrices][:4]},
            help="state the size of one dim in the type of an input, or give arrays by name: gc.load_tensors(path)",
        )
    return {n: np.ascontiguousarray(a.T) if turned and a.ndim == 2 else a for n, a in arrays.items()}


def _fits(type_: Type, shape: tuple[int, ...]) -> bool:
    return isinstance(type_, TensorType) and type_.shape.is_ranked and type_.shape.allows(shape)


class _Config:
    """PEFT's config of an adapter: `factor` is alpha / r of a module."""

    def __init__(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                config: Any = json.loads(file.read(_MAX_CONFIG_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"adapter: {path} cannot be read: {error}", help="keep it beside the weights") from None
        alphas = config.get("alpha_pattern") or {} if isinstance(config, dict) else None
        if not isinstance(alphas, dict) or config.get("peft_type") != "LORA" or config.get("use_dora"):
            raise ModelError(f"adapter: {path} is not the config of a LoRA adapter", help="DoRA has no such form")
        if regex := next((p for p in alphas if not re.fullmatch(r"[\w.]+", p)), None):
            raise ModelError(
                f"adapter: {path}: the alpha_pattern {regex!r:.200} is a regular expression, which is not supported",
                help="name modules, such as 'encoder.0.query'",
            )
        self._path = path
        self._alpha = config.get("lora_alpha")
        self._alphas = alphas
        self._uses_root = bool(config.get("use_rslora"))

    def factor(self, module: str, rank: int) -> float:
        pattern = next((p for p in self._alphas if f".{module}".endswith(f".{p}")), None)
        alpha = self._alpha if pattern is None else self._alphas[pattern]
        if not isinstance(alpha, (int, float)) or not rank:
            raise ModelError(f"adapter: {self._path} has no lora_alpha for {module!r:.200}", help="save it with PEFT")
        return float(alpha / (rank**0.5 if self._uses_root else rank))
