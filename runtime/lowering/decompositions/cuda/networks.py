"""Recurrent networks and transposed convolutions: cuDNN computes some forms, the provider leaves others to the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.ir.symbol import Symbol, present
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions import bits, recurrent
from graphcore.runtime.lowering.decompositions.recurrent import pad_empty
from graphcore.runtime.lowering.decompositions.reductions import merge_reduced_axes
from graphcore.runtime.lowering.decompositions.windows import convolve_transposed, kernel_of, steps_and_pads
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_ACTIVATIONS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_PEEPHOLES = 7
"""The position of an LSTM's peepholes."""
_END = (1 << 63) - 1


def lack_of_recurrent(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> str:
    """Return why cuDNN does not compute a recurrent network; "" if it does."""
    for name in ("activation_alpha", "activation_beta", "clip"):
        if attributes.get(name):
            return f"no kernel that takes {name}"
    names = [name.lower() for name in attributes.get("activations") or ()]
    default_names = _ACTIVATIONS[op_type]
    if names and names != default_names * (len(names) // len(default_names)):
        return "no kernel with other activations"
    if attributes.get("input_forget"):
        return "no kernel that couples input and forget gates"
    if op_type == "GRU" and not attributes.get("linear_before_reset"):
        return "no kernel without linear_before_reset"
    if len(inputs) > _PEEPHOLES and inputs[_PEEPHOLES] is not None:
        return "no kernel with peepholes"
    return ""


def run_recurrent(b: Builder, call: OpCall) -> Replacement:
    """Compute RNN, GRU and LSTM by the kernels, step by step, or on the CPU."""
    if call.attributes.get("layout"):
        return recurrent.batch_second(b, call)
    lack = lack_of_recurrent(call.op, call.inputs, call.attributes)
    if call.inputs[0].dtype is DType.float64:
        results = recurrent.unroll(b, call)
        if results is not None or not lack:
            return results
    if not lack:
        return pad_empty(b, call)
    if call.op == "GRU":  # with the attribute omitted the provider would use its wrong kernel
        call = call._replace(attributes={"linear_before_reset": 0, **call.attributes})
    return b.on_host(call)


def lack_of_transposed(attributes: Mapping[str, Any]) -> str:
    """Return why cuDNN does not compute a transposed convolution; "" if it does."""
    pads = list(attributes.get("pads") or ())
    is_uneven = pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    is_automatic = attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return "no kernel for padding that may differ at both ends" if is_uneven or is_automatic else ""


def convolve_evenly(b: Builder, call: OpCall) -> Replacement:
    """Compute ConvTranspose with the smaller padding at both ends, and cut the rest off the result."""
    if not lack_of_transposed(call.attributes):
        return None
    axis_pads = _pads(b, call) if call.shape.is_ranked else None
    if axis_pads is None:
        return convolve_transposed(b, call)
    least = [min(pair) for pair in axis_pads]
    cut = [(before - n, after - n) for (before, after), n in zip(axis_pads, least, strict=True)]
    dims = [d + sum(pair) for d, pair in zip(call.shape[2:], cut, strict=True)]
    attributes = {name: value for name, value in call.attributes.items() if name != "auto_pad"}
    whole = b.native(call.op, *call.inputs, shape=_shape([*call.shape[:2], *dims]), **{**attributes, "pads": 2 * least})
    if not any(map(any, cut)):
        return whole
    axes = range(2, 2 + len(cut))
    ends = [-after if after else _END for _, after in cut]
    starts = [before for before, _ in cut]
    return b.native("Slice", whole, b.vector(starts), b.vector(ends), b.vector(axes), shape=call.shape)


def _pads(b: Builder, call: OpCall) -> list[tuple[int, int]] | None:
    """Return the padding of each axis; None if it depends on unknown sizes or on the result."""
    attributes = call.attributes
    if attributes.get("output_shape"):
        return None
    pads = attributes.get("pads") or []
    automatic = attributes.get("auto_pad", "NOTSET")
    if automatic not in ("SAME_UPPER", "SAME_LOWER"):
        return list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True))
    kernel = kernel_of(b, call.inputs[1], attributes)
    if any(isinstance(size, Symbol) for size in kernel):
        return None
    strides, dilations, _ = steps_and_pads(attributes, len(kernel))
    extras = attributes.get("output_padding") or [0] * len(kernel)
    axis_pads = []
    for size, stride, dilation, extra in zip(map(int, kernel), strides, dilations, extras, strict=True):
        both = (size - 1) * dilation + 1 + extra - stride  # leaves `stride` result elements for each element
        if both < 0:
            return None
        half = both // 2
        axis_pads.append((half, both - half) if automatic == "SAME_UPPER" else (both - half, half))
    return axis_pads


# Products along an axis, for which there is no exact kernel: by halves, or by doubling distances.


