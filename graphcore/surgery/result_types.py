"""Infer the types of a node's results when the types of its operands change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from graphcore.build.declare import EXPANSIONS, LIBRARY, expanded
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.state import settings
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Draft
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.proto.tensors import node_proto
from graphcore.onnx.read.bodies import declared_types
from graphcore.onnx.schemas.node_inference import infer_node
from graphcore.onnx.schemas.other_domains import infer_other_domain
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import Operator, Parameter, by_schema, element, operator, schema_of
from graphcore.operators import REDUCTIONS, SHAPES, Trait, having
from graphcore.operators.shapes.call import OperatorCall, shapes_of
from graphcore.promotion.complex_operators import is_complex
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    tensor_type,
)

Operands = Sequence[Symbol | None]

_CASTS = frozenset({"Cast", "BitCast"})


@dataclass(frozen=True, slots=True)
class OperandChange:
    """A node that is rebuilt on other operands.

    what: the edit of the graph, named in errors. before, results: the old types of its operands and results, in the
    dims of the new graph. inputs: the new operands. has_other_sizes: an operand that may determine the shape of a
    result has another value.
    """

    what: str
    node: Node
    before: Sequence[Type | None]
    results: Sequence[Type]
    inputs: Operands
    has_other_sizes: bool

    @property
    def place(self) -> str:
        """The edit and the node, for errors."""
        return f"{self.what}: {describe_node(self.node)}"


def result_types(change: OperandChange, sizes: ShapeValues) -> list[Type]:
    """Return the result types of a node without bodies, which calls no function, on other operands.

    sizes: shared by the nodes of one graph. A rank or dims that cannot be inferred are unknown in the result. Raises
    `DTypeError` if operands of one type variable have different dtypes, `ShapeError` if the operator does not accept
    their shapes.
    """
    domain = change.node.domain
    if _has_same_shapes(change):
        shapes = [*change.results]
    elif domain == LIBRARY:
        shapes = _library_types(change)
    elif domain in ("", "ai.onnx.ml"):
        shapes = _onnx_types(change, sizes)
    else:
        shapes = _other_types(change)
    return [
        tensor_type(dtype, type_.shape) if isinstance(type_, TensorType) and dtype is not None else type_
        for type_, dtype in zip(shapes, _dtypes(change, shapes), strict=True)
    ]


def describe_node(node: Node) -> str:
    """Return the operator and the name of the first result of a node, for errors."""
    return f"{node.op_type} {node.outputs[0].name!r}" if node.outputs else node.op_type


def labelled_operands(inputs: Operands) -> dict[str, Symbol]:
    """Return the operands by position, for errors."""
    return {f"operand {i}": s for i, s in enumerate(inputs) if s is not None}


def _has_same_shapes(change: OperandChange) -> bool:
    """Return True if the operands have the shapes that the node was built with."""
    if change.has_other_sizes:
        return False
    for a, new in zip(change.before, change.inputs, strict=True):
        if a is None or new is None:
            continue
        b = new.type
        if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape != b.shape:
            return False
        if not a.shape.is_ranked or any(dim.is_dynamic for dim in a.shape):
            return False
    return True


def check_condition(place: str, node: Node, inputs: Operands) -> None:
    """Raise `DTypeError` or `ShapeError` if the condition of an If or Loop is not one bool."""
    position = {"If": 0, "Loop": 1}.get(node.op_type)
    symbol = None if position is None or position >= len(inputs) else inputs[position]
    if symbol is None or not isinstance(symbol.type, TensorType):
        return
    if symbol.dtype is not DType.bool:
        raise DTypeError(
            f"{place}: the condition must be bool, got {symbol.dtype}",
            operands=labelled_operands(inputs),
            help="give it a bool",
        )
    shape = symbol.shape
    if shape.is_ranked and any(dim.is_static and int(dim) != 1 for dim in shape):
        raise ShapeError(
            f"{place}: the condition must be a single bool, got shape {shape}",
            operands=labelled_operands(inputs),
            help="reduce it to one",
        )


def may_decide_shapes(node: Node, symbol: Symbol) -> bool:
    """Return True if the value of an operand may determine the shape of a result."""
    if not isinstance(symbol.type, TensorType) or not (symbol.dtype.is_integer or node.op_type in _SCALED):
        return False
    return node.domain == LIBRARY or node.op_type in _SIZED


_SCALED = frozenset({"Range", "Resize"})
_SIZED = having(Trait.SIZED, Trait.BODIES) - REDUCTIONS - {"SequenceMap"} | {"GridSample"}
"""The operators whose operands may be sizes, positions or counts. The operands of reductions are axes."""


# Dtypes


def _dtypes(change: OperandChange, types: Sequence[Type]) -> list[DType | None]:
    """Return the dtypes of the results, None for a result that is not a tensor.

    A result of the same type variable as an operand has its dtype. Without a schema, a result that had the dtype of an
    operand follows it.
    """
    node = change.node
    after = [None if s is None else s.type for s in change.inputs]
    if node.op_type not in _CASTS and has_complex([*change.before, *after]):
        return [
            moved_dtype(node.op_type, result.dtype, change.before, change.inputs)
            if isinstance(result, TensorType)
            else None
            for result in change.results
        ]
    schema = schema_of(node.op_type, node.domain, DOMAINS.get(node.domain, OPSET))
    if schema is not None and node.domain in ("", "ai.onnx.ml"):
        return _dtypes_by_variable(change, operator(schema), types)
    moved: dict[DType, DType] = {}
    for a, new in zip(change.before, change.inputs, strict=True):
        if isinstance(a, TensorType) and new is not None and isinstance(new.type, TensorType):
            moved.setdefault(a.dtype, new.dtype)
    return [
        None
        if not isinstance(type_, TensorType)
        else moved.get(result.dtype, result.dtype)
        if node.domain == LIBRARY and isinstance(result, TensorType)
        else type_.dtype
        for type_, result in zip(types, change.results, strict=True)
    ]


def literals(node: Node, inputs: Operands) -> dict[int, DType]:
    """Return the dtypes for scalar constants whose other operands have changed to one dtype, by position."""
    schema = None if node.domain else schema_of(node.op_type, "", OPSET)
    if schema is None:
        return {}
    dtypes: dict[str, set[DType]] = {}
    constants: dict[int, tuple[str, DType]] = {}
    for position, symbol, parameter in _tensors(operator(schema), inputs):
        array = constant_array(symbol)
        if array is not None and array.size == 1 and symbol.given_name is None:
            constants[position] = parameter.type, symbol.dtype
        else:
            dtypes.setdefault(parameter.type, set()).add(symbol.dtype)
    return {
        position: min(dtypes[label], key=str)
        for position, (label, dtype) in constants.items()
        if len(dtypes.get(label, ())) == 1 and dtype not in dtypes[label]
    }


def _tensors(op: Operator, inputs: Operands) -> Iterator[tuple[int, Symbol, Parameter]]:
    """Yield the operands that are tensors, with their positions and parameters."""
    for position, symbol in enumerate(inputs):
        if symbol is not None and isinstance(symbol.type, TensorType) and (parameter := op.input(position)):
            yield position, symbol, parameter


def _dtypes_by_variable(change: OperandChange, op: Operator, shaped: Sequence[Type]) -> list[DType | None]:
    bound: dict[str, Symbol] = {}
    for _, symbol, parameter in _tensors(op, change.inputs):
        if parameter.is_variadic and not parameter.is_homogeneous:
            continue
        if symbol.dtype is DType.string and "tensor(string)" not in parameter.allowed:
            raise DTypeError(
                f"{change.place} does not take strings",
                operands=labelled_operands(change.inputs),
                help="replace the node too",
            )
        first = bound.setdefault(parameter.type, symbol)
        if first.dtype is not symbol.dtype:
            raise DTypeError(
                f"{change.place} mixes {first.dtype} and {symbol.dtype}",
                operands=labelled_operands(change.inputs),
                help=f"cast one of them: .cast({first.dtype})",
            )
    types = {label: symbol.type for label, symbol in bound.items()}
    dtypes: list[DType | None] = []
    for position, (type_, result) in enumerate(zip(shaped, change.results, strict=True)):
        schema_type = by_schema(op, position, types)
        if not isinstance(type_, TensorType):
            dtypes.append(None)
        elif isinstance(schema_type, TensorType):
            dtypes.append(schema_type.dtype)
        elif isinstance(result, TensorType) and (
            change.node.op_type in _CASTS or result.dtype.storage is type_.dtype.storage
        ):
            dtypes.append(result.dtype)
        else:
            dtypes.append(type_.dtype)
    return dtypes


# Shapes


def _onnx_types(change: OperandChange, sizes: ShapeValues) -> list[Type]:
    node, inputs = change.node, change.inputs
    version = DOMAINS.get(node.domain, OPSET)
    schema = schema_of(node.op_type, node.domain, version)
    if schema is None:
        return _types_without_dims(change)
    if _has_other_lists(operator(schema), inputs):
        return _types_without_dims(change)
    proto = _proto(node, inputs)
    stand_ins = _with_allowed_dtypes(operator(schema), inputs)
    try:
        return infer_node(proto, schema, stand_ins, {node.domain: version}, (), change.place, node.attributes, sizes)
    except GraphcoreError as error:
        fix = "give operands of matching shapes, or replace the nodes that read them too"
        raise _shape_error(error, inputs, fix) from None


def _shape_error(error: GraphcoreError, inputs: Operands, fix: str) -> ShapeError:
    """Return the reader's error about a node as one of an edit."""
    return ShapeError(error.summary.removeprefix("load: "), operands=labelled_operands(inputs), help=fix)


