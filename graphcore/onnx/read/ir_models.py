"""Models of the package onnx-ir, which share the arrays of initializers: read as Graphs, and made of messages."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.onnx.proto.opened import Opened
from graphcore.onnx.proto.value_protos import LARGE, Large, raw
from graphcore.onnx.read.reader import read
from graphcore.types.dtypes import DType


def onnx_ir(what: str) -> Any:
    """Return the module onnx_ir. Raises `ModelError` if it is not installed."""
    try:
        return importlib.import_module("onnx_ir")
    except ImportError as error:
        raise ModelError(
            f"{what}: the package onnx-ir cannot be imported: {error}", help="pip install 'graphcore-engine[ir]'"
        ) from None


def to_ir(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """Return a model as an `onnx_ir.Model`. arrays: of the initializers whose content the message lacks."""
    ir = onnx_ir("to_ir")
    model = ir.from_proto(proto)
    for name, array in arrays.items():
        value = model.graph.initializers[name]
        dtype, metadata = value.const_value.dtype, dict(value.const_value.metadata_props)
        value.const_value = ir.Tensor(array, dtype=dtype, name=name, metadata_props=metadata)
    return model


@method(Graph, is_static=True)
def from_ir(model: Any, *, defaults: bool | Iterable[str] = False) -> Graph:
    """Return the Graph of an `onnx_ir.Model`, which shares the arrays of its initializers. Needs the extra `ir`.

    Do not change these arrays while the Graph lives. Those of attributes and bodies are copied.

    Args:
        model: The model. It is checked as a file is.
        defaults: As in `Graph.load`.

    Raises:
        ModelError: The model is invalid, or onnx-ir is not installed.
        ResourceLimitError: The model exceeds a limit.
    """
    ir = onnx_ir("from_ir")
    if not isinstance(model, ir.Model):
        raise ModelError(f"from_ir: it must be an onnx_ir.Model, got {type(model).__name__}", help="ir.load(path)")
    large = Large()
    try:
        proto = ir.serde.serialize_model(_View(model, graph=_GraphView(model.graph, _emptied(ir, model.graph, large))))
    except Exception as error:  # of onnx-ir, which does not say which
        raise ModelError(f"from_ir: onnx-ir cannot write the model: {error}", help="check it: ir.save(...)") from error
    return read(Opened.of_parts(proto, large), defaults=defaults, keeps_fields=True)


def _emptied(ir: Any, graph: Any, large: Large) -> dict[str, Any]:
    """Return the initializers, without the bytes of tensors, which are entered into `large` by position."""
    values = {}
    position = 0
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype != ir.DataType.STRING:
            if tensor.nbytes >= LARGE or isinstance(tensor, ir.ExternalTensor):
                large.initializers[position] = raw(tensor.numpy(), DType.of(tensor.dtype.value))
                value = _View(value, const_value=_View(tensor, tobytes=bytes))
        values[name] = value
        position += tensor is not None
    return values


class _View:
    """An object of onnx-ir with some other attributes, which onnx-ir writes as it writes the object."""

    def __init__(self, original: Any, **others: Any) -> None:
        self._original = original
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _GraphView(_View):
    """A graph with other initializers."""

    def __init__(self, graph: Any, initializers: dict[str, Any]) -> None:
        super().__init__(graph, initializers=initializers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._original)

    def __len__(self) -> int:
        return len(self._original)
