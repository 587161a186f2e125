"""The encodings: how many bits a number takes, and which numbers share a scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from graphcore.errors import DTypeError


@dataclass(frozen=True, slots=True)
class Encoding:
    """One way to hold floats in few bits.

    bits: of a number, without scales. block: how many numbers share what a block has; None where that is chosen.
    block_bytes: what such a block takes; None where values and scales are arrays of their own. gguf: its name in GGUF
    files, or "". meaning: which float a number stands for.
    """

    name: str
    bits: int
    block: int | None
    block_bytes: int | None
    gguf: str
    meaning: str

    def __str__(self) -> str:
        return self.name


_ROWS = (
    Encoding("int8", 8, None, None, "", "(q - zero) * scale; a scale for the tensor, or for each index of an axis"),
    Encoding("int8_split", 16, None, None, "", "(254 * q1 + q2) * scale; two digits of 8 bits, scales as of int8"),
    Encoding(
        "int4", 4, None, None, "", "(q - zero) * scale; a scale for each block of the last axis, zero is 8 if none"
    ),
    Encoding("q4_0", 4, 32, 18, "Q4_0", "(q - 8) * d"),
    Encoding("q4_k", 4, 256, 144, "Q4_K", "d * s * q - dmin * m; s and m of 6 bits for each 32 numbers"),
    Encoding("q5_k", 5, 256, 176, "Q5_K", "d * s * q - dmin * m; s and m of 6 bits for each 32 numbers"),
    Encoding("q6_k", 6, 256, 210, "Q6_K", "d * s * (q - 32); s of 8 bits for each 16 numbers"),
)

ENCODINGS: Mapping[str, Encoding] = MappingProxyType({row.name: row for row in _ROWS})
"""Every encoding by name."""


def encoding_of(op: str, encoding: object) -> Encoding:
    """The encoding of a name, in capitals or not. Raises `DTypeError` that lists those there are."""
    if isinstance(encoding, Encoding):
        return encoding
    found = ENCODINGS.get(encoding.lower()) if isinstance(encoding, str) else None
    if found is None:
        raise DTypeError(f"{op}: there is no encoding {encoding!r:.80}", help=f"one of {', '.join(ENCODINGS)}")
    return found
