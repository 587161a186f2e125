"""Models written with the library, and text generation with the decoders among them."""

from graphcore.models.generation import generate, stream
from graphcore.models.streams.scheduler import Request, Streams

__all__ = ["Request", "Streams", "generate", "stream"]
