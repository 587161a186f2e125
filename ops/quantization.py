"""Quantisation, dequantisation, and products with weights that stay quantised."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.arrays.casting import native
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import graph_of, operand, promote_one
from graphcore.build.shapes import axis_of, same_dim
from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_array
from graphcore.quantization import encoders
from graphcore.quantization.tensors import Encoding, Quantized, QuantizedTensor, checked, encoding_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_WEIGHT = "give a QuantizedTensor, the result of ops.quantize, an array of floats, or blocks of GGUF in uint8"


@op(onnx="QuantizeLinear", rule="float")
def quantize(
    x: TensorLike,
    encoding: str | Encoding = "int8",
    *,
    axis: int | None = None,
    block_size: int | None = None,
    symmetric: bool = True,
) -> Quantized:
    """`x` quantised in an encoding: its numbers, their scales and zero points.

    Args:
        x: Of any shape; promotion `float`, computed in float32. Arrays are encoded immediately, in any encoding;
            Symbols are quantised when the graph runs, to int8 or int4.
        axis: For int8, the axis with one scale per index; None for a single scale.
        block_size: For int4, a power of two >= 16 (by default 32) along the last axis.
        symmetric: Without zero points. The numbers are those of `graphcore.quantization.encode`.

    Returns:
        A `Quantized`: the Symbols `values`, `scale` (float32) and `zero_point` (or None). If x has NaN or infinity when
        the graph runs, every number with the same scale is NaN once dequantised.

    Raises:
        DTypeError: For unknown encodings and arguments.
        ShapeError: For a last axis that is not divisible into blocks or of unknown size.
        ModelError: For NaN and infinity in an array.

    ONNX QuantizeLinear with computed scales.
    """
    chosen = encoding_of("quantize", encoding)
    encoders.check_arguments("quantize", chosen, axis, block_size, symmetric)
    symbol, _ = promote_one("quantize", "float", x)
    array = constant_array(symbol)
    if array is not None:
        encoded = encoders.encode(array, chosen, axis=axis, block_size=block_size, symmetric=symmetric)
        return _as_constants(symbol.graph, encoded)
    if chosen.block_bytes is not None or chosen.name == "int8_split":
        raise DTypeError(
            f"quantize: {chosen} needs an array, got a Symbol that is computed at run time",
            operands={"x": symbol},
            help="encode an array, or quantise to int8 or int4",
        )
    attributes: dict[str, Any] = {"encoding": chosen.name, "symmetric": int(symmetric)}
    shape, of_scales = symbol.shape, _shape([])
    dtype = DType.int8 if symmetric else DType.uint8
    if chosen.name == "int4":
        dtype = DType.uint4
        block = attributes["block_size"] = block_size or encoders.BLOCK_SIZE
        last = _last("quantize", symbol, "x")
        encoders.check_blocks("quantize", chosen, (last,), block)
        of_scales = shape[:-1] + _shape([Dim(last // block)])
    elif axis is not None:
        axis = attributes["axis"] = axis_of("quantize", axis, symbol.rank, {"x": symbol})
        of_scales = _shape([shape[axis]])
    types = [tensor_type(dtype, shape), tensor_type(DType.float32, of_scales)]
    if not symmetric:
        types.append(tensor_type(dtype, of_scales))
    values, scale, *zeros = symbol.graph.build.emit_many("Quantize", (symbol,), types, attributes, LIBRARY)
    zero = zeros[0] if zeros else None
    return Quantized(chosen.name, values, scale, zero, axis, attributes.get("block_size"))


@op(onnx="DequantizeLinear", rule="keep")
def dequantize(
    encoding: str | Encoding | Quantized | QuantizedTensor,
    quantized: Quantized | QuantizedTensor | TensorLike | None = None,
) -> Symbol:
    """The floats that quantised values represent.

    Args:
        encoding: A name, followed by `quantized`; or only the quantised value, which has an encoding.
        quantized: A `Quantized`, a `QuantizedTensor`, or blocks of GGUF: uint8[..., bytes of a row].

    Returns:
        Float32 of the unpacked shape, equal bit for bit to `QuantizedTensor.dequantize`.

    Raises:
        DTypeError: For other encodings and dtypes.
        ShapeError: For rows that are not whole blocks.
        ModelError: For parts that do not match.

    ONNX DequantizeLinear; bit operations and sums for GGUF's encodings.
    """
    if isinstance(encoding, (Quantized, QuantizedTensor)):
        if quantized is not None:
            raise DTypeError("dequantize: got two quantised values", help="give one: ops.dequantize(quantized)")
        quantized = encoding
        encoding = quantized.encoding
    if quantized is None:
        raise DTypeError("dequantize: no quantised value", help="call ops.dequantize(encoding, quantized)")
    chosen = encoding_of("dequantize", encoding)
    parts = _quantized("dequantize", "quantized", chosen, quantized, graph_of("dequantize", _symbols(quantized)))
    return _dequantized(parts, chosen)


def _dequantized(parts: Quantized, chosen: Encoding) -> Symbol:
    values = parts.values
    attributes: dict[str, Any] = {"encoding": chosen.name}
    if parts.axis is not None:
        attributes["axis"] = parts.axis
    if parts.block_size is not None:
        attributes["block_size"] = parts.block_size
    inputs = _inputs(parts)
    type_ = tensor_type(DType.float32, _dequantized_shape("dequantize", parts, chosen))
    return values.graph.build.emit("Dequantize", inputs, type_, attributes, LIBRARY)


@op(onnx="MatMulInteger", rule="float")
def qmatmul(
    encoding: str | Encoding,
    x: TensorLike,
    weight: Quantized | QuantizedTensor | TensorLike,
    *,
    dynamic: bool = False,
    digits: int = 1,
    accuracy_level: int = 0,
    axis: int | None = 0,
    block_size: int | None = None,
    symmetric: bool = True,
) -> Symbol:
    """The product of x with a transposed quantised weight: x @ dequantize(weight).T.

    Args:
        encoding: With "int8_split" x is also split into two digits of 8 bits when the graph runs, and three of the four
            products of digits are computed, as exact integer sums, within the error bound in docs/quantization.md.
        x: [..., k]; promotion `float`.
        weight: [n, k] as a `QuantizedTensor`, a `Quantized`, blocks of GGUF in uint8 (an array or a Symbol), or an
            array of floats, which is encoded immediately with `axis`, `block_size` and `symmetric`, as by
            `graphcore.quantization.encode` with `search=True`, so that int8 has a scale for each of the n rows.
        dynamic: For int8 only; int8_split always is. x is also quantised when the graph runs, as one tensor to uint8:
            the result equals, bit for bit, that of ONNX's DynamicQuantizeLinear and MatMulInteger, converted to float32
            and multiplied by (scale of x * scale of weight). Every element is NaN if x has NaN or infinity.
        digits: For dynamic int8; with 2, x is split as for int8_split and the products of both digits are summed;
            docs/quantization.md has the error bound.
        accuracy_level: 0 sums the products of x and the dequantised weight in float32 (float64 if x is float64); 4 lets
            the CPU kernel round x to int8 with a scale per block, an error of about 1 % but faster, for constant
            weights.

    Returns:
        [..., n] in the float dtype of x, rounded once.

    Raises:
        DTypeError: For other dtypes, encodings and levels.
        ShapeError: For shapes that do not match or are not divisible into blocks.
        ModelError: For a weight with NaN or infinity, or whose parts do not match.

    MAX's `qmatmul`; com.microsoft MatMulNBits and MatMulIntegerToFloat on the CPU if the weight is constant when the
    graph is lowered, and ONNX DequantizeLinear and MatMul otherwise.
    """
    chosen = encoding_of("qmatmul", encoding)
    is_split = chosen.name == "int8_split"
    if dynamic and chosen.name != "int8" and not is_split:
        raise DTypeError(f"qmatmul: dynamic needs int8, got {chosen}", help="omit dynamic, or use accuracy_level=4")
    if type(digits) is not int or digits not in (1, 2) or (digits == 2 and (not dynamic or is_split)):
        raise DTypeError(
            f"qmatmul: digits={digits!r:.80} is not possible",
            help="give 1 or 2 for int8 with dynamic=True; int8_split always has 2",
        )
    if accuracy_level not in (0, 4) or isinstance(accuracy_level, bool):
        raise DTypeError(
            f"qmatmul: accuracy_level must be 0 or 4, got {accuracy_level!r}", help="0 is exact, 4 is faster"
        )
    if is_split and accuracy_level:
        raise DTypeError(f"qmatmul: {chosen} has no accuracy_level", help="omit it, or encode the weight in int8")
    graph = graph_of("qmatmul", (x, *_symbols(weight)))
    with graph:
        symbol, dtype = promote_one("qmatmul", "float", x)
    if not isinstance(weight, (Quantized, QuantizedTensor)):
        weight = _encode_weight(chosen, weight, axis, block_size, symmetric)
    parts = _quantized("qmatmul", "weight", chosen, weight, graph)
    shape = _dequantized_shape("qmatmul", parts, chosen)
    roles = {"x": symbol, "weight": parts.values}
    if len(shape) != 2:
        raise ShapeError(
            f"qmatmul: the weight must be [n, k], got rank {len(shape)}", operands=roles, help="give a matrix"
        )
    if parts.axis not in (None, 0):
        raise ShapeError(
            "qmatmul: the weight has scales along k, the axis of the sum",
            operands=roles,
            help="encode it with axis=0, or with one scale",
        )
    if not symbol.rank:
        raise ShapeError("qmatmul: x must be [..., k], got a scalar", operands=roles, help="multiply with x * weight")
    if not same_dim(symbol.shape[-1], shape[1]):
        raise ShapeError(
            f"qmatmul: inner dimensions differ: {symbol.shape[-1]} and {shape[1]}",
            operands=roles,
            help=f"the weight is [n, k] and is transposed: the last dim of x must be {shape[1]}",
        )
    attributes: dict[str, Any] = {"encoding": chosen.name}
    if parts.block_size is not None:
        attributes["block_size"] = parts.block_size
    if dynamic and not is_split:
        attributes["dynamic"] = 1
        if digits == 2:
            attributes["digits"] = 2
    if accuracy_level:
        attributes["accuracy_level"] = accuracy_level
    type_ = tensor_type(dtype, symbol.shape[:-1] + shape[:1])
    return graph.build.emit("QMatMul", (symbol, *_inputs(parts)), type_, attributes, LIBRARY)


def _symbols(value: object) -> tuple[object, ...]:
    """Return the Symbols that determine the graph."""
    if isinstance(value, Quantized):
        return (value.values,)
    return () if isinstance(value, QuantizedTensor) else (value,)


def _inputs(parts: Quantized) -> tuple[Symbol, ...]:
    return tuple(s for s in (parts.values, parts.scale, parts.zero_point) if s is not None)


def _as_constants(graph: Graph, tensor: QuantizedTensor) -> Quantized:
    """Return the arrays of a tensor as constants, cached per tensor and graph."""
    cache: dict[int, tuple[QuantizedTensor, Quantized]] = graph.memory.tensors
    cached = cache.get(id(tensor))
    if cached is None:
        data, scales, zeros = tensor.data, tensor.scales, tensor.zero_points
        values = DType.int8 if data.dtype == np.int8 else DType.uint8
        parts = Quantized(
            tensor.encoding.lower(),
            graph.build.constant(native(data), values),
            None if scales is None else graph.build.constant(native(scales), DType.float32),
            None if zeros is None else graph.build.constant(native(zeros), DType.uint8),
            tensor.axis,
            tensor.block_size,
        )
        cached = cache[id(tensor)] = tensor, parts  # keeps the tensor alive, so that no other gets its id
    return cached[1]


def _encode_weight(
    chosen: Encoding, weight: Any, axis: int | None, block_size: int | None, symmetric: bool
) -> QuantizedTensor | Symbol:
    """Encode a weight of floats; return blocks unchanged."""
    if isinstance(weight, Symbol):
        if weight.dtype.is_float:
            raise DTypeError(
                "qmatmul: the weight must be quantised, got a Symbol of floats", operands={"weight": weight},
                help="quantise it first, ops.quantize(weight, ...), or give an array",
            )  # fmt: skip
        return weight
    if not isinstance(weight, np.ndarray):
        raise DTypeError(f"qmatmul: the weight must be an array, got {type(weight).__name__}", help=_WEIGHT)
    if chosen.block_bytes is not None and weight.dtype == np.uint8:
        rows = encoders.whole_blocks("qmatmul", chosen, weight.shape[-1] if weight.ndim else 0)
        return QuantizedTensor(chosen.gguf, (*weight.shape[:-1], rows), weight)
    scales = axis if chosen.name in ("int8", "int8_split") else None
    if weight.ndim != 2:
        raise ShapeError(f"qmatmul: the weight must be [n, k], got rank {weight.ndim}", help="give a matrix")
    search = chosen.name == "int4"
    return encoders.encode(weight, chosen, axis=scales, block_size=block_size, symmetric=symmetric, search=search)


def _quantized(op_name: str, role: str, chosen: Encoding, value: Any, graph: Graph) -> Quantized:
    """Return a quantised value as Symbols of the graph. Raises errors for values that do not match the encoding."""
    if isinstance(value, (Quantized, QuantizedTensor)) and value.encoding.lower() != chosen.name:
        raise DTypeError(
            f"{op_name}: {role} is encoded in {value.encoding}, not in {chosen}",
            help=f'give its encoding: "{value.encoding.lower()}"',
        )
    if isinstance(value, QuantizedTensor):
        return _as_constants(graph, checked(value))
    if isinstance(value, Quantized):
        symbols = [
            None if s is None else operand(op_name, s, role) for s in (value.values, value.scale, value.zero_point)
        ]
        assert symbols[0] is not None
        return Quantized(chosen.name, symbols[0], symbols[1], symbols[2], value.axis, value.block_size)
    symbol = graph.build.operand(value, op_name, role)
    if chosen.block_bytes is None:
        raise DTypeError(f"{op_name}: numbers of {chosen} need scales", operands={role: symbol}, help=_WEIGHT)
    if symbol.dtype is not DType.uint8:
        raise DTypeError(
            f"{op_name}: {role} must be blocks of {chosen} in uint8, got {symbol.dtype}",
            operands={role: symbol},
            help=_WEIGHT,
        )
    return Quantized(chosen.name, symbol)


def _last(op_name: str, symbol: Symbol, role: str) -> int:
    """Return the last dim, which must be static."""
    if not symbol.shape.is_ranked or not symbol.rank or not symbol.shape[-1].is_static:
        raise ShapeError(
            f"{op_name}: the last dim of {role} must be static, as blocks lie along it",
            operands={role: symbol},
            help="declare it: ops.rebind(x, [..., 4096])",
        )
    return int(symbol.shape[-1])


def _dequantized_shape(op_name: str, parts: Quantized, chosen: Encoding) -> Shape:
    """Return the shape of the dequantised tensor. Raises `ModelError` for parts that do not match."""
    values, scale, zero = parts.values, parts.scale, parts.zero_point
    roles = {role: s for role, s in (("values", values), ("scale", scale), ("zero_point", zero)) if s is not None}
    shape = values.shape
    if chosen.block_bytes is not None:
        row = encoders.whole_blocks(op_name, chosen, _last(op_name, values, "quantized"))
        _check(op_name, roles, values.dtype is DType.uint8, f"blocks of {chosen} must be uint8")
        return shape[:-1] + _shape([Dim(row)])
    if scale is None:
        raise ModelError(f"{op_name}: numbers of {chosen} need scales", operands=roles, help=_WEIGHT)
    of_scales = _shape([])
    if chosen.name == "int4":
        last = _last(op_name, values, "quantized") * (2 if values.dtype is DType.uint8 else 1)  # two per byte
        block = parts.block_size
        fits = type(block) is int and block >= 16 and not block & block - 1 and not last % block
        _check(op_name, roles, fits, f"the block size {block} must be a power of two >= 16 that divides {last}")
        assert block is not None
        dtypes = [DType.uint4, DType.uint8]
        _check(op_name, roles, values.dtype in dtypes, "numbers of int4 must be uint4, or two in a byte")
        shape, of_scales = shape[:-1] + _shape([Dim(last)]), shape[:-1] + _shape([Dim(last // block)])
    else:
        dtypes = [DType.int8 if zero is None else DType.uint8]
        if chosen.name == "int8_split":
            fits = zero is None and len(shape) > 0 and same_dim(shape[0], Dim(2))
            _check(op_name, roles, fits, "digits must be [2, ...], without zero points")
            shape = shape[1:]
        _check(op_name, roles, values.dtype in dtypes, "numbers must be int8, or uint8 with a zero point")
        if parts.axis is not None:
            of_scales = _shape([shape[axis_of(op_name, parts.axis, len(shape), roles)]])
    _check(op_name, roles, scale.dtype is DType.float32, "scales must be float32")
    for part in (scale, zero):
        if part is not None:
            same = len(part.shape) == len(of_scales) and all(map(same_dim, part.shape, of_scales))
            _check(op_name, roles, same, f"scales and zero points must be {list(of_scales)}")
    _check(op_name, roles, zero is None or zero.dtype in dtypes, f"zero points must be {dtypes[-1]}")
    return shape


def _check(op_name: str, roles: dict[str, Symbol], holds: bool, rule: str) -> None:
    if not holds:
        raise ModelError(f"{op_name}: the parts do not match: {rule}", operands=roles, help=_WEIGHT)


def _expansions() -> Any:
    from graphcore.ops.shared import quantized_products  # 8 ms, which few graphs need

    return quantized_products


@expansion("Quantize")
def _quantize(x: Symbol, *, encoding: str, symmetric: int, axis: int | None = None, block_size: int = 0) -> Any:
    return _expansions().quantized(x, encoding, bool(symmetric), axis, block_size)


@expansion("Dequantize")
def _dequantize(values: Symbol, *parts: Symbol, encoding: str, axis: int = 0, block_size: int = 0) -> Any:
    return _expansions().dequantized(encoding, values, parts, axis, block_size)


@expansion("QMatMul")
def _qmatmul(
    x: Symbol,
    values: Symbol,
    *parts: Symbol,
    encoding: str,
    block_size: int = 0,
    dynamic: int = 0,
    digits: int = 1,
    accuracy_level: int = 0,
) -> Any:
    return _expansions().matmul(x, values, parts, encoding, block_size, is_dynamic=bool(dynamic), digits=digits)
