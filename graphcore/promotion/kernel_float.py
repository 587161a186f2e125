"""The promotion of kernel_float, a library of vectors for GPU kernels (github.com/KernelTuner/kernel_float).

Source: its guide "Type Promotion", and its headers where the guide is silent. Operands are vectors, a scalar is one of
length 1; signed and unsigned integers do not mix; a constant takes the dtype of the other operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from graphcore.errors import DTypeError, ShapeError
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Scalar, check_literal, no_complex
from graphcore.promotion.system import SHORT, PromotionSystem, read_table
from graphcore.types.dtypes import DType

COLUMNS = ("b", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f8", "f16", "bf16", "f32", "f64")

# x: forbidden. f8 stands for e4m3 and e5m2 alike, which do not mix with each other.
_TABLE = """
b    : b    i8   i16  i32  i64  u8   u16  u32  u64  f8   f16  bf16 f32  f64
i8   : i8   i8   i16  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i16  : i16  i16  i16  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i32  : i32  i32  i32  i32  i64  x    x    x    x    f8   f16  bf16 f32  f64
i64  : i64  i64  i64  i64  i64  x    x    x    x    f8   f16  bf16 f32  f64
u8   : u8   x    x    x    x    u8   u16  u32  u64  f8   f16  bf16 f32  f64
u16  : u16  x    x    x    x    u16  u16  u32  u64  f8   f16  bf16 f32  f64
u32  : u32  x    x    x    x    u32  u32  u32  u64  f8   f16  bf16 f32  f64
u64  : u64  x    x    x    x    u64  u64  u64  u64  f8   f16  bf16 f32  f64
f8   : f8   f8   f8   f8   f8   f8   f8   f8   f8   f8   f16  bf16 f32  f64
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""

_CELLS = read_table(_TABLE, COLUMNS)
_FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
_LABELS = {
    DType.bool: "b",
    **{dtype: name for name, dtype in SHORT.items() if name in COLUMNS},
    **dict.fromkeys(_FLOAT8, "f8"),
}
_DTYPES = {label: dtype for dtype, label in _LABELS.items()}

# Functions of kernel_float that take only floats, although they keep their dtype.
_FLOATS_ONLY = frozenset({"abs", "floor", "ceil", "round", "trunc", "sign", "pow", "fmod"})
# Ops of vectors of equal lengths that are not declared as element-wise, and those that join vectors of any lengths.
_EQUAL_LENGTHS = frozenset({"where", "select", "fma", "vecdot"})
_ANY_LENGTHS = frozenset({"concat", "vec"})


# The operators that C++ has for scalars; all others are functions of kernel_float, which make vectors of scalars.
_OPERATORS = frozenset(
    {
        "add", "sub", "mul", "div", "floor_div", "mod", "equal", "not_equal", "less", "less_equal", "greater",
        "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift",
        "logical_and", "logical_or", "logical_xor", "logical_not", "negate", "positive",
    }
)  # fmt: skip


