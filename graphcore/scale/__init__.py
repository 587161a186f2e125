"""Batches on Ray Data, models on Ray Serve, files for Triton and KServe. See docs/howto/serve.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.scale.recipes import require

if TYPE_CHECKING:
    from graphcore.scale.batch.mapping import map_batches
    from graphcore.scale.recipes import Recipe
    from graphcore.scale.serving.http_server import HttpServer
    from graphcore.scale.serving.ray_serve import deployment

__all__ = ["HttpServer", "Recipe", "deployment", "map_batches"]

_HOMES = {
    "HttpServer": "serving.http_server",
    "Recipe": "recipes",
    "deployment": "serving.ray_serve",
    "map_batches": "batch.mapping",
}

_OF_RAY = frozenset({"deployment", "map_batches"})


def __getattr__(name: str) -> Any:
    """Return what needs onnxruntime or Ray, imported when first used. Raises `MissingExtraError` without Ray."""
    if name not in _HOMES:
        raise AttributeError(f"module 'graphcore.scale' has no attribute {name!r}")
    if name in _OF_RAY:
        require("ray", f"graphcore.scale.{name}")
    value = globals()[name] = getattr(import_module(f"graphcore.scale.{_HOMES[name]}"), name)
    return value
