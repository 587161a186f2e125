"""Declared operators (`gc.custom_op`) that a Python function computes, run through the package onnxruntime-extensions.

What that package has been measured to do (0.15, with onnxruntime 1.31) shapes what is done here:

- A Python exception ends the process. So nothing is raised inside: the exception is kept, and the reshape of what came
  out instead fails, as any operator of ONNX may.
- An operator that is registered while a session lives ends the process sooner or later, and two of one name are
  refused. So a fixed set is registered, once: `Put_<dtype>` hands an operand over, `Take_<dtype>` fetches a result.
- float16 ends the process, uint64 goes through float64, and other formats are not known: they are stored as others.

The operands of one call are put one after another, with a ticket that goes from one to the next; the first ticket is
the number of the node, a constant.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import onnxruntime

from graphcore import custom_ops
from graphcore.arrays.casting import Array
from graphcore.errors import GraphError, MissingExtraError, ModelError
from graphcore.ir.definitions import FUNCTIONS
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import walk
from graphcore.onnx.notes import DOMAINS
from graphcore.runtime.stopping.limit import keep
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type

DOMAIN = "ai.onnx.contrib"
"""Of the extension's operators."""

_TRANSPORTED = "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 bool string"
_PLAIN = frozenset(map(DType.of, _TRANSPORTED.split()))
"""The dtypes that the extension hands over bit for bit."""

_PREFIX = "python_op."
"""The beginning of the names of reshapes that fail where Python did."""

_NOWHERE = 1 << 62
"""The number of no node: what is put or taken there fails."""


@dataclass(slots=True, weakref_slot=True)
class Site:
    """One node that Python computes."""

    op: custom_ops.CustomOp
    function: Callable[..., Any]
    attributes: dict[str, Any]
    layout: tuple[DType | None, ...]
    """The dtypes of the operands; None for those left out."""
    inputs: tuple[Type | None, ...]
    results: tuple[TensorType, ...]
    where: str
    number: int = 0


@dataclass(slots=True)
class _Frame:
    """One call of a node: what was put so far, and what is still to be taken."""

    site: Site
    operands: list[Array] = field(default_factory=list)
    results: list[Array] | None = None


class _Here(threading.local):
    """The calls under way in one thread: a run and its nodes stay in the one that called."""

    def __init__(self) -> None:
        self.frames: dict[int, _Frame] = {}
        self.computing: list[int] = []
        """The calls whose functions are running, one inside the other."""
        self.raised: dict[int, BaseException] = {}
        """The errors raised last, by the number of the node."""


_threads = _Here()
_sites: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()
_site_numbers = itertools.count(1)
_frame_numbers = itertools.count(1)
_lock = threading.Lock()
_registered: list[object] = []


def _is_foreign(node: Node) -> bool:
    return bool(node.domain) and node.domain not in (*DOMAINS, "graphcore", "com.microsoft", DOMAIN, FUNCTIONS)


def prepared(graph: Graph) -> tuple[Graph, list[Site]]:
    """Return the graph with the extension's operators in place of what Python computes, and the nodes that they stand
    for.

    They must live as long as a session of the graph. Raises `GraphError` for an operator that nothing computes and for
    operands that cannot be handed over, `MissingExtraError` where the extension is not installed.
    """
    sites: list[Site] = []
    made = Rewrite(graph, _Preparing(sites)).run() if any(_runs_in_python(n) for n in walk(graph)) else graph
    if sites:
        _register()
    return made, sites


def options(
    made: onnxruntime.SessionOptions, graph: Graph, libraries: Sequence[str] = ()
) -> onnxruntime.SessionOptions:
    """Return the options of a session for a graph that was prepared: the extension's library is registered in them.

    libraries: those that are registered already. Registering one twice ends the process.
    """
    if any(node.domain == DOMAIN for node in walk(graph)):
        path = _register()
        if os.path.realpath(path) not in libraries:
            made.register_custom_ops_library(path)
        made.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL  # failures are known by their thread
    return made


def before_registering(library: str) -> None:
    """Register the operators that Python computes, where a library is the extension's: later ends the process."""
    if os.path.basename(library).startswith("_extensions_pydll"):
        with contextlib.suppress(MissingExtraError):
            _register()


def undeclared(graph: Graph, error: ModelError) -> ModelError:
    """Return what says which operator has to be declared, where that is why onnxruntime does not take a graph."""
    names = sorted({f"{n.domain}::{n.op_type}" for n in walk(graph) if _is_foreign(n) and _declaration(n) is None})
    if not names:
        return error
    return ModelError(
        f"load: nothing is known of the operator {names[0]}",
        operands={"onnxruntime": error.summary},
        help=f"declare it, with a body or a Python function: @gc.custom_op({names[0]!r})",
    )


