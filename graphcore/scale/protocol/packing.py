"""Bodies that are packed on the way: gzip and deflate, in requests and in answers."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping

from graphcore.scale.protocol.problems import ProtocolError
from graphcore.scale.protocol.responses import Response

_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_SMALLEST = 1024
"""Bytes of an answer from which it is packed."""

_LEVEL = 1


def unpacked(headers: Mapping[str, str], body: bytes, most: int) -> bytes:
    """Return a body as it was before it was packed. headers: by names in lower case. most: bytes.

    Raises `ProtocolError` of status 413 for a body of more bytes, 415 for another packing, and 400 for what is not
    packed as it says.
    """
    if len(body) > most:
        raise ProtocolError(f"a body of more than {most} bytes", status=413)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise ProtocolError(f"content-encoding {encoding!r:.40} is not read", status=415, help="use gzip")
    unpacker = zlib.decompressobj(_WINDOWS[encoding])
    try:
        made = unpacker.decompress(body, most)
    except zlib.error:
        raise ProtocolError(f"the body is not {encoding}") from None
    if unpacker.unconsumed_tail:
        raise ProtocolError(f"a body that unpacks to more than {most} bytes", status=413)
    if not unpacker.eof:
        raise ProtocolError(f"the body is not {encoding}")
    return made


def packed(headers: Mapping[str, str], response: Response) -> Response:
    """Return a response packed as the request's `Accept-Encoding` asks for, where that is worth it."""
    asked = headers.get("accept-encoding", "")
    if len(response.body) < _SMALLEST or not asked:
        return response
    chosen = next((name for name in _accepted(asked) if name in _WINDOWS), None)
    if chosen is None:
        return response
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[chosen])
    body = packer.compress(response.body) + packer.flush()
    kinds = {**response.headers, "Content-Encoding": chosen, "Vary": "Accept-Encoding"}
    return dataclasses.replace(response, body=body, headers=kinds)


def _accepted(asked: str) -> list[str]:
    """Return the packings that a client takes, those with a weight of 0 left out."""
    made = []
    for part in asked.lower().split(","):
        name, _, more = part.partition(";")
        weight = more.strip().removeprefix("q=").strip()
        if more and weight.strip("0.") == "":
            continue
        made.append(name.strip())
    return made
