"""Calls of a model: by position, by name, with buffers, and bound to fixed arrays."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays import big_integers
from graphcore.arrays.casting import Array
from graphcore.build.shapes import SIZE_CHECK
from graphcore.errors import (
    GraphcoreError,
    ModelError,
    RunCancelledError,
    RunError,
    RunTimeoutError,
)
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime import inspection
from graphcore.runtime.buffers.runners import Slots
from graphcore.runtime.buffers.state import Buffers, State
from graphcore.runtime.calls.batching import Batching, batching, pool_of
from graphcore.runtime.calls.bound import Bound, bound
from graphcore.runtime.calls.conversion import requested
from graphcore.runtime.calls.failures import RuntimeMessage, UserNodes, run_error
from graphcore.runtime.calls.feeds import ForOtherModel, Overrides
from graphcore.runtime.calls.results import NamedResults
from graphcore.runtime.model.started import StartedModel
from graphcore.runtime.stopping.limit import Limit, run, seconds_of
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_MAX_EMPTY_MODELS = 4
"""Maximum number of cached sessions for empty arrays."""


class CalledModel(StartedModel):
    """A model that can be called; `Model` adds batches of calls, and inspection."""

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
        self._stateful("state")
        return State(present(self._program), buffers)

    def slots(self, count: int) -> Slots:
        """Return buffers for `count` streams in one array each: `slots.run(2, 5, x)` runs only rows 2 to 5.

        Args:
            count: The number of streams. See docs/howto/state.md.

        Raises:
            ModelError: If the model has no buffers, or they do not all begin with the same named dim.
            FeedError: For a count below 1.
            ResourceLimitError: If there is not enough memory.
        """
        self._stateful("slots")
        return Slots(present(self._program), count)

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
        with self._lock:
            if (
                self._threads is None or self._threads_of != os.getpid()
            ):  # a forked process has the pool without its threads
                self._threads = pool_of(self.name, in_order=self._state is not None)
                self._threads_of = os.getpid()
            return self._threads

    def _batching(self, dim: str | Mapping[str, int] | None = None) -> Batching:
        if self._state is not None:
            raise ModelError(f"{self.name} has buffers, which are one for all rows", help="call the model")
        cached = self._batches if dim is None else None
        return cached or batching(self.name, self._inputs, self._typed_outputs(), dim)


# Calls with empty arrays that kernels refuse: empty inputs give empty outputs.

_WRONG_SIZE = re.compile(r" got -\d+\s*$")
"""The end of the runtime's message if a size differs from the one that `ops.rebind` states."""
_MISTAKES = ("is outside of", "was stated")
"""Messages about mistakes that do not depend on empty arrays."""


def is_about_empty(error: Exception, feed: Mapping[str, Any]) -> bool:
    """Return True if a run may have failed because an array is empty."""
    if not any(isinstance(array, np.ndarray) and not array.size for array in feed.values()):
        return False
    text = str(error)
    if SIZE_CHECK in text and _WRONG_SIZE.search(text):
        return False
    why = RuntimeMessage.of(text).why
    return not any(mistake in why for mistake in _MISTAKES)


def zero_results(outputs: Mapping[str, Type], sizes: Mapping[str, int]) -> list[Array] | None:
    """Return the results of a call if all of them are empty; None if some may have elements."""
    results = []
    for type_ in outputs.values():
        shape = _shape(type_, sizes)
        if shape is None or 0 not in shape:
            return None
        assert isinstance(type_, TensorType)
        if type_.dtype.is_complex:
            results.append(np.zeros(shape, type_.dtype.numpy))
            continue
        results.append(np.zeros((*shape, *big_integers.storage_axis(type_.dtype)), type_.dtype.storage.numpy))
    return results


def without_empty(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph for these sizes of dims, in which no kernel computes an empty tensor.

    Attention over no keys gives zeros, as a product without terms does. A Reshape gets the shape of its type, since -1
    is undefined for an empty tensor.
    """
    return Rewrite(graph, _RemoveEmpty(sizes)).run()


@dataclass(eq=False)
class _RemoveEmpty(Policy[Rewrite]):
    sizes: Mapping[str, int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        shapes, build = [_shape(s.type, self.sizes) for s in node.outputs], rewrite.new.build
        known_shapes = [shape for shape in shapes if shape is not None]
        if len(known_shapes) < len(shapes) or bodies(node):
            return None
        if all(0 in shape for shape in known_shapes) or _is_empty_attention(node, self.sizes):
            pairs = zip(node.outputs, known_shapes, strict=True)
            return [build.constant(np.zeros(n, s.dtype.numpy), s.dtype) for s, n in pairs]
        if node.op_type != "Reshape" or node.domain:
            return None
        target = build.vector(known_shapes[0])
        return [build.emit("Reshape", (inputs[0], target), node.outputs[0].type, {"allowzero": 1})]


def _is_empty_attention(node: Node, sizes: Mapping[str, int]) -> bool:
    """Return True if a node is attention without a past and with no queries or no keys."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    shapes = [_shape(s.type, sizes) for s in node.inputs[:2] if s is not None]
    return any(shape is not None and 0 in shape for shape in shapes)


def _shape(type_: Type, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type as numbers; None if it is only known at run time."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    if not all(dim.depends_on(sizes) for dim in type_.shape):
        return None
    try:
        shape = tuple(dim.evaluate(sizes) for dim in type_.shape)
    except ZeroDivisionError:
        return None
    return shape if all(size >= 0 for size in shape) else None
