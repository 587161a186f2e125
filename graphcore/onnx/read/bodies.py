"""Read the bodies of If, Loop, Scan and SequenceMap with the types of their operands; types of a model's nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from graphcore.custom_ops.custom_op import lookup
from graphcore.errors import GraphcoreError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import Attributes, change
from graphcore.ir.symbol import Input, Node, Symbol, root_of
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.proto.limits import check_size, check_trips, invalid, named_inputs
from graphcore.onnx.proto.type_protos import join_types, stack_type
from graphcore.onnx.read.model import ModelContext
from graphcore.onnx.read.statements import BodyStatements, Statement
from graphcore.onnx.schemas.node_inference import infer_node
from graphcore.onnx.schemas.other_domains import infer_other_domain
from graphcore.operators import BY_TYPES
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    _shape,
    tensor_type,
)

ReadBody: TypeAlias = Callable[[str, BodyStatements, Sequence[Type]], Graph]
"""(name, statements of the file, types of inputs) -> the body."""

_COUNTER = tensor_type(DType.int64, _shape([]))
_CONDITION = tensor_type(DType.bool, _shape([]))


def read(
    read_body: ReadBody,
    op_type: str,
    protos: Mapping[str, BodyStatements],
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int | None,
    opset: int,
    place: object,
) -> tuple[list[Type] | None, dict[str, Graph]]:
    """Return the result types of a node, None if its bodies do not decide them, and its bodies. Raises `ModelError`.

    outputs: the number of results, None if the bodies decide it. opset: the version of ONNX's own domain.
    """
    if op_type == "If" and {"then_branch", "else_branch"} <= protos.keys():
        graphs = {name: read_body(name, proto, []) for name, proto in protos.items()}
        branches = [[s.type for s in graph.outputs] for graph in graphs.values()]
        if len({len(types) for types in branches}) != 1 or outputs not in (None, len(branches[0])):
            raise invalid(f"{place}: its branches return different numbers of results")
        return [_common_type(pair, place) for pair in zip(*branches, strict=True)], graphs
    if op_type == "Loop" and "body" in protos:
        return _loop(read_body, protos["body"], inputs, outputs, place)
    if op_type == "Scan" and "body" in protos and opset >= 9:
        return _scan(read_body, protos["body"], inputs, attributes, outputs, place)
    if op_type == "SequenceMap" and "body" in protos:
        types = [OpaqueType() if s is None else s.type for s in inputs]
        element_types = [t.element if isinstance(t, SequenceType) else t for t in types]
        body = read_body("body", protos["body"], element_types)
        return [SequenceType(s.type) for s in body.outputs], {"body": body}
    if op_type == "FlexAttention":
        return None, {name: read_body(name, proto, [_scores(inputs, attributes)]) for name, proto in protos.items()}
    graphs = {name: read_body(name, read, [OpaqueType()] * len(read.proto.input)) for name, read in protos.items()}
    for name, graph in graphs.items():
        _name_interface(graph, protos[name].proto)
    return None, graphs


def _name_interface(graph: Graph, proto: onnx.GraphProto) -> None:
    """Name the inputs and outputs of a body as in the file: the runtime's own operators know them by their names."""
    taken = graph.names.taken
    for info, symbol in zip((*proto.input, *proto.output), (*graph.inputs, *graph.outputs), strict=False):
        if symbol.given_name is None and isinstance(symbol.producer, (Input, Node)) and info.name not in taken:
            change(symbol, given_name=info.name)
            taken[info.name] = symbol


