"""Dims that the user declares, checked when the graph runs: `rebind`.

ONNX has no assertion. The check is a Reshape of an empty tensor to sizes that are all 0 unless a checked size differs
from the declared one: then one of them is below -1, which every runtime refuses. The tensor itself gets a new first
axis, whose position is computed from the check, and loses it again, so that nothing reads the tensor before the check
and nothing is copied. Expand or Reshape to the declared sizes would accept sizes of 0 and 1 and permuted ones, and
onnxruntime drops all but the last of consecutive Reshapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.build.shapes import AXIS, RANK, SIZE_CHECK
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import (
    Axis,
    Size,
    dims_of,
    in_pieces,
    is_known,
    provably_differ,
    shape_vector,
)
from graphcore.types.dim_polynomial import terms
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type


@op(onnx="Shape, Equal, Where, Reshape, Unsqueeze, Squeeze")
def rebind(x: TensorLike, shape: Any, message: str = "") -> Symbol:
    """The same tensor with dims that the user declares, which are checked when the graph runs.

    Args:
        x: Any shape and dtype.
        shape: One dim or a sequence of as many ints, names and Dims as `x` has axes; an unknown rank is checked too. A
            name that no Symbol of the graph (in a function: of the function) has is bound to the actual size; all other
            dims must have the declared size, or the run fails: a `Model` raises `RunError` with the message and the
            sizes. Known dims are not checked, and only a result that is an output is copied; a result without uses is
            not computed and so not checked.
        message: For errors.

    Raises:
        ShapeError: If the dims provably differ.

    Source: MAX; ONNX Shape, Equal and Where compute the sizes that a Reshape checks, before Unsqueeze and Squeeze.
    """
    symbol = operand("rebind", x)
    dims = dims_of("rebind", shape)
    note = f" ({message})" if message else ""
    roles = {"x": symbol}
    own = symbol.tensor_type.shape
    if own.is_ranked and len(dims) != symbol.rank:
        raise ShapeError(
            f"rebind: {_shape(dims)} has {len(dims)} dims, but x {symbol.shape} has {symbol.rank}{note}",
            operands=roles,
            help="give one dim for each axis; ops.reshape changes the rank",
        )
    for axis, (size, dim) in enumerate(zip(own, dims, strict=True) if own.is_ranked else ()):
        if provably_differ(size, dim):
            raise ShapeError(
                f"rebind: axis {axis} is {size} and cannot be {dim}{note}",
                operands=roles,
                help="rebind declares a shape; to change it, use ops.reshape or slices",
            )
    return rebind_dims(symbol, dims, message)


def _rebind_method(self: Symbol, *shape: Any, message: str = "") -> Symbol:
    if len(shape) == 2 and isinstance(shape[0], (list, tuple)) and isinstance(shape[1], str):
        return rebind(self, *shape)  # the message follows a list of dims, as in the function
    return _rebind_in_pieces(self, *shape, message=message)


_rebind_in_pieces = in_pieces(rebind)
_rebind_method.__name__ = _rebind_method.__qualname__ = "rebind"
_rebind_method.__doc__ = rebind.__doc__
setattr(Symbol, "rebind", _rebind_method)  # noqa: B010 - declared for type checkers in Symbol


# The check

_EXACT = {"allowzero": 1}  # 0 is an axis of size 0, not an unchanged one

_MAX_LENGTH = 200  # characters of a name or message in the name of a check


def rebind_dims(x: Symbol, dims: Sequence[Dim], message: str) -> Symbol:
    """Return `x` with these dims, checked if their sizes can be computed when the graph runs."""
    result = x if x.shape.is_ranked else _with_rank(x, dims, message)
    pending = [axis for axis, dim in enumerate(dims) if dim is not result.shape[axis]]
    while pending:
        graph = result.graph
        named = [axis for axis in reversed(pending) if dims[axis].name is not None]
        fresh = {dims[axis]: axis for axis in named if not is_known(graph, dims[axis])}
        computable = [axis for axis in pending if is_known(graph, dims[axis])]
        free = [axis for axis in pending if dims[axis].is_dynamic]
        if fresh:
            # A name that no Symbol has is bound to the actual size.
            settled = [*fresh.values(), *free]
            result = graph.build.emit("Identity", (result,), _stated_type(result, dims, settled))
        elif computable:
            settled = [*computable, *free]
            result = _check_sizes(result, dims, settled, {axis: dims[axis] for axis in computable}, message)
        else:
            solved = {axis: size for axis in pending if (size := _nearest_size(result, axis, dims[axis])) is not None}
            if not solved:
                return graph.build.emit("Identity", (result,), _stated_type(result, dims, pending))
            axis, size = next(iter(solved.items()))
            settled = [axis]
            result = _check_sizes(result, dims, settled, {axis: size}, message)
        pending = [axis for axis in pending if axis not in settled]
    return result


def _stated_type(x: Symbol, dims: Sequence[Dim], axes: Sequence[int]) -> TensorType:
    shape = _shape([dims[axis] if axis in axes else own for axis, own in enumerate(x.shape)])
    return tensor_type(x.dtype, shape, x.ambiguous)


def _nearest_size(x: Symbol, axis: int, dim: Dim) -> Symbol | None:
    """Round the size of an axis to one that a dim of one name can have, such as `n * 2 + 1`: int64[1]."""
    graph = x.graph
    rest = dict(terms(dim)) if dim.is_symbolic else {}
    offset = rest.pop((), 0)
    if len(rest) != 1:
        return None
    (((*atoms,), factor),) = rest.items()
    if len(atoms) != 1 or atoms[0].name is None:
        return None
    size = shape_vector(graph, [Axis(x, axis)])
    size = _int("Div", _int("Sub", size, graph.build.vector([offset])), graph.build.vector([factor]))
    size = _int("Max", size, graph.build.vector([0]))
    return _int("Add", _int("Mul", size, graph.build.vector([factor])), graph.build.vector([offset]))


def _check_sizes(
    x: Symbol, dims: Sequence[Dim], settled: Sequence[int], sizes: dict[int, Size], message: str
) -> Symbol:
    """Return `x` with the dims of the settled axes, after a check of some sizes."""
    graph = x.graph
    # A single size broadcasts over the shape; several are compared with it at once.
    axes = [*sizes] if len(sizes) == 1 else list(range(x.rank))
    actual = shape_vector(graph, [Axis(x, axis) for axis in axes])
    stated = shape_vector(graph, [sizes.get(axis, Axis(x, axis)) for axis in axes], op="rebind")
    wrong = _int("Sub", graph.build.vector([-(axis + 1) * AXIS for axis in axes]), actual)
    return _after(_size_check(x, actual, stated, wrong, dims, message), x, _stated_type(x, dims, settled))


def _with_rank(x: Symbol, dims: Sequence[Dim], message: str) -> Symbol:
    """Return `x`, of unknown rank, with as many axes as there are dims, after a check."""
    graph = x.graph
    sizes = graph.build.emit("Shape", (x,), tensor_type(DType.int64, _shape([Dim.dynamic()])))
    rank = graph.build.emit("Shape", (sizes,), _ints(1))
    check = _size_check(
        x, rank, graph.build.vector([len(dims)]), _int("Sub", graph.build.vector([-RANK]), rank), dims, message
    )
    return _after(check, x, tensor_type(x.dtype, _shape([Dim.dynamic()] * len(dims)), x.ambiguous))


def _size_check(x: Symbol, actual: Symbol, stated: Symbol, wrong: Symbol, dims: Sequence[Dim], message: str) -> Symbol:
    """Return 0, int64[1], if all sizes are as declared. Otherwise the runtime refuses the first one in `wrong`."""
    graph = x.graph
    rank = max(len(dims), 1)
    same = graph.build.emit("Equal", (actual, stated), tensor_type(DType.bool, actual.shape))
    shape = graph.build.emit("Where", (same, graph.build.vector([0] * rank), wrong), _ints(rank))
    empty = graph.build.constant(np.zeros(0, np.int64), DType.int64)
    # Unknown sizes, as the check would be removed for a known shape.
    unknown = tensor_type(DType.int64, _shape([Dim.dynamic()] * rank))
    check = graph.build.emit("Reshape", (empty, shape), unknown, _EXACT)
    _name_check(check, f"{SIZE_CHECK}{_short(x.name)} to {_shape(dims)}" + (f": {_short(message)}" if message else ""))
    zero = graph.build.emit("Shape", (check,), _ints(1), {"start": 0, "end": 1})
    # Gather, since OpenVINO then knows that the axis of `_after` is 0: it needs the rank of each result.
    return graph.build.emit("Gather", (graph.build.vector([0]), zero), _ints(1))


def _after(check: Symbol, x: Symbol, type_: TensorType) -> Symbol:
    """Return `x` with a type, computed after the check."""
    graph = x.graph
    extended = graph.build.emit(
        "Unsqueeze", (x, check), tensor_type(x.dtype, _shape([Dim(1), *type_.shape]), x.ambiguous)
    )
    return graph.build.emit("Squeeze", (extended, graph.build.vector([0])), type_)


def _name_check(check: Symbol, text: str) -> None:
    names = check.graph.names
    name, count = text, 1
    while name in names.taken:
        count += 1
        name = f"{text} #{count}"
    names.rename(check, name)


def _short(text: str) -> str:
    """Shorten a text to one line that fits in a name."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."


def _int(op_type: str, x: Symbol, y: Symbol) -> Symbol:
    return x.graph.build.emit(op_type, (x, y), x.type)


def _ints(length: int) -> TensorType:
    return tensor_type(DType.int64, _shape([Dim(length)]))
