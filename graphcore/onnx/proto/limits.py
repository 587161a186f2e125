"""Check nodes before ONNX's inference or a kernel sees them, because absurd numbers can abort the process there.

The tables give, for each operator, the range of each attribute and the attributes that are axes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.arrays.resource_limits import Limits
from graphcore.build.shapes import unjoinable
from graphcore.errors import ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Node, Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.ranges import ATTRIBUTES, CHECKED, INDEXED, MAX_CHECKED_ELEMENTS, MAX_ELEMENTS, OPERANDS
from graphcore.operators import REDUCTIONS, Trait, having
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import OptionalType, SequenceType, Shape, TensorType, Type

MAX_TENSOR_BYTES = 1 << 40
"""The maximum size of a tensor with static shape, in bytes."""

_TERM = rb"[A-Za-z ]*(?:\.\.\.)?[A-Za-z ]*"
_EQUATION = re.compile(rb"%b(?:,%b)*(?:->%b)?" % (_TERM, _TERM, _TERM))
"""Equations of Einsum. Inference may never end on other text."""

MAX_TRIPS = 1 << 32
"""The maximum trip count of a Loop that only its count ends."""

_MAX_INT32 = (1 << 31) - 1

_WINDOW = {
    "kernel_shape": (1, _MAX_INT32),
    "strides": (1, _MAX_INT32),
    "dilations": (1, _MAX_INT32),
    "pads": (0, _MAX_INT32),
    "group": (1, _MAX_INT32),
    "output_padding": (0, _MAX_INT32),
    "output_shape": (0, _MAX_INT32),
}

_WINDOWED = ("Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool")

RANGES: dict[str, dict[str, tuple[int, int]]] = {
    **dict.fromkeys((*_WINDOWED, "ConvInteger", "QLinearConv", "MaxUnpool", "Col2Im"), _WINDOW),
    "DeformConv": {**_WINDOW, "offset_group": (1, _MAX_INT32)},
    "LpPool": {**_WINDOW, "p": (1, _MAX_INT32)},
    "GlobalLpPool": {"p": (1, _MAX_INT32)},
    "Split": {"num_outputs": (1, _MAX_INT32), "split": (0, _MAX_INT32)},
    **{op: {"blocksize": (1, 1 << 15)} for op in ("SpaceToDepth", "DepthToSpace")},
    "LRN": {"size": (1, _MAX_INT32)},
    "GroupNormalization": {"num_groups": (1, _MAX_INT32)},
    **{op: {"hidden_size": (1, _MAX_INT32), "layout": (0, 1)} for op in having(Trait.RECURRENT)},
    "MaxRoiPool": {"pooled_shape": (1, _MAX_INT32)},
    "RoiAlign": {"output_height": (1, _MAX_INT32), "output_width": (1, _MAX_INT32), "sampling_ratio": (0, 1 << 15)},
    "Attention": {
        "q_num_heads": (1, _MAX_INT32),
        "kv_num_heads": (1, _MAX_INT32),
        "qk_matmul_output_mode": (0, 3),
        "left_window_size": (-1, (1 << 63) - 1),
        "right_window_size": (-1, (1 << 63) - 1),
    },
    "RotaryEmbedding": {"num_heads": (0, _MAX_INT32), "rotary_embedding_dim": (0, _MAX_INT32), "interleaved": (0, 1)},
    **{op: {"block_size": (0, _MAX_INT32)} for op in ("QuantizeLinear", "DequantizeLinear")},
    "TopK": {"k": (0, _MAX_INT32)},
    "ConcatFromSequence": {"new_axis": (0, 1)},
    "TfIdfVectorizer": {
        "min_gram_length": (1, _MAX_INT32),
        "max_gram_length": (1, _MAX_INT32),
        "max_skip_count": (0, _MAX_INT32),
        "ngram_counts": (0, _MAX_INT32),
        "ngram_indexes": (0, 1 << 28),
    },
    "Upsample": {"width_scale": (0, _MAX_INT32), "height_scale": (0, _MAX_INT32)},
}
"""The minimum and maximum of an attribute, or of each number of a list."""

AXES: dict[str, tuple[tuple[str, ...], int, int]] = {
    **dict.fromkeys(
        REDUCTIONS.union(
            "ArgMax ArgMin Compress Concat CumProd CumSum Gather GatherElements Hardmax LayerNormalization LogSoftmax "
            "LpNormalization MeanVarianceNormalization RMSNormalization Scatter ScatterElements Slice Softmax Split "
            "SplitToSequence Squeeze TensorScatter TopK ReverseSequence".split()
        ),
        (("axis", "axes", "batch_axis", "time_axis"), 0, 0),
    ),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), (("axis",), 0, 0)),
    "Flatten": (("axis",), 1, 0),
    "OneHot": (("axis",), 1, 1),
    "Unsqueeze": (("axes",), 0, 0),
}
"""The attributes that are axes of the first operand; how far they may exceed the last one, and how far the first one.
Axes of Unsqueeze refer to the result; those of (De)QuantizeLinear are checked only if there are several scales."""


AXES_OF: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("Reshape Expand Tile Pad Resize Slice Squeeze Unsqueeze CenterCropPad".split(), (1, 2, 3, 4)),
    **dict.fromkeys(REDUCTIONS, (1,)),
    "ConstantOfShape": (0,),
    "Upsample": (1,),
    "Col2Im": (1, 2),
}
"""The operands with one or two numbers per axis, which limits their length."""

MAX_AXIS_NUMBERS = 128

CHOICES: dict[tuple[str, str], str] = {
    **{(op, "auto_pad"): "NOTSET SAME_UPPER SAME_LOWER VALID" for op in (*_WINDOWED, "QLinearConv", "ConvInteger")},
    ("BitShift", "direction"): "LEFT RIGHT",
    ("DepthToSpace", "mode"): "DCR CRD",
    ("Gelu", "approximate"): "none tanh",
    ("Pad", "mode"): "constant reflect edge wrap",
    **{(op, "direction"): "forward reverse bidirectional" for op in having(Trait.RECURRENT)},
    **{(op, "reduction"): "none add mul max min" for op in ("ScatterElements", "ScatterND")},
    ("TensorScatter", "mode"): "linear circular",
    ("GridSample", "mode"): "bilinear nearest bicubic linear cubic",
    ("GridSample", "padding_mode"): "zeros border reflection",
    ("Resize", "mode"): "nearest linear cubic",
    ("Upsample", "mode"): "nearest linear cubic bilinear",
    ("RoiAlign", "mode"): "avg max",
}
"""The values that a string attribute can have."""


_HAVE_VALUES = frozenset({"Einsum", *RANGES, *(op for op, _ in CHOICES)})

MAX_NAME_LENGTH = 100
"""Characters of a name that are shown in errors."""


def invalid(
    summary: str, *, operands: Mapping[str, object] | None = None, help: str = "export the model again"
) -> ModelError:
    """Return the error for a model that cannot be read."""
    return ModelError(f"load: {summary}", operands=operands, help=help)


def named_inputs(inputs: Sequence[Symbol | None]) -> dict[str, Symbol]:
    """Return operands by position, for errors."""
    return {f"input {i}": s for i, s in enumerate(inputs) if s is not None}


def has_limits(op_type: str, attribute: str) -> bool:
    """Return True if `check_values` checks an attribute of an operator."""
    return attribute in ATTRIBUTES or op_type in _HAVE_VALUES


def check_text(names: Iterable[str | bytes], what: str) -> None:
    """Raise `ModelError` for a name that is not valid UTF-8, which protobuf returns as bytes."""
    for name in names:
        if type(name) is not str:
            raise invalid(f"{what} has the name {name[:MAX_NAME_LENGTH]!r}, which is not valid UTF-8")


def check_values(op_type: str, attributes: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for a number or a string (as bytes) that an attribute cannot have."""
    equation = attributes.get("equation")
    if op_type == "Einsum" and isinstance(equation, bytes) and not _EQUATION.fullmatch(equation):
        raise invalid(
            f"{place}: equation {_short(equation)} is not a valid Einsum equation",
            help='use letters, "...", "," and "->", for example b"...ij,...jk->...ik"',
        )
    for name, word in attributes.items():
        words = CHOICES.get((op_type, name)) if isinstance(word, bytes) else None
        if words is not None and word.decode(errors="replace") not in words.split():
            raise invalid(f"{place}: {name} is {_short(word)}, but must be one of {words.replace(' ', ', ')}")
    rules = RANGES.get(op_type, _NO_RULES)
    for name, value in attributes.items():
        bounds = rules.get(name) or ATTRIBUTES.get(name)
        if bounds is None:
            continue
        minimum, maximum = bounds
        numbers: Sequence[Any] = value if isinstance(value, list) else [value]
        if not all(minimum <= number <= maximum for number in numbers if isinstance(number, int)):
            raise invalid(f"{place}: {name} is {_short(value)}, but must be in {minimum} to {maximum}")


