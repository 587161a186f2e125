"""Lists of tensors of one dtype, whose shapes may differ: ONNX's sequences. See docs/howto/lists_and_strings.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import as_index, cast_operand, dtype_of, graph_of, operand, promote
from graphcore.build.pytree import labels_of, leaves_like, rebuilt
from graphcore.build.shapes import axis_of, check_integers, check_scalar, unjoinable
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.definitions import body
from graphcore.ir.graph import Graph, read_by
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.control import for_loop
from graphcore.ops.shared.attributes import (
    called,
    check_callable,
    flatten_value,
    join_list_types,
    names_in_scopes,
    release_other_names,
)
from graphcore.ops.shared.dims import with_dims
from graphcore.promotion.rules import holds
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import SequenceType, Shape, TensorType, _shape, known_type, tensor_type

_COUNT = tensor_type(DType.int64, _shape(()))
Index = int | Symbol


@op(onnx="SequenceConstruct", rule="join")
def list_of(elements: Sequence[TensorLike]) -> Symbol:
    """A list of tensors.

    Args:
        elements: One or more, of any shapes; they promote to a common dtype.

    Returns:
        A list whose element type has the dims that all share; others are unknown (`?`).

    Raises:
        ShapeError: For no elements: use ops.list_empty.

    ONNX SequenceConstruct; MAX's `list`.
    """
    if isinstance(elements, (Symbol, str)) or not isinstance(elements, Iterable):
        raise ShapeError(
            "list_of: elements must be a list of tensors", operands={"elements": elements}, help="give a Python list"
        )
    listed = list(elements)
    if not listed:
        raise ShapeError("list_of: elements is empty", help="use ops.list_empty(DType.float32, shape)")
    symbols, dtype = promote("list_of", "join", {f"element {i}": value for i, value in enumerate(listed)})
    _check_dtype(dtype, "list_of")
    type_ = functools.reduce(join_list_types, [SequenceType(tensor_type(dtype, s.shape)) for s in symbols])
    return symbols[0].graph.build.emit("SequenceConstruct", tuple(symbols), type_)


@op(onnx="SequenceEmpty")
def list_empty(type: object, shape: Iterable[Any] | None = None) -> Symbol:
    """A list without elements, in the current graph.

    Args:
        type: The TensorType of later elements, or their dtype.
        shape: Their dims, with a dtype; without one, elements of any shape are accepted.

    Raises:
        DTypeError: For anything but a dtype, `GraphError` outside of `with graph:`.

    ONNX SequenceEmpty; MAX's `list`.
    """
    graph = graph_of("list_empty", ())
    if isinstance(type, TensorType):
        if shape is not None:
            raise ShapeError("list_empty: got both a TensorType and a shape", help="omit the shape, or give a dtype")
        element = known_type(read_by(graph.promotion, type))
        assert isinstance(element, TensorType)
    else:
        dtype = dtype_of("list_empty", type)
        element = tensor_type(dtype, Shape.unknown() if shape is None else Shape(shape))
    _check_dtype(element.dtype, "list_empty")
    return graph.build.emit("SequenceEmpty", (), SequenceType(element), {"dtype": element.dtype})


@op(onnx="SequenceLength")
def list_length(values: Symbol) -> Symbol:
    """The number of elements of a list, an int64 scalar.

    Args:
        values: A list of tensors.

    Raises:
        DTypeError: For anything else.

    ONNX SequenceLength.
    """
    values = _list_operand("list_length", values)
    return as_index(values.graph.build.emit("SequenceLength", (values,), _COUNT))


@op(onnx="SequenceAt")
def list_get(values: Symbol, index: Index) -> Symbol:
    """One element of a list.

    Args:
        values: A list of tensors.
        index: An int or an integer scalar Symbol; negative ones count from the end.

    Returns:
        The element, with the dims that all elements share. An index out of range is an error of the run.

    Raises:
        DTypeError: For values that are not a list and an index that is not an integer.
        ShapeError: For an index that is not a scalar.

    ONNX SequenceAt.
    """
    values = _list_operand("list_get", values)
    return values.graph.build.emit("SequenceAt", (values, _position("list_get", values, index)), _element(values))


@op(onnx="SequenceInsert")
def list_append(values: Symbol, x: TensorLike) -> Symbol:
    """The list with one more element at its end.

    Args:
        values: A list of tensors.
        x: Of the list's dtype, to which Python numbers convert; of any shape.

    Raises:
        DTypeError: For another dtype and for values that are not a list.

    ONNX SequenceInsert.
    """
    return _insert("list_append", values, x, None)


@op(onnx="SequenceInsert")
def list_insert(values: Symbol, index: Index, x: TensorLike) -> Symbol:
    """The list with one more element inserted before an index.

    Args:
        values: A list of tensors.
        index: Of the element before which x is inserted, an int or an integer scalar Symbol; negative ones count from
            the end.
        x: As for `list_append`. An index out of range is an error of the run. Raises as `list_append` and `list_get`
            do.

    ONNX SequenceInsert.
    """
    return _insert("list_insert", values, x, index)


@op(onnx="SequenceErase")
def list_erase(values: Symbol, index: Index = -1) -> Symbol:
    """The list without one of its elements, by default the last.

    Args:
        values: A list of tensors.
        index: As for `list_get`; out of range it is an error of the run. Raises as `list_get` does.

    ONNX SequenceErase.
    """
    values = _list_operand("list_erase", values)
    return values.graph.build.emit("SequenceErase", (values, _position("list_erase", values, index)), values.type)


@op(onnx="SequenceErase, SequenceAt")
def list_pop(values: Symbol, index: Index = -1) -> tuple[Symbol, Symbol]:
    """The list without one of its elements, by default the last, and that element.

    Args:
        values: As for `list_erase`.
        index: As for `list_erase`. Raises as `list_get` does.

    ONNX SequenceErase and SequenceAt.
    """
    values = _list_operand("list_pop", values)
    position = _position("list_pop", values, index)
    rest = values.graph.build.emit("SequenceErase", (values, position), values.type)
    return rest, values.graph.build.emit("SequenceAt", (values, position), _element(values))


@op(onnx="ConcatFromSequence")
def list_concat(values: Symbol, axis: int = 0) -> Symbol:
    """The elements of a list concatenated along an axis, as by `concat`.

    Args:
        values: A list of tensors of one rank >= 1, with equal dims except along that axis. Dims that differ only at run
            time, and an empty list, are errors of the run.

    Raises:
        ShapeError: For an invalid axis and for elements of `list_of` whose dims differ.
        DTypeError: For values that are not a list.

    ONNX ConcatFromSequence.
    """
    return _joined("list_concat", values, axis, is_new=False)


@op(onnx="ConcatFromSequence")
def list_stack(values: Symbol, axis: int = 0) -> Symbol:
    """The elements of a list stacked along a new axis, as by `stack`.

    Args:
        values: A list of tensors of one shape.
        axis: The position of the new axis in the result. Shapes that differ only at run time, and an empty list, are
            errors of the run.

    Raises:
        ShapeError: For an invalid axis and for elements of `list_of` whose shapes differ.
        DTypeError: For values that are not a list.

    ONNX ConcatFromSequence.
    """
    return _joined("list_stack", values, axis, is_new=True)


def _joined(name: str, values: Symbol, axis: int, *, is_new: bool) -> Symbol:
    """Join the elements along an axis, which is new if they are stacked."""
    values = _list_operand(name, values)
    type_ = _element(values)
    if type_.shape.is_ranked:
        axis = axis_of(name, axis, type_.rank + is_new, {"values": values})
        type_ = tensor_type(type_.dtype, with_dims(type_.shape, axis, axis + (not is_new), Dim.dynamic()))
    elif not isinstance(axis, int) or isinstance(axis, bool):
        raise ShapeError(f"{name}: {axis!r} is not an axis", help="give an int")
    if pair := unjoinable(values, None if is_new else axis):
        raise ShapeError(
            f"{name}: the shapes of elements differ", operands=pair, help="give elements whose sizes agree"
        )
    attributes = {"axis": axis, "new_axis": 1} if is_new else {"axis": axis}
    return values.graph.build.emit("ConcatFromSequence", (values,), type_, attributes)


@op(onnx="SplitToSequence")
def list_split(x: TensorLike, sizes: int | Sequence[int] | Symbol = 1, axis: int = 0) -> Symbol:
    """A tensor split along an axis into the elements of a list; `list_concat` is the inverse.

    Args:
        x: Any dtype, rank 1 or more.
        sizes: One size for all pieces, of which the last may be smaller; or a list of ints or an integer Symbol of rank
            1 with the size of each, which add up to the axis.
        axis: The axis to split.

    Raises:
        ShapeError: For an invalid axis and for impossible sizes.
        DTypeError: For sizes that are not integers.

    ONNX SplitToSequence.
    """
    symbol = operand("list_split", x)
    _check_dtype(symbol.dtype, "list_split")
    graph = graph_of("list_split", (symbol, sizes))
    roles = {"x": symbol}
    along = axis_of("list_split", axis, symbol.rank, roles)
    if isinstance(sizes, Symbol):
        roles["sizes"] = sizes
        check_integers("list_split", "sizes", sizes, roles)
        if sizes.shape.is_ranked and sizes.rank > 1:
            raise ShapeError(
                f"list_split: sizes must be a scalar or a vector, got {sizes.rank} axes",
                operands=roles,
                help="give one size, or a vector of them",
            )
        lengths, piece = cast_operand(graph.build.own(sizes, "list_split", "sizes"), DType.int64), Dim.dynamic()
    else:
        lengths, piece = _sizes(graph, symbol, sizes, along)
    dims = [piece if i == along else d for i, d in enumerate(symbol.shape)]
    type_ = SequenceType(tensor_type(symbol.dtype, _shape(dims)))
    return graph.build.emit("SplitToSequence", (symbol, lengths), type_, {"axis": along})


@op(onnx="SplitToSequence")
def list_unstack(x: TensorLike, axis: int = 0) -> Symbol:
    """The slices at each position of an axis as the elements of a list; `list_stack` is the inverse.

    Args:
        x: Any dtype, rank 1 or more.

    Returns:
        A list of tensors without that axis.

    Raises:
        ShapeError: For an invalid axis.

    ONNX SplitToSequence.
    """
    symbol = operand("list_unstack", x)
    _check_dtype(symbol.dtype, "list_unstack")
    along = axis_of("list_unstack", axis, symbol.rank, {"x": symbol})
    dims = [d for i, d in enumerate(symbol.shape) if i != along]
    type_ = SequenceType(tensor_type(symbol.dtype, _shape(dims)))
    return symbol.graph.build.emit("SplitToSequence", (symbol,), type_, {"axis": along, "keepdims": 0})


@op(onnx="Loop, SequenceAt, SequenceInsert")
def list_map(fn: Callable[..., Any], *lists: Symbol) -> Any:
    """The results of a function for each element of one or more lists, as lists.

    Args:
        fn: Takes the elements at one position, one Symbol per list, and returns a Symbol, or a tuple, list or dict of
            them, of dtypes that are the same for all elements. It may use any other Symbol of the graph and is called
            more than once.
        lists: Of one length; lengths that differ are an error of the run.

    Returns:
        A list, or lists in the structure that fn returns.

    Raises:
        GraphError: Without lists.
        DTypeError: For anything but a function and lists.

    ONNX Loop for SequenceMap.
    """
    check_callable("list_map", fn=fn)
    if not lists:
        raise GraphError("list_map: expected one or more lists", help="give them after the function")
    operands = [_list_operand("list_map", values, f"list {i}") for i, values in enumerate(lists)]
    graph = graph_of("list_map", operands)
    scopes = names_in_scopes(graph)
    elements = {f"element{i}": _element(values) for i, values in enumerate(operands)}
    with body(graph, "body", elements) as trial:
        results = called("list_map", "fn", fn, *trial.inputs)
        like, leaves = flatten_value(results)
        types = [
            trial.build.operand(leaf, "list_map", label).tensor_type
            for leaf, label in zip(leaves, labels_of(like, "the result of fn"), strict=True)
        ]
    release_other_names(scopes)
    if not types:
        raise GraphError("list_map: fn returns no Symbols", help="return what it computes from the elements")
    start = tuple(graph.build.emit("SequenceEmpty", (), SequenceType(known_type(t)), {"dtype": t.dtype}) for t in types)

    def turn(index: Symbol, *outputs: Symbol) -> tuple[Symbol, ...]:
        leaves = leaves_like(like, fn(*[list_get(values, index) for values in operands]))
        return tuple(list_append(values, leaf) for values, leaf in zip(outputs, leaves, strict=True))

    return rebuilt(like, iter(for_loop(_common_length(operands), turn, start)))


def _common_length(lists: Sequence[Symbol]) -> Symbol:
    """Return the common length of lists, an int64 scalar. If lengths differ, the run fails in a Reshape of 1 to 2."""
    length, *others = [values.graph.build.emit("SequenceLength", (values,), _COUNT) for values in lists]
    graph = length.graph
    for other in others:
        differ = e.opposite(e.equal(length, other))
        count = e.emit("Add", graph.build.vector([1]), graph.build.cast(differ, DType.int64), shape=_shape([Dim(1)]))
        length = e.emit("Reshape", length, count, shape=_shape([Dim.dynamic()]))
        # Not Squeeze: onnxruntime merges it with the Reshape and drops the check.
        length = e.emit("ReduceMax", length, shape=_shape(()), keepdims=0)
    return length


def _check_dtype(dtype: DType, name: str) -> None:
    if is_wide(dtype):
        raise DTypeError(f"{name}: a list cannot hold {dtype}", help="cast to at most 64 bits: .cast(DType.int64)")


def _list_operand(name: str, value: object, role: str = "values") -> Symbol:
    """Return an operand that must be a list of tensors."""
    if not isinstance(value, Symbol):
        raise DTypeError(
            f"{name}: {role} must be a list of the graph, got {type(value).__name__}",
            operands={role: value},
            help="convert it: ops.list_of(values)",
        )
    if not isinstance(value.type, SequenceType) or not isinstance(value.type.element, TensorType):
        raise DTypeError(
            f"{name}: {role} must be a list of tensors, got {value.type}",
            operands={role: value},
            help="make a list: ops.list_of([x, y]), or split a tensor: ops.list_split(x)",
        )
    return operand(name, value, role)


def _element(values: Symbol) -> TensorType:
    list_type = values.type
    assert isinstance(list_type, SequenceType)
    assert isinstance(list_type.element, TensorType)
    return list_type.element


def _position(name: str, values: Symbol, index: object) -> Symbol:
    graph = graph_of(name, (values, index))
    if isinstance(index, int) and not isinstance(index, bool) and -(1 << 63) <= index < 1 << 63:
        return graph.build.scalar(index, DType.int64)
    if not isinstance(index, Symbol) or not isinstance(index.type, TensorType) or not index.dtype.is_integer:
        described = index if isinstance(index, Symbol) else repr(index)
        raise DTypeError(
            f"{name}: the index must be an integer",
            operands={"values": values, "index": described},
            help="give an int, or an integer scalar Symbol",
        )
    check_scalar(name, "index", index, {"values": values, "index": index}, help="give one element of it: index[0]")
    return cast_operand(graph.build.own(index, name, "index"), DType.int64)


def _insert(name: str, values: Symbol, x: Any, index: Index | None) -> Symbol:
    values = _list_operand(name, values)
    position = None if index is None else _position(name, values, index)
    graph = graph_of(name, (values, x))
    dtype = _element(values).dtype
    if isinstance(x, (bool, int, float)):
        if not holds(x, dtype):
            raise DTypeError(
                f"{name}: {x!r} cannot be held in {dtype}",
                operands={"values": values},
                help="use a list of another dtype",
            )
        x = graph.build.scalar(x, dtype)
    symbol = graph.build.operand(x, name, "x")
    if not isinstance(symbol.type, TensorType) or symbol.dtype is not dtype:
        is_tensor = isinstance(symbol.type, TensorType)
        raise DTypeError(
            f"{name}: a list of {dtype} cannot take {symbol.dtype if is_tensor else symbol.type}",
            operands={"values": values, "x": symbol},
            help=f"cast it: .cast(DType.{dtype.name})" if is_tensor else "give a tensor: lists cannot be nested",
        )
    type_ = join_list_types(SequenceType(_element(values)), SequenceType(known_type(symbol.type)))
    inputs = (values, symbol) if position is None else (values, symbol, position)
    return graph.build.emit("SequenceInsert", inputs, type_)


def _sizes(graph: Graph, x: Symbol, sizes: object, axis: int) -> tuple[Symbol, Dim]:
    """Return the sizes as a Symbol, and the size of a piece if all are equal."""
    length = x.shape[axis]
    if isinstance(sizes, int) and not isinstance(sizes, bool):
        if sizes < 1:
            raise ShapeError(
                f"list_split: the size of pieces must be >= 1, got {sizes}",
                operands={"x": x},
                help="give a size of 1 or more",
            )
        is_even = sizes == 1 or (length.is_static and int(length) % sizes == 0)
        return graph.build.scalar(sizes, DType.int64), Dim(sizes) if is_even else Dim.dynamic()
    lengths = list(sizes) if isinstance(sizes, Iterable) else []
    if not lengths or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in lengths):
        raise ShapeError(
            f"list_split: sizes must be ints >= 0, got {sizes!r:.60}",
            operands={"x": x},
            help="give an int, or a list of ints >= 0",
        )
    if length.is_static and int(length) != sum(lengths):
        raise ShapeError(
            f"list_split: the sizes add up to {sum(lengths)}, but axis {axis} has {length}",
            operands={"x": x},
            help="give the size of every piece",
        )
    return graph.build.vector(lengths), Dim(lengths[0]) if len(set(lengths)) == 1 else Dim.dynamic()
