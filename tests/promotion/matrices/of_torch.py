"""The dtypes that Torch 2.13.0 gives. Made by tests/support/peer_dtypes.py."""

RELEASE = "2.13.0"
COLUMNS = "b1 i8 i16 i32 i64 u8 u16 u32 u64 e4m3 e5m2 f16 bf16 f32 f64 c64 c128".split()

ONE = """
# negate
: -    i8   i16  i32  i64  u8   .    .    .    .    .    f16  bf16 f32  f64  c64  c128
# positive
: -    i8   i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# abs
: .    i8   i16  i32  i64  u8   .    .    .    e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# sign
: b1   i8   i16  i32  i64  u8   .    .    .    .    .    f16  bf16 f32  f64  -    -
# square
: i64  i8   i16  i32  i64  u8   .    .    .    .    .    f16  bf16 f32  f64  c64  c128
# floor ceil trunc
: .    i8   i16  i32  i64  u8   u16  u32  u64  .    .    f16  bf16 f32  f64  -    -
# round
: .    i8   i16  i32  i64  u8   u16  u32  u64  .    .    f16  bf16 f32  f64  .    .
# sqrt rsqrt reciprocal exp log sin tanh logsumexp
: f32  f32  f32  f32  f32  f32  f32  f32  f32  .    .    f16  bf16 f32  f64  c64  c128
# erf
: f32  f32  f32  f32  f32  f32  f32  f32  f32  .    .    f16  bf16 f32  f64  .    .
# is_nan
: b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
# bitwise_not
: b1   i8   i16  i32  i64  u8   .    .    .    .    .    .    .    .    .    .    .
# logical_not
: b1   b1   b1   b1   b1   b1   .    .    .    .    .    b1   b1   b1   b1   b1   b1
# sum prod cumsum
: i64  i64  i64  i64  i64  i64  i64  i64  i64  .    .    f16  bf16 f32  f64  c64  c128
# mean
: -    -    -    -    -    -    -    -    -    .    .    f16  bf16 f32  f64  c64  c128
# var stdev
: -    -    -    -    -    -    -    -    -    -    -    f16  bf16 f32  f64  f32  f64
# max min
: b1   i8   i16  i32  i64  u8   .    .    .    .    .    f16  bf16 f32  f64  .    .
# argmax
: -    i64  i64  i64  i64  i64  .    .    .    .    .    i64  i64  i64  i64  -    -
# any all
: b1   b1   b1   b1   b1   u8   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1   b1
# count_nonzero
: i64  i64  i64  i64  i64  i64  .    .    .    .    .    i64  i64  i64  i64  i64  i64
# sort
: b1   i8   i16  i32  i64  u8   u16  u32  u64  .    .    f16  bf16 f32  f64  -    -
# argsort
: i64  i64  i64  i64  i64  i64  i64  i64  i64  .    .    i64  i64  i64  i64  -    -
# softmax
: .    .    .    .    .    .    .    .    .    .    .    f16  bf16 f32  f64  .    .
# real
: b1   i8   i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  f32  f64
# imag
: .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    f32  f64
# conj
: b1   i8   i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64  c64  c128
# angle
: f32  f32  f32  f32  f32  f32  f32  f32  f32  .    .    f16  bf16 f32  f64  f32  f64
"""

