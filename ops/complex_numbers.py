"""Complex numbers: of the complex dtypes, and as tensors whose last axis is the real and the imaginary part."""

from __future__ import annotations

import math

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.elementwise import unary
from graphcore.build.operands import operand, promote, promote_one
from graphcore.build.shapes import broadcast, retype, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import Axis
from graphcore.ops.shared.reshape import reshaped
from graphcore.ops.shared.slice import runtime_shape
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, Kind, complex_of
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_REAL = (Kind.bool, Kind.signed, Kind.unsigned, Kind.float)

# Complex dtypes


def _angle_of_real(x: Symbol) -> Symbol:
    zero = e.const(x, 0)
    is_negative = e.either(
        e.less(x, zero), e.less(e.emit("Div", e.const(x, 1), x), zero)
    )  # the quotient distinguishes -0.0 from 0.0
    turned = e.where(is_negative, e.const(x, math.pi), zero)
    return e.where(e.emit("IsNaN", x, dtype=DType.bool), x, turned)


real = unary(
    "real",
    "RealPart",
    "number",
    "The real part of complex numbers; real numbers unchanged. NumPy's real.",
    same_on=_REAL,
    gives_real=True,
    body=lambda x: e.emit("Identity", x),
)
conj = unary(
    "conj",
    "Conjugate",
    "number",
    "The complex conjugate; real numbers unchanged. NumPy's conj.",
    same_on=_REAL,
    body=lambda x: e.emit("Identity", x),
)
angle = unary(
    "angle",
    "Angle",
    "float",
    "The angle of complex numbers in radians, from -pi to pi; 0 or pi for real numbers. NumPy's angle.",
    body=_angle_of_real,
    gives_real=True,
)


@op(onnx="ImaginaryPart", rule="number")
def imag(x: TensorLike) -> Symbol:
    """The imaginary part of complex numbers; zeros for real ones.

    Args:
        x: Any shape, numbers or bools.

    Returns:
        The shape of x, in the dtype of the parts.

    Raises:
        DTypeError: For strings.

    NumPy's imag.
    """
    symbol, dtype = promote_one("imag", "number", x)
    if dtype.is_complex:
        return symbol.graph.build.emit(
            "ImaginaryPart", (symbol,), tensor_type(dtype.storage, symbol.shape), None, LIBRARY
        )
    zero = symbol.graph.build.scalar(False if dtype is DType.bool else 0, dtype)
    return e.emit("Expand", zero, runtime_shape(symbol), shape=symbol.shape)


@op(onnx="ComplexOf", rule="float", name="complex")
def complex_(real: TensorLike, imag: TensorLike = 0.0) -> Symbol:
    """Complex numbers from their real and imaginary parts.

    Args:
        real: Real numbers whose shapes broadcast; they promote to a common float, integers as for any real function.
        imag: As `real`.

    Returns:
        The broadcast shape: complex128 if the common dtype is float64, complex64 otherwise.

    Raises:
        DTypeError: For complex parts.
        PromotionError: For parts without a common dtype.
        ShapeError: For shapes that do not broadcast.
    """
    (real, imag), dtype = promote("complex", "float", {"real": real, "imag": imag})
    roles = {"real": real, "imag": imag}
    if dtype.is_complex:
        raise DTypeError(
            f"complex: the parts must be real, got {dtype}",
            operands=roles,
            help="add them: real + 1j * imag",
        )
    whole = complex_of(dtype)
    parts = tuple(s.graph.build.cast(s, whole.storage) for s in (real, imag))
    return real.graph.build.emit("ComplexOf", parts, tensor_type(whole, broadcast("complex", roles)), None, LIBRARY)


setattr(Symbol, "real", property(real))  # noqa: B010 - declared for type checkers in Symbol
setattr(Symbol, "imag", property(imag))  # noqa: B010
setattr(Symbol, "conj", conj)  # noqa: B010


# Pairs of real numbers


@op(onnx="Unsqueeze, Concat", rule="join")
def as_complex(real: TensorLike, imag: TensorLike) -> Symbol:
    """Complex numbers from their real and imaginary parts.

    Args:
        real: Of one shape [...]; promoted to a common dtype.
        imag: Of one shape [...]; promoted to a common dtype.

    Returns:
        [..., 2].

    Raises:
        ShapeError: For different shapes.

    ONNX Unsqueeze and Concat.
    """
    (real, imag), dtype = promote("as_complex", "join", {"real": real, "imag": imag})
    roles = {"real": real, "imag": imag}
    if real.rank != imag.rank or not all(map(same_dim, real.shape, imag.shape)):
        raise ShapeError(
            f"as_complex: the parts have different shapes: {real.shape} and {imag.shape}",
            operands=roles,
            help="broadcast them with ops.broadcast_to, or rebind dims that always agree",
        )
    dims = [a if not a.is_dynamic else b for a, b in zip(real.shape, imag.shape, strict=True)]
    parts = (e.unsqueeze(real, -1), e.unsqueeze(imag, -1))
    return real.graph.build.emit("Concat", parts, tensor_type(dtype, _shape([*dims, Dim(2)])), {"axis": -1})


