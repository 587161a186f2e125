"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse

from graphcore.cli import output
from graphcore.promotion import NAMES, PromotionSystem, explain, system

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    names = args.system or NAMES
    # One system is asked in its own spelling; of several all are asked about the same two dtypes.
    left, right = (lhs, rhs) if len(names) == 1 else (_common(lhs), _common(rhs))
    found = [explain(left, right, rules) for name in names for rules in _asked(name, left, right)]
    if args.json:
        answers = [{"system": e.system, "result": e.result, "kind": e.kind, "reason": e.reason} for e in found]
        output.document({"lhs": lhs, "rhs": rhs, "systems": answers})
        return 0
    rows = [(e.system, e.result, e.reason) for e in found]
    output.table(rows, head=("system", f"{lhs} {rhs}", "why"))
    return 0


def _asked(name: str, lhs: str, rhs: str) -> list[PromotionSystem]:
    """Return the system of that name, and its extension by complex numbers where they are asked about."""
    rules = system(name)
    if name != "max" or not any(rules.read(dtype)[0].is_complex for dtype in (lhs, rhs)):
        return [rules]
    return [rules, system(name, complex=True)]


def _common(name: str) -> str:
    """Return a dtype that is spelled as everywhere, by its own name, with the question mark that it has."""
    dtype, is_guess = PromotionSystem().read(name)
    return f"{dtype.name}{'?' * is_guess}"
