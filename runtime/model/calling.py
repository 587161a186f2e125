"""A loaded model: its session, and its calls by position, by name, with buffers, and bound to fixed arrays."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, GraphError, ModelError, RunCancelledError, RunError, RunTimeoutError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import present
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime import inspection
from graphcore.runtime.buffers.runners import ArrayRunner, IoBindingRunner, Slots
from graphcore.runtime.buffers.state import Buffers, Growth, ModelBuffer, Program, Runner, State
from graphcore.runtime.calls.batching import Batching, batching, pool_of
from graphcore.runtime.calls.bound import Bound, bound
from graphcore.runtime.calls.conversion import requested
from graphcore.runtime.calls.failures import UserNodes, is_about_empty, run_error, without_empty, zero_results
from graphcore.runtime.calls.feeds import Feeds, ForOtherModel, Inputs, Overrides
from graphcore.runtime.calls.results import NamedResults, results_of
from graphcore.runtime.calls.rows import Pace
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.release import copying_outputs
from graphcore.runtime.stopping.limit import Limit, run, seconds_of
from graphcore.support.escaping import escaped
from graphcore.support.markup import table
from graphcore.types.tensor_types import TensorType, Type, complex_in_use

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Start: TypeAlias = Callable[[Mapping[str, Any]], tuple[onnxruntime.InferenceSession, object]]
"""Starts an onnxruntime session with more session options; the other result must live as long as the session."""

_MAX_EMPTY_MODELS = 4
"""Maximum number of cached sessions for empty arrays."""


class CalledModel:
    """A started session with its inputs and outputs, which can be called; `Model` adds batches of calls, and
    inspection."""

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
        growth: Growth | None = None,
    ) -> None:
        """source: the loaded graph; None for a model in onnxruntime's own format. reload: loads another graph in the
        same way. load_full: loads the model with its graph, if the graph was not read. lower: lowers the source as for
        the session. read_outputs: of a session that runs a file without lowering: reads the types of its outputs. Such
        kernels may not support empty arrays: these run through the graph. defaults: of inputs that a call may omit, as
        far as they were read. growth: the calls that need another session."""
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
        not_fed = {buffer.name for buffer in buffers} | {*defaults}
        self._inputs = {name: type_ for name, type_ in inputs.items() if name not in not_fed}
        self._input_defaults = defaults
        stored = {buffer.output for buffer in buffers}
        self._outputs = {name: type_ for name, type_ in outputs.items() if name not in stored}
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
        self._whole: Self | None = None
        """The same model with a session for all calls, if there was a call that needed it."""
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
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        self._batches: Batching | None = None
        self._pace = Pace()
        self._program: Program | None = None
        self._state: State | None = None
        self._runner: Runner | None = None
        """The runner of calls that the session cannot run alone; None if it takes and returns arrays of NumPy."""
        if (unusual and not uses_transport) or (buffers and transport_dtypes.is_bindable(inputs, outputs)):
            self._runner = IoBindingRunner(self.session, inputs, self._outputs, buffers)
        elif fed or unusual or buffers:
            self._runner = ArrayRunner(self._run, self._output_names, fed, unusual, buffers)
        if buffers:
            assert self._runner is not None
            self._program = Program(self._feeds, buffers, self._runner, self._failed, growth, self._grow)
            self._state = State(self._program, {})

    def _grow(self) -> None:
        """Run all calls in the session of `_whole` from now on, if calls with many rows need it and it starts."""
        program = self._program
        with self._lock:
            if program is None or program.growth is None:
                return
            with contextlib.suppress(GraphcoreError):  # the file or the graph was changed since
                whole = self._whole = program.growth.load()
                self.session._weights = self._keep  # calls of other threads, and users, may still have this session
                self.session, self._keep, self._run = whole.session, whole._keep, whole._run
                program.runner = self._runner = present(whole._runner)
            program.growth = None

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

    @property
    def buffers(self) -> Buffers:
        """The buffers: `model.buffers["cache"]` is a copy of a value, and can be set; `.reset()` restores initial
        values."""
        return Buffers(self._stateful("buffers"))

    def state(self, **buffers: Any) -> State:
        """Return another state of the buffers, for another stream of calls: `state(x)`.

        Args:
            buffers: Arrays of buffers by name; others have their initial values.

        Raises:
            FeedError: If an array does not fit the type of its buffer.
            ModelError: If the model has no buffers.
        """
        return State(self._stateful("state")._program, buffers)

    def slots(self, count: int) -> Slots:
        """Return buffers for `count` streams in one array each: `slots.run(2, 5, x)` runs only rows 2 to 5.

        Args:
            count: The number of streams. See docs/howto/state.md.

        Raises:
            ModelError: If the model has no buffers, or they do not all begin with the same named dim.
            FeedError: For a count below 1.
            ResourceLimitError: If there is not enough memory.
        """
        return Slots(self._stateful("slots")._program, count)

    def _stateful(self, what: str) -> State:
        if self._state is None:
            raise ModelError(
                f"{what}: {self.name} has no buffers",
                help='declare them: Graph("g", {"cache": gc.Buffer("float32", [1024, 64])})',
            )
        return self._state

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> NamedResults:
        """Run the model on one value for each input, by position, by name, or in one dict.

        Arrays must have the inputs' dtypes (ml_dtypes' for bfloat16, float8 and int4), ranks and dims; other byte
        orders and strides are converted. Tensors of other libraries are read through DLPack, without a copy, or
        `__array__`. Python numbers and nested lists of them become arrays of the input's dtype: ints exactly, floats
        rounded. Integers of more than 64 bits are arrays of Python ints, or uint32 digits along one more axis, the
        lowest first. A sequence is a list or tuple of arrays; an absent optional is None or omitted.

        Args:
            arrays: Values of the first inputs, or one dict of all inputs.
            timeout: Seconds that the call may take, None for no limit. The run stops between two kernels. If an input
                is called `timeout`, this argument is the input; `execute` has both.
            named: Values of inputs by name.

        Returns:
            The outputs, in order and by name (`out["y"]`, `out.y`): arrays, lists for sequences, None for absent
            optionals. Integers of more than 64 bits are digits. Types that graphcore does not know are as onnxruntime
            returns them.

        Raises:
            FeedError: If a value does not fit its input.
            RunTimeoutError: If the time is over.
            RunError: If the runtime fails.
        """
        if timeout is not None:
            if "timeout" not in self._inputs:
                with Limit(self.name, seconds_of(self.name, timeout)):
                    return self(*arrays, **named)
            named["timeout"] = timeout
        if self._state is not None:
            return self._results(self._state(*arrays, **named))
        try:
            feed = self._feeds.take(arrays, named)
        except ForOtherModel as reason:
            return self._model_for(reason)(*arrays, **named)
        try:
            if self._runner is None:
                return self._results(run(self._run, self._output_names, feed))
            return self._results(self._runner.run(feed, {}, {}, None)[0])
        except (RunTimeoutError, RunCancelledError):
            raise
        except Exception as error:
            whole = None
            if self._is_direct:
                with contextlib.suppress(GraphcoreError):  # the file was changed since
                    whole = self._full_model()
            if whole is not None:
                return whole(*arrays, **named)  # its error names the failed node
            if (empty_results := self._empty_results(error, feed)) is not None:
                return self._results(empty_results)
            raised = self._failed(error, feed)
            raise raised from raised.__cause__ or error

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[Any]:
        """Return the named outputs of a call, as `onnxruntime.InferenceSession.run` does: `model.run(["y"], {"x": x})`.

        Args:
            output_names: The outputs to return, in this order; None for all.
            input_feed: A value for each input, by name.
            run_options: Must be None: the session has the options.

        Raises:
            FeedError: For unknown outputs and for run_options. Other errors are those of a call.
        """
        outputs = self._outputs
        names = requested(self.name, outputs, output_names, input_feed, run_options, "gc.InferenceSession(...)")
        results = dict(zip(outputs, self(**input_feed), strict=True))
        return [results[name] for name in names]

    def bind(self, /, *arrays: Any, **named: Any) -> Bound:
        """Return a `Bound` for fixed shapes: arrays for inputs and outputs, bound once and used in every call.

        Outputs with sizes known only at run time are allocated in each call. See docs/howto/fast_calls.md.

        Args:
            arrays: For the first inputs, an example array, whose values the input gets, or a shape as a tuple.
            named: The same by name, and sizes of named dims: `model.bind(batch=8, tokens=(8, 128))`. Inputs with only
                static dims need neither.

        Raises:
            FeedError: If a value does not fit its input, or a size is missing.
            ModelError: If the model has strings, lists, optionals or buffers.
            ResourceLimitError: If there is not enough memory.
        """
        if self._state is not None:
            raise ModelError(f"bind: {self.name} has buffers, which are bound already", help="call the model")
        if overridden := frozenset(named.keys() & self._feeds.constants.keys()):
            return self._model_for(Overrides(overridden)).bind(*arrays, **named)
        on_error = self._failed, self._empty_results
        inputs = {**self._inputs, **{n: t for n, t in self._feeds.optional.items() if n in named}}
        bound_model = bound(
            self.name, self.session, inputs, self._typed_outputs(), arrays, named, on_error, (self._keep, self)
        )
        if self._is_direct and not all(array.size for array in bound_model.inputs.values()):
            return self._full_model().bind(*arrays, **named)
        return bound_model

    def adapter(self, source: str | os.PathLike[str] | Mapping[str, Any], /) -> dict[str, Any]:
        """Return the arrays of a LoRA adapter for inputs with defaults, to use in calls: `model(x, **adapter)`.

        Args:
            source: An `.onnx_adapter` file; a folder that PEFT saved, or its safetensors file beside
                `adapter_config.json`; or arrays by input. PEFT's are given to the inputs named as its modules, such as
                "encoder.query.lora_A": transposed if these have the shapes of MatMul's operands, and lora_B times
                alpha / r. See docs/howto/adapters.md.

        Raises:
            ModelError: If the file is not an adapter, has no config, or has tensors without an input.
            FeedError: If an array belongs to no input with a default, or has another dtype or shape.
        """
        if isinstance(source, Mapping):
            return self._feeds.optional_values(source, "adapter")
        from graphcore.runtime.calls.adapters import read_adapter  # checkpoints, which most programs do not need

        arrays = read_adapter(source, self.inputs.optional)
        return self._feeds.optional_values(arrays, f"adapter: {os.fsdecode(source)}")

    def _failed(self, error: Exception, feed: Mapping[str, Any]) -> RunError:
        with contextlib.suppress(GraphcoreError):
            self._read()
        return run_error(self.name, error, feed, self._source, self._user_nodes())

    def _empty_results(self, error: Exception, feed: Mapping[str, Any]) -> list[Any] | None:
        """Return the results of a call that failed because of empty arrays; None for any other failure."""
        if self._empty_models is None or not is_about_empty(error, feed):
            return None
        sizes = self._feeds.sizes_of(feed)
        results = zero_results(self._outputs, sizes)
        if results is not None:
            return results
        with contextlib.suppress(GraphcoreError):
            self._read()
            if self._source is None or self._reload is None or self._source.edits != self._edits:
                return None
            key = tuple(sorted(sizes.items()))
            model = self._empty_models.get(key)
            if model is None:
                model = self._reload(without_empty(self._source, sizes))
                model._empty_models = None
                if len(self._empty_models) >= _MAX_EMPTY_MODELS:
                    self._empty_models = {}
                self._empty_models[key] = model
            return model(**feed)
        return None

    def _user_nodes(self) -> UserNodes | None:
        """Return the finder of nodes in the loaded graph; None if the graph was edited since, or is unknown."""
        graph, reload = self._source, self._reload
        if graph is None or reload is None or self._lower is None or graph.edits != self._edits:
            return None
        if self._user_node_finder is None:
            self._user_node_finder = UserNodes(
                graph, self._lower, lambda s, feed: reload(inspection.with_outputs(graph, s))(**feed)
            )
        return self._user_node_finder

    def _pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        with self._lock:
            if self._threads is None or self._threads[0] != process:  # a forked process has none of the threads
                self._threads = process, pool_of(self.name, in_order=self._state is not None)
            return self._threads[1]

    def _batching(self, dim: str | Mapping[str, int] | None = None) -> Batching:
        if self._state is not None:
            raise ModelError(f"{self.name} has buffers, which are one for all rows", help="call the model")
        cached = self._batches if dim is None else None
        return cached or batching(self.name, self._inputs, self._typed_outputs(), dim)