TWO = """
# add
b1   : b1   i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  -    -    -    -    -    c64  c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 -    -    -    -    -    c128 c128 c128 c128 c128 c128
# sub
b1   : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : -    i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i16  : -    i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i32  : -    i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i64  : -    i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u8   : -    i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : -    f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : -    bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : -    f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : -    f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : -    c64  c64  c64  c64  c64  -    -    -    -    -    c64  c64  c64  c128 c64  c128
c128 : -    c128 c128 c128 c128 c128 -    -    -    -    -    c128 c128 c128 c128 c128 c128
# mul where outer concat
b1   : b1   i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u16  : -    -    -    -    -    -    u16  -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    u32  -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    u64  -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    e4m3 -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    e5m2 -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  -    -    -    -    -    c64  c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 -    -    -    -    -    c128 c128 c128 c128 c128 c128
# div
b1   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i16  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i32  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i64  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u8   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u16  : -    -    -    -    -    -    f32  -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    f32  -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    f32  -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  -    -    -    -    -    c64  c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 -    -    -    -    -    c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : .    i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  .    .
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  .    .
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  .    .
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  .    .
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  .    .
c64  : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
c128 : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
# pow
b1   : .    i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  c64  c128
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  c64  c128
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  c64  c128
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  -    -    -    -    -    c64  c64  c64  c128 c64  c128
c128 : c128 c128 c128 c128 c128 c128 -    -    -    -    -    c128 c128 c128 c128 c128 c128
# maximum minimum
b1   : b1   i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  .    .
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  .    .
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  .    .
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  .    .
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    .    .
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    .    .
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  .    .
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  .    .
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  .    .
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  .    .
c64  : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
c128 : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    .
# less
b1   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
i8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
i16  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
i32  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
i64  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
u8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   .    .
u16  : -    -    -    -    -    -    .    -    -    -    -    b1   b1   b1   b1   -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    b1   b1   b1   b1   -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    b1   b1   b1   b1   -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   .    .
bf16 : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   .    .
f32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   .    .
f64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   .    .
c64  : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
c128 : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
# equal
b1   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
u8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
u16  : -    -    -    -    -    -    b1   -    -    -    -    b1   b1   b1   b1   -    -
u32  : -    -    -    -    -    -    -    b1   -    -    -    b1   b1   b1   b1   -    -
u64  : -    -    -    -    -    -    -    -    b1   -    -    b1   b1   b1   b1   -    -
e4m3 : -    -    -    -    -    -    -    -    -    b1   -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    b1   -    -    -    -    -    -
f16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
bf16 : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
# bitwise_and
b1   : b1   i8   i16  i32  i64  u8   -    -    -    -    -    .    .    .    .    .    .
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    .    .    .    .    .    .
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    .    .    .    .    .    .
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    .    .    .    .    .    .
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    .    .    .    .    .    .
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    .    .    .    .    .    .
u16  : -    -    -    -    -    -    u16  -    -    -    -    .    .    .    .    -    -
u32  : -    -    -    -    -    -    -    u32  -    -    -    .    .    .    .    -    -
u64  : -    -    -    -    -    -    -    -    u64  -    -    .    .    .    .    -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
bf16 : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
f32  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
f64  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
c64  : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
c128 : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
# left_shift
b1   : .    i8   i16  i32  i64  u8   -    -    -    -    -    .    .    .    .    .    .
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    .    .    .    .    .    .
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    .    .    .    .    .    .
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    .    .    .    .    .    .
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    .    .    .    .    .    .
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    .    .    .    .    .    .
u16  : -    -    -    -    -    -    .    -    -    -    -    .    .    .    .    -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    .    .    .    .    -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    .    .    .    .    -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
bf16 : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
f32  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
f64  : .    .    .    .    .    .    .    .    .    -    -    .    .    .    .    .    .
c64  : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
c128 : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
# logical_and
b1   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
u8   : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
u16  : -    -    -    -    -    -    .    -    -    -    -    b1   b1   b1   b1   -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    b1   b1   b1   b1   -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    b1   b1   b1   b1   -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
bf16 : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f32  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
f64  : b1   b1   b1   b1   b1   b1   b1   b1   b1   -    -    b1   b1   b1   b1   b1   b1
c64  : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
c128 : b1   b1   b1   b1   b1   b1   -    -    -    -    -    b1   b1   b1   b1   b1   b1
# atan2
b1   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i8   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i16  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i32  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i64  : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
u8   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  .    .
u16  : -    -    -    -    -    -    f32  -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    f32  -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    f32  -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  .    .
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  .    .
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  .    .
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  .    .
c64  : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
c128 : .    .    .    .    .    .    -    -    -    -    -    .    .    .    .    .    .
# clip
b1   : .    i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
i8   : i8   i8   i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i16  : i16  i16  i16  i32  i64  i16  -    -    -    -    -    f16  bf16 f32  f64  .    .
i32  : i32  i32  i32  i32  i64  i32  -    -    -    -    -    f16  bf16 f32  f64  .    .
i64  : i64  i64  i64  i64  i64  i64  -    -    -    -    -    f16  bf16 f32  f64  .    .
u8   : u8   i16  i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  .    .
u16  : -    -    -    -    -    -    .    -    -    -    -    f16  bf16 f32  f64  -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    f16  bf16 f32  f64  -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    f16  bf16 f32  f64  -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  -    -    f16  f32  f32  f64  .    .
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 -    -    f32  bf16 f32  f64  .    .
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f32  f32  f32  f64  .    .
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  -    -    f64  f64  f64  f64  .    .
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
# matmul
b1   : .    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i8   : -    i8   -    -    -    -    -    -    -    -    -    -    -    -    -    -    -
i16  : -    -    i16  -    -    -    -    -    -    -    -    -    -    -    -    -    -
i32  : -    -    -    i32  -    -    -    -    -    -    -    -    -    -    -    -    -
i64  : -    -    -    -    i64  -    -    -    -    -    -    -    -    -    -    -    -
u8   : -    -    -    -    -    u8   -    -    -    -    -    -    -    -    -    -    -
u16  : -    -    -    -    -    -    .    -    -    -    -    -    -    -    -    -    -
u32  : -    -    -    -    -    -    -    .    -    -    -    -    -    -    -    -    -
u64  : -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -    -
e4m3 : -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -    -
e5m2 : -    -    -    -    -    -    -    -    -    -    .    -    -    -    -    -    -
f16  : -    -    -    -    -    -    -    -    -    -    -    f16  -    -    -    -    -
bf16 : -    -    -    -    -    -    -    -    -    -    -    -    bf16 -    -    -    -
f32  : -    -    -    -    -    -    -    -    -    -    -    -    -    f32  -    -    -
f64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    f64  -    -
c64  : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    c64  -
c128 : -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    -    c128
"""

