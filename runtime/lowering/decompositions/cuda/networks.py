"""Recurrent networks and transposed convolutions: cuDNN takes some forms, and the provider leaves others to the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions import recurrent
from graphcore.runtime.lowering.decompositions.convolution import convolve_transposed
from graphcore.runtime.lowering.decompositions.empty_recurrent import occupied
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.runtime.lowering.decompositions.windows import kernel_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_ACTIVATIONS = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_PEEPHOLES = 7
"""The position of an LSTM's peepholes."""
_END = (1 << 63) - 1


def lack_of_recurrent(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> str:
    """Return why cuDNN does not compute a recurrent network; "" where it does."""
    for name in ("activation_alpha", "activation_beta", "clip"):
        if attributes.get(name):
            return f"no kernel that takes {name}"
    names = [name.lower() for name in attributes.get("activations") or ()]
    own = _ACTIVATIONS[op_type]
    if names and names != own * (len(names) // len(own)):
        return "no kernel with other activations"
    if attributes.get("input_forget"):
        return "no kernel that couples input and forget gates"
    if op_type == "GRU" and not attributes.get("linear_before_reset"):
        return "no kernel without linear_before_reset"
    if len(inputs) > _PEEPHOLES and inputs[_PEEPHOLES] is not None:
        return "no kernel with peepholes"
    return ""


def run_recurrent(b: Builder, call: Call) -> Replacement:
    """Compute RNN, GRU and LSTM by the kernels, step by step, or on the CPU."""
    if call.attributes.get("layout"):
        return recurrent.batch_second(b, call)
    lack = lack_of_recurrent(call.op, call.inputs, call.attributes)
    if call.inputs[0].dtype is DType.float64:
        made = recurrent.unrolled(b, call)
        if made is not None or not lack:
            return made
    if not lack:
        return occupied(b, call)
    if call.op == "GRU":  # whose kernel the provider takes where the attribute is left to its default
        call = call._replace(attributes={"linear_before_reset": 0, **call.attributes})
    return b.on_host(call)


def lack_of_transposed(attributes: Mapping[str, Any]) -> str:
    """Return why cuDNN does not compute a transposed convolution; "" where it does."""
    pads = list(attributes.get("pads") or ())
    is_uneven = pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    is_automatic = attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return "no kernel for padding that may differ at both ends" if is_uneven or is_automatic else ""


def convolve_evenly(b: Builder, call: Call) -> Replacement:
    """Compute ConvTranspose with the smaller padding at both ends, and cut the rest off the result."""
    if not lack_of_transposed(call.attributes):
        return None
    found = _pads(b, call) if call.shape.is_ranked else None
    if found is None:
        return convolve_transposed(b, call)
    least = [min(pair) for pair in found]
    cut = [(before - n, after - n) for (before, after), n in zip(found, least, strict=True)]
    dims = [d + sum(pair) for d, pair in zip(call.shape[2:], cut, strict=True)]
    attributes = {name: value for name, value in call.attributes.items() if name != "auto_pad"}
    whole = b.native(call.op, *call.inputs, shape=_shape([*call.shape[:2], *dims]), **{**attributes, "pads": 2 * least})
    if not any(map(any, cut)):
        return whole
    axes = range(2, 2 + len(cut))
    ends = [-after if after else _END for _, after in cut]
    starts = [before for before, _ in cut]
    return b.native("Slice", whole, b.vector(starts), b.vector(ends), b.vector(axes), shape=call.shape)


def _pads(b: Builder, call: Call) -> list[tuple[int, int]] | None:
    """Return the padding of each axis; None where it depends on sizes that are not known, or is given by the result."""
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
    ones = [1] * len(kernel)
    made = []
    for size, stride, dilation, extra in zip(
        map(int, kernel),
        attributes.get("strides") or ones,
        attributes.get("dilations") or ones,
        attributes.get("output_padding") or [0] * len(kernel),
        strict=True,
    ):
        both = (size - 1) * dilation + 1 + extra - stride  # which leaves stride elements for each
        if both < 0:
            return None
        half = both // 2
        made.append((half, both - half) if automatic == "SAME_UPPER" else (both - half, half))
    return made