def reduce_product(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceProd of integers by multiplying halves until one is left. Unknown sizes are left to the CPU."""
    x = call.inputs[0]
    if x.dtype.bits < 32:
        return None
    flat, finish = merge_reduced_axes(b, call)
    if finish is None:
        return b.op("Identity", x)
    if not flat.shape[-1].is_static:
        return b.on_host(call)
    axis = flat.rank - 1
    size = int(flat.shape[-1])
    if not size:
        return b.on_host(call)
    while size > 1:
        half = size // 2
        product = b.native("Mul", bits.part(b, flat, axis, 0, half), bits.part(b, flat, axis, half, 2 * half))
        last = [bits.part(b, flat, axis, 2 * half, size)] if size % 2 else []
        size = half + len(last)
        flat = bits.concatenated(b, [product, *last], axis, Dim(size)) if last else product
    return finish(b.native("Squeeze", flat, b.vector([axis]), shape=flat.shape[:-1]))


def running_product(b: Builder, call: OpCall) -> Replacement:
    """Compute CumProd as `bits` does. Unknown sizes are left to the CPU."""
    x, where = call.inputs
    axis = b.array_of(where)
    if axis is None or any(call.attributes.values()) or not x.shape[int(axis.reshape(()))].is_static:
        return b.on_host(call)
    return bits.running_product(b, call)


def norm(b: Builder, call: OpCall) -> Replacement:
    """Compute LpNormalization; a vector of zeros stays unchanged."""
    (x,) = call.inputs
    axis = call.attributes.get("axis", -1) % x.rank
    size = b.native(f"ReduceL{call.attributes.get('p', 2)}", x, b.vector([axis]), keepdims=1)
    is_zero = b.native("Equal", size, b.scalar(0.0, x.dtype))
    return b.native("Div", x, b.native("Where", is_zero, b.scalar(1.0, x.dtype), size))


# Sums of integers in float64, in pieces that stay exact: the kernels use float32, or are missing.

F64, I64 = DType.float64, DType.int64

_MAX_EXACT_TERMS = 1 << 21
"""The sum of so many 32-bit numbers is exact in float64."""


def pieces(b: Builder, x: Symbol, bits: int, width: int) -> list[Symbol]:
    """Return int64 numbers of `bits` bits as float64 pieces of `width` bits, lowest first; the last has the sign."""
    lower = []
    size = b.scalar(1 << width, I64)
    while bits > width:
        low = b.native("Mod", x, size)
        lower.append(b.native_cast(low, F64))
        x = b.native("Div", b.native("Sub", x, low), size)
        bits -= width
    return [*lower, b.native_cast(x, F64)]


def joined(b: Builder, parts: list[Symbol], width: int) -> Symbol:
    """Return the int64 numbers of `pieces`, wrapped."""
    total = b.native_cast(parts[0], I64)
    for i, part in enumerate(parts[1:], 1):
        weight = 1 << width * i
        weighed = b.native("Mul", b.native_cast(part, I64), b.scalar(weight, I64))
        total = b.native("Add", total, weighed)
    return total


def _reduced_count(b: Builder, inputs: Sequence[Any]) -> int | None:
    """Return the number of elements that are added to one; None if it is unknown."""
    x = inputs[0]
    if not x.shape.is_ranked:
        return None
    axes = b.array_of(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    count = (x.shape if axes is None else _shape([x.shape[int(a)] for a in axes])).size
    return int(count) if count.is_static else None


def sum_integers(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceSum in float64: each piece's sum is exact in any order, and together they wrap."""
    x = call.inputs[0]
    dtype = x.dtype
    wide = b.native_cast(x, I64)
    count = _reduced_count(b, call.inputs)
    width = 32 if dtype.bits <= 16 or (count is not None and count <= _MAX_EXACT_TERMS) else 22
    shape = call.shape
    parts = pieces(b, wide, dtype.bits, width)
    total = joined(b, [b.native(call.op, p, *call.inputs[1:], shape=shape, **call.attributes) for p in parts], width)
    return b.native_cast(total, dtype)


def matmul(b: Builder, call: OpCall) -> Replacement:
    """Compute MatMul by 16-bit pieces, as many as the result's bits need; exact for 2^21 products in a sum."""
    inner = call.inputs[0].shape[-1]
    if inner.is_static and int(inner) > _MAX_EXACT_TERMS:
        return b.on_host(call)
    return _products(b, call)


def einsum(b: Builder, call: OpCall) -> Replacement:
    """Compute Einsum of one or two operands as `matmul` does."""
    if len(call.inputs) == 1:
        x = call.inputs[0]
        parts = pieces(b, b.native_cast(x, I64), x.dtype.bits, 22)
        total = joined(b, [b.native(call.op, p, shape=call.shape, **call.attributes) for p in parts], 22)
        return b.native_cast(total, x.dtype)
    if len(call.inputs) > 2:
        return b.on_host(call)
    return _products(b, call)


def _products(b: Builder, call: OpCall) -> Symbol:
    dtype, shape = call.inputs[0].dtype, call.shape
    left, right = (pieces(b, b.native_cast(s, I64), dtype.bits, 16) for s in call.inputs)
    total = None
    for i, one in enumerate(left):
        for j, other in enumerate(right[: len(right) - i]):
            product = b.native_cast(b.native(call.op, one, other, shape=shape, **call.attributes), I64)
            if i + j:
                product = b.native("Mul", product, b.scalar(1 << 16 * (i + j), I64))
            total = product if total is None else b.native("Add", total, product)
    return b.native_cast(present(total), dtype)


def pad(b: Builder, call: OpCall) -> Replacement:
    """Compute Pad of both halves of the bits in float64."""
    x, pads, value, *axes = (*call.inputs, None)[: max(3, len(call.inputs))]
    values = [None, None] if value is None else pieces(b, value, 64, 32)
    parts = [
        b.native(call.op, part, pads, v, *axes, dtype=F64, shape=call.shape, **call.attributes)
        for part, v in zip(pieces(b, x, 64, 32), values, strict=True)
    ]
    return joined(b, parts, 32)
