"""Complex functions against mpmath, over all sizes of numbers, beside branch cuts, zeros and poles: docs/numbers.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

pytest.importorskip("mpmath")

from tests.support.complex_truth import (
    FUNCTIONS,
    part_error,
    points,
    truth,
    whole_error,
)

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
MOST_TURNED = 2.0**20
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
    (made,) = gc.InferenceSession().load(graph)(*operands)
    return made


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", BOUNDS)
def test_functions_are_within_their_bounds_everywhere(name: str, dtype: Any) -> None:
    z = points(dtype, COUNT)
    if name in ANGLES:
        z = z[abs(getattr(z, ANGLES[name])) <= MOST_TURNED]
    operands = (z, np.random.default_rng(0).permutation(z)) if name == "div" else (z,)
    part = np.finfo(dtype).dtype
    whole, each = BOUNDS[name]
    if dtype is np.complex64 and name not in ("square", "reciprocal", "div", "sign"):
        whole = each = 0.501  # computed in float64 and rounded once
    failed = []
    for got, *given in zip(computed(name, *operands), *operands, strict=True):
        want = truth(name, *map(complex, given))
        error = whole_error(complex(got), want, part)
        errors = [part_error(float(a), b, part) for a, b in zip((got.real, got.imag), want, strict=True)]
        if error > whole or (each is not None and max(errors) > each):
            failed.append(f"{name}{tuple(given)}: {got} is off by {error:.3g}, its parts by {errors}")
    assert not failed, "\n".join(failed[:20])


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
