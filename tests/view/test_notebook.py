"""Tests of what notebooks show: layouts, drawings of graphs and Symbols, tables."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Dim, DType, Graph, Shape, TensorType, ops
from graphcore.promotion.explanations import explain
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType
from graphcore.view.graph_data import layout
from graphcore.view.notebook import SMALL, graph_svg
from tests.support.drawn_graphs import branching, called, mixed, unet

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str | None) -> ET.Element:
    assert text is not None
    return ET.fromstring(text)


def titles(root: ET.Element) -> list[str]:
    return [(box.find(f"{SVG}text").text or "") for box in root.iter(f"{SVG}g")]  # type: ignore[union-attr]


def boxes(root: ET.Element) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each box."""
    results = [
        {key: float(rect.attrib[key]) for key in ("x", "y", "width", "height")} for rect in root.iter(f"{SVG}rect")
    ]
    return [(r["x"], r["y"], r["x"] + r["width"], r["y"] + r["height"]) for r in results]


def lines(root: ET.Element) -> list[list[tuple[float, float]]]:
    """Return the ends of the pieces of each edge, in order."""
    results = []
    for path in root.findall(f"{SVG}path"):
        pieces = re.findall(r"([MLC])([^MLC]*)", path.attrib["d"])
        numbers = [[float(n) for n in text.split()] for _, text in pieces]
        results.append([(row[-2], row[-1]) for row in numbers])
    return results


# Layouts

edges_of = st.integers(2, 14).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 2), st.integers(1, count - 1)).filter(lambda e: e[0] < e[1]),
            max_size=30,
            unique=True,
        ),
    )
)


@given(edges_of)
def test_edges_go_down_and_nothing_overlaps(drawing: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = drawing
    widths = [40.0 + 17 * (i % 3) for i in range(count)]
    result = layout(widths, edges)
    for (start, end), route in zip(edges, result.routes, strict=True):
        assert result.ranks[start] < result.ranks[end]
        assert len(route) == result.ranks[end] - result.ranks[start] - 1
    for rank in set(result.ranks):
        own = [(result.centres[i] - widths[i] / 2, result.centres[i] + widths[i] / 2) for i in range(count)]
        row = sorted(own[i] for i in range(count) if result.ranks[i] == rank)
        row += [(x, x) for e, r in zip(edges, result.routes, strict=True) for x in _at(r, result.ranks[e[0]], rank)]
        for (_, right), (left, _) in itertools.pairwise(sorted(row)):
            assert right < left + 1e-6
    assert all(
        c - w / 2 >= -1e-6 and c + w / 2 <= result.width + 1e-6 for c, w in zip(result.centres, widths, strict=True)
    )


def _at(route: tuple[float, ...], start: int, rank: int) -> list[float]:
    return [route[rank - start - 1]] if 0 < rank - start <= len(route) else []


def test_layout_of_nothing_is_empty() -> None:
    assert layout([], []).width == 0
    assert layout([10.0], []).centres == (5.0,)


def test_crossings_that_need_not_be_are_taken_out() -> None:
    result = layout([10.0] * 6, [(0, 5), (1, 4), (2, 3)])
    order = sorted(range(3), key=lambda i: result.centres[i])
    below = sorted(range(3, 6), key=lambda i: result.centres[i])
    assert [5 - i for i in order] == below


def test_chain_is_straight() -> None:
    result = layout([10.0, 80.0, 30.0], [(0, 1), (1, 2)])
    assert len({round(centre, 6) for centre in result.centres}) == 1


# Drawings


@pytest.mark.parametrize("graph", [mixed, unet, called, branching], ids=lambda graph: graph.__name__)
def test_drawing_has_a_box_for_each_node_and_end(graph: Any) -> None:
    built = graph()
    root = drawn(graph_svg(built))
    assert len(boxes(root)) == len(built.inputs) + len(built.nodes) + len(built.outputs)
    for (a, b), (c, d) in itertools.combinations([(box[:2], box[2:]) for box in boxes(root)], 2):
        assert b[0] <= c[0] or d[0] <= a[0] or b[1] <= c[1] or d[1] <= a[1]


def test_skips_go_around_what_lies_between() -> None:
    root = drawn(graph_svg(unet()))
    assert titles(root).count("Concat") == 3
    long = [edge for edge in lines(root) if len(edge) > 4]
    assert len(long) == 3
    for edge in long:
        for (x, top), (below_x, bottom) in itertools.pairwise(edge):
            if x == below_x:  # within a rank
                inside = [box for box in boxes(root) if box[0] < x < box[2] and top < box[3] and bottom > box[1]]
                assert not [box for box in inside if top + 1 < box[3] and bottom - 1 > box[1]]


def test_box_shows_types_constants_and_why_a_cast_stands_there() -> None:
    root = drawn(graph_svg(mixed()))
    text = [element.text for element in root.iter(f"{SVG}text")]
    assert "w float32[64, 32]" in text
    assert "bfloat16[batch, 64]" in text
    hints = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert any("bfloat16 and int8 meet in bfloat16" in hint for hint in hints)
    assert any("drawn_graphs.py:" in hint for hint in hints)


def test_graph_is_drawn_up_to_a_size() -> None:
    def chain(count: int) -> Graph:
        graph = Graph("g", {"x": TensorType(DType.float32, [4])})
        y = graph["x"]
        for _ in range(count):
            y = ops.exp(y)
        graph.output(y)
        return graph

    assert len(boxes(drawn(chain(SMALL)._repr_svg_()))) == SMALL + 2
    assert chain(SMALL)._repr_html_() == chain(SMALL)._repr_svg_()
    assert chain(SMALL + 1)._repr_svg_() is None


def test_empty_and_unfinished_graphs_are_drawn() -> None:
    assert boxes(drawn(Graph("g")._repr_svg_())) == []
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    ops.exp(graph["x"])
    assert titles(drawn(graph._repr_svg_())) == ["x", "Exp"]


def test_symbol_draws_what_it_is_made_of() -> None:
    graph = mixed()
    root = drawn(graph["head/mat_mul_9"]._repr_svg_())
    assert titles(root) == ["q", "x", "Cast", "Mul", "Exp", "Add", "Cast", "MatMul", "head/mat_mul_9"]
    assert titles(drawn(graph["x"]._repr_svg_())) == ["x", "x"]
    assert "float32[batch, 32]" in graph["head/mat_mul_9"]._repr_html_()
    assert graph["w"]._repr_svg_().startswith("<svg")


def test_symbol_of_a_large_graph_draws_the_nearest_nodes() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    y = graph["x"]
    for _ in range(200):
        y = ops.exp(y)
    root = drawn(y._repr_svg_())
    assert titles(root)[0].startswith("exp_")  # what stands for the rest
    assert titles(root).count("Exp") == 24


# Tables and short texts


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (DType.bfloat16, "<code>bfloat16</code>"),
        (Dim("batch") * 2, "<code>2 * batch</code>"),
        (Shape(["n", 4]), "<code>[n, 4]</code>"),
        (TensorType(DType.float32, ["n", 4]), "<code>float32[n, 4]</code>"),
        (SequenceType(TensorType(DType.int8, [])), "<code>seq(int8[])</code>"),
        (OptionalType(TensorType(DType.int8, [])), "<code>optional(int8[])</code>"),
        (OpaqueType("<map>"), "<code>&lt;map&gt;</code>"),
    ],
)
def test_types_and_dims_are_code(value: Any, expected: str) -> None:
    assert value._repr_html_() == expected


