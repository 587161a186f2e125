"""Special functions against tables of mpmath, at edges, and for every value of the narrow floats."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from graphcore import DType, ops
from graphcore.build.declare import IN_DOUBLE, REGISTRY
from graphcore.errors import DTypeError
from tests.support import reference
from tests.support.graphs import run, run1
from tests.support.reference import SPECIAL

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType

# An argument and the function there, rounded once, as mpmath gives it with 60 digits and more.
TABLES = {
    "cbrt": """
        0x1.0000000000000p+1 0x1.428a2f98d728bp+0
        -0x1.c000000000000p+1 -0x1.84aef28accd48p+0
        0x0.012688b70e62bp-1022 0x1.a9d1b0b5d7427p-344
        0x1.e42d130773b76p+1023 0x1.3c9685a8b2cc0p+341
        0x1.3333333333333p-2 0x1.56bfea66ef78dp-1
        0x1.6345785d8a000p+56 0x1.c547b888fdbdcp+18
        -0x0.0000000000001p-1022 -0x1.0000000000000p-358
        0x1.edd2f1a9fbe77p+6 0x1.3ead4f488ee35p+2
    """,
    "rcbrt": """
        0x1.0000000000000p+1 0x1.965fea53d6e3dp-1
        -0x1.c000000000000p+1 -0x1.5138719431ec2p-1
        0x0.012688b70e62bp-1022 0x1.33cfbbe460c87p+343
        0x1.e42d130773b76p+1023 0x1.9e03b39515addp-342
        0x1.3333333333333p-2 0x1.7e69c7ce33631p+0
        0x1.6345785d8a000p+56 0x1.2129cff19c5f7p-19
        -0x0.0000000000001p-1022 -0x1.0000000000000p+358
        0x1.edd2f1a9fbe77p+6 0x1.9b4cec62f8b9fp-3
    """,
    "exp10": """
        0x1.0000000000000p-1 0x1.94c583ada5b53p+1
        -0x1.3333333333333p-2 0x1.009b9cf334252p-1
        0x1.d99999999999ap+1 0x1.393df516e1278p+12
        -0x1.4400000000000p+4 0x1.a8e4a1b01b59dp-68
        0x1.2c40000000000p+7 0x1.a128d422cbba7p+498
        0x1.33e6666666666p+8 0x1.c476e1b46893fp+1022
        -0x1.334cccccccccdp+8 0x1.205059e5e5a13p-1021
        0x1.4f8b588e368f1p-17 0x1.000182506a506p+0
    """,
    "erfc": """
        0x1.999999999999ap-4 0x1.c66b42bb60999p-1
        0x1.f5c28f5c28f5cp-2 0x1.f40d3c3f2d2a7p-2
        0x1.051eb851eb852p-1 0x1.e20df5e4a97d2p-2
        0x1.b333333333333p+0 0x1.0993be8f17094p-6
        0x1.5333333333333p+2 0x1.29d3a48c904d9p-44
        0x1.a200000000000p+3 0x1.3a90e48619574p-251
        0x1.a19999999999ap+4 0x1.9cb1a2526fc82p-989
        -0x1.3333333333333p-2 0x1.5420e22077a84p+0
        -0x1.199999999999ap+1 0x1.ff85eaa0129c0p+0
    """,
    "erfinv": """
        0x1.12e0be826d695p-30 0x1.e7355a02875c3p-31
        0x1.999999999999ap-4 0x1.6bf442539fd74p-4
        0x1.ffe5c91d14e3cp-2 0x1.e844d1a98ae52p-2
        0x1.000d1b71758e2p-1 0x1.e87f2685e6e27p-2
        0x1.75c28f5c28f5cp-1 0x1.8f59eefd5db70p-1
        0x1.e666666666666p-1 0x1.62ca97d0fbb2ap+0
        0x1.ffffde7210be9p-1 0x1.babd964830d58p+1
        0x1.fffffffffe000p-1 0x1.4347bf36fbae8p+2
        -0x1.0000000000000p-2 -0x1.cd70681d5ff70p-3
        -0x1.ccccccccccccdp-1 -0x1.29c0146770651p+0
    """,
    "lgamma": """
        0x1.56e1fc2f8f359p-997 0x1.5963447f87fb5p+9
        0x1.47ae147ae147bp-7 0x1.265de0d9b33c4p+2
        0x1.6666666666666p-1 0x1.0b20c891cde73p-2
        0x1.000001ad7f29bp+0 -0x1.efd30c8e518b9p-25
        0x1.4cccccccccccdp+0 -0x1.bb158251658adp-4
        0x1.ffff583a53b8ep+0 -0x1.1bb93de069f62p-18
        0x1.4000000000000p+1 0x1.2383e809a67e8p-2
        0x1.d99999999999ap+1 0x1.6d9625e359b87p+0
        0x1.ff5c28f5c28f6p+2 0x1.10290e198803cp+3
        0x1.0051eb851eb85p+3 0x1.11734c37ef3e6p+3
        0x1.0a66666666666p+5 0x1.4a6a3683bc20cp+6
        0x1.2a05f20000000p+33 0x1.9a43710f467c1p+37
        0x1.7e43c8800759cp+996 0x1.017f38e7a1ab5p+1006
        -0x1.999999999999ap-2 0x1.5084aefb983c5p+0
        -0x1.a666666666666p+1 -0x1.a611f6cda29c6p-1
        -0x1.9c00000000000p+4 -0x1.d79e4507b71c9p+5
    """,
    "tgamma": """
        0x1.56e1fc2f8f359p-997 0x1.7e43c8800759bp+996
        0x1.47ae147ae147bp-7 0x1.8dbaf797edf3dp+6
        0x1.6666666666666p-1 0x1.4c4d5ab21ea23p+0
        0x1.4cccccccccccdp+0 0x1.cb81477381f33p-1
        0x1.4000000000000p+1 0x1.544fa6d47b390p+0
        0x1.ff5c28f5c28f6p+2 0x1.34b7628155f03p+12
        0x1.0051eb851eb85p+3 0x1.416a73e153606p+12
        0x1.0a66666666666p+5 0x1.2069372b95fbdp+119
        0x1.5733333333333p+7 0x1.c3adadc5107b1p+1023
        -0x1.999999999999ap-2 -0x1.dc8aa107a27a6p+1
        -0x1.a666666666666p+1 0x1.c10ab408e231cp-2
        -0x1.9c00000000000p+4 0x1.ee80fa2c11227p-86
        -0x1.5500000000000p+7 -0x1.7d2374dfcda7ap-1022
    """,
    "digamma": """
        0x1.56e1fc2f8f359p-997 -0x1.7e43c8800759bp+996
        0x1.47ae147ae147bp-7 -0x1.923e58c1e9645p+6
        0x1.6666666666666p-1 -0x1.385376af7b79fp+0
        0x1.4cccccccccccdp+0 -0x1.5a80c0b3b66cep-3
        0x1.762d86356be3fp+0 -0x1.aa2d9b3ce29e0p-54
        0x1.4000000000000p+1 0x1.680425af12b5ep-1
        0x1.3fae147ae147bp+3 0x1.2016f32733d79p+1
        0x1.4051eb851eb85p+3 0x1.205bdf24964b7p+1
        0x1.2a05f20000000p+33 0x1.7069e2aa27361p+4
        -0x1.999999999999ap-2 0x1.eb33f5597aa20p-1
        -0x1.a666666666666p+1 0x1.cf67be009a0fcp+1
        -0x1.9c00000000000p+4 0x1.02526e8c46ec2p-3
    """,
}

# Units in the last place of float64.
UNITS = {
    "cbrt": 1, "rcbrt": 2, "exp10": 1, "erfc": 6, "erfinv": 4, "lgamma": 6, "tgamma": 9, "digamma": 6,
}  # fmt: skip

EDGES = {
    "cbrt": "0 0, -0 -0, inf inf, -inf -inf, nan nan, 27 3, -8 -2, 1e300 1e100",
    "rcbrt": "0 inf, -0 -inf, inf 0, -inf -0, nan nan, 8 0.5, 1e300 1e-100",
    "exp10": "0 1, -0 1, inf inf, -inf 0, nan nan, 22 1e22, -3 1e-3, 309 inf, -400 0",
    "erfc": "0 1, -0 1, inf 0, -inf 2, nan nan, 30 0, -9 2, 5e-324 1",
    "erfinv": "0 0, -0 -0, 1 inf, -1 -inf, 1.5 nan, inf nan, -inf nan, nan nan, 5e-324 5e-324",
    "lgamma": "0 inf, -0 inf, 1 0, 2 0, -1 inf, -170 inf, inf inf, -inf inf, nan nan, 1e306 inf, -1e300 inf",
    "tgamma": "0 inf, -0 -inf, 1 1, 5 24, 172 inf, -1 nan, -170 nan, inf inf, -inf nan, nan nan, -200.5 -0, -1e300 nan",
    "digamma": "0 -inf, -0 inf, -1 nan, -170 nan, inf inf, -inf nan, nan nan",
}
"""Arguments and results, as C's functions have them, and SciPy's digamma."""


def table(name: str) -> tuple[Array, Array]:
    numbers = np.array([float.fromhex(word) for word in TABLES[name].split()]).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def same(got: Array, want: Array) -> Array:
    """Where two arrays hold the same, any NaN being equal to any other, and 0.0 not to -0.0."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    return np.asarray(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b)))


