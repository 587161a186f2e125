"""`gc.from_torch` and `gc.from_jax`, with stand-ins for the packages where they are not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import MissingExtraError, ModelError
from graphcore.onnx import exporters

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scaled:
    """A stand-in for a module of PyTorch."""

    scale = np.full((3,), 2, np.float32)

    def forward(self, x: Any, shift: Any = None) -> Any:
        raise NotImplementedError


class GraphOfIR:
    """A stand-in for the graph of a model of onnx-ir: `x * scale`. Its weight shares the memory of the module."""

    def __init__(self, name: str) -> None:
        self.name = "main_graph"
        weight = SimpleNamespace(numpy=lambda: Scaled.scale, dtype="float", name="scale")
        self.inputs = [SimpleNamespace(name=name)]
        self.outputs = [SimpleNamespace(name="mul")]
        self.initializers = {"scale": SimpleNamespace(const_value=weight)}

    def __iter__(self) -> Iterator[Any]:
        return iter([SimpleNamespace(outputs=self.outputs)])


def loaded(model: Any) -> Graph:
    """Return the graph of a stand-in of a model, as `from_ir` does of a model."""
    graph = model.graph
    result = Graph(graph.name, {graph.inputs[0].name: TensorType("float32", [2, 3])})
    tensor = graph.initializers["scale"].const_value
    result.output(**{graph.outputs[0].name: result.inputs[0] * result.weight("scale", tensor.numpy())})
    return result


def install(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Let stand-ins be imported by their names."""
    for name, attributes in modules.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Install stand-ins, and return the options of the calls of their exporters."""
    calls: list[dict[str, Any]] = []

    def export(module: Any, args: Any, **options: Any) -> Any:
        calls.append({"args": args, **options})
        if not isinstance(module, Scaled):
            raise RuntimeError("step 1 of 3") from ValueError("no module\nmore")
        spec = SimpleNamespace(type=dict, context=["scaled"])
        program = SimpleNamespace(call_spec=SimpleNamespace(out_spec=spec))
        return SimpleNamespace(model=SimpleNamespace(graph=GraphOfIR("x")), exported_program=program)

    def to_onnx(function: Callable[..., Any], inputs: Any, **options: Any) -> Any:
        calls.append({"inputs": inputs, **options})
        return SimpleNamespace(graph=GraphOfIR(options["input_names"][0]))

    export_module = SimpleNamespace(SymbolicScope=object, symbolic_shape=lambda text, scope: text.split(", "))
    config = SimpleNamespace(jax_enable_x64=False)
    install(
        monkeypatch,
        torch={"onnx": SimpleNamespace(export=export)},
        onnxscript={},
        onnx_ir={"Tensor": lambda array, **more: SimpleNamespace(numpy=lambda: array, **more)},
        jax={"export": export_module, "config": config, "ShapeDtypeStruct": lambda shape, dtype: (shape, dtype)},
        jax2onnx={"to_onnx": to_onnx},
        **{"jax.export": vars(export_module)},
    )
    monkeypatch.setattr(exporters, "from_ir", loaded)
    return calls


def test_module_becomes_a_graph_with_its_names(calls: list[dict[str, Any]]) -> None:
    graph = gc.from_torch(Scaled(), X, kwargs={"shift": X}, dynamic={"x": {0: "batch"}})
    assert (graph.name, [s.name for s in graph.inputs], [*graph.weights], [*graph.output_types]) == (
        "Scaled", ["x"], ["scale"], ["scaled"],
    )  # fmt: skip
    assert calls == [
        {
            "args": (X,), "kwargs": {"shift": X}, "dynamo": True, "verbose": False, "output_names": None,
            "dynamic_shapes": {"x": {0: "batch"}, "shift": None},
        }
    ]  # fmt: skip
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(X)[0], X * 2)


def test_weights_are_copies(calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaled, "scale", np.full((3,), 2, np.float32))
    graph = gc.from_torch(Scaled(), (X,), outputs=["named"])
    assert calls[0]["dynamic_shapes"] is None
    assert calls[0]["output_names"] == ["named"]
    Scaled.scale[:] = 7
    np.testing.assert_array_equal(gc.InferenceSession().load(graph)(X)[0], X * 2)


def test_function_becomes_a_graph_with_its_names(calls: list[dict[str, Any]]) -> None:
    def scaled(rows: Any) -> Any:
        raise NotImplementedError

    graph = gc.from_jax(scaled, X, dynamic={"rows": {0: "batch"}}, outputs=["y"])
    assert [s.name for s in graph.inputs] == ["rows"]
    assert calls == [
        {
            "inputs": [(["batch", "3"], np.dtype(np.float32))], "model_name": "scaled", "return_mode": "ir",
            "enable_double_precision": False, "input_names": ["rows"], "output_names": ["y"],
        }
    ]  # fmt: skip
    gc.from_jax(lambda x: x, X)
    assert calls[1]["inputs"] == [((2, 3), np.dtype(np.float32))]
    assert calls[1]["model_name"] == "lambda"


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a parameter": (lambda: gc.from_torch(Scaled(), X, dynamic={"y": {0: "n"}}), "dynamic names 'y'.*\n.*use x"),
    "many arguments": (lambda: gc.from_torch(Scaled(), (X, X, X)), "do not fit: too many positional arguments"),
    "no export": (lambda: gc.from_torch(len, X), "torch.onnx.export failed: ValueError: no module\n.*help"),
    "a parameter of jax": (lambda: gc.from_jax(abs, X, dynamic={"y": {0: "n"}}), "dynamic names 'y'"),
    "a number": (lambda: gc.from_jax(abs, 2.5), "argument 'x' must be an array, got float"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_exported_is_an_error(name: str, calls: list[dict[str, Any]]) -> None:
    call, text = WRONG[name]
    with pytest.raises(ModelError, match=text):
        call()


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        (lambda: gc.from_torch(Scaled(), X), "torch", "torch"),
        (lambda: gc.from_torch(Scaled(), X), "onnxscript", "torch"),
        (lambda: gc.from_jax(abs, X), "jax", "jax"),
        (lambda: gc.from_jax(abs, X), "jax2onnx", "jax"),
    ],
)
def test_error_names_the_extra_of_a_missing_package(
    call: Callable[[], Any], package: str, extra: str, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"the package {package} cannot be imported") as caught:
        call()
    assert f"graphcore-engine[{extra}]" in caught.value.help


def test_a_module_of_torch_gives_its_numbers() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra torch")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: the extra torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    graph = gc.from_torch(module, torch.from_numpy(X), dynamic={"input": {0: "batch"}})
    assert {"0.weight", "0.bias"} <= {*graph.weights}
    rows = np.tile(X, (3, 1))
    wanted = module(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(gc.InferenceSession().load(graph)(rows)[0], wanted, rtol=1e-5, atol=1e-6)


def test_a_function_of_jax_gives_its_numbers() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed: the extra jax")
    pytest.importorskip("jax2onnx", reason="jax2onnx is not installed: the extra jax")
    function = importlib.import_module("jax.nn").softmax
    graph = gc.from_jax(lambda x: function(x), jax.numpy.asarray(X), dynamic={"x": {0: "batch"}})
    rows = np.tile(X, (3, 1))
    np.testing.assert_allclose(gc.InferenceSession().load(graph)(rows)[0], function(rows), rtol=1e-5)
