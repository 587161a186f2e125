"""Element types: one immutable object a dtype, so that equality is identity."""

from __future__ import annotations

import enum
import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from graphcore.errors import DTypeError
from graphcore.support.escaping import suggestion
from graphcore.support.markup import code

if TYPE_CHECKING:
    import numpy as np


_NUMPY_DTYPE: TypeAlias = "np.dtype[Any]"


class Kind(enum.StrEnum):
    """The sort of number that a dtype holds."""

    bool = "bool"
    signed = "signed"
    unsigned = "unsigned"
    float = "float"
    complex = "complex"
    string = "string"


class DType:
    """The type of a tensor's elements.

    Named ones are attributes (`DType.int8`, `DType.tf32`); integers of any width come from `DType.int(n)` and
    `DType.uint(n)`; `DType.of` reads NumPy dtypes, ONNX enum values and names. Two equal dtypes are one object.
    """

    __slots__ = ("bits", "is_complex", "is_float", "is_integer", "kind", "name", "numpy", "onnx", "storage")

    name: str
    """Its name: `int8`, `tensor_float32`."""
    kind: Kind
    bits: _int
    """Width of a value in bits; 0 for strings."""
    numpy: _NUMPY_DTYPE
    """The NumPy dtype of arrays that hold it (an ml_dtypes one where NumPy has none, object above 64 bits).

    Found when it is first asked for: promotion asks for none, and NumPy takes longer to import than all of that."""
    onnx: _int
    """The `onnx.TensorProto.DataType` a tensor of it is stored as."""
    storage: DType
    """The dtype it is stored as in ONNX: itself, except for index, address, tensor_float32, odd widths and complex.

    Of integers of more than 64 bits it is that of their digits, uint32: a tensor of them has one more axis, the last
    one, of 32 bits each, the lowest first. Of complex numbers it is that of their parts, float32 or float64: a tensor
    of them has one more axis, the last one, of the real and the imaginary part."""
    is_integer: _bool
    """Signed or unsigned integer; bool is not one."""
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

    def __init__(self) -> None:
        raise TypeError("DType(): use a named one such as DType.int8, DType.int(n), DType.uint(n) or DType.of(x)")

    @staticmethod
    def int(bits: _int) -> DType:
        """The signed integer of `bits` bits (1 to 65,536); the named one where there is one. Raises `DTypeError`."""
        return _integer("int", bits)

    @staticmethod
    def uint(bits: _int) -> DType:
        """The unsigned integer of `bits` bits (1 to 65,536); the named one where there is one. Raises `DTypeError`."""
        return _integer("uint", bits)

    @staticmethod
    def of(x: object) -> DType:
        """Return the dtype that `x` names: a DType, a name, a NumPy or ml_dtypes dtype or scalar type, or an ONNX enum
        value.

        Names are this class's own, and those that publications on promotion write, whose digits are bits: `i8`, `u16`,
        `ui16`, `bf16`, `f32`, `b`, `tensor_float_32`. Of NumPy's codes, whose digits are bytes, only those are taken
        that say so by a byte order, such as "<i8"; its dtype objects are always.

        Raises `DTypeError` where there is none, and for codes that mean one dtype in bytes and another in bits.
        """
        if isinstance(x, DType):
            return x
        if isinstance(x, str):
            if (named := _by_name(x)) is not None:
                return named
            _refuse_code(x)
        if isinstance(x, int) and not isinstance(x, bool) and x in _BY_ONNX:
            return _BY_ONNX[x]
        if x is not None and not isinstance(x, int):
            import numpy as np  # names of dtypes are read without it

            try:
                return _by_numpy(np.dtype(x).newbyteorder("="))  # type: ignore[call-overload]
            except (TypeError, KeyError, ValueError):
                if isinstance(x, (np.dtype, type)) and np.dtype(x).kind in "OUST":
                    return DType.string
        known = ", ".join(_NAMED)
        close = suggestion(x, _NAMED, cutoff=0.5)
        raise DTypeError(
            f"no dtype is called {x!r:.80}", help=f"{close}use one of {known}, or DType.int(n) / DType.uint(n)"
        )

    @property
    def is_signed(self) -> _bool:
        return self.kind is Kind.signed

    @property
    def is_unsigned(self) -> _bool:
        return self.kind is Kind.unsigned

    @property
    def is_number(self) -> _bool:
        """Integer, float or complex."""
        return self.is_integer or self.is_float or self.is_complex

    @property
    def min(self) -> _int | float:
        """The least finite value. Raises `DTypeError` for strings and complex numbers, which have none."""
        return _limits(self)[0]

    @property
    def max(self) -> _int | float:
        """The greatest finite value. Raises `DTypeError` for strings and complex numbers, which have none."""
        return _limits(self)[1]

    def __repr__(self) -> str:
        return f"DType.{self.name}" if self.name in _NAMED else f"DType.{self.name.rstrip('0123456789')}({self.bits})"

    def __str__(self) -> str:
        return self.name

    def _repr_html_(self) -> str:
        return code(str(self))

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return DType.of, (self.name,)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a DType is immutable")

    if not TYPE_CHECKING:  # who sees it lets every attribute be asked for

        def __getattr__(self, name: str) -> Any:
            """Return `numpy`, which is put into its slot when it is first asked for."""
            if name != "numpy":
                raise AttributeError(f"a DType has no attribute {name!r}")
            found = _numpy_of(self)
            object.__setattr__(self, "numpy", found)
            return found

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


