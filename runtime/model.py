"""A loaded model: arrays in, arrays out; lists of them for sequences, and None for an absent optional."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import onnxruntime

from graphcore import bigints
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.graph import Graph
from graphcore.numerics import Array
from graphcore.runtime import carriers
from graphcore.runtime.debugging import watched, with_outputs
from graphcore.runtime.feeds import Feeds, summary
from graphcore.runtime.placement import RECORD, Placement, recorded
from graphcore.runtime.profiling import Profile, profiled
from graphcore.types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.session import InferenceSession

Start: TypeAlias = Callable[[Mapping[str, Any]], tuple[onnxruntime.InferenceSession, object]]
"""Starts an onnxruntime session with more session options; the other result must live as long as the session."""


class Model:
    """A graph that an onnxruntime session runs: `model(x, y)` or `model(x=..., y=...)`. Made by a session.

    Calls from several threads at once are safe.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        started: tuple[onnxruntime.InferenceSession, object] | None = None,
        is_carried: bool = False,
        lowered: Graph | None = None,
        source: tuple[Graph, InferenceSession] | None = None,
    ) -> None:
        carriers.check(name, {**inputs, **outputs})
        if carriers.needed(inputs, outputs) and not is_carried:
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
        self._watching: dict[tuple[int, ...], Model] = {}
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self._output_names = [output.name for output in self.session.get_outputs()]
        self._feeds = Feeds(name, self._inputs)
        self._stored = {n: t.dtype.storage for n, t in inputs.items() if isinstance(t, TensorType)}
        self._fed = {n: t.dtype.storage for n, t in inputs.items() if carriers.is_unusual(t)}
        unusual = [(i, t.dtype.storage) for i, t in enumerate(outputs.values()) if carriers.is_unusual(t)]
        self._restored = unusual if is_carried else []
        self._is_bound = bool(unusual) and not is_carried
        typed = [(i, t.dtype) for i, t in enumerate(outputs.values()) if isinstance(t, TensorType)]
        self._wide = [(i, dtype) for i, dtype in typed if bigints.is_wide(dtype)]
        # Measured: what `run` itself does in Python, which is to check names again, is a fifth of a small call.
        self._run = getattr(self.session, "_sess", self.session).run

    @property
    def inputs(self) -> dict[str, Type]:
        """The inputs' types by name, in order."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Type]:
        """The outputs' types by name, in order."""
        return dict(self._outputs)

    def __call__(self, /, *arrays: Any, **named: Any) -> list[Any]:
        """Runs the model on one value for each input, given by position or by name.

        Arrays have the inputs' dtypes (ml_dtypes' for bfloat16, float8 and int4), ranks and dims; other byte orders and
        strides are made right. Integers of more than 64 bits are fed as arrays of Python ints, or as uint32 digits
        along one more axis, the lowest first; they come out as digits. A sequence is a list or tuple of arrays; an
        optional is None where it is absent, and may then be left out. Returns the outputs, in order, of the same kinds;
        types that graphcore only hands on come as onnxruntime gives them. Raises `FeedError` for anything else, and
        `RunError` where the runtime fails.
        """
        feed = self._feeds.take(arrays, named)
        try:
            if self._is_bound:
                return self._run_bound(feed)
            if self._fed:
                given = {n: carriers.fed(a, self._fed[n]) if n in self._fed else a for n, a in feed.items()}
                results = self._run(self._output_names, given, None)
            else:
                results = self._run(self._output_names, feed, None)
        except Exception as error:
            raise RunError(
                f"{self.name}: onnxruntime failed: {error}",
                operands={name: summary(value) for name, value in feed.items()},
                help="see the message of the runtime; sizes that only the run knows may not fit together",
            ) from error
        for position, dtype in self._restored:
            results[position] = carriers.restored(results[position], dtype)
        return results  # type: ignore[no-any-return]

    def execute(self, /, *arrays: Any, wide: Any = "limbs", **named: Any) -> list[Any]:
        """Like calling the model; wide: what outputs of more than 64 bits come as.

        "limbs" gives uint32 digits along one more axis, the last one, the lowest first; "object" gives arrays of Python
        ints. An input that is called `wide` is given by position, or in a call of the model itself. Raises what a call
        does, and `FeedError` for any other `wide`.
        """
        if not isinstance(wide, str) or wide not in ("limbs", "object"):
            raise FeedError(
                f"{self.name}: wide={wide!r:.80} is no form of integers of more than 64 bits",
                help="give wide='limbs' for uint32 digits, or wide='object' for Python integers",
            )
        results = self(*arrays, **named)
        if wide == "object":
            for position, dtype in self._wide:
                results[position] = bigints.from_digits(results[position], dtype)
        return results

    def debug(self, /, *arrays: Any, watch: str | Sequence[str], **named: Any) -> dict[str, Any]:
        """Runs the model and returns values from inside of it, by name, in place of its outputs.

        watch: names of values as `str(graph)` shows them, or behind the path of their layer, with `*` and `?` as in the
        shell: `watch="encoder/0/*"`, or a list of those. Another session is started for each choice, and kept. An input
        that is called `watch` is given by position. Raises `GraphError` for a name that nothing has, `ModelError` for a
        model that was compiled beforehand, and what a call raises.
        """
        if self._source is None:
            raise ModelError(
                f"debug: {self.name} is in onnxruntime's own format, which has no graph to look into",
                help="load the ONNX model that it was made of",
            )
        graph, session = self._source
        symbols = watched(graph, [watch] if isinstance(watch, str) else watch)
        key = tuple(s.id for s in symbols)
        model = self._watching.get(key)
        if model is None:
            model = self._watching[key] = session.load(with_outputs(graph, symbols))
        return dict(zip([s.name for s in symbols], model(*arrays, **named), strict=True))

    def _run_bound(self, feed: Mapping[str, Array]) -> list[Array]:
        """Runs where `run` has no arrays for the outputs; a third of the time of `run_with_ort_values`."""
        values = {name: carriers.fed(array, self._stored[name]) for name, array in feed.items()}
        binding = self.session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        results = []
        for (name, type_), value in zip(self._outputs.items(), binding.get_outputs(), strict=True):
            assert isinstance(type_, TensorType)
            array = carriers.taken(value, type_.dtype.storage)
            results.append(array.copy() if name in values else array)  # such an output is the input's own memory
        return results

    def benchmark(self, /, *arrays: Any, runs: int = 100, **named: Any) -> dict[str, float]:
        """Seconds that one call takes over `runs` calls after a first one: `median`, `best` and `worst`."""
        self(*arrays, **named)
        taken = []
        for _ in range(max(1, runs)):
            started = time.perf_counter()
            self(*arrays, **named)
            taken.append(time.perf_counter() - started)
        return {"median": statistics.median(taken), "best": min(taken), "worst": max(taken)}

    def profile(self, /, *arrays: Any, runs: int = 10, **named: Any) -> Profile:
        """What the time of a call goes into, kernel by kernel, measured over `runs` calls after a first one.

        Starts a second session for it, which is closed again. `print(model.profile(x))` shows a table.
        """

        def again(options: Mapping[str, Any]) -> Model:
            started = self._start(options)
            return Model(self.name, self._start, self._inputs, self._outputs, started, bool(self._restored))

        return profiled(again, arrays, named, max(1, runs))

    def placement(self) -> Placement:
        """Which provider runs each operator, and why the first one does not run those that are left to another.

        Starts a second session, which tells where it put them, and closes it again. `print(model.placement())` shows
        the counts, and what is left to the CPU by operator.
        """
        session, _keep = self._start({RECORD: "1"})
        return recorded(session, self._lowered, self.session.get_providers()[0])

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._outputs.items())
        return f"<Model {self.name}({inputs}) -> {outputs}>"
