"""Models: parallel and batched calls, debugging, profiles and placement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError, RunError
from graphcore.runtime import inspection
from graphcore.runtime.calls.batching import in_pieces, rows_of
from graphcore.runtime.calls.conversion import check_wide
from graphcore.runtime.calls.feeds import ForOtherModel
from graphcore.runtime.calls.results import NamedResults
from graphcore.runtime.calls.rows import WINDOW, MapRun, check_arguments
from graphcore.runtime.model.calling import CalledModel
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption

if TYPE_CHECKING:
    from concurrent.futures import Future

    from graphcore.runtime.inspection import Placement, Profile


class Model(CalledModel):
    """A graph that an onnxruntime session runs: `model(x, y)`, `model(x=..., y=...)` or `model({"x": ...})`.

    Made by a session. `model.run(["y"], {"x": ...})` is as in onnxruntime.

    Calls from several threads at once are safe.
    """

    def run_async(self, /, *arrays: Any, timeout: Any = None, **named: Any) -> Future[NamedResults]:
        """Start a call in a thread of the model and return its future: `model.run_async(x).result()`.

        Do not change the arrays until it is done. The future has the error of a failed call. As many calls run in
        parallel as there are processors; calls of a model with buffers run one after the other, in order. The same
        threads run callbacks of the future, which must not wait for other calls. `future.cancel()` removes a waiting
        call, and stops a running one between two kernels. When the program ends, calls are stopped after a second.

        Args:
            arrays: Values of the inputs, as in a call.
            timeout: Seconds from now on, after which the call is stopped or not started, and the future has a
                `RunTimeoutError`.
            named: Values of inputs by name, as in a call.

        Raises:
            RunError: If the program is ending.
            FeedError: For an invalid timeout.
        """
        # Measured: importing it with this module takes 5 ms of each start.
        from graphcore.runtime.stopping.futures import CallFuture, submit

        seconds = None
        if timeout is not None and "timeout" in self._inputs:
            named["timeout"] = timeout
        elif timeout is not None:
            seconds = seconds_of(self.name, timeout)
        try:
            return submit(self._pool(), self, CallFuture(self.name, seconds), arrays, named)
        except RuntimeError as error:
            raise RunError(f"{self.name}: run_async: {error}", help="call the model, which needs no thread") from None

    def execute(
        self, /, *arrays: Any, wide: Any = "limbs", micro_batch: Any = None, timeout: Any = None, **named: Any
    ) -> NamedResults:
        """Run as calling the model does, with more options.

        Inputs called `wide`, `micro_batch` or `timeout` are given by position, in a dict, or in a call of the model.

        Args:
            arrays: Values of the inputs, as in a call.
            wide: The form of integers of more than 64 bits: "limbs" for uint32 digits along an additional last axis,
                the lowest first; "object" for arrays of Python ints.
            micro_batch: Run the batch in pieces of this many rows, which is faster if intermediate values then fit the
                processor's caches: in parallel in a session of one thread (`InferenceSession(intra_op_num_threads=1)`),
                one after the other otherwise. The batch is the first dim of the first input; rows must not depend on
                each other.
            timeout: Seconds that all of it may take.
            named: Values of inputs by name, as in a call.

        Raises:
            FeedError: For another `wide`, and for a `micro_batch` below 1. Other errors are those of a call.
            ModelError: If an input or output does not have the batch dim.
        """
        if timeout is not None:
            with Limit(self.name, seconds_of(self.name, timeout)):
                return self.execute(*arrays, wide=wide, micro_batch=micro_batch, **named)
        check_wide(self.name, wide)
        if micro_batch is None:
            results = self(*arrays, **named)
        else:
            rows = rows_of(self.name, micro_batch)
            try:
                feed = self._feeds.take(arrays, named)
            except ForOtherModel as reason:
                return self._model_for(reason).execute(*arrays, wide=wide, micro_batch=micro_batch, **named)
            call = partial(self, **{n: feed.pop(n) for n in self._feeds.optional if n in feed})
            is_single = self.session.get_session_options().intra_op_num_threads == 1
            batches = self._batching()
            if batches.rows(feed) > rows:
                batches = self._batches = batches.settled(call, feed)
            results = self._results(in_pieces(call, batches, rows, feed, self._pool if is_single else None))
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
        """Run the items of an iterable in batches; return an iterator of the outputs of each item, in order.

        Reading starts with the first result. An error of an item is raised after the results of the items before it;
        errors of this library name the item, counted from 0. Rows must not depend on each other or on the padding.

        Args:
            items: Rows: arrays, tuples of arrays, or dicts of arrays by input, each without the batch axis.
            batch: Rows of a batch; by default measured among 1, 4, 8, 16, 32 and 64.
            pad: A value, or values by input, that fills up rows that are shorter along a named dim; outputs are cut
                along the same dims. None runs rows of different shapes in different batches.
            padding: The maximum part of a batch that is padding.
            dim: The batch dim, as for a `Batcher`.
            window: Number of items to read ahead and group by length, at most 64 MiB of them. If all rows have one
                shape, only a batch is read ahead.
            timeout: Seconds that the run of a batch may take.
            progress: True shows a line on stderr; a function is called with the number of finished items, and the
                total or None.

        Raises:
            FeedError: For invalid arguments.
            ModelError: If an input or output does not have the batch dim.
            RunTimeoutError: By the iterator, for an item of a batch that takes too long.
        """
        arguments = check_arguments(self.name, items, batch, pad, padding, window, timeout)
        mapped = MapRun(self, self._batching(dim), self._inputs, self._outputs, self._pace, arguments)
        return mapped.results(items, progress)

    def debug(self, /, *arrays: Any, watch: str | Sequence[str] | None = None, **named: Any) -> dict[str, Any]:
        """Run the model and return intermediate values by name, instead of its outputs.

        Starts and caches another session for each choice of values. Reads buffers, and does not change them. Pass an
        input called `watch` by position.

        Args:
            arrays: Values of the inputs, as in a call.
            watch: Names of values as `str(graph)` shows them, optionally after the path of their layer, with the
                wildcards `*` and `?`: `watch="encoder/0/*"`, or a list of names. The default is the values that
                `x.print("label")` marked, by label.
            named: Values of inputs by name, as in a call.

        Raises:
            FeedError: If `watch` has no names. Other errors are those of a call.
            GraphError: For a name without a value, if no value is marked, or if nodes were inserted into the graph.
            ModelError: For a model in onnxruntime's own format.
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

    def benchmark(self, /, *arrays: Any, runs: int = 100, **named: Any) -> dict[str, float]:
        """Return the seconds of one call over `runs` calls after a first one: `median`, `best` and `worst`.

        Buffers are those of a new state.

        Raises:
            FeedError: For an invalid number of runs, and errors of a call.
        """
        call = self if self._state is None else self.state()
        return inspection.timed(lambda: call(*arrays, **named), inspection.count_of("benchmark", self.name, runs))

    def profile(self, /, *arrays: Any, runs: int = 10, **named: Any) -> Profile:
        """Return the time of a call by kernel, measured over `runs` calls after a first one.

        Starts a second session, and closes it. `print(model.profile(x))` shows a table. Raises as `benchmark`.
        """

        def again(options: Mapping[str, Any]) -> tuple[Model, onnxruntime.InferenceSession]:
            started = self._start(options)
            model = Model(
                self.name,
                self._start,
                *self._types,
                started,
                self._uses_transport,
                buffers=self._model_buffers,
                defaults=self._input_defaults,
            )
            return model, model.session

        self._check_unedited("profile")
        self._grow()
        if self._whole is not None:
            return self._whole.profile(*arrays, runs=runs, **named)
        return inspection.profiled(again, arrays, named, inspection.count_of("profile", self.name, runs))

    def placement(self) -> Placement:
        """Return the provider of each operator, and why the first provider does not run an operator.

        Starts a second session, which reports the placement, and closes it. `print(model.placement())` shows counts,
        and the operators on the CPU.
        """
        self._grow()
        if self._whole is not None:
            return self._whole.placement()
        self._read()
        self._check_unedited("placement")
        session, _keep = self._start({inspection.RECORD: "1"})
        return inspection.recorded(session, self._lowered, self.session.get_providers()[0], runtime())
