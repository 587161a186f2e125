"""Integers of any length as text: Python refuses to write those of thousands of digits in decimal."""

from __future__ import annotations

_MOST_BITS = 4096
_SHOWN = 64
"""The bits that are written of a longer one."""
_DEEPEST = 64
"""Lists within lists that are written, as many as arrays have axes: a list may contain itself."""


def text_of(value: object) -> str:
    """Return the repr of a number, or of nested lists of numbers; of a very long integer its first digits and length.

    These are hexadecimal: `0x1f20c3a4b5d6e7f8... (16000 bits)`.
    """
    if isinstance(value, (list, tuple)):
        return _text_of_list(value, _DEEPEST)
    if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
        return repr(value)
    bits = value.bit_length()
    return f"{'-' if value < 0 else ''}{abs(value) >> (bits - _SHOWN):#x}... ({bits} bits)"


def _text_of_list(values: list[object] | tuple[object, ...], depth: int) -> str:
    if not depth:
        return "[...]"
    texts = [_text_of_list(v, depth - 1) if isinstance(v, (list, tuple)) else text_of(v) for v in values]
    return f"[{', '.join(texts)}]"
