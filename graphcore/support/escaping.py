"""Text for users: names escaped for terminals, suggestions, and integers of any length."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable


def escaped(text: str) -> str:
    """Return a text in one line, with unprintable characters as Python escapes: `\\x1b`, `\\n`, `\\u202e`.

    Escaping is idempotent. Names in models may contain anything, so all output escapes them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def escaped_lines(text: str) -> str:
    """Return a text escaped, except line breaks before indented lines: a name cannot start a new line."""
    if text.isprintable():
        return text
    return "\n".join(map(escaped, _indented(text)))


_indented = re.compile(r"\n(?=  )").split


def counted(number: int, noun: str) -> str:
    """Return "1 value" or "2 values"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


# Suggestions for unknown names, for the help of errors.


def similar(name: str, names: Iterable[str], count: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the most similar names, at most `count`. cutoff: the minimum similarity, from 0 to 1."""
    import difflib  # only errors need it

    return difflib.get_close_matches(name, [*names], count, cutoff)


def suggestion(query: object, names: Iterable[str], *, cutoff: float = 0.7, ending: str = " ") -> str:
    """Return `did you mean float32? ` if one or two names are similar to `query`, else "".

    query: the value of the user; only strings have similar names. cutoff: the minimum similarity, from 0 to 1. ending:
    the text after the question.
    """
    if not isinstance(query, str):
        return ""
    import difflib  # only errors need it

    by_lower: dict[str, str] = {}
    for name in names:
        by_lower.setdefault(name.lower(), name)
    lower = query[:200].lower()
    close = [lower] if lower in by_lower else difflib.get_close_matches(lower, by_lower, 2, cutoff)
    if len(close) == 2:
        best, second = (difflib.SequenceMatcher(None, name, lower).ratio() for name in close)
        close = close if best - second < _MAX_GAP else close[:1]
    return f"did you mean {' or '.join(by_lower[name] for name in close)}?{ending}" if close else ""


def choices(query: object, names: Collection[str], *, cutoff: float = 0.7) -> str:
    """Return the help of an error for a value that is not one of these names, with a suggestion."""
    return f"{suggestion(query, names, cutoff=cutoff)}use one of {', '.join(names)}"


_MAX_GAP = 0.1
"""The maximum difference in similarity for which the second name is also suggested."""

# Names of NumPy, PyTorch and the array API that ops or Symbols do not have

_LINALG = frozenset(
    "cholesky cross det diagonal eig eigh eigvals eigvalsh inv matrix_norm matrix_power matrix_rank pinv qr slogdet "
    "solve svd svdvals trace vector_norm".split()
)

_OPS = {
    "absolute": "abs", "addmm": "linear", "amax": "max", "amin": "min", "arange": "range", "bmm": "matmul",
    "cat": "concat", "clamp": "clip", "concatenate": "concat", "divide": "div", "dot": "matmul",
    "expand": "broadcast_to", "expand_dims": "unsqueeze", "floor_divide": "floor_div", "index_select": "gather",
    "invert": "bitwise_not", "mm": "matmul", "moveaxis": "permute", "multiply": "mul", "negative": "negate",
    "power": "pow", "remainder": "mod", "std": "stdev", "subtract": "sub", "take": "gather", "topk": "top_k",
    "true_divide": "div",
}  # fmt: skip
"""Ops by their names in other libraries."""

_METHODS = {
    "astype": "x.cast(dtype)", "at": "ops.where or ops.scatter_nd", "clone": "x: it does not change",
    "copy": "x: it does not change", "dim": "x.rank", "expand": "x.broadcast_to(shape)", "item": "", "numpy": "",
    "std": "x.stdev()", "to": "x.cast(dtype)", "tolist": "", "type_as": "x.cast(y.dtype)", "view": "x.reshape(shape)",
}  # fmt: skip
"""Expressions by names of methods; "" for methods that need a value."""


def op_hint(name: str, ops: Collection[str]) -> str:
    """Return a suggestion for an unknown op, "" if there is none."""
    if name in _OPS:
        return f"it is ops.{_OPS[name]} here"
    if name in _LINALG:
        return f"it is graphcore.array_api.linalg.{name}"
    return suggestion(name, ops, ending="")


def method_hint(query: str, ops: Collection[str], kinds: Iterable[type]) -> str:
    """Return a suggestion for an unknown attribute of a Symbol or Tensor, "" if there is none.

    kinds: the classes whose attributes it has.
    """
    if query.startswith("_"):
        return ""
    if query in _METHODS:
        return f"write {_METHODS[query]}" if _METHODS[query] else "it has a value when the graph has run"
    if query in ops:
        return f"write ops.{query}(x)"
    if query in _OPS:
        return f"write ops.{_OPS[query]}(x)"
    return suggestion(query, [name for kind in kinds for name in dir(kind) if name[0] != "_"], ending="")


# Integers of any length as text. Python does not convert integers of thousands of digits to decimal.

_MAX_BITS = 4096
_DISPLAYED_BITS = 64
"""The number of leading bits displayed of a longer integer."""
_MAX_DEPTH = 64
"""The maximum nesting of lists, that of axes of arrays: a list may contain itself."""


def text_of(value: object) -> str:
    """Return the repr of a number or of nested lists of numbers, with very long integers shortened.

    Their text is the first hexadecimal digits and the length: `0x1f20c3a4b5d6e7f8... (16000 bits)`.
    """
    if isinstance(value, (list, tuple)):
        return _text_of_list(value, _MAX_DEPTH)
    if not isinstance(value, int) or value.bit_length() <= _MAX_BITS:
        return repr(value)
    bits = value.bit_length()
    return f"{'-' if value < 0 else ''}{abs(value) >> (bits - _DISPLAYED_BITS):#x}... ({bits} bits)"


def _text_of_list(values: list[object] | tuple[object, ...], depth: int) -> str:
    if not depth:
        return "[...]"
    texts = [_text_of_list(v, depth - 1) if isinstance(v, (list, tuple)) else text_of(v) for v in values]
    return f"[{', '.join(texts)}]"


def size_text(count: int) -> str:
    """Return the text of a number of bytes: `1.5 MB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