def test_every_special_function_is_in_all_tables() -> None:
    names = {name for name, op in REGISTRY.items() if op.family == "special"}
    assert names >= set(TABLES) == set(EDGES) == set(SPECIAL) == set(UNITS)  # the others: test_error_functions.py
    assert {op.onnx for op in REGISTRY.values() if op.family == "special"} <= IN_DOUBLE


@pytest.mark.parametrize("name", TABLES)
def test_float64_is_near_the_table(name: str) -> None:
    x, want = table(name)
    got = run1(REGISTRY[name].function, x)
    unit = np.spacing(np.abs(want))
    assert (np.abs(got - want) <= UNITS[name] * unit).all(), (got - want) / unit


@pytest.mark.parametrize("name", TABLES)
def test_float32_is_rounded_once(name: str) -> None:
    # Arguments of the table are not float32, so the reference is the function of Python.
    random = np.random.default_rng(4)
    low, high = {"erfinv": (-1, 1), "exp10": (-37, 38), "erfc": (-4, 9)}.get(name, (-20, 30))
    x = random.uniform(low, high, 2000).astype(np.float32)
    with np.errstate(all="ignore"):
        want = SPECIAL[name](x.astype(np.float64)).astype(np.float32)
    wrong = ~same(run1(REGISTRY[name].function, x), want)
    assert wrong.sum() == 0, x[wrong]


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
def test_functions_of_tables_keep_the_shape(name: str, shape: tuple[int, ...]) -> None:
    result = run1(REGISTRY[name].function, np.full(shape, -2.5))
    assert result.shape == shape
    assert np.allclose(result, {"lgamma": -0.056243716497674054, "digamma": 1.1031566406452431}[name], rtol=1e-14)


