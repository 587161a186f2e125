"""Models written with the library, and text generation with the decoders among them."""

from graphcore.models.encoder import TextEncoder
from graphcore.models.generation import cache_scales, generate, stream
from graphcore.models.grammars import Grammars, Penalties
from graphcore.models.loading import load
from graphcore.models.streams.sampling import TokenLogprob
from graphcore.models.streams.scheduler import Request, Streams
from graphcore.models.text import TextDecoder, TextPiece, TextRequest, TextResult

__all__ = [
    "Grammars",
    "Penalties",
    "Request",
    "Streams",
    "TextDecoder",
    "TextEncoder",
    "TextPiece",
    "TextRequest",
    "TextResult",
    "TokenLogprob",
    "cache_scales",
    "generate",
    "load",
    "stream",
]
