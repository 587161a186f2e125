"""Run custom ops (`gc.custom_op`) that a Python function computes, through the package onnxruntime-extensions.

Faults of that package (measured: 0.15, with onnxruntime 1.31) decide the design:

- A Python exception ends the process. So nothing is raised inside: the exception is stored, and the Reshape of the
  result fails instead, as any operator of ONNX may.
- An operator that is registered while a session lives ends the process sooner or later, and two of one name are
  refused. So a fixed set is registered, once: `Put_<dtype>` passes an operand, `Take_<dtype>` fetches a result.
- float16 ends the process, uint64 is converted to float64, and other formats are unknown: they use a transport dtype.

The operands of one call are put one after another, with a ticket that goes from one node to the next. The first ticket
is the number of the node, a constant.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime

from graphcore import custom_ops
from graphcore.arrays.casting import Array
from graphcore.errors import GraphError, MissingExtraError, ModelError
from graphcore.ir.definitions import FUNCTIONS
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import walk
from graphcore.onnx.notes import DOMAINS
from graphcore.runtime.stopping.limit import store_exception
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type

DOMAIN = "ai.onnx.contrib"
"""The domain of the extension's operators."""

_TRANSPORTED = "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 bool string"
_PLAIN = frozenset(map(DType.of, _TRANSPORTED.split()))
"""The dtypes that the extension passes bit for bit."""

_PREFIX = "python_op."
"""The prefix of the names of Reshapes that fail if Python failed."""

_NO_NODE = 1 << 62
"""A number that no node has: putting or taking there fails."""


@dataclass(slots=True, weakref_slot=True)
class PythonNode:
    """A node that Python computes."""

    op: custom_ops.CustomOp
    function: Callable[..., Any]
    attributes: dict[str, Any]
    layout: tuple[DType | None, ...]
    """The dtypes of the operands; None for omitted ones."""
    inputs: tuple[Type | None, ...]
    results: tuple[TensorType, ...]
    where: str
    number: int = 0


@dataclass(slots=True)
class _Frame:
    """A call of a node: the operands so far, and the results that are not taken yet."""

    site: PythonNode
    operands: list[Array] = field(default_factory=list)
    results: list[Array] | None = None


class _ThreadCalls(threading.local):
    """The calls in progress in one thread: the nodes of a run stay in the calling thread."""

    def __init__(self) -> None:
        self.frames: dict[int, _Frame] = {}
        self.computing: list[int] = []
        """The nested calls whose functions are running."""
        self.raised: dict[int, BaseException] = {}
        """The last error of each node, by its number."""


_threads = _ThreadCalls()
_sites: weakref.WeakValueDictionary[int, PythonNode] = weakref.WeakValueDictionary()
_site_numbers = itertools.count(1)
_frame_numbers = itertools.count(1)
_lock = threading.Lock()
_registered: list[object] = []


def _is_custom(node: Node) -> bool:
    return bool(node.domain) and node.domain not in (*DOMAINS, "graphcore", "com.microsoft", DOMAIN, FUNCTIONS)


def prepared(graph: Graph) -> tuple[Graph, list[PythonNode]]:
    """Return the graph with the extension's operators instead of Python's, and the nodes that they replace.

    These must live as long as a session of the graph. Raises `GraphError` for an operator without an implementation
    and for operands that cannot be passed to Python, `MissingExtraError` if the extension is not installed.
    """
    sites: list[PythonNode] = []
    rewritten = Rewrite(graph, _InsertTransfers(sites)).run() if any(_runs_in_python(n) for n in walk(graph)) else graph
    if sites:
        _register()
    return rewritten, sites


def options(
    session_options: onnxruntime.SessionOptions, graph: Graph, libraries: Sequence[str] = ()
) -> onnxruntime.SessionOptions:
    """Register the extension's library in the options of a session for a prepared graph; return the options.

    libraries: those that are registered already. Registering one twice ends the process.
    """
    if any(node.domain == DOMAIN for node in walk(graph)):
        path = _register()
        if os.path.realpath(path) not in libraries:
            session_options.register_custom_ops_library(path)
        session_options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL  # the thread identifies the failure
    return session_options


