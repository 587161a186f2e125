"""The runtimes that `graphcore conform` compares: each loads ONNX models and runs them on NumPy arrays."""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from graphcore.arrays.external_data import Folder
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.model_proto import join
from graphcore.onnx.proto.tensors import array_of
from graphcore.onnx.proto.value_protos import raw
from graphcore.runtime.export import Options, write_graph
from graphcore.runtime.ort.options import resolve
from graphcore.runtime.ort.transport_dtypes import PLAIN, from_ort, to_ort
from graphcore.runtime.ort.web import WEB_FOLDER
from graphcore.runtime.session import InferenceSession
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

CANDIDATE = "GRAPHCORE_CANDIDATE"
"""The environment variable with the runtime and the provider that onnx-tests tests."""


class OrtModel:
    """A model in onnxruntime itself, without graphcore: takes and returns arrays of NumPy and ml_dtypes."""

    def __init__(self, model: bytes | str, provider: str = "cpu") -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(model, options, providers=resolve(provider))
        self._fed = {i.name: _dtype_of(i.type) for i in self._session.get_inputs()}
        self._dtypes = [_dtype_of(o.type) for o in self._session.get_outputs()]

    @property
    def inputs(self) -> list[str]:
        return list(self._fed)

    def __call__(self, **feeds: Any) -> list[Any]:
        if all(dtype is None or dtype in PLAIN for dtype in (*self._fed.values(), *self._dtypes)):
            return list(self._session.run(None, feeds))
        values = {name: to_ort(array, self._fed[name] or DType.of(array.dtype)) for name, array in feeds.items()}
        results = self._session.run_with_ort_values(None, values)
        return [from_ort(value, _dtype_of(value.data_type()) or DType.string) for value in results]


def _dtype_of(text: str) -> DType | None:
    """Return the dtype of a tensor type as onnxruntime prints it; None for other types."""
    if not text.startswith("tensor("):
        return None
    return DType.of(onnx.TensorProto.DataType.Value(text.removeprefix("tensor(").removesuffix(")").upper()))


class _Reference:
    """A model in ONNX's reference evaluator."""

    def __init__(self, model: onnx.ModelProto) -> None:
        reference: Any = importlib.import_module("onnx.reference")
        self._evaluator = reference.ReferenceEvaluator(model)
        self.inputs: list[str] = list(self._evaluator.input_names)

    def __call__(self, **feeds: Any) -> list[Any]:
        return list(self._evaluator.run(None, feeds))


class _OpenVino:
    """A model in OpenVINO on the CPU, which by default computes float32 in bfloat16 where the processor can."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._openvino = importlib.import_module("openvino")
        core = self._openvino.Core()
        network = core.read_model(model.SerializeToString())
        self._compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        self.inputs = [i.name for i in model.graph.input]
        self._dtypes = [DType.of(o.type.tensor_type.elem_type or 1) for o in model.graph.output]

    def __call__(self, **feeds: Any) -> list[Any]:
        request, fed = self._compiled.create_infer_request(), []
        for i, port in enumerate(self._compiled.inputs):
            # OpenVINO drops inputs that nothing reads, and renames one that is an output.
            name = port.node.friendly_name
            array = feeds[name if name in feeds else self.inputs[i]]
            if isinstance(array, np.ndarray) and (dtype := DType.of(array.dtype)) not in PLAIN:
                bits = np.frombuffer(raw(array, dtype), np.uint8)
                array = self._openvino.Tensor(bits, array.shape, port.element_type)
            fed.append(array)
        results = [*request.infer(fed).values()]
        for i, dtype in enumerate(self._dtypes):
            if dtype not in PLAIN:
                tensor = request.get_output_tensor(i)
                proto = onnx.TensorProto(data_type=dtype.onnx, dims=tensor.shape, raw_data=tensor.data.tobytes())
                results[i] = array_of(proto, Folder(None))[0]
        return results


WEB_DTYPES = frozenset("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 string".split())
"""The dtypes that onnxruntime-web takes and returns an element at a time."""


class WebRuntime:
    """onnxruntime-web (WebAssembly) in a process of Node.js, with requests and answers as lines of JSON."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("web.mjs")
        command = ["node", str(script), os.environ[WEB_FOLDER]]
        self._node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> Any:
        """Return the answer to a request of `web.mjs`. Raises `RuntimeError` for an error of onnxruntime-web."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(request) + "\n")
        self._node.stdin.flush()
        answer = json.loads(self._node.stdout.readline() or os._exit(1))  # a crash of node is one of this process
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process, which also ends with its parent."""
        self._node.communicate()

    def load(self, model: onnx.ModelProto) -> Any:
        names = self.ask(model=text_of(model))["inputs"]

        def run(**feeds: Any) -> list[Any]:
            return [
                array_from(each)
                for each in self.ask(feeds={name: described(x) for name, x in feeds.items()})["outputs"]
            ]

        run.inputs = names  # type: ignore[attr-defined]
        return run


