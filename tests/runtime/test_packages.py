"""Model packages of onnxruntime, folders from which a session's providers choose a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import ModelError, RunError

X = np.array([-1.5, 2], np.float32)

packaged = pytest.mark.skipif(
    not hasattr(onnxruntime, "ModelPackageContext"), reason="onnxruntime before 1.32.0 reads no model packages"
)


def write_package(folder: Path, **components: dict[str, float]) -> Path:
    """Write a package of models that multiply, by component and provider."""
    for name, factors in components.items():
        variants: dict[str, Any] = {}
        for provider, factor in factors.items():
            graph = Graph(name, {"x": TensorType("float32", ["n"])})
            graph.output(y=graph["x"] * factor)
            place = folder / name / provider
            place.mkdir(parents=True)
            graph.export(place / "net.onnx")
            info = {"ort": {"model_file": "net.onnx"}}
            variants[provider] = {"ep": f"{provider}ExecutionProvider", "executor_info": info}
        (folder / name / "component.json").write_text(json.dumps({"component_name": name, "variants": variants}))
    manifest = {"schema_version": "1.0", "components": {name: name for name in components}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@packaged
def test_model_of_the_providers_is_chosen_from_a_package(tmp_path: Path) -> None:
    model = gc.InferenceSession().load(write_package(tmp_path, net={"CUDA": 5.0, "CPU": 2.0}))
    assert model(X)[0].tolist() == [-3, 4]


@packaged
def test_model_of_the_devices_is_chosen_from_a_package(tmp_path: Path) -> None:
    session = gc.InferenceSession(devices="prefer_cpu")
    assert session.load(str(write_package(tmp_path, net={"CPU": 2.0})))(X)[0].tolist() == [-3, 4]


@packaged
def test_component_of_a_package_is_named(tmp_path: Path) -> None:
    path = write_package(tmp_path, encoder={"CPU": 2.0}, decoder={"CPU": 4.0})
    session = gc.InferenceSession()
    assert session.load(path, component="decoder")(X)[0].tolist() == [-6, 8]
    with pytest.raises(ModelError, match=r"has the components 'decoder', 'encoder', not None"):
        session.load(path)
    with pytest.raises(ModelError, match=r"did you mean decoder\?"):
        session.load(path, component="decode")


@packaged
def test_package_without_a_model_for_the_providers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot choose a model of this package: .*No suitable model variant"):
        gc.InferenceSession().load(write_package(tmp_path, net={"CUDA": 5.0}))


@packaged
@pytest.mark.parametrize("manifest", ["", "{", "[]", '{"schema_version": "9.0"}', '{"schema_version": "1.0"}'])
def test_package_with_a_bad_manifest_is_refused(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ModelError, match="load: "):
        gc.InferenceSession().load(tmp_path)


@packaged
def test_package_whose_model_is_outside_of_it_is_refused(tmp_path: Path) -> None:
    path = write_package(tmp_path / "p", net={"CPU": 2.0})
    component = path / "net" / "component.json"
    component.write_text(component.read_text().replace("net.onnx", "../../../other.onnx"))
    (path / "net" / "CPU" / "net.onnx").rename(tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="cannot choose a model"):
        gc.InferenceSession().load(path)


def test_package_is_refused_by_releases_that_read_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnxruntime, "ModelPackageContext", raising=False)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match="reads no model packages"):
        gc.InferenceSession().load(tmp_path)


def test_component_of_another_model_is_refused() -> None:
    with pytest.raises(ModelError, match="component names a part of a model package"):
        gc.InferenceSession().load(b"", component="net")
