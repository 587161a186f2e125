"""Complex functions against mpmath, over all sizes of numbers, beside branch cuts, zeros and poles: docs/numbers.md."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

Array = np.ndarray[Any, Any]
mpmath: Any = pytest.importorskip("mpmath")  # which has no types

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": mpmath.exp,
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "exp10": lambda z: mpmath.exp(z * mpmath.log(10)),
    "expm1": lambda z: mpmath.exp(z) - 1,
    "log": mpmath.log,
    "log1p": lambda z: mpmath.log(1 + z),
    "log2": lambda z: mpmath.log(z) / mpmath.log(2),
    "log10": lambda z: mpmath.log(z) / mpmath.log(10),
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asin": lambda z: mpmath.asin(z),
    "acos": lambda z: mpmath.acos(z),
    "atan": lambda z: (mpmath.log(1 + 1j * z) - mpmath.log(1 - 1j * z)) / 2j,
    "asinh": lambda z: mpmath.asinh(z),
    "acosh": lambda z: mpmath.acosh(z),
    "atanh": lambda z: (mpmath.log(1 + z) - mpmath.log(1 - z)) / 2,
    "abs": lambda z: mpmath.mpc(abs(z)),
    "sign": lambda z: z / abs(z),
    "square": lambda z: z * z,
    "reciprocal": lambda z: 1 / z,
    "div": lambda z, w: z / w,
    "pow": lambda z, w: mpmath.exp(w * mpmath.log(z)),
}  # fmt: skip

_NOTHING = -5000
"""2 to this power stands for 0.0, so that each side of a branch cut is told from the other. No float64 is near it."""


def truth(name: str, *operands: complex) -> tuple[Any, Any]:
    """Return both parts of a function, right to far more than float64, as mpmath numbers; zeros have sides."""
    parts = [part for z in operands for part in (z.real, z.imag)]
    exponents = [abs(int(np.frexp(part)[1])) if part else -_NOTHING for part in parts]
    with mpmath.workprec(256 + 4 * max(exponents)):
        sided = [mpmath.mpf(x) if x else mpmath.ldexp(np.copysign(1.0, x), _NOTHING) for x in parts]
        result = mpmath.mpc(FUNCTIONS[name](*map(mpmath.mpc, sided[::2], sided[1::2])))
    return result.real, result.imag


def part_error(got: float, want: Any, dtype: Any) -> float:
    """Return the error of a part in units in its last place, half of one where rounded correctly."""
    return _error(mpmath.mpf(float(got)) - want, abs(want), got, dtype)


def whole_error(got: complex, want: tuple[Any, Any], dtype: Any) -> float:
    """Return the error of a number in units in the last place of its magnitude."""
    real, imag = (mpmath.mpf(float(part)) - one for part, one in zip((got.real, got.imag), want, strict=True))
    return _error(mpmath.hypot(real, imag), mpmath.hypot(*want), abs(got), dtype)


def _error(error: Any, size: Any, got: Any, dtype: Any) -> float:
    info = np.finfo(dtype)
    if size >= mpmath.mpf(float(info.max)) * (1 - 64 * float(info.eps)):
        return 0.0 if abs(got) >= info.max * (1 - 64 * float(info.eps)) else np.inf
    if not np.isfinite(got):
        return np.inf
    return float(abs(error) / max(size * float(info.eps), mpmath.mpf(float(info.smallest_subnormal))))


# Points


def points(dtype: Any, count: int, seed: int = 0) -> Array:
    """Return numbers of a complex dtype: of every size, beside zeros, poles, branch points and cuts, on both sides."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(seed)

    def sizes(least: float, greatest: float, n: int = count) -> Array:
        result = np.ldexp(rng.uniform(1, 2, n), np.floor(rng.uniform(least, greatest, n)).astype(int))
        signed: Array = result * rng.choice([-1, 1], n)
        return signed

    lowest, highest = float(info.minexp - info.nmant), float(info.maxexp)
    near: Callable[[], Array] = functools.partial(sizes, -info.nmant * 1.5, 3)
    tiny: Callable[[], Array] = functools.partial(sizes, lowest, 0)
    turns = rng.integers(-40, 40, count) * np.pi / 2
    angles = rng.uniform(-np.pi, np.pi, count)
    fields = [
        sizes(lowest, highest) + 1j * sizes(lowest, highest),
        sizes(-4, 4) + 1j * sizes(-4, 4),
        *(centre + near() + 1j * near() for centre in (0, 1, -1, 1j, -1j)),
        *(centre + tiny() + 1j * tiny() for centre in (1, -1)),
        *(tiny() + 1j * (side + tiny()) for side in (1, -1)),
        np.exp(1j * angles) * (1 + near() / 16),
        sizes(-8, 8) + 1j * np.copysign(0.0, near()),
        np.copysign(0.0, near()) + 1j * sizes(-8, 8),
        sizes(-1, 10) + 1j * tiny(),
        tiny() + 1j * sizes(-1, 10),
        turns + near() + 1j * near(),
        near() + 1j * (turns + near()),
        rng.uniform(-800, 800, count) + 1j * sizes(-4, 8),
        sizes(-4, 8) + 1j * rng.uniform(-800, 800, count),
        sizes(highest - 3, highest) + 1j * sizes(highest - 60, highest),
        sizes(lowest, lowest + 60) + 1j * sizes(lowest, lowest + 60),
    ]
    parts = np.concatenate([np.stack([field.real, field.imag], -1) for field in fields])
    with np.errstate(all="ignore"):
        result: Array = np.ascontiguousarray(parts.astype(info.dtype)).view(dtype)[:, 0]
    remaining: Array = result[np.isfinite(result) & (result != 0)]
    return remaining


