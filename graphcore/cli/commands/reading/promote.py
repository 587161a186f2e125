"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse

from graphcore.cli import output
from graphcore.promotion import NAMES, explain

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    found = [explain(lhs, rhs, name) for name in args.system or NAMES]
    if args.json:
        systems = [{"system": e.system, "result": e.result, "kind": e.kind, "reason": e.reason} for e in found]
        output.document({"lhs": lhs, "rhs": rhs, "systems": systems})
        return 0
    rows = [(e.system, e.result, e.reason) for e in found]
    output.table(rows, head=("system", f"{lhs} {rhs}", "why"))
    return 0