@op(onnx="Reshape", rule="keep")
def as_interleaved_complex(interleaved: TensorLike) -> Symbol:
    """Complex numbers from real and imaginary parts that alternate on the last axis.

    Args:
        interleaved: [..., 2 * n], of any dtype.

    Returns:
        [..., n, 2].

    Raises:
        ShapeError: For a scalar and for a last axis of odd length.

    ONNX Reshape.
    """
    x = operand("as_interleaved_complex", interleaved, "interleaved")
    roles = {"interleaved": x}
    if not x.rank:
        raise ShapeError(
            "as_interleaved_complex: interleaved must have an axis, got a scalar",
            operands=roles,
            help="use ops.as_complex(real, imag)",
        )
    last = x.shape[-1]
    if (last % 2).value == 1:
        raise ShapeError(
            f"as_interleaved_complex: the last axis must have an even length, got {last}",
            operands=roles,
            help="it must hold pairs: real, imaginary, real, imaginary, ...",
        )
    leading = [Axis(x, i) for i in range(x.rank - 1)]
    pairs = Dim.dynamic() if last.is_dynamic else last // 2
    out = _shape([*x.shape[:-1], pairs, Dim(2)])
    is_static = last.is_static
    return reshaped("as_interleaved_complex", x, [*leading, pairs if is_static else None, Dim(2)], roles, out=out)


@op(onnx="Gather", rule="keep")
def as_real(complex: TensorLike) -> tuple[Symbol, Symbol]:
    """The real and the imaginary parts of complex numbers.

    Args:
        complex: [..., 2], of any dtype.

    Returns:
        Two tensors of shape [...].

    Raises:
        ShapeError: If the last axis is not of length 2.

    ONNX Gather.
    """
    x = operand("as_real", complex, "complex")
    _check_complex("as_real", {"complex": x})
    return _part(x, 0), _part(x, 1)


@op(onnx="MulComplex", rule="subtract")
def mul_complex(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The products of complex numbers.

    Args:
        lhs: [..., 2], numbers, which broadcast and promote to a common dtype.
        rhs: As `lhs`.

    Returns:
        [..., 2].

    Raises:
        ShapeError: If a last axis is not of length 2 or shapes do not broadcast.
        DTypeError: For bools. (a + bi)(c + di) = (ac - bd) + (ad + bc)i.
    """
    (lhs, rhs), dtype = promote("mul_complex", "subtract", {"lhs": lhs, "rhs": rhs})
    roles = {"lhs": lhs, "rhs": rhs}
    _check_complex("mul_complex", roles)
    dims = broadcast("mul_complex", roles)[:-1]
    return lhs.graph.build.emit("MulComplex", (lhs, rhs), tensor_type(dtype, Shape([*dims, 2])), None, LIBRARY)


@expansion("MulComplex")
def _mul_complex(lhs: Symbol, rhs: Symbol) -> Symbol:
    (a, b), (c, d) = ((_part(s, 0), _part(s, 1)) for s in (lhs, rhs))
    real = e.emit("Sub", e.emit("Mul", a, c), e.emit("Mul", b, d))
    imag = e.emit("Add", e.emit("Mul", a, d), e.emit("Mul", b, c))
    return e.emit("Concat", e.unsqueeze(real, -1), e.unsqueeze(imag, -1), shape=Shape([*real.shape, 2]), axis=-1)


def _part(x: Symbol, position: int) -> Symbol:
    index = x.graph.build.scalar(position, DType.int64)
    return x.graph.build.emit("Gather", (x, index), retype(x, shape=x.shape[:-1]), {"axis": x.rank - 1})


def _check_complex(name: str, roles: dict[str, Symbol]) -> None:
    for role, symbol in roles.items():
        if not symbol.rank or not same_dim(symbol.shape[-1], 2):
            last = f"its last axis is {symbol.shape[-1]}, not 2" if symbol.rank else "it is a scalar"
            raise ShapeError(
                f"{name}: {role} must be pairs of real and imaginary parts [..., 2]: {last}",
                operands=roles,
                help="make them with ops.as_complex(real, imag) or ops.as_interleaved_complex(x)",
            )