WITHOUT_AXES = """
# add
b1   : b1   i8   i16  i32  i64  u8   -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : i8   i8   i8   i8   i8   i8   i8   i8   i8   -    -    f16  bf16 f32  f64  c64  c128
i16  : i16  i16  i16  i16  i16  i16  i16  i16  i16  -    -    f16  bf16 f32  f64  c64  c128
i32  : i32  i32  i32  i32  i32  i32  i32  i32  i32  -    -    f16  bf16 f32  f64  c64  c128
i64  : i64  i64  i64  i64  i64  i64  i64  i64  i64  -    -    f16  bf16 f32  f64  c64  c128
u8   : u8   u8   u8   u8   u8   u8   u8   u8   u8   -    -    f16  bf16 f32  f64  c64  c128
u16  : .    .    .    .    .    .    .    .    .    -    -    f16  bf16 f32  f64  c64  c128
u32  : .    .    .    .    .    .    .    .    .    -    -    f16  bf16 f32  f64  c64  c128
u64  : .    .    .    .    .    .    .    .    .    -    -    f16  bf16 f32  f64  c64  c128
e4m3 : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    -    -
e5m2 : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  c32  c32
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 c64  c64
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  c64  c64
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
# div
b1   : f32  f32  f32  f32  f32  f32  -    -    -    -    -    f16  bf16 f32  f64  c64  c128
i8   : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
i16  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
i32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
i64  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
u8   : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
u16  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
u32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
u64  : f32  f32  f32  f32  f32  f32  f32  f32  f32  -    -    f16  bf16 f32  f64  c64  c128
e4m3 : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    -    -
e5m2 : .    .    .    .    .    .    .    .    .    .    .    .    .    .    .    -    -
f16  : f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  .    .
bf16 : bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 c64  c64
f32  : f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  c64  c64
f64  : f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  c128 c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

NARROW = """
"""

LITERALS = """
# add
b1   : b1   i64  f32  c64  b1   i64  f32  c64
i8   : i8   i8   f32  c64  i8   i8   f32  c64
i16  : i16  i16  f32  c64  i16  i16  f32  c64
i32  : i32  i32  f32  c64  i32  i32  f32  c64
i64  : i64  i64  f32  c64  i64  i64  f32  c64
u8   : u8   u8   f32  c64  u8   u8   f32  c64
u16  : .    .    f32  c64  .    .    f32  c64
u32  : .    .    f32  c64  .    .    f32  c64
u64  : .    .    f32  c64  .    .    f32  c64
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : f16  f16  f16  c32  f16  f16  f16  c32
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# sub
b1   : -    -    -    -    -    -    -    -
i8   : -    i8   f32  c64  -    i8   f32  c64
i16  : -    i16  f32  c64  -    i16  f32  c64
i32  : -    i32  f32  c64  -    i32  f32  c64
i64  : -    i64  f32  c64  -    i64  f32  c64
u8   : -    u8   f32  c64  -    u8   f32  c64
u16  : -    .    f32  c64  -    .    f32  c64
u32  : -    .    f32  c64  -    .    f32  c64
u64  : -    .    f32  c64  -    .    f32  c64
e4m3 : -    .    .    -    -    .    .    -
e5m2 : -    .    .    -    -    .    .    -
f16  : -    f16  f16  c32  -    f16  f16  c32
bf16 : -    bf16 bf16 c64  -    bf16 bf16 c64
f32  : -    f32  f32  c64  -    f32  f32  c64
f64  : -    f64  f64  c128 -    f64  f64  c128
c64  : -    c64  c64  c64  -    c64  c64  c64
c128 : -    c128 c128 c128 -    c128 c128 c128
# mul
b1   : b1   i64  f32  c64  b1   i64  f32  c64
i8   : i8   i8   f32  c64  i8   i8   f32  c64
i16  : i16  i16  f32  c64  i16  i16  f32  c64
i32  : i32  i32  f32  c64  i32  i32  f32  c64
i64  : i64  i64  f32  c64  i64  i64  f32  c64
u8   : u8   u8   f32  c64  u8   u8   f32  c64
u16  : u16  u16  f32  c64  u16  u16  f32  c64
u32  : u32  u32  f32  c64  u32  u32  f32  c64
u64  : u64  u64  f32  c64  u64  u64  f32  c64
e4m3 : .    .    .    -    e4m3 e4m3 e4m3 -
e5m2 : .    .    .    -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c32  f16  f16  f16  c32
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# div
b1   : f32  f32  f32  c64  f32  f32  f32  c64
i8   : f32  f32  f32  c64  f32  f32  f32  c64
i16  : f32  f32  f32  c64  f32  f32  f32  c64
i32  : f32  f32  f32  c64  f32  f32  f32  c64
i64  : f32  f32  f32  c64  f32  f32  f32  c64
u8   : f32  f32  f32  c64  f32  f32  f32  c64
u16  : f32  f32  f32  c64  f32  f32  f32  c64
u32  : f32  f32  f32  c64  f32  f32  f32  c64
u64  : f32  f32  f32  c64  f32  f32  f32  c64
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : f16  f16  f16  .    f16  f16  f16  .
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# floor_div mod
b1   : .    i64  f32  .    .    i64  f32  .
i8   : i8   i8   f32  .    i8   i8   f32  .
i16  : i16  i16  f32  .    i16  i16  f32  .
i32  : i32  i32  f32  .    i32  i32  f32  .
i64  : i64  i64  f32  .    i64  i64  f32  .
u8   : u8   u8   f32  .    u8   u8   f32  .
u16  : .    .    f32  .    .    .    f32  .
u32  : .    .    f32  .    .    .    f32  .
u64  : .    .    f32  .    .    .    f32  .
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : f16  f16  f16  .    f16  f16  f16  .
bf16 : bf16 bf16 bf16 .    bf16 bf16 bf16 .
f32  : f32  f32  f32  .    f32  f32  f32  .
f64  : f64  f64  f64  .    f64  f64  f64  .
c64  : .    .    .    .    .    .    .    .
c128 : .    .    .    .    .    .    .    .
# pow
b1   : b1   i64  f32  c64  .    i64  f32  c64
i8   : i8   i8   f32  c64  i8   i8   f32  c64
i16  : i16  i16  f32  c64  i16  i16  f32  c64
i32  : i32  i32  f32  c64  i32  i32  f32  c64
i64  : i64  i64  f32  c64  i64  i64  f32  c64
u8   : u8   u8   f32  c64  u8   u8   f32  c64
u16  : u16  .    f32  c64  .    .    f32  c64
u32  : u32  .    f32  c64  .    .    f32  c64
u64  : u64  .    f32  c64  .    .    f32  c64
e4m3 : e4m3 .    .    -    .    .    .    -
e5m2 : e5m2 .    .    -    .    .    .    -
f16  : f16  f16  f16  .    f16  f16  f16  .
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
# less
b1   : b1   b1   b1   .    b1   b1   b1   .
i8   : b1   b1   b1   .    b1   b1   b1   .
i16  : b1   b1   b1   .    b1   b1   b1   .
i32  : b1   b1   b1   .    b1   b1   b1   .
i64  : b1   b1   b1   .    b1   b1   b1   .
u8   : b1   b1   b1   .    b1   b1   b1   .
u16  : .    .    b1   .    .    .    b1   .
u32  : .    .    b1   .    .    .    b1   .
u64  : .    .    b1   .    .    .    b1   .
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : b1   b1   b1   .    b1   b1   b1   .
bf16 : b1   b1   b1   .    b1   b1   b1   .
f32  : b1   b1   b1   .    b1   b1   b1   .
f64  : b1   b1   b1   .    b1   b1   b1   .
c64  : .    .    .    .    .    .    .    .
c128 : .    .    .    .    .    .    .    .
# equal
b1   : b1   b1   b1   b1   b1   b1   b1   b1
i8   : b1   b1   b1   b1   b1   b1   b1   b1
i16  : b1   b1   b1   b1   b1   b1   b1   b1
i32  : b1   b1   b1   b1   b1   b1   b1   b1
i64  : b1   b1   b1   b1   b1   b1   b1   b1
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
# bitwise_and
b1   : b1   i64  .    .    b1   i64  .    .
i8   : i8   i8   .    .    i8   i8   .    .
i16  : i16  i16  .    .    i16  i16  .    .
i32  : i32  i32  .    .    i32  i32  .    .
i64  : i64  i64  .    .    i64  i64  .    .
u8   : u8   u8   .    .    u8   u8   .    .
u16  : u16  u16  .    .    u16  u16  .    .
u32  : u32  u32  .    .    u32  u32  .    .
u64  : u64  u64  .    .    u64  u64  .    .
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : .    .    .    .    .    .    .    .
bf16 : .    .    .    .    .    .    .    .
f32  : .    .    .    .    .    .    .    .
f64  : .    .    .    .    .    .    .    .
c64  : .    .    .    .    .    .    .    .
c128 : .    .    .    .    .    .    .    .
# left_shift
b1   : .    i64  .    .    .    i64  .    .
i8   : i8   i8   .    .    i8   i8   .    .
i16  : i16  i16  .    .    i16  i16  .    .
i32  : i32  i32  .    .    i32  i32  .    .
i64  : i64  i64  .    .    i64  i64  .    .
u8   : u8   u8   .    .    u8   u8   .    .
u16  : .    .    .    .    .    .    .    .
u32  : .    .    .    .    .    .    .    .
u64  : .    .    .    .    .    .    .    .
e4m3 : .    .    .    -    .    .    .    -
e5m2 : .    .    .    -    .    .    .    -
f16  : .    .    .    .    .    .    .    .
bf16 : .    .    .    .    .    .    .    .
f32  : .    .    .    .    .    .    .    .
f64  : .    .    .    .    .    .    .    .
c64  : .    .    .    .    .    .    .    .
c128 : .    .    .    .    .    .    .    .
# where
b1   : b1   i64  f32  c64  b1   i64  f32  c64
i8   : i8   i8   f32  c64  i8   i8   f32  c64
i16  : i16  i16  f32  c64  i16  i16  f32  c64
i32  : i32  i32  f32  c64  i32  i32  f32  c64
i64  : i64  i64  f32  c64  i64  i64  f32  c64
u8   : u8   u8   f32  c64  u8   u8   f32  c64
u16  : u16  u16  f32  c64  u16  u16  f32  c64
u32  : u32  u32  f32  c64  u32  u32  f32  c64
u64  : u64  u64  f32  c64  u64  u64  f32  c64
e4m3 : e4m3 e4m3 e4m3 -    e4m3 e4m3 e4m3 -
e5m2 : e5m2 e5m2 e5m2 -    e5m2 e5m2 e5m2 -
f16  : f16  f16  f16  c32  f16  f16  f16  c32
bf16 : bf16 bf16 bf16 c64  bf16 bf16 bf16 c64
f32  : f32  f32  f32  c64  f32  f32  f32  c64
f64  : f64  f64  f64  c128 f64  f64  f64  c128
c64  : c64  c64  c64  c64  c64  c64  c64  c64
c128 : c128 c128 c128 c128 c128 c128 c128 c128
"""
