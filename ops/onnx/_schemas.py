"""Functions of ONNX's operators and their names; `onnx` is imported at the first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def function(name: str, domain: str, module: str) -> Callable[..., Any]:
    """Return the function of an operator. Raises `AttributeError` for an operator that the domain lacks."""
    from graphcore.onnx.operators.calling import function as make_function  # imports onnx

    return make_function(name, domain, module)


def names(domain: str) -> list[str]:
    """Return the names of the operators of a domain."""
    from graphcore.onnx.schemas.catalogue import names as operator_names  # imports onnx

    return list(operator_names(domain))
