"""What is drawn: boxes that do not overlap, an edge for each use of a value, and edges that cross no box."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.view.data import PageOptions, page_data
from tests.support.browser import Opened
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, bodies_data, large_data, small_data, stacked, unet_data

pytestmark = pytest.mark.browser

Box = dict[str, Any]
STEPS = 24


def dense(length: int) -> Data:
    """Return the page of a chain in which each node also reads the first value, and the last one all of them."""
    graph = Graph("dense", {"x": TensorType(DType.float32, ["n"])})
    first = ops.exp(graph["x"])
    values = [first]
    for _ in range(length):
        values.append(ops.add(ops.tanh(values[-1]), first))
    graph.output(ops.concat(values, axis=0))
    return page_data(graph, PageOptions(targets=[]))


def tangled(seed: int) -> Data:
    """Return the page of a graph in which every node reads values of any earlier one, in layers at random."""
    chance = random.Random(seed)
    graph = Graph(f"tangled{seed}", {name: TensorType(DType.float32, ["n"]) for name in "abc"})
    values: list[Symbol] = [graph["a"], graph["b"], graph["c"]]
    for layer in range(5):
        with graph.layer(f"part{layer}"):
            for _ in range(chance.randint(2, 7)):
                with graph.layer(f"inner{chance.randint(0, 1)}"):
                    values.append(ops.add(chance.choice(values), chance.choice(values[-4:])))
    graph.output(values[-1], values[len(values) // 2])
    return page_data(graph, PageOptions(targets=[]))


GRAPHS: dict[str, Callable[[], Data]] = {
    "small": small_data,
    "unet": unet_data,
    "bodies": bodies_data,
    "dense": lambda: dense(60),
    "stacked": lambda: page_data(stacked(8), PageOptions(targets=[])),
    **{f"tangled{seed}": functools.partial(tangled, seed) for seed in range(4)},
}


def points(runs: list[list[float]]) -> list[tuple[float, float]]:
    """Return points along an edge: its straight runs, and the curves between them as the page draws them."""
    results: list[tuple[float, float]] = []
    for before, (x, start, end) in zip([None, *runs[:-1]], runs, strict=True):
        if before is not None:
            x0, y0 = before[0], before[2]
            middle = (y0 + start) / 2
            for step in range(1, STEPS):
                t = step / STEPS
                a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
                results.append(((a + b) * x0 + (c + d) * x, a * y0 + (b + c) * middle + d * start))
        results += [(x, start + (end - start) * step / STEPS) for step in range(STEPS + 1)]
    return results


def crossed(opened: Opened) -> list[str]:
    """Return the edges that cross boxes of their own scope, with the boxes."""
    boxes = opened.boxes()
    inside: dict[int, list[Box]] = {}
    for box in boxes:
        inside.setdefault(box["around"], []).append(box)
    results = []
    for route in opened.routes():
        beside = [box for box in inside[route["around"]] if box["index"] not in (route["from"], route["to"])]
        for x, y in points(route["runs"]):
            for box in beside:
                right, bottom = box["x"] + box["width"], box["y"] + box["height"]
                if box["x"] + 1 < x < right - 1 and box["y"] + 1 < y < bottom - 1:
                    results.append(f"{route['from']} to {route['to']} goes through {box['title']} at {x:.0f}, {y:.0f}")
    return results


def overlapping(boxes: list[Box]) -> list[str]:
    results = []
    for at, a in enumerate(boxes):
        for b in boxes[at + 1 :]:
            apart = (
                a["x"] + a["width"] <= b["x"] + 0.5
                or b["x"] + b["width"] <= a["x"] + 0.5
                or a["y"] + a["height"] <= b["y"] + 0.5
                or b["y"] + b["height"] <= a["y"] + 0.5
            )
            if a["around"] == b["around"] and not apart:
                results.append(f"{a['title']} and {b['title']}")
    return results


@pytest.mark.parametrize("name", GRAPHS)
def test_edges_cross_no_box_when_all_is_open_or_closed(show: Show, name: str) -> None:
    with show(GRAPHS[name]()) as opened:
        for call in ("openAll", "closeAll"):
            opened.page.evaluate(f"graphcore.viewer.{call}()")
            assert crossed(opened) == []
            assert overlapping(opened.boxes()) == []


@pytest.mark.parametrize("name", GRAPHS)
def test_boxes_lie_within_the_box_around_them_when_all_is_open(show: Show, name: str) -> None:
    with show(GRAPHS[name]()) as opened:
        opened.page.evaluate("graphcore.viewer.openAll()")
        boxes = opened.boxes()
        for box in boxes:
            if box["around"] < 0:
                continue
            around = boxes[box["around"]]
            assert around["x"] < box["x"] < box["x"] + box["width"] < around["x"] + around["width"], box
            assert around["y"] < box["y"] < box["y"] + box["height"] < around["y"] + around["height"], box


@pytest.mark.parametrize("name", GRAPHS)
def test_every_use_of_a_value_has_an_edge_when_all_is_open(show: Show, name: str) -> None:
    data = GRAPHS[name]()
    with show(data) as opened:
        opened.page.evaluate("graphcore.viewer.openAll()")
        arrivals = {
            tuple(item)
            for item in opened.page.evaluate(
                """() => {
                  const found = [];
                  const visit = inside => {
                    for (const route of inside.routes) {
                      const item = inside.boxes[route.to]?.item;
                      const node = item?.kind === "node" ? item.node : item?.kind === "scope" ? item.scope.node : -1;
                      for (const value of route.values) if (node >= 0) found.push([value, node]);
                    }
                    for (const box of inside.boxes) if (box.inside) visit(box.inside);
                  };
                  visit(graphcore.viewer.inside);
                  return found;
                }"""
            )
        }
        uses = {
            (value, at)
            for at, node in enumerate(data["graph"]["nodes"])
            for value in node["operands"]
            if value >= 0 and data["graph"]["values"][value]["kind"] not in ("weight", "constant")
        }
        assert uses <= arrivals


def test_group_opens_and_closes_when_its_sign_is_pressed(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        before = opened.boxes()
        down = next(box for box in before if box["title"] == "down0")
        camera = opened.page.evaluate("(({x, y, scale}) => ({x, y, scale}))(graphcore.viewer.camera)")
        canvas = opened.page.locator("main canvas.graph").bounding_box()
        assert canvas is not None

        def press(x: float, y: float) -> None:
            opened.page.mouse.click(
                canvas["x"] + camera["x"] + x * camera["scale"], canvas["y"] + camera["y"] + y * camera["scale"]
            )

        press(down["x"] + down["width"] - 14, down["y"] + 12)
        opened.until("graphcore.viewer.open.size === 1")
        opened.settled()
        assert len(opened.boxes()) > len(before)
        assert "down0" in opened.panel
        opened.page.keyboard.press("Enter")
        opened.until("graphcore.viewer.open.size === 0")
        opened.settled()
        assert opened.boxes() == before


def test_skips_pass_beside_the_groups_when_a_unet_is_closed(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        boxes = opened.boxes()
        ends = {(boxes[route["from"]]["title"], boxes[route["to"]]["title"]) for route in opened.routes()}
        assert {("down0", "up0"), ("down1", "up1"), ("down2", "up2"), ("down0", "down1")} <= ends


def test_graph_without_groups_is_drawn_in_sections_when_it_is_large(show: Show) -> None:
    data = dict(large_data(layers=False))
    flat = {**data["graph"], "groups": [], "nodes": [{**node, "group": -1} for node in data["graph"]["nodes"]]}
    with show({**data, "graph": flat}) as opened:
        boxes = opened.boxes()
        assert 100 < len(boxes) < 300
        assert crossed(opened) == []
        opened.select(data["graph"]["nodes"][-1]["name"])
        assert len(opened.boxes()) > len(boxes)
        assert "Identity" in opened.panel


def tied(layers: int) -> Data:
    """Return the page of layers that read one weight, each through an Identity, as exporters share weights."""
    graph = Graph("tied", {"x": TensorType(DType.float32, ["n", 4])})
    weight = graph.weight("shared", np.eye(4, dtype=np.float32))
    x = graph["x"]
    for _ in range(layers):
        (copy,) = graph.op("Identity", [weight])
        (copy,) = graph.op("Identity", [copy])
        x = ops.relu(x @ copy)
    (named,) = graph.op("Identity", [weight])
    graph.output(x, named)
    return page_data(graph, PageOptions(targets=[]))


def test_identity_of_a_weight_is_drawn_as_the_weight(show: Show) -> None:
    data = tied(55)
    with show(data) as opened:
        opened.page.evaluate("graphcore.viewer.openAll()")
        titles = [box["title"] for box in opened.boxes() if box["kind"] == "node"]
        assert {title: titles.count(title) for title in titles} == {"MatMul": 55, "Relu": 55, "Identity": 1}
        opened.select(next(node["name"] for node in data["graph"]["nodes"] if node["op"] == "MatMul"))
        assert "weight shared" in opened.panel
        assert opened.search("op:identity") == "111 found"
        opened.page.keyboard.press("Enter")
        opened.until("document.querySelector('aside h2').textContent === 'MatMul'")
        assert opened.page.evaluate("graphcore.viewer.isFound(graphcore.viewer.selected)")


def test_numbered_layers_are_joined_and_have_the_color_of_their_kind(show: Show) -> None:
    data = page_data(stacked(8), PageOptions(targets=[]))
    with show(data) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        blocks = [f"{kind}{number}" for number in range(3) for kind in ("block.", "pool")]
        titles = [box["title"] for box in opened.boxes() if box["kind"] == "scope"]
        assert titles == ["embed", "mol_layer ×8", *blocks, "head"]
        kinds = opened.page.evaluate(
            """graphcore.viewer.inside.boxes.filter(({ item }) => item.kind === "scope")
            .map(({ item }) => graphcore.viewer.faces.face(item).kind)"""
        )
        assert kinds == [-1, 0, 1, 2, 1, 2, 1, 2, -1]
        opened.select(next(node["name"] for node in data["graph"]["nodes"] if "mol_layer_5" in node["name"]))
        titles = [box["title"] for box in opened.boxes() if box["kind"] == "scope"]
        assert [title for title in titles if "mol" in title] == [
            "mol_layer ×8",
            *[f"mol_layer_{i + 1}" for i in range(8)],
        ]
        assert "mol_layer ×8" in opened.page.inner_text("aside nav")


@pytest.mark.parametrize("name", ["tangled0", "unet"])
def test_numbered_layers_stay_apart_when_others_read_them(show: Show, name: str) -> None:
    with show(GRAPHS[name]()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        assert not [box["title"] for box in opened.boxes() if "×" in box["title"]]
