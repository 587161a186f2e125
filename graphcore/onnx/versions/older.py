"""Operators of opset 7 to 25 whose operands or attributes have changed since."""

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
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.model_proto import attribute
from graphcore.onnx.proto.tensors import with_attributes
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
"""Attributes that became operands, after the one that there was."""


def moved(node: Read) -> Made:
    """Attributes that became operands: lists of integers."""
    for position, name in enumerate(MOVED[node.op_type], 1):
        value = node.attributes.pop(name, None)
        if value is not None and value != []:
            node.put(position, node.graph.build.vector(value if isinstance(value, list) else [value]))
    return None


def split(node: Read) -> Made:
    """Equal parts were meant where no sizes are given."""
    if node.given(1) is None:
        node.attributes["num_outputs"] = len(node.types)
    return None


def clip(node: Read) -> Made:
    """The bounds were attributes."""
    for position, name in enumerate(("min", "max"), 1):
        if name in node.attributes:
            value = casting.cast_array(
                np.array(node.attributes.pop(name), np.float32), DType.float32, node.tensor(0).dtype
            )
            node.put(position, node.graph.build.constant(value, node.tensor(0).dtype))
    return None


def pad(node: Read) -> Made:
    """The amounts and the value were attributes."""
    node.put(1, node.graph.build.vector(node.attributes.pop("pads")))
    value = node.attributes.pop("value", 0.0)
    if value and node.attributes.get("mode", "constant") == "constant":
        node.put(2, node.scalar(value, node.tensor(0).dtype))
    return None


def flattening(node: Read) -> Made:
    """Softmax and its kin were over all axes from one on, by default the second."""
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
    made = node.emit(node.op_type, flat, rows, axis=-1)
    return (node.emit("Reshape", type_, made, node.dims(x), allowzero=1),)


def dropout(node: Read) -> Made:
    """Nothing is dropped, whatever the ratio, without the operand that says that this is training."""
    node.attributes.clear()
    if len(node.types) == 1:
        return None
    shape = node.tensor(0).shape
    x = node.operand(0)
    made, mask = node.graph.build.emit_many("Dropout", (x,), (node.types[0], TensorType(DType.bool, shape)))
    return made, node.graph.build.cast(mask, node.result(1).dtype)


def scatter(node: Read) -> Made:
    node.op_type = "ScatterElements"
    return None


def one_hot(node: Read) -> Made:
    """An index below zero gave a row without a one; it counts from the end now."""
    indices = node.operand(0)
    dtype = node.tensor(0).dtype
    values = node.known(0)
    if dtype.is_integer and (not dtype.is_signed or (values is not None and (values >= 0).all())):
        return None
    whole = node.graph.build.cast(indices, DType.int64)
    shape = node.tensor(0).shape
    below = node.emit("Less", TensorType(DType.bool, shape), whole, node.scalar(0, DType.int64))
    beyond = node.scalar(np.iinfo(np.int64).max, DType.int64)
    node.put(0, node.emit("Where", TensorType(DType.int64, shape), below, beyond, whole))
    return None


def erf(node: Read) -> Made:
    """Integers were taken too: what is left of their error function is its sign, from where float64 rounds it to 1."""
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


def roi_align(node: Read) -> Made:
    """Corners were not moved by half a pixel."""
    node.attributes["coordinate_transformation_mode"] = "output_half_pixel"
    return None


def grid_sample(node: Read) -> Made:
    """Modes were named for two axes."""
    mode = node.attributes.get("mode", "bilinear")
    node.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return None


def fourier(node: Read) -> Made:
    """The axis was an attribute."""
    node.put(2, node.scalar(int(node.attributes.pop("axis", 1)), DType.int64))
    return None


# ONNX's Cast by the library's, where the two differ beyond a dtype's range.
#
# The library saturates integers and lets float8 overflow; ONNX wraps where it casts floats to 2 or 4 bits, and
# saturates float8 unless it is told not to (https://onnx.ai/onnx/operators/onnx__Cast.html).

_FLOAT8 = frozenset({DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz})


def cast(symbol: Symbol, target: DType, attributes: Mapping[str, Any]) -> Symbol:
    """A cast as a model means it. attributes: those of its Cast or CastLike."""
    graph = symbol.graph
    source = symbol.dtype
    if target in _FLOAT8 and source not in _FLOAT8 and attributes.get("saturate", 1):
        wide = graph.build.cast(symbol, _roomy(source))
        limit = float(target.max)
        bounds = (graph.build.scalar(-limit, wide.dtype), graph.build.scalar(limit, wide.dtype))
        symbol = graph.build.emit("Clip", (wide, *bounds), wide.type)
    if target.is_integer and target.bits < 8 and source.is_float:
        symbol = graph.build.cast(symbol, DType.int32)
    made = graph.build.cast(symbol, target)
    return made if made is not symbol else graph.build.emit("Identity", (symbol,), symbol.type)


