"""Functions of ONNX's operators and their names: `onnx` is imported when the first is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def function(name: str, domain: str, module: str) -> Callable[..., Any]:
    """Return the function of an operator. Raises `AttributeError` for one that its domain does not have."""
    from graphcore.onnx.operators.calling import function as made  # imports onnx

    return made(name, domain, module)


def names(domain: str) -> list[str]:
    """Return the names of the operators of a domain."""
    from graphcore.onnx.schemas.catalogue import names as found  # imports onnx

    return list(found(domain))
