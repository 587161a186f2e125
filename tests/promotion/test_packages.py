"""The systems `numpy`, `jax` and `torch` beside what the packages give, cell by cell.

The matrices in `matrices/` are literals, made from the installed packages by `tests.support.peer_dtypes`, which says
how; where a package is installed, it is asked again. A cell `-` is refused, in `.` a kernel is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError
from graphcore.promotion import explain
from tests.promotion.matrices import of_jax, of_numpy, of_torch
from tests.support.peer_dtypes import COMPLEX, LITERALS, LONG, NARROW, NO_KERNEL, PARTS, REFUSED, SHORT, module

pytestmark = pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")

MATRICES: dict[str, ModuleType] = {"numpy": of_numpy, "jax": of_jax, "torch": of_torch}
IMPORTED = {"numpy": "numpy", "jax": "jax", "torch": "torch"}

# Ops here whose promotion is not a package's, with the reason.
APART = {
    ("numpy", "reciprocal"): "the library's is a function into the reals; NumPy's of integers divides them",
    ("jax", "reciprocal"): "",
    ("jax", "rsqrt"): "jax.lax.rsqrt takes floats alone; the library's casts, as jax.numpy's functions do",
    ("torch", "any"): "PyTorch gives uint8 for uint8, as it did before it had bools",
    ("torch", "all"): "as any",
}
_ORDER = "the library has no order of complex numbers; the package compares real parts, then imaginary ones"
_OF_REALS = "the library computes it on real numbers"
REAL_HERE = {
    "numpy": {
        **dict.fromkeys("argmax argsort clip less max maximum min minimum sort".split(), _ORDER),
        "round": _OF_REALS,
    },
    "jax": {
        **dict.fromkeys("argmax argsort less max maximum min minimum sort".split(), _ORDER),
        **dict.fromkeys("atan2 round softmax".split(), _OF_REALS),
    },
}
"""Ops that a package has for complex numbers, and the library refuses, with the reason."""
APART_CELLS = {
    ("torch", "pow", "True"): "x ** True is x for any x in PyTorch, whether or not it has a power of that dtype",
}


def cells(package: str, part: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each op, the left operand's short name and the cells of that row."""
    named: list[str] = []
    for line in getattr(MATRICES[package], part).strip().splitlines():
        if line.startswith("#"):
            named = line[1:].split()
            continue
        row, _, written = line.partition(":")
        for op in named:
            yield op, row.strip(), written.split()


def graph_of(package: str) -> Graph:
    columns = MATRICES[package].COLUMNS
    graph = Graph("asked", promotion=package, inputs={
        **{name: TensorType(DType.of(SHORT[name]), [2]) for name in columns},
        **{f"{name}_without": TensorType(DType.of(SHORT[name]), []) for name in columns},
    })  # fmt: skip
    return graph


def made_by(graph: Graph, op: str, *operands: Any) -> Symbol:
    """Return an op's result."""
    special: dict[str, Callable[..., Symbol]] = {
        "where": lambda x, y: ops.where(graph.constant(True), x, y),
        "clip": lambda x, y: ops.clip(x, y, y),
        "concat": lambda x, y: ops.concat([x, y]),
    }
    made: Symbol = special.get(op, getattr(ops, op))(*operands)
    return made


def made(graph: Graph, op: str, *operands: Any) -> str:
    """Return the short name of the dtype of an op's result, as the matrices have it."""
    try:
        symbol = made_by(graph, op, *operands)
    except GraphcoreError:
        return REFUSED
    return LONG.get(symbol.dtype.name, symbol.dtype.name) + "?" * symbol.ambiguous


def agrees(given: str, cell: str) -> bool:
    return cell == NO_KERNEL or given == ("b1" if cell == "b1?" else cell)


