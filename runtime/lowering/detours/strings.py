"""Operators on strings."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.detours.kind import Inputs, Made

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

_ALL_CATEGORIES = 0x1FBF
"""LC_ALL_MASK of glibc."""


def normalizer(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """StringNormalizer in a locale that this machine has: the kernel's default need not be installed."""
    chosen = None if attributes.get("locale") else locale()
    if chosen is None:
        return None
    made: tuple[Any, ...] = on.graph._emit_many(op, tuple(inputs), types, {**attributes, "locale": chosen})
    return made


@functools.cache
def locale() -> str | None:
    """The locale to name where a model names none; None where the kernel's own default serves.

    C.UTF-8, which is part of glibc, maps the cases of all letters as en_US.UTF-8 does.
    """
    if sys.platform != "linux" or _exists("en_US.UTF-8"):
        return None
    return next((name for name in ("C.UTF-8", "C.utf8") if _exists(name)), "C")


def _exists(name: str) -> bool:
    library = ctypes.CDLL(None)
    library.newlocale.restype = ctypes.c_void_p
    library.newlocale.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    found = library.newlocale(_ALL_CATEGORIES, name.encode(), None)
    if not found:
        return False
    library.freelocale.argtypes = (ctypes.c_void_p,)
    library.freelocale(found)
    return True
