"""Infer the result types of one node: by the rules of `graphcore.operators`, else by ONNX's inference, cached."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.limits import MAX_NAME_LENGTH, invalid, named_inputs
from graphcore.onnx.proto.type_protos import SMALL, proto_of, read_type, small_constants
from graphcore.onnx.schemas.schemas import by_schema, element, operator, schema_of
from graphcore.operators import ROWS, SHAPES
from graphcore.operators.shapes.call import OperatorCall, Value, shapes_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, Shape, TensorType, Type, _shape, tensor_type

Inputs: TypeAlias = "Sequence[Symbol | None]"

_MAX_REMEMBERED = 4096
"""The size of the cache of inference results."""
_MAX_KEY_BYTES = 2048
"""Nodes with more bytes of attributes and operands are not cached."""

_answers: dict[Hashable, tuple[Type, ...]] = {}


def infer_node(
    proto: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Inputs,
    versions: Mapping[str, int],
    declared: Sequence[Type | None],
    place: object,
    attributes: Mapping[str, Any] | None = None,
    sizes: ShapeValues | None = None,
) -> list[Type]:
    """Return the result types of a node: by the operator's rule, else as ONNX infers them. Raises `ModelError`.

    Args:
        inputs: None for an operand that is left out, even where the node has a name for it (in a call of a function).
        declared: The types of results that the model declares, or an empty sequence.
        attributes: Of the node; None to use ONNX's inference.
        sizes: Has known values of operands.
    """
    count = len(proto.output)
    if schema.name == "Gradient":  # ONNX does not infer it: a derivative has the type of its x
        xs = [s for s in inputs[:count] if s is not None]
        if wrong := [s for s in xs if element(s.type) not in operator(schema).outputs[0].allowed]:
            raise invalid(
                f"{place}: [TypeInferenceError] it does not take an x of {wrong[0].type}: derivatives are floats",
                help="list only floats in xs, and the others in zs",
            )
        return [s.type for s in xs]
    shapes: Sequence[Shape] | None = None
    inferred_types: Sequence[Type] = ()
    if attributes is not None and schema.name in SHAPES and schema.domain in _RULE_DOMAINS:
        shapes = _shapes(schema, inputs, attributes, count, sizes, place)
        dtypes = _dtypes(schema, inputs, attributes, count)
        inferred_types = [
            tensor_type(d, shape) for d, shape in zip(dtypes, shapes or (), strict=False) if d is not None
        ]
    if len(inferred_types) < count:
        inferred_types = _by_onnx(proto, schema, inputs, versions, place)
    types = []
    for position, type_ in enumerate(inferred_types):
        if shapes is not None and isinstance(type_, TensorType):
            type_ = fill_dims(type_, tensor_type(type_.dtype, shapes[position]))
        declared_type = declared[position] if declared else None
        types.append(type_ if declared_type is None else _with_declared(type_, declared_type))
    return types


def _with_declared(type_: Type, declared: Type) -> Type:
    """Return a type with unknown dims filled in from the declared type, and numbers in place of names."""
    if not isinstance(type_, TensorType) or type_.shape.is_static or not isinstance(declared, TensorType):
        return type_
    return fill_dims(type_, declared, names=True) if type_.dtype is declared.dtype else type_


def fill_dims(old: Type, new: Type, *, names: bool = False) -> Type:
    """Return a type with unknown dims filled in from another type. names: also numbers in place of names."""
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or not new.shape.is_ranked:
        return old
    if not old.shape.is_ranked:
        return tensor_type(old.dtype, new.shape)
    if len(old.shape) != len(new.shape):
        return old
    pairs = zip(old.shape, new.shape, strict=True)
    dims = [b if a.is_dynamic or (names and b.is_static and not a.is_static) else a for a, b in pairs]
    return tensor_type(old.dtype, _shape(dims))


_RULE_DOMAINS = frozenset({"", "ai.onnx.ml"})


def _shapes(
    schema: onnx.defs.OpSchema,
    inputs: Inputs,
    attributes: Mapping[str, Any],
    count: int,
    sizes: ShapeValues | None,
    place: object,
) -> Sequence[Shape] | None:
    """Return result shapes by the operator's rule; None if they are unknown. Raises `ModelError`."""
    operand_shapes: list[Shape | None] = []
    for symbol in inputs:
        type_ = None if symbol is None else symbol.type
        if type_ is not None and not isinstance(type_, TensorType):
            return None
        operand_shapes.append(None if type_ is None else type_.shape)
    call = OperatorCall(operand_shapes, attributes, count, since=schema.since_version)
    if sizes is not None:
        call.value = lambda i: _value(sizes, inputs[i]) if i < len(inputs) else None
        call.array = lambda i: constant_array(inputs[i], weights=True, outer=True) if i < len(inputs) else None
    try:
        return shapes_of(SHAPES[schema.name], call)
    except ShapeError as error:
        raise invalid(
            f"{place}: {error.summary}",
            operands=named_inputs(inputs),
            help=error.help or "see the operator's ONNX schema",
        ) from None
    except (ValueError, ArithmeticError):  # the length of symbolic dims is limited
        return None


def _value(sizes: ShapeValues, symbol: Symbol | None) -> Value:
    """Return the known elements of an operand; of a constant also where there are many."""
    elements = sizes.of(symbol)
    array = constant_array(symbol, weights=True, outer=True) if elements is None else None
    is_vector = array is not None and array.ndim == 1 and array.dtype.kind in "iu" and array.nbytes <= SMALL
    return tuple(array.tolist()) if array is not None and is_vector else elements


