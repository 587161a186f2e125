"""Leave to call the Python functions of custom ops: a model that is loaded has none but those that its user names."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from graphcore.custom_ops.custom_op import CustomOp, lookup
from graphcore.errors import GraphError, ModelError


def called(custom_ops: Iterable[str | CustomOp[..., Any]]) -> Set[str]:
    """Return the labels of custom ops that a user names. Raises `GraphError` for what names none."""
    found = [op.label if isinstance(op, CustomOp) else op for op in ([] if isinstance(custom_ops, str) else custom_ops)]
    if isinstance(custom_ops, str) or not all(isinstance(label, str) and "::" in label for label in found):
        raise GraphError(
            f"load: custom_ops={custom_ops!r:.60} are no custom ops",
            help='give a list of what gc.custom_op made, or of their names: ["domain::Name"]',
        )
    return frozenset(found)


def require_callable(domain: str, op_type: str, allowed: Set[str] | None, place: object) -> None:
    """Raise `ModelError` where a node would call a Python function of a custom op that its user did not name.

    allowed: the labels of those named; None for all.
    """
    if allowed is None or f"{domain}::{op_type}" in allowed:
        return
    op = lookup(domain, op_type)
    if op is not None and op.implementation is not None and not op.has_body:
        raise ModelError(
            f"load: {place} calls the Python function of {op.label}, which a model may only where you say so",
            help=f"if you trust the model with it, load it with custom_ops=[{op.label!r}]",
        )
