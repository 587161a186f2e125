"""Models: many calls of one, side by side or one after the other, and what looks into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.errors import (
    FeedError,
    ModelError,
    RunError,
)
from graphcore.runtime import inspection
from graphcore.runtime.calls.batching import in_pieces, rows_of
from graphcore.runtime.calls.feeds import NoElements
from graphcore.runtime.calls.rows import WINDOW, Mapped, arguments
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
        return inspection.recorded(session, self._lowered, self.session.get_providers()[0], runtime())
