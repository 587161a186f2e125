"""The types of a node's results on operands of other types than it was built with."""

from __future__ import annotations

from collections.abc import Sequence
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
from graphcore.onnx.proto.model_proto import attribute
from graphcore.onnx.read.bodies import declared_types
from graphcore.onnx.schemas.node_inference import infer_node
from graphcore.onnx.schemas.other_domains import infer_other_domain
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import Operator, by_schema, element, operator, schema_of
from graphcore.operators import REDUCTIONS, SHAPES, Trait, having
from graphcore.operators.shapes.call import Call, shapes_of
from graphcore.promotion.complex_operators import is_complex
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import (
    ForeignType,
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
class Change:
    """A node that is made again on other operands.

    what: the change of the graph that asks for it, for errors. before, results: the types of its operands and results
    so far, in the dims of the new graph. inputs: the new operands. has_other_sizes: an operand that may decide the
    shape of a result has another value.
    """

    what: str
    node: Node
    before: Sequence[Type | None]
    results: Sequence[Type]
    inputs: Operands
    has_other_sizes: bool

    @property
    def place(self) -> str:
        """The change and the node, for errors."""
        return f"{self.what}: {described(self.node)}"


def result_types(change: Change, sizes: ShapeValues) -> list[Type]:
    """Return the types of what a node without bodies, which calls no function, gives on other operands.

    sizes: shared by the nodes of one graph. A rank and dims that cannot be told are not known in the result. Raises
    `DTypeError` where operands of one type have different dtypes, `ShapeError` where the operator does not take their
    shapes.
    """
    domain = change.node.domain
    if _has_same_shapes(change):
        shapes = [*change.results]
    elif domain == LIBRARY:
        shapes = _of_library(change)
    elif domain in ("", "ai.onnx.ml"):
        shapes = _of_onnx(change, sizes)
    else:
        shapes = _of_others(change)
    return [
        tensor_type(dtype, made.shape) if isinstance(made, TensorType) and dtype is not None else made
        for made, dtype in zip(shapes, _dtypes(change, shapes), strict=True)
    ]


def described(node: Node) -> str:
    """Return the operator and the name of what a node gives, for errors."""
    return f"{node.op_type} {node.outputs[0].name!r}" if node.outputs else node.op_type


def roles(inputs: Operands) -> dict[str, Symbol]:
    """Return the operands by position, for errors."""
    return {f"operand {i}": s for i, s in enumerate(inputs) if s is not None}


def _has_same_shapes(change: Change) -> bool:
    """Return whether the operands have the shapes that the node was built with."""
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
    """Raise `DTypeError` or `ShapeError` where what decides on a body is not one bool."""
    position = {"If": 0, "Loop": 1}.get(node.op_type)
    symbol = None if position is None or position >= len(inputs) else inputs[position]
    if symbol is None or not isinstance(symbol.type, TensorType):
        return
    if symbol.dtype is not DType.bool:
        raise DTypeError(f"{place} is decided by {symbol.dtype}", operands=roles(inputs), help="give it a bool")
    shape = symbol.shape
    if shape.is_ranked and any(dim.is_static and int(dim) != 1 for dim in shape):
        raise ShapeError(f"{place} is decided by more than one bool", operands=roles(inputs), help="reduce it to one")


def may_decide_shapes(node: Node, symbol: Symbol) -> bool:
    """Return whether the value of an operand of a node may decide the shape of a result."""
    if not isinstance(symbol.type, TensorType) or not (symbol.dtype.is_integer or node.op_type in _SCALED):
        return False
    return node.domain == LIBRARY or node.op_type in _SIZED


_SCALED = frozenset({"Range", "Resize"})
_SIZED = having(Trait.SIZED, Trait.BODIES) - REDUCTIONS - {"SequenceMap"} | {"GridSample"}
"""The operators with operands of sizes, positions and counts, GridSample among them: reductions have axes."""


# Dtypes


def _dtypes(change: Change, made: Sequence[Type]) -> list[DType | None]:
    """Return the dtypes of the results, None for what is no tensor.

    A result of the same type variable as an operand has its dtype; of an operator without a schema, a result that had
    the dtype of an operand goes on having it.
    """
    node = change.node
    given = [None if s is None else s.type for s in change.inputs]
    if node.op_type not in _CASTS and are_in([*change.before, *given]):
        return [
            moved_dtype(node.op_type, result.dtype, change.before, change.inputs)
            if isinstance(result, TensorType)
            else None
            for result in change.results
        ]
    schema = schema_of(node.op_type, node.domain, DOMAINS.get(node.domain, OPSET))
    if schema is not None and node.domain in ("", "ai.onnx.ml"):
        return _by_variables(change, operator(schema), made)
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
        for type_, result in zip(made, change.results, strict=True)
    ]


