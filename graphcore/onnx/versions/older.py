"""Convert operators of opsets 7 to 25 whose operands or attributes have changed since; nodes between two opsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from graphcore.arrays import casting
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array, outside
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.limits import invalid, named_inputs
from graphcore.onnx.proto.model_proto import outer_name
from graphcore.onnx.proto.tensors import node_proto, with_attributes
from graphcore.onnx.proto.value_protos import encoded_type
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

MOVED: dict[str, tuple[str, ...]] = {
    "Slice": ("starts", "ends", "axes"),
    "TopK": ("k",),
    "Split": ("split",),
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
    **{
        f"Reduce{kind}": ("axes",)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
"""Attributes that became operands, after the first operand."""

REDUCTIONS = sorted(name for name in MOVED if name.startswith("Reduce") and name != "ReduceSum")
"""Those whose axes became an operand with opset 18."""


def attributes_to_operands(node: ReadNode) -> None:
    """Lists of integers were attributes, and are operands."""
    for position, name in enumerate(MOVED[node.op_type], 1):
        value = node.attributes.pop(name, None)
        if value is not None and value != []:
            node.put(position, node.graph.build.vector(value if isinstance(value, list) else [value]))


def split(node: ReadNode) -> None:
    """Without sizes, parts were equal."""
    if node.optional(1) is None:
        node.attributes["num_outputs"] = len(node.types)


def clip(node: ReadNode) -> None:
    """The bounds were attributes."""
    for position, name in enumerate(("min", "max"), 1):
        if name in node.attributes:
            value = casting.cast_array(
                np.array(node.attributes.pop(name), np.float32), DType.float32, node.tensor(0).dtype
            )
            node.put(position, node.graph.build.constant(value, node.tensor(0).dtype))


def pad(node: ReadNode) -> None:
    """The amounts and the value were attributes."""
    node.put(1, node.graph.build.vector(node.attributes.pop("pads")))
    value = node.attributes.pop("value", 0.0)
    if value and node.attributes.get("mode", "constant") == "constant":
        node.put(2, node.scalar(value, node.tensor(0).dtype))


def flatten_axes(node: ReadNode) -> Converted:
    """Softmax and similar operators applied to all axes from one on, by default the second."""
    axis = node.attributes.pop("axis", 1)
    type_ = node.tensor(0)
    rank = node.rank(0)
    if rank is not None and axis % max(rank, 1) == rank - 1:
        node.attributes["axis"] = -1
        return None
    x = node.operand(0)
    flat = unknown(type_.dtype, 2)
    if rank is not None:
        start = axis + rank if axis < 0 else axis
        flat = TensorType(type_.dtype, [type_.shape[:start].size, type_.shape[start:].size])
    rows = node.emit("Flatten", flat, x, axis=axis)
    normalised = node.emit(node.op_type, flat, rows, axis=-1)
    return (node.emit("Reshape", type_, normalised, node.dims(x), allowzero=1),)


def dropout(node: ReadNode) -> Converted:
    """Without the operand training_mode, nothing is dropped, whatever the ratio."""
    node.attributes.clear()
    if len(node.types) == 1:
        return None
    shape = node.tensor(0).shape
    x = node.operand(0)
    result, mask = node.graph.build.emit_many("Dropout", (x,), (node.types[0], TensorType(DType.bool, shape)))
    return result, node.graph.build.cast(mask, node.result(1).dtype)


def scatter(node: ReadNode) -> None:
    node.op_type = "ScatterElements"


def one_hot(node: ReadNode) -> None:
    """A negative index gave a row of zeros; now it counts from the end."""
    indices = node.operand(0)
    dtype = node.tensor(0).dtype
    values = node.constant(0)
    if dtype.is_integer and (not dtype.is_signed or (values is not None and (values >= 0).all())):
        return
    wide = node.graph.build.cast(indices, DType.int64)
    shape = node.tensor(0).shape
    below = node.emit("Less", TensorType(DType.bool, shape), wide, node.scalar(0, DType.int64))
    beyond = node.scalar(np.iinfo(np.int64).max, DType.int64)
    node.put(0, node.emit("Where", TensorType(DType.int64, shape), below, beyond, wide))


def erf(node: ReadNode) -> Converted:
    """Integers were allowed: their error function rounds to the sign, with 0 for small numbers."""
    type_ = node.tensor(0)
    if not type_.dtype.is_integer:
        return None
    truth = TensorType(DType.bool, type_.shape)
    x = node.operand(0)
    above = node.graph.build.cast(node.emit("Greater", truth, x, node.scalar(5, type_.dtype)), type_.dtype)
    if not type_.dtype.is_signed:
        return (above,)
    below = node.graph.build.cast(node.emit("Less", truth, x, node.scalar(-5, type_.dtype)), type_.dtype)
    return (node.emit("Sub", type_, above, below),)


def roi_align(node: ReadNode) -> None:
    """Corners were not shifted by half a pixel."""
    node.attributes["coordinate_transformation_mode"] = "output_half_pixel"


def grid_sample(node: ReadNode) -> None:
    """Modes were named for two axes."""
    mode = node.attributes.get("mode", "bilinear")
    node.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def fourier(node: ReadNode) -> None:
    """The axis was an attribute."""
    node.put(2, node.scalar(int(node.attributes.pop("axis", 1)), DType.int64))


# ONNX's Cast expressed by the library's, which differ for values out of a dtype's range.
#
# The library saturates integers and lets float8 overflow; ONNX wraps when casting floats to 2 or 4 bits, and saturates
# float8 by default (https://onnx.ai/onnx/operators/onnx__Cast.html).

_FLOAT8 = frozenset({DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz})


def cast(symbol: Symbol, target: DType, attributes: Mapping[str, Any]) -> Symbol:
    """Return a cast with ONNX's semantics. attributes: of the Cast or CastLike."""
    graph = symbol.graph
    source = symbol.dtype
    if target in _FLOAT8 and source not in _FLOAT8 and attributes.get("saturate", 1):
        wide = graph.build.cast(symbol, source if source in (DType.float32, DType.float64) else DType.float32)
        limit = float(target.max)
        bounds = (graph.build.scalar(-limit, wide.dtype), graph.build.scalar(limit, wide.dtype))
        symbol = graph.build.emit("Clip", (wide, *bounds), wide.type)
    if target.is_integer and target.bits < 8 and source.is_float:
        symbol = graph.build.cast(symbol, DType.int32)
    result = graph.build.cast(symbol, target)
    return result if result is not symbol else graph.build.emit("Identity", (symbol,), symbol.type)


