"""The special cases of complex functions: the tables of C99's Annex G, and those that the array API standard adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

TABLES = {
    "exp": """
        0 0: 1 0       -0 0: 1 0       1 inf: nan nan   -0 inf: nan nan  1 nan: nan nan   0 nan: nan nan
        inf 0: inf 0   -inf 0: 0 0     -inf 1: 0 0      -inf 2: -0 0     inf 1: inf inf   inf 2: -inf inf
        -inf inf: ?0 ?0   inf inf: ?inf nan   -inf nan: ?0 ?0   inf nan: ?inf nan
        nan 0: nan 0   nan 1: nan nan  nan inf: nan nan   nan nan: nan nan""",
    "expm1": """
        0 0: 0 0       -0 0: ?0 0      1 inf: nan nan   -0 inf: nan nan  1 nan: nan nan   0 nan: nan nan
        inf 0: inf 0   -inf 0: -1 0    -inf 1: -1 0     -inf 2: -1 0     inf 1: inf inf   inf 2: -inf inf
        -inf inf: -1 ?0   inf inf: ?inf nan   -inf nan: -1 ?0   inf nan: ?inf nan
        nan 0: nan 0   nan 1: nan nan  nan inf: nan nan   nan nan: nan nan""",
    "log": """
        -0 0: -inf 4/4   0 0: -inf 0   1 inf: inf 2/4   -1 inf: inf 2/4   0 inf: inf 2/4   1 nan: nan nan
        0 nan: nan nan
        -inf 1: inf 4/4   -inf 0: inf 4/4   inf 1: inf 0   inf 0: inf 0   -inf inf: inf 3/4   inf inf: inf 1/4
        inf nan: inf nan   -inf nan: inf nan   nan 1: nan nan   nan 0: nan nan   nan inf: inf nan   nan nan: nan nan""",
    "log1p": """
        -1 0: -inf 0   0 0: 0 0   -0 0: ?0 0   1 inf: inf 2/4   -3 inf: inf 2/4   1 nan: nan nan   -1 nan: nan nan
        -inf 1: inf 4/4   inf 1: inf 0   -inf inf: inf 3/4   inf inf: inf 1/4
        inf nan: inf nan   -inf nan: inf nan   nan 1: nan nan   nan inf: inf nan   nan nan: nan nan""",
    "sqrt": """
        0 0: 0 0   -0 0: 0 0   1 inf: inf inf   -1 inf: inf inf   inf inf: inf inf   -inf inf: inf inf
        nan inf: inf inf
        1 nan: nan nan   -1 nan: nan nan   0 nan: nan nan   -inf 1: 0 inf   -inf 0: 0 inf   inf 1: inf 0   inf 0: inf 0
        -inf nan: nan ?inf   inf nan: inf nan   nan 1: nan nan   nan 0: nan nan   nan nan: nan nan""",
    "acos": """
        0 0: 2/4 -0   -0 0: 2/4 -0   0 nan: 2/4 nan   -0 nan: 2/4 nan   1 inf: 2/4 -inf   -1 inf: 2/4 -inf
        0 inf: 2/4 -inf   1 nan: nan nan   -inf 1: 4/4 -inf   inf 1: 0 -inf   -inf inf: 3/4 -inf   inf inf: 1/4 -inf
        inf nan: nan ?inf   -inf nan: nan ?inf   nan 1: nan nan   nan 0: nan nan   nan inf: nan -inf
        nan nan: nan nan   1 0: 0 -0""",
    "acosh": """
        0 0: 0 2/4   -0 0: 0 2/4   1 inf: inf 2/4   -1 inf: inf 2/4   0 nan: nan ?2/4   1 nan: nan nan
        -inf 1: inf 4/4   inf 1: inf 0   -inf inf: inf 3/4   inf inf: inf 1/4   inf nan: inf nan   -inf nan: inf nan
        nan 1: nan nan   nan inf: inf nan   nan nan: nan nan   1 0: 0 0""",
    "asinh": """
        0 0: 0 0   1 inf: inf 2/4   0 inf: inf 2/4   1 nan: nan nan   inf 1: inf 0   inf 0: inf 0   inf inf: inf 1/4
        inf nan: inf nan   nan 0: nan 0   nan 1: nan nan   nan inf: ?inf nan   nan nan: nan nan""",
    "atanh": """
        0 0: 0 0   0 nan: 0 nan   1 0: inf 0   1 inf: 0 2/4   0 inf: 0 2/4   1 nan: nan nan   inf 1: 0 2/4
        inf 0: 0 2/4   inf inf: 0 2/4   inf nan: 0 nan   nan 1: nan nan   nan 0: nan nan   nan inf: ?0 2/4
        nan nan: nan nan""",
    "cosh": """
        0 0: 1 0   0 inf: nan ?0   0 nan: nan ?0   1 inf: nan nan   1 nan: nan nan   inf 0: inf 0   inf 1: inf inf
        inf 2: -inf inf   inf inf: ?inf nan   inf nan: inf nan   nan 0: nan ?0   nan 1: nan nan   nan inf: nan nan
        nan nan: nan nan""",
    "sinh": """
        0 0: 0 0   0 inf: ?0 nan   0 nan: ?0 nan   1 inf: nan nan   1 nan: nan nan   inf 0: inf 0   inf 1: inf inf
        inf 2: -inf inf   inf inf: ?inf nan   inf nan: ?inf nan   nan 0: nan 0   nan 1: nan nan   nan inf: nan nan
        nan nan: nan nan""",
    "tanh": """
        0 0: 0 0   1 inf: nan nan   0 inf: 0 nan   0 nan: 0 nan   1 nan: nan nan   inf 0: 1 0   inf 1: 1 0   inf 2: 1 -0
        inf inf: 1 ?0   inf nan: 1 ?0   nan 0: nan 0   nan 1: nan nan   nan inf: nan nan   nan nan: nan nan""",
    "abs": """
        0 0: 0 0   -0 0: 0 0   inf 1: inf 0   -inf nan: inf 0   nan inf: inf 0   inf inf: inf 0   nan 1: nan 0
        1 nan: nan 0   nan nan: nan 0   3 4: 5 0""",
    "sign": """
        0 0: ?0 ?0   -0 0: ?0 ?0   nan 1: nan nan   1 nan: nan nan   -2 0: -1 0   inf 1: 1 ?0   -inf 0: -1 ?0
        1 inf: ?0 1""",
}  # fmt: skip
"""z: f(z), the parts apart. n/4 are quarters of pi; the sign of what begins with "?" is left open.

