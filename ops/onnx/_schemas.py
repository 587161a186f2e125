"""Functions of ONNX's operators and their names; `onnx` is imported at the first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def namespace(module: str, domain: str, *others: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module whose functions are the operators of a domain.

    others: further names of the module.
    """

    def get(name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        from graphcore.onnx.operators.calling import function  # imports onnx

        operator = function(name, domain, module)
        setattr(sys.modules[module], name, operator)
        return operator

    def directory() -> list[str]:
        from graphcore.onnx.schemas.catalogue import names  # imports onnx

        return [*others, *names(domain)]

    return get, directory
