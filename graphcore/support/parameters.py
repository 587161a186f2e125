"""Type parameters of what the decorators make. Type checkers read parameters.pyi, where they have defaults."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

P = ParamSpec("P")
"""The parameters of the function that was decorated."""
R = TypeVar("R")
"""Its result."""
Arrays = TypeVar("Arrays")
"""The result with arrays in place of Symbols."""
