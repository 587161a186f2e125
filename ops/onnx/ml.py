"""Every operator of the domain ai.onnx.ml as a function, made from its schema when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    from graphcore.onnx.operators.operators import function

    made = globals()[name] = function(name, "ai.onnx.ml", __name__)
    return made


def __dir__() -> list[str]:
    from graphcore.onnx.schemas.catalogue import names

    return list(names("ai.onnx.ml"))
