"""The namespace's information about itself: its capabilities, devices and dtypes."""

from __future__ import annotations

from typing import Any

from graphcore.array_api._data_types import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INTEGER, KINDS
from graphcore.arrays.eager_array import DEVICE, check_device
from graphcore.errors import DTypeError
from graphcore.types.dtypes import DType

__all__ = ["__array_namespace_info__"]


class Info:
    """The result of `__array_namespace_info__`."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Return which optional parts of the standard there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device that arrays are made on."""
        return DEVICE

    def devices(self) -> tuple[str, ...]:
        """All devices: in a tuple, as in edition 2025.12, where earlier ones have a list."""
        return (DEVICE,)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the dtypes of Python numbers and positions."""
        check_device("default_dtypes", device)
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INTEGER,
            "indexing": DEFAULT_INTEGER,
        }

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes by name, those of a kind or of several. Raises `DTypeError` for what is no kind."""
        check_device("dtypes", device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if one not in KINDS:
                raise DTypeError(f"dtypes: there is no kind {one!r}", help=f"use one of {', '.join(map(repr, KINDS))}")
        return {dtype.name: dtype for one in kinds for dtype in KINDS[one]}


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return the namespace's information about itself."""
    return Info()
