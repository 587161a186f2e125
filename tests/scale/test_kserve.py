"""KServe's client infers at our own server, and its classes have each field of the manifest."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphcore.scale.deploy.triton import Settings
from graphcore.scale.deploy.writing import inference_service
from graphcore.scale.serving.http_server import HttpServer
from tests.scale.support import models


def test_client_of_kserve_infers_and_its_classes_have_the_fields_of_the_manifest(tmp_path: Path) -> None:
    if importlib.util.find_spec("kserve") is None:
        pytest.skip("kserve is not installed")
    manifests = []
    for number, storage in enumerate([None, "s3://models/repository"]):
        manifests.append(tmp_path / f"{number}.yaml")
        text = inference_service("a", Settings(3, 2, "cuda"), image="a:1", storage=storage)
        manifests[-1].write_text(text)
    manifests.append(tmp_path / "wrong.yaml")
    manifests[-1].write_text(text.replace("minReplicas", "minReplica").replace("limits", "limit"))
    with HttpServer(models()) as server:
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.scale.kserve_client", server.url,
             *map(str, manifests)],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stderr[-3000:]
    data = json.loads(lines[0].removeprefix("FOUND "))
    assert (data["live"], data["ready"]) == (True, True)
    assert data["floats"] == [["7", [[0, 2, 4], [6, 8, 10]]]] * 2
    assert data["integers"] == [["7", [[0, 2, 4], [6, 8, 10]]]] * 2
    assert data["texts"] == [["7", [["ü", "c", "a"]]]] * 2
    assert data["unknown"] == [[], [], [".spec.predictor.minReplica", ".spec.predictor.model.resources"]]
