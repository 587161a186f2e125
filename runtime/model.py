"""A loaded model: arrays in, arrays out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from graphcore.errors import RunError
from graphcore.runtime.feeds import Feeds
from graphcore.runtime.values import PLAIN, from_ort, to_ort
from graphcore.types import TensorType

Array = np.ndarray[Any, Any]


class Model:
    """A graph that an onnxruntime session runs: `model(x, y)` or `model(x=..., y=...)`. Made by a session.

    Calls from several threads at once are safe.
    """

    def __init__(
        self,
        name: str,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        keep: tuple[Any, ...] = (),
    ) -> None:
        self.name = name
        self.session = session
        """The onnxruntime session."""
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self._feeds = Feeds(name, self._inputs)
        self._output_names = list(outputs)
        self._keep = keep  # onnxruntime refers to the weights' memory and does not own it
        types = (*self._inputs.values(), *self._outputs.values())
        self._is_plain = all(t.dtype.storage in PLAIN for t in types)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The inputs' types by name, in order."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """The outputs' types by name, in order."""
        return dict(self._outputs)

    def __call__(self, *arrays: Any, **named: Any) -> list[Array]:
        """Runs the model on one array for each input, given by position or by name.

        Arrays have the inputs' dtypes (ml_dtypes' for bfloat16, float8 and int4), ranks and dims; other byte orders and
        strides are made right. Returns the outputs, in order. Raises `FeedError` for anything else, and `RunError`
        where the runtime fails.
        """
        feeds = self._feeds
        if not named:
            feed = feeds.quick(arrays)
        elif not arrays and named.keys() == feeds.types.keys():
            feed = feeds.quick(tuple([named[name] for name in feeds.names]))
        else:
            feed = None
        if feed is None:
            feed = feeds.named(arrays, named)
        try:
            if self._is_plain:
                return self.session.run(self._output_names, feed)  # type: ignore[no-any-return]
            return self._run_values(feed)
        except Exception as error:
            raise RunError(
                f"{self.name}: onnxruntime failed: {error}",
                operands={name: f"{self._inputs[name].dtype}{list(a.shape)}" for name, a in feed.items()},
                help="see the message of the runtime; sizes that only the run knows may not fit together",
            ) from error

    execute = __call__

    def _run_values(self, feed: Mapping[str, Array]) -> list[Array]:
        values = {name: to_ort(array, self._inputs[name].dtype.storage) for name, array in feed.items()}
        results = self.session.run_with_ort_values(self._output_names, values)
        return [from_ort(v, t.dtype.storage) for v, t in zip(results, self._outputs.values(), strict=True)]

    def benchmark(self, *arrays: Any, runs: int = 100, **named: Any) -> dict[str, float]:
        """Seconds that one call takes over `runs` calls after a first one: `median`, `best` and `worst`."""
        self(*arrays, **named)
        taken = []
        for _ in range(max(1, runs)):
            started = time.perf_counter()
            self(*arrays, **named)
            taken.append(time.perf_counter() - started)
        return {"median": statistics.median(taken), "best": min(taken), "worst": max(taken)}

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {type_}" for name, type_ in self._inputs.items())
        outputs = ", ".join(f"{name}: {type_}" for name, type_ in self._outputs.items())
        return f"<Model {self.name}({inputs}) -> {outputs}>"
