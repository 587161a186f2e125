"""Products of matrices, vectors and other tensors: matmul, linear layers, einsum."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import graph_of, promote
from graphcore.build.shapes import axes_of, axis_of, check_axis_from_end, check_shape, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.operators.shapes.reductions import product_shape
from graphcore.ops.shared import einsum as _einsum
from graphcore.ops.shared.dims import Axis
from graphcore.ops.shared.einsum import Equation
from graphcore.ops.shared.reshape import TargetSize, reshaped
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def _tensors(name: str, values: Mapping[str, TensorLike]) -> dict[str, Symbol]:
    """Return the operands as Symbols, before promotion, for errors about shapes."""
    graph = graph_of(name, values.values())
    return {role: graph.build.operand(value, name, role) for role, value in values.items()}


# Products


@op(onnx="MatMul", rule="arithmetic", dunder="matmul")
def matmul(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The matrix product.

    Args:
        lhs: [..., m, k] or [k].
        rhs: [..., k, n] or [k]. Both are numbers or bools, promoted to a common dtype; batch axes broadcast.

    Returns:
        [..., m, n], without the axis of a vector. Integers wrap, bools are *or*ed after *and*, floats narrower than 32
        bits are summed in float32.

    Raises:
        ShapeError: For scalars, inner dims that differ and axes that do not broadcast.

    ONNX MatMul, NumPy's matmul.
    """
    roles = _tensors("matmul", {"lhs": lhs, "rhs": rhs})
    shape = _product_shape(roles)
    (left, right), dtype = promote("matmul", "arithmetic", roles)
    return left.graph.build.emit("MatMul", (left, right), tensor_type(dtype, shape))


def _product_shape(roles: dict[str, Symbol]) -> Shape:
    lhs, rhs = roles.values()
    for role, symbol in roles.items():
        if not symbol.rank:
            raise ShapeError(
                f"matmul: {role} must be a vector or a matrix, got a scalar",
                operands=roles,
                help="multiply with lhs * rhs",
            )
    left, right = lhs.shape[-1], rhs.shape[-2 if rhs.rank > 1 else 0]
    if not same_dim(left, right):
        raise ShapeError(
            f"matmul: inner dimensions differ: {left} and {right}", operands=roles, help=_inner_help(lhs, rhs)
        )
    try:
        batch = broadcast_shapes([lhs.shape[:-2], rhs.shape[:-2]])
    except ValueError as clash:
        raise ShapeError(
            f"matmul: the batch axes do not broadcast: {clash}",
            operands=roles,
            help="make the dims equal or 1; if they always agree, give them one name, or declare it with ops.rebind",
        ) from None
    return product_shape(batch, lhs.shape, rhs.shape)


def _inner_help(lhs: Symbol, rhs: Symbol) -> str:
    left, right = lhs.shape[-1], rhs.shape[-2 if rhs.rank > 1 else 0]
    if rhs.rank > 1 and same_dim(left, rhs.shape[-1]):
        return f"transpose rhs, or reshape lhs so that its last dimension is {right}"
    if lhs.rank > 1 and same_dim(lhs.shape[-2], right):
        return f"transpose lhs, or reshape it so that its last dimension is {right}"
    if left.is_symbolic or right.is_symbolic:
        return f"if {left} and {right} always agree, give them one name, or declare it with ops.rebind"
    where = "last dimension of lhs and the last but one of rhs" if rhs.rank > 1 else "last dimension of lhs and rhs"
    return f"the {where} must be equal"


@op(onnx="Gemm", rule="arithmetic")
def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Symbol:
    """A linear layer: the product of x with the transposed weight, plus the bias.

    Args:
        x: [..., in].
        weight: [out, in].
        bias: [out], or None. All are numbers or bools, promoted to a common dtype.

    Returns:
        [..., out]; floats narrower than 32 bits are rounded once at the end.

    Raises:
        ShapeError: For other ranks and for dims that differ.

    ONNX Gemm on rows of x; for integers MatMul and Add.
    """
    operands = {"x": x, "weight": weight} if bias is None else {"x": x, "weight": weight, "bias": bias}
    roles = _tensors("linear", operands)
    _check_linear(roles)
    (x, weight, *rest), dtype = promote("linear", "arithmetic", roles)
    outputs = weight.shape[0]
    shape = Shape([*x.shape[:-1], outputs])
    if not dtype.is_float:
        return _linear_of_integers(x, weight, rest, tensor_type(dtype, shape))
    graph = x.graph
    rows = x
    if x.rank != 2:
        count = x.shape[:-1].size
        first: TargetSize = None if x.rank > 1 and x.shape[-1] != 0 else count
        inner = x.shape[-1] if not x.shape[-1].is_dynamic else Axis(x, x.rank - 1)
        rows = reshaped("linear", x, [first, inner], roles, out=_shape([count, x.shape[-1]]))
    type_ = tensor_type(dtype, Shape([rows.shape[0], outputs]))
    product = graph.build.emit("Gemm", (rows, weight, *rest), type_, {"transB": 1})
    if x.rank == 2:
        return product
    leading: list[TargetSize] = [d if d.is_static else Axis(x, i) for i, d in enumerate(x.shape[:-1])]
    last = Axis(weight, 0) if outputs.is_dynamic else outputs
    return reshaped("linear", product, [*leading, last], roles, out=shape, sources=(x, weight))


