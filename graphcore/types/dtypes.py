"""Element types. Each dtype is one immutable object, so equality is identity."""

from __future__ import annotations

import enum
import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from graphcore.errors import DTypeError
from graphcore.support.escaping import suggestion
from graphcore.types.immutable import Immutable

if TYPE_CHECKING:
    import numpy as np


_NUMPY_DTYPE: TypeAlias = "np.dtype[Any]"


class Kind(enum.StrEnum):
    """The kind of values of a dtype."""

    bool = "bool"
    signed = "signed"
    unsigned = "unsigned"
    float = "float"
    complex = "complex"
    string = "string"


class DType(Immutable):
    """The type of a tensor's elements.

    Named dtypes are attributes (`DType.int8`, `DType.tf32`). `DType.int(n)` and `DType.uint(n)` return integers of any
    width. `DType.of` converts NumPy dtypes, ONNX enum values and names. Equal dtypes are one object.
    """

    __slots__ = ("bits", "is_complex", "is_float", "is_integer", "kind", "name", "numpy", "onnx", "storage")

    name: str
    """The name, such as `int8` or `tensor_float32`."""
    kind: Kind
    bits: _int
    """The width of a value in bits; 0 for strings."""
    numpy: _NUMPY_DTYPE
    """The NumPy dtype of its arrays: an ml_dtypes dtype if NumPy has none, object above 64 bits.

    Set on first access, since promotion does not need it and importing NumPy is slow."""
    onnx: _int
    """The `onnx.TensorProto.DataType` that stores it."""
    storage: DType
    """The dtype that stores it in ONNX: itself, except for index, address, tensor_float32, odd widths and complex.

    Integers of more than 64 bits are stored as uint32 digits: the tensor has one more axis, the last one, with the
    lowest digit first. Complex numbers are stored as float32 or float64: the tensor has one more axis, the last one, of
    the real and the imaginary part."""
    is_integer: _bool
    """True for signed and unsigned integers; False for bool."""
    is_float: _bool
    is_complex: _bool

    bool: ClassVar[DType]
    int4: ClassVar[DType]
    uint4: ClassVar[DType]
    int8: ClassVar[DType]
    int16: ClassVar[DType]
    int32: ClassVar[DType]
    int64: ClassVar[DType]
    uint8: ClassVar[DType]
    uint16: ClassVar[DType]
    uint32: ClassVar[DType]
    uint64: ClassVar[DType]
    index: ClassVar[DType]
    address: ClassVar[DType]
    float8_e4m3fn: ClassVar[DType]
    float8_e5m2: ClassVar[DType]
    float16: ClassVar[DType]
    bfloat16: ClassVar[DType]
    tensor_float32: ClassVar[DType]
    tensor_float_32: ClassVar[DType]
    tf32: ClassVar[DType]
    float32: ClassVar[DType]
    float64: ClassVar[DType]
    complex64: ClassVar[DType]
    complex128: ClassVar[DType]
    string: ClassVar[DType]
    int2: ClassVar[DType]
    uint2: ClassVar[DType]
    float4_e2m1: ClassVar[DType]
    float8_e4m3fnuz: ClassVar[DType]
    float8_e5m2fnuz: ClassVar[DType]
    float8_e8m0: ClassVar[DType]
    float6_e2m3fn: ClassVar[DType]
    float6_e3m2fn: ClassVar[DType]

    def __init__(self) -> None:
        raise TypeError("DType(): use a named one such as DType.int8, DType.int(n), DType.uint(n) or DType.of(x)")

    @staticmethod
    def int(bits: _int) -> DType:
        """Return the signed integer of `bits` bits (1 to 65,536).

        Raises:
            DTypeError: For other widths.
        """
        return _integer("int", bits)

    @staticmethod
    def uint(bits: _int) -> DType:
        """Return the unsigned integer of `bits` bits (1 to 65,536).

        Raises:
            DTypeError: For other widths.
        """
        return _integer("uint", bits)

    @staticmethod
    def of(x: object) -> DType:
        """Return the DType of an object.

        Args:
            x: A DType, a name, a dtype of NumPy, ml_dtypes, JAX or PyTorch, a scalar type, or an ONNX enum value. Names
                are those of DType, and the spellings of publications on promotion, whose digits are bits: `i8`, `u16`,
                `ui16`, `bf16`, `f32`, `b`, `tensor_float_32`. Type codes of NumPy, whose digits are bytes, must have a
                byte order, as in "<i8".

        Raises:
            DTypeError: There is no such dtype, or a code is ambiguous between bits and bytes.
        """
        if isinstance(x, DType):
            return x
        if type(x).__module__ == "torch":
            x = str(x).removeprefix("torch.")
        if isinstance(x, str):
            if (named := _by_name(x)) is not None:
                return named
            _refuse_code(x)
        if isinstance(x, int) and not isinstance(x, bool) and x in _BY_ONNX:
            return _BY_ONNX[x]
        if x is not None and not isinstance(x, int):
            import numpy as np  # slow, and not needed for names

            try:
                return _by_numpy(np.dtype(x).newbyteorder("="))  # type: ignore[call-overload]
            except (TypeError, KeyError, ValueError):
                if isinstance(x, (np.dtype, type)) and np.dtype(x).kind in "OUST":
                    return DType.string
        names = ", ".join(_NAMED)
        close = suggestion(x, _NAMED, cutoff=0.5)
        raise DTypeError(
            f"no dtype is called {x!r:.80}", help=f"{close}use one of {names}, or DType.int(n) / DType.uint(n)"
        )

    @property
    def is_signed(self) -> _bool:
        return self.kind is Kind.signed

    @property
    def is_unsigned(self) -> _bool:
        return self.kind is Kind.unsigned

    @property
    def is_number(self) -> _bool:
        """True for integers, floats and complex numbers."""
        return self.is_integer or self.is_float or self.is_complex

    @property
    def min(self) -> _int | float:
        """The smallest finite value.

        Raises:
            DTypeError: For strings and complex numbers, which have none.
        """
        return _limits(self)[0]

    @property
    def max(self) -> _int | float:
        """The largest finite value.

        Raises:
            DTypeError: For strings and complex numbers, which have none.
        """
        return _limits(self)[1]

    def __repr__(self) -> str:
        return f"DType.{self.name}" if self.name in _NAMED else f"DType.{self.name.rstrip('0123456789')}({self.bits})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return DType.of, (self.name,)

    if not TYPE_CHECKING:  # type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            """Set the slot `numpy` on first access and return it."""
            if name != "numpy":
                raise AttributeError(f"a DType has no attribute {name!r}")
            numpy = _numpy_of(self)
            object.__setattr__(self, "numpy", numpy)
            return numpy


