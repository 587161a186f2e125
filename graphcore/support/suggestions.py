"""Names that are close to one that does not exist, for the help of errors."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(asked: object, known: Iterable[str], *, cutoff: float = 0.7, ending: str = " ") -> str:
    """Return `did you mean float32? ` where a known name, or two, is close to the one asked for, else "".

    asked: what the user gave; only strings have close names. cutoff: the least similarity, from 0 to 1. ending: what
    stands after the question, since the help of most errors goes on.
    """
    if not isinstance(asked, str):
        return ""
    import difflib  # errors alone need it

    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    lower = asked[:200].lower()
    close = [lower] if lower in by_lower else difflib.get_close_matches(lower, by_lower, 2, cutoff)
    if len(close) == 2:
        best, second = (difflib.SequenceMatcher(None, name, lower).ratio() for name in close)
        close = close if best - second < _NEARLY else close[:1]
    return f"did you mean {' or '.join(by_lower[name] for name in close)}?{ending}" if close else ""


_NEARLY = 0.1
"""The difference of similarity up to which a second name may be the one that was meant."""

__all__ = ["suggestion"]
