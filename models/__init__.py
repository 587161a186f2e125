"""Real models written with the library, and text generation with the decoders among them."""

from graphcore.models.generation import generate, stream

__all__ = ["generate", "stream"]
