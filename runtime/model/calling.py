"""Calls of a model: by position, by name, with buffers, and bound to arrays that stay."""

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
from graphcore.ir.symbol import Node
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime import inspection
from graphcore.runtime.buffers.runners import Slots
from graphcore.runtime.buffers.state import Buffers, State
from graphcore.runtime.calls.batching import Batching, batching, pool_of
from graphcore.runtime.calls.bound import Bound, bound
from graphcore.runtime.calls.conversion import requested
from graphcore.runtime.calls.failures import Said, UserNodes, failed
from graphcore.runtime.calls.feeds import NoElements
from graphcore.runtime.model.started import StartedModel
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.stopping.limit import Limit, run, seconds_of
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_MOST_EMPTIED = 4
"""Sessions that are kept for arrays of no elements."""


class CalledModel(StartedModel):
    """A model that is called; `Model` adds what is made of many calls, and what looks into it."""

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
        `FeedError` and `ResourceLimitError` for counts that make no sense. See docs/howto/state.md.
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
        `ResourceLimitError` for arrays that there is no memory for. See docs/howto/fast_calls.md.
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


# Calls with arrays of no elements that kernels refuse: nothing is given back for nothing.

_WRONG_SIZE = re.compile(r" got -\d+\s*$")
"""The end of the runtime's message where a size is not the one that `ops.rebind` states."""
_MISTAKES = ("is outside of", "was stated")
"""Messages about feeds that are wrong with no elements as well."""


def is_of_nothing(error: Exception, feed: Mapping[str, Any]) -> bool:
    """Return whether a run may have failed since an array has no elements."""
    if not any(isinstance(array, np.ndarray) and not array.size for array in feed.values()):
        return False
    text = str(error)
    if SIZE_CHECK in text and _WRONG_SIZE.search(text):
        return False
    why = Said.of(text).why
    return not any(mistake in why for mistake in _MISTAKES)


def nothing(outputs: Mapping[str, Type], sizes: Mapping[str, int]) -> list[Array] | None:
    """Return the results of a call whose results have no elements; None where some may have."""
    made = []
    for type_ in outputs.values():
        shape = _shape(type_, sizes)
        if shape is None or 0 not in shape:
            return None
        assert isinstance(type_, TensorType)
        if type_.dtype.is_complex:
            made.append(np.zeros(shape, type_.dtype.numpy))
            continue
        made.append(np.zeros((*shape, *big_integers.carried_axis(type_.dtype)), type_.dtype.storage.numpy))
    return made


def emptied(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph that runs for these sizes of dims, in which no kernel makes what has no elements.

    Attention over no keys gives zeros, as a product of no terms does; what a Reshape gives has the shape of its type,
    since -1 says nothing of a tensor without elements.
    """
    return Rewrite(graph, _Emptying(sizes)).run()


@dataclass(eq=False)
class _Emptying(Policy[Rewrite]):
    sizes: Mapping[str, int]

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        shapes, build = [_shape(s.type, self.sizes) for s in node.outputs], rewrite.new.build
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or bodies(node):
            return None
        if all(0 in shape for shape in known) or _is_attention_of_nothing(node, self.sizes):
            pairs = zip(node.outputs, known, strict=True)
            return [build.constant(np.zeros(n, s.dtype.numpy), s.dtype) for s, n in pairs]
        if node.op_type != "Reshape" or node.domain:
            return None
        target = build.vector(known[0])
        return [build.emit("Reshape", (inputs[0], target), node.outputs[0].type, {"allowzero": 1})]


def _is_attention_of_nothing(node: Node, sizes: Mapping[str, int]) -> bool:
    """Return whether a node is attention without a past, of no queries or no keys."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    shapes = [_shape(s.type, sizes) for s in node.inputs[:2] if s is not None]
    return any(shape is not None and 0 in shape for shape in shapes)


def _shape(type_: Type, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape of a type as numbers; None where only the run knows it."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return None
    if not all(not dim.is_dynamic and dim.parameters <= sizes.keys() for dim in type_.shape):
        return None
    try:
        shape = tuple(dim.evaluate(sizes) for dim in type_.shape)
    except ZeroDivisionError:
        return None
    return shape if all(size >= 0 for size in shape) else None
