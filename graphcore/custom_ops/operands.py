"""The operands of a declaration: how they promote, and which dtypes they may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from graphcore.build import operands
from graphcore.custom_ops.signature import Signature
from graphcore.errors import GraphError
from graphcore.promotion.rules import Rule
from graphcore.types.dtypes import DType

NONE = "none"
"""The promotion of operands that stay as they are."""


def groups(label: str, signature: Signature, promote: str | Mapping[str, str]) -> list[tuple[str, frozenset[str]]]:
    """The promotion rules, each with the operands that meet under it."""
    names = [o.name for o in signature.operands]
    table = {" ".join(names): promote} if isinstance(promote, str) else dict(promote)
    made: list[tuple[str, frozenset[str]]] = []
    told: set[str] = set()
    for group, rule in table.items():
        _check_names(label, "promote", signature, group.split())
        if rule not in (NONE, *get_args(Rule)):
            raise GraphError(
                f"{label}: no promotion is called {rule!r:.80}", help=f"use one of none, {', '.join(get_args(Rule))}"
            )
        made.append((rule, frozenset(group.split())))
        told.update(group.split())
    return [*made, (NONE, frozenset(names) - told)]


def allowed(label: str, signature: Signature, dtypes: Mapping[str, str]) -> dict[str, frozenset[DType]]:
    found = {}
    for group, row in dtypes.items():
        _check_names(label, "dtypes", signature, group.split())
        allowed = frozenset(operands.dtype_of(label, name) for name in row.split())
        found.update(dict.fromkeys(group.split(), allowed))
    return found


def _check_names(label: str, what: str, signature: Signature, names: Sequence[str]) -> None:
    known = [o.name for o in signature.operands]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GraphError(f"{label}: {what} names {unknown[0]!r}, which is no operand", help=f"{', '.join(known)}")
