"""Models of one operator in the shapes that outside suites found faults with, each made from its number alone.

A model runs as it is, through a Graph, and as an exported file in onnxruntime itself. What these give is compared with
each other, with the types that the Graph promises, and with a reference: of NumPy, or the same model written plainly.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore import DType, TensorType
from graphcore.conformance.runtimes import OrtModel
from graphcore.conformance.suites import difference
from graphcore.errors import GraphcoreError
from tests.fuzz.odd_feeds import names
from tests.support import reference
from tests.support.operators.cases import Place
from tests.support.operators.cells import DRAWN
from tests.support.operators.wanted import FORMULAS
from tools.kernel_probe.case import tensor

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
MAX_LENGTH = 5.0
"""Seconds of a run."""
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A model and what it is fed. wanted: its results. plain: a model that gives the same, with its feeds.

    may_fail: the model may be refused though its results are known. fits: its operands fit; otherwise only crashes and
    internal errors count. turned: how it transposes those of `plain`.
    """

    source: str
    model: onnx.ModelProto
    feeds: Feeds
    wanted: list[Any] | None = None
    plain: tuple[onnx.ModelProto, Feeds] | None = None
    may_fail: bool = False
    fits: bool = True
    turned: Mapping[int, list[int]] = field(default_factory=dict)


@functools.cache
def _sources(dtypes: tuple[str, ...] = ()) -> list[str]:
    return [name for name in names() if not dtypes or name.split()[2] in dtypes]


def _model(source: str) -> tuple[onnx.ModelProto, Feeds]:
    domain, name, dtype, at = source.split()
    place = Place(domain.strip("-"), name, getattr(DType, dtype))
    requested = place.question(place.cases[int(at)])
    return requested.model, {key: array for key, (array, _) in requested.feeds.items()}


def _case(rng: random.Random, dtypes: tuple[str, ...] = ()) -> tuple[str, onnx.ModelProto, Feeds]:
    """Return a source and its model, most often one that ONNX's checker takes."""
    for _ in range(8):
        source = rng.choice(_sources(dtypes))
        model, feeds = _model(source)
        if _is_valid(model):
            break
    return source, model, feeds


def _is_valid(model: onnx.ModelProto, full: bool = True) -> bool:
    """Return True if ONNX's checker takes a model. full: with inference, which ends the process of surplus results."""
    bare = _copy(model)
    del bare.graph.output[:]  # which have no types
    try:
        onnx.checker.check_model(bare, full_check=full)
    except Exception:
        return False
    return True


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    result: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    return result


# What is drawn


def _empty(rng: random.Random) -> Drawn:
    """Let dims be 0, in any opset. The plain model is fed all operands, and the other one has some as constants."""
    source, model, feeds = _case(rng)
    model.opset_import[0].version = _older(model, rng)
    sizes = sorted({size for array in feeds.values() for size in array.shape})
    gone = rng.choice(sizes) if sizes else 0
    some = set(feeds) if rng.random() < 0.6 else {rng.choice(sorted(feeds))} if feeds else set()
    axis = rng.choice((None, None, 0, 1, -1))
    for key in some:
        array = feeds[key]
        results = [
            0 if size == gone and axis in (None, i, i - array.ndim) else size for i, size in enumerate(array.shape)
        ]
        feeds[key] = array[tuple(slice(size) for size in results)] if array.ndim else array
    fits = _fits(model, feeds)
    by_name = rng.random() < 0.5
    for item in model.graph.input:
        for i, dim in enumerate(item.type.tensor_type.shape.dim):
            dim.dim_value = feeds[item.name].shape[i]
            if by_name:
                dim.dim_param = f"{item.name}_{i}"
    constant, fed = _copy(model), dict(feeds)
    for item in list(constant.graph.input):
        if rng.random() < 0.5:
            array = fed.pop(item.name)
            constant.graph.initializer.append(tensor(item.name, array, DType.of(item.type.tensor_type.elem_type)))
            constant.graph.input.remove(item)
    if rng.random() < 0.5:
        _compute_empty(constant, fed)
    wanted = None if all(array.size for array in feeds.values()) else _referred(model, feeds)
    return Drawn(source, constant, fed, wanted, (model, feeds), may_fail=True, fits=fits)