class WasmSession:
    """Graphs in onnxruntime-web, as the files that graphcore writes for its wasm."""

    def __init__(self) -> None:
        self._web = WebRuntime()

    def close(self) -> None:
        """End the process of Node.js."""
        self._web.close()

    def load(self, model: Graph | onnx.ModelProto) -> Any:
        """Return a function of arrays by name. Raises `RuntimeError` for an error of onnxruntime-web."""
        graph = model if isinstance(model, Graph) else Graph.load(model)
        types = [*(s.type for s in graph.inputs), *graph.output_types.values()]
        narrow = [t for t in types if isinstance(t, TensorType) and t.dtype.is_float and t.dtype.name not in WEB_DTYPES]
        written = write_graph(graph, Options("wasm", precision=None, io_dtype="float64" if narrow else None))
        loaded = self._web.load(onnx.ModelProto.FromString(join(written.encoded())))

        def run(**feeds: Any) -> list[Any]:
            if not narrow:
                return list(loaded(**feeds))
            floats = {n: np.asarray(x, np.float64) if DType.of(x.dtype).is_float else x for n, x in feeds.items()}
            return [x.astype(t.dtype.numpy) for x, t in zip(loaded(**floats), types[len(graph.inputs) :], strict=True)]

        run.inputs = loaded.inputs  # type: ignore[attr-defined]
        return run


def text_of(model: onnx.ModelProto) -> str:
    """Return a model for a request."""
    return base64.b64encode(model.SerializeToString()).decode()


def described(array: Any) -> dict[str, Any]:
    """Return a tensor as JSON. Raises `TypeError` for sequences and optionals, which onnxruntime-web does not take."""
    if not isinstance(array, np.ndarray):
        raise TypeError("onnxruntime-web takes tensors only")
    if array.dtype.kind in "OUST":
        return {"type": "string", "dims": array.shape, "strings": list(map(str, array.ravel()))}
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"type": array.dtype.name, "dims": array.shape, "data": data}


def array_from(described: Mapping[str, Any]) -> Any:
    if described["type"] == "string":
        return np.array(described["strings"], object).reshape(described["dims"])
    data = base64.b64decode(described["data"])
    return np.frombuffer(data, np.dtype(described["type"])).reshape(described["dims"])


RUNTIMES: Mapping[str, Callable[[str], Callable[[Any], Any]]] = {
    "graphcore": lambda provider: WasmSession().load if provider == "wasm" else InferenceSession(provider).load,
    "onnxruntime": lambda provider: lambda model: OrtModel(model.SerializeToString(), provider),
    "onnxruntime-web": lambda provider: WebRuntime().load,
    "openvino": lambda provider: _OpenVino,
    "reference": lambda provider: _Reference,
}
"""By name, what returns the loader of models of a runtime for a provider of onnxruntime, which the others ignore."""


# What pytest loads in a checkout of onnx-tests


def run_candidate(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the results by name of a model without inputs, as onnx-tests calls the runtime under test."""
    name, provider = os.environ[CANDIDATE].split()
    loaded = _loader(name, provider)(model)
    return dict(zip([output.name for output in model.graph.output], loaded(), strict=True))


@functools.cache
def _loader(name: str, provider: str) -> Callable[[Any], Any]:
    # By default graphcore leaves float16 of imported models to onnxruntime's kernels.
    return InferenceSession(provider, precision="exact").load if name == "graphcore" else RUNTIMES[name](provider)


def pytest_configure() -> None:
    """Drop the option `optimized`, which onnx-tests passes and the reference evaluator has up to onnx 1.22."""
    reference: Any = importlib.import_module("onnx.reference")
    wrappers: Any = importlib.import_module("onnx_tests.runtime_wrappers")
    evaluator = reference.ReferenceEvaluator
    if "optimized" not in inspect.signature(evaluator).parameters:
        wrappers.ReferenceEvaluator = lambda model, optimized: evaluator(model)
