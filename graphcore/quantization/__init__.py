"""Quantisation: encodings of floats in few bits, and tensors held in them."""

from __future__ import annotations

from graphcore.quantization.blocks import ENCODINGS, Encoding
from graphcore.quantization.encoders import encode
from graphcore.quantization.tensors import Quantized, QuantizedTensor

__all__ = ["ENCODINGS", "Encoding", "Quantized", "QuantizedTensor", "encode"]
