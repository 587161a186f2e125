"""Arguments of ops: attributes, axes of reductions, and functions that become bodies."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.build.declare import LIBRARY
from graphcore.build.operands import cast_operand, graph_of
from graphcore.build.pytree import Mismatch, Structure, labels_of, leaves_like, structure_of
from graphcore.build.shapes import check_scalar
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Constant, Symbol
from graphcore.operators.shapes.reductions import reduced_shape
from graphcore.support.escaping import suggestion
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import SequenceType, Shape, TensorType, Type, _shape, tensor_type


def real(op: str, name: str, value: object, *, least: float | None = None) -> float:
    """Return an argument that must be a finite number >= `least` as a float. Raises `DTypeError` or `ShapeError`."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise DTypeError(f"{op}: {name} must be a Python number, got {value!r:.60}", help=f"give a float: {name}=0.5")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the range of floats
        number = math.inf
    if not math.isfinite(number) or (least is not None and number < least):
        bound = "finite" if least is None else f"finite and at least {least:g}"
        raise ShapeError(f"{op}: {name}={value} is not {bound}", help=f"give a number that is {bound}")
    return number


def whole(op: str, name: str, value: object, least: int) -> int:
    """Return an argument that must be an int >= `least`. Raises `DTypeError` or `ShapeError`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(f"{op}: {name}={value!r} is not an int", help=f"give an int >= {least}") from None
    if number < least:
        raise ShapeError(f"{op}: {name}={number} is below {least}", help=f"give an int >= {least}")
    return number


def choice(op: str, name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return an argument that must be one of `choices`. Raises `GraphError`."""
    if not isinstance(value, str) or value not in choices:
        close = suggestion(value, choices)
        raise GraphError(
            f"{op}: {name}={value!r:.80} is not known", help=f"{close}use one of {', '.join(map(repr, choices))}"
        )
    return value


def domain_for(dtype: DType, *numbers: float | None) -> str:
    """Return an operator's domain: the library's if attributes of a float64 op lose digits in ONNX's float32."""
    with np.errstate(over="ignore"):
        rounded = any(n is not None and float(np.float32(n)) != n for n in numbers)
    return LIBRARY if dtype is DType.float64 and rounded else ""


# The axes, shapes and nodes of reductions.

Axes: TypeAlias = int | Sequence[int] | None
"""The axes to reduce: one, several, or None for all; () reduces none."""


def emit_reduction(op_type: str, x: Symbol, axes: Sequence[int], keepdims: bool, dtype: DType | None = None) -> Symbol:
    """Emit one of ONNX's reductions; return `x` itself where there is no axis to reduce."""
    if not axes:
        return x
    type_ = tensor_type(dtype or x.dtype, reduced_shape(x.shape, axes, keepdims))
    return x.graph.build.emit(op_type, (x, x.graph.build.vector(sorted(axes))), type_, {"keepdims": int(keepdims)})


def check_not_empty(name: str, x: Symbol, axes: Sequence[int]) -> None:
    for axis in axes:
        if x.shape[axis] == 0:
            raise ShapeError(
                f"{name}: axis {axis} has length 0, and {name} of no elements is undefined",
                operands={"x": x},
                help="reduce another axis, or handle the empty case first",
            )


# Build the bodies of If, Loop and Scan from functions of Symbols, inside the graph under construction.

_NUMBERS = (bool, int, float)


def flatten_value(value: Any) -> tuple[Structure, list[Any]]:
    """Return the structure of a value, and its leaves: everything but tuples, lists, dicts and None."""
    leaves: list[Any] = []
    return structure_of(value, lambda v: v is not None and not isinstance(v, (tuple, list, dict)), leaves, ""), leaves


def call_with(op: str, name: str, function: Callable[..., Any], value: Any, *first: Any) -> Any:
    """Call function(*first, value): a tuple or list as separate arguments, a dict as keywords, None as no argument."""
    if isinstance(value, dict):
        return called(op, name, function, *first, **value)
    if isinstance(value, (tuple, list)):
        return called(op, name, function, *first, *value)
    return called(op, name, function, *first) if value is None else called(op, name, function, *first, value)