def _dtypes(
    schema: onnx.defs.OpSchema, inputs: Inputs, attributes: Mapping[str, Any], count: int
) -> list[DType | None]:
    """Return the storage dtypes of results, by type variables, the only allowed dtype, or an attribute."""
    op, row = operator(schema), ROWS.get(schema.name)
    named = None if row is None else attributes.get(row.dtype_attribute)
    if named is not None:
        with contextlib.suppress(DTypeError):
            dtype = DType.of(named).storage
            return [dtype if element(tensor_type(dtype, Shape())) in op.outputs[0].allowed else None] * count
    types = reversed([(i, s.type) for i, s in enumerate(inputs) if s is not None])
    bound = {p.type: t for i, t in types if (p := op.input(i)) is not None}
    result_types = [by_schema(op, position, bound) for position in range(count)]
    return [t.dtype.storage if isinstance(t, TensorType) else None for t in result_types]


def _by_onnx(
    proto: onnx.NodeProto, schema: onnx.defs.OpSchema, inputs: Inputs, versions: Mapping[str, int], place: object
) -> tuple[Type, ...]:
    """Return the types by `_infer`, cached. Raises `ModelError`."""
    key = _key(proto, schema, inputs, versions)
    types = None if key is None else _answers.get(key)
    if types is None:
        types = tuple(_infer(proto, schema, inputs, versions, place))
        if key is not None:
            if len(_answers) >= _MAX_REMEMBERED:
                _answers.clear()
            _answers[key] = types
    return types


def _key(
    proto: onnx.NodeProto, schema: onnx.defs.OpSchema, inputs: Inputs, versions: Mapping[str, int]
) -> Hashable | None:
    """Return everything that inference depends on, as a cache key; None if it is too long."""
    outputs = [*proto.output]
    if len(outputs) > 1 and len(set(outputs)) != len(outputs):
        return None
    size = 0
    attributes = []
    for attribute in proto.attribute:
        if attribute.type in _LARGE_KINDS and attribute.ByteSize() > _MAX_KEY_BYTES:
            return None
        if attribute.type in _GRAPHS:
            return None
        content = attribute.SerializeToString()
        size += len(content)
        attributes.append(content)
    types: list[Type | None] = []
    contents: list[bytes | None] = []
    for symbol in inputs:
        types.append(None if symbol is None else symbol.type)
        array = constant_array(symbol, weights=True, outer=True)
        if array is None or array.nbytes > SMALL:
            contents.append(None)
            continue
        if array.dtype == object:
            return None
        size += array.nbytes
        contents.append(array.tobytes())
    if size > _MAX_KEY_BYTES:
        return None
    opsets = tuple(versions.items())
    names = tuple(map(bool, outputs))
    return schema.name, schema.domain, schema.since_version, opsets, names, *attributes, None, *types, *contents


_Kinds = onnx.AttributeProto
_GRAPHS = frozenset({_Kinds.GRAPH, _Kinds.GRAPHS})
_LARGE_KINDS = frozenset(
    {_Kinds.TENSOR, _Kinds.TENSORS, _Kinds.SPARSE_TENSOR, _Kinds.SPARSE_TENSORS, _Kinds.INTS, _Kinds.FLOATS}
)


def _infer(
    proto: onnx.NodeProto, schema: onnx.defs.OpSchema, inputs: Inputs, versions: Mapping[str, int], place: object
) -> list[Type]:
    """Return the types by ONNX's inference, else by the schema alone. Raises `ModelError`."""
    named = {name: s for name, s in zip(proto.input, inputs, strict=False) if s is not None}
    types = {name: proto_of(s.type) for name, s in named.items() if s.type != OpaqueType()}
    proto = _without(proto, inputs)
    for name in proto.input:
        if name and name not in types:  # inference looks them all up
            raise invalid(
                f"{place}: the type of its operand {name[:MAX_NAME_LENGTH]!r} is unknown",
                operands=dict(named),
                help="declare it in the model: as the type of an input, or in value_info",
            )
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in versions.items()]
    try:
        protos = onnx.shape_inference.infer_node_outputs(
            _inferable(schema),
            proto,
            types,
            small_constants(named),
            opset_imports=imports,
            ir_version=onnx.IR_VERSION,
        )
    except Exception as error:
        reason = str(error).strip().split("\n")[-1]
        raise invalid(f"{place}: {reason}", operands=dict(named), help="see the operator's ONNX schema") from None
    op = operator(schema)
    bound = {p.type: s.type for i, s in enumerate(inputs) if s is not None and (p := op.input(i)) is not None}
    result = []
    for position, name in enumerate(proto.output):
        type_ = read_type(protos[name]) if name in protos else OpaqueType()
        if isinstance(type_, OpaqueType) and not type_.onnx:
            type_ = by_schema(op, position, bound)
        result.append(type_)
    return result


def _without(proto: onnx.NodeProto, inputs: Sequence[Symbol | None]) -> onnx.NodeProto:
    """Return the node with empty names for the operands that are left out, and without bodies that are not written."""
    attributes = [a for a in proto.attribute if a.type != onnx.AttributeProto.GRAPH or a.g.ByteSize()]
    is_whole = all(s is not None or not name for name, s in zip(proto.input, inputs, strict=False))
    if is_whole and len(attributes) == len(proto.attribute):
        return proto
    names = ["" if s is None else name for name, s in zip(proto.input, inputs, strict=False)]
    return onnx.NodeProto(
        op_type=proto.op_type,
        domain=proto.domain,
        input=names,
        output=proto.output,
        attribute=attributes,
        name=proto.name,
    )


def _inferable(schema: onnx.defs.OpSchema) -> onnx.defs.OpSchema:
    """Return the schema; for a deprecated one, which inference rejects, the previous or else the newest one."""
    if not schema.deprecated:
        return schema
    return schema_of(schema.name, schema.domain, schema.since_version - 1) or onnx.defs.get_schema(
        schema.name, domain=schema.domain
    )