def _proto(node: Node, inputs: Operands) -> onnx.NodeProto:
    """Return a NodeProto for inference, without the attributes that only the lowering reads."""
    attributes = {key: value for key, value in settings.without(node.attributes).items() if key != "within"}
    return node_proto(node.op_type, node.domain, inputs, attributes, len(node.outputs))


def _has_other_lists(op: Operator, inputs: Operands) -> bool:
    """Return True if an operand is a sequence or optional of a dtype that the schema does not allow."""
    types = {i: s.type for i, s in enumerate(inputs) if s is not None}
    lists = {i: type_ for i, type_ in types.items() if isinstance(type_, (SequenceType, OptionalType))}
    return any((p := op.input(i)) and p.allowed and element(type_) not in p.allowed for i, type_ in lists.items())


def _with_allowed_dtypes(op: Operator, inputs: Operands) -> list[Symbol | None]:
    """Return operands for ONNX's inference: those of dtypes that the schema does not allow get an allowed one."""
    stand_ins: list[Symbol | None] = []
    aside: Draft | None = None
    for position, symbol in enumerate(inputs):
        parameter = op.input(position)
        if symbol is None or parameter is None or not isinstance(symbol.type, TensorType):
            stand_ins.append(symbol)
            continue
        if not parameter.allowed or element(symbol.type) in parameter.allowed:
            stand_ins.append(symbol)
            continue
        aside = Draft("aside") if aside is None else aside
        dtype = next((d for d in _COMMON if element(tensor_type(d, symbol.shape)) in parameter.allowed), DType.float32)
        stand_ins.append(aside.build.input(tensor_type(dtype, symbol.shape)))
    return stand_ins


