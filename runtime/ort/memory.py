"""Memory of sessions: huge pages, mapped files, weights without zeros, and weights that kernels reorder."""

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
from graphcore.ir.transform.walk import bodies, constant_array, operators, walk
from graphcore.types.tensor_types import TensorType

Prepack: TypeAlias = Literal["auto", "on", "off"]

OFF = {"session.disable_prepacking": "1"}
PARALLEL = {"session.prepack.enable_parallel": "1"}
"""Measured: 1 GB of weights in 0.56 s in place of 1.0 on two cores; small models start as they do without."""

_CHOICES: tuple[Prepack, ...] = ("auto", "on", "off")

PACKED = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv MatMulInteger QLinearMatMul DequantizeLinear LSTM GRU RNN".split()
)
"""Operators of ONNX, beside the float products, whose kernels put weights in order."""

_PRODUCTS = frozenset({"Gemm", "MatMul"})

_LEFT = frozenset(
    "GroupQueryAttention MultiHeadAttention RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization"
    " BiasGelu FastGelu GatherBlockQuantized".split()
)
"""Operators of other domains whose kernels leave constants as they are. Of those that are not here all may."""


def require(prepack: Prepack) -> None:
    """Raise `GraphError` for what is no choice."""
    if prepack not in _CHOICES:
        raise GraphError(f"load: there is no prepack={prepack!r:.80}", help=f"use one of {', '.join(_CHOICES)}")


def entries(graph: Graph, prepack: Prepack) -> dict[str, str]:
    """Return entries of a session's configuration for a lowered graph. Raises `GraphError` for an unknown choice."""
    require(prepack)
    return PARALLEL if prepack == "on" or (prepack == "auto" and gains(graph)) else OFF


def gains(graph: Graph) -> bool:
    """Return whether some kernel of a lowered graph runs faster on weights in its own order."""
    has_some = any(domain or op_type in _PRODUCTS or op_type in PACKED for op_type, domain in operators(graph))
    return has_some and _gains(graph, set())


def reordered(graph: Graph) -> Iterator[Array]:
    """Yield the weights of 4 bits of a lowered graph, which their kernels read in their own order alone."""
    for node in walk(graph):
        if node.op_type == "MatMulNBits" and node.domain:
            arrays = (constant_array(s, weights=True, outer=True) for s in node.inputs[1:4])
            yield from (array for array in arrays if array is not None)


def _gains(graph: Graph, outer: set[int]) -> bool:
    """Return whether some kernel gains. outer: the `id` of what is constant outside of a body."""
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
    if node.op_type in _LEFT:
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


# Memory in pages of 2 MB, of which the processor keeps the places of hundreds of times as much as with those of 4 KB.
#
# What the kernels have put in order when a session starts is memory of onnxruntime's own, in small pages as a rule:
# Linux gives large ones to those who ask for them (`madvise`), and onnxruntime does not ask. Weights that are read
# once in each call, as those of a decoder are, or of an encoder for a short text, are read more slowly so. Linux can
# gather the small pages of a place later (MADV_COLLAPSE, Linux 6.1), whatever lies there.

_SETTINGS = "/sys/kernel/mm/transparent_hugepage"
_MAPS = "/proc/self/maps"
_PAGE = 4096
_COLLAPSE = 25
_FAILURES = 32
"""After so many pieces that the system does not gather, because it has no large page left, no more are asked for."""

# The memory of the process' own that it may write to, the heap and what has no name: no stacks and no files.
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\]|\[anon:.*\])?$", re.MULTILINE)

_CALLS_BEFORE, _CALLS_OF_GATHERING = 32, 32
"""Calls of a session before its memory is gathered later, and the calls that this is spread over. Measured: gathering
takes as long as 100 to 200 steps of a decoder save, and up to a third of a start."""

Ranges = list[tuple[int, int]]


def checked(huge_pages: object) -> bool | None:
    """Return the option of a session. Raises `GraphError`."""
    if huge_pages is None or isinstance(huge_pages, bool):
        return huge_pages
    raise GraphError(
        f"InferenceSession: huge_pages={huge_pages!r:.80}", help="give True, False, or None for what pays as a rule"
    )


@contextmanager
def gathered(is_wanted: bool) -> Iterator[None]:
    """Gather in large pages what memory the process has afterwards and had not before, if that is wanted and possible.

    It changes nothing that can be read there, and takes no more memory: pieces of which some page is not in use stay as
    they are. Elsewhere than on Linux, and where the system's administrator forbids large pages, it does nothing.
    """
    with gathered_later(is_wanted) as later:
        yield
    if later is not None:
        later.gather()


@contextmanager
def gathered_later(is_wanted: bool) -> Iterator[Later | None]:
    """Note what memory the process has afterwards and had not before: it may be gathered as `gathered` does it, whole
    or between calls. None where that is not wanted or not possible."""
    size = _size() if is_wanted else 0
    before = _own() if size else []
    later = Later(size) if size else None
    yield later
    if later is not None:
        later.ranges = _without(_own(), before)


