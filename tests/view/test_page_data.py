"""Tests of the data of the page: held against model.ts, and what it says of graphs, lowering and profiles."""

from __future__ import annotations

import base64
import copy
import io
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, GraphError
from graphcore.runtime.inspection.placement import Placed, Placement
from graphcore.runtime.inspection.profiling import Kernel, Profile
from graphcore.view.data import PageOptions, page_data
from tests.support.calls import growth
from tests.support.drawn_graphs import ALL, branching, called, exported, mixed
from tests.support.page_schema import dangling, faults


def node(page: dict[str, Any], name: str) -> dict[str, Any]:
    (result,) = [dict(each) for each in page["graph"]["nodes"] if each["name"] == name]
    return result


def overlays(page: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [each for each in page["overlays"] if each["kind"] == kind]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("targets", [None, (), ("cpu", "onnx")])
def test_data_are_as_the_model_says(name: str, targets: Any) -> None:
    page = page_data(ALL[name](), PageOptions(targets=targets))
    assert not faults(page)
    assert not dangling(page)
    assert json.loads(json.dumps(page, allow_nan=False)) == page


def test_check_finds_what_is_wrong() -> None:
    page = page_data(mixed(), PageOptions(targets=()))
    changes: list[Callable[[Any], object]] = [
        lambda p: p["graph"]["nodes"][0].pop("op"),
        lambda p: p["graph"]["nodes"][0].update(group="no number"),
        lambda p: p["graph"]["values"][0].update(kind="other"),
        lambda p: p["overlays"][0].update(extra=1),
        lambda p: p.update(format=2),
    ]
    for change in changes:
        wrong = copy.deepcopy(page)
        change(wrong)
        assert faults(wrong)
    changes = [
        lambda p: p["graph"]["nodes"][1]["operands"].append(1000),
        lambda p: p["graph"]["nodes"][1].update(name=p["graph"]["nodes"][0]["name"]),
        lambda p: p["graph"]["groups"][0].update(parent=0),
        lambda p: p["overlays"][0]["words"].append([99, "a", "b"]),
    ]
    for change in changes:
        wrong = copy.deepcopy(page)
        change(wrong)
        assert dangling(wrong)


def test_node_has_what_it_was_built_of() -> None:
    page = page_data(mixed())
    result = node(page, "head/mat_mul_9")
    assert (result["op"], result["domain"], result["operandNames"]) == ("MatMul", "", ["A", "B"])
    assert page["graph"]["groups"][result["group"]]["name"] == "head"
    weight = page["graph"]["values"][result["operands"][1]]
    assert (weight["name"], weight["kind"], weight["dtype"], weight["shape"]) == (
        "w",
        "weight",
        "float32",
        ["64", "32"],
    )
    assert weight["bytes"] == 64 * 32 * 4
    assert (weight["statistics"]["min"], weight["statistics"]["max"]) == (-1.0, 1.0)
    assert result["source"]["text"] == "z = ops.relu(y.cast(DType.float32) @ w)"
    assert result["source"]["file"].endswith("drawn_graphs.py")
    (one,) = [v for v in page["graph"]["values"] if v["kind"] == "constant" and v["dtype"] == "bfloat16"]
    assert (one["text"], one["shape"]) == ("1.0", [])
    total = node(page, "head/reduce_sum_12")
    assert ["keepdims", "1"] in total["attributes"]


def test_cast_has_its_reason_and_what_lowering_made_of_it() -> None:
    page = page_data(mixed())
    cast = node(page, "scale/cast_3")
    assert cast["cast"]["implicit"]
    assert cast["cast"]["pair"] == ["bfloat16", "int8"]
    assert cast["cast"]["words"].startswith("bfloat16 and int8 meet in bfloat16: bfloat16 > float16")
    (lowered,) = page["lowered"]
    assert lowered["target"] == "cpu"
    assert [step["name"] for step in lowered["passes"]] == ["legalise", "notes"]
    (stands,) = node(page, "scale/exp_5")["lowered"]
    assert stands["reason"] == "no kernel; computed in float32 and rounded"
    names = [lowered["graph"]["nodes"][i]["op"] for i in stands["nodes"]]
    assert "Exp" in names
    assert all(lowered["graph"]["nodes"][i]["source"]["text"] == "y = ops.exp(y) + 1" for i in stands["nodes"])
    reasons = [n["cast"]["words"] for n in lowered["graph"]["nodes"] if n.get("cast")]
    assert cast["cast"]["words"] in reasons
    assert "lowering: no kernel; computed in float32 and rounded" in reasons


def test_nodes_that_run_as_they_stand_have_no_detour() -> None:
    page = page_data(mixed(), PageOptions(targets=("onnx",)))
    assert [n["lowered"] for n in page["graph"]["nodes"]] == [
        [{"target": 0, "nodes": [i], "reason": ""}] for i in range(9)
    ]


def test_bodies_and_functions_are_groups() -> None:
    page = page_data(branching(), PageOptions(targets=()))
    graph = page["graph"]
    bodies = [group for group in graph["groups"] if group["kind"] == "body"]
    owners = [(graph["nodes"][g["owner"]]["op"], g["name"]) for g in bodies]
    assert owners == [
        ("Loop", "body"),
        ("If", "then_branch"),
        ("If", "else_branch"),
        ("If", "then_branch"),
        ("If", "else_branch"),
        ("Loop", "body"),
    ]
    assert [value["kind"] for i in bodies[0]["inputs"] for value in [graph["values"][i]]] == ["input"] * 3
    names = {n["name"]: n for n in graph["nodes"]}
    inner = names["choose/if_9/else_branch/choose/if_6/else_branch/choose/add_2"]
    assert graph["values"][inner["operands"][1]]["name"] == "limit"  # the value of the graph around it
    function = page_data(called(), PageOptions(targets=()))["graph"]
    (group,) = [group for group in function["groups"] if group["kind"] == "function"]
    assert (group["name"], group["nodes"], group["owner"]) == ("dense", 2, -1)
    calls = [n for n in function["nodes"] if n["bodies"]]
    assert [(n["op"], n["operandNames"]) for n in calls] == [("dense", ["x", "w"])] * 4


def test_call_has_what_stands_for_its_function_there() -> None:
    page = page_data(called())
    lowered = page["lowered"][0]["graph"]["nodes"]
    calls = [n for n in page["graph"]["nodes"] if n["bodies"]]
    stands = [n["lowered"][0]["nodes"] for n in calls]
    assert [[lowered[i]["op"] for i in each] for each in stands] == [["MatMul", "Relu"]] * 4
    assert sorted(i for each in stands for i in each) == list(range(8))
    assert {n["lowered"][0]["reason"] for n in calls} == {"replaced by its body"}
    (product,) = [n for n in page["graph"]["nodes"] if n["op"] == "MatMul"]
    assert len(product["lowered"][0]["nodes"]) == 4
    assert product["lowered"][0]["reason"] == ""


def test_third_party_models_have_layers_and_no_lines_of_ours() -> None:
    page = page_data(exported(3))
    assert all("source" not in each for each in page["graph"]["nodes"])
    assert {group["name"] for group in page["graph"]["groups"]} >= {"encoder", "layer.1", "attention"}


def test_unfinished_graph_is_shown() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    ops.exp(graph["x"])
    page = page_data(graph)
    assert (len(page["graph"]["nodes"]), page["graph"]["outputs"], page["lowered"]) == (1, [], [])
    assert not faults(page)


def test_sum_that_a_longer_one_took_over_is_left_out() -> None:
    types = {name: TensorType(DType.int8, [4]) for name in "abc"}
    graph = Graph("g", types, promotion="allo_hls")
    graph.output(graph["a"] + graph["b"] + graph["c"])
    page = page_data(graph)
    assert len(page["graph"]["nodes"]) <= len(graph.nodes)
    assert not faults(page)
    assert not dangling(page)


def test_overlay_of_dtypes_has_every_node() -> None:
    first, _ = overlays(page_data(mixed()), "dtype")
    assert [row[1] for row in first["words"]] == ["bfloat16"] * 4 + ["float32"] * 5


def test_profile_and_placement_are_shown_on_both_graphs() -> None:
    graph = mixed()
    model = gc.InferenceSession().load(graph)
    feeds = [np.ones((3, 64), ml_dtypes.bfloat16), np.ones((3, 64), np.int8)]
    profile = model.profile(*feeds, runs=2)
    page = page_data(graph, PageOptions(profile=profile, placement=model.placement()))
    assert not faults(page)
    assert not dangling(page)
    before, after = overlays(page, "time")
    assert (before["of"], after["of"]) == (-1, 0)
    shown = sum(row[1] for row in before["numbers"])
    assert shown == pytest.approx(sum(row[1] for row in after["numbers"]))
    assert shown == pytest.approx(sum(kernel.seconds for kernel in profile.kernels), rel=0.2)
    memory = {row[0]: row[1] for row in overlays(page, "memory")[0]["numbers"]}
    names = [n["name"] for n in page["graph"]["nodes"]]
    assert memory[names.index("head/mat_mul_9")] >= 3 * 32 * 4  # its result
    placed, _ = overlays(page, "placement")
    assert {row[1] for row in placed["words"]} == {"CPUExecutionProvider"}


def test_kernels_of_no_node_are_told_and_not_counted() -> None:
    kernels = (
        Kernel("head/mat_mul_9", "MatMul", "CPUExecutionProvider", 1.0, 1.0),  # another number after lowering
        Kernel("ReorderInput", "ReorderInput", "CPUExecutionProvider", 1.0, 1.0),
        Kernel("head/relu_24_nchwc", "Conv", "CPUExecutionProvider", 2.0, 1.0),
    )
    page = page_data(mixed(), PageOptions(profile=Profile(kernels, 4.0, 1)))
    before, after = overlays(page, "time")
    ran = {page["lowered"][0]["graph"]["nodes"][row[0]]["op"]: row[1] for row in after["numbers"]}
    assert ran == {"Relu": 2.0}
    assert len(before["numbers"]) == 1
    assert "2 kernels, 50.0% of the time" in before["note"]


def test_kernels_of_a_file_of_others_have_the_names_of_its_nodes() -> None:
    kernels = (Kernel("/encoder/layer.0/mlp/Exp", "Exp", "CPUExecutionProvider", 1.0, 1.0),)
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    y = ops.exp(graph["x"])
    y.name = "/encoder/layer.0/mlp/Exp_output_0"
    graph.output(ops.sin(y))
    before, _ = overlays(page_data(graph, PageOptions(profile=Profile(kernels, 1.0, 1))), "time")
    assert before["numbers"] == [[0, 1.0, "1 s 100.0%"]]


def test_placement_on_a_device_shows_what_is_left_and_why() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    graph.output(y=ops.exp(ops.sin(graph["x"])))
    placed = (
        Placed("sin_1", "Sin", "CUDAExecutionProvider"),
        Placed("y", "Exp", "CPUExecutionProvider", "no kernel"),
    )
    page = page_data(graph, PageOptions(placement=Placement(placed)))
    assert [entry["target"] for entry in page["lowered"]] == ["cpu", "cuda"]
    before, _ = overlays(page, "placement")
    assert [row[2] for row in before["words"]] == ["CUDAExecutionProvider", "CPUExecutionProvider: no kernel"]


@pytest.mark.parametrize("is_after", [False, True])
def test_quantisation_is_shown_before_and_after(is_after: bool) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 64])})
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    y = ops.relu(graph["x"] @ graph.weight("w", w))
    graph.output(y @ graph.weight("v", w))
    done = gc.quantize(graph)
    page = page_data(done.graph if is_after else graph, PageOptions(quantization=done.report))
    assert not faults(page)
    assert not dangling(page)
    words, errors = overlays(page, "quantization")
    assert [row[1] for row in words["words"]] == [row.scheme for row in done.report]
    assert [row[1] for row in errors["numbers"]] == [row.error for row in done.report]
    assert all(re.search(r"kB to .* error \d", row[2]) for row in words["words"])