def _is_image_decoder(node: Node) -> bool:
    return node.op_type == "ImageDecoder" and not node.domain


def _declaration(node: Node) -> custom_ops.CustomOp | None:
    if _is_image_decoder(node):
        made: custom_ops.CustomOp[..., Any] = import_module("graphcore.runtime.ort.image_decoder").image_decoder()
        return made  # few models decode images
    return custom_ops.lookup(node.domain, node.op_type)


def _runs_in_python(node: Node) -> bool:
    if not (_is_foreign(node) or _is_image_decoder(node)) or (op := _declaration(node)) is None:
        return False
    if op.implementation is None and not op.has_body:
        raise GraphError(
            f"{op.label}: it is declared without a body and without a Python function: nothing computes it",
            operands={s.name: s for s in node.outputs},
            help="decorate a function with .body, of Symbols, or .python, of arrays",
        )
    return not op.has_body


@dataclass(eq=False)
class _Preparing(Policy[Rewrite]):
    sites: list[Site]
    keeps_types = True

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        return _handed_over(rewrite.new, node, inputs, self.sites) if _runs_in_python(node) else None


def _handed_over(graph: Graph, node: Node, inputs: Sequence[Symbol | None], sites: list[Site]) -> list[Symbol]:
    """Return the nodes that put the operands and take the results."""
    site = _site(node, inputs)
    sites.append(site)
    ticket = graph.build.vector([-site.number])
    one = tensor_type(DType.int64, Shape([1]))
    for symbol in inputs:
        if symbol is not None:
            stored = graph.build.cast(symbol, _transport_dtype(symbol.dtype))
            ticket = graph.build.emit(f"Put_{stored.dtype}", (ticket, stored), one, None, DOMAIN)
    made = []
    for position, wanted in enumerate(site.results):
        transport = _transport_dtype(wanted.dtype)
        rank = Dim(len(wanted.shape)) if wanted.shape.is_ranked else Dim.dynamic()
        types = [
            tensor_type(transport, _shape([Dim.dynamic()])),
            tensor_type(DType.int64, Shape([rank])),
            one,
        ]
        flat, shape, ticket = graph.build.emit_many(f"Take_{transport}", (ticket,), types, {}, DOMAIN)
        whole = graph.build.emit("Reshape", (flat, shape), tensor_type(transport, wanted.shape), {"allowzero": 1})
        graph.names.rename(whole, f"{_PREFIX}{site.number}.{position}")
        made.append(graph.build.cast(whole, wanted.dtype))
    return made


def _site(node: Node, inputs: Sequence[Symbol | None]) -> Site:
    op = _declaration(node)
    assert op is not None
    assert op.implementation is not None
    for symbol in (*node.inputs, *node.outputs):
        if symbol is None:
            continue
        if not isinstance(symbol.type, TensorType) or symbol.dtype.bits > 64:
            raise GraphError(
                f"{op.label}: {symbol.type} cannot be handed to a Python function",
                operands={symbol.name: symbol},
                help="operands and results are tensors of at most 64 bits an element",
            )
    made = Site(
        op,
        op.implementation,
        op.signature.python_attributes(op.signature.node_attributes(op.label, node.attributes)),
        tuple(None if s is None else s.dtype for s in inputs),
        tuple(None if s is None else s.type for s in node.inputs),
        tuple(s.type for s in node.outputs),
        str(node.line or ""),
        next(_site_numbers),
    )
    _sites[made.number] = made
    return made


def _transport_dtype(dtype: DType) -> DType:
    """Return the dtype that values go through the extension in. Each holds all values of the other."""
    if dtype in _PLAIN:
        return dtype
    if dtype.is_float:
        return DType.float32
    if dtype.bits <= 8:
        return DType.int8 if dtype.is_signed else DType.uint8
    return DType.int64  # the bits of uint64 as well


# What the extension calls


def _put(ticket: Array, value: Array) -> Array:
    """Take an operand over; return the ticket of the call."""
    try:
        number, frame = _under_way(ticket)
        frame.operands.append(value)
        return np.array([number], np.int64)
    except BaseException:
        return np.array([-_NOWHERE], np.int64)


def _take(ticket: Array) -> tuple[Array, Array, Array]:
    """Compute the call, if that is not done yet, and return the next result: its elements, its shape and the ticket."""
    site = None
    here = _threads
    try:
        number, frame = _under_way(ticket)
        site = frame.site
        if frame.results is None:
            here.computing.append(number)
            try:
                frame.results = _computed(site, frame.operands)
            finally:
                here.computing.pop()
        made = frame.results.pop(0)
        if not frame.results:
            here.frames.pop(number, None)
        return np.ascontiguousarray(made).reshape(-1), np.array(made.shape, np.int64), np.array([number], np.int64)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            keep(error)
        if site is not None:
            here.raised[site.number] = error
        # No elements are not one: the reshape after this fails.
        return np.zeros(0), np.array([1], np.int64), np.array([-_NOWHERE], np.int64)