def _compute_empty(model: onnx.ModelProto, feeds: Feeds) -> None:
    """Let nodes give the inputs without elements: these have no memory, unlike arrays that are fed."""
    places = {name: array.shape.index(0) for name, array in feeds.items() if not array.size}
    for node in model.graph.node:
        node.input[:] = [f"{name}_computed" if name in places else name for name in node.input]
    nodes = [helper.make_node("Concat", [n, n], [f"{n}_computed"], axis=axis) for n, axis in places.items()]
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _fits(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Return True if a model takes operands of these sizes.

    If its inputs have names for sizes that do not fit, a result is not defined: onnxruntime gives unwritten memory for
    a Concat with an empty operand (docs/howto/lists_and_strings.md), and a session computes no result without elements.
    """
    exact = _copy(model)
    for item in exact.graph.input:
        for dim, size in zip(item.type.tensor_type.shape.dim, feeds[item.name].shape, strict=True):
            dim.dim_value = size
    try:
        gc.Graph.load(exact)
    except GraphcoreError:
        return False
    return True


def _older(model: onnx.ModelProto, rng: random.Random) -> int:
    """Return an opset in which the model is valid."""
    own = model.opset_import[0]
    versions = list(range(7, own.version + 1))
    rng.shuffle(versions)
    for version in versions[:3]:
        other = _copy(model)
        other.opset_import[0].version = version
        if _is_valid(other):
            return int(version)
    return int(own.version)


def _referred(model: onnx.ModelProto, feeds: Feeds) -> list[Any] | None:
    """Return the results of ONNX's evaluator, where it gives dtypes and shapes that ONNX's inference expects."""
    node = model.graph.node[-1]
    first = model.graph.input[0].type.tensor_type.elem_type if model.graph.input else 0
    if node.domain or node.op_type in UNREFERRED or first in _HALVES:
        return None
    if node.op_type == "CenterCropPad" and first == TensorProto.STRING:  # which it fills with the number 0
        return None
    try:
        return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception:
        return None


_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
UNREFERRED = (
    DRAWN
    | FORMULAS.keys()
    | {"AffineGrid", "GlobalAveragePool", "MaxUnpool", "ReduceMean", "ReduceSumSquare", "Squeeze"}
)
"""Operators whose results ONNX's evaluator draws, or gives otherwise than ONNX says where there are no elements."""


_COUNTED = frozenset({"Attention", "BatchNormalization"})
"""Operators of whose results some come together or not at all."""


def _unnamed(rng: random.Random) -> Drawn:
    """Add operands and results beyond those that a case has: unnamed ones, or more than the schema has."""
    source, plain, feeds = _case(rng)
    model = _copy(plain)
    node = model.graph.node[-1]
    schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    variadic = any("Variadic" in str(p.option) for p in (*schema.inputs, *schema.outputs))
    for names_, most in ((node.input, schema.max_input), (node.output, schema.max_output)):
        if rng.random() < 0.5:
            names_.extend([""] * (min(most, 12) - len(names_)))  # as many as the schema has
        elif rng.random() < 0.3:
            names_.extend(rng.choice(("", "" if variadic else "surplus")) for _ in range(rng.choice((1, 1, 2, 5))))
    if "surplus" in node.input:
        model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), np.float32), "surplus"))
        node.output[:] = [name.replace("surplus", "") for name in node.output]
    if len(plain.graph.output) > 1 and rng.random() < 0.4:
        at = rng.randrange(len(plain.graph.output))
        node.output[at] = ""
        del model.graph.output[at], plain.graph.output[at]
    may_fail = "surplus" in node.input or variadic or node.op_type in _COUNTED
    may_fail = may_fail or not _is_valid(model, full=False)
    return Drawn(source, model, feeds, plain=(plain, feeds), may_fail=may_fail)


def _unknown(rng: random.Random) -> Drawn:
    """Write dims of inputs as -1, where the other model gives them a name."""
    source, model, feeds = _case(rng)
    plain = _copy(model)
    share = rng.choice((0.3, 1))
    for item, its in zip(model.graph.input, plain.graph.input, strict=True):
        for i, dim in enumerate(item.type.tensor_type.shape.dim):
            if rng.random() < share:
                dim.dim_value = -1
                its.type.tensor_type.shape.dim[i].dim_param = f"{item.name}_{i}"
    return Drawn(source, model, feeds, plain=(plain, feeds), may_fail=not _is_valid(plain))


