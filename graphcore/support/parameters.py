"""Type parameters of decorated functions. Type checkers read parameters.pyi, where they have defaults."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

P = ParamSpec("P")
"""The parameters of the decorated function."""
R = TypeVar("R")
"""The result of the decorated function."""
Arrays = TypeVar("Arrays")
"""The result with arrays instead of Symbols."""
