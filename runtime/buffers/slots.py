"""Slots: the buffers of a Model for several streams of calls in one memory, of which a call runs any range of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.runtime.buffers.state import Kept, Program, State
from graphcore.support.escaping import escaped


class Slots:
    """Rows of the buffers of a Model: the first dim of each buffer, one row a stream.

    `slots.run(start, stop, *arrays)` runs the Model on these rows alone, with inputs of so many rows. `slots.arrays`
    are the memory, by name an array of all rows, to read and to write to between calls: that is how a row is moved.
    Made by `Model.slots`. One thread at a time uses it.

    Where the runtime writes buffers in place in host memory, a range is a view, and no row is copied. Otherwise what a
    range holds is copied to its call and back again when another range is run, or its memory is asked for.
    """

    def __init__(self, program: Program, count: int) -> None:
        """Raise `ModelError` for buffers that do not all begin with one named dim, `FeedError` for a count below 1, and
        `ResourceLimitError` where there is no memory for so many."""
        if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
            raise FeedError(f"slots: {program.name}: count={count!r:.80}", help="give a whole number of 1 or above")
        self._program = program
        self._count = int(count)
        dim = _batch(program)
        try:
            self._arrays = {k.name: self._rows(k, str(dim)) for k in program.kept}
        except (MemoryError, ValueError):
            raise ResourceLimitError(
                f"slots: {program.name}: there is no memory for {count} rows of its buffers",
                operands={k.name: str(k.type) for k in program.kept[:2]},
                help="ask for fewer rows",
            ) from None
        self._shares = program.is_in_place and program.runner.writes_to_arrays
        self._states: dict[tuple[int, int], State] = {}
        self._is_lost = False

    def __len__(self) -> int:
        return self._count

    def run(self, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        """Return the outputs of a call on rows start to stop, as calling the Model gives them.

        A call that fails has written to no other rows, and to its own only what this call would have stored; on another
        device all rows are lost then, and `RunError` says so. Raises what a call of a State does, and `FeedError` for a
        range that is empty or not inside.
        """
        state = self._states.get((start, stop))
        if state is None:
            state = self._state(start, stop)
        try:
            return state(*arrays)
        except BaseException:
            # The state would be refused from now on. Of memory that is shared no more is lost than was to be stored.
            if self._shares:
                del self._states[start, stop]
            elif self._program.writes_in_place:
                self._is_lost = True
            raise

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Return the memory of the buffers by name, all rows: valid until the next call."""
        self._bring_back()
        return self._arrays

    def __repr__(self) -> str:
        return escaped(f"<Slots of {self._program.name}: {self._count} rows>")

    def _rows(self, kept: Kept, dim: str) -> Array:
        first = kept.at_first({dim: self._count})
        return first.copy() if first is kept.buffer.initial else first

    def _state(self, start: int, stop: int) -> State:
        if not 0 <= start < stop <= self._count:
            raise FeedError(
                f"slots: {self._program.name}: rows {start} to {stop} of {self._count}", help="give 0 <= start < stop"
            )
        self._bring_back()
        program = self._program
        rows = {name: array[start:stop] for name, array in self._arrays.items()}
        if self._shares:  # rows side by side are an array of their own, whose memory `hold` shares
            state = State(program, {}, {k.name: program.runner.hold(k, rows[k.name]) for k in program.kept})
        else:
            state = State(program, rows)
        self._states[start, stop] = state
        return state

    def _bring_back(self) -> None:
        """Copy what the last range holds to the memory of all rows, where it is not the same."""
        if self._shares:
            return
        if self._is_lost:
            raise RunError(
                f"slots: a call of {self._program.name} failed that may have written to its rows in place",
                help="make other slots: model.slots(count)",
            )
        while self._states:
            (start, stop), state = self._states.popitem()
            for name, array in self._arrays.items():
                now = state.buffers[name]
                if now.shape != array[start:stop].shape:
                    raise RunError(
                        f"slots: a call on rows {start} to {stop} of {self._program.name} has stored another shape",
                        operands={name: f"{now.dtype}{list(now.shape)}"},
                        help="store as many rows as there are: a stream has one",
                    )
                array[start:stop] = now


def _batch(program: Program) -> object:
    """Return the dim that all buffers begin with. Raises `ModelError`."""
    shapes = [k.type.shape for k in program.kept]
    are_rows = all(s.is_ranked and len(s) and all(dim.is_static for dim in s[1:]) for s in shapes)
    first = shapes[0][0] if are_rows else None
    if first is None or first.is_static or first.is_dynamic or any(s[0] is not first for s in shapes):
        raise ModelError(
            f"slots: the buffers of {program.name} are not one named dim, the same of all, and then numbers",
            operands={k.name: str(k.type) for k in program.kept[:4]},
            help='declare them so: gc.Buffer("float32", ["batch", 1024, 64], in_place=True)',
        )
    return first
