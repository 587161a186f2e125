"""HTML and SVG from arbitrary text. Names in models are never markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]")
"""Invisible characters: controls, direction marks, unpaired surrogates. XML does not allow all of them."""

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def visible(text: str) -> str:
    """Return a text with invisible characters escaped: `\\u202e`."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escaped(text: str) -> str:
    """Return a text escaped for elements and quoted attributes of HTML and XML, with visible escapes."""
    return visible(text).translate(_MARKUP)


def code(text: str) -> str:
    """Return a text as a `<code>` element."""
    return f"<code>{escaped(text)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a `<table>` of texts."""
    title = f"<caption>{escaped(caption)}</caption>" if caption else ""
    heads = "".join(f"<th>{escaped(cell)}</th>" for cell in head)
    cells = (("<td>" + (code(cell) if cell else "") + "</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