def agree(op_type: str, inputs: list[Symbol | None]) -> None:
    """Put casts before operands that ONNX lets differ in dtype from the first, where onnxruntime does not.

    What is cast keeps its value: exponents, and scales that were narrower than what they divide.
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
        whole = other.dtype is DType.uint64 and x.dtype.is_integer
        inputs[1] = other.graph.build.cast(other, DType.int64 if whole else wide)
    else:
        inputs[0], inputs[1] = x.graph.build.cast(x, DType.float32), other.graph.build.cast(other, DType.float32)


_EXPONENTS = {
    **dict.fromkeys((DType.int8, DType.int16, DType.uint8, DType.uint16), DType.int32),
    **dict.fromkeys((DType.float16, DType.bfloat16), DType.float32),
    DType.uint32: DType.int64,
    DType.uint64: DType.float64,
}
"""The dtypes of exponents beside which the kernels of Pow take another base."""


def _roomy(dtype: DType) -> DType:
    """A float dtype that holds the limits of float8 and its rounding."""
    return dtype if dtype in (DType.float32, DType.float64) else DType.float32


# Operators that onnxruntime has in ONNX's own domain and ONNX has not, or has since a later opset.
#
# onnxruntime writes them into the models that it has optimised, whatever their opset.

_SAME: Mapping[str, tuple[str, int, int]] = {
    "LayerNormalization": ("LayerNormalization", 17, 3),
    "SimplifiedLayerNormalization": ("RMSNormalization", 23, 1),
}
"""By onnxruntime's operator: ONNX's that computes the same from the same operands and attributes, the opset that has
it, and how many results the two have in common."""


def standard(proto: onnx.NodeProto, version: int, place: object) -> tuple[onnx.NodeProto, int]:
    """Return ONNX's node for one that the opset does not have, and the opset that has it; what was given if none does.

    Raises `ModelError` for a result that ONNX's operator does not give.
    """
    found = _SAME.get(proto.op_type)
    if found is None:
        return proto, version
    name, opset, results = found
    if any(proto.output[results:]):
        raise ModelError(
            f"load: {place}: result {results} of it is used, which ONNX's {name} does not give",
            help="export the model for inference, or load it before onnxruntime optimises it",
        )
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    made.op_type = name
    del made.output[results:]
    return made, opset


# A node between two opsets: what was read, and how conversions build on it.

Made: TypeAlias = tuple[Symbol, ...] | None
"""The results of what a node was converted to; None where it stays a node, which may have been changed in place."""


@dataclass(slots=True)
class Read:
    """A node as it was read: of the model's version, on Symbols of the Graph being made."""

    graph: Graph
    op_type: str
    inputs: list[Symbol | None]
    attributes: dict[str, Any]
    types: tuple[Type, ...]
    """Of the results, as inferred at the model's version."""
    version: int
    """Of the operator's domain."""
    nested: Callable[[Sequence[onnx.NodeProto], dict[str, Symbol | None], int], None]
    """Reads the nodes of a function body of an opset, on named Symbols, and enters what they make."""
    domain: str = ""

    def operand(self, position: int) -> Symbol:
        """The operand at a position, which the operator cannot do without. Raises `ModelError`."""
        symbol = self.inputs[position] if position < len(self.inputs) else None
        if symbol is None:
            raise self.refusal(f"its operand {position} is missing", "export the model again")
        return symbol

    def tensor(self, position: int) -> TensorType:
        """The type of an operand that is a tensor. Raises `ModelError`."""
        type_ = self.operand(position).type
        if not isinstance(type_, TensorType):
            raise self.refusal(f"its operand {position} is {type_}", "say in the model what it is")
        return type_

    def result(self, position: int = 0) -> TensorType:
        """The type of a result that is a tensor. Raises `ModelError`."""
        type_ = self.types[position]
        if not isinstance(type_, TensorType):
            raise self.refusal(f"its result {position} is {type_}", "say in the model what it is")
        return type_

    def rank(self, position: int) -> int | None:
        """The rank of an operand, None where it is not known."""
        shape = self.tensor(position).shape
        return shape.rank if shape.is_ranked else None

    def given(self, position: int) -> Symbol | None:
        """The operand at a position, None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def known(self, position: int) -> np.ndarray[Any, Any] | None:
        """The value of an operand that is a constant."""
        return constant_array(self.given(position), weights=True, outer=True)

    def put(self, position: int, symbol: Symbol | None) -> None:
        """Make a Symbol the operand at a position."""
        while len(self.inputs) <= position:
            self.inputs.append(None)
        self.inputs[position] = symbol

    def emit(self, op_type: str, type_: Type, *inputs: Symbol | None, **attributes: Any) -> Symbol:
        """A node of one result, of the opset that graphs have."""
        return self.graph.build.emit(op_type, inputs, type_, attributes)

    def scalar(self, value: float, dtype: DType) -> Symbol:
        return self.graph.build.scalar(value, dtype)

    def dims(self, symbol: Symbol, start: int | None = None, end: int | None = None) -> Symbol:
        """The sizes of a tensor's dims from one to another, as int64."""
        shape = symbol.type.shape if isinstance(symbol.type, TensorType) else Shape.unknown()
        bounds = {key: value for key, value in (("start", start), ("end", end)) if value is not None}
        length: Any = len(shape[start:end]) if shape.is_ranked else "?"
        if not shape.is_ranked and start is not None and end is not None:
            length = end - start
        return self.emit("Shape", TensorType(DType.int64, [length]), symbol, **bounds)

    def refusal(self, why: str, help: str) -> ModelError:
        """The error that says why there is no conversion."""
        operands = {f"input {i}": s for i, s in enumerate(self.inputs) if s is not None}
        return ModelError(
            f"load: {self.op_type} of opset {self.version}{f' of {self.domain}' if self.domain else ''}: {why}",
            operands=operands,
            help=help,
        )


