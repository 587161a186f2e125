"""The dtypes that NumPy 2.4.6 gives. Made by tests/support/peer_dtypes.py."""

RELEASE = "2.4.6"
COLUMNS = "b1 i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64 c64 c128".split()

ONE = """
# negate positive sign
: -    i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
# abs real imag
: b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  f32  f64
# square conj
: i8   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
# floor ceil trunc
: b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  -    -
# round
: f16  i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
# sqrt exp log sin tanh
: f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
# is_nan logical_not any all
: b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_not
: b1   i8   i16  i32  i64  u8   u16  u32  u64  -    -    -    -    -
# sum prod cumsum
: i64  i64  i64  i64  i64  u64  u64  u64  u64  f16  f32  f64  c64  c128
# mean
: f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
# var stdev
: f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  f32  f64
# max min sort
: b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
# argmax count_nonzero argsort
: i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64
# angle
: f64  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  f32  f64
"""

TWO = """
# add mul maximum minimum where clip matmul outer concat
b1   : b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  c128 c128
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  c128 c128
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  c64  c128
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  c128 c128
u64  : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# sub
b1   : -    i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  c128 c128
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  c128 c128
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  c64  c128
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  c128 c128
u64  : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# div
b1   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
i8   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
i16  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f32  f32  f64  c64  c128
i32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
i64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
u8   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
u16  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f32  f32  f64  c64  c128
u32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
u64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : i8   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  -    -
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  -    -
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  -    -
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  -    -
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  -    -
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  -    -
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  -    -
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  -    -
u64  : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  -    -
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  -    -
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  -    -
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -
# pow
b1   : i8   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  c128 c128
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  c128 c128
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  c64  c128
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  c128 c128
u64  : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# less equal logical_and
b1   : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i8   : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u8   : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
f16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_and
b1   : b1   i8   i16  i32  i64  u8   u16  u32  u64  -    -    -    -    -
i8   : i8   i8   i16  i32  i64  i16  i32  i64  -    -    -    -    -    -
i16  : i16  i16  i16  i32  i64  i16  i32  i64  -    -    -    -    -    -
i32  : i32  i32  i32  i32  i64  i32  i32  i64  -    -    -    -    -    -
i64  : i64  i64  i64  i64  i64  i64  i64  i64  -    -    -    -    -    -
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  -    -    -    -    -
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  -    -    -    -    -
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  -    -    -    -    -
u64  : u64  -    -    -    -    u64  u64  u64  u64  -    -    -    -    -
f16  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -
# left_shift
b1   : i8   i8   i16  i32  i64  u8   u16  u32  u64  -    -    -    -    -
i8   : i8   i8   i16  i32  i64  i16  i32  i64  -    -    -    -    -    -
i16  : i16  i16  i16  i32  i64  i16  i32  i64  -    -    -    -    -    -
i32  : i32  i32  i32  i32  i64  i32  i32  i64  -    -    -    -    -    -
i64  : i64  i64  i64  i64  i64  i64  i64  i64  -    -    -    -    -    -
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  -    -    -    -    -
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  -    -    -    -    -
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  -    -    -    -    -
u64  : u64  -    -    -    -    u64  u64  u64  u64  -    -    -    -    -
f16  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -
# atan2
b1   : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  -    -
i8   : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  -    -
i16  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  -    -
i32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
i64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
u8   : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  -    -
u16  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  -    -
u32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
u64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  -    -
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  -    -
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -
"""