def wanted(package: str, op: str, cell: str, *operands: str) -> str:
    """Return the cell that the library is to give: the package's, but for ops that are of real numbers here.

    operands: short names of dtypes, and Python numbers as text. complex32, in which PyTorch also compares float16 with
    a Python complex number, is no dtype here.
    """
    is_half = package == "torch" and set(operands) == {"f16", "2j"}
    is_real_here = op in REAL_HERE.get(package, ()) and any(name in (*COMPLEX, "2j") for name in operands)
    return REFUSED if is_half or is_real_here or cell == "c32" else cell


@pytest.mark.parametrize("package", MATRICES)
def test_op_of_one_operand_gives_the_packages_dtype(package: str) -> None:
    graph = graph_of(package)
    columns = MATRICES[package].COLUMNS
    wrong = []
    for op, _, row in cells(package, "ONE"):
        for name, cell in zip(columns, row, strict=True):
            given = made(graph, op, graph[name])
            if not agrees(given, wanted(package, op, cell, name)) and (package, op) not in APART:
                wrong.append(f"{op}({name}) is {given}, and {cell} in {package}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", ["TWO", "WITHOUT_AXES"])
@pytest.mark.parametrize("package", MATRICES)
def test_op_of_two_operands_gives_the_packages_dtype(package: str, part: str) -> None:
    graph = graph_of(package)
    columns = MATRICES[package].COLUMNS
    ending = "_without" if part == "WITHOUT_AXES" else ""
    wrong = []
    for op, left, row in cells(package, part):
        for right, cell in zip(columns, row, strict=True):
            given = made(graph, op, graph[left], graph[right + ending])
            if not agrees(given, wanted(package, op, cell, left, right)):
                wrong.append(f"{op}({left}, {right}) is {given}, and {cell} in {package}")
    assert not wrong, "\n".join(wrong)


def test_narrow_dtype_meets_what_jax_says() -> None:
    rows = list(cells("jax", "NARROW"))
    assert [name for _, name, _ in rows] == list(NARROW["jax"])
    for _, left, row in rows:
        for right, cell in zip([*of_jax.COLUMNS, left], row, strict=True):
            assert agrees(explain(SHORT[left], SHORT[right], "jax").result, SHORT.get(cell, cell)), (left, right)
            assert agrees(explain(SHORT[right], SHORT[left], "jax").result, SHORT.get(cell, cell)), (right, left)


@pytest.mark.parametrize("package", MATRICES)
def test_op_with_a_python_number_gives_the_packages_dtype(package: str) -> None:
    graph = graph_of(package)
    wrong = []
    for op, name, row in cells(package, "LITERALS"):
        x = graph[name]
        calls = [(x, value) for value in LITERALS.values()] + [(value, x) for value in LITERALS.values()]
        for operands, literal, cell in zip(calls, [*LITERALS, *LITERALS], row, strict=True):
            given = made(graph, op, *operands)
            if (
                not agrees(given, wanted(package, op, cell, name, literal))
                and (package, op, literal) not in APART_CELLS
            ):
                wrong.append(f"{op}{operands[0] if operands[0] is not x else name, operands[1]} is {given}, not {cell}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", MATRICES)
def test_two_dtypes_meet_as_the_packages_sum_says(package: str) -> None:
    columns = MATRICES[package].COLUMNS
    for op, left, row in cells(package, "TWO"):
        if op != "concat":
            continue
        for right, cell in zip(columns, row, strict=True):
            said = explain(SHORT[left], SHORT[right], package)
            assert LONG.get(said.result.rstrip("?"), said.result) + "?" * said.ambiguous == cell, (left, right)
            assert said.reason
            assert said.kind == ("no rule" if cell == REFUSED else "common")


@pytest.mark.parametrize("package", ["numpy", pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_matrices_are_what_the_installed_package_gives(package: str) -> None:
    pytest.importorskip(IMPORTED[package])
    namespace: dict[str, Any] = {}
    exec(module(package), namespace)
    literals = MATRICES[package]
    assert namespace["COLUMNS"] == literals.COLUMNS
    for part in PARTS:
        assert namespace[part] == getattr(literals, part), part
