"""The base class of dims, dtypes and types, which never change."""

from __future__ import annotations

from typing import Self

from graphcore.support.markup import code


class Immutable:
    """A value that never changes: a copy is the value itself. Notebooks show its text as code."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _repr_html_(self) -> str:
        return code(str(self))