_NO_RULES: dict[str, tuple[int, int]] = {}

_WITH_OPERANDS = frozenset(
    {*AXES, *AXES_OF, *OPERANDS, *INDEXED, "Attention", "ConcatFromSequence", "GatherND", "Range", "Transpose"}
)


def has_axes(op_type: str) -> bool:
    """Return True if `check_axes` checks nodes of an operator."""
    return op_type in _WITH_OPERANDS


def check_axes(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for an axis that the first operand does not have, an invalid permutation, and constants
    out of range.
    """
    if op_type in CHECKED:
        check_constants(op_type, [constant_array(s, weights=True, outer=True) for s in inputs], place)
    if op_type == "GatherND" and any(_shape_of(s) == () for s in inputs):
        raise invalid(
            f"{place}: data and indices must have at least one axis",
            operands=named_inputs(inputs),
            help="reshape the scalar to [1]",
        )
    if op_type == "ConcatFromSequence" and inputs[0] is not None:
        if pair := unjoinable(inputs[0], None if attributes.get("new_axis") else attributes.get("axis", 0)):
            raise invalid(f"{place}: elements have incompatible shapes", operands=pair)
    for position in AXES_OF.get(op_type, ()):
        value = inputs[position] if position < len(inputs) else None
        if any(dim.is_static and int(dim) > MAX_AXIS_NUMBERS for dim in _shape_of(value) or ()):
            raise invalid(
                f"{place}: input {position} has more numbers than a tensor can have axes",
                operands={f"input {position}": value},
                help="give one number for each axis",
            )
    first = inputs[0] if inputs else None
    shape = _shape_of(first)
    if first is None or shape is None:
        return
    rank = len(shape)
    if op_type == "Attention":
        _check_heads(rank, inputs, place)
    if op_type in ("Pad", "Resize", "Upsample"):
        _check_lengths(op_type, rank, inputs, attributes, place)
    if op_type in INDEXED:
        _check_indices(op_type, first, inputs, attributes, place)
    if op_type == "GatherND":
        _check_batch(first, inputs, attributes, place)
    if op_type == "Transpose" and isinstance(perm := attributes.get("perm"), list) and sorted(perm) != [*range(rank)]:
        raise invalid(
            f"{place}: perm is {_short(perm)}, which is not a permutation of {rank} axes",
            operands={"operand": first},
            help="list each axis once",
        )
    if op_type in ("DequantizeLinear", "QuantizeLinear"):
        if all(not dim.is_static or int(dim) == 1 for dim in _shape_of(inputs[1]) or ()):
            return  # one scale for all elements
        attributes = {"axis": 1, **attributes}
    names, after, before = AXES.get(op_type, ((), 0, 0))
    for name in names:
        value = attributes.get(name)
        axes: Sequence[Any] = value if isinstance(value, list) else [value]
        limit = rank + len(axes) if op_type == "Unsqueeze" else rank
        for axis in axes:
            if isinstance(axis, int) and not -limit - before <= axis < limit + after:
                raise invalid(
                    f"{place}: {name} is {_short(value)}, but the operand has {rank} axes",
                    operands={"operand": first},
                    help="use an existing axis",
                )


def check_constants(op_type: str, arrays: Sequence[np.ndarray[Any, Any] | None], place: object) -> None:
    """Raise `ModelError` for a constant operand with numbers out of the operator's range.

    arrays: the operands' values, None for those that are not constant.
    """
    for position, (minimum, maximum) in OPERANDS.get(op_type, {}).items():
        array = arrays[position] if position < len(arrays) else None
        if array is None or not 0 < array.size <= MAX_CHECKED_ELEMENTS or array.dtype.kind not in "iu":
            continue
        numbers = array.ravel().tolist()
        if min(numbers) < minimum or max(numbers) > maximum:
            is_size = maximum == MAX_ELEMENTS and min(numbers) >= minimum
            raise (ResourceLimitError if is_size else ModelError)(
                f"load: {place}: input {position} is {_short(numbers)}, but must be in {minimum} to {maximum}",
                help="export the model again",
            )
    if op_type == "Range" and len(arrays) > 2:
        step = arrays[2]
        if step is not None and step.dtype.kind in "iuf" and step.size == 1 and not step.any():
            raise invalid(f"{place}: the step must not be 0", help="use another step")


def _check_heads(rank: int, inputs: Sequence[Symbol | None], place: object) -> None:
    """Raise `ModelError` for queries, keys and values of different ranks, and past ones without an axis of heads."""
    for position, symbol in enumerate(inputs):
        shape = symbol.type.shape if symbol is not None and isinstance(symbol.type, TensorType) else None
        ranks = {0: (3, 4), 1: (rank,), 2: (rank,), 4: (4,), 5: (4,), 6: (1,)}.get(position)
        if shape is not None and ranks is not None and shape.is_ranked and len(shape) not in ranks:
            raise invalid(
                f"{place}: input {position} has {len(shape)} axes, but must have {' or '.join(map(str, ranks))}",
                operands=named_inputs(inputs),
                help="give queries, keys and values as [batch, length, width] or [batch, heads, length, size]",
            )
    types = [s.type for s in inputs[:3] if s is not None and isinstance(s.type, TensorType) and s.type.shape.is_ranked]
    batches = sorted({int(type_.shape[0]) for type_ in types if type_.shape[0].is_static})
    if len(batches) > 1:
        raise invalid(
            f"{place}: queries, keys and values have different batch sizes: {', '.join(map(str, batches))}",
            operands=named_inputs(inputs),
            help="give them the same first dim",
        )
    heads = [type_.shape[1] == 0 for type_ in types] if rank == 4 else []
    if any(heads[1:]) and not heads[0]:
        raise invalid(
            f"{place}: keys and values have no heads",
            operands=named_inputs(inputs),
            help="give one head for each head of the queries, or for each group of them",
        )


def _check_lengths(
    op_type: str, rank: int, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object
) -> None:
    """Raise `ModelError` for scales, sizes, a region or pads whose length does not match the number of axes."""
    axes_attribute = attributes.get("axes")
    count = rank if axes_attribute is None else len(axes_attribute)
    per_axis = {1: 1} if op_type == "Upsample" or len(inputs) < 3 else {2: 1, 3: 1}  # numbers for each axis
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        per_axis = {1: 2, **per_axis}
    if op_type == "Pad":
        axes = _length_of(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else Dim(rank)
        count, per_axis = (int(axes), {1: 2}) if axes is not None and axes.is_static else (0, {})
    for position, times in per_axis.items():
        symbol = inputs[position] if position < len(inputs) else None
        shape = _shape_of(symbol)
        if shape is None:
            continue
        length = _length_of(symbol)
        if length is None and op_type == "Pad":  # onnxruntime accepts a matrix of one row, too
            continue
        if length is None or (length.is_static and int(length) not in (0, times * count)):
            raise invalid(
                f"{place}: input {position} has shape {shape}, but applies to {count} axes",
                operands={f"input {position}": symbol},
                help=f"give a vector of {times * count} numbers",
            )


def _length_of(symbol: Symbol | None) -> Dim | None:
    """Return the dim of a vector; None for another or unknown rank."""
    shape = _shape_of(symbol)
    return shape[0] if shape is not None and len(shape) == 1 else None


def _check_indices(
    op_type: str, data: Symbol, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object
) -> None:
    """Raise `ModelError` for constant indices outside of an axis of known length."""
    position, axis = INDEXED[op_type], attributes.get("axis", 0)
    array = constant_array(inputs[position], weights=True, outer=True) if position < len(inputs) else None
    shape = data.type.shape if isinstance(data.type, TensorType) else None
    if array is None or shape is None or not array.size or not -len(shape) <= axis < len(shape):
        return
    if not shape[axis].is_static:
        return
    length, lowest, highest = int(shape[axis]), int(array.min()), int(array.max())
    if not -length <= lowest <= highest < length:
        index = lowest if lowest < -length else highest
        raise invalid(
            f"{place}: the index {index} is out of range for an axis of length {length}",
            operands={"data": data},
            help="use an existing index",
        )


def _check_batch(data: Symbol, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object) -> None:
    """Raise `ModelError` for a GatherND with too many batch dims for its operands."""
    batch = attributes.get("batch_dims", 0)
    for symbol in inputs:
        shape = _shape_of(symbol)
        if shape is not None and batch >= len(shape):
            raise invalid(
                f"{place}: batch_dims is {batch}, but an operand has {len(shape)} axes",
                operands={"data": data},
                help="use fewer batch dims than axes",
            )


def check_trips(trips: Symbol | None, starts: Symbol | None, body: Graph, place: object) -> Dim:
    """Return the trip count of a Loop, `?` if it is unknown.

    Raises `ResourceLimitError` for a count above the limit, if nothing else ends the loop.
    """
    if trips is None or not isinstance(trips.producer, Constant) or trips.producer.array.size != 1:
        return Dim.dynamic()
    count = int(trips.producer.array.reshape(())[()])
    if not (_is_true(starts) and _always_continues(body)):
        return Dim.dynamic()
    if count > MAX_TRIPS:
        raise ResourceLimitError(
            f"load: {place} runs {count} times, the limit is {MAX_TRIPS}", help="end the loop by its condition"
        )
    return Dim(max(0, count))


def _is_true(symbol: Symbol | None) -> bool:
    return symbol is None or (isinstance(symbol.producer, Constant) and bool(symbol.producer.array.all()))


def _always_continues(body: Graph) -> bool:
    """Return True if the condition that a body returns is true, or its own input."""
    condition = body.outputs[0]
    while isinstance(condition.producer, Node) and condition.producer.op_type == "Identity":
        operand = present(condition.producer.inputs[0])
        condition = operand
    if isinstance(condition.producer, Input):
        return condition.producer.position == 1
    return isinstance(condition.producer, Constant) and _is_true(condition)


def _shape_of(symbol: Symbol | None) -> Shape | None:
    """Return the shape of a tensor; None for an unknown rank and for other values."""
    type_ = None if symbol is None else symbol.type
    return type_.shape if isinstance(type_, TensorType) and type_.shape.is_ranked else None


def check_size(type_: Type, place: object) -> None:
    """Raise `ResourceLimitError` for a tensor that is known to be larger than any machine's memory."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    if isinstance(type_, TensorType) and _bits_of(type_) > 8 * MAX_TENSOR_BYTES:
        raise ResourceLimitError(
            f"load: {place} returns {str(type_)[:200]}, of more than {MAX_TENSOR_BYTES >> 40} TiB",
            help="make the tensor smaller",
        )


@functools.lru_cache(10_000)
def _bits_of(type_: TensorType) -> int:
    """Return the product of the known sizes of a tensor and the bits of an element."""
    return math.prod(type_.shape.static_dims, start=type_.dtype.bits) if type_.shape.is_ranked else 0


def check_elements(type_: Type, limits: Limits, name: str) -> None:
    """Raise `ResourceLimitError` for a tensor that is known to have more elements than the limit."""
    if isinstance(type_, (SequenceType, OptionalType)):
        check_elements(type_.element, limits, name)
    if isinstance(type_, TensorType) and type_.shape.is_ranked:
        count = math.prod(type_.shape.static_dims)
        limits.check(
            "elements", count, f"{name[:MAX_NAME_LENGTH]!r} is {str(type_)[:200]}, of at least {count} elements"
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 100 else f"{text[:100]}..."