_bool = bool
_int = int


def _make(name: str, kind: Kind, bits: int, onnx_type: int, storage: DType | None = None) -> DType:
    dtype = object.__new__(DType)
    put = object.__setattr__
    put(dtype, "name", name)
    put(dtype, "kind", kind)
    put(dtype, "bits", bits)
    put(dtype, "onnx", onnx_type)
    put(dtype, "storage", storage or dtype)
    put(dtype, "is_integer", kind in (Kind.signed, Kind.unsigned))
    put(dtype, "is_float", kind is Kind.float)
    put(dtype, "is_complex", kind is Kind.complex)
    return dtype


# The dtypes that ONNX has: name, kind, bits, type of NumPy or ml_dtypes, onnx.TensorProto.DataType. The enum values are
# literals because importing onnx is slow, and only reading and writing models needs it.
_STORED: tuple[tuple[str, Kind, int, str, int], ...] = (
    ("bool", Kind.bool, 1, "numpy.bool_", 9),
    ("int4", Kind.signed, 4, "ml_dtypes.int4", 22),
    ("uint4", Kind.unsigned, 4, "ml_dtypes.uint4", 21),
    ("int8", Kind.signed, 8, "numpy.int8", 3),
    ("int16", Kind.signed, 16, "numpy.int16", 5),
    ("int32", Kind.signed, 32, "numpy.int32", 6),
    ("int64", Kind.signed, 64, "numpy.int64", 7),
    ("uint8", Kind.unsigned, 8, "numpy.uint8", 2),
    ("uint16", Kind.unsigned, 16, "numpy.uint16", 4),
    ("uint32", Kind.unsigned, 32, "numpy.uint32", 12),
    ("uint64", Kind.unsigned, 64, "numpy.uint64", 13),
    ("float8_e4m3fn", Kind.float, 8, "ml_dtypes.float8_e4m3fn", 17),
    ("float8_e5m2", Kind.float, 8, "ml_dtypes.float8_e5m2", 19),
    ("float16", Kind.float, 16, "numpy.float16", 10),
    ("bfloat16", Kind.float, 16, "ml_dtypes.bfloat16", 16),
    ("float32", Kind.float, 32, "numpy.float32", 1),
    ("float64", Kind.float, 64, "numpy.float64", 11),
    ("string", Kind.string, 0, "numpy.object_", 8),
    # Dtypes that only casts and data movement support.
    ("int2", Kind.signed, 2, "ml_dtypes.int2", 26),
    ("uint2", Kind.unsigned, 2, "ml_dtypes.uint2", 25),
    ("float4_e2m1", Kind.float, 4, "ml_dtypes.float4_e2m1fn", 23),
    ("float8_e4m3fnuz", Kind.float, 8, "ml_dtypes.float8_e4m3fnuz", 18),
    ("float8_e5m2fnuz", Kind.float, 8, "ml_dtypes.float8_e5m2fnuz", 20),
    ("float8_e8m0", Kind.float, 8, "ml_dtypes.float8_e8m0fnu", 24),
    ("float6_e2m3fn", Kind.float, 6, "ml_dtypes.float6_e2m3fn", 27),
    ("float6_e3m2fn", Kind.float, 6, "ml_dtypes.float6_e3m2fn", 28),
)

