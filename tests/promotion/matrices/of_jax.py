"""The dtypes that Jax 0.10.2 gives. Made by tests/support/peer_dtypes.py."""

RELEASE = "0.10.2"
COLUMNS = "b1 i4 i8 i16 i32 i64 u4 u8 u16 u32 u64 e4m3 e5m2 f16 bf16 f32 f64 c64 c128".split()

ONE = """
# negate sign round
: -    i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# positive max min sort conj
: b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# square
: i32  i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# floor ceil trunc
: b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
# sqrt exp log sin tanh mean logsumexp reciprocal
: f32  f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# is_nan logical_not any all
: b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_not
: b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  -    -    -    -    -    -    -    -
# sum prod
: i64  .    i64  i64  i64  i64  .    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# cumsum
: i64  i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# var stdev
: f32  f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# argmax argsort count_nonzero
: i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64  i64
# real imag
: b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# angle
: f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# abs
: b1   .    i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# rsqrt
: -    -    -    -    -    -    -    -    -    -    -    e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# erf
: f32  f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  -    -
# softmax
: -    f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
"""

TWO = """
# add mul maximum minimum where matmul outer concat
b1   : b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
# sub
b1   : -    i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
# div atan2
b1   : f32  f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : f32  f32  -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : f32  -    -    -    -    -    f32  -    -    -    -    -    -    -    -    -    -    -    -
u8   : f32  -    f32  f32  f32  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : f32  -    f32  f32  f32  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : f32  -    f64  f64  f64  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : f64  -    f64? f64? f64? f64? -    f64  f64  f64  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : i32  i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  -    -
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  -    -
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  -    -
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
# pow
b1   : i32  .    i8   i16  i32  i64  .    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : .    .    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : .    -    -    -    -    -    .    -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
# less equal
b1   : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i4   : b1   b1   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1?  b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1?  b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1?  b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1?  b1   b1   b1   b1   b1   b1   b1   b1
u4   : b1   -    -    -    -    -    b1   -    -    -    -    -    -    -    -    -    -    -    -
u8   : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u64  : b1   -    b1?  b1?  b1?  b1?  -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
e4m3 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   -    -    -    -    -    -    -
e5m2 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    b1   -    -    -    -    -    -
f16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
bf16 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c128 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
# bitwise_and
b1   : b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  -    -    -    -    -    -    -    -
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  -    -    -    -    -    -    -    -    -
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  -    -    -    -    -    -    -    -    -
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  -    -    -    -    -    -    -    -    -
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  -    -    -    -    -    -    -    -    -
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  -    -    -    -    -    -    -    -
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  -    -    -    -    -    -    -    -
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  -    -    -    -    -    -    -    -
u64  : u64  -    -    -    -    -    -    u64  u64  u64  u64  -    -    -    -    -    -    -    -
e4m3 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f16  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
bf16 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
# left_shift
b1   : i32  i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  -    -    -    -    -    -    -    -
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  -    -    -    -    -    -    -    -    -
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  -    -    -    -    -    -    -    -    -
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  -    -    -    -    -    -    -    -    -
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  -    -    -    -    -    -    -    -    -
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  -    -    -    -    -    -    -    -
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  -    -    -    -    -    -    -    -
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  -    -    -    -    -    -    -    -
u64  : u64  -    -    -    -    -    -    u64  u64  u64  u64  -    -    -    -    -    -    -    -
e4m3 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f16  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
bf16 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
# logical_and
b1   : b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i4   : b1   b1   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u4   : b1   -    -    -    -    -    b1   -    -    -    -    -    -    -    -    -    -    -    -
u8   : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
u64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
e4m3 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   b1   -    -    -    -    -    -    -
e5m2 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    b1   -    -    -    -    -    -
f16  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
bf16 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f32  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c64  : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c128 : b1   -    b1   b1   b1   b1   -    b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
# clip
b1   : b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  -    -
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  -    -
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  -    -
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  -    -
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  -    -
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
"""