def unknown(dtype: DType, rank: int | None = None) -> TensorType:
    """The type of a tensor of which only the dtype, or that and the rank, is known."""
    return tensor_type(dtype, Shape.unknown()) if rank is None else TensorType(dtype, ["?"] * rank)


# The function bodies that ONNX gives operators, instantiated for one node.


@dataclass(frozen=True, slots=True)
class Body:
    """The computation of an operator: nodes on named inputs that make named outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    version: int
    """The opset that the nodes are of."""


def function_body(
    op_type: str,
    domain: str,
    version: int,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int,
) -> Body | None:
    """The function body of an operator of a version of its domain; None where ONNX gives none for these operands.

    inputs: the operands, None for those left out. attributes: those of the node. outputs: how many results it has.
    """
    schema: Any = onnx.defs.get_schema(op_type, version, domain)  # some of its methods have no stubs
    node = onnx.NodeProto(op_type=op_type, domain=domain)
    node.input.extend("" if symbol is None else f"x{i}" for i, symbol in enumerate(inputs))
    node.output.extend(f"y{i}" for i in range(outputs))
    for key, value in attributes.items():
        node.attribute.append(onnx.AttributeProto.FromString(attribute(key, value)))
    newest = OPSET if domain else version
    if schema.has_context_dependent_function:
        types = [b"" if symbol is None else encoded_type(symbol.type) for symbol in inputs]
        chosen = _newest(schema.context_dependent_function_opset_versions, newest)
        try:
            content = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), types)
        except Exception:  # whatever a builder of ONNX's misses in the types
            return None
    elif schema.has_function:
        content = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, newest))
    else:
        return None
    function = onnx.FunctionProto.FromString(content)
    if not function.node:
        return None
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    given = {**defaults, **{a.name: a for a in node.attribute}}
    return Body(
        tuple(function.input),
        tuple(function.output),
        tuple(with_attributes(inner, given) for inner in function.node),
        next((entry.version for entry in function.opset_import if not entry.domain), OPSET),
    )


def _newest(versions: Sequence[int], limit: int) -> int:
    """The newest of the versions that a body is given for, no newer than the limit if there is such a one."""
    return max((v for v in versions if v <= limit), default=min(versions))


def expand_function(node: Read) -> tuple[Symbol, ...]:
    """The results of a node, computed by its operator's function body. Raises `ModelError` where ONNX gives none."""
    body = function_body(node.op_type, node.domain, node.version, node.inputs, node.attributes, len(node.types))
    if body is None:
        raise node.refusal(
            "ONNX has no function body of it for these operands", "say in the model what types and shapes they have"
        )
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    names.update(zip(body.inputs, node.inputs, strict=False))
    node.nested(body.nodes, names, body.version)
    made = [names.get(name) for name in body.outputs[: len(node.types)]]
    results = tuple(symbol for symbol in made if symbol is not None)
    if len(results) != len(node.types):
        raise node.refusal(f"its function body makes {len(results)} results", "export the model again")
    return results