_COMMON = (DType.float32, DType.int64, DType.bool, DType.uint8, DType.string)


def _library_types(change: OperandChange) -> list[Type]:
    """Return the result types of an operator of graphcore, by its shape rule or expansion."""
    node, inputs, place = change.node, change.inputs, change.place
    rule = SHAPES.get(node.op_type)
    if rule is not None:
        try:
            call = OperatorCall([None if s is None else s.shape for s in inputs], node.attributes, len(node.outputs))
            shapes = shapes_of(rule, call)
        except ShapeError as error:
            raise ShapeError(f"{place}: {error.summary}", operands=labelled_operands(inputs), help=error.help) from None
        if shapes is not None:
            return [tensor_type(s.dtype, shape) for s, shape in zip(node.outputs, shapes, strict=True)]
    if node.op_type not in EXPANSIONS:
        raise GraphError(
            f"{place}: the types of its results cannot be inferred for the new operands",
            operands=labelled_operands(inputs),
            help="replace the node by ops on the new operands",
        )
    aside = Draft("aside")
    copies = [None if s is None else _copy_symbol(aside, s) for s in inputs]
    try:
        expansion = expanded(node.op_type, copies, node.attributes)
    except GraphcoreError as error:
        raise type(error)(f"{place}: {error.summary}", operands=labelled_operands(inputs), help=error.help) from None
    results = expansion if isinstance(expansion, tuple) else (expansion,)
    return [s.type for s in results[: len(node.outputs)]]


