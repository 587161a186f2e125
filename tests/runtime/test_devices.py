"""Devices that onnxruntime reports: `InferenceSession(devices=...)` and `gc.register_provider`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import GraphError, RunError
from graphcore.runtime.ort import devices
from graphcore.runtime.ort.devices import POLICIES, Selection

CPU, CUDA, OPENVINO = "CPUExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"
NVIDIA, INTEL = "NVIDIA", "Intel"
Type = Enum("Type", ["CPU", "GPU", "NPU"])


@dataclass(frozen=True)
class Hardware:
    type: Type
    vendor: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Device:
    """A device like onnxruntime's OrtEpDevice."""

    ep_name: str
    ep_vendor: str
    device: Hardware


def device(provider: str, owner: str, type_: Type, vendor: str, **metadata: str) -> Device:
    return Device(provider, owner, Hardware(type_, vendor, metadata))


PLAIN = device(CPU, "Microsoft", Type.CPU, INTEL)
OPENVINO_CPU = device(OPENVINO, INTEL, Type.CPU, INTEL)
OPENVINO_NPU = device(OPENVINO, INTEL, Type.NPU, INTEL)
INTEGRATED = device(OPENVINO, INTEL, Type.GPU, INTEL)
DISCRETE = device(CUDA, NVIDIA, Type.GPU, NVIDIA, Discrete="1")
UNMATCHED = device("AExecutionProvider", "A", Type.GPU, NVIDIA, Discrete="1")


def model() -> Graph:
    graph = Graph("net", {"x": TensorType("bfloat16", ["n"])})
    graph.output(y=graph["x"] * 2 + 1)
    return graph


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_runs_on_the_devices_of_this_machine(policy: str) -> None:
    session = gc.InferenceSession(devices=policy)
    assert session.providers[-1] == CPU
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    (y,) = session.load(model())(x)
    assert y.tolist() == [4, -3]


def test_listed_devices_run_models_of_files_and_caches(tmp_path: Path) -> None:
    reported = [one for one in onnxruntime.get_ep_devices() if one.ep_name == CPU]
    session = gc.InferenceSession(devices=reported * 2, provider_options={"cpu": {"use_arena": True}})
    assert session.providers == (CPU,)
    assert session.target == "cpu"
    graph = Graph("net", {"x": TensorType("float32", ["n"])})
    graph.output(y=graph["x"] + 1)
    graph.export(tmp_path / "net.onnx")
    for cache in (None, tmp_path, tmp_path):  # the last starts from the cache
        (y,) = session.load(tmp_path / "net.onnx", cache_dir=cache)(np.array([1], np.float32))
        assert y.tolist() == [2]


@pytest.mark.parametrize(
    ("policy", "reported", "chosen"),
    [
        ("prefer_gpu", [PLAIN, INTEGRATED, DISCRETE], [DISCRETE, PLAIN]),
        ("max_performance", [UNMATCHED, PLAIN, DISCRETE], [DISCRETE, PLAIN]),
        ("prefer_gpu", [PLAIN, OPENVINO_CPU], [OPENVINO_CPU, PLAIN]),
        ("prefer_npu", [PLAIN, DISCRETE, OPENVINO_NPU], [OPENVINO_NPU, PLAIN]),
        ("max_efficiency", [PLAIN, DISCRETE], [PLAIN]),
        ("min_power", [OPENVINO_NPU, OPENVINO_CPU, PLAIN], [OPENVINO_NPU, OPENVINO_CPU, PLAIN]),
        ("default", [DISCRETE, PLAIN, OPENVINO_CPU], [OPENVINO_CPU, PLAIN]),
        ("prefer_cpu", [PLAIN, DISCRETE], [PLAIN]),
    ],
)
def test_policy_chooses_by_the_documented_rule(
    monkeypatch: pytest.MonkeyPatch, policy: str, reported: list[Device], chosen: list[Device]
) -> None:
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: reported)
    assert devices.select(policy).devices == tuple(chosen)


def test_graphs_are_lowered_for_the_first_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [PLAIN, DISCRETE])
    session = gc.InferenceSession(devices="prefer_gpu")
    assert session.providers == (CUDA, CPU)
    assert session.target == "cuda"
    assert gc.InferenceSession(devices="prefer_cpu").target == "cpu"


def test_other_choice_than_predicted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    if any(one.ep_name != CPU for one in onnxruntime.get_ep_devices()):
        pytest.skip("onnxruntime has a device to choose")
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [PLAIN, DISCRETE])
    graph = Graph("net", {"x": TensorType("float32", ["n"])})
    graph.output(y=graph["x"] + 1)
    session = gc.InferenceSession(devices="prefer_gpu")
    with pytest.raises(RunError, match=f"onnxruntime chose {CPU} instead of {CUDA}, {CPU}"):
        session.load(graph)


