"""The public names of the package, by the page of the reference that each stands on."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import graphcore as gc
import graphcore.ops.families
from graphcore.build.declare import REGISTRY


@dataclass(frozen=True, slots=True)
class Name:
    """A public name. path: as users write it, `graphcore.ops.softmax`. target: the module and name that it is of."""

    path: str
    target: str

    @property
    def page(self) -> str:
        """Return the page of the reference, from the folder of the documents on."""
        if self.module in _ONE_PAGE:
            return f"reference/{_short(self.module)}.md"
        return f"reference/{_short(self.path)}.md"

    @property
    def anchor(self) -> str:
        """Return where on its page it stands, with the `#`; nothing where the page has no other name."""
        return f"#{self.target}" if self.module in _ONE_PAGE else ""

    @property
    def module(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def value(self) -> Any:
        return getattr(module_of(self.module), self.name)


MODULES = {
    "graphcore": "Graphs, Symbols, types, sessions",
    "graphcore.ops": "The ops",
    "graphcore.ops.microsoft": "Operators of onnxruntime itself",
    "graphcore.promotion": "Promotion systems",
    "graphcore.patterns": "Patterns for `Graph.replace`",
    "graphcore.runtime": "Running: classes beside those of `graphcore`",
    "graphcore.models": "Decoders and text generation",
    "graphcore.models.decoder": "Decoders of all families",
    "graphcore.models.families": "Configurations of decoders",
    "graphcore.models.minilm": "all-MiniLM-L6-v2",
    "graphcore.models.resnet": "ResNet",
    "graphcore.models.vit": "Vision Transformer",
    "graphcore.checkpoints": "Weights by name",
    "graphcore.array_api": "The array API standard",
    "graphcore.array_api.linalg": "Linear algebra of the array API",
    "graphcore.array_api.fft": "Fourier transforms of the array API",
    "graphcore.analysis.layers": "Layers of graphs",
    "graphcore.analysis.sizes": "Parameters and bytes by layer",
    "graphcore.analysis.flops": "Operations by node",
    "graphcore.analysis.casts": "Casts and their reasons",
    "graphcore.analysis.statistics": "Statistics of arrays",
    "graphcore.passes": "Passes of `Graph.optimize`",
    "graphcore.errors": "Errors and warnings",
}
"""The public modules and their subjects, in the order of the reference."""

_ONE_PAGE = frozenset(MODULES) - {"graphcore", "graphcore.ops"}
"""The modules whose names share a page: there are few, or they are short."""

_SIGNATURES = ("graphcore.ops.onnx",)
"""Made from schemas when they are asked for: docs/operators.md is their page."""


def module_of(path: str) -> ModuleType:
    """Return a public module; some are names of the package alone, and have another path."""
    name = path.removeprefix("graphcore.")
    return getattr(gc, name) if hasattr(gc, name) else import_module(path)


def names(module: str) -> list[Name]:
    """Return the public names of a module, but for modules among them."""
    result = module_of(module)
    listed: Iterable[str] = getattr(result, "__all__", None) or _defined(result)
    if module == "graphcore.ops":
        listed = REGISTRY
    return [
        Name(f"{module}.{name}", _target(result, name))
        for name in sorted(listed, key=lambda n: (not n[0].isupper(), n))
        if not isinstance(getattr(result, name), ModuleType)
    ]


def _defined(module: ModuleType) -> list[str]:
    """Return the names that a module without `__all__` has of its own package."""
    own = module.__name__.rpartition(".")[0] if module.__name__.count(".") > 1 else module.__name__
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(module.__name__ if own == "graphcore.models" else own)
    ]


def _target(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module.__name__}.{name}"


def _short(path: str) -> str:
    return path.removeprefix("graphcore.").replace(".", "/")