def test_difference_to_another_graph_is_shown() -> None:
    def built(scale: float, extra: bool) -> Graph:
        graph = Graph("g", {"x": TensorType(DType.float32, [4])})
        y = graph["x"] * graph.weight("w", np.full(4, scale, np.float32))
        y = ops.exp(ops.sin(y) if extra else y)
        graph.output(y=y)
        return graph

    page = page_data(built(1, True), PageOptions(against=built(2, False)))
    (result,) = overlays(page, "difference")
    ops_of = {page["graph"]["nodes"][row[0]]["op"]: row[1] for row in result["words"]}
    assert ops_of["Sin"] == "only here"
    assert ops_of["Mul"] == "other weights"
    (same,) = overlays(page_data(built(1, True), PageOptions(against=built(1, True))), "difference")
    assert same["words"] == []


def test_difference_has_renamed_dims_once() -> None:
    def built(dim: str) -> Graph:
        graph = Graph("g", {"x": TensorType(DType.float32, [dim, 4])})
        graph.output(y=ops.exp(ops.sin(graph["x"])))
        return graph

    (result,) = overlays(page_data(built("rows"), PageOptions(against=built("batch"))), "difference")
    assert (result["note"], result["words"]) == (
        "Against g: 0 nodes differ, 0 are only there; dims: rows -> batch.",
        [],
    )


