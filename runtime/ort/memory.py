"""Memory of sessions: huge pages, mapped files, arrays of zeros, and prepacked weights."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, operators, parts
from graphcore.types.tensor_types import TensorType

Prepack: TypeAlias = Literal["auto", "on", "off"]

OFF = {"session.disable_prepacking": "1"}
PARALLEL = {"session.prepack.enable_parallel": "1"}
"""Measured: 1 GB of weights in 0.56 s instead of 1.0 on two cores; small models start as fast as without it."""

_CHOICES: tuple[Prepack, ...] = ("auto", "on", "off")

PACKED = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv MatMulInteger QLinearMatMul DequantizeLinear LSTM GRU RNN".split()
)
"""Operators of ONNX, besides the float products, whose kernels prepack weights."""

_PRODUCTS = frozenset({"Gemm", "MatMul"})

_NOT_PREPACKED = frozenset(
    "GroupQueryAttention MultiHeadAttention RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization"
    " BiasGelu FastGelu GatherBlockQuantized".split()
)
"""Operators of other domains whose kernels do not prepack constants. All others of these domains may."""


def require(prepack: Prepack) -> None:
    """Raise `GraphError` for an invalid choice."""
    if prepack not in _CHOICES:
        raise GraphError(f"load: prepack={prepack!r:.80} is not a choice", help=f"use one of {', '.join(_CHOICES)}")


def entries(graph: Graph, prepack: Prepack) -> dict[str, str]:
    """Return the session's config entries for a lowered graph."""
    return PARALLEL if prepack == "on" or (prepack == "auto" and gains(graph)) else OFF


def gains(graph: Graph) -> bool:
    """Return True if some kernel of a lowered graph runs faster on prepacked weights."""
    has_some = any(domain or op_type in _PRODUCTS or op_type in PACKED for op_type, domain in operators(graph))
    return has_some and _gains(graph, set())


def constants(graph: Graph) -> Iterator[Array]:
    """Yield the constants of a lowered graph and its bodies."""
    return (s.producer.array for part in parts(graph) for s in part.symbols if isinstance(s.producer, Constant))


def _gains(graph: Graph, outer: set[int]) -> bool:
    """Return True if some kernel gains. outer: the `id` of each constant outside of a body."""
    constant = set()
    for symbol in graph.symbols:
        producer = symbol.producer
        if isinstance(producer, Constant) or (isinstance(producer, Captured) and id(producer.symbol) in outer):
            constant.add(id(symbol))
    for node in graph.nodes:
        inputs = [s for s in node.inputs if s is not None]
        inner = bodies(node)
        if inputs and not inner and all(id(s) in constant for s in inputs):  # folded when the session starts
            constant.update(map(id, node.outputs))
        elif _packs(node, constant) or any(_gains(body, constant) for body in inner):
            return True
    return False


def _packs(node: Node, constant: set[int]) -> bool:
    if node.op_type in _NOT_PREPACKED:
        return False
    if node.domain or node.op_type in PACKED:
        return any(id(s) in constant and _is_matrix(s) for s in node.inputs if s is not None)
    if node.op_type not in _PRODUCTS:
        return False
    rows, weight = node.inputs[:2]
    return id(weight) in constant and (bool(node.attributes.get("transA")) or not _is_one_row(rows))


def _is_matrix(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.shape.is_ranked and symbol.rank > 1


def _is_one_row(symbol: Symbol | None) -> bool:
    if symbol is None or not symbol.shape.is_ranked:
        return False
    return all(dim.is_static and int(dim) == 1 for dim in tuple(symbol.shape)[:-1])


# Huge pages of 2 MB: the TLB of the processor covers hundreds of times as much memory as with pages of 4 KB.
#
# onnxruntime allocates prepacked weights in small pages as a rule: Linux gives huge pages to programs that ask for them
# (`madvise`), and onnxruntime does not ask. This slows down weights that are read once a call, such as those of a
# decoder, or of an encoder for a short text. Linux can collapse small pages into a huge one later (MADV_COLLAPSE,
# Linux 6.1), whatever their contents.

_SETTINGS = "/sys/kernel/mm/transparent_hugepage"
_MAPS = "/proc/self/maps"
_PAGE = 4096
_COLLAPSE = 25
_MAX_FAILURES = 32
"""Stop after this many pieces that the system does not collapse, because it has no huge page left."""

# Private writable memory of the process: the heap and anonymous mappings, without stacks and files.
_WRITABLE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\]|\[anon:.*\])?$", re.MULTILINE)