def _transposed(rng: random.Random) -> Drawn:
    """Transpose operands of half precision, which may be cast, before an operator, and results behind it."""
    cast = rng.random() < 0.25
    source, plain, feeds = _case(rng, ("float32",) if cast else HALVES)
    model, fed = _copy(plain), dict(feeds)
    before: list[onnx.NodeProto] = []
    half = rng.choice(_HALVES)
    orders: dict[int, list[int]] = {}
    for item in model.graph.input:
        kind, array = item.type.tensor_type, feeds[item.name]
        if array.ndim < 2 or rng.random() < 0.2:
            continue
        order = orders.setdefault(array.ndim, rng.sample(range(array.ndim), array.ndim))
        name = f"{item.name}_turned"
        before.append(helper.make_node("Transpose", [name], [item.name], perm=order))
        fed[name] = np.ascontiguousarray(array.transpose(np.argsort(order)))
        del fed[item.name]
        if cast and kind.elem_type == TensorProto.FLOAT:
            before[-1].output[0] = f"{item.name}_narrow"
            before.append(helper.make_node("Cast", [f"{item.name}_narrow"], [item.name], to=TensorProto.FLOAT))
            kind.elem_type = half
            fed[name] = fed[name].astype(DType.of(half).numpy)
            feeds[item.name] = array.astype(fed[name].dtype).astype(np.float32)
        item.name = name
        for dim, size in zip(kind.shape.dim, fed[name].shape, strict=True):
            dim.dim_value = size
    nodes = [*before, *model.graph.node]
    turned = _ranked(plain) if rng.random() < 0.8 else {}
    for at, rank in turned.items():
        inverse = np.argsort(orders[rank]).tolist() if rank in orders and rng.random() < 0.6 else None
        order = inverse or rng.sample(range(rank), rank)
        result = model.graph.output[at]
        nodes.append(helper.make_node("Transpose", [result.name], [f"{result.name}_turned"], perm=order))
        result.name, turned[at] = f"{result.name}_turned", order
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return Drawn(source, model, fed, plain=(plain, feeds), turned=turned, may_fail=not _is_valid(model))


def _ranked(model: onnx.ModelProto) -> dict[int, Any]:
    """Return the ranks of results that are tensors of two dims or more, by their place."""
    try:
        types = [symbol.type for symbol in gc.Graph.load(model).outputs]
    except GraphcoreError:
        return {}
    ranked = {i: t for i, t in enumerate(types) if isinstance(t, TensorType) and t.shape.is_ranked}
    return {i: len(type_.shape) for i, type_ in ranked.items() if len(type_.shape) >= 2}


_WINDOWED = {
    "Conv": (7, "float32 float16 bfloat16 float64"), "ConvInteger": (10, "uint8 int8"),
    "MaxPool": (10, "float32 float16 bfloat16 float64 uint8 int8"),
    "AveragePool": (19, "float32 float16 bfloat16 float64"), "LpPool": (18, "float32 float16 bfloat16 float64"),
}  # fmt: skip
"""Of operators that take auto_pad and dilations the first opset with both, and dtypes."""