def before_registering(library: str) -> None:
    """Register Python's operators before the user's library if that is the extension: later ends the process."""
    if os.path.basename(library).startswith("_extensions_pydll"):
        with contextlib.suppress(MissingExtraError):
            _register()


def undeclared(graph: Graph, error: ModelError) -> ModelError:
    """Return an error that names the undeclared operator for which onnxruntime refused a graph; else `error`."""
    names = sorted({f"{n.domain}::{n.op_type}" for n in walk(graph) if _is_custom(n) and _declaration(n) is None})
    if not names:
        return error
    return ModelError(
        f"load: the operator {names[0]} is not declared",
        operands={"onnxruntime": error.summary},
        help=f"declare it, with a body or a Python function: @gc.custom_op({names[0]!r})",
    )


def _is_image_decoder(node: Node) -> bool:
    return node.op_type == "ImageDecoder" and not node.domain


def _declaration(node: Node) -> custom_ops.CustomOp | None:
    if _is_image_decoder(node):
        return image_decoder()
    return custom_ops.lookup(node.domain, node.op_type)


def _runs_in_python(node: Node) -> bool:
    if not (_is_custom(node) or _is_image_decoder(node)) or (op := _declaration(node)) is None:
        return False
    if op.implementation is None and not op.has_body:
        raise GraphError(
            f"{op.label}: the operator has neither a body nor a Python function to compute it",
            operands={s.name: s for s in node.outputs},
            help="decorate a function of Symbols with .body, or a function of arrays with .python",
        )
    return not op.has_body


@dataclass(eq=False)
class _InsertTransfers(Policy[Rewrite]):
    sites: list[PythonNode]
    keeps_types = True

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        return _insert_transfer(rewrite.new, node, inputs, self.sites) if _runs_in_python(node) else None


def _insert_transfer(
    graph: Graph, node: Node, inputs: Sequence[Symbol | None], sites: list[PythonNode]
) -> list[Symbol]:
    """Add the nodes that put the operands and take the results; return the results."""
    site = _site(node, inputs)
    sites.append(site)
    ticket = graph.build.vector([-site.number])
    one = tensor_type(DType.int64, Shape([1]))
    for symbol in inputs:
        if symbol is not None:
            stored = graph.build.cast(symbol, _transport_dtype(symbol.dtype))
            ticket = graph.build.emit(f"Put_{stored.dtype}", (ticket, stored), one, None, DOMAIN)
    results = []
    for position, declared in enumerate(site.results):
        transport = _transport_dtype(declared.dtype)
        rank = Dim(len(declared.shape)) if declared.shape.is_ranked else Dim.dynamic()
        types = [
            tensor_type(transport, _shape([Dim.dynamic()])),
            tensor_type(DType.int64, Shape([rank])),
            one,
        ]
        flat, shape, ticket = graph.build.emit_many(f"Take_{transport}", (ticket,), types, {}, DOMAIN)
        shaped = graph.build.emit("Reshape", (flat, shape), tensor_type(transport, declared.shape), {"allowzero": 1})
        graph.names.rename(shaped, f"{_PREFIX}{site.number}.{position}")
        results.append(graph.build.cast(shaped, declared.dtype))
    return results


def _site(node: Node, inputs: Sequence[Symbol | None]) -> PythonNode:
    op = present(_declaration(node))
    assert op.implementation is not None
    for symbol in (*node.inputs, *node.outputs):
        if symbol is None:
            continue
        if not isinstance(symbol.type, TensorType) or symbol.dtype.bits > 64:
            raise GraphError(
                f"{op.label}: {symbol.type} cannot be passed to a Python function",
                operands={symbol.name: symbol},
                help="operands and results must be tensors of at most 64 bits an element",
            )
    site = PythonNode(
        op,
        op.implementation,
        op.signature.python_attributes(op.signature.node_attributes(op.label, node.attributes)),
        tuple(None if s is None else s.dtype for s in inputs),
        tuple(None if s is None else s.type for s in node.inputs),
        tuple(s.type for s in node.outputs),
        str(node.line or ""),
        next(_site_numbers),
    )
    _sites[site.number] = site
    return site