def literals(node: Node, inputs: Operands) -> dict[int, DType]:
    """Return by position the constants of one element that a node has beside operands of one other dtype, and that."""
    if node.domain:
        return {}
    schema = schema_of(node.op_type, "", OPSET)
    op = None if schema is None else operator(schema)
    dtypes: dict[str, set[DType]] = {}
    found: dict[int, tuple[str, DType]] = {}
    for position, symbol in enumerate(inputs):
        parameter = None if op is None else op.input(position)
        if symbol is None or parameter is None or not isinstance(symbol.type, TensorType):
            continue
        array = constant_array(symbol)
        if array is not None and array.size == 1 and symbol.given_name is None:
            found[position] = parameter.type, symbol.dtype
        else:
            dtypes.setdefault(parameter.type, set()).add(symbol.dtype)
    return {
        position: min(dtypes[label], key=str)
        for position, (label, dtype) in found.items()
        if len(dtypes.get(label, ())) == 1 and dtype not in dtypes[label]
    }


def _by_variables(change: Change, op: Operator, made: Sequence[Type]) -> list[DType | None]:
    bound: dict[str, Symbol] = {}
    for position, symbol in enumerate(change.inputs):
        parameter = op.input(position)
        if symbol is None or parameter is None or not isinstance(symbol.type, TensorType):
            continue
        if parameter.is_variadic and not parameter.is_homogeneous:
            continue
        if symbol.dtype is DType.string and "tensor(string)" not in parameter.allowed:
            raise DTypeError(
                f"{change.place} takes no strings", operands=roles(change.inputs), help="replace the node too"
            )
        first = bound.setdefault(parameter.type, symbol)
        if first.dtype is not symbol.dtype:
            raise DTypeError(
                f"{change.place} mixes {first.dtype} and {symbol.dtype}",
                operands=roles(change.inputs),
                help=f"cast one of them: .cast({first.dtype})",
            )
    types = {label: symbol.type for label, symbol in bound.items()}
    found: list[DType | None] = []
    for position, (type_, result) in enumerate(zip(made, change.results, strict=True)):
        said = by_schema(op, position, types)
        if not isinstance(type_, TensorType):
            found.append(None)
        elif isinstance(said, TensorType):
            found.append(said.dtype)
        elif isinstance(result, TensorType) and (
            change.node.op_type in _CASTS or result.dtype.storage is type_.dtype.storage
        ):
            found.append(result.dtype)
        else:
            found.append(type_.dtype)
    return found


# Shapes


def _of_onnx(change: Change, sizes: ShapeValues) -> list[Type]:
    node, inputs = change.node, change.inputs
    version = DOMAINS.get(node.domain, OPSET)
    schema = schema_of(node.op_type, node.domain, version)
    if schema is None:
        return _unknown(change)
    if _has_other_lists(operator(schema), inputs):
        return _unknown(change)
    proto = _proto(node, inputs)
    stand_ins = _allowed(operator(schema), inputs)
    try:
        return infer_node(proto, schema, stand_ins, {node.domain: version}, (), change.place, node.attributes, sizes)
    except GraphcoreError as error:
        raise ShapeError(
            error.summary.removeprefix("load: "),
            operands=roles(inputs),
            help="give operands of shapes that go together, or replace the nodes that read them too",
        ) from None


def _proto(node: Node, inputs: Operands) -> onnx.NodeProto:
    """Return a node without bodies for inference, on operands `x0`, `x1`."""
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
    proto.output.extend(f"y{i}" for i in range(len(node.outputs)))
    for key, value in settings.without(node.attributes).items():
        if key == "within":  # of a Cast, which is for lowering
            continue
        proto.attribute.append(onnx.AttributeProto.FromString(attribute(key, value)))
    return proto


def _has_other_lists(op: Operator, inputs: Operands) -> bool:
    """Return whether an operand is a list of tensors of a dtype that ONNX has no such lists of."""
    for position, symbol in enumerate(inputs):
        parameter = op.input(position)
        if symbol is None or parameter is None or not isinstance(symbol.type, (SequenceType, OptionalType)):
            continue
        if parameter.allowed and element(symbol.type) not in parameter.allowed:
            return True
    return False


