"""Calls of ONNX's operators by their schemas: arguments bound, operands promoted and checked, results typed as read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.build import operands
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, ResourceLimitError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.operators.arguments import Body, encoded, settled
from graphcore.onnx.proto.limits import check_values
from graphcore.onnx.proto.value_protos import Large
from graphcore.onnx.read.model import Model
from graphcore.onnx.read.nodes import Reader
from graphcore.onnx.read.statements import unchecked
from graphcore.onnx.schemas.catalogue import KINDS, Entry, doc, entry, signature, types
from graphcore.onnx.schemas.schemas import Parameter, element
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, TensorType, Type, tensor_type

_SCALARS = (bool, int, float)
_NUMBERS = "float32 float64 int64 int32 bool".split()


def call(of: Entry, args: Sequence[Any], named: Mapping[str, Any]) -> Symbol | tuple[Symbol, ...] | list[Symbol]:
    """Return what an operator gives of these arguments. Raises as its docstring says."""
    given, said, outputs = _bound(of, args, named)
    graph = operands.graph_of(of.label, [v for v in given if v is not None])
    inputs = _operands(of, graph, given)
    results = _results(of, inputs, said, outputs)
    if of.op.name == "Split" and outputs is not None and len(inputs) < 2:
        said.setdefault("num_outputs", outputs)
    protos, bodies = encoded(of, said, graph)
    proto = onnx.NodeProto(op_type=of.op.name, domain=of.domain, attribute=protos)
    proto.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
    proto.output.extend(f"y{i}" for i in range(results))
    roles = {_role(of, i): s for i, s in enumerate(inputs) if s is not None}
    try:
        check_values(of.op.name, {a.name: _plain(a) for a in protos}, of.label)
        made = _Caller(of, graph, bodies).call(proto, list(inputs))
    except (ModelError, ResourceLimitError) as error:
        raise _translated(of, error, roles) from None
    if bodies:
        made = [settled(symbol) for symbol in made]
    else:
        _name(of, inputs, made)
    if of.gives_list:
        return list(made)
    return made[0] if len(made) == 1 and outputs is None else tuple(made)


# Arguments


def _bound(of: Entry, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], int | None]:
    """The operands by position, None for those left out; the attributes that are given; the number of results."""
    many = of.variadic
    fixed = [p for p in of.op.inputs if not p.is_variadic]
    if many is None and len(args) > len(fixed):
        raise _misused(of, f"{len(args)} operands are given")
    given: dict[str, Any] = {p.name: value for p, value in zip(fixed, args, strict=False)}
    rest: Any = args[len(fixed) :]
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)):
        (rest,) = rest
    known = {a.name for a in of.attributes}
    said: dict[str, Any] = {}
    outputs = None
    for name, value in named.items():
        if name in known:
            said.update({} if value is None else {name: value})
        elif name == "outputs" and of.takes_outputs:
            outputs = _checked_outputs(of, value)
        elif many is not None and name == many.name:
            if len(rest) or not isinstance(value, (list, tuple)):
                raise _misused(of, f"{name} is a list of operands, given once")
            rest = value
        elif name in given:
            raise _misused(of, f"{name} is given twice")
        elif any(p.name == name for p in fixed):
            given[name] = value
        else:
            raise _misused(of, f"it has no operand and no attribute {name!r}")
    for name in [a.name for a in of.attributes if a.is_required and a.name not in said]:
        raise _misused(of, f"the attribute {name!r} is missing")
    for parameter in fixed:
        if given.get(parameter.name) is None and not parameter.is_optional:
            raise _misused(of, f"the operand {parameter.name!r} is missing")
    if many is not None and any(value is None for value in rest):
        raise _misused(of, f"None is among {many.name}")
    values = [*(given.get(p.name) for p in fixed), *rest]
    while values and values[-1] is None:
        values.pop()
    if len(values) < of.op.fewest:
        wanted = many.name if many is not None else of.op.inputs[len(values)].name
        raise _misused(of, f"the operand {wanted!r} is missing")
    return values, said, outputs


def _misused(of: Entry, why: str) -> GraphError:
    return GraphError(f"{of.label}: {why}", help=f"it is called as {of.usage}")


def _checked_outputs(of: Entry, value: Any) -> int | None:
    if value is None:
        return None
    most = of.op.most_results
    if not isinstance(value, int) or isinstance(value, bool) or not of.op.fewest_results <= value <= most or not value:
        named = ", ".join(p.name for p in of.op.outputs)
        raise _misused(of, f"outputs={value!r} asks for results that it has not; its results: {named}")
    return value


def _results(of: Entry, inputs: Sequence[Symbol | None], said: Mapping[str, Any], outputs: int | None) -> int:
    """Return how many results the node has; 0 leaves it to its bodies."""
    if outputs is not None or not of.gives_list:
        return outputs or of.least_results
    if of.op.name != "Split":
        return 0
    number = said.get("num_outputs")
    sizes = inputs[1] if len(inputs) > 1 else None
    if isinstance(number, int):
        return number
    if sizes is not None and isinstance(sizes.type, TensorType) and sizes.type.shape.is_ranked and sizes.rank == 1:
        if sizes.shape[0].is_static:
            return int(sizes.shape[0])
    raise _misused(of, "how many parts there are is not known: give num_outputs, or outputs where only split says it")


# Operands


def _operands(of: Entry, graph: Graph, given: Sequence[Any]) -> list[Symbol | None]:
    """Symbols of one graph, of dtypes that the operator takes, those of one type variable of one dtype."""
    values: list[Any] = [_lifted(of, graph, i, value, given) for i, value in enumerate(given)]
    groups: dict[str, list[int]] = {}
    for position, value in enumerate(values):
        parameter = _parameter(of, position)
        if value is None:
            continue
        key = parameter.type if parameter.is_homogeneous or not parameter.is_variadic else f"{position}"
        groups.setdefault(key, []).append(position)
    for positions in groups.values():
        _promote(of, graph, positions, values)
    for positions in groups.values():
        _check(of, positions, values)
    return values


def _lifted(of: Entry, graph: Graph, position: int, value: Any, given: Sequence[Any]) -> Any:
    """An operand as a Symbol; Python numbers, whose dtype the others say, as they are."""
    if value is None or type(value) in _SCALARS:
        return value
    role = _role(of, position)
    if not isinstance(value, (list, tuple, str)):
        return graph.build.operand(value, of.label, role)
    parameter = _parameter(of, position)
    try:
        return graph.constant(value, _only(parameter) or _neighbour(of, graph, parameter, value, given))
    except DTypeError as error:
        raise DTypeError(f"{of.label}: {role}: {error.summary.removeprefix('constant: ')}", help=error.help) from None


def _neighbour(of: Entry, graph: Graph, parameter: Parameter, value: Any, given: Sequence[Any]) -> DType | None:
    """The dtype of the first operand of the same type variable, which written numbers take."""
    if isinstance(value, str):
        return None
    for position, other in enumerate(given):
        is_same = _parameter(of, position).type == parameter.type
        if is_same and isinstance(other, Symbol) and isinstance(other.type, TensorType):
            return other.dtype if other.dtype is not DType.string else None
    return None


def _only(parameter: Parameter) -> DType | None:
    """The dtype of a parameter that takes one only."""
    if len(parameter.allowed) != 1:
        return None
    name = types(parameter.allowed)
    return None if " " in name or "(" in name or name.startswith("complex") else DType.of(name)


def _promote(of: Entry, graph: Graph, positions: Sequence[int], values: list[Any]) -> None:
    """Make the operands of one type variable Symbols of one dtype, where promotion has one for them."""
    parameter = _parameter(of, positions[0])
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
                raise DTypeError(f"{of.label}: {_role(of, i)}: {why}", help=error.help) from None
        return
    if not all(isinstance(s.type, TensorType) for s in symbols):
        for i in literals:
            values[i] = graph.build.operand(values[i], of.label, _role(of, i))
        return
    for symbol in symbols:
        _check_stored(of, symbol)
    if literals or len({s.dtype for s in symbols}) > 1:
        made, _ = operands.promote(of.label, "join", {_role(of, i): values[i] for i in positions})
        for i, symbol in zip(positions, made, strict=True):
            values[i] = symbol


def _default(graph: Graph, parameter: Parameter, numbers: Sequence[Any]) -> DType | None:
    """The dtype of operands of which all are Python numbers: the system's own, or the first that the operator takes."""
    if not parameter.allowed:
        return None
    own = graph.promotion.default_dtype(list(numbers))
    if element(TensorType(own, [])) in parameter.allowed:
        return own
    found = (d for d in map(DType.of, _NUMBERS) if element(TensorType(d, [])) in parameter.allowed)
    return next(found, own)