def test_values_have_statistics() -> None:
    array = np.array([np.nan, 1, 3], np.float32)
    page = page_data(mixed(), PageOptions(values={"scale/mul_4": array}))
    (value,) = [v for v in page["graph"]["values"] if v["name"] == "scale/mul_4"]
    assert value["statistics"]["nan"] == 1
    assert (value["statistics"]["min"], value["statistics"]["max"], value["statistics"]["mean"]) == (1, 3, 2)
    graph = mixed()
    graph["scale/exp_5"].print("label")
    by_label = page_data(graph, PageOptions(values={"label": array}))
    assert [v["name"] for v in by_label["graph"]["values"] if v.get("statistics", {}).get("nan")] == ["scale/exp_5"]
    with pytest.raises(GraphError, match="no value of graph 'mixed' is called 'absent'"):
        page_data(mixed(), PageOptions(values={"absent": array}))
    with pytest.raises(DTypeError, match="scale/mul_4"):
        page_data(mixed(), PageOptions(values={"scale/mul_4": object()}))
    assert not any("statistics" in v for v in page_data(mixed(), PageOptions(statistics=False))["graph"]["values"])


def test_page_contains_the_smallest_weights_up_to_a_size() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [16])})
    arrays = {
        "large": np.arange(64, dtype=np.float32),
        "one": np.ones(1, np.float32),
        "wide": np.arange(16, dtype=">f4"),
    }
    for name, array in arrays.items():
        graph.weight(name, array)
    graph.weight("text", np.array(["a"] * 9, object))
    graph.output(ops.sum(graph["large"]), graph["one"], graph["wide"] + graph["x"], graph["text"])
    for limit, embedded in ((0, set()), (323, {"one"}), (324, {"one", "wide"}), (708, {"one", "wide", "large"})):
        values = page_data(graph, PageOptions(targets=(), weight_bytes=limit))["graph"]["values"]
        files = {v["name"]: v["npy"] for v in values if v.get("npy")}
        assert {*files} == embedded
        for name, file in files.items():
            np.testing.assert_array_equal(np.load(io.BytesIO(base64.b64decode(file))), arrays[name])
        assert [v["npy"] for v in values if v["name"] == "text"] == [""]
    assert {v["name"]: v["first"] for v in values if "first" in v} == {
        "large": "0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ...",
        "wide": "0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ...",
        "text": "a, a, a, a, a, a, a, a, ...",
    }


