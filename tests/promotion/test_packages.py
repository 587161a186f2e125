"""The systems `numpy`, `jax` and `torch` beside what the packages give, cell by cell.

The tables in `matrices/` are written from the installed packages by `tests.support.peer_dtypes`, which says how; where
a package is installed, its table is written again and compared. A cell `-` is refused, in `.` a kernel is missing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphcoreError
from graphcore.promotion import PromotionSystem, explain, system
from tests.support.peer_dtypes import COMPLEX, DTYPES, LITERALS, NARROW, NO_KERNEL, OPTIONS, PEERS, REFUSED, table

pytestmark = pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")

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


class Cell(NamedTuple):
    """A call of an op, and the dtype that the package gives it."""

    op: str
    left: str
    right: str
    """A dtype or a Python number; a dtype with `[]` has no axes; empty where the op has one operand."""
    result: str


def rows(package: str) -> list[list[str]]:
    with (Path(__file__).parent / "matrices" / f"{package}.csv").open(newline="") as file:
        return list(csv.reader(file))


def cells(package: str) -> Iterator[Cell]:
    """Yield the cells of a package's table."""
    (_, _, _, *columns), *calls = rows(package)
    for op, left, right, *results in calls:
        for column, result in zip(columns, results, strict=False):  # a row of a narrow dtype has it as a further column
            names = {"x": column, "x[]": f"{column}[]"}
            if result:
                yield Cell(op, names.get(left, left), names.get(right, right), result)


TABLES = (*PEERS, *OPTIONS)
CELLS = {package: list(cells(package)) for package in TABLES}


def rules_of(package: str) -> PromotionSystem:
    return system("jax", **OPTIONS[package]) if package in OPTIONS else system(package)


def graph_of(package: str) -> Graph:
    inputs = {name: TensorType(DType.of(name), [2]) for name in DTYPES[package]}
    scalars = {f"{name}[]": TensorType(DType.of(name), []) for name in DTYPES[package]}
    return Graph("asked", promotion=rules_of(package), inputs=inputs | scalars)


def made_by(graph: Graph, op: str, *operands: Any) -> Symbol:
    """Return an op's result."""
    special: dict[str, Callable[..., Symbol]] = {
        "where": lambda x, y: ops.where(graph.constant(True), x, y),
        "clip": lambda x, y: ops.clip(x, y, y),
        "concat": lambda x, y: ops.concat([x, y]),
    }
    result: Symbol = special.get(op, getattr(ops, op))(*operands)
    return result


def printed_types(graph: Graph, op: str, *operands: Any) -> str:
    """Return the dtype of an op's result, as the tables have it."""
    try:
        symbol = made_by(graph, op, *operands)
    except GraphcoreError:
        return REFUSED
    return symbol.dtype.name + "?" * symbol.ambiguous


def agrees(value: str, cell: str) -> bool:
    return cell == NO_KERNEL or value == ("bool" if cell == "bool?" else cell)


def wanted(package: str, op: str, cell: str, *operands: str) -> str:
    """Return the cell that the library is to give: the package's, but for ops that are of real numbers here.

    operands: names of dtypes, and Python numbers as text. complex32, in which PyTorch also orders float16 and a
    Python complex number, is not a dtype here.
    """
    package = package.partition("_")[0]
    is_half = package == "torch" and set(operands) == {"float16", "2j"} and op != "equal"
    is_real_here = op in REAL_HERE.get(package, ()) and any(name in (*COMPLEX, "2j") for name in operands)
    return REFUSED if is_half or is_real_here or cell == "complex32" else cell


def assert_agreement(package: str, calls: Iterable[Cell]) -> None:
    """Assert that the library gives the dtypes of cells of a package's table."""
    graph = graph_of(package)
    wrong = []
    for call in calls:
        operands = [name for name in (call.left, call.right) if name]
        value = printed_types(
            graph, call.op, *(LITERALS[name] if name in LITERALS else graph[name] for name in operands)
        )
        if (package.partition("_")[0], call.op) not in APART and not agrees(
            value, wanted(package, call.op, call.result, *operands)
        ):
            wrong.append(f"{call.op}({', '.join(operands)}) is {value}, and {call.result} in {package}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", TABLES)
def test_op_of_one_operand_gives_the_packages_dtype(package: str) -> None:
    assert_agreement(package, [call for call in CELLS[package] if not call.right])


@pytest.mark.parametrize("part", ["TWO", "WITHOUT_AXES"])
@pytest.mark.parametrize("package", TABLES)
def test_op_of_two_operands_gives_the_packages_dtype(package: str, part: str) -> None:
    ending = "[]" if part == "WITHOUT_AXES" else ""
    rights = {name + ending for name in DTYPES[package]}
    assert_agreement(package, [c for c in CELLS[package] if c.left in DTYPES[package] and c.right in rights])


def test_narrow_dtype_meets_what_jax_says() -> None:
    rows = [call for call in CELLS["jax"] if call.left in NARROW]
    assert list(dict.fromkeys(call.left for call in rows)) == list(NARROW)
    for _, left, right, cell in rows:
        assert agrees(explain(left, right, "jax").result, cell), (left, right)
        assert agrees(explain(right, left, "jax").result, cell), (right, left)


@pytest.mark.parametrize("package", TABLES)
def test_op_with_a_python_number_gives_the_packages_dtype(package: str) -> None:
    assert_agreement(package, [call for call in CELLS[package] if LITERALS.keys() & {call.left, call.right}])


@pytest.mark.parametrize("package", TABLES)
def test_two_dtypes_meet_as_the_packages_sum_says(package: str) -> None:
    for op, left, right, cell in CELLS[package]:
        if op != "concat":
            continue
        message = explain(left, right, rules_of(package))
        assert message.result.rstrip("?") + "?" * message.ambiguous == cell, (left, right)
        assert message.reason
        assert message.kind == ("no rule" if cell == REFUSED else "common")


@pytest.mark.parametrize("package", TABLES)
def test_matrices_are_what_the_installed_package_gives(package: str) -> None:
    pytest.importorskip(package.partition("_")[0])
    written = list(table(package))
    assert written[0][1:] == rows(package)[0][1:]  # but for the release
    assert written[1:] == rows(package)[1:]
