"""A lowered graph's session, with the weights given to onnxruntime where they lie."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import onnxruntime

from graphcore._version import FOLDER
from graphcore.arrays.casting import Array
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Symbol, source_of
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.onnx.notes import LIMIT
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.targets.compute_dtypes import HALVES
from graphcore.runtime.lowering.targets.releases import ReleaseRange
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.transport_dtypes import to_ort
from graphcore.types.dtypes import DType

Create: TypeAlias = Callable[[bytes, onnxruntime.SessionOptions], onnxruntime.InferenceSession]


class Optimised(Protocol):
    """A graph that was optimised before. folder: where the file of its weights lies; None where it needs none."""

    @property
    def model(self) -> bytes: ...
    @property
    def folder(self) -> str | None: ...


def quadratic(constants: int, different: Callable[[], int]) -> tuple[str, ...]:
    """Return the optimisers to leave out of a session with so many constants, since they take too long.

    different: counts how many different values the constants have, each of which is compared with all constants.
    """
    if constants < MANY_CONSTANTS or constants * different() < MANY_CONSTANTS**2:
        return ()
    return tuple(name for name, seen in QUADRATIC.items() if seen.includes(runtime().version))


def different(constants: Iterable[Symbol]) -> int:
    """Return how many different values constants have, of which each large one counts as another."""
    arrays = [constant_array(s, weights=True) for s in constants]
    small = {(a.dtype, a.shape, a.tobytes()) for a in arrays if a is not None and a.nbytes <= _SMALL}
    return len(small) + sum(a is None or a.nbytes > _SMALL for a in arrays)


class Cache(Protocol):
    """Graphs as onnxruntime has optimised them, by cache key. used: the key of what was found or saved last; is_packed:
    whether that has large weights in the order of kernels. is_whole: whether entries have all weights."""

    used: str | None
    is_packed: bool
    is_whole: bool

    def key(self, content: bytes, weights: Mapping[str, Array]) -> str: ...
    def find_optimised(self, key: str) -> Optimised | None: ...
    def save_optimised(self, key: str, model: bytes, weights: str | None) -> None: ...
    def weights_file(self, key: str) -> str: ...
    def room(self) -> AbstractContextManager[str]: ...
    def say_why(self, size: int) -> None: ...


QUADRATIC = {"ConstantSharing": ReleaseRange(last="1.31.1")}
"""Optimisers that compare initializers pairwise, with the releases that do: three quarters of the start of a session
with 10,000 different numbers. Without it, equal nodes on equal constants are computed twice: Longformer, which has 111
different ones of 4,608, 1.06."""

MANY_CONSTANTS = 1000
"""The number of different constants from which on the optimisers of `QUADRATIC` are left out."""

_SMALL = 64
"""Bytes of constants that are compared."""

_BY_REFERENCE = 1024
"""Bytes from which on an initializer stays where it is."""

_WIDENED = 1 << 22
"""Bytes of narrow floats from which on a graph is in no cache, which would have them in float32. Measured, 100 million
weights: a second start takes 1.5 times as long as one without a cache, and 1.7 times the memory."""

_BESIDE = 1 << 18
"""Bytes of weights from which on those of an entry lie in a file of their own. Measured: a file of 3 MB starts in 0.34
in place of 0.47 of the time without a cache, one of 21 MB in 0.37 in place of 0.55; below, another file costs more."""

_MOST_BESIDE = 4 << 30
"""Bytes of weights up to which an entry has them."""

_PACKED = frozenset({"MatMulNBits"})
"""Operators of whose weights entries have the kernels' own order as well. Measured, 100 million weights of 4 bits: a
start in 0.8 of the time, and a step as fast; 2.5 million start in 1.1, and other kernels gain nothing by it."""

_PACKED_FROM = 1 << 25
"""Bytes of weights from which on entries have them."""

_PACKED_IN = ReleaseRange("1.32.0", "1.32.0")
"""The releases that were seen to start from them. 1.31.1 ends the process."""

_EMPTY = "py.typed"
"""A file of the package that has nothing in it. Making one takes a millisecond, and any time where the disk is busy."""

_FILES_FOLDER = "session.model_external_initializers_file_folder_path"

# Operators that read a weight when they run and not while the session is optimised.
_READ_LATE = frozenset(
    {("", name) for name in ("MatMul", "Gemm", "Gather", "LayerNormalization", "RMSNormalization", "Attention")}
    | {("com.microsoft", name) for name in ("MatMulNBits", "GatherBlockQuantized")}
)


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
    late = _read_late(graph) if large else frozenset()
    shared = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name in late}
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in large.items() if name not in late}
    if cache is not None:
        whole = cache.is_whole and _fits_beside(large.values())
        read = large if whole else {name: large[name] for name in copied}
        packs = whole and _packs(graph, read)
        made = _of_cache(cache, content, options, create, {} if whole else shared, read, whole, packs)
        if made is not None:
            return made, ({}, {}) if whole else (large, shared)
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


def _fits_beside(arrays: Iterable[Array]) -> bool:
    """Return whether an entry may have all of the weights."""
    sizes = [(array.nbytes, DType.of(array.dtype) in HALVES) for array in arrays]
    return sum(n for n, _ in sizes) <= _MOST_BESIDE and sum(n for n, is_narrow in sizes if is_narrow) <= _WIDENED


def _packs(graph: Graph, read: Mapping[str, Array]) -> bool:
    """Return whether it pays to keep weights in the order of kernels too."""
    large = sum(array.nbytes for array in read.values()) >= _PACKED_FROM
    return (
        large
        and _PACKED_IN.includes(runtime().version)
        and not _PACKED.isdisjoint(node.op_type for node in graph.nodes)
    )


def _of_cache(
    cache: Cache,
    content: bytes,
    options: Callable[[], onnxruntime.SessionOptions],
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    read: Mapping[str, Array],
    is_whole: bool,
    packs: bool,
) -> onnxruntime.InferenceSession | None:
    """Return a session of what a cache has for a model, which it has afterwards; None where it cannot have it.

    shared: the weights that are in no entry. read: the others, which the entry has. is_whole: whether these are all.
    packs: whether the entry also has them in the order of kernels.
    """
    if not is_whole and sum(array.nbytes for array in read.values()) > LIMIT // 2:  # larger than protobuf allows
        return None
    if sum(array.nbytes for array in read.values() if DType.of(array.dtype) in HALVES) > _WIDENED:
        return None
    key = cache.key(content, read)
    found = cache.find_optimised(key)
    if found is not None:
        with contextlib.suppress(Exception):  # it is made anew, and so is an error that has another reason
            made = start_optimised(found, options(), create, shared)
            cache.used, cache.is_packed = key, packs
            return made
    copied = {name: to_ort(array, DType.of(array.dtype)) for name, array in read.items()}
    is_beside = is_whole and sum(array.nbytes for array in read.values()) >= _BESIDE
    try:
        with cache.room() as folder:
            written = _Written(folder, cache.weights_file(key) if is_beside else None, packs)
            made = _session(content, options(), create, shared, copied, written)
            with open(os.path.join(folder, _OPTIMISED), "rb") as file:
                cache.save_optimised(key, file.read(), written.weights)
            cache.used, cache.is_packed = key, packs
            return made
    except Exception:  # an error that has another reason is made anew
        cache.say_why(len(content))
    return None


def start_optimised(
    optimised: Optimised,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
) -> onnxruntime.InferenceSession:
    """Return a session of a graph that was optimised before, with the weights that are not in it."""
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimised.folder is not None:
        options.add_session_config_entry(_FILES_FOLDER, optimised.folder)
        return create(optimised.model, options)
    return _session(optimised.model, options, create, shared, {})


_OPTIMISED = "optimised.onnx"


@dataclass(frozen=True, slots=True)
class _Written:
    """Where onnxruntime writes an optimised graph, without the weights that are shared.

    file: of the weights; None where they are in the graph. packs: whether it also has them in the order of kernels.
    """

    folder: str
    file: str | None
    packs: bool

    @property
    def weights(self) -> str | None:
        """The path of the file of weights; None where there was none to write."""
        path = None if self.file is None else os.path.join(self.folder, self.file)
        return path if path is not None and os.path.exists(path) else None

    def ask(self, options: onnxruntime.SessionOptions) -> None:
        """Let a session write it."""
        options.optimized_model_filepath = os.path.join(self.folder, _OPTIMISED)
        if self.file is not None:
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", self.file)
            least = "session.optimized_model_external_initializers_min_size_in_bytes"
            options.add_session_config_entry(least, str(_BY_REFERENCE))
        if self.file is not None and self.packs:
            options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")


def _session(
    content: bytes,
    options: onnxruntime.SessionOptions,
    create: Create,
    shared: Mapping[str, onnxruntime.OrtValue],
    copied: Mapping[str, onnxruntime.OrtValue],
    written: _Written | None = None,
) -> onnxruntime.InferenceSession:
    """Return a session. written: where it writes the optimised graph."""
    for name, value in shared.items():
        options.add_initializer(name, value)
    if copied:
        options.add_external_initializers(list(copied), list(copied.values()))
    if written is None and _is_empty(os.path.join(FOLDER, _EMPTY)):
        options.add_session_config_entry(_FILES_FOLDER, FOLDER)
        return create(content, options)
    if written is not None:
        written.ask(options)
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
    late: dict[int, bool] = {}
    _look_at(graph, late)
    outputs = {s.id for s in graph.outputs}
    own = {id(s): s for s in graph.symbols if isinstance(s.producer, Constant)}
    return frozenset(s.name for i, s in own.items() if late.get(i) and s.id not in outputs)


def _look_at(graph: Graph, late: dict[int, bool]) -> None:
    """Note of each constant that a graph and its bodies read whether only kernels do."""
    constant = {s.id for s in graph.symbols if isinstance(source_of(s), Constant)}
    for node in graph.nodes:
        for inner in bodies(node):
            _look_at(inner, late)
        inputs = [s for s in node.inputs if s is not None]
        folded = not node.domain and all(s.id in constant for s in inputs)  # onnxruntime folds ONNX's alone
        if folded:
            constant.update(s.id for s in node.outputs)
        for symbol in inputs:
            if isinstance(source_of(symbol), Constant):
                waits = not folded and (node.domain, node.op_type) in _READ_LATE
                root = _root(symbol)
                late[id(root)] = late.get(id(root), True) and waits


def _root(symbol: Symbol) -> Symbol:
    """Return the constant that a Symbol of a body stands for."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    return symbol
