"""The MAX lattice, the default system, and its table as published.

Source: the documentation of the Mojo module `max.graph.type_promotion`. Promotion is the join on the lattice. The
table printed there differs from the join in four cells; `max_published` reproduces it cell for cell. Neither has
complex numbers; `max_complex` is the lattice with complex dtypes added at its top.
"""

from __future__ import annotations

from types import MappingProxyType

from graphcore.promotion.system import SHORT, LatticeSystem, PromotionSystem, TableSystem, dtypes_of, read_table
from graphcore.types.dtypes import DType

D = DType

# Each dtype with the dtypes directly above it.
LATTICE: dict[DType, tuple[DType, ...]] = {
    D.bool: (D.int8, D.uint8),
    D.int8: (D.int16,),
    D.uint8: (D.int16, D.uint16),
    D.int16: (D.int32,),
    D.uint16: (D.int32, D.uint32),
    D.int32: (D.int64,),
    D.uint32: (D.int64, D.uint64),
    D.index: (D.uint64,),
    D.address: (D.uint64,),
    D.int64: (D.float16,),
    D.uint64: (D.float16,),
    D.float16: (D.bfloat16,),
    D.bfloat16: (D.float32,),
    D.float32: (D.tensor_float32,),
    D.tensor_float32: (D.float64,),
}

_COLUMNS = (
    "b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "idx", "adr", "f16", "bf16", "f32", "tf32", "f64"
)  # fmt: skip

# The published table; the order of the columns is that of the rows.
_PUBLISHED = """
b1   : b1   i8   i16  i32  i64  u8   u16  u32  u64  i64  i64  f16  bf16 f32  tf32 f64
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f16  idx  adr  f16  bf16 f32  tf32 f64
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f16  f16  f16  f16  bf16 f32  tf32 f64
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  u64  u64  f16  bf16 f32  tf32 f64
u64  : u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  u64  f16  bf16 f32  tf32 f64
idx  : u64  f16  f16  f16  f16  u64  u64  u64  u64  idx  u64  f16  bf16 f32  tf32 f64
adr  : u64  f16  f16  f16  f16  u64  u64  u64  u64  u64  adr  f16  bf16 f32  tf32 f64
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  bf16 f32  tf32 f64
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  tf32 f64
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  tf32 f64
tf32 : tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 tf32 f64
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""

DTYPES: tuple[DType, ...] = tuple(SHORT[name] for name in _COLUMNS)

max_system = LatticeSystem("max", LATTICE)
max_complex = LatticeSystem(
    "max",
    {
        **LATTICE,
        D.tensor_float32: (D.float64, D.complex64),
        D.float64: (D.complex128,),
        D.complex64: (D.complex128,),
    },
)
max_complex.options = MappingProxyType({"complex": True})
max_published = TableSystem("max_published", dtypes_of(read_table(_PUBLISHED, _COLUMNS)))
max_system.is_closed = max_complex.is_closed = max_published.is_closed = True


def system(complex: bool = False) -> PromotionSystem:
    """Return the lattice. complex: with complex64 and complex128."""
    return max_complex if complex else max_system


def published() -> PromotionSystem:
    """Return the table as published."""
    return max_published
