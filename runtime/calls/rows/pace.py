"""The number of rows that run together, chosen by what batches took."""

from __future__ import annotations

from dataclasses import dataclass

SIZES = (1, 4, 8, 16, 32, 64)
"""The numbers of rows to choose among."""

_FIRST = SIZES.index(4)
_TRIES = 2
_GAIN = 0.97
"""The part of the time up to which another number of rows counts as quicker: less is noise."""
_LOSS = 1.15
"""The part of the time from which on still larger batches are not tried."""
_AGAIN = 16
"""Of so many batches one is of another number of rows than the best."""
_FADES = 1.05
"""The factor by which the least time grows with each one that is longer."""


@dataclass(slots=True)
class _Cost:
    """tries: batches that were timed. least: the seconds of an element in the quickest of them."""

    tries: int = 0
    least: float = float("inf")


class Pace:
    """Chooses among `SIZES`, for rows of about as many elements, by the least time of an element.

    Begins with 4 and goes on to larger batches until they are slower; where none is quicker, a row alone is tried. Each
    is timed twice, and the quicker time counts, with less and less weight. Now and then a neighbour of the best one is
    timed again: a machine's speed changes, and other programs disturb.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[int, int], _Cost] = {}
        self._turns: dict[int, int] = {}

    def rows(self, elements: int) -> int:
        """Return how many rows to run together. elements: of a row."""
        kind = elements.bit_length()
        best = self._best(kind)
        if self._turns.get(kind, 0) % _AGAIN == _AGAIN - 1:
            best += 1 if self._turns[kind] // _AGAIN % 2 else -1
        return SIZES[min(max(best, 0), len(SIZES) - 1)]

    def _best(self, kind: int) -> int:
        """Return the place of the quickest number of rows, or of the next one to try."""
        best = _FIRST
        for index in range(_FIRST, len(SIZES)):
            cost = self._cost(kind, SIZES[index])
            if cost.tries < _TRIES:
                return index
            least = self._cost(kind, SIZES[best]).least
            if cost.least > least * _LOSS:
                break
            if cost.least < least * _GAIN:
                best = index
        if best == _FIRST:
            alone = self._cost(kind, SIZES[0])
            if alone.tries < _TRIES or alone.least < self._cost(kind, SIZES[best]).least * _GAIN:
                return 0
        return best

    def note(self, elements: int, rows: int, seconds: float) -> None:
        """Take down what a batch took. elements: of a row."""
        kind = elements.bit_length()
        self._turns[kind] = self._turns.get(kind, 0) + 1
        if rows in SIZES:
            cost = self._cost(kind, rows)
            cost.tries += 1
            cost.least = min(cost.least * _FADES, seconds / max(1, rows * elements))

    def _cost(self, kind: int, rows: int) -> _Cost:
        return self._costs.setdefault((kind, rows), _Cost())
