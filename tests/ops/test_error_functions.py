"""The error functions against tables of mpmath, at edges, and for every value of the narrow floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcore import DType
from graphcore.build.declare import IN_DOUBLE, REGISTRY
from tests.ops import test_special
from tests.ops.test_special import same
from tests.support import reference
from tests.support.graphs import run1
from tests.support.reference import NORMAL

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType

# An argument and the function there, rounded once, as mpmath gives it with 60 digits.
TABLES = {
    "erfcx": """
        -0x1.a800000000000p+4 0x1.18a49e30f3487p+1014
        -0x1.a666666666666p+1 0x1.a30a6f994afcfp+16
        -0x1.6666666666666p-1 0x1.5e8dca5dfe5fap+1
        -0x1.0000000000000p-2 0x1.5bcffc828f492p+0
        0x1.999999999999ap-4 0x1.cafc68c67a05ep-1
        0x1.f5c28f5c28f5cp-2 0x1.3de07eddacab7p-1
        0x1.051eb851eb852p-1 0x1.38a074525b3aep-1
        0x1.b333333333333p+0 0x1.2aa9c889874ddp-2
        0x1.3000000000000p+3 0x1.e3db9bbbefc9ep-5
        0x1.be66666666666p+4 0x1.4b1a34a25ef6fp-6
        0x1.c333333333333p+4 0x1.47959dcd3fdd7p-6
        0x1.4c00000000000p+5 0x1.bd5974d9bc98bp-7
        0x1.f400000000000p+9 0x1.27cc34c9b7f2dp-11
    """,
    "erfcinv": """
        0x0.0000000000001p-1022 0x1.b369a6244e684p+4
        0x1.56e1fc2f8f359p-997 0x1.a359fd2c5e942p+4
        0x1.bff2ee48e0530p-333 0x1.e219301e62922p+3
        0x1.70ef54646d497p-57 0x1.84032daff1271p+2
        0x1.cd2b297d889bcp-54 0x1.77d4e95c20889p+2
        0x1.f75104d551d69p-16 0x1.79bd32913e9f6p+1
        0x1.999999999999ap-4 0x1.29c0146770650p+0
        0x1.fef9db22d0e56p-2 0x1.e985cbad8f570p-2
        0x1.051eb851eb852p-1 0x1.dd0ca888f8b2bp-2
        0x1.ccccccccccccdp-1 0x1.6bf442539fd73p-4
        0x1.3333333333333p+0 -0x1.6ee2c37720943p-3
        0x1.828f5c28f5c29p+0 -0x1.f3d6444db0a4ap-2
        0x1.e666666666666p+0 -0x1.29c014677064fp+0
        0x1.fff972474538fp+0 -0x1.6022dcb01ea50p+1
    """,
    "normcdf": """
        -0x1.2b33333333333p+5 0x1.5f36452e2b553p-1016
        -0x1.44ccccccccccdp+4 0x1.0c37ea06f83fap-303
        -0x1.4333333333333p+2 0x1.da63d3681b68ep-23
        -0x1.4cccccccccccdp+0 0x1.8c7eaa3883ae2p-4
        -0x1.6b851eb851eb8p-1 0x1.e92b45e83a485p-3
        -0x1.6666666666666p-1 0x1.ef8aa3a8f3560p-3
        -0x1.999999999999ap-4 0x1.d7375f15b2f1ep-2
        0x1.3333333333333p-2 0x1.3c5ee2cc40b79p-1
        0x1.70a3d70a3d70ap-1 0x1.874a234cd4666p-1
        0x1.199999999999ap+1 0x1.f8e1a5b741785p-1
        0x1.8666666666666p+2 0x1.fffffffb71c3dp-1
    """,
    "normcdfinv": """
        0x1.56e1fc2f8f359p-997 -0x1.286074064c26ep+5
        0x1.79ca10c924223p-67 -0x1.2865170b43a4cp+3
        0x1.4f8b588e368f1p-16 -0x1.06e0f2585bbb8p+2
        0x1.999999999999ap-4 -0x1.4813c36e26d32p+0
        0x1.eb851eb851eb8p-3 -0x1.69a07d50f5549p-1
        0x1.0a3d70a3d70a4p-2 -0x1.496491a8638dbp-1
        0x1.ccccccccccccdp-2 -0x1.015abc78e92d0p-3
        0x1.3333333333333p-1 0x1.036d6c4a04b59p-2
        0x1.851eb851eb852p-1 0x1.69a07d50f5549p-1
        0x1.ff7ced916872bp-1 0x1.8b8cbb7204470p+1
    """,
}

UNITS = {"erfcx": 6, "erfcinv": 4, "normcdf": 8, "normcdfinv": 5}
"""Units in the last place of float64."""

EDGES = {
    "erfcx": "0 1, -0 1, inf 0, -inf inf, nan nan, -27 inf",
    "erfcinv": "0 inf, 2 -inf, 1 0, -0.5 nan, 2.5 nan, inf nan, -inf nan, nan nan",
    "normcdf": "0 0.5, -0 0.5, inf 1, -inf 0, nan nan, -40 0, 40 1",
    "normcdfinv": "0 -inf, 1 inf, 0.5 0, -0.5 nan, 1.5 nan, inf nan, nan nan",
}


def test_every_function_is_in_all_tables() -> None:
    names = {name for name, op in REGISTRY.items() if op.family == "special"} - set(test_special.TABLES)
    assert names == set(TABLES) == set(EDGES) == set(NORMAL) == set(UNITS)
    assert {REGISTRY[name].onnx for name in names} <= IN_DOUBLE


@pytest.mark.parametrize("name", TABLES)
def test_float64_is_near_the_table(name: str) -> None:
    x, want = np.array([float.fromhex(word) for word in TABLES[name].split()]).reshape(-1, 2).T
    got = run1(REGISTRY[name].function, x)
    unit = np.spacing(np.abs(want))
    assert (np.abs(got - want) <= UNITS[name] * unit).all(), (got - want) / unit


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_cuda(name: str) -> None:
    x, want = np.array([[float(word) for word in pair.split()] for pair in EDGES[name].split(",")]).T
    got = run1(REGISTRY[name].function, x)
    assert same(got, want).all(), got


@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float8_e4m3fn, D.float8_e5m2], ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_narrow_floats_are_rounded_once_for_every_value(name: str, dtype: DType) -> None:
    x = np.arange(1 << dtype.bits).astype(f"uint{dtype.bits}").view(dtype.numpy)
    with np.errstate(all="ignore"):
        want = reference.rounded(NORMAL[name](x.astype(np.float64)).astype(np.longdouble), dtype)
    wrong = ~same(run1(REGISTRY[name].function, x), want)
    assert wrong.sum() == 0, x[wrong][:9]