def align_dtypes(op_type: str, inputs: list[Symbol | None]) -> None:
    """Cast operands that may differ in dtype from the first one in ONNX, but not in onnxruntime.

    Casts keep values: they apply to exponents, and to scales narrower than the operand that they divide.
    """
    if op_type not in ("Pow", "QuantizeLinear") or len(inputs) < 2:
        return
    x, other = inputs[:2]
    if x is None or other is None or not isinstance(x.type, TensorType) or not isinstance(other.type, TensorType):
        return
    if x.dtype is other.dtype:
        return
    if op_type == "Pow":
        wide = _EXPONENTS.get(other.dtype, other.dtype)
        is_integer_power = other.dtype is DType.uint64 and x.dtype.is_integer
        inputs[1] = other.graph.build.cast(other, DType.int64 if is_integer_power else wide)
    else:
        inputs[0], inputs[1] = x.graph.build.cast(x, DType.float32), other.graph.build.cast(other, DType.float32)


_EXPONENTS = {
    **dict.fromkeys((DType.int8, DType.int16, DType.uint8, DType.uint16), DType.int32),
    **dict.fromkeys((DType.float16, DType.bfloat16), DType.float32),
    DType.uint32: DType.int64,
    DType.uint64: DType.float64,
}
"""The dtypes of exponents that the kernels of Pow accept with a base of another dtype."""