def _under_way(ticket: Array) -> tuple[int, _Frame]:
    """Return the call that a ticket is of; a new one for a node's number, which is negative."""
    number = int(ticket[0])
    if number >= 0:
        return number, _threads.frames[number]
    frame = _Frame(_sites[-number])
    number = next(_frame_numbers)
    _threads.frames[number] = frame
    return number, frame


def _computed(site: Site, stored: Sequence[Array]) -> list[Array]:
    given = iter(stored)
    values: list[Any] = [None if d is None else _restored(next(given), d) for d in site.layout]
    values += [None] * (len([o for o in site.op.signature.operands if not o.is_variadic]) - len(values))
    made = site.function(*values, **site.attributes)
    found = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(found) < len(site.results):
        raise _Refusal(f"it gave {len(found)} results, and {len(site.results)} are declared")
    sizes = _sizes(site, values)
    pairs = zip(found, site.results, strict=False)
    return [_checked(value, wanted, sizes, i) for i, (value, wanted) in enumerate(pairs)]


class _Refusal(Exception):
    """A Python function gave another result than was declared."""


def _restored(array: Array, dtype: DType) -> Array:
    return array if array.dtype == dtype.storage.numpy else array.astype(dtype.storage.numpy)


def _sizes(site: Site, values: Sequence[Any]) -> dict[str, int]:
    """Return what the names of dims are in this call."""
    sizes: dict[str, int] = {}
    for type_, value in zip(site.inputs, values, strict=False):
        if isinstance(type_, TensorType) and type_.shape.is_ranked:
            sizes.update({d.name: n for d, n in zip(type_.shape, value.shape, strict=False) if d.name is not None})
    return sizes


def _checked(value: Any, wanted: TensorType, sizes: dict[str, int], position: int) -> Array:
    """Return a result as the extension takes it. Raises `_Refusal` for one that is not as declared."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise _Refusal(f"result {position} is a {type(value).__name__}, and {wanted} is declared")
    array = np.asarray(value)
    stored = wanted.dtype.storage.numpy
    is_text = wanted.dtype is DType.string and array.dtype.kind in "OUT"
    if array.dtype != stored and not is_text:
        raise _Refusal(f"result {position} is {array.dtype}{list(array.shape)}, and {wanted} is declared")
    if wanted.shape.is_ranked:
        known = [d.evaluate(sizes) if d.parameters <= sizes.keys() and not d.is_dynamic else None for d in wanted.shape]
        fits = len(known) == array.ndim and all(k in (None, n) for k, n in zip(known, array.shape, strict=True))
        if not fits:
            raise _Refusal(f"result {position} is {array.dtype}{list(array.shape)}, and {wanted} is declared")
    if is_text:
        others = [item for item in array.ravel() if not isinstance(item, str)]
        if others:
            raise _Refusal(f"result {position} has a {type(others[0]).__name__} among its strings")
        return array.astype(object)
    if wanted.dtype.storage is not wanted.dtype and wanted.dtype.is_integer and array.size:
        if array.min() < wanted.dtype.min or array.max() > wanted.dtype.max:
            raise _Refusal(f"result {position} has values that {wanted.dtype} does not hold")
    return array.astype(_transport_dtype(wanted.dtype).numpy)


# Failures


def failure(reason: Exception) -> tuple[BaseException, str] | None:
    """Return what a Python function raised in this thread, and what to say of it, where that is why a run failed.

    What the run put and did not take is forgotten.
    """
    here = _threads
    begun = (
        here.computing[-1] if here.computing else 0
    )  # where that function runs a model itself, the outer run goes on
    for number in [n for n in here.frames if n > begun]:
        del here.frames[number]
    named = re.search(rf"{_PREFIX}(\d+)\.", str(reason))
    site = _sites.get(int(named[1])) if named else None
    error = here.raised.pop(site.number, None) if site is not None else None
    if site is None or error is None:
        return None
    at = f" (made at {site.where})" if site.where else ""
    said = f"{error}" if isinstance(error, _Refusal) else f"its Python function raised {type(error).__name__}: {error}"
    return (reason if isinstance(error, _Refusal) else error), f"{site.op.label}{at}: {said}"


def _register() -> str:
    """Register the operators with the extension, once. Returns the path of its library."""
    try:
        from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op
    except ImportError as error:
        raise MissingExtraError(
            "custom_op: an operator that Python computes needs the package onnxruntime-extensions",
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
