"""Ray is imported where it is used, and an error names its extra where it is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

import graphcore as gc
from graphcore.errors import MissingExtraError
from graphcore.scale.recipes import require_ray


def test_import_of_graphcore_and_of_what_needs_no_ray_imports_none_of_it() -> None:
    code = (
        "import sys, graphcore as gc; gc.scale.HttpServer; import graphcore.scale.deploy.writing;"
        "print({'ray', 'pyarrow', 'starlette'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["map_batches", "deployment"])
def test_error_names_the_extra_when_ray_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = importlib.util.find_spec

    def without(package: str, *args: Any) -> Any:
        return None if package == "ray" else found(package, *args)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.delitem(vars(gc.scale), name, raising=False)
    with pytest.raises(MissingExtraError, match="the package ray is not installed") as caught:
        getattr(gc.scale, name)
    assert "graphcore-engine[ray]" in caught.value.help
    with pytest.raises(MissingExtraError):
        require_ray("serve")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'map_batchez'"):
        gc.scale.map_batchez  # noqa: B018