def _allowed(op: Operator, inputs: Operands) -> list[Symbol | None]:
    """Return operands that ONNX's inference takes: of dtypes that the schema has, where those of Symbols are others."""
    made: list[Symbol | None] = []
    aside: Draft | None = None
    for position, symbol in enumerate(inputs):
        parameter = op.input(position)
        if symbol is None or parameter is None or not isinstance(symbol.type, TensorType):
            made.append(symbol)
            continue
        if not parameter.allowed or element(symbol.type) in parameter.allowed:
            made.append(symbol)
            continue
        aside = Draft("aside") if aside is None else aside
        dtype = next((d for d in _COMMON if element(tensor_type(d, symbol.shape)) in parameter.allowed), DType.float32)
        made.append(aside.build.input(tensor_type(dtype, symbol.shape)))
    return made


_COMMON = (DType.float32, DType.int64, DType.bool, DType.uint8, DType.string)


def _of_library(change: Change) -> list[Type]:
    """Return what the expansion of one of the library's own operators gives."""
    node, inputs, place = change.node, change.inputs, change.place
    rule = SHAPES.get(node.op_type)
    if rule is not None:
        try:
            call = Call([None if s is None else s.shape for s in inputs], node.attributes, len(node.outputs))
            found = shapes_of(rule, call)
        except ShapeError as error:
            raise ShapeError(f"{place}: {error.summary}", operands=roles(inputs), help=error.help) from None
        if found is not None:
            return [tensor_type(s.dtype, shape) for s, shape in zip(node.outputs, found, strict=True)]
    if node.op_type not in EXPANSIONS:
        raise GraphError(
            f"{place} cannot be typed again", operands=roles(inputs), help="replace the node by ops on the new operands"
        )
    aside = Draft("aside")
    given = [None if s is None else _copied(aside, s) for s in inputs]
    try:
        made = expanded(node.op_type, given, node.attributes)
    except GraphcoreError as error:
        raise type(error)(f"{place}: {error.summary}", operands=roles(inputs), help=error.help) from None
    results = made if isinstance(made, tuple) else (made,)
    return [s.type for s in results[: len(node.outputs)]]


def _copied(aside: Draft, symbol: Symbol) -> Symbol:
    """Return a Symbol of another graph of the same type, with the value of a constant; a real one for a complex one."""
    if are_in([symbol.type]) and isinstance(symbol.type, TensorType):
        return aside.build.input(tensor_type(symbol.dtype.storage, symbol.shape))
    return aside.build.symbol(symbol.type, symbol.producer) if symbol.is_constant else aside.build.input(symbol.type)


def _of_others(change: Change) -> list[Type]:
    """Return what is known of an operator of another domain: by its declaration, a rule, or from the runtime."""
    node, inputs = change.node, change.inputs
    proto = _proto(node, inputs)
    try:
        made = declared_types(node.domain, proto, inputs, node.attributes, change.place)
    except GraphcoreError as error:
        raise ShapeError(
            error.summary.removeprefix("load: "), operands=roles(inputs), help=error.help or "replace the node too"
        ) from None
    if made is not None:
        return made
    versions = {"": OPSET, node.domain: node.outputs[0].graph.opsets.get(node.domain, 1)}
    found = infer_other_domain(proto, inputs, versions, installed, [ForeignType()] * len(node.outputs))
    return [b if isinstance(a, ForeignType) else a for a, b in zip(found, _unknown(change), strict=True)]


def _unknown(change: Change) -> list[Type]:
    """Return the types that the results had, without dims."""
    return [
        tensor_type(t.dtype, Shape(["?"] * len(t.shape)) if t.shape.is_ranked else t.shape)
        if isinstance(t, TensorType)
        else t
        for t in change.results
    ]


# The types of results of complex operands, which ONNX's inference and the expansions of operators do not know.

_REAL = frozenset({"Abs", "Angle", "ImaginaryPart", "Magnitude", "RealPart"})
"""Operators that give real numbers of complex ones."""


def are_in(types: Sequence[Type | None]) -> bool:
    """Return whether there are complex numbers among values of such types."""
    return any(type_ is not None and is_complex(type_) for type_ in types)


def moved_dtype(op_type: str, result: DType, before: Sequence[Type | None], inputs: Sequence[Symbol | None]) -> DType:
    """Return the dtype of a result whose operands change dtypes, some from or to complex ones."""
    moved: dict[DType, DType] = {}
    for a, new in zip(before, inputs, strict=True):
        if isinstance(a, TensorType) and new is not None and isinstance(new.type, TensorType):
            moved.setdefault(a.dtype, new.dtype)
            if a.dtype.is_complex and new.dtype.is_complex:
                moved.setdefault(a.dtype.storage, new.dtype.storage)
    made = moved.get(result, result)
    return real_of(made) if op_type in _REAL else made