def test_target_that_is_none_is_refused() -> None:
    with pytest.raises(GraphError, match="no target is called 'tpu'"):
        page_data(mixed(), PageOptions(targets=("tpu",)))  # type: ignore[arg-type]


def test_default_target_that_cannot_be_lowered_for_is_told() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [4])})
    (y,) = graph.op("NoSuchOperator", [graph["x"]], {}, [TensorType(DType.float32, [4])])
    graph.output(y)
    page = page_data(graph)
    if not page["lowered"]:
        (failure,) = page["failures"]
        assert failure["target"] == "cpu"
        assert "NoSuchOperator" in failure["reason"]
    assert not faults(page)


def test_wide_integers_and_strings_are_shown() -> None:
    graph = Graph("g", {"x": TensorType(DType.int(100), [2])})
    graph.weight("big", np.array([2**90, -1], object), DType.int(100))
    graph.output(graph["x"] + graph["big"], graph.constant(["a", "</script>"]))
    page = page_data(graph)
    assert not faults(page)
    (big,) = [v for v in page["graph"]["values"] if v["name"] == "big"]
    assert big["statistics"]["max"] == float(2**90)


@pytest.mark.full
def test_calls_and_text_grow_with_the_nodes() -> None:
    assert growth(lambda layers: partial(page_data, exported(layers), PageOptions(targets=())), 100) < 2.5
    graph = exported(200)
    most = 100_000
    without, text = (
        json.dumps(page_data(graph, PageOptions(targets=(), weight_bytes=size)), separators=(",", ":"))
        for size in (0, most)
    )
    assert len(graph.nodes) > 2_300
    assert len(without) < 500 * len(graph.nodes)
    names = len('"npy":"",') * len(graph.weights)
    assert most < len(text) - len(without) < most * 4 / 3 + names