def called(op: str, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Return the result of a function of a user. Raises `DTypeError` if its parameters are others."""
    try:
        return function(*arguments, **named)
    except TypeError:
        try:
            inspect.signature(function).bind(*arguments, **named)
        except ValueError:  # a built-in function without a signature
            raise
        except TypeError as error:
            raise DTypeError(
                f"{op}: {name} does not accept its arguments: {error}",
                operands={f"argument {label}": value for label, value in (*enumerate(arguments), *named.items())},
                help=_PARAMETERS[op],
            ) from None
        raise


_PARAMETERS: Mapping[str, str] = {
    "cond": "both branches take the operands that follow them, ops.cond(pred, then_fn, else_fn, x), and no others",
    "while_loop": "cond_fn and body_fn take the values of init",
    "for_loop": "body_fn takes the iteration number and the values of init",
    "scan": "body_fn takes the state and x: lambda state, x: ...",
    "list_map": "fn takes one element of each list",
}
"""The parameters of the functions that ops call."""


def results_of(
    op: str, name: str, what: str, body: Graph, result: Any, like: Structure, structures: Mapping[str, object]
) -> list[Any]:
    """Return the leaves of a function's result, which must have the structure of `like`; numbers stay numbers.

    name: their name in errors. what: the text of the error for another structure. structures: its operands.
    """
    try:
        leaves = leaves_like(like, result)
    except Mismatch:
        raise GraphError(
            f"{op}: {what}",
            operands=structures,
            help="return the same tuples, lists and dicts of Symbols",
        ) from None
    labels = labels_of(like, name)
    return [
        leaf if type(leaf) in _NUMBERS else body.build.operand(leaf, op, label)
        for leaf, label in zip(leaves, labels, strict=True)
    ]


def state_of(op: str, body: Graph, before: Symbol, after: Any, label: str) -> Symbol:
    """Return the next value of one leaf of a loop's state, whose dtype and rank must not change."""
    value = after if isinstance(after, Symbol) else _number(op, body, before, after, label)
    was, now = before.type, value.type
    if not isinstance(was, TensorType) or not isinstance(now, TensorType):
        if was != now and not are_lists(was, now):
            raise DTypeError(
                f"{op}: {label} changes its type from {was} to {now}",
                operands={"before": before, "after": value},
                help="return a value of the same type",
            )
        return value
    if was.dtype is not now.dtype:
        raise DTypeError(
            f"{op}: {label} changes its dtype from {was.dtype} to {now.dtype}",
            operands={"before": before, "after": value},
            help=f"cast what the body returns, .cast(DType.{was.dtype.name}), or the initial value",
        )
    if was.shape.is_ranked and now.shape.is_ranked and len(was.shape) != len(now.shape):
        raise ShapeError(
            f"{op}: {label} changes its rank from {len(was.shape)} to {len(now.shape)}",
            operands={"before": before, "after": value},
            help="reshape what the body returns, or the initial value",
        )
    return value


def _number(op: str, body: Graph, before: Symbol, after: Any, label: str) -> Symbol:
    """Return a Python number in the dtype of the state."""
    try:
        return body.constant(after, before.dtype)
    except DTypeError as error:
        why = error.summary.removeprefix("constant: ")
        raise DTypeError(f"{op}: {label}: {why}", operands={"before": before}, help=error.help) from None


def names_in_scopes(graph: Graph | None) -> list[tuple[Graph, set[str]]]:
    """Return the names used in a graph and its outer graphs."""
    return [] if graph is None else [(graph, {*graph.names.taken}), *names_in_scopes(graph.scope.outer)]


def release_other_names(scopes: list[tuple[Graph, set[str]]]) -> None:
    """Release all names but these: a body that is built again adds its weights to the outer graphs again."""
    for graph, names in scopes:
        for name in graph.names.taken.keys() - names:
            symbol = graph.names.taken.pop(name)
            change(symbol, given_name=None)
            if isinstance(symbol.producer, Constant):
                change(symbol, producer=Constant(symbol.producer.array, False, symbol.producer.origin))


def join_types(was: Type, now: Type) -> Type:
    """Return the join of two types of one dtype and rank: dims that differ become unknown."""
    if isinstance(was, SequenceType) and isinstance(now, SequenceType):
        return join_list_types(was, now)
    if not isinstance(was, TensorType) or not isinstance(now, TensorType):
        return was
    return tensor_type(was.dtype, join_shapes(was.shape, now.shape))


def are_lists(was: Type, now: Type) -> bool:
    """Return True if both are lists of tensors of one dtype, which can replace each other."""
    if not isinstance(was, SequenceType) or not isinstance(now, SequenceType):
        return False
    a, b = was.element, now.element
    return isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is b.dtype


def join_list_types(was: SequenceType, now: SequenceType) -> SequenceType:
    """Return the join of two list types of one dtype."""
    a, b = was.element, now.element
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return was
    if a.shape.is_ranked and b.shape.is_ranked and len(a.shape) != len(b.shape):
        return SequenceType(tensor_type(a.dtype, Shape.unknown()))
    return SequenceType(tensor_type(a.dtype, join_shapes(a.shape, b.shape)))


def join_shapes(was: Shape, now: Shape) -> Shape:
    if was == now:
        return was
    if not was.is_ranked or not now.is_ranked:
        return Shape.unknown()
    return _shape([a if a == b else Dim.dynamic() for a, b in zip(was, now, strict=True)])


def check_callable(op: str, **functions: object) -> None:
    """Raise `DTypeError` for arguments that are not callable."""
    for name, function in functions.items():
        if not callable(function):
            raise DTypeError(
                f"{op}: {name} must be a function, got {type(function).__name__}",
                operands={name: function},
                help="give a function of Symbols: lambda x: x + 1",
            )


def condition(op: str, value: Any, what: str, *, numbers: bool = False) -> Symbol:
    """Return a condition as a scalar bool. numbers: accept numbers too. Raises `DTypeError` and `ShapeError`."""
    if not isinstance(value, Symbol):
        raise GraphError(
            f"{op}: {what} must be a Symbol, got {type(value).__name__}",
            operands={what: value},
            help="give a scalar bool Symbol: x < 3, or ops.all(mask)",
        )
    if value.dtype is not DType.bool and not (numbers and value.dtype is not DType.string):
        raise DTypeError(
            f"{op}: {what} must be bool, got {value.dtype}",
            operands={what: value},
            help="compare it, or cast it: .cast(DType.bool)",
        )
    check_scalar(op, what, value, help="reduce it with ops.all(x) or ops.any(x), or squeeze it")
    return cast_operand(value, DType.bool, cause=(op, value.type))


# Shared by the loops


def start_loop(op: str, init: Any, *others: Any) -> tuple[Structure, Graph, list[Symbol]]:
    """Return the structure of the state, the graph to build in, and the initial state."""
    like, leaves = flatten_value(init)
    graph = graph_of(op, [*leaves, *others])
    labels = labels_of(like, "init")
    return like, graph, [graph.build.operand(leaf, op, label) for leaf, label in zip(leaves, labels, strict=True)]


def next_state(op: str, body: Graph, result: Any, like: Structure, before: Sequence[Symbol]) -> list[Symbol]:
    """Return the leaves of a function's next state, as values of the body."""
    structures: dict[str, object] = {"before": str(like), "after": str(flatten_value(result)[0])}
    what = "body_fn returns a state of another structure"
    after = results_of(op, "state", what, body, result, like, structures)
    labels = labels_of(like, "state")
    return [state_of(op, body, b, a, label) for b, a, label in zip(before, after, labels, strict=True)]


def outputs_of(op: str, body: Graph, outputs: Any) -> tuple[Structure, list[Symbol]]:
    """Return the outputs of one iteration, as values of the body, and their structure."""
    like, leaves = flatten_value(outputs)
    return like, [body.build.operand(s, op, label) for s, label in zip(leaves, labels_of(like, "outputs"), strict=True)]


def pair_of(op: str, result: Any) -> tuple[Any, Any]:
    if isinstance(result, (tuple, list)) and len(result) == 2:
        return result[0], result[1]
    raise GraphError(
        f"{op}: body_fn must return a pair (state, outputs)",
        operands={"returned": result if isinstance(result, Symbol) else str(flatten_value(result)[0])},
        help="return (state, outputs): two values, each a Symbol or a tuple, list or dict of them, or None",
    )


def rank_of(x: Symbol) -> int:
    if not x.shape.is_ranked:
        raise ShapeError("scan: unknown rank", operands={"value": x}, help="declare it: ops.rebind(x, shape)")
    return len(x.shape)


def stacked_type(type_: Type, length: Dim, axis: int) -> Type:
    """Return the type of values of a type stacked along a new axis."""
    if not isinstance(type_, TensorType):
        raise DTypeError(f"collect: {type_} cannot be stacked", help="return tensors as outputs")
    if not type_.shape.is_ranked:
        return tensor_type(type_.dtype, Shape.unknown())
    return tensor_type(type_.dtype, _shape([*type_.shape[:axis], length, *type_.shape[axis:]]), type_.ambiguous)


def with_ambiguity(type_: Type, ambiguous: bool) -> Type:
    """Mark the dtype of a type as ambiguous, that is only a default, or not."""
    return tensor_type(type_.dtype, type_.shape, ambiguous) if isinstance(type_, TensorType) else type_
