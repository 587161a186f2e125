"""Names of values as names of members of archives: none leaves the folder that an archive is unpacked in."""

from __future__ import annotations

from urllib.parse import quote, unquote


def member_name(name: str) -> str:
    """Return a name for a member of an archive, in which what could lead out of a folder is percent-encoded.

    That is: segments of dots and blanks alone, empty segments, backslashes, drives, and what is not printable; `%`
    itself too, so that `value_name` returns the name. Other names stay as they are.
    """
    kept = "".join(c if c.isprintable() and c not in "%\\" else _encoded(c) for c in name)
    if kept[1:2] == ":":
        kept = f"{kept[0]}%3A{kept[2:]}"
    first, *others = kept.split("/")
    made = _segment(first)
    for before, segment in zip([first, *others], others, strict=False):
        slash = "/" if before and segment else "%2F"
        made += f"{slash}{_segment(segment)}"
    return made


def value_name(member: str) -> str:
    """Return the name that `member_name` made a member's of."""
    return unquote(member, errors="surrogatepass")


def _segment(text: str) -> str:
    return text if text.strip(". ") else text.replace(".", "%2E").replace(" ", "%20")


def _encoded(character: str) -> str:
    return quote(character.encode("utf-8", "surrogatepass"), safe="")
