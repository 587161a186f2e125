"""The promotion systems against their publications: every cell of every table, in both orders, errors included.

The tables are in data/promotion, with the publications that they were taken from.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.promotion_tables import disagreements
from graphcore import DType, Graph, TensorType, implicit_cast_type, ops
from graphcore.errors import LossyCastWarning, PromotionError
from graphcore.promotion import system
from graphcore.promotion.anvil import common_dtype

DATA = Path(__file__).parents[1] / "data" / "promotion"
FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)


def published(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def cells(dtypes: str, rows: list[str]) -> dict[tuple[str, str], str]:
    names = dtypes.split()
    assert len(rows) == len(names)
    return {
        (row, column): cell
        for row, line in zip(names, rows, strict=True)
        for column, cell in zip(names, line.split(), strict=True)
    }


@dataclass(frozen=True)
class Published:
    """A table: the result of each pair in the order written, None where the publication has none."""

    name: str
    options: dict[str, str]
    cells: dict[tuple[DType, DType], DType | None]
    refusal: str
    """The error's text for a pair without a result."""

    @property
    def label(self) -> str:
        return " ".join([self.name, *self.options.values()])

    @property
    def dtypes(self) -> list[DType]:
        return list(dict.fromkeys(lhs for lhs, _ in self.cells))

    def refuses(self, lhs: DType, rhs: DType) -> str:
        """Return the cell of a pair; the two formats of 8 bits are one row of kernel_float's table."""
        return "do not mix" if {lhs, rhs} == set(FLOAT8) else self.refusal


def plain(table: dict[tuple[str, str], str]) -> dict[tuple[DType, DType], DType | None]:
    return {(DType.of(a), DType.of(b)): None if c == "-" else DType.of(c) for (a, b), c in table.items()}


def both_formats(table: dict[tuple[str, str], str]) -> dict[tuple[DType, DType], DType | None]:
    """kernel_float's float8 stands for two formats, of which each follows the row; it says nothing of both together."""
    results: dict[tuple[DType, DType], DType | None] = {}
    for (row, column), cell in table.items():
        for lhs, rhs in itertools.product(*(FLOAT8 if n == "float8" else (DType.of(n),) for n in (row, column))):
            if cell == "float8":
                own = {lhs, rhs} & set(FLOAT8)
                results[lhs, rhs] = own.pop() if len(own) == 1 else None
            else:
                results[lhs, rhs] = None if cell == "-" else DType.of(cell)
    return results


def _tables() -> Iterator[Published]:
    max_ = published("max")
    for name, key in (("max", "join"), ("max_published", "published")):
        yield Published(name, {}, plain(cells(max_["dtypes"], max_[key])), "")
    kernel = published("kernel_float")
    yield Published("kernel_float", {}, both_formats(cells(kernel["dtypes"], kernel["table"])), "is forbidden")
    anvil = published("anvil")
    yield Published("anvil", {}, plain(cells(anvil["dtypes"], anvil["known"])), "")
    # The standard's table has 13 dtypes; two are complex, which there are none of here.
    for profile in ("seed", "2025.12"):
        table = published("array_api")[profile]
        yield Published(
            "array_api",
            {"profile": profile},
            plain(cells(table["dtypes"], table["table"])),
            "is undefined by the array API standard",
        )


