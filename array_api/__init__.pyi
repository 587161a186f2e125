# Made by docs/make_stubs.py from the functions.
# fmt: off
# ruff: noqa: E501

import builtins
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from graphcore.array_api import fft as fft
from graphcore.array_api import linalg as linalg
from graphcore.array_api._creation import Number
from graphcore.array_api._data_types import FInfo, IInfo
from graphcore.array_api._data_types import __array_namespace_info__ as __array_namespace_info__
from graphcore.array_api._eager import Array as Array
from graphcore.array_api._manipulation import Axes as manipulation_Axes
from graphcore.array_api._searching import Axes
from graphcore.ir.symbol import Symbol
from graphcore.runtime.tracing.tensor import Tensor as EagerTensor
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike

_T = TypeVar("_T", Symbol, Array, EagerTensor)
_A: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | builtins.bool | int | float | complex  # an operand among Arrays
_E: TypeAlias = EagerTensor | _A  # an operand among which is a Tensor
_S: TypeAlias = Symbol | _E  # an operand among which is a Symbol

class _UniqueAll(NamedTuple, Generic[_T]):
    values: _T
    indices: _T
    inverse_indices: _T
    counts: _T
class _UniqueCounts(NamedTuple, Generic[_T]):
    values: _T
    counts: _T
class _UniqueInverse(NamedTuple, Generic[_T]):
    values: _T
    inverse_indices: _T
API_VERSIONS: tuple[str, ...]
bool: DType
complex128: DType
complex64: DType
e: float
float16: DType
float32: DType
float64: DType
inf: float
int16: DType
int32: DType
int64: DType
int8: DType
nan: float
newaxis: None
pi: float
uint16: DType
uint32: DType
uint64: DType
uint8: DType
def abs(x: _T, /) -> _T:
    """The magnitude, real for complex numbers; MIN stays MIN. ONNX Abs."""
def acos(x: _T, /) -> _T:
    """The angle in radians whose cosine is x; NaN outside -1 to 1. ONNX Acos."""
def acosh(x: _T, /) -> _T:
    """The inverse hyperbolic cosine; NaN below 1. ONNX Acosh."""
