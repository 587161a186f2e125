"""The operator library: one declaration per op, one file per family.

The families are imported when a name of this package is used: models that run as they are need none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "graphcore.ops":
    raise ImportError(f"this is graphcore's operator library: import it as graphcore.ops, not as {__name__}")

from graphcore.build.declare import REGISTRY
from graphcore.support.escaping import op_hint

if TYPE_CHECKING:
    from graphcore.ops import microsoft as microsoft
    from graphcore.ops import onnx as onnx


def __getattr__(name: str) -> Any:
    """Return an op, or the operators of onnxruntime's own domain or those of ONNX, declared at first use."""
    if name in ("microsoft", "onnx"):
        return import_module(f"graphcore.ops.{name}")
    if name == "__all__" or not name.startswith("_"):
        declared = _declared()
        if name in declared:
            return declared[name]
    hint = "" if name.startswith("_") else op_hint(name, __dir__())
    raise AttributeError(f"module 'graphcore.ops' has no attribute {name!r}{hint and f'; {hint}'}", name=name)


def __dir__() -> list[str]:
    return [*_declared()["__all__"], "microsoft", "onnx"]


def _declared() -> dict[str, Any]:
    """Return the names of this package: every declared op is one; other names of the files are not."""
    names = globals()
    if "__all__" not in names:
        import_module("graphcore.ops.families")
        names.update({op: declaration.function for op, declaration in REGISTRY.items()}, __all__=sorted(REGISTRY))
    return names
