"""Protobuf's text format, written: fields by name, messages in braces, repeated fields again and again.

https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | bool | Word"
Value: TypeAlias = "Scalar | Message | Sequence[Scalar | Message]"
Message: TypeAlias = Mapping[str, "Value"]


class Word(str):
    """A value of an enum, which has no quotes."""


def written(message: Message) -> str:
    """Return a message as text."""
    return "".join(f"{line}\n" for line in _lines(message, 0))


def _lines(message: Message, depth: int) -> Iterator[str]:
    for name, value in message.items():
        many = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for each in many:
            if isinstance(each, Mapping):
                yield f"{'  ' * depth}{name} {{"
                yield from _lines(each, depth + 1)
                yield f"{'  ' * depth}}}"
            else:
                yield f"{'  ' * depth}{name}: {_scalar(each)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    return repr(value)


def _escaped(byte: int) -> str:
    if byte in (0x22, 0x5C):
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