def _transport_dtype(dtype: DType) -> DType:
    """Return the dtype in which values pass through the extension. It holds all values of `dtype`."""
    if dtype in _PLAIN:
        return dtype
    if dtype.is_float:
        return DType.float32
    if dtype.bits <= 8:
        return DType.int8 if dtype.is_signed else DType.uint8
    return DType.int64  # the bits of uint64 too


# Functions that the extension calls


def _put(ticket: Array, value: Array) -> Array:
    """Store an operand; return the ticket of the call."""
    try:
        number, frame = _under_way(ticket)
        frame.operands.append(value)
        return np.array([number], np.int64)
    except BaseException:
        return np.array([-_NO_NODE], np.int64)


def _take(ticket: Array) -> tuple[Array, Array, Array]:
    """Compute the call once, and return the elements and the shape of the next result, and the ticket."""
    site = None
    calls = _threads
    try:
        number, frame = _under_way(ticket)
        site = frame.site
        if frame.results is None:
            calls.computing.append(number)
            try:
                frame.results = _compute(site, frame.operands)
            finally:
                calls.computing.pop()
        result = frame.results.pop(0)
        if not frame.results:
            calls.frames.pop(number, None)
        return np.ascontiguousarray(result).reshape(-1), np.array(result.shape, np.int64), np.array([number], np.int64)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            store_exception(error)
        if site is not None:
            calls.raised[site.number] = error
        # Zero elements do not fit the shape [1]: the Reshape after this fails.
        return np.zeros(0), np.array([1], np.int64), np.array([-_NO_NODE], np.int64)


def _under_way(ticket: Array) -> tuple[int, _Frame]:
    """Return the call of a ticket; a new call for the number of a node, which is negative."""
    number = int(ticket[0])
    if number >= 0:
        return number, _threads.frames[number]
    frame = _Frame(_sites[-number])
    number = next(_frame_numbers)
    _threads.frames[number] = frame
    return number, frame


def _compute(site: PythonNode, stored: Sequence[Array]) -> list[Array]:
    arrays = iter(stored)
    values: list[Any] = [None if d is None else _to_dtype(next(arrays), d) for d in site.layout]
    values += [None] * (len([o for o in site.op.signature.operands if not o.is_variadic]) - len(values))
    returned = site.function(*values, **site.attributes)
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(results) < len(site.results):
        raise _Refusal(f"it returned {len(results)} results, but {len(site.results)} are declared")
    sizes = sizes_of(zip(site.inputs, values, strict=False))
    pairs = zip(results, site.results, strict=False)
    return [_check_result(value, declared, sizes, i) for i, (value, declared) in enumerate(pairs)]


class _Refusal(Exception):
    """A Python function returned a result that differs from the declaration."""


def _to_dtype(array: Array, dtype: DType) -> Array:
    return array if array.dtype == dtype.storage.numpy else array.astype(dtype.storage.numpy)


def sizes_of(values: Iterable[tuple[Type | None, Any]]) -> dict[str, int]:
    """Return the sizes of the named dims in types, by their values."""
    return {
        dim.name: size
        for type_, value in values
        if isinstance(type_, TensorType) and type_.shape.is_ranked and isinstance(value, np.ndarray)
        for dim, size in zip(type_.shape, value.shape, strict=False)
        if dim.name is not None
    }


