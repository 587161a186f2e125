"""Protobuf's wire format, as far as writing ONNX needs it.

Written by hand because a weight must reach the file from its own memory: the protobuf library would copy it twice.
https://protobuf.dev/programming-guides/encoding describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

Chunk: TypeAlias = "bytes | memoryview"


def varint(number: int) -> bytes:
    """An integer in base 128, least digit first; negative ones as 64-bit two's complement."""
    if 0 <= number < 128:
        return SMALL[number]
    number &= (1 << 64) - 1
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


SMALL = [bytes([number]) for number in range(128)]
"""The varints of one byte."""


def tag(field: int, kind: int) -> bytes:
    number = field << 3 | kind
    return SMALL[number] if number < 128 else varint(number)


def integer(field: int, number: int) -> bytes:
    """A field of an integer or enum type."""
    return tag(field, 0) + varint(number)


def single(field: int, number: float) -> bytes:
    """A field of type float."""
    return tag(field, 5) + struct.pack("<f", number)


def sized(content: bytes) -> bytes:
    """Return bytes after their length."""
    return varint(len(content)) + content


def block(field: int, content: bytes) -> bytes:
    """A field of bytes or of an embedded message."""
    size = len(content)
    return tag(field, 2) + (SMALL[size] if size < 128 else varint(size)) + content


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return block(field, value.encode())


def integers(field: int, numbers: Sequence[int]) -> bytes:
    """A packed repeated field of integers."""
    made = {number: varint(number) for number in {*numbers}}  # long lists are of few numbers
    return block(field, b"".join(map(made.__getitem__, numbers)))


def nested(field: int, chunks: list[Chunk]) -> list[Chunk]:
    """An embedded message given in chunks, none of which is copied."""
    return [tag(field, 2) + varint(sum(map(len, chunks))), *chunks]