def _windows(rng: random.Random) -> Drawn:
    """Let windows go over an image, mostly with auto_pad."""
    name = rng.choice(list(_WINDOWED))
    first, dtypes = _WINDOWED[name]
    dtype = getattr(DType, rng.choice(dtypes.split()))
    result = np.random.default_rng(rng.getrandbits(32))
    rank, auto = rng.choice((1, 2, 2, 2, 3)), rng.choice(("SAME_UPPER", "SAME_LOWER") * 3 + ("VALID", "NOTSET"))
    kernel, dilations, strides = ([rng.randint(1, most) for _ in range(rank)] for most in (4, 3, 4))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    is_same = auto.startswith("SAME")
    sizes = [rng.randint(1 if is_same else span, span + 6) for span in spans]
    groups = rng.choice((1, 1, 2)) if name.startswith("Conv") else 1
    lowest = 0 if dtype.is_unsigned else -3
    x = result.integers(lowest, 4, (rng.choice((1, 2)), 2 * groups, *sizes))
    pads = [(0, 0)] * rank
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "kernel_shape": kernel, "auto_pad": auto}
    if is_same:
        outs = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
        lacks = [max(0, (o - 1) * t + p - s) for o, t, p, s in zip(outs, strides, spans, sizes, strict=True)]
        pads = [(n // 2, n - n // 2) if auto == "SAME_UPPER" else (n - n // 2, n // 2) for n in lacks]
    elif auto == "NOTSET":
        pads = [(rng.randrange(k), rng.randrange(k)) for k in kernel]
        attributes["pads"] = [begin for begin, _ in pads] + [end for _, end in pads]
    feeds = {"x": x.astype(np.float32).astype(dtype.numpy)}
    if name.startswith("Conv"):
        attributes["group"] = groups
        kind = getattr(DType, rng.choice(dtypes.split())) if name == "ConvInteger" else dtype
        w = result.integers(0 if kind.is_unsigned else -3, 4, (2 * groups, 2, *kernel))
        feeds["w"] = w.astype(np.float32).astype(kind.numpy)
    elif name == "LpPool":
        attributes["p"] = rng.choice((1, 2, 2, 3))
    elif name == "AveragePool":
        attributes["count_include_pad"] = rng.choice((0, 1))
    node = helper.make_node(name, list(feeds), ["y"], **attributes)
    weights, shown = [], dict(feeds)
    if "w" in feeds and rng.random() < 0.6:
        weights.append(tensor("w", shown.pop("w"), DType.of(feeds["w"].dtype)))
    named = rng.random() < (0.2 if is_same else 0.5)
    inputs = [
        helper.make_tensor_value_info(
            key, DType.of(a.dtype).onnx, [f"{key}{i}" if named and i != 1 else s for i, s in enumerate(a.shape)]
        )
        for key, a in shown.items()
    ]
    graph = helper.make_graph([node], name, inputs, [onnx.ValueInfoProto(name="y")], weights)
    newest = _model(_sources()[0])[0]
    for version in (rng.randint(first, newest.opset_import[0].version), newest.opset_import[0].version):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=newest.ir_version)
        taken = onnx.defs.get_schema(name, version).inputs[0].types
        if dtype.onnx in {TensorProto.DataType.Value(text[7:-1].upper()) for text in taken}:
            break
    if name.endswith("Pool") and _reduced("MaxPool", np.ones_like(x), None, pads, attributes, DType.int8).min() != 1:
        return _windows(rng)  # of a window in the padding alone kernels give the lowest number, -inf, 0 or NaN
    wanted = _reduced(name, x, feeds.get("w"), pads, attributes, dtype)
    return Drawn(f"- {name} {dtype} {auto}", model, shown, [wanted])


def _reduced(
    name: str, x: Array, w: Array | None, pads: list[tuple[int, int]], attributes: Mapping[str, Any], dtype: DType
) -> Array:
    """Return the results of an operator on windows, by NumPy."""
    wide = x.astype(np.float64)
    least: Any = 0
    if name == "MaxPool":
        least = float(ml_dtypes.finfo(dtype.numpy).min) if dtype.is_float else int(dtype.min)  # type: ignore[no-untyped-call]
    around = [(0, 0), (0, 0), *pads]
    filled = np.pad(wide, around, constant_values=least)
    there = np.pad(np.ones_like(wide), around, constant_values=attributes.get("count_include_pad", 0))
    kernel, dilations, strides = (attributes[key] for key in ("kernel_shape", "dilations", "strides"))

    def pieces(array: Array) -> Array:
        outs = [
            (n - (k - 1) * d - 1) // s + 1
            for n, k, d, s in zip(array.shape[2:], kernel, dilations, strides, strict=True)
        ]
        results = []
        for place in itertools.product(*map(range, kernel)):
            starts = [p * d for p, d in zip(place, dilations, strict=True)]
            ranges = [slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, outs, strides, strict=True)]
            results.append(array[(slice(None), slice(None), *ranges)])
        return np.stack(results)

    parts = pieces(filled)
    if w is not None:
        count = attributes["group"]
        halves = zip(np.split(parts, count, axis=2), np.split(w.astype(np.float64), count), strict=True)
        sums = [np.einsum("knc...,fck->nf...", p, f.reshape(*f.shape[:2], -1)) for p, f in halves]
        return np.concatenate(sums, axis=1).astype(np.int32 if name == "ConvInteger" else dtype.numpy)
    if name == "LpPool":
        p = attributes["p"]
        return np.asarray((np.abs(parts) ** p).sum(0) ** (1 / p)).astype(dtype.numpy)
    if name == "AveragePool":
        return np.asarray(parts.sum(0) / pieces(there).sum(0)).astype(dtype.numpy)
    return np.asarray(parts.max(0)).astype(dtype.numpy)


SHAPES: dict[str, Callable[[random.Random], Drawn]] = {
    "empty": _empty, "unnamed": _unnamed, "unknown": _unknown, "windows": _windows, "transposed": _transposed,
}  # fmt: skip