def _check_stored(of: Entry, symbol: Symbol) -> None:
    if symbol.dtype.storage is not symbol.dtype and symbol.dtype not in NAMED:
        raise DTypeError(
            f"{of.label}: ONNX has no {symbol.dtype}",
            operands={"operand": symbol},
            help=f"cast it, such as to {symbol.dtype.storage}, or use the operator library, which knows {symbol.dtype}",
        )


def _check(of: Entry, positions: Sequence[int], values: Sequence[Symbol | None]) -> None:
    """Raise `DTypeError` for operands that the operator does not take, alone or together."""
    found = [(i, s) for i in positions if (s := values[i]) is not None]
    for position, symbol in found:
        if isinstance(symbol.type, TensorType):
            _check_stored(of, symbol)
        if isinstance(symbol.type, ForeignType) and not symbol.type.name.startswith("tensor("):
            continue
        parameter = _parameter(of, position)
        if parameter.allowed and element(symbol.type) not in parameter.allowed:
            raise DTypeError(
                f"{of.label}: {_role(of, position)} is {_shown(symbol.type)}, which it does not take",
                operands={_role(of, i): s for i, s in found},
                help=f"it takes {types(parameter.allowed)}",
            )
        if element(symbol.type) != element(found[0][1].type):
            raise DTypeError(
                f"{of.label}: {_shown(found[0][1].type)} and {_shown(symbol.type)} are not of one type",
                operands={_role(of, i): s for i, s in found},
                help="make them alike",
            )