_bool = bool
_int = int


def _make(name: str, kind: Kind, bits: int, onnx_type: int, storage: DType | None = None) -> DType:
    made = object.__new__(DType)
    put = object.__setattr__
    put(made, "name", name)
    put(made, "kind", kind)
    put(made, "bits", bits)
    put(made, "onnx", onnx_type)
    put(made, "storage", storage or made)
    put(made, "is_integer", kind in (Kind.signed, Kind.unsigned))
    put(made, "is_float", kind is Kind.float)
    put(made, "is_complex", kind is Kind.complex)
    return made


# name, kind, bits, type of NumPy or ml_dtypes, onnx.TensorProto.DataType: the dtypes that ONNX has a type for. Its
# numbers are written out because the import of onnx takes longer than that of all the rest, and only reading and
# writing models needs it.
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
    # What models may hold and only casts and movement know.
    ("int2", Kind.signed, 2, "ml_dtypes.int2", 26),
    ("uint2", Kind.unsigned, 2, "ml_dtypes.uint2", 25),
    ("float4_e2m1", Kind.float, 4, "ml_dtypes.float4_e2m1fn", 23),
    ("float8_e4m3fnuz", Kind.float, 8, "ml_dtypes.float8_e4m3fnuz", 18),
    ("float8_e5m2fnuz", Kind.float, 8, "ml_dtypes.float8_e5m2fnuz", 20),
    ("float8_e8m0", Kind.float, 8, "ml_dtypes.float8_e8m0fnu", 24),
)

# The dtypes that are more than what ONNX stores: name, kind, bits, storage.
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

_ALIASES = {
    "tf32": "tensor_float32", "tensor_float_32": "tensor_float32", "bf16": "bfloat16", "f16": "float16",
    "f32": "float32", "f64": "float64", "b": "bool", "b1": "bool", "float": "float32", "double": "float64",
    "half": "float16", "bool_": "bool", "c64": "complex64", "c128": "complex128", "complex": "complex64",
    "csingle": "complex64", "cdouble": "complex128",
}  # fmt: skip
"""Other names: the spellings of publications (kernel_float, anvil, MAX, Allo), and those of C and NumPy."""

# Codes with digits that are bits to some and bytes to others. Where the publications agree on bits, as for i8, u8 and
# all wider ones, `_by_name` takes them; here is the rest, with what they mean in bits.
_BITS = {"i1": "bool", "i2": "int2", "i4": "int4", "u1": "uint1", "u2": "uint2", "u4": "uint4"}
_BITS |= {"f2": "", "f4": "float4_e2m1", "f8": "float8_e4m3fn or float8_e5m2"}
_BY_ONNX = {_NAMED[row[0]].onnx: _NAMED[row[0]] for row in _STORED}
_WIDTHS: dict[str, DType] = {}
MOST_BITS = 1 << 16
"""The bits of the widest integers: products of products would soon have useless widths."""


def is_wide(dtype: DType) -> bool:
    """Return whether it is an integer of more bits than any that ONNX has."""
    return dtype.is_integer and dtype.bits > 64


def is_carried(dtype: DType) -> bool:
    """Return whether a tensor of it is stored with one more axis: wide integers in digits, complex numbers in parts."""
    return dtype.is_complex or (dtype.bits > 64 and dtype.is_integer)


