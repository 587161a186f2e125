"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from graphcore.promotion import NAMES, explain

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    found = [explain(lhs, rhs, name) for name in args.system or NAMES]
    rows = [("system", f"{lhs} {rhs}", "why"), *((e.system, e.result, e.reason) for e in found)]
    for line in aligned(rows):
        print(line)
    return 0


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines whose columns begin at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
