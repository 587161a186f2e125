"""Integers of any length as text: Python refuses to write those of thousands of digits in decimal."""

from __future__ import annotations

_MOST_BITS = 4096
_SHOWN = 64
"""The bits that are written of a longer one."""


def text_of(value: object) -> str:
    """Return the repr of a number, or of nested lists of numbers; of a very long integer its first digits and length.

    These are hexadecimal: `0x1f20c3a4b5d6e7f8... (16000 bits)`.
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text_of, value))}]"
    if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
        return repr(value)
    bits = value.bit_length()
    return f"{'-' if value < 0 else ''}{abs(value) >> (bits - _SHOWN):#x}... ({bits} bits)"


__all__ = ["text_of"]
