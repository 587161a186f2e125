"""Methods that are attached to a class from another file than its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def method(owner: type, name: str = "") -> Callable[[_Function], _Function]:
    """Attach a function to a class as a method, under its own name or the one given."""

    def attach(function: _Function) -> _Function:
        function.__name__ = name or function.__name__
        function.__qualname__ = f"{owner.__name__}.{function.__name__}"
        setattr(owner, function.__name__, function)
        return function

    return attach