def _linear_of_integers(x: Symbol, weight: Symbol, bias: Sequence[Symbol], type_: Any) -> Symbol:
    transposed = e.transpose(weight, [1, 0])
    result = x.graph.build.emit("MatMul", (x, transposed), type_)
    for symbol in bias:
        result = x.graph.build.emit("Or" if type_.dtype is DType.bool else "Add", (result, symbol), type_)
    return result


def _check_linear(roles: dict[str, Symbol]) -> None:
    x, weight, bias = roles["x"], roles["weight"], roles.get("bias")
    if weight.rank != 2:
        raise ShapeError(
            f"linear: weight must have rank 2, got {weight.rank}", operands=roles, help="give [outputs, inputs]"
        )
    if not x.rank:
        raise ShapeError(
            "linear: x must be [..., inputs], got a scalar", operands=roles, help="add an axis: ops.unsqueeze(x, 0)"
        )
    inputs, outputs = weight.shape[1], weight.shape[0]
    if not same_dim(x.shape[-1], inputs):
        is_transposed = same_dim(x.shape[-1], outputs)
        raise ShapeError(
            f"linear: inner dimensions differ: {x.shape[-1]} in x and {inputs} in weight",
            operands=roles,
            help="weight must be [outputs, inputs]: transpose it, or use ops.matmul"
            if is_transposed
            else "the last dimensions of x and weight must be equal",
        )
    if bias is not None:
        check_shape("linear", "bias", roles, [outputs], "give one number for each output, or add another tensor later")


