"""The operator library: one declaration per op, one file per family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "graphcore.ops":
    raise ImportError(f"this is graphcore's operator library: import it as graphcore.ops, not as {__name__}")

from graphcore.build.declare import REGISTRY
from graphcore.ops.activation import *
from graphcore.ops.attention import *
from graphcore.ops.bitfields import *
from graphcore.ops.bits import *
from graphcore.ops.buffers import *
from graphcore.ops.complex_numbers import *
from graphcore.ops.control import *
from graphcore.ops.convolution import *
from graphcore.ops.creation import *
from graphcore.ops.detection import *
from graphcore.ops.elementwise import *
from graphcore.ops.floats import *
from graphcore.ops.fourier import *
from graphcore.ops.gathering import *
from graphcore.ops.indexing import *
from graphcore.ops.joining import *
from graphcore.ops.linalg import *
from graphcore.ops.normalization import *
from graphcore.ops.pooling import *
from graphcore.ops.quantiles import *
from graphcore.ops.quantization import *
from graphcore.ops.random import *
from graphcore.ops.rearranging import *
from graphcore.ops.rebinding import *
from graphcore.ops.recurrent import *
from graphcore.ops.reduction import *
from graphcore.ops.resizing import *
from graphcore.ops.sequences import *
from graphcore.ops.shape import *
from graphcore.ops.sorting import *
from graphcore.ops.special import *
from graphcore.ops.strings import *
from graphcore.ops.triangular import *
from graphcore.ops.vectors import *
from graphcore.support.escaping import op_hint

# Every declared op is a name of this package; other names of the files above are not.
globals().update({name: declaration.function for name, declaration in REGISTRY.items()})
__all__ = sorted(REGISTRY)

if TYPE_CHECKING:
    from graphcore.ops import microsoft as microsoft
    from graphcore.ops import onnx as onnx


def __getattr__(name: str) -> Any:
    """Return the operators of onnxruntime's own domain or those of ONNX, declared at first use."""
    if name not in ("microsoft", "onnx"):
        hint = "" if name.startswith("_") else op_hint(name, (*__all__, "microsoft", "onnx"))
        raise AttributeError(f"module 'graphcore.ops' has no attribute {name!r}{hint and f'; {hint}'}", name=name)
    from importlib import import_module

    return import_module(f"graphcore.ops.{name}")


def __dir__() -> list[str]:
    return [*__all__, "microsoft", "onnx"]