TABLES = list(_tables())
SIZES = {"max": (16, 0), "max_published": (16, 0), "kernel_float": (15, 34), "anvil": (11, 0)}
SIZES |= {"array_api seed": (11, 62), "array_api 2025.12": (11, 60)}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.label)
def test_table_is_whole_when_read(table: Published) -> None:
    count, refused = SIZES[table.label]
    assert len(table.dtypes) == count
    assert len(table.cells) == count**2
    assert sum(cell is None for cell in table.cells.values()) == refused


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.label)
def test_dtypes_meet_as_published_when_asked(table: Published) -> None:
    rules = system(table.name, **table.options)
    for (lhs, rhs), cell in table.cells.items():
        if cell is not None:
            assert implicit_cast_type(lhs, rhs, system=rules) is cell, (lhs, rhs)
            continue
        with pytest.raises(PromotionError, match=f"implicit_cast_type: .*{table.refuses(lhs, rhs)}") as raised:
            implicit_cast_type(lhs, rhs, system=rules)
        assert lhs.name in raised.value.summary
        assert rhs.name in raised.value.summary
        assert "cast" in raised.value.help


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.label)
def test_symbols_meet_as_published_when_added(table: Published) -> None:
    types = {d.name: TensorType(d, ["n"]) for d in table.dtypes}
    graph = Graph("all", types, promotion=system(table.name, **table.options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for (lhs, rhs), cell in table.cells.items():
            x, y = graph[lhs.name], graph[rhs.name]
            if table.name == "array_api" and lhs is rhs is DType.bool:
                # Sums are of numbers there; bools meet in ops that take them.
                with pytest.raises(PromotionError, match="add of bool is undefined by the array API standard"):
                    x + y
                assert ops.logical_and(x, y).dtype is cell
                continue
            if cell is not None:
                result = x + y
                assert result.dtype is cell, (lhs, rhs)
                assert all(s is not None and s.dtype is cell for s in graph.nodes[-1].inputs)
                continue
            count = len(graph.nodes)
            with pytest.raises(PromotionError, match=f"add: .*{table.refuses(lhs, rhs)}"):
                x + y
            assert len(graph.nodes) == count


def test_systems_refuse_in_the_words_of_their_kind() -> None:
    results = {}
    for name, pair in (("kernel_float", ("int8", "uint64")), ("array_api", ("int8", "uint64"))):
        with pytest.raises(PromotionError) as raised:
            implicit_cast_type(*pair, system=name)
        results[name] = raised.value.summary
    assert "forbidden" in results["kernel_float"]
    assert "undefined" not in results["kernel_float"]
    assert "undefined" in results["array_api"]
    assert "forbidden" not in results["array_api"]
    with pytest.raises(PromotionError, match="No hls type promotion rule for operator 'max' with operand types index"):
        implicit_cast_type("index", "float32", system="allo_hls")


# anvil: two flags


def _anvil() -> tuple[dict[tuple[DType, DType], DType | None], dict[tuple[DType, DType], bool]]:
    anvil = published("anvil")
    flags = cells(anvil["dtypes"], anvil["is_ambiguous"])
    return (
        plain(cells(anvil["dtypes"], anvil["ambiguous"])),
        {(DType.of(a), DType.of(b)): cell == "1" for (a, b), cell in flags.items()},
    )


AMBIGUOUS, FLAGS = _anvil()
KNOWN = next(t.cells for t in TABLES if t.name == "anvil")
ELEVEN = list(dict.fromkeys(lhs for lhs, _ in KNOWN))


def expected(lhs: DType, rhs: DType, lhs_ambiguous: bool, rhs_ambiguous: bool) -> tuple[DType | None, bool]:
    """The published answer: rows of the second table are ambiguous, columns are known."""
    if lhs_ambiguous is rhs_ambiguous:
        return KNOWN[lhs, rhs], lhs_ambiguous
    pair = (lhs, rhs) if lhs_ambiguous else (rhs, lhs)
    return AMBIGUOUS[pair], FLAGS[pair]


BOTH = list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize(("lhs_ambiguous", "rhs_ambiguous"), BOTH)
def test_anvil_meets_as_published_when_dtypes_are_guessed(lhs_ambiguous: bool, rhs_ambiguous: bool) -> None:
    for lhs, rhs in itertools.product(ELEVEN, repeat=2):
        answer = common_dtype(lhs, rhs, lhs_ambiguous, rhs_ambiguous)
        assert answer == expected(lhs, rhs, lhs_ambiguous, rhs_ambiguous), (lhs, rhs)


@pytest.mark.parametrize(("lhs_ambiguous", "rhs_ambiguous"), BOTH)
def test_anvil_symbols_meet_as_published_when_dtypes_are_guessed(lhs_ambiguous: bool, rhs_ambiguous: bool) -> None:
    types = {f"x_{d}": TensorType(d, ["n"], ambiguous=lhs_ambiguous) for d in ELEVEN}
    types |= {f"y_{d}": TensorType(d, ["n"], ambiguous=rhs_ambiguous) for d in ELEVEN}
    graph = Graph("all", types, promotion="anvil")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for lhs, rhs in itertools.product(ELEVEN, repeat=2):
            result = graph[f"x_{lhs}"] + graph[f"y_{rhs}"]
            assert (result.dtype, result.ambiguous) == expected(lhs, rhs, lhs_ambiguous, rhs_ambiguous), (lhs, rhs)


# array_api: Python scalars


@pytest.mark.parametrize(("op", "column"), [("add", "add"), ("equal", "eq")])
def test_array_api_scalars_meet_arrays_as_in_the_strict_implementation(op: str, column: str) -> None:
    table = published("array_api")["scalars"]
    values = {"bool": True, "int": 3, "float": 2.5}
    function = getattr(ops, op)
    for name, row in zip(table["dtypes"].split(), table[column], strict=True):
        (x,) = Graph("one", {"x": TensorType(name, ["n"])}, promotion="array_api").inputs
        for kind, cell in zip(table["columns"].split(), row.split(), strict=True):
            for item in ((x, values[kind]), (values[kind], x)):
                if cell != "-":
                    assert function(*item).dtype is DType.of(cell), (name, kind)
                    continue
                with pytest.raises(PromotionError, match="is undefined by the array API standard"):
                    function(*item)


# All of them


def test_systems_differ_as_compared() -> None:
    table = published("comparison")
    columns = table["columns"].split()
    graphs: dict[str, Graph] = {}
    assert len(table["rows"]) == 66
    for row in table["rows"]:
        cell = dict(zip(columns, row.split(), strict=True))
        for order in ((cell["lhs"], cell["rhs"]), (cell["rhs"], cell["lhs"])):
            for name in columns[2:-1]:
                if name == "allo_hls":  # what x + y grows to, not what the operands have in common
                    if name not in graphs:
                        types = {d.name: TensorType(d, ["n"]) for d in ELEVEN}
                        graphs[name] = Graph("all", types, promotion=name)
                    assert (graphs[name][order[0]] + graphs[name][order[1]]).dtype.name == cell[name], order
                elif cell[name] == "-":
                    with pytest.raises(PromotionError):
                        implicit_cast_type(*order, system=name)
                else:
                    assert implicit_cast_type(*order, system=name).name == cell[name], (name, order)


def test_documents_show_the_verdicts_of_the_comparison() -> None:
    table = published("comparison")
    results = {"all_defined_equal": "same", "some_undefined_rest_equal": "same where defined", "conflict": "conflict"}
    verdicts = {tuple(row.split()[:2]): results[row.split()[-1]] for row in table["rows"]}
    assert {row[:2]: row[-1] for row in disagreements()} == verdicts
