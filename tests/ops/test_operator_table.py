"""docs/operators.md is true: its cells are built and lowered again, and those that are said to run are run."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import graphcore as gc
from docs.operator_tables import operators_page, state
from graphcore.errors import DTypeError, GraphcoreError
from graphcore.onnx.schemas.catalogue import names
from tests.support.operators.cases import DTYPES, FURTHER, MAPS, ML, Place, every
from tests.support.operators.cells import NEAR, NOT_LOWERED, NOT_RUN, OF_SIZES, lowered, ran

ROOT = Path(__file__).parents[2]
ONNX = "1.23."
"""The version whose operators the page has."""

CHUNKS = 16
IS_KNOWN = onnx.__version__.startswith(ONNX)
OPERATORS = [(domain, name) for domain, name in every() if name not in MAPS] if IS_KNOWN else []
PLACES = [Place(domain, name, dtype) for domain, name in OPERATORS for dtype in (*DTYPES, *FURTHER)]


@pytest.mark.docs
def test_page_of_operators_says_what_is_so_when_made_anew() -> None:
    if IS_KNOWN:
        result = operators_page()
        assert (ROOT / "docs" / "operators.md").read_text() == result, "run python docs/make_tables.py"


@pytest.mark.docs
def test_page_has_every_operator_and_no_empty_cell() -> None:
    if not IS_KNOWN:
        return
    rows = [line for line in (ROOT / "docs" / "operators.md").read_text().splitlines() if line.startswith("| `")]
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.count("|") > 4]
    labels = [row[0].strip("`") for row in table]
    domains = (ML, "ai.onnx.preview", "ai.onnx.preview.training")
    others = [f"{domain.removeprefix('ai.onnx.')}.{name}" for domain in domains for name in names(domain)]
    assert sorted(labels) == sorted([*names(""), *others])
    assert {len(row) for row in table} == {len(DTYPES) + 4}
    assert all(cell for row in table for cell in row)


@pytest.mark.full
def test_cells_that_end_before_run_are_those_with_a_reason() -> None:
    if not IS_KNOWN:
        return
    assert _ended(PLACES) == (set(NOT_LOWERED), set(NOT_RUN))
    assert all(reason.endswith(".") for reason in (*NOT_LOWERED.values(), *NOT_RUN.values()))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cells_without_a_run_chunk(chunk: int) -> None:
    places = _chunk(PLACES, chunk)
    keys = {(p.name, p.dtype) for p in places}
    assert _ended(places) == (keys & set(NOT_LOWERED), keys & set(NOT_RUN))


def _ended(places: list[Place]) -> tuple[set[tuple[str, gc.DType]], set[tuple[str, gc.DType]]]:
    """Return the cells that are built and not lowered, and those that are lowered and not run."""
    reached = {(p.name, p.dtype): state(p.domain, p.name, p.dtype)[0] for p in places}
    built = {key for key, stage in reached.items() if stage == "built"}
    return built, {key for key, stage in reached.items() if stage == "lowered"}


def _chunk(places: list[Place], chunk: int) -> list[Place]:
    return places[chunk::CHUNKS]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cells_that_are_said_to_run_give_the_numbers_of_onnx(chunk: int) -> None:
    assert not _wrong(_chunk(PLACES, chunk), named=False)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cells_run_on_dims_that_only_have_names(chunk: int) -> None:
    places = [p for p in _chunk(PLACES, chunk) if (p.name, p.dtype) not in OF_SIZES]
    assert not _wrong(places, named=True)


@pytest.mark.parametrize(("name", "dtype"), OF_SIZES)
def test_sizes_that_must_be_known_are_asked_for_in_words(name: str, dtype: gc.DType) -> None:
    place = Place("", name, dtype)
    session = gc.InferenceSession()
    with pytest.raises(GraphcoreError):
        session.load(place.graph(place.cases[0], named=True))


def _wrong(places: list[Place], named: bool) -> dict[tuple[str, str], dict[int, str]]:
    """Return the differences from ONNX of those cells that are said to run."""
    session = gc.InferenceSession(intra_op_num_threads=1)
    wrong = {}
    for place in places:
        if state(place.domain, place.name, place.dtype)[0] != "run":
            continue
        allowed = ("", "near") if place.name in NEAR else ("",)
        results = {case: item for case, item in ran(place, session, named=named).items() if item not in allowed}
        if results:
            wrong[place.name, place.dtype.name] = results
    return wrong


UNCHECKED = {
    "MeanVarianceNormalization": "ONNX's inference does not take the body that ONNX gives it.",
    "Optional": "Of some dtypes it has them since opset 28, and 26 is written.",
    "OptionalGetElement": "So have these, of an Optional.",
    "OptionalHasElement": "So have these, of an Optional.",
}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_files_of_cells_are_valid_onnx(chunk: int) -> None:
    for place in _chunk(PLACES, chunk):
        if place.name in UNCHECKED or lowered(place).state == "-":
            continue
        for case in place.cases:
            onnx.checker.check_model(place.graph(case).to_onnx(target="onnx"), full_check=True)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_dashes_are_what_onnx_itself_refuses(chunk: int) -> None:
    for place in _chunk(PLACES, chunk):
        if lowered(place).state != "-" or not place.cases:
            continue
        with pytest.raises(DTypeError, match=r"does not take|unsupported type"):
            place.graph(place.cases[0])
        with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
            onnx.checker.check_model(place.question(place.cases[0]).model, full_check=True)


@pytest.mark.parametrize(("name", "dtype"), NOT_RUN)
def test_what_onnxruntime_cannot_give_is_refused_in_words(name: str, dtype: gc.DType) -> None:
    place = Place("", name, dtype)
    graph = place.graph(place.cases[0])
    with pytest.raises(GraphcoreError, match=r"onnxruntime has no (sequences|optionals) of"):
        gc.InferenceSession().load(graph)
