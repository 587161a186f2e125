"""A loaded model: arrays in, arrays out; lists of them for sequences, and None for an absent optional."""

from __future__ import annotations

from graphcore.runtime.model.calling import Start
from graphcore.runtime.model.model import Model

__all__ = ["Model", "Start"]