def cells(text: str) -> list[list[str]]:
    root = ET.fromstring(text)
    assert root.tag == "table"
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_answers_of_promotion_are_a_table() -> None:
    head, row = cells(explain(DType.int8, DType.bfloat16)._repr_html_())
    assert head == ["system", "dtype", "reason"]
    assert row == ["max", "bfloat16", "int8 < int16 < int32 < int64 < float16 < bfloat16"]


def test_model_profile_placement_and_report_are_tables() -> None:
    graph = Graph("scale", {"x": TensorType(DType.float32, ["n", 64])})
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph.output(y=graph["x"] @ graph.weight("w", w))
    model = gc.InferenceSession().load(graph)
    assert cells(model._repr_html_())[1:] == [["input", "x", "float32[n, 64]"], ["output", "y", "float32[n, 64]"]]
    profile = model.profile(np.ones((2, 64), np.float32), runs=2)
    head, *rows = cells(profile._repr_html_())
    assert head == ["us a run", "share", "operator", "name"]
    assert ["MatMul", "y"] in [row[2:] for row in rows]
    assert profile._repr_html_().count("<tr>") == str(profile).count("\n") + 1
    assert cells(model.placement()._repr_html_()) == [["nodes", "operator", "provider", "reason"]]
    report = gc.quantize(graph).report
    head, row = cells(report._repr_html_())
    assert head == ["layer", "operator", "weight", "shape", "scheme", "before", "after", "error"]
    assert row[1:5] == ["MatMul", "w", "64x64", report.rows[0].scheme]
    assert str(report).rpartition("\n")[2] in ET.fromstring(report._repr_html_()).itertext()