def _copy_symbol(aside: Draft, symbol: Symbol) -> Symbol:
    """Return a copy of a Symbol in a draft; complex numbers become their real storage dtype."""
    if has_complex([symbol.type]) and isinstance(symbol.type, TensorType):
        return aside.build.input(tensor_type(symbol.dtype.storage, symbol.shape))
    return aside.build.symbol(symbol.type, symbol.producer) if symbol.is_constant else aside.build.input(symbol.type)


def _other_types(change: OperandChange) -> list[Type]:
    """Return the result types of an operator of another domain: by its declaration, a rule, or from the runtime."""
    node, inputs = change.node, change.inputs
    proto = _proto(node, inputs)
    try:
        types = declared_types(node.domain, proto, inputs, node.attributes, change.place)
    except GraphcoreError as error:
        raise _shape_error(error, inputs, error.help or "replace the node too") from None
    if types is not None:
        return types
    versions = {"": OPSET, node.domain: node.outputs[0].graph.opsets.get(node.domain, 1)}
    inferred_types = infer_other_domain(proto, inputs, versions, installed, [OpaqueType()] * len(node.outputs))
    return [
        b if isinstance(a, OpaqueType) else a for a, b in zip(inferred_types, _types_without_dims(change), strict=True)
    ]


def _types_without_dims(change: OperandChange) -> list[Type]:
    """Return the old types of the results with unknown dims."""
    return [
        tensor_type(t.dtype, Shape(["?"] * len(t.shape)) if t.shape.is_ranked else t.shape)
        if isinstance(t, TensorType)
        else t
        for t in change.results
    ]


# The result types of complex operands, which neither ONNX's inference nor the expansions of operators support.

_REAL = frozenset({"Abs", "Angle", "ImaginaryPart", "Magnitude", "RealPart"})
"""Operators that map complex numbers to real ones."""


def has_complex(types: Sequence[Type | None]) -> bool:
    """Return True if one of the types is complex."""
    return any(type_ is not None and is_complex(type_) for type_ in types)


def moved_dtype(op_type: str, result: DType, before: Sequence[Type | None], inputs: Sequence[Symbol | None]) -> DType:
    """Return the dtype of a result whose operands change dtype, some from or to complex."""
    moved: dict[DType, DType] = {}
    for a, new in zip(before, inputs, strict=True):
        if isinstance(a, TensorType) and new is not None and isinstance(new.type, TensorType):
            moved.setdefault(a.dtype, new.dtype)
            if a.dtype.is_complex and new.dtype.is_complex:
                moved.setdefault(a.dtype.storage, new.dtype.storage)
    dtype = moved.get(result, result)
    return real_of(dtype) if op_type in _REAL else dtype