class Options:
    """Records what a selection sets."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def test_selection_passes_the_options_of_providers() -> None:
    options, exact = Options(), {CUDA: {"use_tf32": "0"}}
    Selection((DISCRETE, PLAIN)).configure(options, exact)
    Selection((DISCRETE, PLAIN), "policy").configure(options, exact)
    assert options.calls == [
        ("add_provider_for_devices", [DISCRETE], {"use_tf32": "0"}),
        ("add_provider_for_devices", [PLAIN], {}),
        ("set_provider_selection_policy", "policy"),
        ("add_session_config_entry", "ep.cudaexecutionprovider.use_tf32", "0"),
    ]


def test_onnxruntime_keeps_options_of_devices_under_the_same_names() -> None:
    options = onnxruntime.SessionOptions()
    Selection(tuple(onnxruntime.get_ep_devices()[-1:])).configure(options, {CPU: {"some": "value"}})
    assert options.get_session_config_entry("ep.cpuexecutionprovider.some") == "value"


@pytest.mark.parametrize(
    ("options", "message", "help"),
    [
        ({"devices": "prefer_gpuu"}, "there is no device policy 'prefer_gpuu'", "did you mean prefer_gpu"),
        ({"devices": "min_overall_power"}, "there is no device policy", "did you mean min_power"),
        ({"devices": []}, r"must be a policy or a list of OrtEpDevice, got \[\]", "get_ep_devices"),
        ({"devices": ["cpu"]}, r"must be a policy or a list of OrtEpDevice, got \['cpu'\]", "get_ep_devices"),
        ({"devices": 3}, "must be a policy or a list of OrtEpDevice, got 3", "get_ep_devices"),
        ({"devices": "default", "providers": "cpu"}, "got providers 'cpu' and devices 'default'", "one of them"),
    ],
)
def test_bad_devices_are_explained(options: dict[str, Any], message: str, help: str) -> None:
    with pytest.raises(GraphError, match=message) as error:
        gc.InferenceSession(**options)
    assert help in (error.value.help or "")


def test_isolated_session_refuses_devices() -> None:
    with pytest.raises(GraphError, match="IsolatedSession: devices can have drivers"):
        gc.IsolatedSession(devices="default")


def test_release_without_the_interface_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "library.so").write_bytes(b"")
    monkeypatch.delattr(onnxruntime, "get_ep_devices")
    monkeypatch.delattr(onnxruntime, "register_execution_provider_library")
    assert devices.available() == []
    for call, message in (
        (lambda: gc.InferenceSession(devices="default"), f"onnxruntime {onnxruntime.__version__} reports no devices"),
        (lambda: gc.register_provider("mine", tmp_path / "library.so"), "has no attribute 'register_execution_"),
    ):
        with pytest.raises(RunError, match=message) as error:
            call()
        assert "onnxruntime 1.24.4 or newer" in (error.value.help or "")


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Path]:
    """A provider's library, without devices; registered as "mine" in the test."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "provider.c"
    source.write_text(
        "void *CreateEpFactories(char *name, void *api, void *logger, void **factories, unsigned long most,"
        " unsigned long *count) { *count = 0; return 0; }\n"
        "void *ReleaseEpFactory(void *factory) { return 0; }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "provider.so", source], check=True)
    yield tmp_path / "provider.so"
    onnxruntime.unregister_execution_provider_library("mine")


def test_provider_is_registered_once(library: Path) -> None:
    gc.register_provider("mine", library)
    assert gc.InferenceSession(devices="default").providers[-1] == CPU
    with pytest.raises(RunError, match="already registered under mine") as error:
        gc.register_provider("mine", library)
    assert "give a new name" in (error.value.help or "")


def test_libraries_that_are_not_providers_are_explained(tmp_path: Path) -> None:
    junk = tmp_path / "junk.so"
    junk.write_bytes(b"junk")
    for name, path, message in (
        ("mine", tmp_path / "none.so", "none.so'.* is not a file"),
        ("mine", tmp_path, "is not a file"),
        ("mine", None, "None is not a file"),
        ("", junk, "'' is not a name"),
        ("mine", junk, f"onnxruntime cannot register {re.escape(str(junk))} as 'mine': .*Failed to load library"),
    ):
        with pytest.raises(RunError, match=message) as error:
            gc.register_provider(name, path)  # type: ignore[arg-type]
        assert error.value.help
