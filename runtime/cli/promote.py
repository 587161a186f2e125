"""`graphcore promote`: what two dtypes become under each promotion system, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from graphcore.promotion import NAMES, explain
from graphcore.runtime.cli.options import Commands, command

_SUMMARY = "Prints the dtype in which two dtypes meet under each promotion system, and why; - where they do not meet."
_EPILOG = """Dtypes are float32, uint8, int23, ...; float8 is float8_e4m3fn. A question mark says that a dtype is only a
default: that of a number written in the source for anvil, of a constant for kernel_float.
The exit status is 0 whether they meet or not.

examples:
  graphcore promote int8 uint64
  graphcore promote int32? int16 --system anvil
"""
_SHORT = {"float8": "float8_e4m3fn", "float8?": "float8_e4m3fn?"}


def add(commands: Commands) -> None:
    parser = command(commands, "promote", _SUMMARY, _EPILOG)
    parser.add_argument("lhs", metavar="LHS", help="the dtype of the left operand")
    parser.add_argument("rhs", metavar="RHS", help="the dtype of the right operand")
    parser.add_argument(
        "--system", action="append", metavar="NAME", help="one of the promotion systems (all); repeatable"
    )
    parser.set_defaults(function=promote)


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
