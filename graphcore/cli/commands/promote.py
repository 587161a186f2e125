"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse

from graphcore.cli.tables import aligned
from graphcore.promotion import NAMES, explain

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    found = [explain(lhs, rhs, name) for name in args.system or NAMES]
    rows = [("system", f"{lhs} {rhs}", "why"), *((e.system, e.result, e.reason) for e in found)]
    for line in aligned(rows):
        print(line)
    return 0
