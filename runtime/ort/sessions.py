"""A lowered graph's session, with the weights given to onnxruntime where they lie."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import onnxruntime

from graphcore._version import FOLDER
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant
from graphcore.onnx.opset import LIMIT
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.openvino.halves import HALVES
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.values import to_ort
from graphcore.types.dtypes import DType

Create: TypeAlias = Callable[[bytes, onnxruntime.SessionOptions], onnxruntime.InferenceSession]


class Cache(Protocol):
    """Graphs as onnxruntime has optimised them, by cache key. used: the key of what was found or saved last."""

    used: str | None

    def key(self, content: bytes, weights: Mapping[str, Array]) -> str: ...
    def find(self, key: str) -> bytes | None: ...
    def save(self, key: str, content: bytes) -> None: ...


QUADRATIC = ("ConstantSharing",)
"""Measured: it compares initializers pairwise, three quarters of the start of a session with 10,000 of them."""

MANY_CONSTANTS = 1000
"""The number of constants from which on the optimisers of `QUADRATIC` are left out."""

_BY_REFERENCE = 1024
"""Bytes from which on an initializer stays where it is."""

_WIDENED = 1 << 22
"""Bytes of narrow floats from which on a graph is in no cache, which would have them in float32. Measured, 100 million
weights: a second start takes 1.5 times as long as one without a cache, and 1.7 times the memory."""

_EMPTY = "py.typed"
"""A file of the package that has nothing in it. Making one takes a millisecond, and any time where the disk is busy."""

_FILES_FOLDER = "session.model_external_initializers_file_folder_path"

# Operators that read a weight when they run and not while the session is optimised.
_READ_LATE = frozenset({"MatMul", "Gemm", "Gather", "LayerNormalization", "RMSNormalization", "Attention"})


def start(
    graph: Graph, options: Callable[[], onnxruntime.SessionOptions], create: Create, cache: Cache | None = None
) -> tuple[onnxruntime.InferenceSession, object]:
    """Return a session of a lowered graph, and what must live as long as it does.

    options: makes new session options. create: makes a session of a model's bytes. cache: where the optimised graph is
    looked for, and kept. Large weights are declared to lie in a file that is empty and are replaced by OrtValues. The
    file is empty on purpose: an optimiser that reads such a weight while the session is made fails, where a sparse file
    of the right size would give it zeros. Those that optimisers are known to read are copied, and where others turn out
    to be read, all are. Raises `ModelError`.
    """
    large: dict[str, Array] = {}
    own = {s.name for s in graph.symbols if isinstance(s.producer, Constant)}

    def place(name: str, array: Array) -> tuple[str, int] | None:
        if name not in own or not _is_large(array):  # onnxruntime replaces none in bodies
            return None
        large[name] = array
        return _EMPTY, 0

    content = join(encode(graph, place, ir=runtime().ir))
    late = _read_late(graph)
    shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name in late}
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name not in late}
    if cache is not None:
        made = _of_cache(cache, content, options, create, shared, {name: large[name] for name in copied})
        if made is not None:
            return made, (large, shared)
    try:
        return _session(content, options(), create, shared, copied), (large, shared)
    except Exception as error:
        if not shared:
            raise refused(graph.name, error) from error
    try:
        return _session(content, options(), create, {}, shared | copied), None
    except Exception as error:
        raise refused(graph.name, error) from error


def refused(model: str, error: Exception) -> ModelError:
    """Return the error for a model that onnxruntime does not take."""
    reason = str(error).strip() or type(error).__name__
    return ModelError(f"load: onnxruntime does not take {model}: {reason}", help="check the model with onnx.checker")


def _of_cache(
    cache: Cache,
    content: bytes,
    options: Callable[[], onnxruntime.SessionOptions],
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    read: Mapping[str, Array],
) -> onnxruntime.InferenceSession | None:
    """Return a session of what a cache has for a model, which it has afterwards; None where it cannot have it.

    shared: the weights that are in no entry. read: the others, which the optimised graph has in it.
    """
    if sum(array.nbytes for array in read.values()) > LIMIT // 2:  # it would be larger than protobuf allows
        return None
    if sum(array.nbytes for array in read.values() if DType.of(array.dtype) in HALVES) > _WIDENED:
        return None
    key = cache.key(content, read)
    found = cache.find(key)
    if found is not None:
        with contextlib.suppress(Exception):  # it is made anew, and so is an error that has another reason
            made = start_optimised(found, options(), create, shared)
            cache.used = key
            return made
    kept: list[bytes] = []
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in read.items()}
    with contextlib.suppress(Exception):
        made = _session(content, options(), create, shared, copied, kept)
        cache.save(key, kept[0])
        cache.used = key
        return made
    return None


def start_optimised(
    optimised: bytes,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
) -> onnxruntime.InferenceSession:
    """Return a session of a graph that was optimised before, with the weights that are not in it."""
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _session(optimised, options, create, shared, {})


def _session(
    content: bytes,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    copied: Mapping[str, onnxruntime.OrtValue],
    kept: list[bytes] | None = None,
) -> onnxruntime.InferenceSession:
    """Return a session.

    kept: what the optimised graph is added to, in onnxruntime's bytes, without the weights that are shared.
    """
    for name, value in shared.items():
        options.add_initializer(name, value)
    if copied:
        options.add_external_initializers(list(copied), list(copied.values()))
    if kept is None and _is_empty(os.path.join(FOLDER, _EMPTY)):
        options.add_session_config_entry(_FILES_FOLDER, FOLDER)
        return create(content, options)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
        with open(os.path.join(folder, _EMPTY), "wb"):
            pass
        options.add_session_config_entry(_FILES_FOLDER, folder)
        if kept is None:
            return create(content, options)
        options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
        made = create(content, options)
        with open(options.optimized_model_filepath, "rb") as file:
            kept.append(file.read())
        return made


def _is_empty(path: str) -> bool:
    """Return whether a file is there and empty: it is not there where the package is read from an archive."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def _is_large(array: Array) -> bool:
    """Return whether a weight is passed by reference.

    Elements of less than a byte are packed in onnxruntime, and strings are no plain memory.
    """
    return array.nbytes >= _BY_REFERENCE and array.dtype != object and DType.of(array.dtype).bits not in (2, 4)


def _read_late(graph: Graph) -> frozenset[str]:
    """Return the constants that only kernels read: operands of operators that wait for an operand of the run."""
    constant = {s.id for s in graph.symbols if isinstance(s.producer, Constant)}
    late: dict[int, bool] = {}
    for node in graph.nodes:
        inputs = [s for s in node.inputs if s is not None]
        folded = all(s.id in constant for s in inputs)
        if folded:
            constant.update(s.id for s in node.outputs)
        for symbol in inputs:
            if isinstance(symbol.producer, Constant):
                waits = not folded and node.op_type in _READ_LATE
                late[symbol.id] = late.get(symbol.id, True) and waits
    outputs = {s.id for s in graph.outputs}
    return frozenset(graph.symbols[i].name for i, waits in late.items() if waits and i not in outputs)
