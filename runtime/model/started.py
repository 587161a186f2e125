"""A started session with the types of its inputs and outputs, and the graph of its model."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, GraphError, ModelError, RunError
from graphcore.ir.graph import Graph
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime.buffers.runners import ArrayRunner, IoBindingRunner
from graphcore.runtime.buffers.state import ModelBuffer, Program, Runner, State, without
from graphcore.runtime.calls.batching import Batching
from graphcore.runtime.calls.failures import UserNodes
from graphcore.runtime.calls.feeds import Feeds, ForOtherModel, Inputs, Overrides
from graphcore.runtime.calls.results import results_of
from graphcore.runtime.calls.rows import Pace
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.release import copying_outputs
from graphcore.support.escaping import escaped
from graphcore.support.markup import table
from graphcore.types.tensor_types import TensorType, Type, complex_in_use

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Start: TypeAlias = Callable[[Mapping[str, Any]], tuple[onnxruntime.InferenceSession, object]]
"""Starts an onnxruntime session with more session options; the other result must live as long as the session."""


class StartedModel(ABC):
    """A session with its inputs and outputs. `Model` runs it."""

    def __init__(
        self,
        name: str,
        start: Start,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        started: tuple[onnxruntime.InferenceSession, object] | None = None,
        uses_transport: bool = False,
        lowered: Graph | None = None,
        source: Graph | None = None,
        reload: Callable[[Graph], Self] | None = None,
        buffers: tuple[ModelBuffer, ...] = (),
        load_full: Callable[[], Self] | None = None,
        lower: Callable[[Graph], Graph] | None = None,
        read_outputs: Callable[[], Mapping[str, Type]] | None = None,
        defaults: Mapping[str, Array | None] = MappingProxyType({}),
    ) -> None:
        """source: the loaded graph; None for a model in onnxruntime's own format. reload: loads another graph in the
        same way. load_full: loads the model with its graph, if the graph was not read. lower: lowers the source as for
        the session. read_outputs: of a session that runs a file without lowering: reads the types of its outputs. Such
        kernels may not support empty arrays: these run through the graph. defaults: of inputs that a call may omit, as
        far as they were read."""
        transport_dtypes.check(name, {**inputs, **outputs})
        if transport_dtypes.is_needed(inputs, outputs) and not uses_transport:
            raise ModelError(
                f"load: {name}: onnxruntime gives no bfloat16, float8 or 4-bit outputs beside strings or lists",
                operands={n: str(t) for n, t in (*inputs.items(), *outputs.items())},
                help="load the ONNX model that this one was made of, or cast those outputs to float32 or int8",
            )
        self.name = name
        self.session, self._keep = started or start({})
        """The onnxruntime session. It refers to the memory of the weights, and does not own it.

        `session.io_binding()` binds inputs and outputs to memory of a device, and `session.run_with_iobinding` runs
        with them: use these to feed arrays on a GPU without a copy, and to capture CUDA graphs.
        """
        self._start = start
        self._lowered = lowered
        self._source = source
        self._reload = reload
        self._load_full = load_full
        self._lower = lower
        self._user_node_finder: UserNodes | None = None
        # By sizes of dims: models for empty arrays, which kernels refuse; None in such a model itself.
        self._empty_models: dict[tuple[tuple[str, int], ...], Self] | None = {}
        self._edits = 0 if source is None else source.edits
        self._watching: dict[tuple[int, ...], Self] = {}
        self._types = dict(inputs), dict(outputs)
        self._model_buffers = buffers
        self._inputs = without(inputs, {k.name for k in buffers} | {*defaults})
        self._input_defaults = defaults
        self._outputs = without(outputs, {k.output for k in buffers})
        self._results = results_of(tuple(self._outputs))
        self._output_names = [output.name for output in self.session.get_outputs()]
        self._feeds = Feeds(
            name,
            self._inputs,
            has_elements=read_outputs is not None,
            optional={n: inputs[n] for n in defaults},
            defaults={n: array for n, array in defaults.items() if array is not None},
        )
        self._load_with: Callable[[frozenset[str]], Self] | None = None
        self._overridden: tuple[frozenset[str], Self] | None = None
        self._is_direct = read_outputs is not None
        self._read_outputs = read_outputs
        self._read_model: Self | None = None
        self._uses_transport = uses_transport
        fed = {n: t.dtype.storage for n, t in inputs.items() if transport_dtypes.is_unusual(t)}
        unusual = [(i, t.dtype.storage) for i, t in enumerate(outputs.values()) if transport_dtypes.is_unusual(t)]
        typed = [(i, t.dtype) for i, t in enumerate(self._outputs.values()) if isinstance(t, TensorType)]
        self._wide = [(i, dtype) for i, dtype in typed if big_integers.is_wide(dtype)]
        # Measured: the Python code of `run`, which checks names again, takes a fifth of a small call.
        run = getattr(self.session, "_sess", self.session).run
        self._run = copying_outputs(run, inputs.keys() & outputs.keys())
        if complex_in_use and any(map(is_complex, self._outputs.values())):
            self._run = transport_dtypes.with_complex(self._run, self._outputs.values())
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._threads_of = 0
        self._batches: Batching | None = None
        self._pace = Pace()
        self._program: Program | None = None
        self._state: State | None = None
        self._runner: Runner | None = None
        """How calls run that the session alone cannot: None if it takes and returns arrays of NumPy."""
        if (unusual and not uses_transport) or (buffers and transport_dtypes.is_bindable(inputs, outputs)):
            self._runner = IoBindingRunner(self.session, inputs, self._outputs, buffers)
        elif fed or unusual or buffers:
            self._runner = ArrayRunner(self._run, self._output_names, fed, unusual, buffers)
        if buffers:
            assert self._runner is not None
            self._program = Program(self._feeds, buffers, self._runner, self._failed)
            self._state = State(self._program, {})

    @property
    def inputs(self) -> Inputs:
        """The types of the inputs by name, in order; `inputs.optional` has those that a call may omit."""
        return Inputs(self._inputs, {**self._feeds.optional, **self._feeds.constants})

    def let_override(self, constants: Mapping[str, Type], load: Callable[[frozenset[str]], Self]) -> Self:
        """Let calls give other values for constants, and return the model. load: loads a model that has some of them as
        inputs; the first call that overrides them waits for it."""
        self._feeds.constants, self._load_with = constants, load
        return self

    def _model_for(self, reason: ForOtherModel) -> Self:
        """Return the model that takes a feed which this one does not take."""
        if not isinstance(reason, Overrides):
            return self._full_model()
        (names,) = reason.args
        with self._lock:
            loaded, model = self._overridden or (frozenset(), None)
            if model is None or not names <= loaded:
                assert self._load_with is not None
                self._overridden = names, model = names | loaded, self._load_with(names | loaded)
            return model

    @property
    def outputs(self) -> dict[str, Type]:
        """The types of the outputs by name, in order."""
        return dict(self._typed_outputs())

    def _typed_outputs(self) -> Mapping[str, Type]:
        """Return the types of the outputs; for a file that runs without lowering, with dims inferred from its nodes."""
        read = self._read_outputs
        if read is not None and not transport_dtypes.are_determined(self._outputs, self._inputs):
            with contextlib.suppress(GraphcoreError):
                self._outputs = {**self._outputs, **read()}
        self._read_outputs = None
        return self._outputs

    @abstractmethod
    def _failed(self, error: Exception, feed: Mapping[str, Any]) -> RunError:
        """Return the error of a call that failed."""

    def _read(self) -> None:
        """Read the graph if that was not done yet. Raises `ModelError` if the file has changed."""
        if self._load_full is not None and self._source is None:
            read = self._full_model()
            read._read()  # it may run as it is, too
            self._source, self._reload, self._edits = read._source, read._reload, read._edits  # type: ignore[assignment]
            self._lowered, self._start, self._lower = read._lowered, read._start, read._lower

    def _full_model(self) -> Self:
        """Return the model with its graph, which is read now. Raises `ModelError` if the file has changed."""
        assert self._load_full is not None
        with self._lock:
            if self._read_model is None:
                self._read_model = self._load_full()
            return self._read_model

    def _check_unedited(self, what: str) -> None:
        """Raise `GraphError` if the graph, from which more sessions start, was edited since it was loaded."""
        if self._source is not None and self._source.edits != self._edits:
            raise GraphError(
                f"{what}: nodes were inserted into the graph since {self.name} was loaded",
                help="load the graph again: this Model runs the graph as it was before",
            )

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: a Model runs in the process that loaded it, and cannot be copied or pickled",
            help="pickle the Graph, or give the path of the file, and load it there",
        )

    def _repr_html_(self) -> str:
        rows = [("input", name, str(type_)) for name, type_ in self._inputs.items()]
        rows += [("optional", name, str(type_)) for name, type_ in self._feeds.optional.items()]
        rows += [("output", name, str(type_)) for name, type_ in self._typed_outputs().items()]
        rows += [("kept", k.name, str(k.type)) for k in self._model_buffers]
        return table(("", "name", "type"), rows, self.name)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._typed_outputs().items())
        text = ", ".join(f"{k.name}: {k.type}" for k in self._model_buffers)
        optional = len(self._feeds.optional) + len(self._feeds.constants)
        more = f"; {optional} inputs have defaults" if optional else ""
        return escaped(f"<Model {self.name}({inputs}{more}) -> {outputs}{f', keeps {text}' if text else ''}>")