# Operators of onnxruntime in ONNX's own domain that ONNX does not have, or only since a later opset.
#
# onnxruntime writes them into optimised models of any opset.

_STANDARD: Mapping[str, tuple[str, int, int]] = {
    "LayerNormalization": ("LayerNormalization", 17, 3),
    "SimplifiedLayerNormalization": ("RMSNormalization", 23, 1),
}
"""For an operator of onnxruntime: the equal operator of ONNX, its opset, and the number of common results."""


def standard(proto: onnx.NodeProto, version: int, place: object) -> tuple[onnx.NodeProto, int]:
    """Return ONNX's node for one of `_STANDARD`, and its opset; another node unchanged.

    Raises `ModelError` for a result that ONNX's operator does not have.
    """
    standard_form = _STANDARD.get(proto.op_type)
    if standard_form is None:
        return proto, version
    name, opset, results = standard_form
    if any(proto.output[results:]):
        raise invalid(
            f"{place}: result {results} is used, but ONNX's {name} does not have it",
            help="export the model for inference, or load it before onnxruntime optimises it",
        )
    copied = onnx.NodeProto()
    copied.CopyFrom(proto)
    copied.op_type = name
    del copied.output[results:]
    return copied, opset


# A node between two opsets, and the methods of conversions.

Converted: TypeAlias = tuple[Symbol, ...] | None
"""The results of the nodes that replace a node; None if it stays one node, possibly changed in place."""


@dataclass(slots=True)
class ReadNode:
    """A node of the model's version, on Symbols of the Graph that is built."""

    graph: Graph
    op_type: str
    inputs: list[Symbol | None]
    attributes: dict[str, Any]
    types: tuple[Type, ...]
    """Result types, as inferred at the model's version."""
    version: int
    """Of the operator's domain."""
    nested: Callable[[Sequence[onnx.NodeProto], dict[str, Symbol | None], int], None]
    """Reads the nodes of a function body of an opset, on named Symbols, and enters their results."""
    domain: str = ""

    def operand(self, position: int) -> Symbol:
        """Return the required operand at a position. Raises `ModelError` if it is missing."""
        symbol = self.inputs[position] if position < len(self.inputs) else None
        if symbol is None:
            raise self.error(f"its operand {position} is missing", "export the model again")
        return symbol

    def tensor(self, position: int) -> TensorType:
        """Return the type of a tensor operand. Raises `ModelError` for another type."""
        type_ = self.operand(position).type
        if not isinstance(type_, TensorType):
            raise self.error(f"operand {position} must be a tensor, got {type_}", "declare its type in the model")
        return type_

    def result(self, position: int = 0) -> TensorType:
        """Return the type of a tensor result. Raises `ModelError` for another type."""
        type_ = self.types[position]
        if not isinstance(type_, TensorType):
            raise self.error(f"result {position} must be a tensor, got {type_}", "declare its type in the model")
        return type_

    def rank(self, position: int) -> int | None:
        """Return the rank of an operand, or None if it is unknown."""
        shape = self.tensor(position).shape
        return shape.rank if shape.is_ranked else None

    def optional(self, position: int) -> Symbol | None:
        """Return the operand at a position, or None if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an operand, or None if it is not constant."""
        return constant_array(self.optional(position), weights=True, outer=True)

    def put(self, position: int, symbol: Symbol | None) -> None:
        """Set the operand at a position."""
        while len(self.inputs) <= position:
            self.inputs.append(None)
        self.inputs[position] = symbol

    def emit(self, op_type: str, type_: Type, *inputs: Symbol | None, **attributes: Any) -> Symbol:
        """Emit a node with one result, of the opset of Graphs."""
        return self.graph.build.emit(op_type, inputs, type_, attributes)

    def scalar(self, value: float, dtype: DType) -> Symbol:
        return self.graph.build.scalar(value, dtype)

    def dims(self, symbol: Symbol, start: int | None = None, end: int | None = None) -> Symbol:
        """Return the sizes of a tensor's dims from `start` to `end`, as int64."""
        shape = symbol.type.shape if isinstance(symbol.type, TensorType) else Shape.unknown()
        bounds = {key: value for key, value in (("start", start), ("end", end)) if value is not None}
        length: Any = len(shape[start:end]) if shape.is_ranked else "?"
        if not shape.is_ranked and start is not None and end is not None:
            length = end - start
        return self.emit("Shape", TensorType(DType.int64, [length]), symbol, **bounds)

    def error(self, why: str, help: str) -> ModelError:
        """Return the error for a node that cannot be converted."""
        place = f"{self.op_type} of opset {self.version}{f' of {self.domain}' if self.domain else ''}"
        return invalid(f"{place}: {why}", operands=named_inputs(self.inputs), help=help)


