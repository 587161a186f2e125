"""Call ONNX's operators by schema: bind arguments, promote and check operands, type results as the reader does."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from graphcore.build import operands
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, ResourceLimitError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.operators.arguments import BodyArgument, encode_attributes, settle_dtype
from graphcore.onnx.proto.limits import check_values
from graphcore.onnx.proto.opened import Opened
from graphcore.onnx.proto.value_protos import Large
from graphcore.onnx.read.model import ModelContext
from graphcore.onnx.read.nodes import NodeReader
from graphcore.onnx.read.statements import make_statements
from graphcore.onnx.schemas.catalogue import KINDS, OperatorSpec, doc, entry, signature, types
from graphcore.onnx.schemas.other_domains import refusal
from graphcore.onnx.schemas.schemas import MICROSOFT, Parameter, element, type_name
from graphcore.onnx.versions.adapters import UPDATES
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, TensorType, Type, tensor_type

_SCALARS = (bool, int, float)
_NUMBERS = "float32 float64 int64 int32 bool".split()


def call(
    spec: OperatorSpec, args: Sequence[Any], named: Mapping[str, Any]
) -> Symbol | tuple[Symbol, ...] | list[Symbol]:
    """Emit a node of an operator and return its results. Raises what the operator's docstring lists."""
    arguments, attributes, outputs = _bind(spec, args, named)
    graph = operands.graph_of(spec.label, [v for v in arguments if v is not None])
    inputs = _operands(spec, graph, arguments)
    results = _count_results(spec, inputs, attributes, outputs)
    if spec.op.name == "Split" and outputs is not None and len(inputs) < 2:
        attributes.setdefault("num_outputs", outputs)
    protos, bodies = encode_attributes(spec, attributes, graph)
    proto = onnx.NodeProto(op_type=spec.op.name, domain=spec.domain, attribute=protos)
    proto.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
    proto.output.extend(f"y{i}" for i in range(results))
    roles = {_role(spec, i): s for i, s in enumerate(inputs) if s is not None}
    try:
        check_values(spec.op.name, {a.name: _limited_value(a) for a in protos}, spec.label)
        symbols = _Caller(spec, graph, bodies).call(proto, list(inputs))
    except (ModelError, ResourceLimitError) as error:
        raise _translate_error(spec, error, roles) from None
    if bodies:
        symbols = [settle_dtype(symbol) for symbol in symbols]
    else:
        _rename_dtypes(spec, inputs, symbols)
    if spec.gives_list:
        return list(symbols)
    return symbols[0] if len(symbols) == 1 and outputs is None else tuple(symbols)


# Arguments


def _bind(
    spec: OperatorSpec, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], int | None]:
    """Return operands by position, None for those left out; the attributes passed; and the number of results."""
    variadic = spec.variadic
    fixed = [p for p in spec.op.inputs if not p.is_variadic]
    if variadic is None and len(args) > len(fixed):
        raise _call_error(spec, f"at most {len(fixed)} operands are accepted, got {len(args)}")
    by_name: dict[str, Any] = {p.name: value for p, value in zip(fixed, args, strict=False)}
    rest: Any = args[len(fixed) :]
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)):
        (rest,) = rest
    attribute_names = {a.name for a in spec.attributes}
    attributes: dict[str, Any] = {}
    outputs = None
    for name, value in named.items():
        if name in attribute_names:
            attributes.update({} if value is None else {name: value})
        elif name == "outputs" and spec.takes_outputs:
            outputs = _checked_outputs(spec, value)
        elif variadic is not None and name == variadic.name:
            if len(rest) or not isinstance(value, (list, tuple)):
                raise _call_error(spec, f"{name} must be one list of operands, passed once")
            rest = value
        elif name in by_name:
            raise _call_error(spec, f"{name} is passed twice")
        elif any(p.name == name for p in fixed):
            by_name[name] = value
        else:
            raise _call_error(spec, f"there is no operand or attribute {name!r}")
    for name in [a.name for a in spec.attributes if a.is_required and a.name not in attributes]:
        raise _call_error(spec, f"the attribute {name!r} is missing")
    for parameter in fixed:
        if by_name.get(parameter.name) is None and not parameter.is_optional:
            raise _call_error(spec, f"the operand {parameter.name!r} is missing")
    if variadic is not None and any(value is None for value in rest):
        raise _call_error(spec, f"{variadic.name} must not contain None")
    values = [*(by_name.get(p.name) for p in fixed), *rest]
    while values and values[-1] is None:
        values.pop()
    if len(values) < spec.op.min_inputs:
        missing = variadic.name if variadic is not None else spec.op.inputs[len(values)].name
        raise _call_error(spec, f"the operand {missing!r} is missing")
    return values, attributes, outputs


