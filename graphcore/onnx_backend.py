"""A backend of ONNX, `onnx.backend.base.Backend`, which ONNX's test runner and the Backend Scoreboard call.

    import onnx.backend.test
    from graphcore import onnx_backend

    globals().update(onnx.backend.test.BackendTest(onnx_backend, __name__).test_cases)

The module has the methods of `Backend` as functions, as other runtimes' modules do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
from onnx import helper

from graphcore.errors import FeedError, GraphError, RunError
from graphcore.onnx.notes import OPSET
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.types.dtypes import DType


class BackendRep(onnx.backend.base.BackendRep):
    """A model that is loaded. Made by `Backend.prepare`.

    Attributes:
        model: the `gc.Model` that runs.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs, in order: arrays, lists of them for sequences, None for empty optionals.

        Args:
            inputs: values in the order of the model's inputs, values by name, or one array for a model of one input.
            kwargs: keyword arguments of a `gc.Model`'s call.

        Raises:
            FeedError: more values than inputs, or a value that an input does not take.
        """
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            names = self.model.inputs
            if len(inputs) > len(names):
                raise FeedError(
                    f"run: {len(inputs)} values for a model of {len(names)} inputs",
                    help=f"its inputs: {', '.join(names) or 'none'}",
                )
            inputs = dict(zip(names, inputs, strict=False))
        return tuple(self.model(**inputs, **kwargs))


class Backend(onnx.backend.base.Backend):
    """Models and nodes of ONNX, run by sessions. Devices: "CPU", and "CUDA" or "CUDA:1" where it is installed."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto | bytes | str | os.PathLike[str], device: str = "CPU", **kwargs: Any
    ) -> BackendRep:
        """Return a model that runs.

        Args:
            model: what `InferenceSession.load` takes.
            device: "CPU", "CUDA", or "CUDA:n" for the n-th device.
            kwargs: keyword arguments of `InferenceSession.load`.

        Raises:
            ModelError: a model that cannot be read or run.
            RunError: a device that is not there.
        """
        return BackendRep(_session(device).load(model, **kwargs))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Return the outputs of one node.

        Args:
            node: the node.
            inputs: arrays for the operands that are not left out, in order or by name.
            device: as in `prepare`.
            outputs_info: the dtype and the shape of each output. The operator's own rule decides; they are not needed.
            kwargs: `opset_version`, of the node's domain; by default the newest that graphcore writes.

        Raises:
            GraphError: other than one array for each operand.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        if arrays.keys() != set(names) or (not isinstance(inputs, Mapping) and len(inputs) != len(names)):
            raise GraphError(
                f"run_node: {len(inputs)} arrays for {node.op_type}", help=f"give one for each of {', '.join(names)}"
            )
        fed = {name: np.asarray(array) for name, array in arrays.items()}
        types = [
            helper.make_tensor_value_info(name, DType.of(array.dtype).onnx, array.shape) for name, array in fed.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        newest = onnx.defs.get_schema(node.op_type, domain=node.domain).since_version if node.domain else OPSET
        opsets = [helper.make_opsetid(node.domain, kwargs.pop("opset_version", newest))]
        graph = helper.make_graph([node], node.op_type, types, outputs)
        return cls.run_model(helper.make_model(graph, opset_imports=opsets), fed, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if models can be prepared for a device."""
        try:
            return _session(device) is not None
        except RunError:
            return False


@functools.cache
def _session(device: str) -> InferenceSession:
    kind, _, number = device.partition(":")
    if kind not in ("CPU", "CUDA") or (number and not number.isdecimal()):
        raise RunError(f"prepare: there is no device {device!r}", help='the devices are "CPU", "CUDA" and "CUDA:n"')
    options = {kind.lower(): {"device_id": int(number)}} if kind == "CUDA" and number else {}
    return InferenceSession(kind.lower(), provider_options=options)


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run = run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