@overload
def add(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The sum. Integers wrap; bools are *or*ed. ONNX Add."""
@overload
def add(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def add(x1: _S, x2: _S, /) -> Symbol: ...
def all(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return True if all elements are nonzero, also without elements. NaN counts as nonzero."""
def any(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return True if any element is nonzero. NaN counts as nonzero."""
@overload
def arange(start: int | float, /, stop: int | float | None = None, step: int | float = 1, *, dtype: DType | None = None, device: str | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the numbers from `start` to `stop`, exclusive, in steps of `step`."""
@overload
def arange(start: int | float | Dim, /, stop: int | float | Dim | None = None, step: int | float | Dim = 1, *, dtype: DType | None = None, device: str | None = None) -> Symbol: ...
def argmax(x: _T, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> _T:
    """Return the int64 index of the maximum along an axis, or in the flattened array; the first of equal ones."""
def argmin(x: _T, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> _T:
    """Return the int64 index of the minimum along an axis, or in the flattened array; the first of equal ones."""
def argsort(x: _T, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> _T:
    """Return the int64 indices that `sort` an array along an axis."""
@overload
def asarray(obj: Symbol, /, *, dtype: DType | None = None, device: str | None = None, copy: builtins.bool | None = None) -> Symbol:
    """Convert values to an Array."""
@overload
def asarray(obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: builtins.bool | None = None) -> Array: ...
def asin(x: _T, /) -> _T:
    """The angle in radians whose sine is x; NaN outside -1 to 1. ONNX Asin."""
def asinh(x: _T, /) -> _T:
    """The inverse hyperbolic sine. ONNX Asinh."""
def astype(x: _T, dtype: DType, /, *, copy: Any = True, device: str | None = None) -> _T:
    """Cast values to another dtype."""
def atan(x: _T, /) -> _T:
    """The angle in radians whose tangent is x. ONNX Atan."""
@overload
def atan2(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The angle in radians of the point (y, x), from -pi to pi."""
@overload
def atan2(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def atan2(x1: _S, x2: _S, /) -> Symbol: ...
def atanh(x: _T, /) -> _T:
    """The inverse hyperbolic tangent; NaN outside -1 to 1. ONNX Atanh."""
@overload
def bitwise_and(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Bits set in both; *and* of bools. ONNX BitwiseAnd, And."""
@overload
def bitwise_and(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def bitwise_and(x1: _S, x2: _S, /) -> Symbol: ...
def bitwise_invert(x: _T, /) -> _T:
    """Every bit flipped; *not* of bools. ONNX BitwiseNot, Not."""
@overload
def bitwise_left_shift(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """x with its bits shifted left by a count; 0 for counts outside 0 to bits - 1. ONNX BitShift."""
@overload
def bitwise_left_shift(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def bitwise_left_shift(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def bitwise_or(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Bits set in either; *or* of bools. ONNX BitwiseOr, Or."""
@overload
def bitwise_or(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def bitwise_or(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def bitwise_right_shift(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """x with its bits shifted right by a count, arithmetically if signed; sign bits for counts outside. ONNX BitShift."""
@overload
def bitwise_right_shift(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def bitwise_right_shift(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def bitwise_xor(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Bits set in one only; *xor* of bools. ONNX BitwiseXor, Xor."""
@overload
def bitwise_xor(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def bitwise_xor(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def broadcast_arrays(*arrays: _A) -> tuple[Array, ...]:  # type: ignore[overload-overlap]
    """Broadcast arrays of any dtypes to their common shape."""
@overload
def broadcast_arrays(*arrays: _E) -> tuple[EagerTensor, ...]: ...  # type: ignore[overload-overlap]
@overload
def broadcast_arrays(*arrays: _S) -> tuple[Symbol, ...]: ...
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to."""
def broadcast_to(x: _T, /, shape: tuple[int, ...]) -> _T:
    """Broadcast x to a shape."""
def can_cast(from_: Any, to: DType, /) -> Any:
    """Return True if type promotion can convert a dtype, or that of a Symbol or Array, to `to`."""
def ceil(x: _T, /) -> _T:
    """The smallest integer not below x. ONNX Ceil."""
@overload
def clip(x: _A, /, min: _A | None = None, max: _A | None = None) -> Array:  # type: ignore[overload-overlap]
    """Limit the elements of x to the range from `min` to `max`."""
@overload
def clip(x: _E, /, min: _E | None = None, max: _E | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def clip(x: _S, /, min: _S | None = None, max: _S | None = None) -> Symbol: ...
@overload
def concat(arrays: Sequence[_A], /, *, axis: int | None = 0) -> Array:  # type: ignore[overload-overlap]
    """Concatenate arrays along an axis, or flattened arrays for None."""
@overload
def concat(arrays: Sequence[_E], /, *, axis: int | None = 0) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def concat(arrays: Sequence[_S], /, *, axis: int | None = 0) -> Symbol: ...
def conj(x: _T, /) -> _T:
    """Return the complex conjugate; real numbers do not change."""
@overload
def copysign(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The magnitude of the first with the sign of the second, also for zeros and NaNs. C's and NumPy's copysign."""
@overload
def copysign(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def copysign(x1: _S, x2: _S, /) -> Symbol: ...
def cos(x: _T, /) -> _T:
    """The cosine of x in radians. ONNX Cos."""
def cosh(x: _T, /) -> _T:
    """The hyperbolic cosine. ONNX Cosh."""
def count_nonzero(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return the number of nonzero elements, in int64."""
def cumulative_prod(x: _T, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: builtins.bool = False) -> _T:
    """Return the cumulative product along an axis."""
def cumulative_sum(x: _T, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: builtins.bool = False) -> _T:
    """Return the cumulative sum along an axis."""
@overload
def diff(x: _A, /, *, axis: int = -1, n: int = 1, prepend: _A | None = None, append: _A | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the n-th differences of neighbours along an axis."""
@overload
def diff(x: _E, /, *, axis: int = -1, n: int = 1, prepend: _E | None = None, append: _E | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def diff(x: _S, /, *, axis: int = -1, n: int = 1, prepend: _S | None = None, append: _S | None = None) -> Symbol: ...
@overload
def divide(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The true quotient, float64 for integers and bools. ONNX Div."""
@overload
def divide(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def divide(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def empty(shape: int | Sequence[int], *, dtype: DType | None = None, device: str | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return an Array of unspecified values, which are zeros. See `zeros`."""
@overload
def empty(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Symbol: ...
def empty_like(x: _T, /, *, dtype: DType | None = None, device: str | None = None) -> _T:
    """Return unspecified values, which are zeros, with the shape of x and by default its dtype."""
@overload
def equal(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where both are equal. ONNX Equal."""
@overload
def equal(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def equal(x1: _S, x2: _S, /) -> Symbol: ...
def exp(x: _T, /) -> _T:
    """e to the power of x. ONNX Exp."""
def expand_dims(x: _T, /, axis: int | tuple[int, ...] = 0) -> _T:
    """Insert axes of size 1 at positions of the result."""
def expm1(x: _T, /) -> _T:
    """Return exp(x) - 1, accurate near 0."""
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: str | None = None) -> Array:
    """Return a matrix of zeros with ones on diagonal `k`, 0 for the main one."""
def finfo(type: Any, /) -> FInfo:
    """Return the limits of a float dtype, of the parts of a complex dtype, or of the dtype of a Symbol or Array."""
def flip(x: _T, /, *, axis: manipulation_Axes = None) -> _T:
    """Reverse the elements along axes, by default all."""
def floor(x: _T, /) -> _T:
    """The largest integer not above x. ONNX Floor."""
@overload
def floor_divide(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the quotient rounded down. Integers divided by 0 give 0, MIN // -1 wraps."""
@overload
def floor_divide(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def floor_divide(x1: _S, x2: _S, /) -> Symbol: ...
def from_dlpack(x: Any, /, *, device: str | None = None, copy: builtins.bool | None = None) -> Array:
    """Convert an array of another library to an Array that shares its memory if possible."""
@overload
def full(shape: int | Sequence[int], fill_value: Number, *, dtype: DType | None = None, device: str | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return an Array filled with one value."""
@overload
def full(shape: DimLike | Sequence[DimLike], fill_value: Number, *, dtype: DType | None = None, device: str | None = None) -> Symbol: ...
def full_like(x: _T, /, fill_value: Number, *, dtype: DType | None = None, device: str | None = None) -> _T:
    """Return one value with the shape of x and by default its dtype."""
@overload
def greater(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where the first is greater. ONNX Greater."""
@overload
def greater(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def greater(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def greater_equal(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where the first is not less. ONNX GreaterOrEqual."""
@overload
def greater_equal(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def greater_equal(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def hypot(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """sqrt(x^2 + y^2) without intermediate overflow; infinite where either is, even beside NaN. C's and NumPy's hypot."""
@overload
def hypot(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def hypot(x1: _S, x2: _S, /) -> Symbol: ...
def iinfo(type: Any, /) -> IInfo:
    """Return the limits of an integer dtype, or of that of a Symbol or Array."""
def imag(x: _T, /) -> _T:
    """Return the imaginary part."""
def isdtype(dtype: DType, kind: Any) -> Any:
    """Return True if a dtype is of a kind: a dtype, one of `KINDS` by name, or a tuple of those."""
def isfinite(x: _T, /) -> _T:
    """True where x is neither NaN nor an infinity."""
@overload
def isin(x1: _A, x2: _A, /, *, invert: builtins.bool = False) -> Array:  # type: ignore[overload-overlap]
    """Return True for each element of x1 that is in x2; False with `invert`."""
@overload
def isin(x1: _E, x2: _E, /, *, invert: builtins.bool = False) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def isin(x1: _S, x2: _S, /, *, invert: builtins.bool = False) -> Symbol: ...
def isinf(x: _T, /) -> _T:
    """True where x is an infinity; integers never are. ONNX IsInf."""
def isnan(x: _T, /) -> _T:
    """True where x is NaN; integers never are. ONNX IsNaN."""
@overload
def less(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where the first is less. ONNX Less."""
@overload
def less(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def less(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def less_equal(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where the first is not greater. ONNX LessOrEqual."""
@overload
def less_equal(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def less_equal(x1: _S, x2: _S, /) -> Symbol: ...
def linspace(start: int | float | complex, stop: int | float | complex, /, num: int, *, dtype: DType | None = None, device: str | None = None, endpoint: builtins.bool = True) -> Array:
    """Return `num` evenly spaced numbers from `start` to `stop`, inclusive if `endpoint`."""
def log(x: _T, /) -> _T:
    """The natural logarithm; NaN below 0. ONNX Log."""
def log10(x: _T, /) -> _T:
    """The logarithm to base 10."""
def log1p(x: _T, /) -> _T:
    """log(1 + x), accurate near 0."""
def log2(x: _T, /) -> _T:
    """The logarithm to base 2."""
@overload
def logaddexp(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """log(exp(x) + exp(y)), without intermediate overflow. NumPy's logaddexp."""
@overload
def logaddexp(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def logaddexp(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def logical_and(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where both are true. ONNX And."""
@overload
def logical_and(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def logical_and(x1: _S, x2: _S, /) -> Symbol: ...
def logical_not(x: _T, /) -> _T:
    """True where x is not true. ONNX Not."""
@overload
def logical_or(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where either is true. ONNX Or."""
@overload
def logical_or(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def logical_or(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def logical_xor(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where exactly one is true. ONNX Xor."""
@overload
def logical_xor(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def logical_xor(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def matmul(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the matrix product. x1: [..., m, k] or [k], x2: [..., k, n] or [k], numbers. Raises `ShapeError`."""
@overload
def matmul(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def matmul(x1: _S, x2: _S, /) -> Symbol: ...
def matrix_transpose(x: _T, /) -> _T:
    """Transpose matrices."""
def max(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return the maximum over axes; propagates NaN."""
@overload
def maximum(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The greater of two; NaN if either is NaN. ONNX Max."""
@overload
def maximum(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def maximum(x1: _S, x2: _S, /) -> Symbol: ...
def mean(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return the arithmetic mean of floats over axes. An empty mean is NaN."""
@overload
def meshgrid(*arrays: _A, indexing: str = 'xy') -> tuple[Array, ...]:  # type: ignore[overload-overlap]
    """Return the coordinate arrays of a grid, one for each vector, which varies along its own axis."""
@overload
def meshgrid(*arrays: _E, indexing: str = 'xy') -> tuple[EagerTensor, ...]: ...  # type: ignore[overload-overlap]
@overload
def meshgrid(*arrays: _S, indexing: str = 'xy') -> tuple[Symbol, ...]: ...
def min(x: _T, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> _T:
    """Return the minimum over axes; propagates NaN."""
@overload
def minimum(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The lesser of two; NaN if either is NaN. ONNX Min."""
@overload
def minimum(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def minimum(x1: _S, x2: _S, /) -> Symbol: ...
def moveaxis(x: _T, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> _T:
    """Move axes to other positions; the others stay in order."""
@overload
def multiply(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The product. Integers wrap; bools are *and*ed. ONNX Mul."""
@overload
def multiply(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def multiply(x1: _S, x2: _S, /) -> Symbol: ...
def negative(x: _T, /) -> _T:
    """The negative of x; integers wrap. ONNX Neg."""
@overload
def nextafter(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The next float after the first in the direction of the second; the second if the two are equal."""
@overload
def nextafter(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def nextafter(x1: _S, x2: _S, /) -> Symbol: ...
def nonzero(x: _T, /) -> tuple[_T, ...]:
    """Return the indices of nonzero elements: an int64 vector for each axis, with a length known at run time."""
@overload
def not_equal(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """True where the two differ; NaN differs from itself. ONNX Not of Equal."""
@overload
def not_equal(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def not_equal(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def ones(shape: int | Sequence[int], *, dtype: DType | None = None, device: str | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return an Array of ones."""
@overload
def ones(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Symbol: ...
def ones_like(x: _T, /, *, dtype: DType | None = None, device: str | None = None) -> _T:
    """Return ones with the shape of x and by default its dtype."""
def permute_dims(x: _T, /, axes: tuple[int, ...]) -> _T:
    """Reorder the axes."""
def positive(x: _T, /) -> _T:
    """The tensor itself."""
@overload
def pow(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """x to the power of y. Integers wrap and are exact; with a negative exponent the quotient is truncated. ONNX Pow."""
@overload
def pow(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def pow(x1: _S, x2: _S, /) -> Symbol: ...
def prod(x: _T, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: builtins.bool = False) -> _T:
    """Return the product over axes. An empty product is 1. Arguments are those of `sum`."""
def real(x: _T, /) -> _T:
    """Return the real part; real numbers do not change."""
def reciprocal(x: _T, /) -> _T:
    """1 / x. ONNX Reciprocal."""
@overload
def remainder(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The remainder of floor division, with the divisor's sign; 0 for integers modulo 0. ONNX Mod, NumPy's remainder."""
@overload
def remainder(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def remainder(x1: _S, x2: _S, /) -> Symbol: ...
@overload
def repeat(x: _A, repeats: int | _A, /, *, axis: int | None = None) -> Array:  # type: ignore[overload-overlap]
    """Repeat each element along an axis, or those of the flattened array for None."""
@overload
def repeat(x: _E, repeats: int | _E, /, *, axis: int | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def repeat(x: _S, repeats: int | _S, /, *, axis: int | None = None) -> Symbol: ...
def reshape(x: _T, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> _T:
    """Return the same elements in row-major order with another shape."""
def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that dtypes, Symbols, Arrays and Python scalars promote to."""
def roll(x: _T, /, shift: int | tuple[int, ...], *, axis: manipulation_Axes = None) -> _T:
    """Shift the elements by `shift` along axes; elements at the end move to the front."""
def round(x: _T, /) -> _T:
    """Round to the nearest integer, halves to even."""
@overload
def searchsorted(x1: _A, x2: _A, /, *, side: str = 'left', sorter: _A | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the int64 indices at which to insert elements in a sorted vector."""
@overload
def searchsorted(x1: _E, x2: _E, /, *, side: str = 'left', sorter: _E | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def searchsorted(x1: _S, x2: _S, /, *, side: str = 'left', sorter: _S | None = None) -> Symbol: ...
def sign(x: _T, /) -> _T:
    """-1, 0 or 1 by the sign, z / abs(z) for complex numbers; NaN stays NaN. ONNX Sign."""
def signbit(x: _T, /) -> _T:
    """Return True where the sign bit is set: for negative numbers, -0.0, and NaNs with the sign bit."""
def sin(x: _T, /) -> _T:
    """The sine of x in radians. ONNX Sin."""
def sinh(x: _T, /) -> _T:
    """The hyperbolic sine. ONNX Sinh."""
def sort(x: _T, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> _T:
    """Sort the elements along an axis, always stably."""
def sqrt(x: _T, /) -> _T:
    """The square root; NaN below 0. ONNX Sqrt."""
def square(x: _T, /) -> _T:
    """x * x. Integers wrap."""
def squeeze(x: _T, /, axis: int | tuple[int, ...]) -> _T:
    """Remove axes of size 1."""
@overload
def stack(arrays: Sequence[_A], /, *, axis: int = 0) -> Array:  # type: ignore[overload-overlap]
    """Stack arrays along a new axis."""
@overload
def stack(arrays: Sequence[_E], /, *, axis: int = 0) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def stack(arrays: Sequence[_S], /, *, axis: int = 0) -> Symbol: ...
def std(x: _T, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: builtins.bool = False) -> _T:
    """Return the standard deviation of floats over axes. See `var`."""
@overload
def subtract(x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """The difference. Integers wrap; bools are refused. ONNX Sub."""
@overload
def subtract(x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def subtract(x1: _S, x2: _S, /) -> Symbol: ...
def sum(x: _T, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: builtins.bool = False) -> _T:
    """Return the sum over axes."""
@overload
def take(x: _A, indices: _A, /, *, axis: int | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return the slices of x at indices along an axis."""
@overload
def take(x: _E, indices: _E, /, *, axis: int | None = None) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def take(x: _S, indices: _S, /, *, axis: int | None = None) -> Symbol: ...
@overload
def take_along_axis(x: _A, indices: _A, /, *, axis: int = -1) -> Array:  # type: ignore[overload-overlap]
    """Return the element of x for each of `indices` along an axis."""
@overload
def take_along_axis(x: _E, indices: _E, /, *, axis: int = -1) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def take_along_axis(x: _S, indices: _S, /, *, axis: int = -1) -> Symbol: ...
def tan(x: _T, /) -> _T:
    """The tangent of x in radians. ONNX Tan."""
def tanh(x: _T, /) -> _T:
    """Return the hyperbolic tangent."""
@overload
def tensordot(x1: _A, x2: _A, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:  # type: ignore[overload-overlap]
    """Return the sum of products over axes: the last ones of x1 with the first ones of x2, or the given ones of both."""
@overload
def tensordot(x1: _E, x2: _E, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def tensordot(x1: _S, x2: _S, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Symbol: ...
def tile(x: _T, repetitions: tuple[int, ...], /) -> _T:
    """Repeat x along each axis, with additional leading axes if needed."""
def tril(x: _T, /, *, k: int = 0) -> _T:
    """Return the lower triangle of matrices, with 0 above diagonal k."""
def triu(x: _T, /, *, k: int = 0) -> _T:
    """Return the upper triangle of matrices, with 0 below diagonal k."""
def trunc(x: _T, /) -> _T:
    """x rounded towards zero to an integer."""
def unique_all(x: _T, /) -> _UniqueAll[_T]:
    """Return the sorted unique values, their first indices, the index of each element among them, and their counts."""
def unique_counts(x: _T, /) -> _UniqueCounts[_T]:
    """Return the sorted unique values, and their counts. See `unique_all`."""
def unique_inverse(x: _T, /) -> _UniqueInverse[_T]:
    """Return the sorted unique values, and the index of each element among them. See `unique_all`."""
def unique_values(x: _T, /) -> _T:
    """Return the sorted unique values. See `unique_all`."""
def unstack(x: _T, /, *, axis: int = 0) -> tuple[_T, ...]:
    """Return the slices of x along an axis of known size."""
def var(x: _T, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: builtins.bool = False) -> _T:
    """Return the variance of floats over axes."""
@overload
def vecdot(x1: _A, x2: _A, /, *, axis: int = -1) -> Array:  # type: ignore[overload-overlap]
    """Return the dot products of vectors along an axis, counted from the end; the other axes broadcast."""
@overload
def vecdot(x1: _E, x2: _E, /, *, axis: int = -1) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def vecdot(x1: _S, x2: _S, /, *, axis: int = -1) -> Symbol: ...
@overload
def where(condition: _A, x1: _A, x2: _A, /) -> Array:  # type: ignore[overload-overlap]
    """Return the elements of x1 where `condition` is true, and those of x2 elsewhere."""
@overload
def where(condition: _E, x1: _E, x2: _E, /) -> EagerTensor: ...  # type: ignore[overload-overlap]
@overload
def where(condition: _S, x1: _S, x2: _S, /) -> Symbol: ...
@overload
def zeros(shape: int | Sequence[int], *, dtype: DType | None = None, device: str | None = None) -> Array:  # type: ignore[overload-overlap]
    """Return an Array of zeros."""
@overload
def zeros(shape: DimLike | Sequence[DimLike], *, dtype: DType | None = None, device: str | None = None) -> Symbol: ...
def zeros_like(x: _T, /, *, dtype: DType | None = None, device: str | None = None) -> _T:
    """Return zeros with the shape of x and by default its dtype."""
__array_api_version__: str
def _namespace(api_version: str | None = None) -> Any: ...