def _call_error(spec: OperatorSpec, why: str) -> GraphError:
    return GraphError(f"{spec.label}: {why}", help=f"the signature is {spec.usage}")


def _checked_outputs(spec: OperatorSpec, value: Any) -> int | None:
    if value is None:
        return None
    max_outputs = spec.op.max_outputs
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not spec.op.min_outputs <= value <= max_outputs
        or not value
    ):
        names = ", ".join(p.name for p in spec.op.outputs)
        raise _call_error(spec, f"outputs={value!r} does not match the results of the operator: {names}")
    return value


def _count_results(
    spec: OperatorSpec, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], outputs: int | None
) -> int:
    """Return the number of results of the node; 0 if its bodies decide."""
    if outputs is not None or not spec.gives_list:
        return outputs or spec.least_results
    if spec.op.name in UPDATES:
        parts = UPDATES[spec.op.name][1]
        return (len(inputs) - 2) // parts * (parts - 1)
    if spec.op.name == "Gradient":
        return len(attributes["xs"])
    if spec.op.name != "Split":
        return 0
    number = attributes.get("num_outputs")
    sizes = inputs[1] if len(inputs) > 1 else None
    if isinstance(number, int):
        return number
    if sizes is not None and isinstance(sizes.type, TensorType) and sizes.type.shape.is_ranked and sizes.rank == 1:
        if sizes.shape[0].is_static:
            return int(sizes.shape[0])
    raise _call_error(spec, "the number of parts is unknown: pass num_outputs, or outputs if split gives the sizes")


# Operands


def _operands(spec: OperatorSpec, graph: Graph, arguments: Sequence[Any]) -> list[Symbol | None]:
    """Return operands as Symbols of one graph with accepted dtypes, one dtype per type variable."""
    values: list[Any] = [_to_symbol(spec, graph, i, value, arguments) for i, value in enumerate(arguments)]
    groups: dict[str, list[int]] = {}
    for position, value in enumerate(values):
        parameter = _parameter(spec, position)
        if value is None:
            continue
        key = parameter.type if parameter.is_homogeneous or not parameter.is_variadic else f"{position}"
        groups.setdefault(key, []).append(position)
    for positions in groups.values():
        _promote(spec, graph, positions, values)
    for positions in groups.values():
        _check(spec, positions, values)
    return values


def _to_symbol(spec: OperatorSpec, graph: Graph, position: int, value: Any, arguments: Sequence[Any]) -> Any:
    """Return an operand as a Symbol; Python numbers unchanged, since the other operands decide their dtype."""
    if value is None or type(value) in _SCALARS:
        return value
    role = _role(spec, position)
    if not isinstance(value, (list, tuple, str)):
        return graph.build.operand(value, spec.label, role)
    parameter = _parameter(spec, position)
    try:
        return graph.constant(value, _only(parameter) or _sibling_dtype(spec, graph, parameter, value, arguments))
    except DTypeError as error:
        raise DTypeError(f"{spec.label}: {role}: {error.summary.removeprefix('constant: ')}", help=error.help) from None


def _sibling_dtype(
    spec: OperatorSpec, graph: Graph, parameter: Parameter, value: Any, arguments: Sequence[Any]
) -> DType | None:
    """Return the dtype of the first operand of the same type variable, which a list of numbers gets."""
    if isinstance(value, str):
        return None
    for position, other in enumerate(arguments):
        is_same = _parameter(spec, position).type == parameter.type
        if is_same and isinstance(other, Symbol) and isinstance(other.type, TensorType):
            return other.dtype if other.dtype is not DType.string else None
    return None


def _only(parameter: Parameter) -> DType | None:
    """Return the dtype of a parameter that accepts only one."""
    if len(parameter.allowed) != 1:
        return None
    name = types(parameter.allowed)
    return None if " " in name or "(" in name or name.startswith("complex") else DType.of(name)