WITHOUT_AXES = """
# add
b1   : b1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  i32  i64  f64  f16  f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  i32  i64  f64  f32  f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  i32  i64  f64  f64  f64  f64  c128 c128
i64  : i64  i64  i64  i64  i64  i64  i64  i64  f64  f64  f64  f64  c128 c128
u8   : u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  f32  f64  c64  c128
u16  : u16  i32  i32  i32  i64  u16  u16  u32  u64  f32  f32  f64  c64  c128
u32  : u32  i64  i64  i64  i64  u32  u32  u32  u64  f64  f64  f64  c128 c128
u64  : u64  f64  f64  f64  f64  u64  u64  u64  u64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# div
b1   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
i8   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
i16  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f32  f32  f64  c64  c128
i32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
i64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
u8   : f64  f64  f64  f64  f64  f64  f64  f64  f64  f16  f32  f64  c64  c128
u16  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f32  f32  f64  c64  c128
u32  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
u64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
f16  : f16  f16  f32  f64  f64  f16  f32  f64  f64  f16  f32  f64  c64  c128
f32  : f32  f32  f32  f64  f64  f32  f32  f64  f64  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c128 c128 c64  c64  c128 c128 c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

NARROW = """
"""

LITERALS = """
# add mul maximum minimum where
b1   : b1   i64  f64  c128 b1   i64  f64  c128
i8   : i8   i8   f64  c128 i8   i8   f64  c128
i16  : i16  i16  f64  c128 i16  i16  f64  c128
i32  : i32  i32  f64  c128 i32  i32  f64  c128
i64  : i64  i64  f64  c128 i64  i64  f64  c128
u8   : u8   u8   f64  c128 u8   u8   f64  c128
u16  : u16  u16  f64  c128 u16  u16  f64  c128
u32  : u32  u32  f64  c128 u32  u32  f64  c128
u64  : u64  u64  f64  c128 u64  u64  f64  c128
f16  : f16  f16  f16  c64  f16  f16  f16  c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# sub
b1   : -    i64  f64  c128 -    i64  f64  c128
i8   : i8   i8   f64  c128 i8   i8   f64  c128
i16  : i16  i16  f64  c128 i16  i16  f64  c128
i32  : i32  i32  f64  c128 i32  i32  f64  c128
i64  : i64  i64  f64  c128 i64  i64  f64  c128
u8   : u8   u8   f64  c128 u8   u8   f64  c128
u16  : u16  u16  f64  c128 u16  u16  f64  c128
u32  : u32  u32  f64  c128 u32  u32  f64  c128
u64  : u64  u64  f64  c128 u64  u64  f64  c128
f16  : f16  f16  f16  c64  f16  f16  f16  c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# div
b1   : f64  f64  f64  c128 f64  f64  f64  c128
i8   : f64  f64  f64  c128 f64  f64  f64  c128
i16  : f64  f64  f64  c128 f64  f64  f64  c128
i32  : f64  f64  f64  c128 f64  f64  f64  c128
i64  : f64  f64  f64  c128 f64  f64  f64  c128
u8   : f64  f64  f64  c128 f64  f64  f64  c128
u16  : f64  f64  f64  c128 f64  f64  f64  c128
u32  : f64  f64  f64  c128 f64  f64  f64  c128
u64  : f64  f64  f64  c128 f64  f64  f64  c128
f16  : f16  f16  f16  c64  f16  f16  f16  c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : i8   i64  f64  -    i8   i64  f64  -
i8   : i8   i8   f64  -    i8   i8   f64  -
i16  : i16  i16  f64  -    i16  i16  f64  -
i32  : i32  i32  f64  -    i32  i32  f64  -
i64  : i64  i64  f64  -    i64  i64  f64  -
u8   : u8   u8   f64  -    u8   u8   f64  -
u16  : u16  u16  f64  -    u16  u16  f64  -
u32  : u32  u32  f64  -    u32  u32  f64  -
u64  : u64  u64  f64  -    u64  u64  f64  -
f16  : f16  f16  f16  -    f16  f16  f16  -
f32  : f32  f32  f32  -    f32  f32  f32  -
f64  : f64  f64  f64  -    f64  f64  f64  -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# pow
b1   : i8   i64  f64  c128 i8   i64  f64  c128
i8   : i8   i8   f64  c128 i8   i8   f64  c128
i16  : i16  i16  f64  c128 i16  i16  f64  c128
i32  : i32  i32  f64  c128 i32  i32  f64  c128
i64  : i64  i64  f64  c128 i64  i64  f64  c128
u8   : u8   u8   f64  c128 u8   u8   f64  c128
u16  : u16  u16  f64  c128 u16  u16  f64  c128
u32  : u32  u32  f64  c128 u32  u32  f64  c128
u64  : u64  u64  f64  c128 u64  u64  f64  c128
f16  : f16  f16  f16  c64  f16  f16  f16  c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# less equal logical_and
b1   : b1   b1   b1   b1   b1   b1   b1   b1
i8   : b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   b1   b1
u8   : b1   b1   b1   b1   b1   b1   b1   b1
u16  : b1   b1   b1   b1   b1   b1   b1   b1
u32  : b1   b1   b1   b1   b1   b1   b1   b1
u64  : b1   b1   b1   b1   b1   b1   b1   b1
f16  : b1   b1   b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_and
b1   : b1   i64  -    -    b1   i64  -    -
i8   : i8   i8   -    -    i8   i8   -    -
i16  : i16  i16  -    -    i16  i16  -    -
i32  : i32  i32  -    -    i32  i32  -    -
i64  : i64  i64  -    -    i64  i64  -    -
u8   : u8   u8   -    -    u8   u8   -    -
u16  : u16  u16  -    -    u16  u16  -    -
u32  : u32  u32  -    -    u32  u32  -    -
u64  : u64  u64  -    -    u64  u64  -    -
f16  : -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# left_shift
b1   : i8   i64  -    -    i8   i64  -    -
i8   : i8   i8   -    -    i8   i8   -    -
i16  : i16  i16  -    -    i16  i16  -    -
i32  : i32  i32  -    -    i32  i32  -    -
i64  : i64  i64  -    -    i64  i64  -    -
u8   : u8   u8   -    -    u8   u8   -    -
u16  : u16  u16  -    -    u16  u16  -    -
u32  : u32  u32  -    -    u32  u32  -    -
u64  : u64  u64  -    -    u64  u64  -    -
f16  : -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# atan2
b1   : f16  f64  f64  -    f16  f64  f64  -
i8   : f16  f16  f64  -    f16  f16  f64  -
i16  : f32  f32  f64  -    f32  f32  f64  -
i32  : f64  f64  f64  -    f64  f64  f64  -
i64  : f64  f64  f64  -    f64  f64  f64  -
u8   : f16  f16  f64  -    f16  f16  f64  -
u16  : f32  f32  f64  -    f32  f32  f64  -
u32  : f64  f64  f64  -    f64  f64  f64  -
u64  : f64  f64  f64  -    f64  f64  f64  -
f16  : f16  f16  f16  -    f16  f16  f16  -
f32  : f32  f32  f32  -    f32  f32  f32  -
f64  : f64  f64  f64  -    f64  f64  f64  -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
"""
