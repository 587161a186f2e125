"""The ranges of activations on samples: what calibration of static quantisation finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Runs = Sequence[tuple[Sequence[Any], Mapping[str, Any]]]


class Ranges:
    """The least and the greatest number of Symbols of a graph over all samples, 0 included."""

    def __init__(self, graph: Graph, symbols: Iterable[Symbol], runs: Runs) -> None:
        self._found = _measured(graph, {s.id: s for s in symbols}, runs)

    def of(self, symbol: Symbol) -> tuple[float, float] | None:
        """Return the range; None for a Symbol that was not asked for, or of another graph."""
        return self._found.get(id(symbol))

    def scale(self, symbol: Symbol) -> tuple[np.float32, np.uint8] | None:
        """Return the scale and zero point in which the range takes all of uint8, as DynamicQuantizeLinear has them."""
        found = self.of(symbol)
        if found is None:
            return None
        least, most = np.float32(found[0]), np.float32(found[1])
        scale = (most - least) / np.float32(255)
        if not scale > 0:
            return np.float32(1), np.uint8(0)
        return scale, np.uint8(np.clip(np.rint(-least / scale), 0, 255))


def _measured(graph: Graph, symbols: Mapping[int, Symbol], runs: Runs) -> dict[int, tuple[float, float]]:
    # onnxruntime, which quantising without samples does not need
    from graphcore.runtime.session import InferenceSession

    if not symbols:
        return {}
    shown = copied(graph)
    shown.build.outputs([(f"range.{number}", shown.symbols[number]) for number in symbols])
    model = InferenceSession(optimize="off").load(shown)
    found: dict[int, tuple[float, float]] = {}
    for arrays, named in runs:
        for symbol, array in zip(symbols.values(), model(*arrays, **named), strict=True):
            numbers = np.asarray(array)
            if not numbers.size:
                continue
            least, most = float(numbers.min()), float(numbers.max())
            if not np.isfinite([least, most]).all():
                raise GraphError(
                    "quantize: samples lead to NaN or infinity",
                    operands={"value": symbol},
                    help="give samples that the graph is made for",
                )
            before = found.get(id(symbol), (0.0, 0.0))
            found[id(symbol)] = min(before[0], least), max(before[1], most)
    return found


def is_float32(symbol: Symbol | None) -> bool:
    """Return whether a Symbol is a tensor of float32."""
    return symbol is not None and isinstance(symbol.type, TensorType) and symbol.dtype is DType.float32
