"""The types of what one node gives: by the rules of `graphcore.operators`, else by ONNX's inference, asked once."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.type_protos import SMALL, data_of, proto_of, read_type
from graphcore.onnx.schemas.schemas import by_schema, element, operator, schema_of
from graphcore.operators import ROWS, SHAPES
from graphcore.operators.shapes.call import OperatorCall, Value, shapes_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, Shape, TensorType, Type, _shape, tensor_type

Given: TypeAlias = "Sequence[Symbol | None]"

_MAX_SHOWN = 100
"""Characters of a name that errors show."""

_MAX_REMEMBERED = 4096
"""Answers of inference that are remembered."""
_LONGEST = 2048
"""Bytes of attributes and operands up to which an answer is remembered."""

_answers: dict[Hashable, tuple[Type, ...]] = {}


def inferred(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Given,
    versions: Mapping[str, int],
    told: Sequence[Type | None],
    place: object,
    attributes: Mapping[str, Any] | None = None,
    sizes: ShapeValues | None = None,
) -> list[Type]:
    """The types of a node's results: by the operator's rule, else as ONNX infers them. Raises `ModelError`.

    inputs: None for one that is left out, also where the node has a name for it: of an operand that a call leaves out.
    told: what the model says of results, or nothing. attributes: of the node, None to have ONNX asked. sizes: tells
    what operands hold.
    """
    outputs = [*proto.output]
    shapes: Sequence[Shape] | None = None
    found: Sequence[Type] = ()
    if attributes is not None and schema.name in SHAPES and schema.domain in _RULED:
        shapes = _shapes(schema, inputs, attributes, len(outputs), sizes, place)
        dtypes = _dtypes(schema, inputs, attributes, len(outputs))
        found = [tensor_type(d, shape) for d, shape in zip(dtypes, shapes or (), strict=False) if d is not None]
    if len(found) < len(outputs):
        found = _by_onnx(proto, schema, inputs, versions, outputs, place)
    made = []
    for position, type_ in enumerate(found):
        if shapes is not None and isinstance(type_, TensorType):
            type_ = closed(type_, tensor_type(type_.dtype, shapes[position]))
        said = told[position] if told else None
        made.append(type_ if said is None else _with_told(type_, said))
    return made


def _with_told(type_: Type, told: Type) -> Type:
    """Return a type with the dims that a model tells where its own are not known, and numbers in place of names."""
    if not isinstance(type_, TensorType) or type_.shape.is_static or not isinstance(told, TensorType):
        return type_
    if type_.dtype is not told.dtype or not type_.shape.is_ranked:
        return told if type_.dtype is told.dtype else type_
    if not told.shape.is_ranked or len(told.shape) != len(type_.shape):
        return type_
    pairs = zip(type_.shape, told.shape, strict=True)
    dims = [b if a.is_dynamic or (b.is_static and not a.is_static) else a for a, b in pairs]
    return tensor_type(type_.dtype, _shape(dims))


def closed(old: Type, new: Type) -> Type:
    """Return a type with the dims of another one where its own are not known."""
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or not new.shape.is_ranked:
        return old
    if not old.shape.is_ranked:
        return tensor_type(old.dtype, new.shape)
    if len(old.shape) != len(new.shape):
        return old
    return tensor_type(old.dtype, _shape([b if a.is_dynamic else a for a, b in zip(old.shape, new.shape, strict=True)]))


_RULED = frozenset({"", "ai.onnx.ml"})


def _shapes(
    schema: onnx.defs.OpSchema,
    inputs: Given,
    attributes: Mapping[str, Any],
    count: int,
    sizes: ShapeValues | None,
    place: object,
) -> Sequence[Shape] | None:
    """Return the shapes that the operator's rule gives; None where that does not tell. Raises `ModelError`."""
    own: list[Shape | None] = []
    for symbol in inputs:
        type_ = None if symbol is None else symbol.type
        if type_ is not None and not isinstance(type_, TensorType):
            return None
        own.append(None if type_ is None else type_.shape)
    call = OperatorCall(own, attributes, count, since=schema.since_version)
    if sizes is not None:
        call.value = lambda i: _value(sizes, inputs[i]) if i < len(inputs) else None
        call.array = lambda i: constant_array(inputs[i], weights=True, outer=True) if i < len(inputs) else None
    try:
        return shapes_of(SHAPES[schema.name], call)
    except ShapeError as error:
        raise ModelError(
            f"load: {place}: {error.summary}",
            operands={f"input {i}": s for i, s in enumerate(inputs) if s is not None},
            help=error.help or "see the operator's ONNX schema",
        ) from None
    except (ValueError, ArithmeticError):  # dims have bounds on how long they may become
        return None


def _value(sizes: ShapeValues, symbol: Symbol | None) -> Value:
    """Return what is known of the elements of an operand: of a constant also where there are many."""
    found = sizes.of(symbol)
    array = constant_array(symbol, weights=True, outer=True) if found is None else None
    is_vector = array is not None and array.ndim == 1 and array.dtype.kind in "iu" and array.nbytes <= SMALL
    return tuple(array.tolist()) if array is not None and is_vector else found


