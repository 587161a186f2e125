"""The Python array API standard, for Symbols, which build graphs, and for Arrays, which have values.

    xp = x.__array_namespace__()      # of a Symbol or an Array
    y = xp.sum(xp.exp(x), axis=-1)    # a node of the Symbol's graph, or an Array

Arrays compute with the same ops as graphs: each function is compiled once for each signature of dtypes and ranks.
"""

from __future__ import annotations

if __name__ != "graphcore.array_api":
    raise ImportError(f"this is graphcore's array API namespace: import it as graphcore.array_api, not as {__name__}")

import math
import sys as _sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.array_api import _indexing as _operators  # attaches the operators to Array
from graphcore.array_api._creation import *
from graphcore.array_api._data_types import *
from graphcore.array_api._eager import Array as Array
from graphcore.array_api._elementwise import *
from graphcore.array_api._indexing import *
from graphcore.array_api._linear_algebra import *
from graphcore.array_api._manipulation import *
from graphcore.array_api._searching import *
from graphcore.errors import GraphError as _GraphError

__array_api_version__ = "2025.12"
API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""The supported versions of the standard."""

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

if TYPE_CHECKING:
    from graphcore.array_api import fft, linalg


def _namespace(api_version: str | None = None) -> Any:
    """Return this module. Raises `GraphError` for an unsupported version of the standard."""
    if api_version is not None and api_version not in API_VERSIONS:
        raise _GraphError(
            f"__array_namespace__: unsupported api_version={api_version!r}",
            help=f"use one of {', '.join(API_VERSIONS)}, or omit it",
        )
    return _sys.modules[__name__]


def _array_namespace(self: Array, /, *, api_version: str | None = None) -> Any:
    """Return the module with the standard's functions. Raises `GraphError` for an unsupported version."""
    return _namespace(api_version)


setattr(Array, "__array_namespace__", _array_namespace)  # noqa: B010 - Array declares it for type checkers


def __getattr__(name: str) -> Any:
    """Return an extension, imported on first use."""
    if name not in ("fft", "linalg"):
        raise AttributeError(f"module 'graphcore.array_api' has no attribute {name!r}")
    return import_module(f"graphcore.array_api.{name}")