WITHOUT_AXES = """
# add
b1   : b1   i4   i8   i16  i32  i64  u4   u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : i4   i4   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : i8   -    i8   i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : i16  -    i16  i16  i32  i64  -    i16  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : i32  -    i32  i32  i32  i64  -    i32  i32  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : i64  -    i64  i64  i64  i64  -    i64  i64  i64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : u4   -    -    -    -    -    u4   -    -    -    -    -    -    -    -    -    -    -    -
u8   : u8   -    i16  i16  i32  i64  -    u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : u16  -    i32  i32  i32  i64  -    u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : u32  -    i64  i64  i64  i64  -    u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : u64  -    f64? f64? f64? f64? -    u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
# div
b1   : f32  f32  f32  f32  f32  f64  f32  f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i4   : f32  f32  -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i16  : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i32  : f32  -    f32  f32  f32  f64  -    f32  f32  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
i64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64? e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u4   : f32  -    -    -    -    -    f32  -    -    -    -    -    -    -    -    -    -    -    -
u8   : f32  -    f32  f32  f32  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u16  : f32  -    f32  f32  f32  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u32  : f32  -    f64  f64  f64  f64  -    f32  f32  f32  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
u64  : f64  -    f64? f64? f64? f64? -    f64  f64  f64  f64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
e4m3 : e4m3 -    e4m3 e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 e4m3 e4m3 -    -    -    -    -    -    -
e5m2 : e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 e5m2 -    e5m2 -    -    -    -    -    -
f16  : f16  -    f16  f16  f16  f16  -    f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 -    bf16 bf16 bf16 bf16 -    bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  -    f32  f32  f32  f32  -    f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  -    f64  f64  f64  f64  -    f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  -    c64  c64  c64  c64  -    c64  c64  c64  c64  -    -    c64  c64  c64  c128 c64  c128
c128 : c128 -    c128 c128 c128 c128 -    c128 c128 c128 c128 -    -    c128 c128 c128 c128 c128 c128
"""

NARROW = """
# add
i2   : i2   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    i2
u2   : u2   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    u2
fnu4 : fnu4 -    fnu4 fnu4 fnu4 fnu4 -    fnu4 fnu4 fnu4 fnu4 -    -    -    -    -    -    -    -    fnu4
fnu5 : fnu5 -    fnu5 fnu5 fnu5 fnu5 -    fnu5 fnu5 fnu5 fnu5 -    -    -    -    -    -    -    -    fnu5
e8m0 : e8m0 -    e8m0 e8m0 e8m0 e8m0 -    e8m0 e8m0 e8m0 e8m0 -    -    -    -    -    -    -    -    e8m0
e2m1 : e2m1 -    e2m1 e2m1 e2m1 e2m1 -    e2m1 e2m1 e2m1 e2m1 -    -    -    -    -    -    -    -    e2m1
"""

