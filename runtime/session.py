"""Sessions: where a graph or a file becomes a Model that runs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime

from graphcore.errors import GraphError, ModelError
from graphcore.graph import Graph, Target
from graphcore.numerics import Array, native
from graphcore.onnx.writer import LIMIT
from graphcore.runtime import described, references
from graphcore.runtime.lowering import lower
from graphcore.runtime.model import Model
from graphcore.runtime.providers import require_started, resolve, target_of
from graphcore.runtime.references import refused
from graphcore.symbol import Constant
from graphcore.types import TensorType, Type

# Measured: the CPU kernel of the first is five times slower than what it replaces, the second gains nothing.
_SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")

# Measured: it compares initializers pairwise, three quarters of the start of a session with 10,000 of them.
_QUADRATIC = ("ConstantSharing",)
_MANY = 1000


class InferenceSession:
    """Loads graphs and models for one or more providers.

    providers: by preference, among those installed: "cpu", "cuda" or onnxruntime's names; by default the CPU's.
    precision: "exact" rounds after every op. session_options: attributes of `onnxruntime.SessionOptions`, such as
    `intra_op_num_threads=2`. Raises `RunError` for a provider that is not installed, `GraphError` for an option that
    does not exist or a value it does not take.
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
        self.providers = resolve(providers)
        _check_options(session_options)
        self._options = session_options
        self._session_options({})

    @property
    def target(self) -> Target:
        """What graphs are lowered to."""
        return target_of(self.providers[0])

    def load(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array] | None = None,
    ) -> Model:
        """A Model that runs.

        model: a Graph, which is lowered for the first provider; or a finished ONNX model as a path, bytes or a
        ModelProto, which is run as it is. weights: arrays to use in place of a Graph's weights, by name, of the same
        types. The arrays of weights are not copied as a rule: leave them as they are while the Model lives. Raises
        `ModelError` for what cannot be read or run, `GraphError` for an unfinished graph, `RunError` where a provider
        does not start.
        """
        if isinstance(model, Graph):
            return self._load_graph(model, weights or {})
        if weights:
            raise ModelError(
                "load: weights can be given for a Graph only", help="build the Graph, or leave weights out"
            )
        return self._load_model(model)

    def _session_options(self, more: Mapping[str, Any]) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures come as exceptions
        for name, value in {**self._options, **more}.items():
            try:
                setattr(options, name, value)
            except (TypeError, ValueError, AttributeError, RuntimeError):
                raise GraphError(
                    f"InferenceSession: {name}={value!r} is no value of that session option",
                    help=f"give one like {getattr(onnxruntime.SessionOptions(), name)!r}, its default",
                ) from None
        return options

    def _create(
        self, model: bytes | str, options: onnxruntime.SessionOptions, disabled: Sequence[str] = _SLOWER
    ) -> onnxruntime.InferenceSession:
        # The fallback would print on stdout, drop the options and run on another provider than was asked for.
        return onnxruntime.InferenceSession(
            model, options, providers=list(self.providers), disabled_optimizers=list(disabled), enable_fallback=0
        )

    def _load_graph(self, graph: Graph, weights: Mapping[str, Array]) -> Model:
        graph.verify()
        if weights:
            graph = _with_weights(graph, weights)
        inputs = {s.name: _tensor_type(graph, s.name, s.type) for s in graph.inputs}
        lowered = lower(graph, self.target)
        pairs = zip(lowered.outputs, graph.outputs, strict=True)
        outputs = {new.name: _tensor_type(graph, new.name, old.type) for new, old in pairs}
        constants = sum(isinstance(s.producer, Constant) for s in lowered._symbols)
        disabled = (*_SLOWER, *_QUADRATIC) if constants >= _MANY else _SLOWER

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            started = references.start(
                lowered,
                lambda: self._session_options(more),
                lambda model, options: self._create(model, options, disabled),
            )
            require_started(started[0], self.providers)
            return started

        return Model(graph.name, start, inputs, outputs)

    def _load_model(self, model: onnx.ModelProto | bytes | str | os.PathLike[str]) -> Model:
        name, content = _content(model)

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            options = self._session_options(more)
            try:
                session = self._create(content, options)
            except Exception as error:
                raise refused(name, error) from error
            require_started(session, self.providers)
            return session, None

        started = start({})
        inputs, outputs, any_rank = described.types_of(started[0], name)
        return Model(name, start, inputs, outputs, started, any_rank)


def _check_options(options: Mapping[str, Any]) -> None:
    fresh = onnxruntime.SessionOptions()
    known = [name for name in dir(fresh) if not name.startswith("_") and not callable(getattr(fresh, name))]
    unknown = [name for name in options if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, 3, 0.4)
        raise GraphError(
            f"InferenceSession: onnxruntime has no session option {', '.join(map(repr, unknown))}",
            help=f"did you mean {' or '.join(close)}?" if close else "see the attributes of onnxruntime.SessionOptions",
        )


def _tensor_type(graph: Graph, name: str, type_: Type) -> TensorType:
    if isinstance(type_, TensorType):
        return type_
    raise ModelError(
        f"load: {graph.name}: {name} is {type_}, which is fed and read as no array",
        help="export the graph and run it with onnxruntime itself",
    )


def _content(model: object) -> tuple[str, bytes | str]:
    """What errors call a finished model, and its bytes or its path."""
    if isinstance(model, onnx.ModelProto):
        if model.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return model.graph.name or "model", model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        path = os.fsdecode(path)
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "no file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return path, path
    raise ModelError(f"load: a {type(model).__name__} is no model", help="give a Graph, a path, bytes or a ModelProto")


def _with_weights(graph: Graph, given: Mapping[str, Array]) -> Graph:
    """A copy of the graph with other arrays for some of its weights."""
    own = graph.weights
    held = {}
    for name, array in given.items():
        if name not in own:
            raise ModelError(f"load: the graph has no weight {name!r}", help=f"its weights: {', '.join(own) or 'none'}")
        wanted = own[name].tensor_type
        if not isinstance(array, np.ndarray):
            raise ModelError(
                f"load: weight {name!r} is {wanted}, and a {type(array).__name__} is given",
                help="give an array: np.asarray(value)",
            )
        held[name] = native(array)
        if held[name].dtype != wanted.dtype.numpy or array.shape != tuple(wanted.shape.static_dims):
            raise ModelError(
                f"load: weight {name!r} is {wanted}, and {array.dtype}{list(array.shape)} is given",
                help="give an array of that type",
            )
    made = graph.copy()
    made._outputs = [(name, made._symbols[s.id]) for name, s in graph._outputs or ()]
    for name, array in held.items():
        symbol = made._symbols[own[name].id]
        symbol.producer = Constant(array, True, symbol.producer.origin)
    return made
