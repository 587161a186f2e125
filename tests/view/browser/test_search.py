"""The search box: by name, operator, dtype and dim, with a list, a count, and the way to the next."""

from __future__ import annotations

import pytest

from tests.view.browser.conftest import Show
from tests.view.browser.graphs import large_data, small_data, unet_data

pytestmark = pytest.mark.browser

COUNTED = """query => {
  const text = String.prototype;
  const own = { includes: text.includes, toLowerCase: text.toLowerCase };
  const counts = { includes: 0, toLowerCase: 0 };
  for (const name of Object.keys(own)) text[name] = function (...operands) {
    counts[name] += 1;
    return own[name].apply(this, operands);
  };
  try {
    graphcore.search.search.find(query);
  } finally {
    Object.assign(text, own);
  }
  return [counts.includes, counts.toLowerCase];
}"""
"""A search, and how many texts it compares and how many it brings to lower case."""


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("matmul", 1),
        ("op:cast", 2),
        ("OP:Cast dtype:float32", 1),
        ("dtype:int8", 1),
        ("dim:32", 4),
        ("dim:batch op:exp", 1),
        ("name:head", 5),
        ("name:w", 1),
        ("float32[batch,32]", 4),
        ("op:cast op:exp", 0),
        ("dim:3", 0),
    ],
)
def test_search_counts_the_nodes_that_every_word_fits(show: Show, query: str, count: int) -> None:
    with show(small_data()) as opened:
        assert opened.search(query) == (f"{count} found" if count else "none")
        assert opened.page.locator(".results [role=option]").count() == count


def test_next_and_previous_go_round_when_keys_are_pressed_in_the_box(show: Show) -> None:
    with show(unet_data()) as opened:
        assert opened.search("op:concat") == "3 found"
        seen = []
        for key in ("Enter", "Enter", "Enter", "Enter", "Shift+Enter"):
            opened.page.keyboard.press(key)
            seen.append(opened.page.inner_text(".searching output"))
        assert seen == ["1 of 3", "2 of 3", "3 of 3", "1 of 3", "3 of 3"]
        assert opened.panel.startswith("Concat")


def test_node_is_selected_in_its_opened_group_when_a_result_is_pressed(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        opened.search("op:sigmoid")
        opened.search("op:resize name:up1")
        opened.page.click(".results [role=option]")
        opened.settled()
        assert opened.panel.startswith("Resize")
        assert any(box["open"] and box["title"] == "up1" for box in opened.boxes())
        assert opened.page.is_hidden(".results")


def test_closed_group_is_marked_when_a_result_is_inside(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        opened.search("op:concat")
        marked = opened.page.evaluate(
            """graphcore.viewer.inside.boxes.filter(({ item }) => graphcore.viewer.isFound(item))
            .map(({ item }) => item.scope.name)"""
        )
        assert marked == ["up2", "up1", "up0"]


def test_search_of_20_000_nodes_looks_at_each_once(show: Show) -> None:
    with show(large_data(layers=True)) as opened:
        assert opened.search("op:softmax") == "833 found"
        assert opened.page.locator(".results [role=option]").count() == 200
        assert "633 more" in opened.page.inner_text(".results .more")
        for query, fields in (("layer.400/", 4), ("op:softmax", 1), ("dim:8", 1)):
            compared, lowered = opened.page.evaluate(COUNTED, query)
            assert 20_000 <= compared <= fields * 20_000
            assert lowered == 1  # the query; the nodes were read before
        opened.page.keyboard.press("Enter")
        opened.until("document.querySelector('aside h2').textContent === 'Softmax'")
        assert opened.page.inner_text(".searching output") == "1 of 833"


@pytest.mark.parametrize(
    ("query", "similar"),
    [
        ("matmull", ["MatMul"]),
        ("op:exq", ["op:Exp"]),
        ("dim:bacth op:exp", ["dim:batch op:exp"]),
        ("dtype:flaot32", ["dtype:float32"]),
        ("scael", ["scale"]),
        ("op:cast op:exp", ["op:cast", "op:exp"]),
        ("qqqqqqqqqqqqqq", []),
    ],
)
def test_search_without_results_suggests_similar_queries(show: Show, query: str, similar: list[str]) -> None:
    with show(small_data()) as opened:
        assert opened.search(query) == "none"
        opened.page.keyboard.press("Enter")
        assert f"No node has {query}." in opened.page.inner_text(".results")
        assert opened.page.locator(".results button").all_inner_texts() == similar
        for suggestion in similar[:1]:
            opened.page.click(".results button")
            assert opened.page.input_value("input[type=search]") == suggestion
            assert opened.page.locator(".results [role=option]").count() > 0