def _scores(inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Type:
    """Return the type of the scores of FlexAttention, of which queries and keys decide the shape."""
    q, k = (None if s is None else s.type for s in inputs[:2])
    if not isinstance(q, TensorType) or not isinstance(k, TensorType):
        return OpaqueType()
    dtype = DType.float64 if q.dtype is DType.float64 else DType.float32
    are_known = q.shape.is_ranked and k.shape.is_ranked and len(q.shape) == len(k.shape) == 4
    shape = _shape([*q.shape[:3], k.shape[2]]) if are_known else Shape.unknown()
    return tensor_type(DType.of(attributes.get("softmax_precision", dtype)), shape)


def _common_type(types: Sequence[Type], place: object) -> Type:
    common = join_types(_semantic_types(types))
    if isinstance(common, OpaqueType) and not any(isinstance(t, OpaqueType) for t in types):
        raise invalid(
            f"{place}: its branches return different types: {', '.join(map(str, types))}",
            help="cast one of them in the model",
        )
    return common


def _semantic_types(types: Sequence[Type]) -> Sequence[Type]:
    """Where types differ only by a dtype and its storage dtype (index, uint64), return all of them with the former."""
    dtypes = {t.dtype for t in types if isinstance(t, TensorType)}
    semantic = [d for d in dtypes if d.storage is not d]
    if len(semantic) != 1 or dtypes != {semantic[0], semantic[0].storage}:
        return types
    return [tensor_type(semantic[0], t.shape) if isinstance(t, TensorType) else t for t in types]


def _loop(
    read_body: ReadBody, proto: BodyStatements, inputs: Sequence[Symbol | None], outputs: int | None, place: object
) -> tuple[list[Type], dict[str, Graph]]:
    state_types: list[Type] = [s.type if s is not None else OpaqueType() for s in inputs[2:]]
    body, final_types = _read_until_stable(read_body, proto, state_types, place, None)
    condition = body.outputs[0].type
    if isinstance(condition, TensorType) and condition.dtype is not DType.bool:
        raise invalid(
            f"{place}: the condition that its body returns must be bool, got {condition}", help="return a bool first"
        )
    length = check_trips(inputs[0], inputs[1], body, place)
    scanned = [stack_type(s.type, 0, length) for s in body.outputs[1 + len(state_types) :]]
    results = [_loop_result(a, b.type) for a, b in zip(final_types, body.outputs[1:], strict=False)]
    return _results([*results, *scanned], outputs, place), {"body": body}


def _results(types: list[Type], outputs: int | None, place: object) -> list[Type]:
    if outputs is not None and outputs > len(types):
        raise invalid(f"{place} has more results than its body")
    return types[:outputs]


def _loop_result(state: Type, result: Type) -> Type:
    """Return the result type of a Loop's state: not optional if every iteration sets it, as ONNX defines."""
    if isinstance(state, OptionalType) and not isinstance(result, (OptionalType, OpaqueType)):
        return state.element
    return state


def _scan(
    read_body: ReadBody,
    proto: BodyStatements,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int | None,
    place: object,
) -> tuple[list[Type], dict[str, Graph]]:
    count = attributes.get("num_scan_inputs")
    if not isinstance(count, int) or not 1 <= count <= len(inputs):
        raise invalid(
            f"{place}: num_scan_inputs must be from 1 to {len(inputs)}, the number of inputs, got {count!r:.80}"
        )
    states = len(inputs) - count
    axes = attributes.get("scan_input_axes") or [0] * count
    state_types: list[Type] = [s.type if s is not None else OpaqueType() for s in inputs[:states]]
    scanned = [_slice_type(s, axis, place) for s, axis in zip(inputs[states:], axes, strict=False)]
    body, final_types = _read_until_stable(read_body, proto, state_types, place, scanned)
    ends = attributes.get("scan_output_axes") or [0] * len(body.outputs[states:])
    length = next(
        (d for s, axis in zip(inputs[states:], axes, strict=False) if (d := _known_length(s, axis)) is not None),
        Dim.dynamic(),
    )
    stacked = [stack_type(s.type, axis, length) for s, axis in zip(body.outputs[states:], ends, strict=False)]
    return _results([*final_types, *stacked], outputs, place), {"body": body}


def _read_until_stable(
    read_body: ReadBody, proto: BodyStatements, state_types: list[Type], place: object, scanned: Sequence[Type] | None
) -> tuple[Graph, list[Type]]:
    """Return the body, read with state types that hold in every iteration, and these types.

    scanned: the types of the slices of a Scan; None for a Loop.
    """
    skip = int(scanned is None)  # the condition
    while True:
        types = [_COUNTER, _CONDITION, *state_types] if scanned is None else [*state_types, *scanned]
        body = read_body("body", proto, types)
        if len(body.outputs) < skip:
            raise invalid(f"{place}: its body returns no condition")
        results = [s.type for s in body.outputs[skip : skip + len(state_types)]]
        if len(results) != len(state_types):
            raise invalid(f"{place}: its body returns too few results")
        general = [_generalise(a, b, place) for a, b in zip(state_types, results, strict=True)]
        if all(a == b for a, b in zip(state_types, general, strict=True)):
            return body, general
        state_types = general


def _generalise(before: Type, after: Type, place: object) -> Type:
    if isinstance(before, OpaqueType) and not before.onnx:
        return after
    return before if isinstance(after, OpaqueType) else _common_type((before, after), place)


def _slice_type(symbol: Symbol | None, axis: int, place: object) -> Type:
    if symbol is None or not isinstance(symbol.type, TensorType):
        return OpaqueType()
    shape = symbol.type.shape
    if not shape.is_ranked:
        return tensor_type(symbol.type.dtype, Shape.unknown())
    if not -shape.rank <= axis < shape.rank:
        raise invalid(
            f"{place}: there is no axis {axis} to scan", operands={"scanned": symbol}, help="use an existing axis"
        )
    dims = list(shape)
    del dims[axis]
    return tensor_type(symbol.type.dtype, _shape(dims))


def _known_length(symbol: Symbol | None, axis: int) -> Dim | None:
    """Return the length of a scanned axis; None if it is unknown."""
    if symbol is None or not isinstance(symbol.type, TensorType) or not symbol.type.shape.is_ranked:
        return None
    length = symbol.type.shape[axis]
    return None if length.is_dynamic else length


# Result types of a model's nodes: by rules, by ONNX's inference, by declarations of operators, and by the model.

_MAX_REMEMBERED = 4096
_remembered: dict[Hashable, list[Type]] = {}
"""The types of results by the signature of a node and the types of its operands."""


class ResultTypes:
    """Result types of the nodes of one reader. declared: the types that the model declares, by name."""

    def __init__(
        self, model: ModelContext, versions: Mapping[str, int], declared: Mapping[str, onnx.TypeProto]
    ) -> None:
        self._model = model
        self._versions = versions
        self._declared = declared
        self._sizes = ShapeValues()
        self._read: dict[str, Type] = {}

    def _type(self, name: str) -> Type | None:
        """Return the type that the model declares for a value, or None."""
        type_ = self._read.get(name)
        if type_ is None and name in self._declared:
            type_ = self._read[name] = self._model.type_of(self._declared[name])
        return type_

    def of(
        self,
        proto: onnx.NodeProto,
        schema: onnx.defs.OpSchema | None,
        inputs: Sequence[Symbol | None],
        attributes: Mapping[str, Any],
        place: object,
    ) -> list[Type]:
        """Return result types, filled in from those that the model declares. Raises `ModelError` for wrong operands."""
        declared = [self._type(name) for name in proto.output]
        if schema is None:
            if declared and all(t is not None and not isinstance(t, OpaqueType) and _is_ranked(t) for t in declared):
                return declared  # type: ignore[return-value]
            result_types = [OpaqueType() if t is None else t for t in declared]
            return infer_other_domain(proto, inputs, self._versions, self._model.runtime, result_types)
        try:
            return infer_node(proto, schema, inputs, self._versions, declared, place, attributes, self._sizes)
        except ModelError as error:
            raise _undeclared_error(inputs, error, place) or error from None

    def cached(
        self, statement: Statement, schema: onnx.defs.OpSchema, inputs: Sequence[Symbol | None], attributes: Attributes
    ) -> list[Type]:
        """Return result types, cached for operators whose results follow from types alone.

        Raises `ModelError` for wrong operands, `ResourceLimitError` for a tensor that is too large.
        """
        key: Hashable = None
        if not schema.domain and statement.op_type in BY_TYPES:
            declared = [self._type(name) for name in statement.outputs]
            key = statement.key, *declared, *[None if s is None else s.type for s in inputs]
            cached = _remembered.get(key)
            if cached is not None:
                return cached
        types = self.of(statement.proto, schema, inputs, attributes, statement)
        for type_ in types:
            check_size(type_, statement)
        if key is not None:
            if len(_remembered) >= _MAX_REMEMBERED:
                _remembered.clear()
            _remembered[key] = types
        return types


def declared_types(
    domain: str, proto: onnx.NodeProto, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: object
) -> list[Type] | None:
    """Return the result types that `gc.custom_op` declares for a node, or None. Raises `ModelError`."""
    op = lookup(domain, proto.op_type)
    if op is None:
        return None
    try:
        types = op.read(inputs, attributes, len(proto.output), f"{proto.op_type}_{next(iter(proto.output), '')}_")
    except GraphcoreError as error:
        types = None  # an undeclared form of the runtime's own operator
        if op.kernel is None:
            raise invalid(
                f"{place}: {error.summary}",
                operands=named_inputs(inputs),
                help=error.help or f"declare {op.label} as the model uses it",
            ) from error
    if types is None and op.unsafe is not None and (why := op.unsafe(inputs)):
        raise invalid(f"{place}: {why}", help="export the operator in a form that ops.microsoft declares")
    return types


def is_open(type_: Type) -> bool:
    """Return True if dims of a tensor are unknown."""
    return isinstance(type_, TensorType) and not (type_.shape.is_ranked and not any(d.is_dynamic for d in type_.shape))


def _is_ranked(type_: Type) -> bool:
    return not isinstance(type_, TensorType) or type_.shape.is_ranked


def _undeclared_error(inputs: Sequence[Symbol | None], error: ModelError, place: object) -> ModelError | None:
    """Return an error that names the operator to declare, if that is why a node cannot be typed."""
    for symbol in inputs:
        maker = None if symbol is None else _undeclared(symbol)
        if maker is not None:
            name = f"{maker.domain}::{maker.op_type}"
            return invalid(
                f"{place}: the type of an operand is unknown: neither the model nor a declaration nor "
                f"the runtime has the result type of {name}",
                operands={"operand": symbol},
                help=f"declare it: @gc.custom_op({name!r}); write the type into the model's value_info; or load it "
                "with the library that has it: gc.InferenceSession(custom_op_libraries=[path]).load(...)",
            )
    return None


def _undeclared(symbol: Symbol) -> Node | None:
    """Return the undeclared node that makes the type of a value unknown, or None."""
    seen: set[int] = set()
    waiting = [symbol]
    while waiting:
        value = root_of(waiting.pop())
        maker = value.producer
        if value.type != OpaqueType() or not isinstance(maker, Node) or id(maker) in seen:
            continue
        seen.add(id(maker))
        if maker.domain and lookup(maker.domain, maker.op_type) is None:
            return maker
        waiting += [s for s in maker.inputs if s is not None]
    return None
