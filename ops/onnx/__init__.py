"""Every operator of ONNX as a function, made from its schema at first use: `ops.onnx.Conv(x, w)`.

Names of operators, operands and attributes are those of the schemas; operands of one type variable are promoted to one
dtype; results are typed as in a loaded model. `ops.onnx.ml` has the operators of ai.onnx.ml. See docs/onnx.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.ops.onnx import _schemas
from graphcore.ops.onnx import ml as ml


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    operator = globals()[name] = _schemas.function(name, "", __name__)
    return operator


def __dir__() -> list[str]:
    return ["ml", *_schemas.names("")]
