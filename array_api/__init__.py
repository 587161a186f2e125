"""The Python array API standard: its functions over Symbols, which build graphs, and over Arrays, which have values.

    xp = x.__array_namespace__()      # of a Symbol or an Array
    y = xp.sum(xp.exp(x), axis=-1)    # a node of the Symbol's graph, or an Array

Arrays compute with the same ops as graphs do: each function is compiled once for each signature of dtypes and ranks.
"""

from __future__ import annotations

if __name__ != "graphcore.array_api":
    raise ImportError(f"this is graphcore's array API namespace: import it as graphcore.array_api, not as {__name__}")

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.array_api._creation import *
from graphcore.array_api._data_types import *
from graphcore.array_api._eager.array import Array as Array
from graphcore.array_api._elementwise import *
from graphcore.array_api._indexing import *
from graphcore.array_api._inspection import *
from graphcore.array_api._linear_algebra import *
from graphcore.array_api._manipulation import *
from graphcore.array_api._searching import *
from graphcore.array_api._statistics import *

__array_api_version__ = "2024.12"
API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""The editions that the namespace follows, without complex dtypes."""

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

if TYPE_CHECKING:
    from graphcore.array_api import fft, linalg


def __getattr__(name: str) -> Any:
    """The extensions, loaded when first used."""
    if name not in ("fft", "linalg"):
        raise AttributeError(f"module 'graphcore.array_api' has no attribute {name!r}")
    return import_module(f"graphcore.array_api.{name}")
