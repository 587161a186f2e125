"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse

from graphcore.cli import output
from graphcore.promotion import NAMES, PromotionSystem, explain

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    systems = args.system or NAMES
    # One system is asked in its own spelling; of several all are asked about the same two dtypes.
    left, right = (lhs, rhs) if len(systems) == 1 else (_common(lhs), _common(rhs))
    found = [explain(left, right, name) for name in systems]
    if args.json:
        answers = [{"system": e.system, "result": e.result, "kind": e.kind, "reason": e.reason} for e in found]
        output.document({"lhs": lhs, "rhs": rhs, "systems": answers})
        return 0
    rows = [(e.system, e.result, e.reason) for e in found]
    output.table(rows, head=("system", f"{lhs} {rhs}", "why"))
    return 0


def _common(name: str) -> str:
    """Return a dtype that is spelled as everywhere, by its own name, with the question mark that it has."""
    dtype, is_guess = PromotionSystem().read(name)
    return f"{dtype.name}{'?' * is_guess}"
