"""Start the session of a lowered graph, and pass its weights to onnxruntime without a copy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import onnxruntime

from graphcore._version import FOLDER
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol, root_of, source_of
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.onnx.notes import LIMIT
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.targets.compute_dtypes import HALVES
from graphcore.runtime.lowering.targets.releases import ReleaseRange
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.transport_dtypes import to_ort
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.ort.optimised_cache import CachedGraph, CacheFolder

Create: TypeAlias = Callable[[bytes, onnxruntime.SessionOptions], onnxruntime.InferenceSession]


def quadratic(constants: int, different: Callable[[], int]) -> tuple[str, ...]:
    """Return the optimisers to disable for a session with that many constants, because they take too long.

    different: counts the different values of the constants. Each of them is compared with all constants.
    """
    if constants < MANY_CONSTANTS or constants * different() < MANY_CONSTANTS**2:
        return ()
    return tuple(name for name, seen in QUADRATIC.items() if seen.includes(runtime().version))


def different(constants: Iterable[Symbol]) -> int:
    """Return the number of different values of constants. Each large constant counts as a different value."""
    arrays = [constant_array(s, weights=True) for s in constants]
    small = {(a.dtype, a.shape, a.tobytes()) for a in arrays if a is not None and a.nbytes <= _MAX_COMPARED_BYTES}
    return len(small) + sum(a is None or a.nbytes > _MAX_COMPARED_BYTES for a in arrays)


QUADRATIC = {"ConstantSharing": ReleaseRange(last="1.31.1")}
"""Optimisers that compare initializers pairwise, with the releases that do. They take three quarters of the start of a
session with 10,000 different numbers. Without them, equal nodes on equal constants are computed twice: Longformer, with
111 different constants among 4,608, takes 1.06 times as long."""

MANY_CONSTANTS = 1000
"""The optimisers of `QUADRATIC` are disabled from this number of different constants on."""

_MAX_COMPARED_BYTES = 64
"""Constants of up to this many bytes are compared."""

_MIN_REFERENCED_BYTES = 1024
"""Initializers of at least this many bytes are passed by reference."""

_MAX_WIDENED_BYTES = 1 << 22
"""Graphs with more bytes of narrow floats are not cached, because onnxruntime would write these in float32. Measured
with 100 million weights: a second start takes 1.5 times as long as one without a cache, and 1.7 times the memory."""

_MIN_SEPARATE_BYTES = 1 << 18
"""Entries with at least this many bytes of weights have them in a file of their own. Measured: a file of 3 MB starts in
0.34 instead of 0.47 of the time without a cache, one of 21 MB in 0.37 instead of 0.55; below, a second file costs
more."""

_MAX_STORED_BYTES = 4 << 30
"""Entries store weights of up to this many bytes."""

_EMPTY = "py.typed"
"""An empty file of the package. Creating one takes a millisecond, and much longer if the disk is busy."""

_FILES_FOLDER = "session.model_external_initializers_file_folder_path"

# Operators that read a weight when they run and not while the session is optimised.
_READ_LATE = frozenset(
    {("", name) for name in ("MatMul", "Gemm", "Gather", "LayerNormalization", "RMSNormalization", "Attention")}
    | {("com.microsoft", name) for name in ("MatMulNBits", "GatherBlockQuantized")}
)


def start(
    graph: Graph, options: Callable[[], onnxruntime.SessionOptions], create: Create, cache: CacheFolder | None = None
) -> tuple[onnxruntime.InferenceSession, object]:
    """Return a session of a lowered graph, and the objects that must live as long as the session.

    options: makes new session options. create: makes a session from a model's bytes. cache: of optimised graphs. The
    model declares that large weights lie in an empty file, and OrtValues replace them. The file is empty on purpose: an
    optimiser that reads such a weight fails, while a sparse file of the right size would give it zeros. Weights that
    optimisers are known to read are copied; if an optimiser reads another one, all are copied. Raises `ModelError`.
    """
    large: dict[str, Array] = {}
    constants = {s.name for s in graph.symbols if isinstance(s.producer, Constant)}

    def place(name: str, array: Array) -> tuple[str, int] | None:
        if name not in constants or not _is_large(array):  # onnxruntime does not replace constants of bodies
            return None
        large[name] = array
        return _EMPTY, 0

    content = join(encode(graph, place, ir=runtime().ir))
    late = _read_late(graph) if large else frozenset()
    shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name in late}
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name not in late}
    if cache is not None:
        is_whole = cache.is_whole and _fits_beside(large.values())
        referred = {name: v for name, v in shared.items() if not is_whole and cache.refers(large[name])}
        read = {name: array for name, array in large.items() if name not in referred}
        session = _start_with_cache(cache, content, options, create, referred, read, is_whole)
        if session is not None:
            return session, ({}, {}) if is_whole else (large, referred)
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
    """Return the error for a model that onnxruntime refuses."""
    reason = str(error).strip() or type(error).__name__
    return ModelError(f"load: onnxruntime refused {model}: {reason}", help="check the model with onnx.checker")


def _fits_beside(arrays: Iterable[Array]) -> bool:
    """Return True if a cache entry can store all of the weights."""
    sizes = [(array.nbytes, DType.of(array.dtype) in HALVES) for array in arrays]
    return (
        sum(n for n, _ in sizes) <= _MAX_STORED_BYTES
        and sum(n for n, is_narrow in sizes if is_narrow) <= _MAX_WIDENED_BYTES
    )


def _start_with_cache(
    cache: CacheFolder,
    content: bytes,
    options: Callable[[], onnxruntime.SessionOptions],
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    read: Mapping[str, Array],
    is_whole: bool,
) -> onnxruntime.InferenceSession | None:
    """Return a session of a model's cache entry, which is written if it is missing; None if it cannot be cached.

    shared: the weights that are not in the entry. read: the others, which the entry has. is_whole: whether these are
    all weights.
    """
    if not is_whole and sum(array.nbytes for array in read.values()) > LIMIT // 2:  # larger than protobuf allows
        return None
    if sum(array.nbytes for array in read.values() if DType.of(array.dtype) in HALVES) > _MAX_WIDENED_BYTES:
        return None
    key = cache.key(content, read)
    optimised = cache.find_optimised(key)
    if optimised is not None:
        with contextlib.suppress(Exception):  # the graph is optimised again, which also raises any other error again
            session = start_optimised(optimised, options(), create, shared)
            cache.used = key
            return session
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in read.items()}
    is_beside = is_whole and sum(array.nbytes for array in read.values()) >= _MIN_SEPARATE_BYTES
    try:
        with cache.temporary_folder() as folder:
            written = _OptimisedFiles(folder, cache.weights_file(key) if is_beside else None)
            session = _session(content, options(), create, shared, copied, written)
            with open(os.path.join(folder, _OPTIMISED), "rb") as file:
                cache.save_optimised(key, file.read(), written.weights)
            cache.used = key
            return session
    except Exception:  # a start without the cache raises any other error again
        cache.warn_if_unwritable(len(content))
    return None


def start_optimised(
    optimised: CachedGraph,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
) -> onnxruntime.InferenceSession:
    """Return a session of an optimised graph, with the weights that are not in it."""
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model, folder = optimised
    if folder is not None:
        options.add_session_config_entry(_FILES_FOLDER, folder)
        return create(model, options)
    return _session(model, options, create, shared, {})


_OPTIMISED = "optimised.onnx"


@dataclass(frozen=True, slots=True)
class _OptimisedFiles:
    """The files to which onnxruntime writes an optimised graph, without the shared weights.

    file: of the weights; None if they are in the graph.
    """

    folder: str
    file: str | None

    @property
    def weights(self) -> str | None:
        """The path of the file of weights; None if onnxruntime wrote no such file."""
        path = None if self.file is None else os.path.join(self.folder, self.file)
        return path if path is not None and os.path.exists(path) else None

    def configure(self, options: onnxruntime.SessionOptions) -> None:
        """Set the options with which a session writes the files."""
        options.optimized_model_filepath = os.path.join(self.folder, _OPTIMISED)
        if self.file is not None:
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", self.file)
            least = "session.optimized_model_external_initializers_min_size_in_bytes"
            options.add_session_config_entry(least, str(_MIN_REFERENCED_BYTES))


def _session(
    content: bytes,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    copied: Mapping[str, onnxruntime.OrtValue],
    written: _OptimisedFiles | None = None,
) -> onnxruntime.InferenceSession:
    """Return a session. written: the files to which it writes the optimised graph."""
    for name, value in shared.items():
        options.add_initializer(name, value)
    if copied:
        options.add_external_initializers(list(copied), list(copied.values()))
    if written is None and _is_empty(os.path.join(FOLDER, _EMPTY)):
        options.add_session_config_entry(_FILES_FOLDER, FOLDER)
        return create(content, options)
    if written is not None:
        written.configure(options)
        return _with_empty_file(content, options, create, written.folder)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="graphcore-") as folder:
        return _with_empty_file(content, options, create, folder)


def _with_empty_file(
    content: bytes, options: onnxruntime.SessionOptions, create: Create, folder: str
) -> onnxruntime.InferenceSession:
    with open(os.path.join(folder, _EMPTY), "wb"):
        pass
    options.add_session_config_entry(_FILES_FOLDER, folder)
    return create(content, options)


def _is_empty(path: str) -> bool:
    """Return True if a file exists and is empty. It does not exist if the package is read from an archive."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def _is_large(array: Array) -> bool:
    """Return True if a weight is passed by reference.

    onnxruntime packs elements of less than a byte, and strings are not plain memory.
    """
    return array.nbytes >= _MIN_REFERENCED_BYTES and array.dtype != object and DType.of(array.dtype).bits not in (2, 4)


def _read_late(graph: Graph) -> frozenset[str]:
    """Return the constants that only kernels read: operands of operators that also depend on a fed value."""
    late: dict[int, bool] = {}
    _note_readers(graph, late)
    outputs = {s.id for s in graph.outputs}
    constants = {id(s): s for s in graph.symbols if isinstance(s.producer, Constant)}
    return frozenset(s.name for i, s in constants.items() if late.get(i) and s.id not in outputs)


def _note_readers(graph: Graph, late: dict[int, bool]) -> None:
    """Note for each constant that a graph and its bodies read whether only kernels read it."""
    constant = {s.id for s in graph.symbols if isinstance(source_of(s), Constant)}
    for node in graph.nodes:
        for inner in bodies(node):
            _note_readers(inner, late)
        inputs = [s for s in node.inputs if s is not None]
        folded = not node.domain and all(s.id in constant for s in inputs)  # onnxruntime folds ONNX's operators only
        if folded:
            constant.update(s.id for s in node.outputs)
        for symbol in inputs:
            if isinstance(source_of(symbol), Constant):
                waits = not folded and (node.domain, node.op_type) in _READ_LATE
                root = root_of(symbol)
                late[id(root)] = late.get(id(root), True) and waits
