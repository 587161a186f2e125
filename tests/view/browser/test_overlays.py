"""Overlays: a colour for each node, a legend, and a table of the greatest."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import graphcore as gc
from graphcore.view.data import PageOptions, page_data
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, small, small_data, unet

pytestmark = pytest.mark.browser


@functools.cache
def against() -> Data:
    return page_data(small(longer=True), PageOptions(targets=[], against=small()))


def overlay_of(data: Data, name: str) -> Data:
    result: Data = next(one for one in data["overlays"] if one["name"] == name and one["of"] == -1)
    return result


@functools.cache
def profiled_unet() -> Data:
    graph = unet()
    model = gc.InferenceSession().load(graph)
    return page_data(
        graph, PageOptions(profile=model.profile(np.ones((1, 3, 64, 64), np.float32), runs=2), statistics=False)
    )


def test_table_has_the_greatest_first_when_time_is_shown(show: Show) -> None:
    data = profiled_unet()
    nodes = data["graph"]["nodes"]
    with show(data) as opened:
        opened.page.select_option("select[aria-label=Overlay]", label="time")
        numbers = overlay_of(data, "time")["numbers"]
        greatest = sorted(numbers, key=lambda entry: -entry[1])
        rows = opened.page.locator(".greatest tr").all_inner_texts()
        assert len(rows) == min(25, len(greatest))
        assert rows[0].split("\n")[0].strip() == nodes[greatest[0][0]]["name"]
        assert greatest[0][2] in rows[0]
        opened.page.click(".greatest button")
        assert nodes[greatest[0][0]]["name"] in opened.panel
        fill = "numbers => numbers.map(([node]) => graphcore.viewer.colour({ kind: 'node', node }).fill)"
        assert len(set(opened.page.evaluate(fill, numbers))) > 2


def test_group_has_the_sum_of_its_nodes_when_time_is_shown(show: Show) -> None:
    data = profiled_unet()
    nodes, groups = data["graph"]["nodes"], data["graph"]["groups"]
    with show(data) as opened:
        opened.page.select_option("select[aria-label=Overlay]", label="time")
        opened.page.evaluate("graphcore.viewer.closeAll()")
        shown = opened.page.evaluate(
            """graphcore.viewer.inside.boxes.filter(box => box.item.scope)
            .map(({ item }) => [item.scope.name, graphcore.painted.number(item.scope)])"""
        )
        assert len(shown) == len(groups)
        for name, total in shown:
            mine = [
                number
                for node, number, _ in overlay_of(data, "time")["numbers"]
                if nodes[node]["group"] >= 0 and groups[nodes[node]["group"]]["name"] == name
            ]
            assert (total or 0) == pytest.approx(sum(mine))


def test_legend_counts_each_word_when_dtypes_are_shown(show: Show) -> None:
    data = small_data()
    with show(data) as opened:
        opened.page.select_option("select[aria-label=Overlay]", label="dtype")
        words = [entry[1] for entry in overlay_of(data, "dtype")["words"]]
        rows = opened.page.locator(".legend li").all_inner_texts()
        assert {row.split()[0]: int(row.split()[1]) for row in rows} == {word: words.count(word) for word in words}
        opened.page.select_option("select[aria-label=Overlay]", label="none")
        assert opened.page.locator(".legend").count() == 0


def test_difference_lists_what_is_only_here_when_two_graphs_are_compared(show: Show) -> None:
    data = against()
    with show(data) as opened:
        opened.page.select_option("select[aria-label=Overlay]", label="difference")
        tanh = next(node["name"] for node in data["graph"]["nodes"] if node["op"] == "Tanh")
        assert tanh in opened.page.inner_text(".greatest")
        assert opened.page.inner_text(".legend").strip()


def test_overlay_of_the_lowered_graph_is_offered_when_that_is_shown(show: Show) -> None:
    data = small_data()
    with show(data) as opened:

        def offered() -> set[int]:
            options = opened.page.locator("select[aria-label=Overlay] option")
            values = options.evaluate_all("all => all.map(option => option.value)")
            return {data["overlays"][int(index)]["of"] for index in values[1:]}

        assert offered() == {-1}
        opened.page.select_option("select[aria-label=Graph]", label="lowered for cpu")
        opened.until("graphcore.view === 0")
        assert offered() == {0}
