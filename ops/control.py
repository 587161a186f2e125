"""Control flow: a choice between two branches, and loops. Their functions build bodies of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.build.declare import op
from graphcore.build.operands import as_index, cast_operand, graph_of, kinds_of, report_lossy, resolve
from graphcore.build.primitives import emit, greater, move_axis, unsqueeze
from graphcore.build.pytree import Structure, labels_of, rebuilt
from graphcore.build.shapes import axis_of, check_integers, check_scalar, same_dim
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir import definitions
from graphcore.ir.definitions import building, finish, new_body
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.attributes import (
    are_lists,
    call_with,
    called,
    check_callable,
    condition,
    flatten_value,
    join_shapes,
    join_types,
    names_in_scopes,
    next_state,
    outputs_of,
    pair_of,
    rank_of,
    release_other_names,
    results_of,
    stacked_type,
    start_loop,
    with_ambiguity,
)
from graphcore.ops.shared.dims import provably_differ, shape_vector
from graphcore.promotion.rules import Key
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, known_type, tensor_type

_COUNTER = tensor_type(DType.int64, _shape(()))
_CONDITION = tensor_type(DType.bool, _shape(()))


@op(onnx="If", rule="join")
def cond(pred: TensorLike, then_fn: Callable[..., Any], else_fn: Callable[..., Any], *operands: Any) -> Any:
    """The results of one of two functions, chosen when the graph runs; the other is not computed.

    Args:
        pred: A bool scalar, or a number, true if not 0.
        then_fn: Called once each with the operands; they may use any other Symbol of the graph as well.
        else_fn: Called once each with the operands; they may use any other Symbol of the graph as well. Both return the
            same structure: a Symbol, or a tuple, list or dict of Symbols.
        operands: The arguments of the functions.

    Returns:
        Values in the structure that the functions return, of the common dtype of both branches (casts are inserted in
        the branches) and with the dims that both have; others are unknown.

    Raises:
        PromotionError: Or.
        DTypeError: For dtypes without a common dtype.
        ShapeError: For ranks that differ.
        GraphError: For structures that differ.

    ONNX If.
    """
    check_callable("cond", then_fn=then_fn, else_fn=else_fn)
    graph = graph_of("cond", [pred, *[o for o in operands if isinstance(o, Symbol)]])
    test = condition(
        "cond", pred if isinstance(pred, Symbol) else graph.build.operand(pred, "cond", "pred"), "pred", numbers=True
    )
    bodies = [new_body(graph, name, {}) for name in ("then", "else")]
    branch_results = []
    for body, name, function in zip(bodies, ("then_fn", "else_fn"), (then_fn, else_fn), strict=True):
        with building(body):
            branch_results.append(called("cond", name, function, *operands))
    like, leaves = flatten_value(branch_results[0])
    structures: dict[str, object] = {"then": str(like), "else": str(flatten_value(branch_results[1])[0])}
    if not leaves:
        raise GraphError(
            "cond: then_fn returns no Symbols", operands=structures, help="return what the branch computes"
        )
    values = []
    for body, name, results in zip(bodies, ("then", "else"), branch_results, strict=True):
        with building(body):
            values.append(
                results_of("cond", name, "the branches return different structures", body, results, like, structures)
            )
    labels = zip(labels_of(like, "then"), labels_of(like, "else"), strict=True)
    types = [_common_type(graph, dict(zip(pair, of, strict=True))) for pair, *of in zip(labels, *values, strict=True)]
    for body, results in zip(bodies, values, strict=True):
        with building(body):
            finish(
                body, [_cast_result(body, *row) for row in zip(results, types, zip(*values, strict=True), strict=True)]
            )
    attributes = {"then_branch": bodies[0], "else_branch": bodies[1]}
    return rebuilt(like, iter(graph.build.emit_many("If", (test,), types, attributes)))


def _common_type(graph: Graph, pair: dict[str, Any]) -> Type:
    """Return the common type of the values of two branches."""
    types = [v.type for v in pair.values() if isinstance(v, Symbol)]
    if any(not isinstance(t, TensorType) for t in types):
        if len(types) == 2 and are_lists(types[0], types[1]):
            return join_types(types[0], types[1])
        if len(types) < 2 or types[0] != types[1]:
            raise DTypeError(
                "cond: the branches return values of different kinds", operands=pair, help="return values of one kind"
            )
        only: Type = types[0]
        return only
    symbols = [v if isinstance(v, Symbol) else None for v in pair.values()]
    literals = [None if isinstance(v, Symbol) else v for v in pair.values()]
    resolution = resolve(graph, Key("cond", "join"), pair, symbols, literals)
    report_lossy(graph, "cond", {
        role: (v, resolution.result) for role, v in pair.items() if isinstance(v, Symbol)
    })  # fmt: skip
    was, now = (_shape(()) if s is None else s.shape for s in symbols)
    if was.is_ranked and now.is_ranked and len(was) != len(now):
        raise ShapeError(
            f"cond: the branches return tensors of rank {len(was)} and {len(now)}",
            operands={role: v if isinstance(v, Symbol) else repr(v) for role, v in pair.items()},
            help="reshape or broadcast one of them to the rank of the other",
        )
    guessed = all(s.ambiguous for s in symbols if s is not None) and any(s is not None for s in symbols)
    return tensor_type(resolution.result, join_shapes(was, now), guessed and resolution.ambiguous)


def _cast_result(body: Graph, value: Any, type_: Type, pair: tuple[Any, ...]) -> Symbol:
    """Cast a branch's value to the common dtype. pair: the values of both branches."""
    if not isinstance(value, Symbol):
        assert isinstance(type_, TensorType)
        return body.build.scalar(value, type_.dtype)
    if not isinstance(type_, TensorType):
        return value
    return cast_operand(value, type_.dtype, cause=("cond", *kinds_of(pair)))


