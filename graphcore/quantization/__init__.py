"""Quantisation: encodings of floats in few bits, and quantised tensors."""

from __future__ import annotations

from graphcore.quantization.encoders import encode
from graphcore.quantization.tensors import ENCODINGS, Encoding, Quantized, QuantizedTensor

__all__ = ["ENCODINGS", "Encoding", "Quantized", "QuantizedTensor", "encode"]
