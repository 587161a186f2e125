"""Unpack blocks of GGUF in a graph: constants by NumPy, other values by operations on their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.quantization.tensors import BASE, BLOCKS, ENCODINGS, Array, parts_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

_F32 = DType.float32


def from_known(encoding: str, like: Symbol, data: Array) -> Symbol:
    """Unpack the blocks of an array to float32: DequantizeLinear by blocks, minus the minima."""
    gguf = ENCODINGS[encoding].gguf
    block = BLOCKS[gguf]
    parts = parts_of(data, gguf)
    *leading, row = data.shape
    shape = [*leading, row // block.size * block.elements]
    graph = like.graph
    dtype = DType.uint4 if ENCODINGS[encoding].bits == 4 else DType.uint8
    numbers = graph.build.constant(parts.numbers.reshape(shape).astype(dtype.numpy), dtype)
    group = block.elements // parts.steps.shape[1]
    ends = [*leading, shape[-1] // group]
    scale = graph.build.constant(parts.steps.reshape(ends), _F32)
    zero = graph.build.constant(np.full(ends, block.zero, np.uint8).astype(dtype.numpy), dtype)
    options = {"axis": len(shape) - 1, "block_size": group}
    result = e.emit("DequantizeLinear", numbers, scale, zero, dtype=_F32, shape=Shape(shape), **options)
    if parts.minima is None:
        return result
    minima = graph.build.constant(parts.minima.reshape([*ends, 1]), _F32)
    split = [*ends, group]
    groups = e.emit("Reshape", result, e.ints(result, split), shape=Shape(split))
    return e.emit("Reshape", e.emit("Sub", groups, minima), e.ints(result, shape), shape=Shape(shape))


def from_bytes(encoding: str, data: Symbol) -> Symbol:
    """Unpack the blocks of a Symbol to float32."""
    spec = ENCODINGS[encoding]
    assert spec.block is not None
    assert spec.block_bytes is not None
    count = Dim(int(data.shape[-1]) // spec.block_bytes)
    blocks = _shaped(data, [(data.shape[:-1] + _shape([count])).size, spec.block_bytes], [-1, spec.block_bytes])
    numbers, steps, minima = _PARTS[encoding](blocks)
    total, groups = blocks.shape[0], int(steps.shape[1])
    centred = e.cast(numbers, _F32)
    if zero := BLOCKS[spec.gguf].zero:
        centred = e.emit("Sub", centred, e.const(centred, float(zero)))
    parts = _shaped(centred, [total, groups, spec.block // groups], [-1, groups, spec.block // groups])
    result = e.emit("Mul", e.unsqueeze(steps, -1), parts)
    if minima is not None:
        result = e.emit("Sub", result, e.unsqueeze(minima, -1))
    shape = data.shape[:-1] + _shape([Dim(int(count) * spec.block)])
    return e.emit("Reshape", result, _target(data, shape), shape=shape)


def _target(data: Symbol, shape: Shape) -> Symbol:
    """Return the shape to reshape to: that of the data, with the last dim of `shape`."""
    if shape.is_static:
        return e.ints(data, shape.static_dims)
    leading = e.emit("Shape", data, dtype=DType.int64, shape=Shape([data.rank - 1]), end=-1)
    return e.emit("Concat", leading, e.ints(data, [int(shape[-1])]), shape=Shape([data.rank]), axis=0)


def _shaped(x: Symbol, dims: Sequence[Dim | int], target: Sequence[int]) -> Symbol:
    return e.emit("Reshape", x, e.ints(x, target), shape=Shape(dims))


def _bytes(blocks: Symbol, start: int, end: int) -> Symbol:
    """Return some bytes of each block."""
    shape = _shape([blocks.shape[0], Dim(end - start)])
    if start == 0 and blocks.shape[1] == end:
        return blocks
    return e.emit("Slice", blocks, *(e.ints(blocks, [i]) for i in (start, end, 1)), shape=shape)


def _and(x: Symbol, mask: int) -> Symbol:
    return e.emit("BitwiseAnd", x, e.const(x, mask))


def _or(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("BitwiseOr", x, y)


def _left(x: Symbol, bits: int) -> Symbol:
    return e.emit("Mul", x, e.const(x, 1 << bits))  # wraps, as a shift does


def _right(x: Symbol, bits: int) -> Symbol:
    return e.emit("BitShift", x, e.const(x, bits), direction="RIGHT")


def _half(raw: Symbol) -> Symbol:
    """Read two bytes as float16, in float32."""
    low, high = (e.cast(_bytes(raw, i, i + 1), DType.uint16) for i in (0, 1))
    return e.cast(e.bitcast(_or(low, _left(high, 8)), DType.float16), _F32)


def _fields(raw: Symbol, run: int, bits: int) -> Symbol:
    """Split runs of bytes into bit fields: the lowest bits of a whole run, then the next, and so on."""
    total, size = raw.shape[0], int(raw.shape[1])
    per = 8 // bits
    runs = _shaped(raw, [total, size // run, 1, run], [-1, size // run, 1, run])
    shifts = raw.graph.build.constant(np.arange(0, 8, bits, dtype=np.uint8).reshape(per, 1), DType.uint8)
    split = Shape([total, size // run, per, run])
    fields = _and(e.emit("BitShift", runs, shifts, shape=split, direction="RIGHT"), (1 << bits) - 1)
    return _shaped(fields, [total, size * per], [-1, size * per])


def _joined(first: Symbol, second: Symbol) -> Symbol:
    shape = _shape([first.shape[0], first.shape[1] + second.shape[1]])
    return e.emit("Concat", first, second, shape=shape, axis=1)


def _six_bits(packed: Symbol) -> tuple[Symbol, Symbol]:
    """Unpack eight scales and eight minima of 6 bits each from 12 bytes, as float32."""
    first, second, last = (_bytes(packed, i, i + 4) for i in (0, 4, 8))
    scales = _joined(_and(first, 63), _or(_and(last, 15), _left(_right(first, 6), 4)))
    minima = _joined(_and(second, 63), _or(_right(last, 4), _left(_right(second, 6), 4)))
    return e.cast(scales, _F32), e.cast(minima, _F32)


_Parts = tuple[Symbol, Symbol, Symbol | None]


def _q4_0(b: Symbol) -> _Parts:
    return _fields(_bytes(b, 2, 18), 16, 4), _half(_bytes(b, 0, 2)), None


def _q4_k(b: Symbol) -> _Parts:
    steps, minima = _steps(b)
    return _fields(_bytes(b, 16, 144), 32, 4), steps, minima


def _q5_k(b: Symbol) -> _Parts:
    steps, minima = _steps(b)
    fifth = _left(_fields(_bytes(b, 16, 48), 32, 1), 4)
    return _or(_fields(_bytes(b, 48, 176), 32, 4), fifth), steps, minima


def _steps(b: Symbol) -> tuple[Symbol, Symbol]:
    scales, minima = _six_bits(_bytes(b, 4, 16))
    return e.emit("Mul", _half(_bytes(b, 0, 2)), scales), e.emit("Mul", _half(_bytes(b, 2, 4)), minima)


def _q6_k(b: Symbol) -> _Parts:
    high = _left(_fields(_bytes(b, 128, 192), 32, 2), 4)
    scales = e.cast(e.bitcast(_bytes(b, 192, 208), DType.int8), _F32)
    return _or(_fields(_bytes(b, 0, 128), 64, 4), high), e.emit("Mul", _half(_bytes(b, 208, 210)), scales), None


_PARTS = {"q4_0": _q4_0, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k}


# The digits of weights of two digits of 8 bits


def halves(values: Symbol) -> tuple[Symbol, Symbol]:
    """Return the first and the second digits of a weight int8[2, ...]."""
    cache, keys = values.graph.memory.values, [("half", values.id, place) for place in (0, 1)]
    if keys[0] not in cache:
        array = constant_array(values, outer=True)
        if array is not None:
            digits = [values.graph.build.constant(np.ascontiguousarray(half), DType.int8) for half in array]
        else:
            shape = _shape(values.shape[1:])
            places = [e.const(values, place, DType.int64) for place in (0, 1)]
            digits = [e.emit("Gather", values, place, shape=shape, axis=0) for place in places]
        cache.update(zip(keys, digits, strict=True))
    return cache[keys[0]], cache[keys[1]]


def whole(values: Symbol) -> Symbol:
    """Return 254 times the first digits plus the second, in float32."""
    first, second = (e.cast_within(half, DType.float32) for half in halves(values))
    return e.emit("Add", e.emit("Mul", first, e.const(first, float(BASE))), second)