class Later:
    """Memory that is gathered in large pages when a session has made some calls: those that make few do not pay."""

    def __init__(self, size: int) -> None:
        """size: bytes of a large page."""
        self.ranges: Ranges = []
        self._size = size
        self._calls = 0
        self._pieces: _Pieces | None = None
        self._share = 0
        self._lock = threading.Lock()

    def gather(self) -> int:
        """Gather all of it; return how many pieces are in one page each then."""
        return _collapse(self.ranges, self._size)

    def after_call(self) -> bool:
        """Gather a share of it, if it is time; return whether that was the last one."""
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


_LATER: WeakKeyDictionary[object, Later] = WeakKeyDictionary()


def keep(session: object, later: Later) -> None:
    """Note what memory of a session is gathered later."""
    _LATER[session] = later


def later_of(session: object) -> Later | None:
    """Return what memory of a session is gathered later; None where none is."""
    return _LATER.get(session)


def _size() -> int:
    """Return the bytes of a large page; 0 where there are none to be had."""
    try:
        enabled = _text(os.path.join(_SETTINGS, "enabled"))
        size = int(_text(os.path.join(_SETTINGS, "hpage_pmd_size")))
    except (OSError, ValueError):
        return 0
    return 0 if "[never]" in enabled or size % _PAGE or mmap.PAGESIZE != _PAGE else size


def _own() -> Ranges:
    return [(int(start, 16), int(end, 16)) for start, end in _OWN.findall(_text(_MAPS))]


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ranges that are in none of the others; both are sorted."""
    made = []
    for start, end in ranges:
        for other_start, other_end in others:
            if other_end <= start or other_start >= end:
                continue
            if start < other_start:
                made.append((start, other_start))
            start = max(start, other_end)
        if start < end:
            made.append((start, end))
    return made


def _collapse(ranges: Ranges, size: int) -> int:
    """Return how many pieces of `size` bytes of the ranges are in one page then."""
    pieces = _Pieces(ranges, size)
    return pieces.gather(len(pieces))


class _Pieces:
    """Pieces of memory of the size of a large page, which are gathered one after the other."""

    def __init__(self, ranges: Ranges, size: int) -> None:
        libc = ctypes.CDLL(None)
        address, length = ctypes.c_void_p, ctypes.c_size_t
        self._mincore, self._madvise = libc.mincore, libc.madvise
        self._mincore.argtypes, self._madvise.argtypes = (address, length, address), (address, length, ctypes.c_int)
        self._size = size
        self._there = np.zeros(size // _PAGE, np.uint8)
        self._failures = 0
        self._left = [
            first for start, end in ranges for first in range(-(-start // size) * size, end - size + 1, size)
        ][::-1]

    def __len__(self) -> int:
        """Return how many were not looked at."""
        return len(self._left)

    def gather(self, count: int) -> int:
        """Look at so many more; return how many of these are in one page then."""
        done = 0
        for _ in range(min(count, len(self._left))):
            piece = self._left.pop()
            # Some of it may be gone, or not in use: then it would take more memory.
            if self._mincore(piece, self._size, self._there.ctypes.data) or not (self._there & 1).all():
                continue
            if not self._madvise(piece, self._size, _COLLAPSE):
                done += 1
                continue
            self._failures += 1
            if self._failures > _FAILURES:
                self._left.clear()
                break
        return done


# Memory of mapped files: pages that were read once, when kernels put weights in their own order, are let go.


def release(arrays: Iterable[Array]) -> int:
    """Let the system take back the memory of those arrays that lie in mapped files; return how many bytes.

    What lies there stays as it is: a page that is read again comes from the file. Other arrays are left alone.
    """
    done = 0
    for array in arrays:
        held = _mapping(array)
        if held is None or not hasattr(held, "madvise"):
            continue
        offset = array.__array_interface__["data"][0] - np.frombuffer(held, np.uint8).__array_interface__["data"][0]
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        count = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if count > 0:
            with contextlib.suppress(OSError, ValueError):
                held.madvise(mmap.MADV_DONTNEED, first, count)
                done += count
    return done


def _mapping(array: Array) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of, if it is one that nothing writes to."""
    held: object = array
    while isinstance(held, np.ndarray):
        if held.flags.writeable or held.base is None:
            return None
        held = held.base
    while isinstance(held, memoryview):
        held = held.obj
    return held if isinstance(held, mmap.mmap) else None


# Arrays of zeros that take memory where they are written to, page by page.
#
# NumPy asks for large pages for arrays of 4 MB and more, so that the system gives 2 MB for the first byte that is
# written there. A cache of keys and values has the tokens of each head side by side, with room for many more after
# them: of such memory all would be in use once each head has a token.

_LEAST = 1 << 22
"""Bytes of an array from which on NumPy asks for large pages."""


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros. Raises `MemoryError` and `ValueError` as NumPy does."""
    size = math.prod(shape)
    if size * dtype.itemsize < _LEAST or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype)
    try:
        pages = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    except (OSError, OverflowError, ValueError):  # too large, or a system without large pages
        return np.zeros(shape, dtype)
    return np.frombuffer(pages, dtype).reshape(shape)