# The dtypes that ONNX stores as others: name, kind, bits, storage.
_SEMANTIC: tuple[tuple[str, Kind, int, str], ...] = (
    ("index", Kind.unsigned, 64, "uint64"),
    ("address", Kind.unsigned, 64, "uint64"),
    ("tensor_float32", Kind.float, 19, "float32"),
    ("complex64", Kind.complex, 64, "float32"),
    ("complex128", Kind.complex, 128, "float64"),
)

_NAMED: dict[str, DType] = {}
for _name, _kind, _bits, _, _onnx in _STORED:
    _NAMED[_name] = _make(_name, _kind, _bits, _onnx)
for _name, _kind, _bits, _storage in _SEMANTIC:
    _NAMED[_name] = _make(_name, _kind, _bits, _NAMED[_storage].onnx, _NAMED[_storage])
for _name, _dtype in _NAMED.items():
    setattr(DType, _name, _dtype)
DType.tf32 = DType.tensor_float_32 = DType.tensor_float32

TRANSPORT: dict[DType, DType] = dict.fromkeys(
    (DType.float4_e2m1, DType.float6_e2m3fn, DType.float6_e3m2fn), DType.float8_e4m3fn
)
"""The dtypes that runtimes have no kernels for, with the dtype that holds their values there."""

_ALIASES = {
    "tf32": "tensor_float32", "tensor_float_32": "tensor_float32", "bf16": "bfloat16", "f16": "float16",
    "f32": "float32", "f64": "float64", "b": "bool", "b1": "bool", "float": "float32", "double": "float64",
    "half": "float16", "bool_": "bool", "c64": "complex64", "c128": "complex128", "complex": "complex64",
    "csingle": "complex64", "cdouble": "complex128",
}  # fmt: skip
"""Alternative names: the spellings of publications (kernel_float, anvil, MAX, Allo), C and NumPy."""

# Codes whose digits may be bits or bytes, with their meaning in bits. Where the publications agree on bits, as for i8,
# u8 and all wider ones, `_by_name` accepts them.
_BITS = {"i1": "bool", "i2": "int2", "i4": "int4", "u1": "uint1", "u2": "uint2", "u4": "uint4"}
_BITS |= {"f2": "", "f4": "float4_e2m1", "f8": "float8_e4m3fn or float8_e5m2"}
_BY_ONNX = {_NAMED[row[0]].onnx: _NAMED[row[0]] for row in _STORED}
_WIDTHS: dict[str, DType] = {}
MAX_BITS = 1 << 16
"""The width of the widest integers. Without a limit, repeated products would have useless widths."""


def is_wide(dtype: DType) -> bool:
    """Return True for integers of more than 64 bits, which ONNX does not have."""
    return dtype.is_integer and dtype.bits > 64


def has_storage_axis(dtype: DType) -> bool:
    """Return True if tensors are stored with one more axis: digits of wide integers, or parts of complex numbers."""
    return dtype.is_complex or (dtype.bits > 64 and dtype.is_integer)


def _numpy_of(dtype: DType) -> _NUMPY_DTYPE:
    import numpy as np  # slow

    if dtype.storage is not dtype:
        if dtype.is_complex:
            return np.dtype(dtype.name)
        return np.dtype(np.object_) if is_wide(dtype) else dtype.storage.numpy
    module, _, name = next(row[3] for row in _STORED if row[0] == dtype.name).partition(".")
    result: _NUMPY_DTYPE = np.dtype(getattr(import_module(module), name))
    return result


def _by_numpy(numpy: _NUMPY_DTYPE) -> DType:
    """Return the dtype of a NumPy dtype. Raises `KeyError`."""
    dtype = _of_package("numpy").get(numpy)
    return _of_package("ml_dtypes")[numpy] if dtype is None else dtype