class KernelFloat(PromotionSystem):
    """kernel_float's table, constants, vectors and results."""

    name = "kernel_float"
    dtypes = frozenset(_LABELS)
    reads_operands = True
    index_dtype = DType.int32
    spellings: Mapping[str, DType] = MappingProxyType({
        "f8": DType.float8_e4m3fn, "signed char": DType.int8, "short": DType.int16, "int": DType.int32,
        "long": DType.int64, "unsigned char": DType.uint8, "unsigned short": DType.uint16, "unsigned int": DType.uint32,
        "unsigned long": DType.uint64, "size_t": DType.uint64, "__half": DType.float16,
        "__nv_bfloat16": DType.bfloat16, "__nv_fp8_e4m3": DType.float8_e4m3fn, "__nv_fp8_e5m2": DType.float8_e5m2,
    })  # fmt: skip
    knows_ambiguous = True

    def default_dtype(self, literals: Iterable[Scalar]) -> DType:
        """Return the dtype of Python numbers, read as C++ literals: double, int (long if needed), bool."""
        all_values = list(literals)
        values = [v for v in all_values if not isinstance(v, complex)]
        if len(values) < len(all_values):
            raise no_complex(self.name)
        if any(isinstance(v, float) for v in values):
            return DType.float64
        if all(isinstance(v, bool) for v in values):
            return DType.bool
        for dtype in (DType.int32, DType.int64):
            if all(dtype.min <= v <= dtype.max for v in values):
                return dtype
        return DType.uint64  # may overflow too, which creating the constant reports

    def common(self, lhs: DType, rhs: DType) -> DType:
        if lhs in _FLOAT8 and rhs in _FLOAT8:
            raise NoPromotion(
                f"{lhs} and {rhs} do not mix in kernel_float: it has no rule for two formats of 8 bits",
                help=f"cast one of them: .cast(DType.{rhs.name}), or both: .cast(DType.float16)",
            )
        cell = _CELLS[_LABELS[lhs], _LABELS[rhs]]
        if cell == "x":
            wide = DType.int(min(64, 2 * max(lhs.bits, rhs.bits)))
            raise NoPromotion(
                f"mixing {lhs} and {rhs} is forbidden in kernel_float: one is signed, the other is not",
                help=f"cast one of them: .cast(DType.{rhs.name}) or .cast(DType.{lhs.name}); .cast(DType.{wide.name}) "
                "holds more of both",
            )
        return _DTYPES[cell] if cell != "f8" else lhs if lhs in _FLOAT8 else rhs

    def join(self, key: Key, operands: Sequence[Operand]) -> DType:
        """Return the common dtype, folded from the left; a constant takes the dtype of the other operand."""
        joined: DType | None = None
        is_constant = True
        for operand in operands:
            dtype = self._dtype_of(operand)
            if joined is None or (is_constant and not operand.ambiguous):
                joined = dtype
            elif is_constant or not operand.ambiguous:
                joined = self.meet(joined, dtype)
            is_constant = is_constant and operand.ambiguous
        assert joined is not None
        return joined

    def _dtype_of(self, operand: Operand) -> DType:
        if operand.literal is not None:
            own = self.default_dtype([operand.literal])
            check_literal(operand.literal, own)
            return own
        assert operand.dtype is not None
        if operand.dtype not in self.dtypes:
            raise NoPromotion(
                f"kernel_float has no {operand.dtype}",
                help="cast it to a dtype that it has: " + ", ".join(map(str, _LABELS)),
            )
        return operand.dtype

    def makes_vector(self, op: str) -> bool:
        """Return True if an op is a function of kernel_float, not an operator that C++ has for scalars."""
        return op not in _OPERATORS

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.elementwise or key.op in _EQUAL_LENGTHS or key.op in _ANY_LENGTHS:
            _check_vectors(key, operands)
        if key.rule == "shift":
            for operand in operands:
                self._dtype_of(operand)
        if key.rule in ("shift", "keep", "mean"):
            return super().resolve(key, operands)
        dtype = self.join(key, operands)
        if not dtype.is_float and (key.rule in ("float", "test") or key.op in _FLOATS_ONLY):
            raise NoPromotion(
                f"{key.op} takes only floating types in kernel_float, got {dtype}",
                help="cast it first: .cast(DType.float32)",
                error=DTypeError,
            )
        if key.rule == "subtract" and dtype in _FLOAT8 and len(operands) == 1:
            raise NoPromotion(
                f"{key.op} has no meaning for {dtype} in kernel_float", help="cast it first: .cast(DType.float16)",
                error=DTypeError,
            )  # fmt: skip
        is_constant = all(o.ambiguous for o in operands)
        same = (dtype,) * len(operands)
        if all(o.literal is not None or o.rank == 0 for o in operands):
            # For scalars these are C++'s own operators. Comparisons have one for constants, which gives a constant.
            if key.rule == "logical":
                return Resolution((DType.bool,) * len(operands), DType.bool)
            if key.rule == "compare" and not is_constant:
                return Resolution(same, DType.bool)
        if key.rule == "subtract" and dtype is DType.bool and key.elementwise:
            # In C++ the result is an integer that is converted back to bool: x != y for x - y, and x for -x.
            return Resolution(same, dtype, is_constant)
        if key.rule in ("compare", "test"):
            return Resolution(same, dtype, is_constant, computed=DType.bool)
        if key.rule == "logical" or (key.rule == "bitwise" and dtype.is_float and len(operands) > 1):
            return Resolution((DType.bool,) * len(operands), dtype, is_constant, computed=DType.bool)
        if key.rule in ("divide", "sum", "float"):
            return Resolution(same, dtype, is_constant)
        plain = super().resolve(key, [Operand(dtype)] * len(operands))
        return Resolution(plain.operands, plain.result, is_constant)


def _check_vectors(key: Key, operands: Sequence[Operand]) -> None:
    """Raise `NoPromotion` unless operands are scalars or vectors of lengths N or 1; joined vectors have any lengths."""
    if any(o.rank is not None and o.rank > 1 for o in operands):
        raise NoPromotion(
            "kernel_float works on vectors, and an operand has more than one axis",
            help="flatten it: ops.flatten(x), or build the graph with another promotion system",
            error=ShapeError,
        )
    if key.op in _ANY_LENGTHS:
        return
    lengths = {o.length for o in operands if o.length is not None} - {1}
    if len(lengths) > 1:
        lengths_text = " and ".join(str(n) for n in sorted(lengths))
        raise NoPromotion(
            f"vectors of {lengths_text} elements cannot be combined in kernel_float",
            help="all lengths must be N or 1",
            error=ShapeError,
        )
