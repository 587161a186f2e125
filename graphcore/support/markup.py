"""HTML and SVG from text that may be anything: names of models are never markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]")
"""Controls, marks that turn the direction of text, half surrogates: XML has not all of them, and readers see none."""

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def visible(text: str) -> str:
    """Return a text with what cannot be seen spelled out: `\\u202e`."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escaped(text: str) -> str:
    """Return a text for HTML and XML, in elements and in quoted attributes, that shows what it holds."""
    return visible(text).translate(_MARKUP)


def code(text: str) -> str:
    """Return a text as an element of code."""
    return f"<code>{escaped(text)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table of texts, with the caption above it."""
    title = f"<caption>{escaped(caption)}</caption>" if caption else ""
    heads = "".join(f"<th>{escaped(cell)}</th>" for cell in head)
    cells = (("<td>" + (code(cell) if cell else "") + "</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