def drawn(shape: str, number: int) -> Drawn:
    """Return the model of a number."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return SHAPES[shape](random.Random(f"{shape} {number}"))


# What is checked


def outcome(shape: str, number: int) -> str:
    """Return "ran", the name of an error, or "wrong: " and what of the model of a number."""
    result = drawn(shape, number)
    session = gc.InferenceSession(intra_op_num_threads=1, inter_op_num_threads=1)
    wanted = result.wanted
    if result.plain is not None:
        try:
            wanted = expected_results(session, result, *result.plain)
        except AssertionError as error:
            if result.fits:
                return f"wrong: {error}"
    content = result.model.SerializeToString()
    failed = ""
    for way, run in WAYS.items():
        try:
            types, match = run(session, content, result.feeds)
        except GraphcoreError as error:
            failed = type(error).__name__
            if (wanted is None or result.may_fail) and not _INTERNAL.search(error.summary):
                continue
            return f"wrong: {result.source}: {way} is refused: {error.summary}"
        except _Written:
            failed = "not written"
            continue
        except Exception as error:
            if (
                failed or not result.fits or (run is _as_file and result.may_fail)
            ):  # of sizes that a kernel does not take
                failed = type(error).__name__
                continue
            return f"wrong: {result.source}: {way} gives {type(error).__name__}: {error}".replace("\n", " ")[:500]
        why = _promise_broken(types, match) or _apart(result, match, wanted)
        if why and result.fits:
            return f"wrong: {result.source}: {way}: {why}"
        wanted = match if wanted is None else wanted
    return failed or "ran"


_INTERNAL = re.compile(r"\b(Key|Type|Index|Value|Attribute|Assertion|ZeroDivision|Recursion)Error\b")
"""Errors of Python that a message tells: of the inside of the library."""


class _Written(Exception):
    """A Graph that is not written as a file."""


def _as_it_is(session: gc.InferenceSession, content: bytes, feeds: Feeds) -> tuple[list[Any], list[Any]]:
    model = session.load(content)
    return list(model.outputs.values()), list(model.execute(feeds, timeout=MAX_LENGTH))


def _as_graph(session: gc.InferenceSession, content: bytes, feeds: Feeds) -> tuple[list[Any], list[Any]]:
    graph = gc.Graph.load(content)
    return list(graph.output_types.values()), list(session.load(graph).execute(feeds, timeout=MAX_LENGTH))


def _as_file(session: gc.InferenceSession, content: bytes, feeds: Feeds) -> tuple[list[Any], list[Any]]:
    graph = gc.Graph.load(content)
    try:
        file = graph.to_onnx().SerializeToString()
    except GraphcoreError as error:
        raise _Written from error
    types = list(graph.output_types.values())
    if not all(isinstance(type_, TensorType) for type_ in types):
        raise _Written  # of sequences, which onnxruntime gives otherwise
    return types, OrtModel(file)(**feeds)


WAYS = {"a session": _as_it_is, "a session of a Graph": _as_graph, "onnxruntime of the file": _as_file}


def expected_results(
    session: gc.InferenceSession, result: Drawn, plain: onnx.ModelProto, feeds: Feeds
) -> list[Any] | None:
    """Return the results of the plain model, moved as the other one moves it. Raises AssertionError where it is
    wrong."""
    try:
        _, match = _as_it_is(session, plain.SerializeToString(), feeds)
    except GraphcoreError:
        return None
    why = _apart(result, match, result.wanted)
    assert not why, f"{result.source}: {why}"
    return [np.transpose(match[i], result.turned[i]) if i in result.turned else value for i, value in enumerate(match)]


def _promise_broken(types: Sequence[Any], result: Sequence[Any]) -> str:
    for type_, value in zip(types, result, strict=True):
        if not isinstance(type_, TensorType) or not isinstance(value, np.ndarray):
            continue
        dims = list(type_.shape) if type_.shape.is_ranked else [None] * value.ndim
        sizes = [int(d) if d is not None and d.is_static else size for d, size in zip(dims, value.shape, strict=False)]
        if len(dims) != value.ndim or sizes != list(value.shape):
            return f"{list(value.shape)} is promised as {type_}"
        if type_.dtype is not DType.string and type_.dtype.numpy != value.dtype:
            return f"{value.dtype} is promised as {type_}"
    return ""


def _apart(result: Drawn, value: Sequence[Any], wanted: Sequence[Any] | None) -> str:
    """Return the difference between results and those expected, or ""."""
    for got, want in zip(value, wanted or (), strict=False):
        if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray):
            continue
        if result.source.split()[1] in DRAWN:
            why = "" if got.shape == want.shape else f"{got.shape}, not {want.shape}"
        else:
            greatest = 1.0
            if want.dtype.kind not in "OUSTb" and want.size:
                greatest += float(np.nanmax(np.where(np.isfinite(exact := reference.exact(want)), np.abs(exact), 0)))
            why = difference(got, want, 2e-5, 1e-6 * greatest)
        if why not in ("", "ok", "near"):
            return f"{why}: {got.tolist()}, not {want.tolist()}"[:300]
    return ""


__all__ = ["SHAPES", "drawn", "outcome"]
