"""Creation of tensors: constants, ranges, tensors of one value, and one-hot vectors."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcore.arrays import casting
from graphcore.build import operands
from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import graph_of, promote
from graphcore.build.shapes import axis_of, broadcast, check_integers, check_scalar
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.literals import array_of, checked_cast, holds_numpy, literal_dtype
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import Size, SizeLike, dim_value, dims_of, provably_differ, shape_vector
from graphcore.ops.shared.reshape import dim_of, graph_and_sizes
from graphcore.ops.shared.slice import index_operand, whole
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import DimLike, _shape, tensor_type


@op(onnx="Constant", computes=False)
def constant(value: Any, dtype: object = None, ambiguous: bool = False) -> Symbol:
    """A constant in the current graph.

    Args:
        value: An array, a Python scalar or nested lists of them, of any shape.
        dtype: By default the array's own, or bool, int64 or float32 for Python numbers, unless the promotion system
            chooses another.
        ambiguous: The dtype yields to that of the other operand, in "kernel_float" and "anvil".

    Raises:
        DTypeError: If `dtype` cannot represent an element, `GraphError` outside of `with graph:`. An ONNX initializer.
    """
    wanted = None if dtype is None else operands.dtype_of("constant", dtype)
    return Graph.current().constant(value, wanted, ambiguous=ambiguous)


@op(onnx="ConstantOfShape")
def full(shape: SizeLike | Sequence[SizeLike], value: TensorLike, dtype: object = None) -> Symbol:
    """A tensor filled with one value.

    Args:
        shape: One size or a sequence of them: ints, integer scalar Symbols, Dims and names, which a Symbol of the graph
            must have as a dim. Dims of a Symbol's shape tell the graph too.
        value: A number, or a scalar Symbol.
        dtype: By default the value's own, or bool, int64 or float32 for Python numbers.

    Raises:
        ShapeError: For unknown dims and names.
        DTypeError: If `dtype` cannot represent the value.

    ONNX ConstantOfShape, or Expand of a Symbol.
    """
    return _filled("full", shape, value, dtype)


def _all_of(name: str, value: bool) -> Callable[..., Symbol]:
    """Declare a tensor of zeros or ones."""
    doc = f"""A tensor of {name}.

    Args:
        shape: One size or a sequence of them: ints, integer scalar Symbols, Dims and names, which a Symbol of the graph
            must have as a dim. Dims of a Symbol's shape tell the graph too.
        dtype: Float32 by default.

    Raises:
        ShapeError: For unknown dims and names.

    ONNX ConstantOfShape.
    """

    @op(onnx="ConstantOfShape", name=name, doc=doc)
    def filled(shape: SizeLike | Sequence[SizeLike], dtype: object = DType.float32) -> Symbol:
        return _filled(name, shape, value, dtype)

    return filled


zeros = _all_of("zeros", False)
ones = _all_of("ones", True)


def _filled(name: str, shape: Any, value: Any, dtype: object) -> Symbol:
    graph, sizes = graph_and_sizes(name, shape, value)
    wanted = None if dtype is None else operands.dtype_of(name, dtype, graph)
    if isinstance(value, Symbol):
        value = graph.build.own(value, name, "value")
        check_scalar(name, "value", value, help="give a number or a scalar")
        return _expanded(graph, graph.build.cast(value, wanted or value.dtype), sizes, name)
    array, own = array_of(value, wanted)
    if array.ndim:
        raise ShapeError(
            f"{name}: value must be a scalar, got shape {_shape([Dim(n) for n in array.shape])}",
            operands={"value": repr(value)},
            help="give one number; use ops.constant for arrays, ops.broadcast_to to repeat them",
        )
    if own is not DType.string and not holds_numpy(value):
        own = literal_dtype(graph.promotion, value, name)
        array = array.astype(np.float64) if own is DType.float32 else array
        source = DType.of(array.dtype)
    else:
        source = own
    target = wanted or own
    if name == "full" and target is not source:
        array = checked_cast(array, source, target, name)
    else:
        array = casting.cast_array(array, source, target)
    if not sizes or target is DType.string:
        return _expanded(graph, graph.build.constant(array.reshape(()), target), sizes, name)
    vector = shape_vector(graph, sizes, op=name)
    return graph.build.emit(
        "ConstantOfShape",
        (vector,),
        tensor_type(target, _shape(map(dim_of, sizes))),
        {"value": np.ascontiguousarray(array).reshape(1)},
    )


def _expanded(graph: Graph, value: Symbol, sizes: Sequence[Size], name: str) -> Symbol:
    if not sizes:
        return value
    vector = shape_vector(graph, sizes, op=name)
    return graph.build.emit("Expand", (value, vector), tensor_type(value.dtype, _shape(map(dim_of, sizes))))


# Ranges


_KERNELS = (DType.int16, DType.int32, DType.int64, DType.float32, DType.float64)


@op(onnx="Range", rule="join")
def range(
    start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: DimLike | None = None
) -> Symbol:
    """The numbers from `start` to `stop`, without `stop`, in steps of `step`: a tensor of rank 1.

    Args:
        start: Numbers, scalar Symbols, or Dims and names (as int64); a single one is `stop`, from 0.
        stop: As `start`.
        step: Numbers, scalar Symbols, or Dims and names (as int64); a single one is `stop`, from 0. They promote to a
            common dtype, which `dtype` overrides.
        out_dim: The length, if the bounds are Symbols.

    Raises:
        ShapeError: For a step of 0 and a wrong `out_dim`.
        DTypeError: For bools and for bounds that `dtype` cannot represent.

    ONNX Range, NumPy's arange.
    """
    if stop is None:
        start, stop = 0, start
    bounds = {"start": start, "stop": stop, "step": step}
    graph = graph_of("range", bounds.values())
    wanted = _number_dtype("range", dtype, graph)
    declared = None if out_dim is None else dims_of("range", [out_dim])[0]
    if any(isinstance(b, (Symbol, np.ndarray)) for b in bounds.values()):
        return _computed(graph, bounds, wanted, declared)
    values = {role: _bound(role, value) for role, value in bounds.items()}
    if all(not isinstance(value, float) for value in values.values()):
        return _whole(graph, values, wanted, declared)
    return _real(graph, values, wanted, declared)


def _number_dtype(name: str, dtype: object, graph: Graph) -> DType | None:
    wanted = None if dtype is None else operands.dtype_of(name, dtype, graph)
    if wanted in (DType.bool, DType.string):
        raise DTypeError(
            f"{name}: dtype must be an integer or a float, got {wanted}", help="use an integer or a float dtype"
        )
    return wanted


def _bound(role: str, value: Any) -> Any:
    """Return a bound as an int, a float or a symbolic Dim."""
    if isinstance(value, (str, Dim)):
        (dim,) = dims_of("range", [value])
        return int(dim) if dim.is_static else dim
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DTypeError(
            f"range: {role} must be a number, got {value!r}", help="give a number, a Dim or a scalar Symbol"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ShapeError(f"range: {role} must be finite, got {value!r}", help="give a finite number")
    if role == "step" and value == 0:
        raise ShapeError("range: step must not be 0", help="give a positive or negative step")
    return value


def _length(declared: Dim | None, length: Dim) -> Dim:
    if declared is not None and provably_differ(declared, length):
        raise ShapeError(f"range: out_dim is {declared}, but the length is {length}", help="omit out_dim")
    return length if declared is None else declared


def _whole(graph: Graph, bounds: dict[str, Any], dtype: DType | None, declared: Dim | None) -> Symbol:
    """Emit a range of ints and Dims, computed in int64."""
    start, stop, step = (b if isinstance(b, Dim) else Dim(0) + b for b in bounds.values())
    target = dtype or DType.int64
    if not step.is_static:
        raise ShapeError(f"range: step must be an int, got {step}", help="give a number or a scalar Symbol")
    distance = stop - start if bounds["step"] > 0 else start - stop
    length = Dim.maximum(distance.ceildiv(builtins.abs(bounds["step"])), 0)
    if length.is_static and length != 0:
        last = bounds["step"] * (int(length) - 1)
        for value in (bounds["start"], bounds["start"] + last if isinstance(bounds["start"], int) else None):
            if value is not None:
                checked_cast(np.array(value), DType.of(np.array(value).dtype), target, "range")
    shape = _shape([_length(declared, length)])
    symbols = tuple(
        dim_value(graph, b, op="range") if isinstance(b, Dim) else graph.build.scalar(b, DType.int64)
        for b in bounds.values()
    )
    result = graph.build.emit("Range", symbols, tensor_type(DType.int64, shape))
    return graph.build.cast(result, target)


def _real(graph: Graph, bounds: dict[str, Any], dtype: DType | None, declared: Dim | None) -> Symbol:
    """Return a range whose bounds are numbers, one of them a float: a constant, with the length that NumPy computes."""
    start, stop, step = bounds.values()
    if any(isinstance(b, Dim) for b in bounds.values()):
        raise ShapeError(
            "range: a Dim cannot be combined with a float bound",
            help="make a range of ints and multiply: ops.range(n) * 0.5",
        )
    target = dtype or DType.float32
    if target.is_integer:
        raise DTypeError(f"range: float bounds need a float dtype, got {target}", help="give ints, or omit dtype")
    length = builtins.max(0, math.ceil((stop - start) / step))
    values = start + np.arange(length, dtype=np.float64) * step
    array = checked_cast(values, DType.float64, target, "range")
    _length(declared, Dim(length))
    return graph.build.constant(array, target)


def _computed(graph: Graph, bounds: dict[str, Any], dtype: DType | None, declared: Dim | None) -> Symbol:
    """Emit a range whose bounds are computed when the graph runs."""
    roles = {
        role: dim_value(graph, value, op="range") if isinstance(value, (str, Dim)) else value
        for role, value in bounds.items()
    }
    symbols, common = promote("range", "join", roles)
    for role, symbol in zip(roles, symbols, strict=True):
        check_scalar("range", role, symbol)
        if common in (DType.bool, DType.string):
            raise DTypeError(
                f"range: bounds must be numbers, got {common}", operands={role: symbol}, help="cast to an integer"
            )
    target = dtype or common
    counted = common if common in _KERNELS else DType.float32 if common.is_float else DType.int64
    shape = _shape([Dim.dynamic() if declared is None else declared])
    result = e.emit("Range", *(graph.build.cast(s, counted) for s in symbols), shape=shape)
    return graph.build.cast(result, target)


@op(onnx="Range, Mul, Add", rule="float")
def linspace(start: TensorLike, stop: TensorLike, num: DimLike, endpoint: bool = True, dtype: object = None) -> Symbol:
    """`num` evenly spaced numbers from `start` to `stop`.

    Args:
        start: Numbers or Symbols, whose shapes broadcast; integers become floats.
        stop: As `start`.
        num: An int >= 0, or a dim of the graph.
        endpoint: `stop` is the last number; else it would be the next one.
        dtype: By default the common dtype of start and stop, or float32 or complex64 for Python numbers; an integer
            dtype truncates.

    Returns:
        [num, ...], the numbers along a new first axis, computed in float64 or complex128 and rounded once.

    Raises:
        ShapeError: For a negative or unknown num and shapes that do not broadcast.
        DTypeError: For ends that are not numbers and for bool and string as `dtype`.

    NumPy's linspace.
    """
    name = "linspace"
    graph = graph_of(name, (start, stop, num))
    wanted = _number_dtype(name, dtype, graph)
    (count,) = dims_of(name, [num], help="num is an int >= 0, a name or a Dim")
    ends = {"start": start, "stop": stop}
    if isinstance(start, (int, float, complex)) and isinstance(stop, (int, float, complex)):
        for role, value in ends.items():
            if isinstance(value, bool):
                raise DTypeError(f"{name}: {role} must be a number, got {value!r}", help="give a number")
        has_complex = any(isinstance(value, complex) for value in (start, stop))
        target = wanted or (DType.complex64 if has_complex else DType.float32)
        first, last = (number if isinstance(number, complex) else float(number) for number in (start, stop))
        if count.is_static:
            return graph.build.constant(_spaced_values(first, last, int(count), endpoint, target), target)
        wide = (DType.complex128 if isinstance(value, complex) else DType.float64 for value in (first, last))
        symbols = list(map(graph.build.scalar, (first, last), wide))
    else:
        symbols, common = promote(name, "float", ends)
        target = wanted or common
    if count.is_dynamic:
        raise ShapeError(
            f"{name}: num must not be an unknown dim (?)", help="give an int, a name or a Dim of the graph"
        )
    shape = broadcast(name, dict(zip(ends, symbols, strict=True)))
    low, high = (e.cast(s, DType.complex128 if target.is_complex else DType.float64) for s in symbols)
    weight = e.cast(_weights(graph, count, endpoint, len(shape)), low.dtype)
    # Weighted means of both ends: their difference could overflow.
    rest = e.emit("Sub", e.const(weight, 1.0), weight, shape=weight.shape)
    parts = [e.emit("Mul", a, b) for a, b in ((rest, low), (weight, high))]
    return e.cast(e.emit("Add", *parts, shape=_shape([count, *shape])), target)


def _spaced_values(start: complex, stop: complex, count: int, endpoint: bool, dtype: DType) -> np.ndarray[Any, Any]:
    weight = np.arange(count) / builtins.max(count - int(bool(endpoint)), 1)
    with np.errstate(all="ignore"):
        values = (1 - weight) * start + weight * stop
        return casting.cast_array(values, DType.of(values.dtype), dtype)


def _weights(graph: Graph, count: Dim, endpoint: bool, rank: int) -> Symbol:
    """Return the weights of `stop`: float64 [count] with `rank` trailing axes of size 1."""
    shape = _shape([count])
    zero, one = (graph.build.scalar(n, DType.int64) for n in (0, 1))
    places = e.emit("Range", zero, dim_value(graph, count, op="linspace"), one, shape=shape)
    parts = Dim.maximum(count - int(bool(endpoint)), 1)
    total = dim_value(graph, parts, op="linspace")
    weight = e.emit("Div", e.cast(places, DType.float64), e.cast(total, DType.float64), shape=shape)
    return e.unsqueeze(weight, *builtins.range(1, rank + 1)) if rank else weight


# One-hot vectors


@op(onnx="OneHot", rule="join")
def one_hot(
    indices: TensorLike,
    depth: DimLike | Symbol,
    axis: int = -1,
    *,
    on_value: TensorLike | str = 1,
    off_value: TensorLike | str = 0,
    dtype: object = None,
) -> Symbol:
    """A vector for each index, with `on_value` at that position and `off_value` elsewhere.

    Args:
        indices: Integers of any shape; negative ones count from the end, and those out of range give vectors of
            off_value.
        depth: The length of the vectors, at least 1: an int, a dim of the graph or an integer scalar Symbol.
        axis: Of the vectors, in the result.
        on_value: Numbers or scalar Symbols, promoted together.
        off_value: Numbers or scalar Symbols, promoted together.
        dtype: By default their common dtype, or float32 for Python numbers.

    Returns:
        The shape of indices with depth at the axis.

    Raises:
        DTypeError: For indices that are not integers and for values that `dtype` cannot represent.
        ShapeError: For values that are not scalars, a depth below 1 and an invalid axis.

    ONNX OneHot.
    """
    name = "one_hot"
    graph = graph_of(name, (indices, depth, on_value, off_value))
    places = whole(index_operand(graph, name, indices, "indices"), DType.int64)
    roles: dict[str, Any] = {"indices": places}
    position = axis_of(name, axis, places.rank + 1, roles)
    if isinstance(depth, Symbol):
        length, count = Dim.dynamic(), graph.build.own(depth, name, "depth")
        check_integers(name, "depth", count, roles)
        check_scalar(name, "depth", count, roles)
        count = graph.build.cast(count, DType.int64)
    else:
        (length,) = dims_of(name, [depth], help="depth is an int >= 1, a name, a Dim or a Symbol")
        if length == 0:
            raise ShapeError(f"{name}: depth must be at least 1, got 0", operands=roles, help="give depth >= 1")
        count = dim_value(graph, length, (places,), op=name)
    values = _values(graph, {"off_value": off_value, "on_value": on_value}, dtype)
    shape = _shape([*places.shape[:position], length, *places.shape[position:]])
    if is_wide(values.dtype):  # select by a vector of bools
        truth = graph.build.constant(np.array([False, True]), DType.bool)
        is_on = graph.build.emit("OneHot", (places, count, truth), tensor_type(DType.bool, shape), {"axis": position})
        off, on = (e.emit("Gather", values, graph.build.scalar(i, DType.int64), shape=_shape(())) for i in (0, 1))
        return e.where(is_on, on, off)
    type_ = tensor_type(values.dtype, shape)
    return graph.build.emit("OneHot", (places, count, values), type_, {"axis": position})


def _values(graph: Graph, values: dict[str, TensorLike | str], dtype: object) -> Symbol:
    """Return off_value and on_value as one Symbol of shape [2]."""
    name = "one_hot"
    wanted = None if dtype is None else operands.dtype_of(name, dtype, graph)
    if all(isinstance(value, (bool, int, float, str)) for value in values.values()):
        own = DType.string if any(isinstance(value, str) for value in values.values()) else DType.float32
        return graph.constant(list(values.values()), wanted or own)
    symbols, common = promote(name, "join", values)
    for role, symbol in zip(values, symbols, strict=True):
        check_scalar(name, role, symbol, help="give a number or a scalar")
    parts = [e.unsqueeze(graph.build.cast(s, wanted or common), 0) for s in symbols]
    return e.emit("Concat", *parts, shape=_shape([Dim(2)]), axis=0)
