"""A loaded model: arrays in, arrays out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import onnxruntime

from graphcore.dtypes import DType
from graphcore.errors import ModelError, RunError
from graphcore.numerics import Array
from graphcore.runtime.feeds import Feeds
from graphcore.runtime.profiling import Profile, profiled
from graphcore.runtime.values import PLAIN, from_ort, to_ort
from graphcore.types import TensorType

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
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        started: tuple[onnxruntime.InferenceSession, object] | None = None,
        any_rank: Collection[str] = (),
    ) -> None:
        self.name = name
        self.session, self._keep = started or start({})
        """The onnxruntime session. It refers to the weights' memory and does not own it."""
        self._start = start
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self._output_names = list(outputs)
        self._feeds = Feeds(name, self._inputs, any_rank)
        self._carried = {n: t.dtype.storage for n, t in self._inputs.items() if t.dtype.storage not in PLAIN}
        self._is_bound = any(t.dtype.storage not in PLAIN for t in self._outputs.values())
        if self._is_bound and any(t.dtype is DType.string for t in self._inputs.values()):
            raise ModelError(
                f"load: {name}: onnxruntime gives no bfloat16, float8 or 4-bit outputs where it is fed strings",
                operands={n: str(t) for n, t in (*self._inputs.items(), *self._outputs.items())},
                help="cast those outputs to float32 or int8, or keep the strings in a graph of their own",
            )
        # Measured: what `run` itself does in Python, which is to check names again, is a fifth of a small call.
        self._run = getattr(self.session, "_sess", self.session).run

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The inputs' types by name, in order."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """The outputs' types by name, in order."""
        return dict(self._outputs)

    def __call__(self, /, *arrays: Any, **named: Any) -> list[Array]:
        """Runs the model on one array for each input, given by position or by name.

        Arrays have the inputs' dtypes (ml_dtypes' for bfloat16, float8 and int4), ranks and dims; other byte orders and
        strides are made right. Returns the outputs, in order. Raises `FeedError` for anything else, and `RunError`
        where the runtime fails.
        """
        feed = self._feeds.take(arrays, named)
        try:
            if self._is_bound:
                return self._run_bound(feed)
            if self._carried:
                values = {n: to_ort(a, self._carried[n]) if n in self._carried else a for n, a in feed.items()}
                return self._run(self._output_names, values, None)  # type: ignore[no-any-return]
            return self._run(self._output_names, feed, None)  # type: ignore[no-any-return]
        except Exception as error:
            raise RunError(
                f"{self.name}: onnxruntime failed: {error}",
                operands={name: f"{self._inputs[name].dtype}{list(a.shape)}" for name, a in feed.items()},
                help="see the message of the runtime; sizes that only the run knows may not fit together",
            ) from error

    execute = __call__

    def _run_bound(self, feed: Mapping[str, Array]) -> list[Array]:
        """Runs where `run` has no arrays for the outputs; a third of the time of `run_with_ort_values`."""
        values = {name: to_ort(array, self._inputs[name].dtype.storage) for name, array in feed.items()}
        binding = self.session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        results = []
        for (name, type_), value in zip(self._outputs.items(), binding.get_outputs(), strict=True):
            array = from_ort(value, type_.dtype.storage)
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
            return Model(self.name, self._start, self._inputs, self._outputs, started, self._feeds._any_rank)

        return profiled(again, arrays, named, max(1, runs))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._outputs.items())
        return f"<Model {self.name}({inputs}) -> {outputs}>"