@op(onnx="Loop")
def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """The last state of a loop that runs as long as a condition on its state holds.

    Args:
        cond_fn: Takes the state, returns a scalar bool; evaluated before each iteration, so that there may be none.
        body_fn: Takes the state, returns the next state.
        init: The initial state, a Symbol or a tuple, list or dict of them. A tuple or list is passed to the functions
            as separate arguments, a dict as keywords. Both functions may use any other Symbol of the graph, and are
            called more than once.

    Returns:
        The last state, in the structure of init. Its dtypes and ranks stay; dims that change are unknown.

    Raises:
        DTypeError: Or.
        ShapeError: If a dtype or rank changes or the condition is not a scalar bool.
        GraphError: For states of another structure.

    ONNX Loop.
    """
    check_callable("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    like, graph, start = start_loop("while_loop", init)
    if not start:
        raise GraphError("while_loop: init has no Symbols", help="give an initial state, such as a counter")
    goes = condition(
        "while_loop", call_with("while_loop", "cond_fn", cond_fn, rebuilt(like, iter(start))), "the result of cond_fn"
    )

    def turn(body: Graph, index: Symbol, state: Sequence[Symbol]) -> tuple[Symbol, list[Symbol], list[Symbol]]:
        result = call_with("while_loop", "body_fn", body_fn, rebuilt(like, iter(state)))
        after = next_state("while_loop", body, result, like, state)
        goes_on = condition(
            "while_loop",
            call_with("while_loop", "cond_fn", cond_fn, rebuilt(like, iter(after))),
            "the result of cond_fn",
        )
        return body.build.own(goes_on, "while_loop", "the result of cond_fn"), after, []

    last, _ = _loop("while_loop", graph, None, goes, start, turn)
    return rebuilt(like, iter(last))


@op(onnx="Loop")
def for_loop(trip_count: TensorLike, body_fn: Callable[..., Any], init: Any = None, *, collect: bool = False) -> Any:
    """The last state of a loop with a number of iterations.

    Args:
        trip_count: An int or integer scalar Symbol; 0 or less means no iterations.
        body_fn: Takes the iteration number (from 0, an int64 scalar, under Allo's promotion systems an index) and the
            state, returns the next state, or with `collect` (next state, outputs).
        init: The initial state, a Symbol, a tuple, list or dict of them, or None. A tuple or list is passed to body_fn
            as separate arguments, a dict as keywords. body_fn may use any other Symbol of the graph, and may be called
            more than once.

    Returns:
        The last state, in the structure of init, or with `collect` (last state, outputs): each output stacked along a
        new first axis, that of the iterations. Raises as `while_loop` does.

    ONNX Loop.
    """
    check_callable("for_loop", body_fn=body_fn)
    like, graph, start = start_loop("for_loop", init, trip_count)
    trips = _trips(graph, trip_count)
    outputs: list[Structure] = []

    def turn(body: Graph, index: Symbol, state: Sequence[Symbol]) -> tuple[Symbol, list[Symbol], list[Symbol]]:
        result = call_with("for_loop", "body_fn", body_fn, rebuilt(like, iter(state)), index)
        if collect:
            result, extra = pair_of("for_loop", result)
        after = next_state("for_loop", body, result, like, state)
        if not collect:
            return body.inputs[1], after, []
        extra_like, collected = outputs_of("for_loop", body, extra)
        outputs[:] = [extra_like]
        return body.inputs[1], after, collected

    goes = None if start else graph.build.scalar(True, DType.bool)  # a Loop needs at least two inputs
    states, stacked = _loop("for_loop", graph, trips, goes, start, turn)
    last = rebuilt(like, iter(states))
    return (last, rebuilt(outputs[0], iter(stacked))) if collect else last


@op(onnx="Scan, If")
def scan(
    body_fn: Callable[..., Any], init: Any, xs: Any, *, axis: int = 0, reverse: bool = False, out_axis: int = 0
) -> Any:
    """A function applied along an axis, with a state that is passed from each position to the next.

    Args:
        body_fn: Takes (state, x), returns (next state, y); state and x have the structures of `init` and `xs`, y has
            any.
        init: The initial state, a Symbol or a tuple, list or dict of them, or None.
        xs: A Symbol or a tuple, list or dict of one or more; x is their slices at one position of `axis`, without that
            axis.
        reverse: From the last position to the first; each y still has the position of its x.
        out_axis: The axis along which the ys are stacked. body_fn may use any other Symbol of the graph, and is called
            once.

    Returns:
        (last state, ys), in the structures that body_fn returns.

    Raises:
        ShapeError: For xs of lengths that differ and for a state that changes its shape, otherwise as `while_loop`
            does.

    ONNX Scan, inside an If if the axis may be empty.
    """
    check_callable("scan", body_fn=body_fn)
    over, along = flatten_value(xs)
    like, graph, start = start_loop("scan", init, *along)
    roles = dict(zip(labels_of(over, "xs"), [graph.build.operand(x, "scan", "xs") for x in along], strict=True))
    if not roles:
        raise GraphError("scan: xs has no Symbols", help="give one or more, or use ops.for_loop")
    for label, value in (*zip(labels_of(like, "state"), start, strict=True), *roles.items()):
        if not isinstance(value.type, TensorType):
            raise DTypeError(
                f"scan: {label} must be a tensor, got {value.type}",
                operands={label: value},
                help="use ops.for_loop, whose state may be a list",
            )
    axes = [axis_of("scan", axis, rank_of(x), {label: x}) for label, x in roles.items()]
    length = _length(roles, axes)
    turn = _ScanBuilder(body_fn, like, over, list(roles.values()), axes, length, reverse, out_axis)
    if length.is_static and int(length):
        results, ys = turn.emit_scan(graph, start)
    else:
        results, ys = turn.emit_if(graph, start)
    return rebuilt(like, iter(results)), rebuilt(ys, iter(results[len(start) :]))


@dataclass(frozen=True, slots=True)
class _ScanBuilder:
    """A Scan to emit: its operands, its body and its types."""

    function: Callable[..., Any]
    state: Structure
    over: Structure
    xs: Sequence[Symbol]
    axes: Sequence[int]
    length: Dim
    reverse: bool
    out_axis: int

    def emit_scan(self, graph: Graph, start: Sequence[Symbol]) -> tuple[tuple[Symbol, ...], Structure]:
        """Emit the node; return its results and the structure of the ys."""
        parts = [
            tensor_type(x.dtype, _shape([*x.shape[:axis], *x.shape[axis + 1 :]]), x.ambiguous)
            for x, axis in zip(self.xs, self.axes, strict=True)
        ]
        types = [s.type for s in start]
        named = {f"state{i}": t for i, t in enumerate(types)} | {f"x{i}": t for i, t in enumerate(parts)}
        body = new_body(graph, "body", named)
        state, x = body.inputs[: len(types)], body.inputs[len(types) :]
        with building(body):
            result = called(
                "scan", "body_fn", self.function, rebuilt(self.state, iter(state)), rebuilt(self.over, iter(x))
            )
            result, outputs = pair_of("scan", result)
            after = next_state("scan", body, result, self.state, state)
            like, ys = outputs_of("scan", body, outputs)
        _check_shapes_stay(state, after)
        if not after and not ys:
            raise GraphError("scan: body_fn returns neither a state nor outputs", help="return (state, y)")
        ends = [axis_of("scan", self.out_axis, rank_of(y) + 1, {"y": y}, name="out_axis") for y in ys]
        with building(body):
            finish(body, [*after, *ys])
        # Along axes other than the first, the kernel divides by the number of elements of a slice, which may be 0.
        axes = [0 if _may_be_empty(x) else axis for x, axis in zip(self.xs, self.axes, strict=True)]
        out_axes = [0 if _may_be_empty(y) else end for y, end in zip(ys, ends, strict=True)]
        attributes: dict[str, Any] = {"body": body, "num_scan_inputs": len(parts), "scan_input_axes": axes}
        if ys:
            attributes["scan_output_axes"] = out_axes
        if self.reverse:
            attributes["scan_input_directions"] = [1] * len(parts)
        if self.reverse and ys:
            attributes["scan_output_directions"] = [1] * len(ys)
        stacked = [stacked_type(y.type, self.length, axis) for y, axis in zip(ys, out_axes, strict=True)]
        first, xs = ([graph.build.own(s, "scan", "an operand") for s in operands] for operands in (start, self.xs))
        operands = [*first, *map(move_axis, xs, self.axes, axes)]
        last = [with_ambiguity(t, s.ambiguous) for t, s in zip(types, after, strict=True)]
        result = graph.build.emit_many("Scan", tuple(operands), [*last, *stacked], attributes)
        return (*result[: len(start)], *map(move_axis, result[len(start) :], out_axes, ends)), like

    def emit_if(self, graph: Graph, start: Sequence[Symbol]) -> tuple[tuple[Symbol, ...], Structure]:
        """Emit the Scan in one branch of an If; the other returns the results of an empty axis, on which Scan fails."""
        x, axis = self.xs[0], self.axes[0]
        size = emit("Shape", x, dtype=DType.int64, shape=_shape([Dim(1)]), start=axis, end=axis + 1)
        size = emit("Squeeze", size, shape=_shape(()))
        with definitions.body(graph, "some") as some:
            results, like = self.emit_scan(some, start)
            finish(some, results)
        with definitions.body(graph, "none") as none:
            first = [none.build.own(s, "scan", "the state") for s in start]
            finish(none, [*first, *[_empty(none, s.type) for s in results[len(first) :]]])
        attributes = {"then_branch": some, "else_branch": none}
        is_some = greater(size, graph.build.scalar(0, DType.int64))
        return graph.build.emit_many("If", (is_some,), [s.type for s in results], attributes), like


def _may_be_empty(x: Symbol) -> bool:
    return not all(dim.is_static and int(dim) for dim in x.shape)


def _check_shapes_stay(before: Sequence[Symbol], after: Sequence[Symbol]) -> None:
    for was, now in zip(before, after, strict=True):
        if isinstance(was.type, TensorType) and was.shape.is_ranked and now.shape.is_ranked:
            if any(not same_dim(a, b) for a, b in zip(was.shape, now.shape, strict=True)):
                raise ShapeError(
                    f"scan: the state changes its shape from {was.shape} to {now.shape}",
                    operands={"before": was, "after": now},
                    help="keep its shape, or use ops.for_loop(n, ...) on xs[i]",
                )


def _empty(body: Graph, type_: Type) -> Symbol:
    """Return an empty tensor of a type: dims that the graph cannot compute are 0."""
    assert isinstance(type_, TensorType)
    if not type_.shape.is_ranked:
        raise ShapeError("scan: the rank of the outputs is unknown", help="declare it: ops.rebind(y, shape)")
    value = np.array("", object) if type_.dtype is DType.string else np.zeros((), type_.dtype.numpy)
    sizes = [_size_or_zero(body, dim) for dim in type_.shape]
    shape = shape_vector(body, sizes, op="scan")
    return body.build.emit(
        "Expand", (body.build.constant(value, type_.dtype), shape), tensor_type(type_.dtype, _shape(sizes))
    )


def _size_or_zero(body: Graph, dim: Dim) -> Dim:
    try:
        shape_vector(body, [dim], op="scan")
    except ShapeError:
        return Dim(0)
    return dim


# Shared by the loops


def _loop(
    op: str,
    graph: Graph,
    trips: Symbol | None,
    goes: Symbol | None,
    start: Sequence[Symbol],
    turn: Callable[[Graph, Symbol, Sequence[Symbol]], tuple[Symbol, list[Symbol], list[Symbol]]],
) -> tuple[tuple[Symbol, ...], tuple[Symbol, ...]]:
    """Emit a Loop whose body `turn` builds; build it again until the types of the state hold in every iteration."""
    types = [known_type(s.type) for s in start]
    scopes = names_in_scopes(graph)
    while True:
        release_other_names(scopes)
        guessed = [with_ambiguity(t, s.ambiguous) for t, s in zip(types, start, strict=True)]
        named = {"turn": _COUNTER, "goes_on": _CONDITION, **{f"state{i}": t for i, t in enumerate(guessed)}}
        body = new_body(graph, "body", named)
        index, _, *state = body.inputs
        with building(body):
            wanted = graph.promotion.counter_dtype
            counter = as_index(index) if wanted is None else cast_operand(index, wanted)
            goes_on, after, collected = turn(body, counter, state)
        wider = [join_types(a, b.type) for a, b in zip(types, after, strict=True)]
        if wider == types:
            break
        types = wider
    if not after and not collected:
        raise GraphError(f"{op}: body_fn returns neither a state nor outputs", help="give an init, or collect=True")
    with building(body):
        finish(body, [goes_on, *after, *collected])
    for s in collected:
        if isinstance(s.type, TensorType) and s.dtype is DType.string:
            raise DTypeError(
                f"{op}: strings cannot be collected: onnxruntime's Loop loses all but the first output",
                operands={"outputs": s},
                help="collect numbers that represent them, or use ops.scan",
            )
    length = _length_of(trips)
    stacked = [stacked_type(s.type, length, 0) for s in collected]
    last = [with_ambiguity(t, s.ambiguous) for t, s in zip(types, after, strict=True)]
    results = graph.build.emit_many("Loop", (trips, goes, *start), [*last, *stacked], {"body": body})
    collected = [
        s if trips is None or (length.is_static and int(length)) else _restore_shape(s, trips)
        for s in results[len(types) :]
    ]
    return results[: len(types)], tuple(collected)


def _trips(graph: Graph, count: TensorLike) -> Symbol:
    """Return the number of iterations as an int64 scalar."""
    if isinstance(count, int) and not isinstance(count, bool):
        if not -(2**63) <= count < 2**63:
            raise DTypeError(f"for_loop: trip_count {count} does not fit int64", help="give a smaller number")
        return graph.build.scalar(count, DType.int64)
    symbol = graph.build.operand(count, "for_loop", "trip_count")
    check_integers("for_loop", "trip_count", symbol)
    check_scalar("for_loop", "trip_count", symbol, help="take one element of it: trip_count[0]")
    return cast_operand(symbol, DType.int64)


def _restore_shape(collected: Symbol, trips: Symbol) -> Symbol:
    """Restore the shape of stacked outputs: without iterations onnxruntime sets dims known only at run time to 0."""
    graph = collected.graph
    inner = list(collected.shape[1:]) if collected.shape.is_ranked else []
    if all(d.is_static for d in inner) or not all(d is _size_or_zero(graph, d) for d in inner):
        return collected
    count = emit("Max", unsqueeze(trips, 0), graph.build.vector([0]))
    sizes = emit("Concat", count, shape_vector(graph, inner), shape=_shape([Dim(len(inner) + 1)]), axis=0)
    return emit("Reshape", collected, sizes, shape=collected.shape, allowzero=1)


def _length_of(trips: Symbol | None) -> Dim:
    """Return the number of iterations as a dim."""
    array = getattr(trips.producer, "array", None) if trips is not None else None
    return Dim.dynamic() if array is None else Dim(max(0, int(np.asarray(array))))


def _length(roles: dict[str, Symbol], axes: Sequence[int]) -> Dim:
    """Return the common length of all xs along their axes."""
    lengths = [x.shape[a] for x, a in zip(roles.values(), axes, strict=True)]
    known_lengths = [d for d in lengths if not d.is_dynamic] or lengths
    if any(provably_differ(known_lengths[0], d) for d in known_lengths):
        raise ShapeError(
            f"scan: the lengths of xs differ: {' and '.join(map(str, lengths))}",
            operands=roles,
            help="slice them to one length along the axis",
        )
    return known_lengths[0]
