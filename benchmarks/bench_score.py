"""The number of the 2,397 cells of `tests.support.every.score` that an engine builds, runs and gets right.

python -m benchmarks.bench_score

Values are small integers without 0, so that no engine divides by 0: a cell counts where the dtype of the result is the
common dtype of the operands, and its values are NumPy's. `graphcore` is also scored on extreme ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from tests.support.every.score import CELLS, ENGINES, Array, Cell, agrees, gentle, operands, wanted


def passes(engine: Callable[..., Array], cell: Cell, values: Callable[[Cell], tuple[Array, ...]]) -> bool:
    arrays = values(cell)
    try:
        return agrees(cell, engine(cell, *arrays), wanted(cell, *arrays))
    except Exception:  # any exception is a refusal
        return False


def main() -> int:
    scores = {}
    rows = [(name, engine, "small values", gentle) for name, engine in ENGINES.items()]
    rows.append(("graphcore", ENGINES["graphcore"], "extreme values", operands))
    for name, engine, kind, values in rows:
        passed = [cell for cell in CELLS if passes(engine, cell, values)]
        scores[name, kind] = len(passed)
        print(f"{name:12} {kind:15} {len(passed):5} of {len(CELLS)} cells, {len(passed) / len(CELLS):6.1%}")
        missed = Counter(cell.op for cell in CELLS) - Counter(cell.op for cell in passed)
        print("             misses", ", ".join(f"{op} {count}" for op, count in missed.items()) or "none")
    return int(any(count < len(CELLS) for (name, _), count in scores.items() if name == "graphcore"))


if __name__ == "__main__":
    sys.exit(main())