def _promote(spec: OperatorSpec, graph: Graph, positions: Sequence[int], values: list[Any]) -> None:
    """Promote the operands of one type variable to Symbols of one dtype, where there is a common one."""
    parameter = _parameter(spec, positions[0])
    literals = [i for i in positions if type(values[i]) in _SCALARS]
    symbols = [values[i] for i in positions if type(values[i]) not in _SCALARS]
    dtype = _only(parameter) if literals else None
    if literals and dtype is None and not symbols:
        dtype = _default(graph, parameter, [values[i] for i in literals])
    if dtype is not None:
        for i in literals:
            try:
                values[i] = graph.scalar(values[i], dtype)
            except DTypeError as error:
                why = error.summary.removeprefix("constant: ")
                raise DTypeError(f"{spec.label}: {_role(spec, i)}: {why}", help=error.help) from None
        return
    if not all(isinstance(s.type, TensorType) for s in symbols):
        for i in literals:
            values[i] = graph.build.operand(values[i], spec.label, _role(spec, i))
        return
    for symbol in symbols:
        _check_stored(spec, symbol)
    if literals or len({s.dtype for s in symbols}) > 1:
        promoted, _ = operands.promote(spec.label, "join", {_role(spec, i): values[i] for i in positions})
        for i, symbol in zip(positions, promoted, strict=True):
            values[i] = symbol


def _default(graph: Graph, parameter: Parameter, numbers: Sequence[Any]) -> DType | None:
    """Return the dtype for operands that are all Python numbers: the default one, or else the first accepted one."""
    if not parameter.allowed:
        return None
    dtype = graph.promotion.default_dtype(list(numbers))
    if element(TensorType(dtype, [])) in parameter.allowed:
        return dtype
    dtypes = (d for d in map(DType.of, _NUMBERS) if element(TensorType(d, [])) in parameter.allowed)
    return next(dtypes, dtype)


def _check_stored(spec: OperatorSpec, symbol: Symbol) -> None:
    if symbol.dtype.storage is not symbol.dtype and symbol.dtype not in NAMED:
        raise DTypeError(
            f"{spec.label}: ONNX has no {symbol.dtype}",
            operands={"operand": symbol},
            help=f"cast it, for example to {symbol.dtype.storage}, or use the ops of graphcore, "
            f"which support {symbol.dtype}",
        )


def _check(spec: OperatorSpec, positions: Sequence[int], values: Sequence[Symbol | None]) -> None:
    """Raise `DTypeError` for operands that the operator does not accept, alone or together."""
    symbols = [(i, s) for i in positions if (s := values[i]) is not None]
    for position, symbol in symbols:
        if isinstance(symbol.type, TensorType):
            _check_stored(spec, symbol)
        if isinstance(symbol.type, OpaqueType) and not symbol.type.name.startswith("tensor("):
            continue
        parameter = _parameter(spec, position)
        if parameter.allowed and element(symbol.type) not in parameter.allowed:
            raise DTypeError(
                f"{spec.label}: {_role(spec, position)} is {type_name(symbol.type)}, which it does not take",
                operands={_role(spec, i): s for i, s in symbols},
                help=f"it takes {types(parameter.allowed)}",
            )
        if element(symbol.type) != element(symbols[0][1].type):
            raise DTypeError(
                f"{spec.label}: operands must have one type, got {type_name(symbols[0][1].type)} and "
                f"{type_name(symbol.type)}",
                operands={_role(spec, i): s for i, s in symbols},
                help="cast them to one dtype",
            )


def _parameter(spec: OperatorSpec, position: int) -> Parameter:
    parameter = spec.op.input(position)
    assert parameter is not None, "operands are bound to parameters"
    return parameter


def _role(spec: OperatorSpec, position: int) -> str:
    parameter = _parameter(spec, position)
    return f"{parameter.name}[{position - len(spec.op.inputs) + 1}]" if parameter.is_variadic else parameter.name


NAMED = frozenset({DType.index, DType.address, DType.tensor_float32})
"""The dtypes that a file stores in another dtype without a marker: same values, or computed with fewer bits."""


