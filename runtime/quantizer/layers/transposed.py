"""Transposed convolutions as convolutions, of which onnxruntime has a kernel of bytes.

With a stride s each result lies at one of s phases between two numbers of x, and those of a phase are a convolution of
x with every s-th number of the filters. One convolution gives all phases as channels, and DepthToSpace puts them side
by side ("sub-pixel convolution", Shi et al. 2016, https://arxiv.org/abs/1609.05158).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_EVERY = slice(None)

LEAST = 64
"""The products of a result from which on bytes are faster: channels of x, times numbers of a filter in a phase."""


def misfit(node: Node) -> str:
    """Return why a ConvTranspose is no convolution with phases as channels, or ""."""
    given, sizes, x = node.attributes, _sizes(node), node.inputs[0]
    if x is None or not x.shape.is_ranked:
        return "the rank of what comes in is not known"
    if len(sizes) > 2:
        return "phases of more than two axes have no operator"
    if given.get("group", 1) != 1:
        return "its filters are in groups"
    if given.get("auto_pad", "NOTSET") != "NOTSET" or given.get("output_shape"):
        return "its padding follows from the size of the result"
    if len({*_strides(node)}) > 1 or any(step != 1 for step in given.get("dilations", ())):
        return "its strides differ, or its filters have gaps"
    ends = _pads(node)[len(sizes) :]
    more = given.get("output_padding", [0] * len(sizes))
    for size, stride, begin, end, rest in zip(sizes, _strides(node), _pads(node), ends, more, strict=False):
        if size - begin - end + rest != stride:
            return f"its result is not {stride} times as long as what comes in"
    return ""


def is_small(node: Node) -> bool:
    """Return whether a ConvTranspose is faster in floats: what DepthToSpace moves is more than bytes save."""
    weight = node.inputs[1]
    assert weight is not None
    return int(weight.shape[0]) * math.prod(_sizes(node)) < LEAST * math.prod(_strides(node))


def phases(node: Node) -> int:
    """Return how many channels of the convolution are one of the result."""
    return math.prod(_strides(node))


def as_filters(node: Node, filters: Array) -> Array:
    """Return the filters of the convolution, [channels * phases, of x, ...], of those of a ConvTranspose."""
    spans, stride = _spans(node), _strides(node)[0]
    lengths = [last - first + 1 for first, last in spans]
    rank = len(spans)
    made = np.zeros((filters.shape[1], *[stride] * rank, filters.shape[0], *lengths), filters.dtype)
    for phase in itertools.product(range(stride), repeat=rank):
        for place in itertools.product(*map(range, lengths)):
            # x[q + j] meets the filter at phase + pad - j * stride in the result at q * stride + phase.
            at = [
                own + pad - (where + first) * stride
                for own, pad, where, (first, _) in zip(phase, _pads(node), place, spans, strict=False)
            ]
            if all(0 <= k < size for k, size in zip(at, _sizes(node), strict=True)):
                target: Any = (_EVERY, *phase, _EVERY, *place)
                source: Any = (_EVERY, _EVERY, *at)
                made[target] = filters[source].T
    return made.reshape(-1, filters.shape[0], *lengths)


def pads(node: Node) -> list[int]:
    """Return the padding of the convolution."""
    spans = _spans(node)
    return [-first for first, _ in spans] + [last for _, last in spans]


def channels_type(node: Node, x: Symbol) -> TensorType:
    """Return the type of what the convolution gives, float32."""
    count = Dim(int(_weight_shape(node)[1]) * phases(node))
    return tensor_type(DType.float32, _shape([x.shape[0], count, *tuple(x.shape)[2:]]))


def side_by_side(graph: Graph, numbers: Symbol, node: Node) -> Symbol:
    """Return bytes of all phases in the places of the result."""
    build, stride, channels = graph.build, _strides(node)[0], int(_weight_shape(node)[1])
    type_ = tensor_type(DType.uint8, node.outputs[0].shape)
    if stride == 1:
        return numbers
    if len(_sizes(node)) == 2:
        return build.emit("DepthToSpace", (numbers,), type_, {"blocksize": stride, "mode": "CRD"})
    first, _, length = numbers.shape
    int64 = tensor_type(DType.int64, _shape([Dim(1)]))
    count = build.emit("Shape", (numbers,), int64, {"start": 2, "end": 3})
    apart = build.emit("Concat", (build.vector([0, channels, stride]), count), _sized(4), {"axis": 0})
    total = build.emit("Mul", (count, build.vector([stride])), int64)
    together = build.emit("Concat", (build.vector([0, channels]), total), _sized(3), {"axis": 0})
    known = [first, Dim(channels), Dim(stride), length]
    made = build.emit("Reshape", (numbers, apart), tensor_type(DType.uint8, _shape(known)))
    turned = tensor_type(DType.uint8, _shape([known[i] for i in (0, 1, 3, 2)]))
    made = build.emit("Transpose", (made,), turned, {"perm": [0, 1, 3, 2]})
    return build.emit("Reshape", (made, together), type_)


def _sized(count: int) -> TensorType:
    return tensor_type(DType.int64, _shape([Dim(count)]))


def _weight_shape(node: Node) -> tuple[int, ...]:
    weight = node.inputs[1]
    assert weight is not None
    return tuple(weight.shape.static_dims)


def _sizes(node: Node) -> tuple[int, ...]:
    return _weight_shape(node)[2:]


def _strides(node: Node) -> list[int]:
    return list(node.attributes.get("strides", [1] * len(_sizes(node))))


def _pads(node: Node) -> list[int]:
    return list(node.attributes.get("pads", [0] * 2 * len(_sizes(node))))


def _spans(node: Node) -> list[tuple[int, int]]:
    """Return the first and the last place of x, beside its own, that a result depends on, for each axis."""
    spans = zip(_sizes(node), _pads(node), _strides(node), strict=False)
    return [(-((size - 1 - pad) // stride), (stride - 1 + pad) // stride) for size, pad, stride in spans]
