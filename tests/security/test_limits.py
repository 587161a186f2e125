"""`gc.Limits`: what a model may take, whichever way it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.cli import main
from graphcore.errors import GraphError, ModelError, ResourceLimitError
from tests.support.onnx_models import FLOAT, model, value

LOADS: dict[str, Callable[..., Any]] = {
    "graph": gc.Graph.load,
    "session": lambda source, **more: gc.InferenceSession().load(source, **more),
    "exact": lambda source, **more: gc.InferenceSession(optimize="exact").load(source, **more),
}


def domains(name: str) -> dict[str, Any]:
    return {name: 1}


def neg(name: str) -> onnx.NodeProto:
    return helper.make_node("Neg", [name], ["y"])


def of_functions() -> onnx.ModelProto:
    """A model of one node, and of 9 once its functions are expanded."""
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    names = ["a", "b", "c", "d"]
    inner = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    outer = [helper.make_node("Three", [a], [b], domain="f") for a, b in pairwise(names)]
    functions = [
        helper.make_function("f", "Three", ["a"], ["d"], inner, opset),
        helper.make_function("f", "Nine", ["a"], ["d"], outer, opset),
    ]
    return model([helper.make_node("Nine", ["x"], ["y"], domain="f")], functions=functions, f=1)


def of_bodies() -> onnx.ModelProto:
    """A model with an If in an If."""

    def branch(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, "body", [], [value("r", FLOAT, None)])

    last = branch([helper.make_node("Neg", ["x"], ["r"])])
    inner = helper.make_node("If", ["c"], ["r"], then_branch=last, else_branch=last)
    outer = helper.make_node("If", ["c"], ["y"], then_branch=branch([inner]), else_branch=last)
    return model([outer], [value("x"), value("c", TensorProto.BOOL, [])])


def long(length: int = 100) -> onnx.ModelProto:
    """A model of a vector that only its Tile makes long."""
    repeats = helper.make_tensor("n", TensorProto.INT64, [1], [length])
    return model([helper.make_node("Tile", ["x", "n"], ["y"])], outputs=[value("y", FLOAT, None)], constants=[repeats])


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize(
    ("name", "proto", "most"),
    [
        ("nodes", of_functions(), 8),
        ("nodes", model([helper.make_node("Neg", ["x"], ["a"]), neg("a")]), 1),
        ("bytes", long(), 20),
        ("elements", long(), 199),
        ("depth", of_bodies(), 1),
        ("depth", of_functions(), 1),
        ("seconds", long(), 1e-9),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_load_is_refused_when_it_is_beyond_a_limit(
    load: Callable[..., Any], name: str, proto: onnx.ModelProto, most: float
) -> None:
    content = proto.SerializeToString()
    with pytest.raises(ResourceLimitError) as caught:
        load(content, limits=gc.Limits(**{name: most}))  # type: ignore[arg-type]
    assert f"{name}={most}" in str(caught.value)
    assert f"gc.Limits({name}=...)" in caught.value.help
    load(content, limits=gc.Limits(**{name: 200 if name != "depth" else 2}))  # type: ignore[arg-type]


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("dims", [[2**40 + 1], [2**62], [2**20, "n", 2**20, 2]], ids=str)
def test_limit_of_elements_holds_for_inputs(load: Callable[..., Any], dims: list[int | str]) -> None:
    shape = helper.make_node("Shape", ["x"], ["y"])
    proto = model([shape], [value("x", FLOAT, dims)], [value("y", TensorProto.INT64, None)])
    with pytest.raises(ResourceLimitError, match=f"elements={2**40}"):
        load(proto)


def test_limit_of_bytes_counts_external_data(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones(1000, np.float32), "w")
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], [value("x", FLOAT, [1])], [value("y", FLOAT, [1000])], [weight]
    )
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    for load in LOADS.values():
        with pytest.raises(ResourceLimitError, match="bytes=3999"):
            load(tmp_path / "m.onnx", limits=gc.Limits(bytes=3999))
        load(tmp_path / "m.onnx", limits=gc.Limits(bytes=9999))
        with pytest.raises(ModelError, match="strict"):
            load(tmp_path / "m.onnx", limits=gc.Limits(strict=["*"]))


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_strict_allows_the_operators_that_it_names(load: Callable[..., Any]) -> None:
    for allowed in (["Neg"], ["*"], ["Abs", "Neg"]):
        load(of_functions().SerializeToString(), limits=gc.Limits(strict=allowed))
    with pytest.raises(ModelError, match="does not allow Neg"):
        load(of_functions().SerializeToString(), limits=gc.Limits(strict=["Abs"]))
    with pytest.raises(ModelError, match="does not allow If"):
        load(of_bodies().SerializeToString(), limits=gc.Limits(strict=["Neg"]))
    with pytest.raises(ModelError, match="does not allow Neg"):
        load(of_bodies().SerializeToString(), limits=gc.Limits(strict=["If"]))


def test_strict_allows_no_other_domain_but_onnxruntimes() -> None:
    def of(domain: str) -> onnx.ModelProto:
        return model([helper.make_node("Gelu", ["x"], ["y"], domain=domain)], **domains(domain))

    gc.Graph.load(of("com.microsoft"), limits=gc.Limits(strict=["com.microsoft::Gelu"]))
    with pytest.raises(ModelError, match=r"com\.microsoft::Gelu"):
        gc.Graph.load(of("com.microsoft"), limits=gc.Limits(strict=["*"]))
    with pytest.raises(ModelError, match=r"no operator of 'my\.ops'"):
        gc.Graph.load(of("my.ops"), limits=gc.Limits(strict=["my.ops::Gelu"]))


@pytest.mark.parametrize(
    "value",
    [{"nodes": -1}, {"nodes": 1.5}, {"bytes": True}, {"depth": 41}, {"seconds": 0}, {"strict": "Neg"}, {"strict": [1]}],
)
def test_limits_are_refused_when_they_are_none(value: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        gc.Limits(**value)


def test_load_is_refused_when_its_limits_are_of_another_class() -> None:
    with pytest.raises(GraphError, match="Limits"):
        gc.Graph.load(long(), limits={"nodes": 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["check", "run"])
def test_commands_take_limits(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(long().SerializeToString())
    more = ["--random"] if command == "run" else []
    failure = 2 if command == "check" else 1
    assert main([command, str(path), *more, "--limit", "elements=150"]) == failure
    assert "elements=150" in capsys.readouterr().err
    assert main([command, str(path), *more, "--limit", "elements=200", "--limit", "nodes=5"]) in (0, 1)
    assert main([command, str(path), *more, "--limit", "nods=5"]) == failure
    assert "did you mean nodes" in capsys.readouterr().err


# Python functions of the program


def declared() -> None:
    def infer(x: gc.TensorType) -> gc.TensorType:
        return x

    def compute(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raise AssertionError("a model called it")

    gc.custom_op("tests.limits::Danger", infer, python=compute)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_model_calls_no_python_function_unless_the_user_names_it(load: Callable[..., Any]) -> None:
    proto = model([helper.make_node("Danger", ["x"], ["y"], domain="tests.limits")], **domains("tests.limits"))
    declared()
    with pytest.raises(ModelError, match=r"would call the Python function of tests\.limits::Danger") as caught:
        load(proto)
    assert "custom_ops=['tests.limits::Danger']" in caught.value.help
    with pytest.raises(ModelError, match="would call the Python function"):
        load(proto, custom_ops=["tests.limits::Other"])
    gc.Graph.load(proto, custom_ops=["tests.limits::Danger"])
    with pytest.raises(GraphError, match="must be a list of custom ops"):
        load(proto, custom_ops="tests.limits::Danger")
