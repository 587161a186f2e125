"""`graphcore.onnx_backend`: models and nodes of ONNX by its backend interface, and its own test runner."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.runner import Runner

from graphcore import onnx_backend
from graphcore.conformance.suites import node_tests
from graphcore.errors import FeedError, GraphError, RunError
from tests.support.backend import KNOWN

MODULES = (
    "cast constant gather if_ lstm optionalgetelement quantizelinear reshape sequence_map split string_concat".split()
)
"""Modules of ONNX's tests of nodes: casts of narrow dtypes, constants, bodies, sequences, optionals, strings."""


def model_of(*nodes: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in (*inputs, *outputs)]
    graph = helper.make_graph(nodes, "g", values[: len(inputs)], values[len(inputs) :])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


SUM = model_of(helper.make_node("Sub", ["a", "b"], ["c"]), inputs=["a", "b"], outputs=["c"])
A, B = np.array([1, 2], np.float32), np.array([5, 7], np.float32)


@pytest.mark.numbers
@pytest.mark.parametrize("module", MODULES)
def test_runner_of_onnx_passes(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for name, case in node_tests(module).items() if name not in KNOWN]
    assert cases
    for case in cases[:12]:
        prepared = onnx_backend.Backend.prepare(case.model, "CPU")
        for inputs, outputs in case.data_sets:
            argument, wanted = ([_array(value) for value in values] for values in (inputs, outputs))
            Runner.assert_similar_outputs(wanted, prepared.run(argument), case.rtol, case.atol)


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


@pytest.mark.full
def test_runner_of_onnx_passes_but_for_what_is_documented() -> None:
    """One of 25 tests that come with onnx; `test_backend_suite` has those of nodes all, by sessions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = onnx.backend.test.BackendTest(onnx_backend.Backend, __name__).exclude("_cuda$")
        failed, others = set(), []
        for name, cases in runner.test_cases.items():
            if name == "OnnxBackendRealModelTest":  # whose models are downloaded
                continue
            result = unittest.TestResult()
            for case in [*unittest.defaultTestLoader.loadTestsFromTestCase(cases)][::25]:
                case.run(result)
            assert result.testsRun
            for test, text in (*result.failures, *result.errors):
                failed.add(str(test).split()[0].removesuffix("_cpu"))
                others += [text] if name != "OnnxBackendNodeModelTest" else []
    assert all("uses opset 6, but only 7 to 28 can be read" in text or "Gradient of opset 1" in text for text in others)
    names = {*KNOWN, "test_loop16_seq_none"}  # whose results without axes the runner takes len() of
    assert len(failed - names) == len(others)


@pytest.mark.parametrize("value", [[A, B], {"b": B, "a": A}, (A, B)], ids=["list", "mapping", "tuple"])
def test_model_takes_values_by_position_or_name(value: Any) -> None:
    (result,) = onnx_backend.run_model(SUM, value)
    np.testing.assert_array_equal(result, [-4, -5])
    (again,) = onnx_backend.prepare(SUM.SerializeToString()).run(value)
    np.testing.assert_array_equal(again, result)


def test_one_array_feeds_a_model_of_one_input() -> None:
    model = model_of(helper.make_node("Neg", ["a"], ["c"]), inputs=["a"], outputs=["c"])
    np.testing.assert_array_equal(onnx_backend.run(model, A), [[-1, -2]])


def test_values_beyond_the_inputs_are_refused() -> None:
    with pytest.raises(FeedError, match="3 values for a model of 2 inputs"):
        onnx_backend.run_model(SUM, [A, B, A])


@pytest.mark.parametrize("value", [[A, B], {"y": B, "x": A}], ids=["list", "mapping"])
def test_node_runs_alone(value: Any) -> None:
    node = helper.make_node("Clip", ["x", "", "y"], ["z"])
    (result,) = onnx_backend.run_node(helper.make_node("Pow", ["x", "y"], ["z"]), value)
    np.testing.assert_array_equal(result, [1, 128])
    (result,) = onnx_backend.run_node(node, [B, np.float32(6)], opset_version=13)
    np.testing.assert_array_equal(result, [5, 6])


def test_node_of_the_version_that_is_named() -> None:
    """Softmax takes all axes from 1 on as one up to opset 12."""
    x = np.zeros([1, 2, 2], np.float32)
    node = helper.make_node("Softmax", ["x"], ["y"])
    np.testing.assert_array_equal(onnx_backend.run_node(node, [x])[0], np.full_like(x, 0.5))
    np.testing.assert_array_equal(onnx_backend.run_node(node, [x], opset_version=11)[0], np.full_like(x, 0.25))


def test_node_of_the_ml_domain_and_of_strings() -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[3])
    (result,) = onnx_backend.run_node(node, [np.array(["b", "a"])])
    assert result.tolist() == [-1, 3]


def test_node_without_one_of_its_operands_is_refused() -> None:
    with pytest.raises(GraphError, match="run_node: got 1 arrays for Pow"):
        onnx_backend.run_node(helper.make_node("Pow", ["x", "y"], ["z"]), [A])


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("TPU")
    with pytest.raises(RunError, match="there is no device 'CUDA:one'"):
        onnx_backend.prepare(SUM, "CUDA:one")


def test_module_is_the_backend() -> None:
    assert issubclass(onnx_backend.Backend, onnx.backend.base.Backend)
    assert isinstance(onnx_backend.prepare(SUM), onnx.backend.base.BackendRep)
    assert onnx_backend.is_compatible(SUM)