def _numpy_of(dtype: DType) -> _NUMPY_DTYPE:
    import numpy as np  # as above

    if dtype.storage is not dtype:
        if dtype.is_complex:
            return np.dtype(dtype.name)
        return np.dtype(np.object_) if is_wide(dtype) else dtype.storage.numpy
    module, _, name = next(row[3] for row in _STORED if row[0] == dtype.name).partition(".")
    made: _NUMPY_DTYPE = np.dtype(getattr(import_module(module), name))
    return made


def _by_numpy(numpy: _NUMPY_DTYPE) -> DType:
    """Return the dtype of a NumPy dtype. Raises `KeyError`."""
    found = _of_package("numpy").get(numpy)
    return _of_package("ml_dtypes")[numpy] if found is None else found


@functools.cache
def _of_package(package: str) -> dict[_NUMPY_DTYPE, DType]:
    """Return the dtypes by the NumPy dtypes that a package has."""
    names = [row[0] for row in _STORED if row[3].startswith(package) and row[0] != "string"]
    names += [row[0] for row in _SEMANTIC if row[1] is Kind.complex and package == "numpy"]
    return {_NAMED[name].numpy: _NAMED[name] for name in names}


def _integer(family: str, bits: int) -> DType:
    if not isinstance(bits, int) or isinstance(bits, bool) or bits < 1:
        raise DTypeError(
            f"DType.{family}({bits!r}): a width is a whole number of bits", help="use a width of 1 or more"
        )
    if bits > MOST_BITS:
        raise DTypeError(
            f"DType.{family}({bits}): integers have {MOST_BITS} bits at most",
            help="use the width that is needed, such as DType.int(128)",
        )
    name = f"{family}{bits}"
    found = _NAMED.get(name) or _WIDTHS.get(name)
    if found is None:
        kind = Kind.signed if family == "int" else Kind.unsigned
        if bits > 64:
            storage = _NAMED["uint32"]
        else:
            storage = _NAMED[f"{family}{next((w for w in (8, 16, 32) if w > bits), 64)}"]
        found = _WIDTHS.setdefault(name, _make(name, kind, bits, storage.onnx, storage))
    return found


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
    """Raise `DTypeError` for one of NumPy's codes of a letter and a count of bytes, or of a letter alone."""
    if not re.fullmatch(r"[A-Za-z?]\d?", code):
        return
    import numpy as np  # as above

    try:
        numpy = _by_numpy(np.dtype(code))
    except (TypeError, KeyError, ValueError):
        return
    bits = _BITS.get(code)
    meanings = f"{numpy} as NumPy's code" + (
        f", whose digits are bytes, and {bits} where they are bits" if bits else ""
    )
    names = " or ".join(f'"{name}"' for name in (numpy.name, *(bits.split(" or ") if bits else ())))
    raise DTypeError(
        f"{code!r} names a dtype by a code: it means {meanings}",
        help=f"write the name, {names}, or give the object np.dtype({code!r})",
    )


def _limits(dtype: DType) -> tuple[int, int] | tuple[float, float]:
    if dtype.kind is Kind.bool:
        return 0, 1
    if dtype.kind is Kind.unsigned:
        return 0, (1 << dtype.bits) - 1
    if dtype.kind is Kind.signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    if dtype.kind is Kind.string:
        raise DTypeError("string has no least or greatest value")
    if dtype.is_complex:
        raise DTypeError(
            f"{dtype} has no least or greatest value: complex numbers have no order",
            help=f"ask the dtype of its parts: DType.{dtype.storage.name}",
        )
    if dtype is DType.tensor_float32:
        greatest = (2.0 - 2.0**-10) * 2.0**127
        return -greatest, greatest
    import ml_dtypes  # NumPy, as above

    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


# Complex dtypes and those of their parts.


def real_of(dtype: DType) -> DType:
    """Return the dtype of the parts of complex numbers; any other dtype as it is."""
    return dtype.storage if dtype.is_complex else dtype


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype whose parts hold a real one's values as well as a float of it would: complex128 for
    float64 and for integers of 32 bits and more, complex64 for the others; a complex dtype as it is."""
    if dtype.is_complex:
        return dtype
    is_double = dtype is DType.float64 or (dtype.is_integer and dtype.bits >= 32)
    return DType.complex128 if is_double else DType.complex64


def real_of_complex(source: DType, target: DType) -> DTypeError:
    """Return the error for a cast that would lose imaginary parts."""
    return DTypeError(
        f"cast: {source} values do not become {target}: their imaginary parts would be lost",
        help="say what is meant: ops.real(z), ops.imag(z), ops.abs(z)",
    )
