"""The ONNX backend, `onnx.backend.base.Backend`, for ONNX's test runner and the Backend Scoreboard.

    import onnx.backend.test
    from graphcore import onnx_backend

    globals().update(onnx.backend.test.BackendTest(onnx_backend, __name__).test_cases)

The module also has the methods of `Backend` as functions, as those of other runtimes do.
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
    """A loaded model. `Backend.prepare` returns it.

    Attributes:
        model: The underlying `gc.Model`.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs, in order: arrays, lists of them for sequences, None for empty optionals.

        Args:
            inputs: Values in the order of the model's inputs, values by name, or one array for a model of one input.
            kwargs: Keyword arguments of the call of a `gc.Model`.

        Raises:
            FeedError: There are more values than inputs, or a value does not fit its input.
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
    """Runs models and nodes of ONNX. Devices: "CPU", and "CUDA" or "CUDA:n" if it is installed."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto | bytes | str | os.PathLike[str], device: str = "CPU", **kwargs: Any
    ) -> BackendRep:
        """Load a model.

        Args:
            model: A model, as for `InferenceSession.load`.
            device: "CPU", "CUDA", or "CUDA:n" for the n-th device.
            kwargs: Keyword arguments of `InferenceSession.load`.

        Raises:
            ModelError: The model cannot be read or run.
            RunError: The device does not exist.
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
            node: The node.
            inputs: Arrays for the operands that are not omitted, in order or by name.
            device: The device, see `prepare`.
            outputs_info: The dtype and shape of each output. Ignored: they are inferred.
            kwargs: `opset_version`, the version of the node's domain; by default the newest that graphcore writes.

        Raises:
            GraphError: There is not exactly one array per operand.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        if arrays.keys() != set(names) or (not isinstance(inputs, Mapping) and len(inputs) != len(names)):
            raise GraphError(
                f"run_node: got {len(inputs)} arrays for {node.op_type}",
                help=f"pass one for each of {', '.join(names)}",
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