def _check_result(value: Any, declared: TensorType, sizes: dict[str, int], position: int) -> Array:
    """Return a result in its transport dtype. Raises `_Refusal` if it differs from the declaration."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise _Refusal(f"result {position} must be {declared}, got {type(value).__name__}")
    array = np.asarray(value)
    stored = declared.dtype.storage.numpy
    is_text = declared.dtype is DType.string and array.dtype.kind in "OUT"
    if array.dtype != stored and not is_text:
        raise _Refusal(f"result {position} must be {declared}, got {array.dtype}{list(array.shape)}")
    if declared.shape.is_ranked:
        dims = [d.evaluate(sizes) if d.depends_on(sizes) else None for d in declared.shape]
        fits = len(dims) == array.ndim and all(k in (None, n) for k, n in zip(dims, array.shape, strict=True))
        if not fits:
            raise _Refusal(f"result {position} must be {declared}, got {array.dtype}{list(array.shape)}")
    if is_text:
        others = [item for item in array.ravel() if not isinstance(item, str)]
        if others:
            raise _Refusal(
                f"result {position} must have only strings, got an element of type {type(others[0]).__name__}"
            )
        return array.astype(object)
    if declared.dtype.storage is not declared.dtype and declared.dtype.is_integer and array.size:
        if array.min() < declared.dtype.min or array.max() > declared.dtype.max:
            raise _Refusal(f"result {position} has values outside of the range of {declared.dtype}")
    return array.astype(_transport_dtype(declared.dtype).numpy)


# Failures


def failure(reason: Exception) -> tuple[BaseException, str] | None:
    """Return the exception of a Python function for which a run failed in this thread, and its message; else None.

    Drops the operands and results that remain from the run.
    """
    calls = _threads
    # If a Python function runs a model itself, the outer run goes on.
    outer = calls.computing[-1] if calls.computing else 0
    for number in [n for n in calls.frames if n > outer]:
        del calls.frames[number]
    named = re.search(rf"{_PREFIX}(\d+)\.", str(reason))
    site = _sites.get(int(named[1])) if named else None
    error = calls.raised.pop(site.number, None) if site is not None else None
    if site is None or error is None:
        return None
    at = f" (made at {site.where})" if site.where else ""
    text = f"{error}" if isinstance(error, _Refusal) else f"its Python function raised {type(error).__name__}: {error}"
    return (reason if isinstance(error, _Refusal) else error), f"{site.op.label}{at}: {text}"


def _register() -> str:
    """Register the operators with the extension, once. Returns the path of its library."""
    try:
        from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op
    except ImportError as error:
        raise MissingExtraError(
            "custom_op: operators with a Python function need the package onnxruntime-extensions",
            help="pip install onnxruntime-extensions, or pip install -e '.[python-ops]'",
        ) from error
    with _lock:
        if not _registered:
            kinds = PyCustomOpDef
            numbers = {"float32": kinds.dt_float, "float64": kinds.dt_double}
            for name in _TRANSPORTED.split():
                kind, ticket = numbers.get(name) or getattr(kinds, f"dt_{name}"), kinds.dt_int64
                put = onnx_op(op_type=f"Put_{name}", inputs=[ticket, kind], outputs=[ticket])
                take = onnx_op(op_type=f"Take_{name}", inputs=[ticket], outputs=[kind, ticket, ticket])
                _registered.extend([put(_put), take(_take)])
    return str(get_library_path())


# ONNX's ImageDecoder, which Pillow computes. Needs the extra `images`.

_FORMATS = ("BMP", "DIB", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The formats of ONNX, by Pillow's names. For others, such as EPS, Pillow starts programs."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@functools.cache
def image_decoder() -> custom_ops.CustomOp[..., Any]:
    """Return the operator. Raises `MissingExtraError` if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401  # the extra `images`, which few models need
    except ImportError as error:
        raise MissingExtraError(
            "ImageDecoder: decoding images needs the packages Pillow and onnxruntime-extensions",
            help="pip install -e '.[images]', or decode the image before the model and feed its pixels",
        ) from error
    return custom_ops.CustomOp("ai.onnx::ImageDecoder", _pixels_type, "none", {}, None, _decode, None, None)


def _pixels_type(encoded_stream: TensorType, *, pixel_format: str = "RGB") -> TensorType:
    return TensorType(DType.uint8, [Dim.dynamic(), Dim.dynamic(), 1 if pixel_format == "Grayscale" else 3])


def _decode(encoded_stream: Array, *, pixel_format: str = "RGB") -> Array:
    """Return the pixels of an image as uint8 [height, width, channels], without elements if it cannot be read.

    Raises `ValueError` for an unknown `pixel_format`, and Pillow's `DecompressionBombError`.
    """
    from PIL import Image  # the extra `images`, as above

    if pixel_format not in _MODES:
        raise ValueError(f"pixel_format must be one of {', '.join(_MODES)}, got {pixel_format!r}")
    channels = 1 if pixel_format == "Grayscale" else 3
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes()), formats=_FORMATS) as image:
            pixels = np.asarray(image.convert(_MODES[pixel_format])).reshape(image.height, image.width, channels)
    except (OSError, SyntaxError, ValueError):  # Pillow raises these for bytes that are not a complete image
        return np.zeros((0, 0, channels), np.uint8)
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
