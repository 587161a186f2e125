"""Probes of what models of others hold: quantised numbers, strings and bits."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcore.arrays.casting import cast_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.matmul import NARROW_SCALES
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tools.kernel_probe.probes.probe import D, Family, Probe, operator

BYTES = (D.int8, D.uint8)
NIBBLES = (D.int4, D.uint4, D.int2, D.uint2)
EIGHTHS = (D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz)
QUANTIZED = (*BYTES, D.int16, D.uint16, D.int32, *NIBBLES, *EIGHTHS)


def families() -> list[Family]:
    """Return what onnxruntime gets wrong about these, or refuses of what ONNX allows."""
    return [
        Family("Gather of strings copies the first alone of those that go together.", _gathered()),
        Family('StringSplit counts no parts of "".', _split()),
        Family("StringNormalizer fails where its default locale is not installed.", _normalised()),
        Family("BitCast of bytes refuses bools, float8 and the dtype that they have.", [*_viewed()]),
        Family("ConvInteger refuses a zero point for each filter.", [*_convolved()]),
        Family("DequantizeLinear refuses bfloat16, and another float than the scale's.", [*_dequantised()]),
        Family("DequantizeLinear refuses float32 of a scale of float16.", [*_widened()]),
    ]


def _gathered() -> list[Probe]:
    x = [["a", "b"], ["c", "d"]]
    return [
        Probe(D.string, ("Gather",), (x,), operator("Gather", np.array([1]), axis=0), ([["c", "d"]],)),
        Probe(D.string, ("Gather",), (x,), operator("Gather", np.array([1, 0]), axis=0), (x[::-1],)),
        Probe(D.string, ("Gather",), ([x, x],), operator("Gather", np.array([1]), axis=1), ([[x[1]], [x[1]]],)),
    ]


def _split() -> list[Probe]:
    build = operator("StringSplit", delimiter=",")
    want = ([[""], ["a"]], [1, 1])
    return [Probe(D.string, ("StringSplit",), (["", "a"],), build, want, gives=(D.string, D.int64))]


def _normalised() -> list[Probe]:
    build = operator("StringNormalizer", case_change_action="LOWER")
    return [Probe(D.string, ("StringNormalizer",), (["Ab", "cD"],), build, (["ab", "cd"],))]


def _viewed() -> Iterator[Probe]:
    for dtype in BYTES:
        for target in (D.bool, D.float8_e4m3fn, D.float8_e5m2, dtype):
            codes = np.array([0, 1] if target is D.bool else [0, 1, 8, 64])
            want = codes.astype(np.uint8).view(target.numpy)
            want = want.astype(bool) if target is D.bool else cast_array(want, target, D.float32)
            gives = D.bool if target is D.bool else D.float32
            yield Probe(dtype, ("BitCast",), (codes,), _bits(target), (want,), gives=(gives,))


def _bits(target: DType) -> Any:
    def build(graph: Graph, x: Symbol) -> Any:
        (made,) = graph.op("BitCast", [x], {"to": target.onnx}, [x.type.cast(target)])
        return made if target is D.bool else made.cast(D.float32)

    return build


def _convolved() -> Iterator[Probe]:
    for dtype in BYTES:

        def build(graph: Graph, x: Symbol, w: Symbol, dtype: DType = dtype) -> Any:
            zero, zeros = (graph.constant(np.array(n, dtype.numpy)) for n in (0, [1, 2]))
            return graph.op("ConvInteger", [x, w, zero, zeros], {}, [TensorType(D.int32, [1, 2, 3])])

        given = ([[[1, 2, 3]]], [[[3]], [[5]]])
        yield Probe(dtype, ("ConvInteger",), given, build, ([[[2, 4, 6], [3, 6, 9]]],), gives=(D.int32,))


def _dequantised() -> Iterator[Probe]:
    for dtype in QUANTIZED:
        for scale, result in ((D.bfloat16, D.bfloat16), (D.float16, D.float32), (D.float32, D.float16)):
            build, want = functools.partial(_widen, dtype, scale, result), ([0, 0.5, 0.5],)
            codes = ([0, 1, 1],)
            yield Probe(dtype, ("DequantizeLinear",), codes, build, want, types=(D.int32,), gives=(D.float32,))


def _widened() -> Iterator[Probe]:
    """Whose operand and result alone do not tell that there is something to be done."""
    for dtype in (D.int32, *BYTES):
        build, want = functools.partial(_widen, dtype, D.float16, D.float32), ([0, 0.5, 0.5],)
        if dtype in BYTES:
            build = functools.partial(_widen_stored, dtype)
        yield Probe(dtype, (), ([0, 1, 1],), build, want, gives=(D.float32,), names=(NARROW_SCALES,))


def _widen_stored(dtype: DType, graph: Graph, x: Symbol) -> Any:
    given = [x, graph.constant(np.array(0.5, np.float16))]
    return graph.op("DequantizeLinear", given, {"output_dtype": D.float32.onnx}, [x.type.cast(D.float32)])


def _widen(dtype: DType, scale: DType, result: DType, graph: Graph, x: Symbol) -> Any:
    given = [_stored(x, dtype), graph.constant(np.array(0.5, scale.numpy))]
    attributes = {} if scale is result else {"output_dtype": result.onnx}
    (made,) = graph.op("DequantizeLinear", given, attributes, [x.type.cast(result)])
    return made.cast(D.float32)


def _stored(x: Symbol, dtype: DType) -> Symbol:
    return x if dtype is D.int32 else x.cast(D.float32).cast(dtype) if dtype.is_float else x.cast(dtype)