BOUNDS: dict[str, tuple[float, float | None]] = {
    "abs": (1, 1), "square": (1, None), "reciprocal": (2, None), "div": (2, None), "sign": (1, 1),
    "sqrt": (1, 2), "rsqrt": (2, 4), "exp": (2, 3), "exp2": (2, 3), "exp10": (2, 3),
    "expm1": (4, None),
    "log": (2, 2), "log1p": (2, 2), "log2": (2, 3), "log10": (3, 3),
    "sin": (3, 4), "cos": (3, 4), "tan": (4, 6), "sinh": (3, 4), "cosh": (3, 4), "tanh": (4, 6),
    "asin": (2, 3), "acos": (2, 3), "atan": (2, 3), "asinh": (2, 3), "acosh": (2, 3), "atanh": (2, 3),
}  # fmt: skip
"""Units in the last place of complex128: of the magnitude of the result, and of each of its parts."""
COUNT = 12
"""Points of a kind, of which there are 22."""
MAX_ROTATED = 2.0**20
"""Angles up to this size are as accurate as others."""

ANGLES = {
    **dict.fromkeys(("exp", "exp2", "exp10", "expm1", "sinh", "cosh", "tanh"), "imag"),
    **dict.fromkeys(("sin", "cos", "tan"), "real"),
}


def computed(name: str, *operands: Any) -> Any:
    types = {f"x{i}": TensorType(DType.of(x.dtype), ["n"]) for i, x in enumerate(operands)}
    graph = Graph("g", types, promotion="array_api")
    with graph:
        graph.output(getattr(ops, name)(*graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(*operands)
    return result


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", BOUNDS)
def test_functions_are_within_their_bounds_everywhere(name: str, dtype: Any) -> None:
    z = points(dtype, COUNT)
    if name in ANGLES:
        z = z[abs(getattr(z, ANGLES[name])) <= MAX_ROTATED]
    operands = (z, np.random.default_rng(0).permutation(z)) if name == "div" else (z,)
    part = np.finfo(dtype).dtype
    whole, each = BOUNDS[name]
    if dtype is np.complex64 and name not in ("square", "reciprocal", "div", "sign"):
        whole = each = 0.501  # computed in float64 and rounded once
    failed = []
    for got, *item in zip(computed(name, *operands), *operands, strict=True):
        want = truth(name, *map(complex, item))
        error = whole_error(complex(got), want, part)
        errors = [part_error(float(a), b, part) for a, b in zip((got.real, got.imag), want, strict=True)]
        if error > whole or (each is not None and max(errors) > each):
            failed.append(f"{name}{tuple(item)}: {got} is off by {error:.3g}, its parts by {errors}")
    assert not failed, "\n".join(failed[:20])


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_powers_are_as_accurate_as_what_is_exponentiated(dtype: Any) -> None:
    z, part = points(dtype, COUNT), np.finfo(dtype).dtype
    rng = np.random.default_rng(0)
    w = (rng.uniform(-8, 8, len(z)) + 1j * rng.uniform(-8, 8, len(z))).astype(dtype)
    failed = []
    for a, b, got in zip(z, w, computed("pow", z, w), strict=True):
        error = whole_error(complex(got), truth("pow", complex(a), complex(b)), part)
        size = abs(complex(b) * np.log(complex(a)))
        if error > (0.6 if dtype is np.complex64 else 4 + 2 * size):
            failed.append(f"{a}**{b}: {got} is off by {error:.3g}")
    assert not failed, "\n".join(failed[:20])


def test_every_function_has_a_bound_and_the_page_states_them() -> None:
    assert set(BOUNDS) | {"pow"} == set(FUNCTIONS)
    page = (Path(__file__).parents[2] / "docs" / "numbers.md").read_text("utf-8")
    stated = {}
    for names, whole, each in re.findall(r"^\| (`[a-z0-9`, ]+`) \| (\d+) \| (\d+|-) \|$", page, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            stated[name] = (float(whole), None if each == "-" else float(each))
    assert stated == BOUNDS