def _dtypes(schema: onnx.defs.OpSchema, inputs: Given, attributes: Mapping[str, Any], count: int) -> list[DType | None]:
    """Return the dtypes of results, as they are stored: that of operands of the same type variable, the only one there
    is, or the one that an attribute says."""
    op, row = operator(schema), ROWS.get(schema.name)
    said = None if row is None else attributes.get(row.dtype_attribute)
    if said is not None:
        with contextlib.suppress(DTypeError):
            dtype = DType.of(said).storage
            return [dtype if element(tensor_type(dtype, Shape())) in op.outputs[0].allowed else None] * count
    types = reversed([(i, s.type) for i, s in enumerate(inputs) if s is not None])
    bound = {p.type: t for i, t in types if (p := op.input(i)) is not None}
    found = [by_schema(op, position, bound) for position in range(count)]
    return [t.dtype.storage if isinstance(t, TensorType) else None for t in found]


def _by_onnx(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Given,
    versions: Mapping[str, int],
    outputs: Sequence[str],
    place: object,
) -> tuple[Type, ...]:
    """Return what ONNX's inference answers, and where it does not know what the schema tells. Raises `ModelError`."""
    key = _key(proto, schema, inputs, versions, outputs)
    found = None if key is None else _answers.get(key)
    if found is None:
        found = tuple(_asked(proto, schema, inputs, versions, outputs, place))
        if key is not None:
            if len(_answers) >= _MAX_REMEMBERED:
                _answers.clear()
            _answers[key] = found
    return found


def _key(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Symbol | None],
    versions: Mapping[str, int],
    outputs: Sequence[str],
) -> Hashable | None:
    """Return all that an answer of inference depends on; None where that is too long to be remembered."""
    if len(outputs) > 1 and len(set(outputs)) != len(outputs):
        return None
    size = 0
    said = []
    for attribute in proto.attribute:
        if attribute.type in _LARGE_KINDS and attribute.ByteSize() > _LONGEST:
            return None
        if attribute.type in _GRAPHS:
            return None
        content = attribute.SerializeToString()
        size += len(content)
        said.append(content)
    types: list[Type | None] = []
    held: list[bytes | None] = []
    for symbol in inputs:
        types.append(None if symbol is None else symbol.type)
        array = constant_array(symbol, weights=True, outer=True)
        if array is None or array.nbytes > SMALL:
            held.append(None)
            continue
        if array.dtype == object:
            return None
        size += array.nbytes
        held.append(array.tobytes())
    if size > _LONGEST:
        return None
    opsets = tuple(versions.items())
    names = tuple(map(bool, outputs))
    return schema.name, schema.domain, schema.since_version, opsets, names, *said, None, *types, *held


_Kinds = onnx.AttributeProto
_GRAPHS = frozenset({_Kinds.GRAPH, _Kinds.GRAPHS})
_LARGE_KINDS = frozenset(
    {_Kinds.TENSOR, _Kinds.TENSORS, _Kinds.SPARSE_TENSOR, _Kinds.SPARSE_TENSORS, _Kinds.INTS, _Kinds.FLOATS}
)


def _asked(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Symbol | None],
    versions: Mapping[str, int],
    outputs: Sequence[str],
    place: object,
) -> list[Type]:
    """Return what inference answers, and where it does not know what the schema tells. Raises `ModelError`."""
    named = {name: s for name, s in zip(proto.input, inputs, strict=False) if s is not None}
    types = {name: proto_of(s.type) for name, s in named.items() if s.type != ForeignType()}
    proto = _without(proto, inputs)
    for name in proto.input:
        if name and name not in types:  # which inference looks up
            raise ModelError(
                f"load: {place}: the type of its operand {name[:_MAX_SHOWN]!r} is not known",
                operands=dict(named),
                help="say it in the model: as the type of an input, or in value_info",
            )
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in versions.items()]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            _inferable(schema),
            proto,
            types,
            data_of(named),
            opset_imports=imports,
            ir_version=onnx.IR_VERSION,
        )
    except Exception as error:
        reason = str(error).strip().split("\n")[-1]
        raise ModelError(
            f"load: {place}: {reason}",
            operands=dict(named),
            help="see the operator's ONNX schema",
        ) from None
    op = operator(schema)
    bound = {p.type: s.type for i, s in enumerate(inputs) if s is not None and (p := op.input(i)) is not None}
    made = []
    for position, name in enumerate(outputs):
        type_ = read_type(found[name]) if name in found else ForeignType()
        if isinstance(type_, ForeignType) and not type_.onnx:
            type_ = by_schema(op, position, bound)
        made.append(type_)
    return made


def _without(proto: onnx.NodeProto, inputs: Sequence[Symbol | None]) -> onnx.NodeProto:
    """Return the node with no names for the operands that are left out."""
    if not any(name and s is None for name, s in zip(proto.input, inputs, strict=False)):
        return proto
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    made.input[:] = ["" if s is None else name for name, s in zip(proto.input, inputs, strict=False)]
    return made


def _inferable(schema: onnx.defs.OpSchema) -> onnx.defs.OpSchema:
    """The schema, or for one that is deprecated, which inference refuses, the one before it or else the newest."""
    if not schema.deprecated:
        return schema
    return schema_of(schema.name, schema.domain, schema.since_version - 1) or onnx.defs.get_schema(
        schema.name, domain=schema.domain
    )
