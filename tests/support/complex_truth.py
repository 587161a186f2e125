"""Functions of complex numbers as mpmath gives them, points to try them at, and errors in units in the last place."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
mpmath: Any = importlib.import_module("mpmath")  # which has no types

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
        made = mpmath.mpc(FUNCTIONS[name](*map(mpmath.mpc, sided[::2], sided[1::2])))
    return made.real, made.imag


def part_error(got: float, want: Any, dtype: Any) -> float:
    """Return how far a part is from the truth in units in its last place, half of one where rounded correctly."""
    return _error(mpmath.mpf(float(got)) - want, abs(want), got, dtype)


def whole_error(got: complex, want: tuple[Any, Any], dtype: Any) -> float:
    """Return how far a number is from the truth in units in the last place of its magnitude."""
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
        made = np.ldexp(rng.uniform(1, 2, n), np.floor(rng.uniform(least, greatest, n)).astype(int))
        signed: Array = made * rng.choice([-1, 1], n)
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
        made: Array = np.ascontiguousarray(parts.astype(info.dtype)).view(dtype)[:, 0]
    kept: Array = made[np.isfinite(made) & (made != 0)]
    return kept
