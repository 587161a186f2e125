"""A loaded model: arrays in, arrays out; lists of them for sequences, and None for an absent optional."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.errors import (
    FeedError,
    GraphcoreError,
    GraphError,
    ModelError,
    RunCancelledError,
    RunError,
    RunTimeoutError,
)
from graphcore.ir.graph import Graph
from graphcore.promotion.complex_operators import is_complex
from graphcore.runtime import inspection
from graphcore.runtime.buffers.runners import ArrayRunner, IoBindingRunner
from graphcore.runtime.buffers.slots import Slots
from graphcore.runtime.buffers.state import Buffers, Kept, Program, Runner, State, without
from graphcore.runtime.calls.batching import Batching, batching
from graphcore.runtime.calls.bound import Bound, bound
from graphcore.runtime.calls.empties import emptied, is_of_nothing, nothing
from graphcore.runtime.calls.failures import failed
from graphcore.runtime.calls.feeds import Feeds, NoElements
from graphcore.runtime.calls.named_outputs import requested
from graphcore.runtime.calls.rows.arguments import arguments
from graphcore.runtime.calls.rows.mapping import WINDOW, Mapped
from graphcore.runtime.calls.rows.pace import Pace
from graphcore.runtime.calls.threads import in_pieces, pool_of, rows_of
from graphcore.runtime.calls.user_nodes import UserNodes
from graphcore.runtime.ort import model_types, transport_dtypes
from graphcore.runtime.ort.release import kept_apart
from graphcore.runtime.stopping.limit import Limit, run, seconds_of
from graphcore.support.escaping import escaped
from graphcore.support.markup import table
from graphcore.support.progress import ProgressOption
from graphcore.types.tensor_types import TensorType, Type, complex_in_use

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from graphcore.runtime.inspection import Placement, Profile

Start: TypeAlias = Callable[[Mapping[str, Any]], tuple[onnxruntime.InferenceSession, object]]
"""Starts an onnxruntime session with more session options; the other result must live as long as the session."""

_MOST_EMPTIED = 4
"""Sessions that are kept for arrays of no elements."""


class Model:
    """A graph that an onnxruntime session runs: `model(x, y)`, `model(x=..., y=...)` or `model({"x": ...})`.

    Made by a session. `model.run(["y"], {"x": ...})` is as in onnxruntime.

    Calls from several threads at once are safe.
    """

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
        reload: Callable[[Graph], Model] | None = None,
        kept: tuple[Kept, ...] = (),
        whole: Callable[[], Model] | None = None,
        lower: Callable[[Graph], Graph] | None = None,
        read_outputs: Callable[[], Mapping[str, Type]] | None = None,
    ) -> None:
        """source: the graph as it was loaded, and reload: loads another one the same way; None for a model that was
        compiled beforehand. whole: loads the model with its graph, where that was left out. lower: lowers the source
        as it was for the session. read_outputs: of a session that runs a file as it is, reads the types of its outputs.
        Its kernels may not know what to do with arrays of no elements: those run through its graph."""
        transport_dtypes.check(name, {**inputs, **outputs})
        if transport_dtypes.is_needed(inputs, outputs) and not uses_transport:
            raise ModelError(
                f"load: {name}: onnxruntime gives no bfloat16, float8 or 4-bit outputs beside strings or lists",
                operands={n: str(t) for n, t in (*inputs.items(), *outputs.items())},
                help="load the ONNX model that this one was made of, or cast those outputs to float32 or int8",
            )
        self.name = name
        self.session, self._keep = started or start({})
        """The onnxruntime session. It refers to the weights' memory and does not own it.

        `session.io_binding()` binds inputs and outputs to memory of a device, and `session.run_with_iobinding` runs on
        them: so are arrays that lie on a GPU fed without a copy, and CUDA graphs captured.
        """
        self._start = start
        self._lowered = lowered
        self._source = source
        self._reload = reload
        self._whole = whole
        self._lower = lower
        self._users: UserNodes | None = None
        # By the sizes of dims: what runs where kernels refuse arrays of no elements; None for such a model itself.
        self._emptied: dict[tuple[tuple[str, int], ...], Model] | None = {}
        self._edits = 0 if source is None else source.edits
        self._watching: dict[tuple[int, ...], Model] = {}
        self._types = dict(inputs), dict(outputs)
        self._kept = kept
        self._inputs = without(inputs, {k.name for k in kept})
        self._outputs = without(outputs, {k.output for k in kept})
        self._output_names = [output.name for output in self.session.get_outputs()]
        self._feeds = Feeds(name, self._inputs, has_elements=read_outputs is not None)
        self._is_direct = read_outputs is not None
        self._read_outputs = read_outputs
        self._read_model: Model | None = None
        self._stored = {n: t.dtype.storage for n, t in inputs.items() if isinstance(t, TensorType)}
        self._fed = {n: t.dtype.storage for n, t in inputs.items() if transport_dtypes.is_unusual(t)}
        unusual = [(i, t.dtype.storage) for i, t in enumerate(outputs.values()) if transport_dtypes.is_unusual(t)]
        self._restored = unusual if uses_transport else []
        self._is_bound = bool(unusual) and not uses_transport
        self._is_plain = not (self._is_bound or self._fed or self._restored)
        typed = [(i, t.dtype) for i, t in enumerate(self._outputs.values()) if isinstance(t, TensorType)]
        self._wide = [(i, dtype) for i, dtype in typed if big_integers.is_wide(dtype)]
        # Measured: what `run` itself does in Python, which is to check names again, is a fifth of a small call.
        run = getattr(self.session, "_sess", self.session).run
        self._run = kept_apart(run, inputs.keys() & outputs.keys())
        if complex_in_use and any(map(is_complex, self._outputs.values())):
            self._run = transport_dtypes.with_complex(self._run, self._outputs.values())
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._threads_of = 0
        self._batches: Batching | None = None
        self._pace = Pace()
        self._program: Program | None = None
        self._state: State | None = None
        if kept:
            runner: Runner = ArrayRunner(self._run, self._output_names, self._fed, self._restored, kept)
            if transport_dtypes.is_bindable(inputs, outputs):
                runner = IoBindingRunner(self.session, inputs, self._outputs, kept)
            self._program = Program(self._feeds, kept, runner, self._failed)
            self._state = State(self._program, {})

    @property
    def inputs(self) -> dict[str, Type]:
        """Return the inputs' types by name, in order."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Type]:
        """Return the outputs' types by name, in order."""
        return dict(self._typed_outputs())

    def _typed_outputs(self) -> Mapping[str, Type]:
        """Return the types of the outputs, of a file that runs as it is with the dims that only its nodes tell."""
        read = self._read_outputs
        if read is not None and not model_types.are_told(self._outputs, self._inputs):
            with contextlib.suppress(GraphcoreError):
                self._outputs = {**self._outputs, **read()}
        self._read_outputs = None
        return self._outputs

    @property
    def buffers(self) -> Buffers:
        """Return the buffers: `model.buffers["cache"]` is a copy of what one holds, and can be set; `.reset()` begins
        anew."""
        return Buffers(self._stateful("buffers"))

    def state(self, **buffers: Any) -> State:
        """Return another state of the buffers, beside the model's own, for another stream of calls: `state(x)`.

        buffers: arrays to begin with, by name; the others hold what they hold at first. Raises `FeedError` for arrays
        that are not of their types, and `ModelError` for a model that has no buffers.
        """
        self._stateful("state")
        assert self._program is not None
        return State(self._program, buffers)

    def slots(self, count: int) -> Slots:
        """Return the buffers for so many streams in one memory: `slots.run(2, 5, x)` runs rows 2 to 5 alone.

        Raises `ModelError` for a model that has no buffers, or whose buffers do not all begin with one named dim, and
        `FeedError` and `ResourceLimitError` for counts that make no sense. See docs/buffers.md.
        """
        self._stateful("slots")
        assert self._program is not None
        return Slots(self._program, count)

    def _stateful(self, what: str) -> State:
        if self._state is None:
            raise ModelError(
                f"{what}: {self.name} has no buffers",
                help='declare them: Graph("g", {"cache": gc.Buffer("float32", [1024, 64])})',
            )
        return self._state

    def __call__(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> list[Any]:
        """Run the model on one value for each input, given by position, by name, or all in one dict.

        Arrays have the inputs' dtypes (ml_dtypes' for bfloat16, float8 and int4), ranks and dims; other byte orders and
        strides are made right. Tensors of other libraries are read through DLPack, without a copy, or `__array__`.
        Python numbers and nested lists of them become arrays of the input's dtype where that holds them: ints exactly,
        floats rounded. Integers of more than 64 bits are fed as arrays of Python ints, or as uint32 digits
        along one more axis, the lowest first; they come out as digits. A sequence is a list or tuple of arrays; an
        optional is None where it is absent, and may then be left out. Returns the outputs, in order, of the same kinds;
        types that graphcore only hands on come as onnxruntime gives them.

        timeout: seconds that the call may take, None for no limit; it is stopped between two kernels. Where an input is
        called `timeout` that one is meant: `execute` has both. Raises `FeedError` for anything else, `RunTimeoutError`
        where the time is over, and `RunError` where the runtime fails.
        """
        if timeout is not None:
            if "timeout" not in self._inputs:
                with Limit(self.name, seconds_of(self.name, timeout)):
                    return self(*arrays, **named)
            named["timeout"] = timeout
        if self._state is not None:
            return self._state(*arrays, **named)
        try:
            feed = self._feeds.take(arrays, named)
        except NoElements:
            return self._whole_model()(*arrays, **named)
        try:
            if self._is_plain:
                return run(self._run, self._output_names, feed)  # type: ignore[no-any-return]
            if self._is_bound:
                return self._run_bound(feed)
            if self._fed:
                given = {
                    n: transport_dtypes.to_value(a, self._fed[n]) if n in self._fed else a for n, a in feed.items()
                }
                results = run(self._run, self._output_names, given)
            else:
                results = run(self._run, self._output_names, feed)
        except (RunTimeoutError, RunCancelledError):
            raise
        except Exception as error:
            whole = None
            if self._is_direct:
                with contextlib.suppress(GraphcoreError):  # of a file that was written to since
                    whole = self._whole_model()
            if whole is not None:
                return whole(*arrays, **named)  # which says where it fails, if it does
            if (found := self._of_nothing(error, feed)) is not None:
                return found
            made = self._failed(error, feed)
            raise made from made.__cause__ or error
        for position, dtype in self._restored:
            results[position] = transport_dtypes.restored(results[position], dtype)
        return results  # type: ignore[no-any-return]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[Any]:
        """Return the named outputs of a call, as `onnxruntime.InferenceSession.run` does: `model.run(["y"], {"x": x})`.

        output_names: in the order wanted, or None for all. input_feed: a value for each input, by name. run_options:
        None, since the session has the options. Raises `FeedError` for names that are no outputs and for run_options,
        and what a call raises.
        """
        known = self._outputs
        names = requested(self.name, known, output_names, input_feed, run_options, "gc.InferenceSession(...)")
        results = dict(zip(known, self(**input_feed), strict=True))
        return [results[name] for name in names]

    def bind(self, /, *arrays: Any, **named: Any) -> Bound:
        """Return a `Bound` for shapes that stay: arrays for its inputs and outputs, bound once and used in every call.

        By position or by name, for each input whose type has a dim that is no number: an example array, which the input
        holds then, or a shape, as a tuple; and by name for each dim its size: `model.bind(batch=8, tokens=(8, 128))`.
        Outputs whose size only the run knows are allocated in each call. Raises `FeedError` for what does not fit the
        inputs or leaves a size open, `ModelError` for a model that has strings, lists, optionals or buffers,
        `ResourceLimitError` for arrays that there is no memory for. See docs/running.md.
        """
        if self._state is not None:
            raise ModelError(f"bind: {self.name} has buffers, which are bound already", help="call the model")
        on_error = self._failed, self._of_nothing
        made = bound(
            self.name, self.session, self._inputs, self._typed_outputs(), arrays, named, on_error, (self._keep, self)
        )
        if self._is_direct and not all(array.size for array in made.inputs.values()):
            return self._whole_model().bind(*arrays, **named)
        return made

    def _failed(self, error: Exception, feed: Mapping[str, Any]) -> RunError:
        with contextlib.suppress(GraphcoreError):
            self._read()
        return failed(self.name, error, feed, self._source, self._user_nodes())

    def _of_nothing(self, error: Exception, feed: Mapping[str, Any]) -> list[Any] | None:
        """Return the results of a call that failed with arrays of no elements; None where that is not why."""
        if self._emptied is None or not is_of_nothing(error, feed):
            return None
        sizes = self._feeds.sizes_of(feed)
        found = nothing(self._outputs, sizes)
        if found is not None:
            return found
        with contextlib.suppress(GraphcoreError):
            self._read()
            if self._source is None or self._reload is None or self._source.edits != self._edits:
                return None
            key = tuple(sorted(sizes.items()))
            model = self._emptied.get(key)
            if model is None:
                model = self._reload(emptied(self._source, sizes))
                model._emptied = None
                if len(self._emptied) >= _MOST_EMPTIED:
                    self._emptied = {}
                self._emptied[key] = model
            return model(**feed)
        return None

    def _user_nodes(self) -> UserNodes | None:
        """Return what finds nodes of the graph as it was loaded; None where it was edited since, or is not known."""
        graph, reload = self._source, self._reload
        if graph is None or reload is None or self._lower is None or graph.edits != self._edits:
            return None
        if self._users is None:
            self._users = UserNodes(
                graph, self._lower, lambda s, feed: reload(inspection.with_outputs(graph, s))(**feed)
            )
        return self._users

    def run_async(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[list[Any]]:
        """Return a future of what a call gives, made in a thread of the model's own: `model.run_async(x).result()`.

        Leave the arrays as they are until it is done. The future has what a call raises. As many calls run at once as
        there are processors; those of a model with buffers run one after the other, in the order of asking. Callbacks
        of the future are run by the same threads, and are not to wait for other calls.

        `future.cancel()` takes a call back that waits, and stops one that runs, between two kernels. timeout: seconds
        from the asking on, after which the call is stopped, or not made at all, and the future has a
        `RunTimeoutError`. When the program ends calls have a second to come to their end, and are stopped then. Raises
        `RunError` where the program is ending, and `FeedError` for a timeout that is none.
        """
        # Measured: imported with the module it takes 5 ms of each start.
        from graphcore.runtime.stopping.futures import Call, submitted

        seconds = None
        if timeout is not None and "timeout" in self._inputs:
            named["timeout"] = timeout
        elif timeout is not None:
            seconds = seconds_of(self.name, timeout)
        try:
            return submitted(self._pool(), self, Call(self.name, seconds), arrays, named)
        except RuntimeError as error:
            raise RunError(f"{self.name}: run_async: {error}", help="call the model, which needs no thread") from None

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None or self._threads_of != os.getpid():  # a fork has the pool and none of its threads
                self._threads = pool_of(self.name, in_order=self._state is not None)
                self._threads_of = os.getpid()
            return self._threads

    def _batching(self, dim: str | Mapping[str, int] | None = None) -> Batching:
        if self._state is not None:
            raise ModelError(f"{self.name} has buffers, which are one for all rows", help="call the model")
        known = self._batches if dim is None else None
        return known or batching(self.name, self._inputs, self._typed_outputs(), dim)

    def execute(
        self, /, *arrays: Any, wide: Any = "limbs", micro_batch: Any = None, timeout: Any = None, **named: Any
    ) -> list[Any]:
        """Run as calling the model does; wide: what outputs of more than 64 bits come as; micro_batch: rows to run at
        once; timeout: seconds that all of it may take.

        "limbs" gives uint32 digits along one more axis, the last one, the lowest first; "object" gives arrays of Python
        ints. With `micro_batch` a batch is run in pieces of so many rows, which is faster where what is between two
        kernels then fits the processor's caches: side by side on all processors in a session of one thread
        (`InferenceSession(intra_op_num_threads=1)`), one after the other otherwise. The batch is the first dim of the
        first input, and no row may depend on another.

        An input that is called `wide`, `micro_batch` or `timeout` is given by position, in a dict, or in a call of the
        model itself. Raises what a call does, `FeedError` for any other `wide` and for a `micro_batch` below 1, and
        `ModelError` where some input or output does not carry the batch.
        """
        if timeout is not None:
            with Limit(self.name, seconds_of(self.name, timeout)):
                return self.execute(*arrays, wide=wide, micro_batch=micro_batch, **named)
        if not isinstance(wide, str) or wide not in ("limbs", "object"):
            raise FeedError(
                f"{self.name}: wide={wide!r:.80} is no form of integers of more than 64 bits",
                help="give wide='limbs' for uint32 digits, or wide='object' for Python integers",
            )
        if micro_batch is None:
            results = self(*arrays, **named)
        else:
            rows = rows_of(self.name, micro_batch)
            try:
                feed = self._feeds.take(arrays, named)
            except NoElements:
                return self._whole_model().execute(*arrays, wide=wide, micro_batch=micro_batch, **named)
            is_single = self.session.get_session_options().intra_op_num_threads == 1
            batches = self._batching()
            if batches.rows(feed) > rows:
                batches = self._batches = batches.settled(self, feed)
            results = in_pieces(self, batches, rows, feed, self._pool if is_single else None)
        if wide == "object":
            for position, dtype in self._wide:
                results[position] = big_integers.from_digits(results[position], dtype)
        return results

    def map(
        self,
        items: Iterable[Any],
        /,
        *,
        batch: int | None = None,
        pad: Any = None,
        padding: float = 0.05,
        dim: str | Mapping[str, int] | None = None,
        window: int = WINDOW,
        timeout: float | None = None,
        progress: ProgressOption = False,
    ) -> Iterator[list[Array]]:
        """Return an iterator of the outputs for each item of an iterable, run in batches, in the order of the items.

        An item is one row: an array, a tuple of them, or a dict of them by the names of inputs, each without the axis
        of the batch; so are the outputs. batch: rows of a batch; by default measured on the first batches, among 1, 4,
        8, 16, 32 and 64. pad: a value, or values by input, that fills up rows which are shorter than others along a
        dim with a name; outputs are cut along the same dims. Without it rows of several shapes are run in several
        batches. padding: the part of a batch that may be filled up. dim: where the batch lies, as for a `Batcher`.
        window: items read ahead to be put together by length, or 64 MiB of them if that is less; where all rows have
        one shape a batch is. timeout: seconds that the run of a batch may take; items of one that takes longer raise
        `RunTimeoutError`. progress: True shows a line on stderr; a function is told how many items are done, and of how
        many, None where that is not known.

        Nothing is read before the first result is asked for. What reading or running an item raises is raised after
        the results of those before it; errors of this library say which item it is, counted from 0. No row may depend
        on another, nor on what it is filled up with. Raises `FeedError` for arguments that make no sense, `ModelError`
        where some input or output does not carry the batch.
        """
        asked = arguments(self.name, items, batch, padding, window, timeout)
        batches, call = self._batching(dim), asked.limited(self)
        made = Mapped(call, batches, self._inputs, self._outputs, self._pace, asked.rows, pad, asked.padding,
                      asked.window)  # fmt: skip
        return made.results(items, progress)

    def debug(self, /, *arrays: Any, watch: str | Sequence[str] | None = None, **named: Any) -> dict[str, Any]:
        """Run the model and return values from inside of it, by name, in place of its outputs.

        watch: names of values as `str(graph)` shows them, or after the path of their layer, with `*` and `?` as in the
        shell: `watch="encoder/0/*"`, or a list of those; by default what `x.print("label")` marked, by label. Another
        session is started for each choice, and kept. An input that is called `watch` is given by position. Buffers are
        read, and not changed. Raises `FeedError` for a `watch` of no names, `GraphError` for a name that nothing has,
        where nothing is marked, and where nodes were inserted into the graph since, `ModelError` for a model that was
        compiled beforehand, and what a call raises.
        """
        names = inspection.names_of(watch, self.name)
        self._read()
        if self._source is None or self._reload is None:
            raise ModelError(
                f"debug: {self.name} is in onnxruntime's own format, which has no graph to look into",
                help="load the ONNX model that it was made of",
            )
        self._check_unedited("debug")
        graph = self._source
        chosen = inspection.marked(graph) if names is None else {s.name: s for s in inspection.watched(graph, names)}
        key = tuple(s.id for s in chosen.values())
        model = self._watching.get(key)
        if model is None:
            model = self._watching[key] = self._reload(inspection.with_outputs(graph, chosen.values()))
        if self._state is not None:
            arrays, named = (), self._state.fed(arrays, named)
        return dict(zip(chosen, model(*arrays, **named), strict=True))

    def _read(self) -> None:
        """Read the graph that was left out. Raises `ModelError` where its file was changed since."""
        if self._whole is not None and self._source is None:
            read = self._whole_model()
            self._source, self._reload, self._edits = read._source, read._reload, read._edits
            self._lowered, self._start, self._lower = read._lowered, read._start, read._lower

    def _whole_model(self) -> Model:
        """Return the model with its graph, which was left out. Raises `ModelError` where its file was changed since."""
        assert self._whole is not None
        with self._lock:
            if self._read_model is None:
                self._read_model = self._whole()
            return self._read_model

    def _check_unedited(self, what: str) -> None:
        """Check that the graph, which further sessions are started from, was not edited.

        Raises `GraphError` where that is another one by now.
        """
        if self._source is not None and self._source.edits != self._edits:
            raise GraphError(
                f"{what}: nodes were inserted into the graph since {self.name} was loaded",
                help="load the graph again: this model runs as it was",
            )

    def _run_bound(self, feed: Mapping[str, Array]) -> list[Array]:
        """Run where `run` has no arrays for the outputs; a third of the time of `run_with_ort_values`."""
        values = {name: transport_dtypes.to_value(array, self._stored[name]) for name, array in feed.items()}
        binding = self.session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            binding.bind_output(name)
        run(self.session._sess.run_with_iobinding, binding._iobinding)  # a fifth of the time of the public one
        binding.synchronize_outputs()
        results = []
        for (name, type_), value in zip(self._outputs.items(), binding.get_outputs(), strict=True):
            assert isinstance(type_, TensorType)
            array = transport_dtypes.from_value(value, type_.dtype.storage)
            array = array.copy() if name in values else array  # such an output is the input's own memory
            results.append(transport_dtypes.unpaired(array, type_))
        return results

    def benchmark(self, /, *arrays: Any, runs: int = 100, **named: Any) -> dict[str, float]:
        """Return the seconds that one call takes over `runs` calls after a first one: `median`, `best` and `worst`.

        The buffers of a model that has some are those of a new state. Raises `FeedError` for `runs` that are no number,
        and what a call raises.
        """
        call = self if self._state is None else self.state()
        return inspection.timed(lambda: call(*arrays, **named), inspection.count_of("benchmark", self.name, runs))

    def profile(self, /, *arrays: Any, runs: int = 10, **named: Any) -> Profile:
        """Return what the time of a call goes into, kernel by kernel, measured over `runs` calls after a first one.

        Starts a second session for it, which is closed again. `print(model.profile(x))` shows a table. Raises what
        `benchmark` does.
        """

        def again(options: Mapping[str, Any]) -> tuple[Model, onnxruntime.InferenceSession]:
            started = self._start(options)
            uses_transport = bool(self._restored)
            model = Model(self.name, self._start, *self._types, started, uses_transport, kept=self._kept)
            return model, model.session

        self._check_unedited("profile")
        return inspection.profiled(again, arrays, named, inspection.count_of("profile", self.name, runs))

    def placement(self) -> Placement:
        """Return which provider runs each operator, and why the first one does not run those that are left to another.

        Starts a second session, which tells where it put them, and closes it again. `print(model.placement())` shows
        the counts, and what is left to the CPU by operator.
        """
        self._read()
        self._check_unedited("placement")
        session, _keep = self._start({inspection.RECORD: "1"})
        return inspection.recorded(session, self._lowered, self.session.get_providers()[0])

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self.name}: a Model runs in the process that loaded it, and is not copied or pickled",
            help="pickle the Graph, or give the path of the file, and load it there",
        )

    def _repr_html_(self) -> str:
        rows = [("input", name, str(type_)) for name, type_ in self._inputs.items()]
        rows += [("output", name, str(type_)) for name, type_ in self._typed_outputs().items()]
        rows += [("kept", k.name, str(k.type)) for k in self._kept]
        return table(("", "name", "type"), rows, self.name)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._typed_outputs().items())
        kept = ", ".join(f"{k.name}: {k.type}" for k in self._kept)
        return escaped(f"<Model {self.name}({inputs}) -> {outputs}{f', keeps {kept}' if kept else ''}>")
