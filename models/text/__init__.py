"""Text in, text out: tokenizers and chat templates around decoders that run in Streams."""

from graphcore.models.text.decoder import TextDecoder
from graphcore.models.text.request import TextPiece, TextRequest, TextResult

__all__ = ["TextDecoder", "TextPiece", "TextRequest", "TextResult"]
