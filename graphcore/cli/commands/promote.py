"""`graphcore promote`: the dtype that two dtypes promote to under each promotion system, and why."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from graphcore.cli import output
from graphcore.errors import DTypeError
from graphcore.promotion import NAMES, PromotionSystem, explain, system
from graphcore.promotion.explanations import supports
from graphcore.support.escaping import suggestion

_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def promote(args: argparse.Namespace) -> int:
    lhs, rhs = (_SHORT.get(name, name) for name in (args.lhs, args.rhs))
    names = args.system or NAMES
    # One system reads its own spelling of dtypes; several get the same two dtypes.
    left, right = (lhs, rhs) if len(names) == 1 else (_common(lhs), _common(rhs))
    systems = [rules for name in names for rules in _systems(name, left, right)]
    for text in dict.fromkeys((left, right)):
        _check(text, systems, is_default=not args.system)
    explanations = [explain(left, right, rules) for rules in systems]
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


def _check(text: str, systems: Sequence[PromotionSystem], *, is_default: bool) -> None:
    """Raise `DTypeError` if no system has a dtype, or of others only Allo's, which have any width.

    By default, warn of widths that only Allo's systems have.
    """
    dtypes = [rules.read(text)[0] for rules in systems]
    close = suggestion(dtypes[0].name, sorted({dtype.name for rules in systems for dtype in rules.dtypes}))
    having = [rules for rules, dtype in zip(systems, dtypes, strict=True) if supports(rules, dtype)]
    others = [] if having else [name for name in NAMES if supports(system(name), dtypes[0])]
    if not having and all(name.startswith("allo") for name in others):
        raise DTypeError(
            f"promote: {dtypes[0]} is not a dtype of {'any system' if is_default else ' or '.join(map(str, systems))}",
            help=close + (f"systems that have it: {', '.join(others)}" if others else "it combines only with itself"),
        )
    if is_default and close and not any(dtype in rules.dtypes for rules, dtype in zip(systems, dtypes, strict=True)):
        names = " and ".join(map(str, having))
        warnings.warn(f"promote: {dtypes[0]} is a dtype of {names} only; {close.strip()}", stacklevel=2)


def _common(name: str) -> str:
    """Return the common name of a dtype, with its question mark."""
    dtype, is_guess = PromotionSystem().read(name)
    return f"{dtype.name}{'?' * is_guess}"
