"""Arrays of weights and constants in another dtype of floats, and the report of what it does not hold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.errors import LossyCastWarning
from graphcore.ir.symbol import Constant, Symbol
from graphcore.support.escaping import escaped
from graphcore.support.source_lines import Line, Origin, line_of, user_line
from graphcore.types.dtypes import DType

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """An array that the new dtype does not hold.

    beyond: elements that become the largest finite value. zeros: elements other than 0 that become 0.
    """

    label: str
    line: Line | None
    source: DType
    shape: tuple[int, ...]
    beyond: int
    zeros: int

    def text(self, dtype: DType) -> str:
        """Return a line for the warning."""
        size = int(np.prod(self.shape))
        parts = []
        if self.beyond:
            parts.append(
                f"{self.beyond} of {size} values are beyond {dtype} and become {dtype.max:.6g} or its negative"
            )
        if self.zeros:
            parts.append(f"{self.zeros} of {size} values become 0")
        place = f" ({self.line})" if self.line else ""
        return f"{self.label} {self.source}{list(self.shape)}{place}: {'; '.join(parts)}"


class Arrays:
    """The arrays of one change of dtype: each is cast once, however many Symbols share it."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.losses: list[Loss] = []
        self._made: dict[int, tuple[Array, Array]] = {}
        self._constants: dict[int, tuple[Constant, Constant]] = {}

    def constant(self, symbol: Symbol, producer: Constant) -> Constant:
        """Return the producer of a constant or weight in the new dtype."""
        found = self._constants.get(id(producer))
        if found is None:
            label = repr(symbol.given_name) if symbol.given_name else "a constant"
            array = self.cast(producer.array, symbol.dtype, label, producer.origin)
            found = self._constants[id(producer)] = producer, Constant(array, producer.is_weight, producer.origin)
        return found[1]

    def cast(self, array: Array, source: DType, label: str, origin: Origin | Line | None) -> Array:
        """Return an array in the new dtype. Finite values stay finite."""
        found = self._made.get(id(array))
        if found is not None:
            return found[1]
        made = cast_array(array, source, self.dtype)
        if self.dtype.bits < source.bits or float(self.dtype.max) < float(source.max):
            infinite = np.isinf(made) & np.isfinite(array)
            beyond = int(np.count_nonzero(infinite))
            zeros = int(np.count_nonzero((made == 0) & (array != 0)))
            if beyond:
                largest = np.copysign(float(self.dtype.max), array.astype(np.float64)).astype(self.dtype.numpy)
                made = np.where(infinite, largest, made).astype(self.dtype.numpy)
            if beyond or zeros:
                self.losses.append(Loss(label, line_of(origin), source, array.shape, beyond, zeros))
        self._made[id(array)] = array, made
        return made

    def report(self) -> None:
        """Warn, at the user's line, of the arrays that the dtype does not hold."""
        if not self.losses:
            return
        rows = sorted(self.losses, key=lambda loss: -loss.beyond)
        shown = [f"\n    {escaped(loss.text(self.dtype))}" for loss in rows[:_SHOWN]]
        more = f"\n    and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        text = f"astype: {self.dtype} does not hold every value of {len(rows)} constants and weights"
        fix = "\n  help: keep what reads them: astype(..., keep=[...])"
        path, number = user_line() or ("<unknown>", 0)
        warnings.warn_explicit(f"{text}{''.join(shown)}{more}{fix}", LossyCastWarning, path, number)
