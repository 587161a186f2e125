"""Ray and uvicorn are imported where they are used, and an error names the extra where one is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graphcore as gc
from graphcore.cli import main
from graphcore.errors import MissingExtraError
from graphcore.scale.recipes import require
from tests.scale.support import graphs


def test_import_of_graphcore_and_of_what_needs_no_ray_imports_none_of_it() -> None:
    code = (
        "import sys, graphcore as gc; gc.scale.HttpServer; import graphcore.scale.deploy.writing;"
        "print({'ray', 'pyarrow', 'anyio', 'starlette', 'uvicorn'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def _without(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a package be missing."""
    result = importlib.util.find_spec

    def without(package: str, *args: Any) -> Any:
        return None if package == missing else result(package, *args)

    monkeypatch.setattr(importlib.util, "find_spec", without)


@pytest.mark.parametrize("package", ["anyio", "starlette", "uvicorn"])
def test_error_names_the_extra_when_what_serves_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, package: str
) -> None:
    _without(package, monkeypatch)
    with pytest.raises(MissingExtraError, match=f"HttpServer: the package {package} is not installed") as caught:
        gc.scale.HttpServer({})
    assert "graphcore-engine[serve]" in caught.value.help
    graphs()["floats"].export(tmp_path / "floats.onnx")
    assert main(["serve", str(tmp_path / "floats.onnx")]) == 1
    assert "pip install 'graphcore-engine[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["map_batches", "deployment"])
def test_error_names_the_extra_when_ray_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _without("ray", monkeypatch)
    monkeypatch.delitem(vars(gc.scale), name, raising=False)
    with pytest.raises(MissingExtraError, match="the package ray is not installed") as caught:
        getattr(gc.scale, name)
    assert "graphcore-engine[ray]" in caught.value.help
    with pytest.raises(MissingExtraError):
        require("ray", "serve")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'map_batchez'"):
        gc.scale.map_batchez  # noqa: B018