def unknown(dtype: DType, rank: int | None = None) -> TensorType:
    """Return the type of a tensor of unknown dims, and of unknown rank if it is None."""
    return tensor_type(dtype, Shape.unknown()) if rank is None else TensorType(dtype, ["?"] * rank)


# The function bodies of ONNX's operators, instantiated for a node.


@dataclass(frozen=True, slots=True)
class ExpandedOperator:
    """The computation of an operator: nodes from named inputs to named outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    version: int
    """The opset of the nodes."""


def function_body(
    op_type: str,
    domain: str,
    version: int,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int,
) -> ExpandedOperator | None:
    """Return the function body of an operator of a version of its domain; None if ONNX has none for these operands.

    inputs: the operands, None for those left out. attributes: of the node. outputs: the number of results.
    """
    schema: Any = onnx.defs.get_schema(op_type, version, domain)  # some of its methods have no stubs
    node = node_proto(op_type, domain, inputs, attributes, outputs)
    newest = OPSET if domain else version
    if schema.has_context_dependent_function:
        types = [b"" if symbol is None else encoded_type(symbol.type) for symbol in inputs]
        chosen = _newest(schema.context_dependent_function_opset_versions, newest)
        try:
            content = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), types)
        except Exception:  # ONNX's builders raise various errors for types that they do not support
            return None
    elif schema.has_function:
        content = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, newest))
    else:
        return None
    function = onnx.FunctionProto.FromString(content)
    if not function.node:
        return None
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    attribute_protos = {**defaults, **{a.name: a for a in node.attribute}}
    return ExpandedOperator(
        tuple(function.input),
        tuple(function.output),
        tuple(with_attributes(inner, attribute_protos) for inner in function.node),
        next((entry.version for entry in function.opset_import if not entry.domain), OPSET),
    )


def _newest(versions: Sequence[int], limit: int) -> int:
    """Return the newest version up to the limit, or else the oldest one."""
    return max((v for v in versions if v <= limit), default=min(versions))


def expand_function(node: ReadNode) -> tuple[Symbol, ...]:
    """Return the results of a node, computed by its operator's function body. Raises `ModelError` if ONNX has none."""
    body = function_body(node.op_type, node.domain, node.version, node.inputs, node.attributes, len(node.types))
    if body is None:
        raise node.error(
            "ONNX has no function body of it for these operands", "declare their types and shapes in the model"
        )
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    names.update(zip(body.inputs, node.inputs, strict=False))
    for part in node.attributes.values():
        names.update({outer_name(s.id): s for s in (outside(part) if isinstance(part, Graph) else ())})
    node.nested(body.nodes, names, body.version)
    symbols = [names.get(name) for name in body.outputs[: len(node.types)]]
    results = tuple(symbol for symbol in symbols if symbol is not None)
    if len(results) != len(node.types):
        raise node.error(f"its function body returns only {len(results)} results", "export the model again")
    return results
