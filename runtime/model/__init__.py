"""A loaded model: arrays in, arrays out; lists of them for sequences, and None for an absent optional."""

from __future__ import annotations

from graphcore.runtime.model.model import Model
from graphcore.runtime.model.started import Start

__all__ = ["Model", "Start"]
