"""The panel beside the drawing: what is known of a node, and the way from it to others."""

from __future__ import annotations

import pytest

from graphcore.view.data import PageOptions, page_data
from tests.support.browser import as_json
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, bodies_data, small, small_data

pytestmark = pytest.mark.browser


def node_of(data: Data, op: str, at: int = 0) -> str:
    return str([node["name"] for node in data["graph"]["nodes"] if node["op"] == op][at])


def test_reason_of_a_cast_is_told_when_promotion_inserted_it(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "Cast"))
        cast = next(node["cast"] for node in data["graph"]["nodes"] if node["op"] == "Cast")
        why = opened.page.inner_text("aside .why")
        assert "Inserted by the promotion system max" in why
        assert "bfloat16 with int8 → bfloat16" in why
        assert cast["words"] in why
        assert 'y = graph["x"] * graph["q"]' in opened.panel
        assert "graphs.py:" in opened.panel


def test_cast_is_told_apart_when_the_user_wrote_it(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "Cast", 1))
        why = opened.page.inner_text("aside .why")
        assert "written at graphs.py:" in why
        assert "Inserted" not in why


def test_types_and_parameters_are_told_of_operands_and_results(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "MatMul"))
        text = opened.panel
        assert "float32[batch, 64]" in text
        assert "float32[64, 32]" in text
        assert "float32[batch, 32]" in text
        assert "weight w" in text
        assert "8.19 KB" in text


def test_neighbour_is_selected_when_its_link_is_pressed(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "MatMul"))
        opened.page.click("aside .links button:has-text('Relu')")
        assert opened.panel.startswith("Relu")
        opened.page.click("aside .links button:has-text('MatMul')")
        assert opened.panel.startswith("MatMul")


def test_lowering_is_shown_side_by_side_when_asked(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "Exp"))
        reason = next(node["lowered"][0]["reason"] for node in data["graph"]["nodes"] if node["op"] == "Exp")
        assert reason
        assert reason in opened.panel
        opened.page.click("aside button:has-text('Before and after')")
        opened.page.wait_for_selector("dialog[data-ready]")
        text = opened.page.inner_text("dialog")
        result = next(node["lowered"][0]["nodes"] for node in data["graph"]["nodes"] if node["op"] == "Exp")
        assert "Before: 1 node" in text
        assert f"{len(result)} nodes" in text
        assert reason in text
        labels = opened.page.locator("dialog canvas").evaluate_all(
            "found => found.map(one => one.getAttribute('aria-label'))"
        )
        assert labels[0] == "Before: Exp"
        assert "Exp" in labels[1]
        opened.page.keyboard.press("Escape")
        opened.page.wait_for_selector("dialog", state="detached")


def test_lowered_graph_leads_back_when_a_node_of_it_is_selected(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "Exp"))
        opened.page.select_option("select[aria-label=Graph]", label="lowered for cpu")
        opened.until("graphcore.view === 0 && graphcore.viewer.selected !== null")
        assert "REPLACES" in opened.panel.upper()
        opened.page.click(f"aside .links button:has-text('{node_of(data, 'Exp')}')")
        opened.until("graphcore.view === -1")
        assert opened.panel.startswith("Exp")


def test_time_and_memory_are_told_when_the_graph_was_profiled(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "MatMul"))
        assert "time" in opened.panel
        assert "memory" in opened.panel
        assert "CPUExecutionProvider" in opened.panel


def test_statistics_have_a_histogram_when_a_weight_is_read(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.select(node_of(data, "MatMul"))
        text = opened.page.inner_text("aside .statistics")
        assert "2,048" in text
        assert "-1" in text
        assert opened.page.locator("aside .histogram rect").count() == len(
            next(value["statistics"]["histogram"] for value in data["graph"]["values"] if value["name"] == "w")
        )


def test_statistics_without_numbers_are_told_when_everything_is_nan(show: Show) -> None:
    data = as_json(small_data())
    weight = next(value for value in data["graph"]["values"] if value["name"] == "w")
    weight["statistics"] |= {"min": None, "max": None, "mean": None, "nan": 2048, "histogram": []}
    with show(data) as opened:
        opened.select(node_of(data, "MatMul"))
        assert "2,048" in opened.page.inner_text("aside .statistics")
        assert opened.page.locator("aside .histogram").count() == 0


def test_left_out_operand_is_told_when_a_loop_has_no_count(show: Show) -> None:
    data = bodies_data()
    with show(data) as opened:
        opened.select(node_of(data, "Loop"))
        assert "left out" in opened.panel


def test_failure_is_told_when_a_graph_could_not_be_lowered(show: Show) -> None:
    data = page_data(small(), PageOptions(targets=[])) | {"failures": [{"target": "cpu", "reason": "no kernel for it"}]}
    with show(data) as opened:
        assert "no kernel for it" in opened.panel


def test_node_without_anything_is_described_when_selected(show: Show) -> None:
    data = as_json(page_data(small(), PageOptions(targets=[])))
    data["graph"]["nodes"][0] |= {"operands": [], "operandNames": [], "attributes": []}
    for key in ("source", "cast"):
        data["graph"]["nodes"][0].pop(key, None)
    with show(data) as opened:
        opened.select(data["graph"]["nodes"][0]["name"])
        assert opened.panel.startswith("Cast")
