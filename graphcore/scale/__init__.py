"""Clusters and servers: Ray Data, Ray Serve, files for Triton and KServe. See docs/howto/serve.md."""

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

_MODULES = {
    "HttpServer": "serving.http_server",
    "Recipe": "recipes",
    "deployment": "serving.ray_serve",
    "map_batches": "batch.mapping",
}

_OF_RAY = frozenset({"deployment", "map_batches"})


def __getattr__(name: str) -> Any:
    """Import a public name on first use, since it needs onnxruntime or Ray. Raises `MissingExtraError` without Ray."""
    if name not in _MODULES:
        raise AttributeError(f"module 'graphcore.scale' has no attribute {name!r}")
    if name in _OF_RAY:
        require("ray", f"graphcore.scale.{name}")
    value = globals()[name] = getattr(import_module(f"graphcore.scale.{_MODULES[name]}"), name)
    return value
