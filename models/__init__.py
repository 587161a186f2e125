"""Real models written with the library, and texts from those that are decoders."""

from graphcore.models.generation import generate, stream

__all__ = ["generate", "stream"]