@functools.cache
def _of_package(package: str) -> dict[_NUMPY_DTYPE, DType]:
    """Return the dtypes of a package by their NumPy dtypes."""
    names = [row[0] for row in _STORED if row[3].startswith(package) and row[0] != "string"]
    names += [row[0] for row in _SEMANTIC if row[1] is Kind.complex and package == "numpy"]
    return {_NAMED[name].numpy: _NAMED[name] for name in names}


def _integer(family: str, bits: int) -> DType:
    if not isinstance(bits, int) or isinstance(bits, bool) or bits < 1:
        raise DTypeError(f"DType.{family}({bits!r}): the width must be a positive int", help="use a width of 1 or more")
    if bits > MAX_BITS:
        raise DTypeError(
            f"DType.{family}({bits}): integers have {MAX_BITS} bits at most",
            help="use a smaller width, such as DType.int(128)",
        )
    name = f"{family}{bits}"
    dtype = _NAMED.get(name) or _WIDTHS.get(name)
    if dtype is None:
        kind = Kind.signed if family == "int" else Kind.unsigned
        if bits > 64:
            storage = _NAMED["uint32"]
        else:
            storage = _NAMED[f"{family}{next((w for w in (8, 16, 32) if w > bits), 64)}"]
        dtype = _WIDTHS.setdefault(name, _make(name, kind, bits, storage.onnx, storage))
    return dtype


def _by_name(name: str) -> DType | None:
    name = _ALIASES.get(name, name)
    if name in _NAMED:
        return _NAMED[name]
    if width := re.fullmatch(r"(u?int)([1-9]\d{0,17})", name):
        return _integer(width[1], int(width[2]))
    if name not in _BITS and (width := re.fullmatch(r"(i|ui?)([1-9]\d{0,17})", name)):
        return _integer("int" if width[1] == "i" else "uint", int(width[2]))
    return None


def _refuse_code(code: str) -> None:
    """Raise `DTypeError` for a NumPy type code: a letter, or a letter and a number of bytes."""
    if not re.fullmatch(r"[A-Za-z?]\d?", code):
        return
    import numpy as np  # slow

    try:
        numpy = _by_numpy(np.dtype(code))
    except (TypeError, KeyError, ValueError):
        return
    bits = _BITS.get(code)
    meanings = f"{numpy} as a NumPy code" + (f", whose digits are bytes, and {bits} if they are bits" if bits else "")
    names = " or ".join(f'"{name}"' for name in (numpy.name, *(bits.split(" or ") if bits else ())))
    raise DTypeError(
        f"the dtype code {code!r} is not accepted: it means {meanings}",
        help=f"use the name, {names}, or the object np.dtype({code!r})",
    )


def _limits(dtype: DType) -> tuple[int, int] | tuple[float, float]:
    if dtype.kind is Kind.bool:
        return 0, 1
    if dtype.kind is Kind.unsigned:
        return 0, (1 << dtype.bits) - 1
    if dtype.kind is Kind.signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    if dtype.kind is Kind.string:
        raise DTypeError("string has no minimum or maximum value", help="use a dtype of numbers or bools")
    if dtype.is_complex:
        raise DTypeError(
            f"{dtype} has no minimum or maximum value: complex numbers have no order",
            help=f"use the dtype of its parts: DType.{dtype.storage.name}",
        )
    if dtype is DType.tensor_float32:
        greatest = (2.0 - 2.0**-10) * 2.0**127
        return -greatest, greatest
    import ml_dtypes  # imports NumPy, which is slow

    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


# Complex dtypes and the dtypes of their parts.


def real_of(dtype: DType) -> DType:
    """Return the dtype of the parts of a complex dtype; other dtypes unchanged."""
    return dtype.storage if dtype.is_complex else dtype


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype for a real one: complex128 for float64 and integers of 32 bits and more, else complex64.

    A complex dtype is returned unchanged.
    """
    if dtype.is_complex:
        return dtype
    is_double = dtype is DType.float64 or (dtype.is_integer and dtype.bits >= 32)
    return DType.complex128 if is_double else DType.complex64


def real_of_complex(source: DType, target: DType) -> DTypeError:
    """Return the error for a cast that would lose imaginary parts."""
    return DTypeError(
        f"cast: {source} values cannot be cast to {target}: their imaginary parts would be lost",
        help="select a real value: ops.real(z), ops.imag(z), ops.abs(z)",
    )