def _shown(type_: Type) -> str:
    return str(type_.dtype) if isinstance(type_, TensorType) else str(type_)


def _parameter(of: Entry, position: int) -> Parameter:
    found = of.op.input(position)
    assert found is not None, "operands are bound to parameters"
    return found


def _role(of: Entry, position: int) -> str:
    parameter = _parameter(of, position)
    return f"{parameter.name}[{position - len(of.op.inputs) + 1}]" if parameter.is_variadic else parameter.name


NAMED = frozenset({DType.index, DType.address, DType.tensor_float32})
"""The dtypes that are another one in a file, of the same values or rounded to fewer."""


def _name(of: Entry, inputs: Sequence[Symbol | None], made: Sequence[Symbol]) -> None:
    """Give results the dtype of the operands of their type variable, where that is one of `NAMED`."""
    found = [(_parameter(of, i), s) for i, s in enumerate(inputs) if s is not None]
    named = {p.type: s.dtype for p, s in found if isinstance(s.type, TensorType) and s.dtype in NAMED}
    if not named:
        return
    for position, symbol in enumerate(made):
        parameter = of.op.outputs[min(position, len(of.op.outputs) - 1)]
        dtype = named.get(parameter.type)
        if dtype is None or not isinstance(symbol.type, TensorType) or not isinstance(symbol.producer, Node):
            continue
        if symbol.dtype is dtype.storage:
            change(symbol, type=tensor_type(dtype, symbol.shape))


# The node


def _plain(attribute: onnx.AttributeProto) -> Any:
    """Return what the limits of numbers and words look at."""
    if attribute.type == KINDS.STRING:
        return attribute.s
    return attribute.i if attribute.type == KINDS.INT else list(attribute.ints)


_NOISE = re.compile(r"\[\w*Error\]\s*|\(op_type:[^)]*\):?\s*")
"""The text that inference puts before its reason."""


def _translated(of: Entry, error: GraphcoreError, roles: Mapping[str, Symbol]) -> GraphcoreError:
    """The reader's refusal of a node as that of a call."""
    if not error.summary.startswith("load: "):
        return error
    summary = error.summary.removeprefix("load: ")
    reason = _NOISE.sub("", summary.removeprefix(of.label).lstrip(": ")).strip()
    is_of_shapes = "ShapeInferenceError" in summary or isinstance(error.__context__, ShapeError)  # of a rule
    kind: type[GraphcoreError] = ShapeError if is_of_shapes else GraphError
    if "TypeInferenceError" in summary or "output has unsupported type" in summary:
        kind = DTypeError
    if isinstance(error, ResourceLimitError):
        kind = ResourceLimitError
    return kind(f"{of.label}: {reason}", operands=roles, help=f"it is called as {of.usage}")


@functools.cache
def _model() -> Model:
    """The model that a call is a node of."""
    return Model(onnx.ModelProto(), Large(), Folder(None), False)


class _Caller(Reader):
    """Reads the node of a call, whose bodies are functions of Symbols, or Graphs."""

    def __init__(self, of: Entry, graph: Graph, bodies: Mapping[str, Any]) -> None:
        versions = {"": OPSET, **DOMAINS, of.domain: of.version}
        depth, around = 1, graph.scope.outer
        while around is not None:
            depth, around = depth + 1, around.scope.outer
        super().__init__(_model(), graph, versions, {}, {}, depth=depth)
        self._of = of
        self._bodies = bodies

    def call(self, proto: onnx.NodeProto, inputs: list[Symbol | None]) -> Sequence[Symbol]:
        """Return what a node gives of these operands."""
        (statement,) = unchecked([proto], self.versions)
        statement.label = self._of.label
        return self._operator(statement, inputs)

    def body(self, name: str, read: object, types: Sequence[Type]) -> Graph:
        """See `Reader.body`: of the function or Graph that was given under this name."""
        given = self._bodies[name]
        return Body(self._of.label, name, self.graph, self.depth).made(given, types)


# An operator of ONNX as a Python function.


def function(name: str, domain: str, module: str) -> Callable[..., Any]:
    """The function of an operator, with its name, signature and docs. Raises `AttributeError` where there is none."""
    try:
        of = entry(name, domain)
    except GraphError as error:
        raise AttributeError(f"{error.summary}; {error.help}", name=name) from None

    def made(*args: Any, **named: Any) -> Any:
        return call(of, args, named)

    made.__name__ = made.__qualname__ = name
    made.__module__ = module
    made.__doc__ = doc(of)
    made.__signature__ = signature(of)  # type: ignore[attr-defined]
    return made
