"""Text of others made fit for terminals: what moves the cursor, turns the direction or shows nothing is spelled out."""

from __future__ import annotations

import re


def escaped(text: str) -> str:
    """Return a text in one line, with what is not printable as Python's escapes: `\\x1b`, `\\n`, `\\u202e`.

    A text that is escaped already stays as it is. Names of models hold anything: whatever prints one escapes it.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def escaped_lines(text: str) -> str:
    """Return a text escaped, whose lines stay lines where they are indented: no name begins a line of its own."""
    if text.isprintable():
        return text
    return "\n".join(map(escaped, _indented(text)))


_indented = re.compile(r"\n(?=  )").split


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
