"""Custom operators of any domain, declared by `gc.custom_op`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcore.support.lazy import attributes

if TYPE_CHECKING:
    from graphcore.custom_ops.custom_op import CustomOp, lookup
else:  # running a model does not need declarations
    __getattr__ = attributes(__name__, {"CustomOp": "custom_op", "lookup": "custom_op"})

__all__ = ["CustomOp", "lookup"]
