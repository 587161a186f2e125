"""Sessions: where a graph or a file becomes a Model that runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, GraphError, ModelError, RunError
from graphcore.graph import Graph, Target
from graphcore.numerics import native
from graphcore.onnx.writer import LIMIT, encode, join
from graphcore.runtime.lowering import lower
from graphcore.runtime.model import Model
from graphcore.runtime.values import to_ort
from graphcore.symbol import Constant
from graphcore.types import Shape, TensorType

Array = np.ndarray[Any, Any]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_EXTRAS = {"CUDAExecutionProvider": "pip uninstall onnxruntime, then pip install 'graphcore-engine[gpu]'"}

# Measured: the CPU kernel of the first is five times slower than what it replaces, the second gains nothing.
_SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")

_BY_REFERENCE = 1024
"""Bytes from which on an initializer stays where it is."""

# Operators that read a weight when they run and not while the session is optimised.
_READ_LATE = frozenset({"MatMul", "Gemm", "Gather", "LayerNormalization", "RMSNormalization", "Attention"})


class InferenceSession:
    """Loads graphs and models for one or more providers.

    providers: by preference, among those installed: "cpu", "cuda" or onnxruntime's names; by default the CPU's.
    precision: "exact" rounds after every op. session_options: attributes of `onnxruntime.SessionOptions`, such as
    `intra_op_num_threads=2`. Raises `RunError` for a provider that is not installed, `GraphError` for an option that
    does not exist.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        *,
        precision: Literal["exact"] = "exact",
        **session_options: Any,
    ) -> None:
        if precision != "exact":
            raise GraphError(f"InferenceSession: there is no precision {precision!r}", help='use "exact"')
        asked = [providers] if isinstance(providers, str) else list(providers or ["cpu"])
        self.providers = tuple(_provider(name) for name in asked)
        known = onnxruntime.SessionOptions()
        for option in session_options:
            if not hasattr(known, option) or callable(getattr(known, option)):
                raise GraphError(
                    f"InferenceSession: onnxruntime has no session option {option!r}",
                    help="see the attributes of onnxruntime.SessionOptions",
                )
        self._options = session_options

    @property
    def target(self) -> Target:
        """What graphs are lowered to."""
        return "cuda" if self.providers[0] == _PROVIDERS["cuda"] else "cpu"

    def load(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array] | None = None,
    ) -> Model:
        """A Model that runs.

        model: a Graph, which is lowered for the first provider; or a finished ONNX model as a path, bytes or a
        ModelProto, which is run as it is. weights: arrays to use in place of a Graph's weights, by name, of the same
        types. Raises `ModelError` for what cannot be read or run, `GraphError` for an unfinished graph.
        """
        if isinstance(model, Graph):
            return self._load_graph(model, weights or {})
        if weights:
            raise ModelError(
                "load: weights can be given for a Graph only", help="build the Graph, or leave weights out"
            )
        return self._load_model(model)

    def _session_options(self) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures come as exceptions
        for name, value in self._options.items():
            try:
                setattr(options, name, value)
            except TypeError as error:
                raise GraphError(
                    f"InferenceSession: {name}={value!r}: {str(error).splitlines()[0]}", help="give another value"
                ) from None
        return options

    def _load_graph(self, graph: Graph, weights: Mapping[str, Array]) -> Model:
        graph.verify()
        if weights:
            graph = _with_weights(graph, weights)
        lowered = lower(graph, self.target)
        arrays = _arrays(lowered)
        inputs = {s.name: s.type for s in graph.inputs}
        outputs = {new.name: old.type for new, old in zip(lowered.outputs, graph.outputs, strict=True)}
        try:
            session, keep = self._by_reference(lowered, arrays)
        except _ReadEarly:
            session, keep = self._copied(lowered, arrays)
        return Model(graph.name, session, inputs, outputs, keep)

    def _by_reference(
        self, graph: Graph, arrays: Mapping[str, Array]
    ) -> tuple[onnxruntime.InferenceSession, tuple[Any, ...]]:
        """A session whose large weights are the caller's arrays.

        They are declared to lie in a file that is empty: an optimiser that reads one while the session is made fails
        instead of finding zeros. Those that it is known to read are copied.
        """
        late = _read_late(graph)
        options = self._session_options()
        values = {name: to_ort(a, _stored(graph, name)) for name, a in arrays.items() if name in late}
        early = {name: to_ort(a, _stored(graph, name)) for name, a in arrays.items() if name not in late}
        for name, value in values.items():
            options.add_initializer(name, value)
        if early:
            options.add_external_initializers(list(early), list(early.values()))
        try:
            session = self._session(graph, arrays, options)
        except Exception as error:
            if values and "xternal" in str(error):
                raise _ReadEarly from error
            raise _refused(graph.name, error) from error
        return session, (arrays, values)

    def _copied(
        self, graph: Graph, arrays: Mapping[str, Array]
    ) -> tuple[onnxruntime.InferenceSession, tuple[Any, ...]]:
        """A session with copies of the weights, for graphs whose weights are read while it is made."""
        options = self._session_options()
        values = {name: to_ort(a, _stored(graph, name)) for name, a in arrays.items()}
        options.add_external_initializers(list(values), list(values.values()))
        try:
            return self._session(graph, arrays, options), ()
        except Exception as error:
            raise _refused(graph.name, error) from error

    def _session(
        self, graph: Graph, arrays: Mapping[str, Array], options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        def place(name: str, array: Array) -> tuple[str, int] | None:
            return ("weights", 0) if name in arrays else None

        content = join(encode(graph, place))
        with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
            with open(os.path.join(folder, "weights"), "wb"):
                pass
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
            return self._create(content, options)

    def _create(self, model: bytes | str, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(
            model, options, providers=list(self.providers), disabled_optimizers=list(_SLOWER)
        )

    def _load_model(self, model: onnx.ModelProto | bytes | str | os.PathLike[str]) -> Model:
        content: bytes | str
        if isinstance(model, onnx.ModelProto):
            name, content = model.graph.name or "model", _bytes_of(model)
        elif isinstance(model, bytes):
            name, content = "model", model
        elif isinstance(model, (str, os.PathLike)):
            name = content = os.fspath(model)
            if not os.path.isfile(name):
                what = "a folder" if os.path.isdir(name) else "no file"
                raise ModelError(f"load: {name} is {what}", help="give the path of an .onnx file")
        else:
            raise ModelError(
                f"load: a {type(model).__name__} is no model", help="give a Graph, a path, bytes or a ModelProto"
            )
        try:
            session = self._create(content, self._session_options())
        except Exception as error:
            raise _refused(name, error) from error
        semantic = session.get_modelmeta().custom_metadata_map.get("graphcore.dtypes", "{}")
        try:
            inputs = {v.name: _type_of(v, semantic) for v in session.get_inputs()}
            outputs = {v.name: _type_of(v, semantic) for v in session.get_outputs()}
        except DTypeError as error:
            raise ModelError(f"load: {name}: {error.summary}", help="run it with onnxruntime itself") from None
        return Model(name, session, inputs, outputs)


class _ReadEarly(Exception):
    """A weight was read while the session was made."""


def _provider(name: str) -> str:
    installed = onnxruntime.get_available_providers()
    full = _PROVIDERS.get(name, name)
    if full not in installed:
        fix = _EXTRAS.get(full, "choose one of those")
        raise RunError(
            f"InferenceSession: provider {name!r} is not installed; installed are {', '.join(installed)}", help=fix
        )
    return full


def _refused(name: str, error: Exception) -> ModelError:
    reason = str(error).strip() or type(error).__name__
    return ModelError(f"load: onnxruntime does not take {name}: {reason}", help="check the model with onnx.checker")


def _bytes_of(model: onnx.ModelProto) -> bytes:
    if model.ByteSize() > LIMIT:
        raise ModelError("load: the model is larger than 2 GiB", help="give its path")
    content: bytes = model.SerializeToString()
    return content


def _stored(graph: Graph, name: str) -> DType:
    return graph._names[name].dtype


def _with_weights(graph: Graph, given: Mapping[str, Array]) -> Graph:
    """A copy of the graph with other arrays for some of its weights."""
    own = graph.weights
    for name, array in given.items():
        if name not in own:
            raise ModelError(f"load: the graph has no weight {name!r}", help=f"its weights: {', '.join(own) or 'none'}")
        wanted = own[name].tensor_type
        if array.dtype != wanted.dtype.numpy or array.shape != tuple(wanted.shape.static_dims):
            raise ModelError(
                f"load: weight {name!r} is {wanted}, and {array.dtype}{list(array.shape)} is given",
                help="give an array of that type",
            )
    made = graph.copy()
    made._outputs = [(name, made._symbols[s.id]) for name, s in graph._outputs or ()]
    for name, array in given.items():
        symbol = made._symbols[own[name].id]
        symbol.producer = Constant(native(array), True, symbol.producer.origin)
    return made


def _arrays(graph: Graph) -> dict[str, Array]:
    """The weights that stay where they are, by name. 4-bit ones have another layout in onnxruntime."""
    arrays = {}
    for name, symbol in graph.weights.items():
        assert isinstance(symbol.producer, Constant)
        if symbol.producer.array.nbytes >= _BY_REFERENCE and symbol.dtype.bits >= 8:
            arrays[name] = symbol.producer.array
    return arrays


def _read_late(graph: Graph) -> frozenset[str]:
    """The weights that only kernels read: operands of operators that wait for an operand of the run."""
    constant = {s.id for s in graph._symbols if isinstance(s.producer, Constant)}
    late: dict[int, bool] = {}
    for node in graph._nodes:
        inputs = [s for s in node.inputs if s is not None]
        folded = all(s.id in constant for s in inputs)
        if folded:
            constant.update(s.id for s in node.outputs)
        for symbol in inputs:
            if isinstance(symbol.producer, Constant):
                waits = not folded and node.op_type in _READ_LATE
                late[symbol.id] = late.get(symbol.id, True) and waits
    outputs = {s.id for s in graph.outputs}
    return frozenset(name for name, s in graph.weights.items() if late.get(s.id) and s.id not in outputs)


def _type_of(value: Any, semantic: str) -> TensorType:
    """The type of an input or output that onnxruntime describes."""
    import json

    text = value.type
    if not text.startswith("tensor("):
        raise DTypeError(f"{value.name} is {text}, no tensor")
    names = {"float": "float32", "double": "float64"}
    element = text.removeprefix("tensor(").removesuffix(")")
    dtype = json.loads(semantic).get(value.name) or names.get(element, element).replace("float8e", "float8_e")
    dims = [_dim_of(d) for d in (value.shape or ())]
    return TensorType(dtype, Shape(dims))


def _dim_of(size: int | str | None) -> Dim:
    try:
        return Dim.dynamic() if size is None or (isinstance(size, int) and size < 0) else Dim(size)
    except ValueError:
        return Dim.dynamic()  # names of other tools may be anything
