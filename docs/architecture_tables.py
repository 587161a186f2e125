"""The tables of ARCHITECTURE.md that are made from the code: the pipeline of lowering, and the targets.

PYTHONPATH=. python docs/architecture_tables.py    print both
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphcore.runtime.lowering.pipeline import PIPELINE
from graphcore.runtime.lowering.targets import TARGETS


def pipeline_table() -> str:
    """Return the passes of lowering in their order, as Markdown."""
    return _table(("pass", "when", "why"), [(step.name, step.when, step.why) for step in PIPELINE])


def targets_table() -> str:
    """Return the facts of each target, as Markdown."""
    rows = [
        (
            f'"{row.name}"',
            row.provider or "standard ONNX",
            row.table or "ONNX's schemas",
            row.host or "",
            "yes" if row.has_bitcast else "no",
            str(len(row.incorrect)),
            ", ".join(sorted(map(str, row.rounded))),
        )
        for row in TARGETS.values()
    ]
    return _table(("target", "provider", "kernels", "host", "BitCast", "incorrect kernels of", "rounded"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"


if __name__ == "__main__":
    print(pipeline_table())
    print(targets_table())