def _rename_dtypes(spec: OperatorSpec, inputs: Sequence[Symbol | None], results: Sequence[Symbol]) -> None:
    """Give results the dtype of the operands of their type variable, if it is one of `NAMED`."""
    operands_in = [(_parameter(spec, i), s) for i, s in enumerate(inputs) if s is not None]
    named = {p.type: s.dtype for p, s in operands_in if isinstance(s.type, TensorType) and s.dtype in NAMED}
    if not named:
        return
    for position, symbol in enumerate(results):
        parameter = spec.op.outputs[min(position, len(spec.op.outputs) - 1)]
        dtype = named.get(parameter.type)
        if dtype is None or not isinstance(symbol.type, TensorType) or not isinstance(symbol.producer, Node):
            continue
        if symbol.dtype is dtype.storage:
            change(symbol, type=tensor_type(dtype, symbol.shape))


# The node


def _limited_value(attribute: onnx.AttributeProto) -> Any:
    """Return the value of an attribute for `check_values`."""
    if attribute.type == KINDS.STRING:
        return attribute.s
    return attribute.i if attribute.type == KINDS.INT else list(attribute.ints)


_PREFIX = re.compile(r"\[\w*Error\]\s*|\(op_type:[^)]*\):?\s*")
"""The text that inference puts before its reason."""


def _translate_error(spec: OperatorSpec, error: GraphcoreError, roles: Mapping[str, Symbol]) -> GraphcoreError:
    """Turn the reader's error about a node into an error about a call."""
    if not error.summary.startswith("load: "):
        return error
    summary = error.summary.removeprefix("load: ")
    reason = _PREFIX.sub("", summary.removeprefix(spec.label).lstrip(": ")).strip()
    is_of_shapes = "ShapeInferenceError" in summary or isinstance(error.__context__, ShapeError)  # of a rule
    kind: type[GraphcoreError] = ShapeError if is_of_shapes else GraphError
    if "TypeInferenceError" in summary or "output has unsupported type" in summary:
        kind = DTypeError
    if isinstance(error, ResourceLimitError):
        kind = ResourceLimitError
    return kind(f"{spec.label}: {reason}", operands=roles, help=f"the signature is {spec.usage}")


@functools.cache
def _model() -> ModelContext:
    """Return the model to which nodes of calls belong."""
    return ModelContext(Opened.of_parts(onnx.ModelProto(), Large()))


class _Caller(NodeReader):
    """Reads the node of a call, whose bodies are functions of Symbols, or Graphs."""

    def __init__(self, spec: OperatorSpec, graph: Graph, bodies: Mapping[str, Any]) -> None:
        versions = {"": OPSET, **DOMAINS, spec.domain: spec.version}
        depth, outer = 1, graph.scope.outer
        while outer is not None:
            depth, outer = depth + 1, outer.scope.outer
        super().__init__(_model(), graph, versions, {}, {}, depth=depth)
        self._of = spec
        self._bodies = bodies

    def call(self, proto: onnx.NodeProto, inputs: list[Symbol | None]) -> Sequence[Symbol]:
        """Emit a node on these operands and return its results."""
        (statement,) = make_statements([proto], self.versions)
        statement.label = self._of.label
        results = self._operator(statement, inputs)
        types = [s.type for s in results]
        if self._of.domain == MICROSOFT and (reason := refusal(proto, inputs, self.versions, types)):
            raise ModelError(f"load: {statement}: {reason}", help="")
        return results

    def body(self, name: str, read: object, types: Sequence[Type]) -> Graph:
        """See `NodeReader.body`: from the function or Graph passed under this name."""
        argument = self._bodies[name]
        if self._of.domain == MICROSOFT:  # onnxruntime decides which values it passes
            if not isinstance(argument, Graph):
                raise GraphError(
                    f"{self._of.label}: {name} must be a Graph, got {type(argument).__name__}",
                    help="build a Graph with the inputs and outputs that onnxruntime documents, by their names",
                )
            types = [s.type for s in argument.inputs]
        return BodyArgument(self._of.label, name, self.graph, self.depth).build(argument, types)


# An operator of ONNX as a Python function.


def function(name: str, domain: str, module: str) -> Callable[..., Any]:
    """Return the function of an operator with its signature and docstring. Raises `AttributeError` if there is none."""
    try:
        spec = entry(name, domain)
    except GraphError as error:
        raise AttributeError(f"{error.summary}; {error.help}", name=name) from None

    def wrapper(*args: Any, **named: Any) -> Any:
        return call(spec, args, named)

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__module__ = module
    wrapper.__doc__ = doc(spec)
    wrapper.__signature__ = signature(spec)  # type: ignore[attr-defined]
    return wrapper
