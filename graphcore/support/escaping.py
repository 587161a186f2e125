"""Text fit for people: names escaped for terminals, names to suggest, and integers of any length."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable


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


# Names to write in place of one that does not exist, for the help of errors.


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

# Names that NumPy, PyTorch and the array API have, and ops or Symbols have not

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
"""Ops by other names."""

_METHODS = {
    "astype": "x.cast(dtype)", "at": "ops.where or ops.scatter_nd", "clone": "x: it does not change",
    "copy": "x: it does not change", "dim": "x.rank", "expand": "x.broadcast_to(shape)", "item": "", "numpy": "",
    "std": "x.stdev()", "to": "x.cast(dtype)", "tolist": "", "type_as": "x.cast(y.dtype)", "view": "x.reshape(shape)",
}  # fmt: skip
"""Expressions by the names of methods; "" for what only values have."""


def op_hint(asked: str, ops: Collection[str]) -> str:
    """Return what to write in place of an op that is not there; "" where that is not known."""
    if asked in _OPS:
        return f"it is ops.{_OPS[asked]} here"
    if asked in _LINALG:
        return f"it is graphcore.array_api.linalg.{asked}"
    return suggestion(asked, ops, ending="")


def method_hint(asked: str, ops: Collection[str], kinds: Iterable[type]) -> str:
    """Return what to write in place of an attribute that a Symbol or Tensor has not; "" where that is not known.

    kinds: the classes whose attributes it has.
    """
    if asked.startswith("_"):
        return ""
    if asked in _METHODS:
        return f"write {_METHODS[asked]}" if _METHODS[asked] else "it has a value when the graph has run"
    if asked in ops:
        return f"write ops.{asked}(x)"
    if asked in _OPS:
        return f"write ops.{_OPS[asked]}(x)"
    return suggestion(asked, [name for kind in kinds for name in dir(kind) if name[0] != "_"], ending="")


# Integers of any length as text: Python refuses to write those of thousands of digits in decimal.

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
