"""The Open Inference Protocol as functions of bytes and dicts, for any server.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, and Triton's extension for
binary tensor data.
"""

from __future__ import annotations

from graphcore.scale.protocol.endpoint import Endpoint, Served
from graphcore.scale.protocol.infer import Requested, decode_request, encode_response, packed
from graphcore.scale.protocol.tensors import ProtocolError, Response, problem

__all__ = [
    "Endpoint", "ProtocolError", "Requested", "Response", "Served", "decode_request", "encode_response", "packed",
    "problem",
]  # fmt: skip
