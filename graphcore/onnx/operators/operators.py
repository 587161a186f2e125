"""An operator of ONNX as a Python function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.errors import GraphError
from graphcore.onnx.operators.calling import call
from graphcore.onnx.schemas.catalogue import doc, entry, signature


def function(name: str, domain: str, module: str) -> Callable[..., Any]:
    """The function of an operator, with its name, signature and docs. Raises `AttributeError` where there is none."""
    try:
        of = entry(name, domain)
    except GraphError as error:
        raise AttributeError(f"{error.summary}; {error.help}", name=name) from None

    def made(*args: Any, **named: Any) -> Any:
        return call(of, args, named)

    made.__name__ = made.__qualname__ = name
    made.__module__ = module
    made.__doc__ = doc(of)
    made.__signature__ = signature(of)  # type: ignore[attr-defined]
    return made