@op(onnx="Mul", rule="arithmetic")
def outer(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The products of every element of one vector with every element of another.

    Args:
        lhs: [m].
        rhs: [n]. Both are numbers or bools, promoted to a common dtype.

    Returns:
        [m, n].

    Raises:
        ShapeError: For other ranks.

    ONNX Mul of a column and a row.
    """
    roles = _tensors("outer", {"lhs": lhs, "rhs": rhs})
    for role, symbol in roles.items():
        if symbol.rank != 1:
            raise ShapeError(
                f"outer: {role} must have rank 1, got {symbol.rank}",
                operands=roles,
                help=f"flatten it: ops.reshape({role}, [-1])",
            )
    (left, right), dtype = promote("outer", "arithmetic", roles)
    column, row = e.unsqueeze(left, 1), e.unsqueeze(right, 0)
    return e.emit("And" if dtype is DType.bool else "Mul", column, row, shape=Shape([*left.shape, *right.shape]))


@op(onnx="MatMul", rule="arithmetic")
def vecdot(lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Symbol:
    """The dot products of vectors along an axis.

    Args:
        lhs: Numbers or bools, promoted to a common dtype; they broadcast except along `axis`, whose length is the same
            in both.
        rhs: As `lhs`.
        axis: Negative, counted from the end.

    Returns:
        The broadcast shape without the axis; complex lhs are conjugated.

    Raises:
        ShapeError: For another axis, lengths that differ and shapes that do not broadcast.

    ONNX MatMul, the array API's vecdot.
    """
    roles = _tensors("vecdot", {"lhs": lhs, "rhs": rhs})
    left, right = roles.values()
    check_axis_from_end("vecdot", axis, roles, "scalars have no axes: multiply with lhs * rhs")
    if not same_dim(left.shape[axis], right.shape[axis]):
        raise ShapeError(
            f"vecdot: the vectors differ in length: {left.shape[axis]} and {right.shape[axis]}",
            operands=roles,
            help=f"axis {axis} must have the same length in both",
        )
    promoted, dtype = promote("vecdot", "arithmetic", roles)
    if promoted[0].dtype.is_complex:
        promoted[0] = promoted[0].conj()
    left, right = (e.move_axis(s, axis_of("vecdot", axis, s.rank, roles), s.rank - 1) for s in promoted)
    row, column = e.unsqueeze(left, -2), e.unsqueeze(right, -1)
    shape = _product_shape({"lhs": row, "rhs": column})
    product = row.graph.build.emit("MatMul", (row, column), tensor_type(dtype, shape))
    return e.squeeze(product, -2, -1)


@op(onnx="Einsum", rule="arithmetic")
def tensordot(lhs: TensorLike, rhs: TensorLike, axes: int | Sequence[Sequence[int]] = 2) -> Symbol:
    """The sum of products over chosen axes of two tensors.

    Args:
        lhs: Numbers or bools, promoted to a common dtype.
        rhs: Numbers or bools, promoted to a common dtype.
        axes: The number of last axes of lhs and first axes of rhs, or two sequences of paired axes, of lhs and of rhs.

    Returns:
        The other axes of lhs, then those of rhs.

    Raises:
        ShapeError: For an invalid axis and for dims that differ.

    ONNX Einsum, the array API's tensordot.
    """
    roles = _tensors("tensordot", {"lhs": lhs, "rhs": rhs})
    left, right = roles.values()
    lhs_axes, rhs_axes = _axis_pairs(axes, left, right, roles)
    if left.rank + right.rank > len(string.ascii_letters):
        raise ShapeError("tensordot: the ranks are too large", operands=roles, help="reshape to fewer axes")
    letters = iter(string.ascii_letters)
    first = [next(letters) for _ in range(left.rank)]
    second = [next(letters) for _ in range(right.rank)]
    for axis, other in zip(lhs_axes, rhs_axes, strict=True):
        if not same_dim(left.shape[axis], right.shape[other]):
            raise ShapeError(
                f"tensordot: axis {axis} of lhs is {left.shape[axis]}, axis {other} of rhs is {right.shape[other]}",
                operands=roles,
                help="paired axes must have the same length",
            )
        second[other] = first[axis]
    output = [c for i, c in enumerate(first) if i not in lhs_axes] + [
        c for i, c in enumerate(second) if i not in rhs_axes
    ]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(output)}", left, right)


def _axis_pairs(
    axes: Any, lhs: Symbol, rhs: Symbol, roles: dict[str, Symbol]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int) and not isinstance(axes, bool):
        if not 0 <= axes <= min(lhs.rank, rhs.rank):
            raise ShapeError(
                f"tensordot: there are no {axes} axes in both tensors",
                operands=roles,
                help=f"axes must be one of 0 to {min(lhs.rank, rhs.rank)}",
            )
        return tuple(range(lhs.rank - axes, lhs.rank)), tuple(range(axes))
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ShapeError(
            f"tensordot: axes={axes!r} is not a pair of axes", operands=roles, help="give an int or ([...], [...])"
        )
    lhs_axes = axes_of("tensordot", axes[0], lhs.rank, roles, name="axes[0]")
    rhs_axes = axes_of("tensordot", axes[1], rhs.rank, roles, name="axes[1]")
    if len(lhs_axes) != len(rhs_axes):
        raise ShapeError(
            f"tensordot: got {len(lhs_axes)} axes of lhs and {len(rhs_axes)} of rhs",
            operands=roles,
            help="give pairs of axes",
        )
    return lhs_axes, rhs_axes


@op(onnx="Einsum", rule="arithmetic")
def einsum(equation: str, *operands: TensorLike) -> Symbol:
    """The sum of products that an equation of axis letters describes: "bij,bjk->bik".

    Args:
        equation: A term of letters for each operand, then `->` and the letters of the result; without it, the letters
            that occur once, in alphabetical order. A letter missing on the right is summed over, one that occurs twice
            in a term takes the diagonal, `...` means any axes, which broadcast.
        operands: Numbers or bools, promoted to a common dtype; integers wrap, bools are *or*ed after *and*.

    Raises:
        ShapeError: For an equation that does not fit the operands.

    ONNX Einsum, NumPy's einsum.
    """
    if not isinstance(equation, str):
        raise DTypeError(
            f"einsum: equation must be a str, got {equation!r}", help='give it first: ops.einsum("ij,jk->ik", a, b)'
        )
    if not operands:
        raise ShapeError(f"einsum: {equation!r}: no operands", help='give one or more: ops.einsum("ij,jk->ik", a, b)')
    roles = _tensors("einsum", {f"operand {i}": value for i, value in enumerate(operands)})
    parsed = _einsum.parse(equation, len(roles), roles)
    sizes = _einsum.measure(equation, parsed, roles)
    symbols, dtype = promote("einsum", "arithmetic", roles)
    shape = sizes.shape(parsed.output)
    parsed, symbols = _einsum.plain(equation, parsed, symbols, sizes)
    graph = symbols[0].graph
    if dtype.is_float or dtype.is_complex:
        return graph.build.emit("Einsum", tuple(symbols), tensor_type(dtype, shape), {"equation": str(parsed)})
    if dtype is not DType.bool:
        return _einsum_of_integers(parsed, symbols, shape)
    counted = [graph.build.cast(s, DType.int32) for s in symbols]
    return graph.build.cast(_einsum_of_integers(parsed, counted, shape), DType.bool)


def _einsum_of_integers(equation: Equation, symbols: Sequence[Symbol], shape: Shape) -> Symbol:
    """Sum letters of a single operand by ReduceSum, which lowering makes exact; Einsum would saturate."""
    inputs, operands = [], []
    for symbol, labels in zip(symbols, equation.inputs, strict=True):
        lone = [label for label in dict.fromkeys(labels) if equation.is_lone(label)]
        if lone:
            symbol, labels = _einsum.summed(symbol, labels, lone)
        inputs.append(labels)
        operands.append(symbol)
    first = operands[0]
    if len(operands) == 1 and inputs[0] == equation.output:
        return first if first is not symbols[0] else e.emit("Identity", first)
    attributes = {"equation": str(Equation(tuple(inputs), equation.output))}
    return first.graph.build.emit("Einsum", tuple(operands), tensor_type(first.dtype, shape), attributes)