LITERALS = """
# add mul maximum minimum where
b1   : b1   i64? f64? c128? b1   i64? f64? c128?
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   f64? c128? i8   i8   f64? c128?
i16  : i16  i16  f64? c128? i16  i16  f64? c128?
i32  : i32  i32  f64? c128? i32  i32  f64? c128?
i64  : i64  i64  f64? c128? i64  i64  f64? c128?
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   f64? c128? u8   u8   f64? c128?
u16  : u16  u16  f64? c128? u16  u16  f64? c128?
u32  : u32  u32  f64? c128? u32  u32  f64? c128?
u64  : u64  u64  f64? c128? u64  u64  f64? c128?
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c64  f16  f16  f16  c64
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# sub
b1   : -    i64? f64? c128? -    i64? f64? c128?
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   f64? c128? i8   i8   f64? c128?
i16  : i16  i16  f64? c128? i16  i16  f64? c128?
i32  : i32  i32  f64? c128? i32  i32  f64? c128?
i64  : i64  i64  f64? c128? i64  i64  f64? c128?
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   f64? c128? u8   u8   f64? c128?
u16  : u16  u16  f64? c128? u16  u16  f64? c128?
u32  : u32  u32  f64? c128? u32  u32  f64? c128?
u64  : u64  u64  f64? c128? u64  u64  f64? c128?
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c64  f16  f16  f16  c64
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# div atan2
b1   : f32  f64? f64? c128? f32  f64? f64? c128?
i4   : f32  f32  -    -    f32  f32  -    -
i8   : f32  f32  f64? c128? f32  f32  f64? c128?
i16  : f32  f32  f64? c128? f32  f32  f64? c128?
i32  : f32  f32  f64? c128? f32  f32  f64? c128?
i64  : f64  f64  f64? c128? f64  f64  f64? c128?
u4   : f32  f32  -    -    f32  f32  -    -
u8   : f32  f32  f64? c128? f32  f32  f64? c128?
u16  : f32  f32  f64? c128? f32  f32  f64? c128?
u32  : f32  f32  f64? c128? f32  f32  f64? c128?
u64  : f64  f64  f64? c128? f64  f64  f64? c128?
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c64  f16  f16  f16  c64
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : i32  i64? f64? -    i32  i64? f64? -
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   f64? -    i8   i8   f64? -
i16  : i16  i16  f64? -    i16  i16  f64? -
i32  : i32  i32  f64? -    i32  i32  f64? -
i64  : i64  i64  f64? -    i64  i64  f64? -
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   f64? -    u8   u8   f64? -
u16  : u16  u16  f64? -    u16  u16  f64? -
u32  : u32  u32  f64? -    u32  u32  f64? -
u64  : u64  u64  f64? -    u64  u64  f64? -
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  -    f16  f16  f16  -
bf16 : bf16 bf16 bf16 -    bf16 bf16 bf16 -
f32  : f32  f32  f32  -    f32  f32  f32  -
f64  : f64  f64  f64  -    f64  f64  f64  -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# pow
b1   : i32  i32  f64? c128? i32  i64  f64? c128?
i4   : i4   i4   -    -    .    .    -    -
i8   : i8   i8   f64? c128? i8   i8   f64  c128
i16  : i16  i16  f64? c128? i16  i16  f64  c128
i32  : i32  i32  f64? c128? i32  i32  f64  c128
i64  : i64  i64  f64? c128? i64  i64  f64  c128
u4   : u4   u4   -    -    .    .    -    -
u8   : u8   u8   f64? c128? u8   u8   f64  c128
u16  : u16  u16  f64? c128? u16  u16  f64  c128
u32  : u32  u32  f64? c128? u32  u32  f64  c128
u64  : u64  u64  f64? c128? u64  u64  f64  c128
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c64  f16  f16  f16  c64
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# less equal
b1   : b1   b1?  b1?  b1?  b1   b1?  b1?  b1?
i4   : b1   b1   -    -    b1   b1   -    -
i8   : b1   b1   b1?  b1?  b1   b1   b1?  b1?
i16  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
i32  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
i64  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
u4   : b1   b1   -    -    b1   b1   -    -
u8   : b1   b1   b1?  b1?  b1   b1   b1?  b1?
u16  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
u32  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
u64  : b1   b1   b1?  b1?  b1   b1   b1?  b1?
e4m3 : b1   b1   b1   -    b1   b1   b1   -
e5m2 : b1   b1   b1   -    b1   b1   b1   -
f16  : b1   b1   b1   b1   b1   b1   b1   b1
bf16 : b1   b1   b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_and
b1   : b1   i64? -    -    b1   i64? -    -
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   -    -    i8   i8   -    -
i16  : i16  i16  -    -    i16  i16  -    -
i32  : i32  i32  -    -    i32  i32  -    -
i64  : i64  i64  -    -    i64  i64  -    -
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   -    -    u8   u8   -    -
u16  : u16  u16  -    -    u16  u16  -    -
u32  : u32  u32  -    -    u32  u32  -    -
u64  : u64  u64  -    -    u64  u64  -    -
e4m3 : -    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -
f16  : -    -    -    -    -    -    -    -
bf16 : -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# left_shift
b1   : i32  i64? -    -    i32  i64? -    -
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   -    -    i8   i8   -    -
i16  : i16  i16  -    -    i16  i16  -    -
i32  : i32  i32  -    -    i32  i32  -    -
i64  : i64  i64  -    -    i64  i64  -    -
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   -    -    u8   u8   -    -
u16  : u16  u16  -    -    u16  u16  -    -
u32  : u32  u32  -    -    u32  u32  -    -
u64  : u64  u64  -    -    u64  u64  -    -
e4m3 : -    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -
f16  : -    -    -    -    -    -    -    -
bf16 : -    -    -    -    -    -    -    -
f32  : -    -    -    -    -    -    -    -
f64  : -    -    -    -    -    -    -    -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
# logical_and
b1   : b1   b1   b1   b1   b1   b1   b1   b1
i4   : b1   b1   -    -    b1   b1   -    -
i8   : b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   b1   b1
u4   : b1   b1   -    -    b1   b1   -    -
u8   : b1   b1   b1   b1   b1   b1   b1   b1
u16  : b1   b1   b1   b1   b1   b1   b1   b1
u32  : b1   b1   b1   b1   b1   b1   b1   b1
u64  : b1   b1   b1   b1   b1   b1   b1   b1
e4m3 : b1   b1   b1   -    b1   b1   b1   -
e5m2 : b1   b1   b1   -    b1   b1   b1   -
f16  : b1   b1   b1   b1   b1   b1   b1   b1
bf16 : b1   b1   b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   b1   b1
# clip
b1   : b1   i64? f64? -    b1   i64? f64? -
i4   : i4   i4   -    -    i4   i4   -    -
i8   : i8   i8   f64? -    i8   i8   f64? -
i16  : i16  i16  f64? -    i16  i16  f64? -
i32  : i32  i32  f64? -    i32  i32  f64? -
i64  : i64  i64  f64? -    i64  i64  f64? -
u4   : u4   u4   -    -    u4   u4   -    -
u8   : u8   u8   f64? -    u8   u8   f64? -
u16  : u16  u16  f64? -    u16  u16  f64? -
u32  : u32  u32  f64? -    u32  u32  f64? -
u64  : u64  u64  f64? -    u64  u64  f64? -
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  -    f16  f16  f16  -
bf16 : bf16 bf16 bf16 -    bf16 bf16 bf16 -
f32  : f32  f32  f32  -    f32  f32  f32  -
f64  : f64  f64  f64  -    f64  f64  f64  -
c64  : -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -
"""