All have f(conj z) = conj f(z), which stands for the lower half of the plane.
"""

TABLES["log2"] = TABLES["log10"] = TABLES["log"]
ODD = ("asinh", "atanh", "sinh", "tanh")
EVEN = ("cosh",)
TURNED = {"asin": "asinh", "atan": "atanh", "sin": "sinh", "tan": "tanh"}
"""Functions that are -i f(i z) of another; the cosine is cosh(i z)."""

Part = tuple[float, bool]
"""A part, and whether its sign is left open."""
Row = tuple[complex, Part, Part]


def rows(name: str) -> list[Row]:
    """Return all cases of a function: those of its table, and their mirror images."""
    if name in TURNED:  # i z = w gives z = -i w, and -i (a + ib) = b - ia
        return [(complex(z.imag, -z.real), imag, negated(real)) for z, real, imag in rows(TURNED[name])]
    if name == "cos":
        return [(complex(z.imag, -z.real), real, imag) for z, real, imag in rows("cosh")]
    results = []
    for a, b, *wanted in np.reshape(TABLES[name].replace(":", " ").split(), (-1, 4)).tolist():
        z, (real, imag) = complex(float(a), float(b)), map(part_of, wanted)
        if name in ("log2", "log10"):
            imag = (imag[0] / np.log(int(name[3:])), imag[1])
        results += [(z, real, imag), (conjugate(z), real, imag if name == "abs" else negated(imag))]
    if name in ODD:
        results += [(complex(-z.real, -z.imag), negated(real), negated(imag)) for z, real, imag in results]
    if name in EVEN:
        results += [(complex(-z.real, -z.imag), real, imag) for z, real, imag in results]
    return results


def conjugate(z: complex) -> complex:
    return complex(z.real, -z.imag)


def negated(part: Part) -> Part:
    return -part[0], part[1]


def part_of(text: str) -> Part:
    value = text.removeprefix("?")
    quarters, _, _ = value.partition("/")
    return (float(quarters) * np.pi / 4 if "/" in value else float(value)), text != value


def is_as_said(got: Any, wanted: Part, dtype: Any) -> bool:
    value, is_open = wanted
    if np.isnan(value):
        return bool(np.isnan(got))
    if not is_open and np.signbit(got) != np.signbit(value):
        return False
    return bool(abs(got) == abs(value) or np.isclose(abs(got), abs(value), rtol=2 * np.finfo(dtype).eps, atol=0))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_functions_have_the_special_cases_of_their_standards(dtype: Any) -> None:
    names = [*TABLES, *TURNED, "cos"]
    cases = {name: rows(name) for name in names}
    graph = Graph("g", {n: TensorType(DType.of(dtype), [f"n_{n}"]) for n in names}, promotion="array_api")
    with graph:
        graph.output(**{f"{name}_of": getattr(ops, name)(graph[name]) for name in names})
    results = gc.InferenceSession().load(graph)(*(np.array([z for z, _, _ in cases[name]], dtype) for name in names))
    failed = []
    for name, result in zip(names, results, strict=True):
        for (z, real, imag), got in zip(cases[name], result, strict=True):
            if not (is_as_said(got.real, real, dtype) and is_as_said(got.imag, imag, dtype)):
                failed.append(f"{name}({z}): {got}, not {real[0]} and {imag[0]}")
    assert not failed, "\n".join(failed)
