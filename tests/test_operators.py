"""The rows of operators: they are complete, and their traits hold by ONNX's schemas and by its own evaluator."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema

from graphcore import DType
from graphcore.build.declare import BROADCASTING
from graphcore.operators import ONNX, REDUCTIONS, ROWS, Trait, having, traits
from graphcore.operators.onnx import OTHERS
from graphcore.operators.onnx import ROWS as OWN
from tests.support.operators.cases import Place
from tests.support.operators.wanted import wanted
from tools.kernel_probe.case import SWEPT, Case, Operand

Array = np.ndarray[Any, Any]

BY_DOMAIN = {"": OWN, **OTHERS}
SCHEMAS = {schema.name: schema for schema in onnx.defs.get_all_schemas() if schema.domain == "" and schema.name in ROWS}
GRAPHS = (OpSchema.AttrType.GRAPH, OpSchema.AttrType.GRAPHS)
DTYPES = (DType.int64, DType.float32, DType.bool)
"""The first of these that an operator has cases and values for is the one that it is tried in."""


def of(trait: Trait, *beside: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", sorted((having(trait) & SCHEMAS.keys()) - {*beside}))


def test_rows_of_every_operator_of_onnx() -> None:
    schemas = {
        (s.domain, s.name) for s in onnx.defs.get_all_schemas() if not s.domain or s.domain.startswith("ai.onnx")
    }
    assert not schemas - {(domain, name) for domain, table in BY_DOMAIN.items() for name in table}


def test_names_stand_for_one_operator() -> None:
    tables = [*BY_DOMAIN.values(), traits.ROWS]
    assert len({name for table in tables for name in table}) == sum(map(len, tables))


def test_declared_operators_that_broadcast() -> None:
    assert having(Trait.BROADCASTS) >= BROADCASTING


def test_having_unites_traits_and_is_cached() -> None:
    assert having(Trait.MOVES, Trait.FILLS) == having(Trait.MOVES) | having(Trait.FILLS)
    assert having(Trait.RECURRENT) == {"RNN", "GRU", "LSTM"}
    assert having(Trait.RECURRENT) is having(Trait.RECURRENT)
    assert "NotEqual" in having(Trait.COMPARES)
    assert "NotEqual" not in ONNX
    assert "ArrayFeatureExtractor" not in having(Trait.MOVES)


def test_every_trait_has_operators() -> None:
    assert all(having(trait) for trait in Trait)


def test_traits_that_imply_others() -> None:
    assert having(Trait.VIEWS) < having(Trait.MOVES)
    assert having(Trait.COMMUTATIVE) | having(Trait.COMPARES) < having(Trait.BROADCASTS) < having(Trait.ELEMENTWISE)
    assert having(Trait.RECURRENT) < having(Trait.PRODUCT)
    moving = having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.CARRIES, Trait.SELECTS)
    assert {name for name, row in ROWS.items() if row.data != (0,)} < moving


def test_schemas_with_graphs_have_bodies() -> None:
    for domain, table in BY_DOMAIN.items():
        for name in table:
            if domain or name in SCHEMAS:
                has = any(a.type in GRAPHS for a in onnx.defs.get_schema(name, domain).attributes.values())
                assert has == bool(table[name].traits & Trait.BODIES.value), name


def test_schemas_with_a_seed_are_random() -> None:
    assert {name for name, schema in SCHEMAS.items() if "seed" in schema.attributes} == having(Trait.RANDOM)


def test_schemas_of_reductions_have_axes() -> None:
    names = {n for n, s in SCHEMAS.items() if n.startswith("Reduce") and [i.name for i in s.inputs] == ["data", "axes"]}
    assert names == REDUCTIONS


def test_schemas_of_recurrent_operators_have_the_same_operands() -> None:
    first = ["X", "W", "R", "B", "sequence_lens", "initial_h"]
    assert {n for n, s in SCHEMAS.items() if [i.name for i in s.inputs][:6] == first} == having(Trait.RECURRENT)


def test_schemas_with_zero_points_are_quantized() -> None:
    def has_zero_point(schema: OpSchema) -> bool:
        return any("zero_point" in p.name.lower() for p in (*schema.inputs, *schema.outputs))

    assert {n for n, s in SCHEMAS.items() if has_zero_point(s)} == having(Trait.QUANTIZED) & SCHEMAS.keys()


def test_schemas_have_the_attribute_of_the_dtype() -> None:
    names = {"dtype", "to", "output_datatype"}
    results = {name: names & schema.attributes.keys() for name, schema in SCHEMAS.items()}
    assert results == {name: {ROWS[name].dtype_attribute} - {""} for name in SCHEMAS}


@pytest.mark.parametrize("name", sorted(having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.SELECTS) & SCHEMAS.keys()))
def test_schema_gives_the_dtype_of_the_data(name: str) -> None:
    schema, (result, *_) = SCHEMAS[name], SCHEMAS[name].outputs
    data = [p for i, p in enumerate(schema.inputs) if i in ROWS[name].data]
    assert data
    assert {p.type_str for p in data} == {result.type_str}


@of(Trait.BROADCASTS)
def test_schema_takes_operands_that_broadcast(name: str) -> None:
    assert SCHEMAS[name].max_input >= 2


@of(Trait.SIZED)
def test_schema_takes_integers_that_decide_sizes(name: str) -> None:
    assert any({"tensor(int64)", "tensor(int32)"} & {*p.types} for p in SCHEMAS[name].inputs)


@of(Trait.POSITIONS)
def test_schema_gives_positions(name: str) -> None:
    results = SCHEMAS[name].outputs[name in having(Trait.SELECTS) :]
    assert results
    assert all({*p.types} <= {"tensor(int64)", "tensor(int32)"} for p in results)


@of(Trait.COMPARES)
def test_schema_compares_two_operands(name: str) -> None:
    schema = SCHEMAS[name]
    assert (schema.min_input, schema.max_input, {*schema.outputs[0].types}) == (2, 2, {"tensor(bool)"})


# By ONNX's own evaluator, or by a formula of what ONNX says


def tried(name: str) -> list[tuple[Place, Case, list[Any]]]:
    """Return the cases of an operator that have values, with their results."""
    for dtype in DTYPES:
        place = Place("", name, dtype)
        cases = [c for c in place.cases if c.only is None or dtype in c.only]
        results = [(place, case, result) for case in cases if (result := wanted(place, case)) is not None]
        if results:
            return results
    return []


def operands(place: Place, case: Case) -> list[Array | None]:
    return [operand.array(place.dtype) if isinstance(operand, Operand) else None for operand in case.inputs]


def elements(arrays: Iterable[Array | None]) -> set[Any]:
    return {element for array in arrays if array is not None for element in np.asarray(array).ravel().tolist()}


def told_apart(case: Case, data: Container[int]) -> Case:
    """Return a case whose operands of data have other elements each, all of them negative."""
    inputs = list(case.inputs)
    for i, operand in enumerate(inputs):
        if i in data and isinstance(operand, Operand) and operand.dtype == SWEPT:
            inputs[i] = replace(operand, values=tuple(-1 - 64 * i - k for k in range(64)))
    return replace(case, inputs=tuple(inputs))


@pytest.mark.parametrize("name", sorted(having(Trait.MOVES, Trait.FILLS, Trait.JOINS, Trait.SELECTS) & SCHEMAS.keys()))
def test_results_have_elements_of_the_data(name: str) -> None:
    cases = [(place, told_apart(case, ROWS[name].data)) for place, case, _ in tried(name)]
    cases = [(place, case) for place, case in cases if case.attributes.get("reduction", "none") == "none"]
    selects, match = name in having(Trait.SELECTS), set()
    for place, case in cases:
        result = wanted(place, case)
        assert result is not None
        value = operands(place, case)
        data = [elements([array]) if i in ROWS[name].data else set() for i, array in enumerate(value)]
        bounds = {0} | elements(value) if selects else {0} if name in having(Trait.FILLS) else set()
        results = elements(result[: 1 if name in having(Trait.POSITIONS) else None])
        assert results <= bounds.union(*data), case
        match |= {i for i, own in enumerate(data) if results & own}
        if name in having(Trait.VIEWS):
            assert value[0] is not None
            assert value[0].ravel().tolist() == result[0].ravel().tolist()
    assert selects or match == {i for _, case in cases for i in range(len(case.inputs)) if i in ROWS[name].data}


@of(Trait.COMMUTATIVE)
def test_results_of_operands_that_change_places(name: str) -> None:
    cases = tried(name)
    assert cases
    for place, case, (item,) in cases:
        turned = wanted(place, replace(case, inputs=case.inputs[::-1]))
        assert turned is not None
        assert np.array_equal(turned[0], item)


@of(Trait.RING)
def test_low_bits_of_results(name: str) -> None:
    """Adding 256 to elements changes nothing of the last 8 bits."""
    cases = tried(name)
    assert cases
    assert cases[0][0].dtype is DType.int64
    for place, case, item in cases:
        raised = tuple(
            replace(o, values=tuple(float(v) + 256 for v in o.values))
            if isinstance(o, Operand) and o.dtype == SWEPT
            else o
            for o in case.inputs
        )
        others = wanted(place, replace(case, inputs=raised))
        assert others is not None
        assert all(np.array_equal(a & 255, b & 255) for a, b in zip(others, item, strict=True)), case


@of(Trait.TYPE_ONLY, *having(Trait.RANDOM), *having(Trait.CARRIES))
def test_results_of_other_elements_are_the_same(name: str) -> None:
    cases = tried(name)
    assert cases
    for place, case, (item,) in cases:
        others = tuple(replace(o, values=(7, 0)) if isinstance(o, Operand) else o for o in case.inputs)
        again = wanted(place, replace(case, inputs=others))
        assert again is not None
        assert np.array_equal(again[0], item)