_CALLS_BEFORE, _CALLS_OF_GATHERING = 32, 32
"""Calls of a session before its memory is collapsed, and the number of calls that this is spread over. Measured: it
takes the time that 100 to 200 steps of a decoder save, and up to a third of a start."""

Ranges = list[tuple[int, int]]


def checked(huge_pages: object) -> bool | None:
    """Return the option `huge_pages` of a session. Raises `GraphError` for another type."""
    if huge_pages is None or isinstance(huge_pages, bool):
        return huge_pages
    raise GraphError(
        f"InferenceSession: huge_pages must be True, False or None, got {huge_pages!r:.80}",
        help="None picks what pays as a rule",
    )


@contextmanager
def gathered_later(is_enabled: bool) -> Iterator[Later | None]:
    """Note the memory that the process allocates meanwhile, which can be collapsed into huge pages at once or later.

    Contents and memory use do not change: pieces with an unused page are skipped. Yields None if it is not enabled or
    not possible: on systems other than Linux, and if the administrator forbids huge pages.
    """
    size = _size() if is_enabled else 0
    before = _writable_ranges() if size else []
    later = Later(size) if size else None
    yield later
    if later is not None:
        later.ranges = _without(_writable_ranges(), before)


class Later:
    """Memory that is collapsed into huge pages after some calls of a session: it does not pay for few calls."""

    def __init__(self, size: int) -> None:
        """size: bytes of a huge page."""
        self.ranges: Ranges = []
        self._size = size
        self._calls = 0
        self._pieces: _Pieces | None = None
        self._share = 0
        self._lock = threading.Lock()

    def gather(self) -> None:
        """Collapse all of it."""
        pieces = _Pieces(self.ranges, self._size)
        pieces.gather(len(pieces))

    def after_call(self) -> bool:
        """Collapse a share of it, if it is time; return True if that was the last one."""
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return False
        try:
            self._calls += 1
            if self._calls <= _CALLS_BEFORE:
                return False
            if self._pieces is None:
                self._pieces = _Pieces(self.ranges, self._size)
                self._share = -(-len(self._pieces) // _CALLS_OF_GATHERING)
            self._pieces.gather(self._share)
            return not len(self._pieces)
        finally:
            self._lock.release()


LATER: WeakKeyDictionary[object, Later] = WeakKeyDictionary()
"""The memory of sessions that is collapsed later."""


def _size() -> int:
    """Return the bytes of a huge page; 0 if the system has none."""
    try:
        enabled = _text(os.path.join(_SETTINGS, "enabled"))
        size = int(_text(os.path.join(_SETTINGS, "hpage_pmd_size")))
    except (OSError, ValueError):
        return 0
    return 0 if "[never]" in enabled or size % _PAGE or mmap.PAGESIZE != _PAGE else size


def _writable_ranges() -> Ranges:
    return [(int(start, 16), int(end, 16)) for start, end in _WRITABLE.findall(_text(_MAPS))]


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ranges that are in none of the others; both are sorted."""
    remaining = []
    for start, end in ranges:
        for other_start, other_end in others:
            if other_end <= start or other_start >= end:
                continue
            if start < other_start:
                remaining.append((start, other_start))
            start = max(start, other_end)
        if start < end:
            remaining.append((start, end))
    return remaining


class _Pieces:
    """Pieces of memory of the size of a huge page, which are collapsed one after the other."""

    def __init__(self, ranges: Ranges, size: int) -> None:
        libc = ctypes.CDLL(None)
        address, length = ctypes.c_void_p, ctypes.c_size_t
        self._mincore, self._madvise = libc.mincore, libc.madvise
        self._mincore.argtypes, self._madvise.argtypes = (address, length, address), (address, length, ctypes.c_int)
        self._size = size
        self._residency = np.zeros(size // _PAGE, np.uint8)
        self._failures = 0
        self._pending = [
            first for start, end in ranges for first in range(-(-start // size) * size, end - size + 1, size)
        ][::-1]

    def __len__(self) -> int:
        """Return the number of pieces that were not tried yet."""
        return len(self._pending)

    def gather(self, count: int) -> int:
        """Try that many more pieces; return the number of them that are huge pages then."""
        done = 0
        for _ in range(min(count, len(self._pending))):
            piece = self._pending.pop()
            # A piece with freed or unused pages would take more memory as a huge page.
            if self._mincore(piece, self._size, self._residency.ctypes.data) or not (self._residency & 1).all():
                continue
            if not self._madvise(piece, self._size, _COLLAPSE):
                done += 1
                continue
            self._failures += 1
            if self._failures > _MAX_FAILURES:
                self._pending.clear()
                break
        return done


# Memory of mapped files: pages that kernels read once, to prepack weights, are released.

_MIN_RELEASED_BYTES = 1 << 26
"""Mapped weights of at least this many bytes are released while they are prepacked, smaller ones afterwards only."""

_RELEASE_INTERVAL = 0.05
"""Seconds between releases. Measured with 400 MB of float32 weights: a load takes 0.58 GB at most, instead of 0.88."""


@contextmanager
def released(arrays: Iterable[Array]) -> Iterator[None]:
    """Release the memory of mapped arrays repeatedly while a session prepacks them, and once more at the end."""
    mapped = [(array, mapping) for array in arrays if (mapping := _mapping(array)) is not None]
    whole = {id(mapping): mapping for _, mapping in mapped}
    is_done = threading.Event()

    def repeat() -> None:
        while not is_done.wait(_RELEASE_INTERVAL):
            for mapping in whole.values():  # one call for each array would take 4 % of a start
                with contextlib.suppress(OSError, ValueError):
                    mapping.madvise(mmap.MADV_DONTNEED)

    thread = threading.Thread(target=repeat, name="graphcore-release", daemon=True)
    if sum(a.nbytes for a, _ in mapped) >= _MIN_RELEASED_BYTES and hasattr(mmap, "MADV_DONTNEED"):
        thread.start()
    try:
        yield
    finally:
        is_done.set()
        if thread.ident is not None:
            thread.join()
    release(array for array, _ in mapped)


def release(arrays: Iterable[Array]) -> int:
    """Release the memory of those arrays that are views of mapped files; return the number of bytes.

    Their values do not change: a page that is read again comes from the file. Other arrays are skipped.
    """
    done = 0
    for array in arrays:
        mapping = _mapping(array)
        if mapping is None or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        offset = array.__array_interface__["data"][0] - np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        count = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if count > 0:
            with contextlib.suppress(OSError, ValueError):
                mapping.madvise(mmap.MADV_DONTNEED, first, count)
                done += count
    return done


def _mapping(array: Array) -> mmap.mmap | None:
    """Return the mapped file that a read-only array is a view of; None if there is none."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable or owner.base is None:
            return None
        owner = owner.base
    while isinstance(owner, memoryview):
        owner = owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


# Arrays of zeros that take memory page by page, when they are written.
#
# NumPy asks for huge pages for arrays of 4 MB and more, so that the first byte written takes 2 MB. A cache of keys and
# values has the tokens of each head side by side, followed by space for many more: all of it would be in use once each
# head has a token.

_MIN_MAPPED_BYTES = 1 << 22
"""NumPy asks for huge pages for arrays of at least this many bytes."""


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros. Raises `MemoryError` and `ValueError` as NumPy does."""
    size = math.prod(shape)
    if size * dtype.itemsize < _MIN_MAPPED_BYTES or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype)
    try:
        pages = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    except (OSError, OverflowError, ValueError):  # too large, or a system without huge pages
        return np.zeros(shape, dtype)
    return np.frombuffer(pages, dtype).reshape(shape)