def test_digamma_of_large_negative_numbers() -> None:
    x = np.array([-1023.9, -1024.0, -1024.2, -1024.86, -5000.8839, -(2.0**40) - 0.9375, -(2.0**52) - 1])
    got = run1(ops.digamma, x)
    want = [math.nan if v == round(v) else float(mpmath.digamma(float(v))) for v in x]
    assert np.allclose(got, want, rtol=1e-14, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_c(name: str) -> None:
    x, want = np.array([[float(word) for word in pair.split()] for pair in EDGES[name].split(",")]).T
    got = run1(REGISTRY[name].function, x)
    assert same(got, want).all(), got


@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float8_e4m3fn, D.float8_e5m2], ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_narrow_floats_are_rounded_once_for_every_value(name: str, dtype: DType) -> None:
    x = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}").view(dtype.numpy)
    with np.errstate(all="ignore"):
        want = reference.rounded(SPECIAL[name](x.astype(np.float64)).astype(np.longdouble), dtype)
    wrong = ~same(run1(REGISTRY[name].function, x), want)
    assert wrong.sum() == 0, x[wrong][:9]


@pytest.mark.parametrize("dtype", [D.float8_e4m3fnuz, D.float8_e5m2fnuz], ids=str)
def test_floats_outside_of_the_lattice_are_rounded_once_for_every_value(dtype: DType) -> None:
    x = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    functions: dict[str, Any] = {**SPECIAL, "log1p": np.log1p, "expm1": np.expm1, "exp2": np.exp2, "square": np.square}
    got = run(lambda s: [REGISTRY[name].function(s) for name in functions], x, dims=[["n"]])
    for (name, function), result in zip(functions.items(), got, strict=True):
        with np.errstate(all="ignore"):
            want = function(x.astype(np.float64)).astype(np.float32).astype(dtype.numpy)
        wrong = ~same(result, want)
        assert wrong.sum() == 0, (name, x[wrong])


def test_gamma_of_whole_numbers_is_the_factorial() -> None:
    n = np.arange(1, 172)
    want = np.array([float(math.factorial(k - 1)) for k in n])
    result = run(lambda x, k: [ops.tgamma(x), ops.tgamma(k)], n.astype(np.float64), n, dims=[["n"], ["n"]])
    assert np.array_equal(result[0], want)
    assert np.array_equal(result[1], want)


def test_functions_of_integers_are_of_the_float_that_holds_their_range() -> None:
    for dtype, item in ((np.int8, np.float16), (np.uint16, np.float32), (np.int32, np.float64)):
        got = run1(ops.cbrt, np.array([27, 8, 1], dtype))
        assert got.dtype == item
        assert got.tolist() == [3, 2, 1]


def test_special_function_refuses_strings() -> None:
    with pytest.raises(DTypeError, match="lgamma"):
        run(ops.lgamma, np.array(["a"], object), dtypes=[D.string])


# tan of float64, near its poles and its zeros


def test_tangent_holds_1e_12_when_the_argument_is_beside_a_pole() -> None:
    quarters = np.arange(-999_999, 1_000_000, 997) * (math.pi / 2)
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(4000) * 10.0 ** rng.uniform(-300, 5, 4000)
    x = np.concatenate(
        [quarters, np.nextafter(quarters, np.inf), np.nextafter(quarters, -np.inf), spread, [math.pi / 2, 5e-324]]
    )
    got = run1(ops.tan, x)
    with mpmath.workprec(400):
        off = [
            abs(mpmath.mpf(float(b)) / mpmath.tan(mpmath.mpf(float(a))) - 1) for a, b in zip(x, got, strict=True) if a
        ]
    assert float(max(off)) < 1e-12


def test_tangent_keeps_the_sign_of_zero_and_is_nan_of_infinity() -> None:
    zeros = run1(ops.tan, np.array([0.0, -0.0, np.inf, -np.inf, np.nan]))
    assert zeros[:2].tolist() == [0, 0]
    assert np.signbit(zeros[:2]).tolist() == [False, True]
    assert np.isnan(zeros[2:]).all()
