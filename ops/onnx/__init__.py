"""Every operator of ONNX as a function, made from its schema when it is first asked for: `ops.onnx.Conv(x, w)`.

Names of operators, operands and attributes are the schemas' own; operands of one type variable are promoted to one
dtype, results typed as in a model that is read. `ops.onnx.ml` has the operators of ai.onnx.ml. See docs/onnx.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore.ops.onnx import ml as ml


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    from graphcore.onnx.operators.operators import function

    made = globals()[name] = function(name, "", __name__)
    return made


def __dir__() -> list[str]:
    from graphcore.onnx.schemas.catalogue import names

    return ["ml", *names("")]
