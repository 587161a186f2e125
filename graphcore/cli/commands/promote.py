"""`graphcore promote`: the dtype that two dtypes promote to under each promotion system, and why."""

from __future__ import annotations

import argparse

from graphcore.cli import output
from graphcore.promotion import NAMES, PromotionSystem, explain, system

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    names = args.system or NAMES
    # One system reads its own spelling of dtypes; several get the same two dtypes.
    left, right = (lhs, rhs) if len(names) == 1 else (_common(lhs), _common(rhs))
    explanations = [explain(left, right, rules) for name in names for rules in _systems(name, left, right)]
    if args.json:
        answers = [{"system": e.system, "result": e.result, "kind": e.kind, "reason": e.reason} for e in explanations]
        output.document({"lhs": lhs, "rhs": rhs, "systems": answers})
        return 0
    rows = [(e.system, e.result, e.reason) for e in explanations]
    output.table(rows, head=("system", f"{lhs} {rhs}", "why"))
    return 0


def _systems(name: str, lhs: str, rhs: str) -> list[PromotionSystem]:
    """Return the system of a name, and its extension by complex numbers if a dtype is complex."""
    rules = system(name)
    if name != "max" or not any(rules.read(dtype)[0].is_complex for dtype in (lhs, rhs)):
        return [rules]
    return [rules, system(name, complex=True)]


def _common(name: str) -> str:
    """Return the common name of a dtype, with its question mark."""
    dtype, is_guess = PromotionSystem().read(name)
    return f"{dtype.name}{'?' * is_guess}"
