"""Probes of conversions: casts, bits, quantised numbers; and of strings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphcore.arrays.casting import cast_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.casts import FLOAT8_TO_BOOL, MERGED, OVERFLOWS, PARTS, SATURATES, TWICE
from graphcore.runtime.lowering.targets.traps import NARROW_SCALES
from graphcore.runtime.ort import release
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tools.kernel_probe.probes.probe import INF, NAN, D, Family, Probe, operator

BYTES = (D.int8, D.uint8)
NIBBLES = (D.int4, D.uint4, D.int2, D.uint2)
EIGHTHS = (D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz)
QUANTIZED = (*BYTES, D.int16, D.uint16, D.int32, *NIBBLES, *EIGHTHS)


def families() -> list[Family]:
    """Return the faults of onnxruntime in conversions, and what it refuses although ONNX allows it."""
    return [
        Family("Gather of strings copies the first alone of those that go together.", _gathered()),
        Family('StringSplit counts no parts of "".', _split()),
        Family("StringNormalizer fails where its default locale is not installed.", _normalised()),
        Family("BitCast of bytes refuses bools, float8 and the dtype that they have.", [*_viewed()]),
        Family("ConvInteger refuses a zero point for each filter.", [*_convolved()]),
        Family("DequantizeLinear refuses bfloat16, and another float than the scale's.", [*_dequantised()]),
        Family("DequantizeLinear refuses float32 of a scale of float16.", [*_widened()]),
        Family("A Cast after a Cast is merged with it, and so loses what the first one rounded or wrapped.", _merged()),
        Family("Casts of floats beyond an integer's range give what the processor gives.", _saturated()),
        Family("Casts of wide numbers to narrow floats go through float32 and round twice.", [*_rounded()]),
        Family("Casts to float8 give the greatest number for some that overflow.", _overflowing()),
        Family("Casts of float8 to bool take -0.0 for true, and 2^-127 for false.", [*_truths()]),
        Family("Casts between integers of 2 or 4 bits and bytes take parts of bytes for bytes.", [*_parts()]),
        Family(
            "Memory of integers of 2 or 4 bits is used again for as many bytes, which it has no room for.", [*_reused()]
        ),
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
        (result,) = graph.op("BitCast", [x], {"to": target.onnx}, [x.type.cast(target)])
        return result if target is D.bool else result.cast(D.float32)

    return build


def _convolved() -> Iterator[Probe]:
    for dtype in BYTES:

        def build(graph: Graph, x: Symbol, w: Symbol, dtype: DType = dtype) -> Any:
            zero, zeros = (graph.constant(np.array(n, dtype.numpy)) for n in (0, [1, 2]))
            return graph.op("ConvInteger", [x, w, zero, zeros], {}, [TensorType(D.int32, [1, 2, 3])])

        value = ([[[1, 2, 3]]], [[[3]], [[5]]])
        yield Probe(dtype, ("ConvInteger",), value, build, ([[[2, 4, 6], [3, 6, 9]]],), gives=(D.int32,))


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
    results = [x, graph.constant(np.array(0.5, np.float16))]
    return graph.op("DequantizeLinear", results, {"output_dtype": D.float32.onnx}, [x.type.cast(D.float32)])


def _widen(dtype: DType, scale: DType, result: DType, graph: Graph, x: Symbol) -> Any:
    results = [_stored(x, dtype), graph.constant(np.array(0.5, scale.numpy))]
    attributes = {} if scale is result else {"output_dtype": result.onnx}
    (output,) = graph.op("DequantizeLinear", results, attributes, [x.type.cast(result)])
    return output.cast(D.float32)


def _stored(x: Symbol, dtype: DType) -> Symbol:
    return x if dtype is D.int32 else x.cast(D.float32).cast(dtype) if dtype.is_float else x.cast(dtype)


def of_casts(build: Callable[[Symbol], Any], numbers: Any, want: Any, dtype: DType, gives: DType, *names: str) -> Probe:
    """Return a probe of one operand that goes through casts."""
    return Probe(dtype, (), (numbers,), lambda graph, x: build(x), (want,), gives=(gives,), names=names)


def _merged() -> list[Probe]:
    return [
        of_casts(lambda x: x.cast(D.uint32).cast(D.uint8), [5e9, 300.0], [255, 44], D.float32, D.uint8, MERGED),
        of_casts(lambda x: x.cast(D.bfloat16).cast(D.float32), [1.001], [1.0], D.float32, D.float32, MERGED),
        of_casts(lambda x: x.cast(D.float16).cast(D.float32), [1.0001], [1.0], D.float32, D.float32, MERGED),
        of_casts(lambda x: x.cast(D.int8).cast(D.int32), [300], [44], D.int32, D.int32, MERGED),
        of_casts(lambda x: x.cast(D.float32).cast(D.float64), [2**24 + 1], [2**24], D.int32, D.float64, MERGED),
    ]


def _saturated() -> list[Probe]:
    f32, f64, name = D.float32, D.float64, SATURATES
    return [
        of_casts(lambda x: x.cast(D.int32), [1e30, NAN], [2**31 - 1, 0], f32, D.int32, name),
        of_casts(lambda x: x.cast(D.int64), [1e30, NAN], [2**63 - 1, 0], f64, D.int64, name),
        of_casts(lambda x: x.cast(D.int8), [300.0, -300.0], [127, -128], f32, D.int8, name),
        of_casts(lambda x: x.cast(D.uint64), [-5.0, 0.0], [0, 0], f32, D.uint64, name),
        of_casts(lambda x: x.cast(D.int4).cast(D.int32), [1.7, 9.0], [1, 7], f32, D.int32, name),
        of_casts(lambda x: x.cast(D.uint4).cast(D.int32), [1.7, -3.0], [1, 0], f32, D.int32, name),
    ]


def _there_and_back(dtype: DType, x: Symbol) -> Symbol:
    return x.cast(dtype).cast(D.float32)


def _rounded() -> Iterator[Probe]:
    for dtype, bits in ((D.float16, 11), (D.bfloat16, 8)):
        build = functools.partial(_there_and_back, dtype)
        near, want = [1 + 2.0**-bits + 2.0**-40], [1 + 2.0 ** (1 - bits)]
        yield of_casts(build, near, want, D.float64, D.float32, TWICE)
    for wide in (D.int64, D.uint64):
        build = functools.partial(_there_and_back, D.bfloat16)
        yield of_casts(build, [2**40 + 2**32 + 1], [2**40 + 2**33], wide, D.float32, TWICE)


def _overflowing() -> list[Probe]:
    f32, name = D.float32, OVERFLOWS
    return [
        of_casts(lambda x: x.cast(D.float8_e4m3fn).cast(f32), [465.0, 448.0], [NAN, 448], f32, f32, name),
        of_casts(lambda x: x.cast(D.float8_e5m2).cast(f32), [61440.0, 1.0], [INF, 1], f32, f32, name),
    ]


def _truths() -> Iterator[Probe]:
    for dtype in (D.float8_e4m3fn, D.float8_e5m2):
        build = lambda x, d=dtype: x.cast(d).cast(D.bool)  # noqa: E731
        yield of_casts(build, [-0.0, 0.0, 1.0], [False, False, True], D.float32, D.bool, FLOAT8_TO_BOOL)
    least = lambda x: x.cast(D.float8_e8m0).cast(D.bool)  # noqa: E731
    yield of_casts(least, [2.0**-127, 1.0], [True, True], D.float32, D.bool, FLOAT8_TO_BOOL)


def _parts() -> Iterator[Probe]:
    dtypes = (D.int2, D.uint2, D.int4, D.uint4)
    for dtype in dtypes:
        for target in (D.int8, D.uint8, D.bool, D.float8_e5m2, *dtypes):
            for count in (1, 2, 9, 33):
                numbers = np.resize(np.arange(int(dtype.min), int(dtype.max) + 1), count)
                stored = cast_array(cast_array(numbers, D.int64, dtype), dtype, target)
                want = cast_array(stored, target, D.float32)
                build = lambda x, d=dtype, t=target: x.cast(d).cast(t).cast(D.float32)  # noqa: E731
                yield of_casts(build, numbers, want, D.int32, D.float32, PARTS)
    negative = lambda x: (-x.cast(D.int2)).cast(D.int32)  # noqa: E731
    yield of_casts(negative, [True] * 9, [-1] * 9, D.bool, D.int32, PARTS)


def _reused() -> Iterator[Probe]:
    for dtype, target in itertools.product(
        (D.int2, D.uint2, D.int4, D.uint4), (D.int8, D.uint8, D.bool, D.float8_e5m2)
    ):
        numbers = np.resize([0, 1], 1000)
        build = lambda x, d=dtype, t=target: x.cast(d).cast(t).cast(D.float32)  # noqa: E731
        probe = of_casts(build, numbers, numbers, D.int32, D.float32, release.MEMORY)
        yield replace(probe, in_session=True, dies=True)
