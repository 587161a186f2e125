"""Expressions of Python, and their layout in lines as formatters of code write them."""

from __future__ import annotations

import io
import keyword
import math
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

WIDTH = 88
"""The characters of a line, the default of formatters."""
MARK = "\0"


class Expr(NamedTuple):
    """An expression. rank: its precedence. head, parts, close: of a call or display, which can span several lines."""

    text: str
    rank: int = 20
    head: str = ""
    parts: tuple[tuple[str, Expr], ...] = ()
    close: str = ""


def call(head: str, parts: Iterable[tuple[str, Expr]], close: str = ")") -> Expr:
    """Return a call, or a list in brackets. head: up to the bracket. parts: keywords with "=", or "", and values."""
    parts = tuple(parts)
    return Expr(f"{head}{', '.join(key + part.text for key, part in parts)}{close}", 20, head, parts, close)


def display(items: Iterable[Expr], brackets: str = "[]") -> Expr:
    """Return a list, tuple or dict of expressions."""
    items = list(items)
    if not brackets:
        return Expr(", ".join(item.text for item in items), 0)
    if brackets == "()" and len(items) == 1:
        return call("(", [("", Expr(items[0].text + ","))])
    return call(brackets[0], [("", item) for item in items], brackets[1])


def operation(sign: str, rank: int, operands: Sequence[Expr]) -> Expr:
    """Return an expression of an operator of Python."""
    if len(operands) == 1:
        return Expr(f"{sign}{_within(operands[0], rank)}", rank)
    left, right = operands
    if sign == "**" and all(_is_simple(operand.text) for operand in operands):
        return Expr(f"{left.text}**{right.text}", rank)
    start = f"{_within(left, rank)} {sign} "
    text = f"{start}{_within(right, rank + 1)}"
    return Expr(text, rank, start + right.head, right.parts, right.close) if right.rank > rank else Expr(text, rank)


_is_simple = re.compile(r"\w+|\d+\.\d+").fullmatch


def _within(expr: Expr, rank: int) -> str:
    return expr.text if expr.rank >= rank else f"({expr.text})"


def lines(prefix: str, expr: Expr, suffix: str = "", indent: int = 0, comment: str = "") -> list[str]:
    """Return the lines of an expression between two texts. comment: added where there is room."""
    blank = " " * indent
    line = f"{blank}{prefix}{expr.text}{suffix}"
    if len(line) <= WIDTH or not expr.parts:
        return [f"{line}  # {comment}" if comment and len(line) + len(comment) + 4 <= WIDTH else line]
    inner = f"{blank}    {', '.join(key + part.text for key, part in expr.parts)}"
    start = f"{blank}{prefix}{expr.head}"
    if comment and len(start) + len(comment) + 4 <= WIDTH:
        start += f"  # {comment}"
    if len(inner) <= WIDTH:
        return [start, inner, f"{blank}{expr.close}{suffix}"]
    rows = [row for key, part in expr.parts for row in lines(key, part, ",", indent + 4)]
    return [start, *rows, f"{blank}{expr.close}{suffix}"]


def value(item: Any, dtype: DType | None = None) -> Expr | None:
    """Return the literal of an attribute or a small constant; None if it has none. dtype: of the elements of a list."""
    if isinstance(item, DType):
        return Expr(f"DType.{item.name}")
    if isinstance(item, (TensorType, SequenceType, OptionalType)):
        return type_text(item)
    if isinstance(item, (list, tuple)):
        items = [value(element, dtype) for element in item]
        return None if None in items else display([element for element in items if element is not None])
    if isinstance(item, (bool, np.bool_, int, np.integer)):
        return Expr(str(bool(item) if isinstance(item, (bool, np.bool_)) else int(item)), 14 if item < 0 else 20)
    if isinstance(item, (float, np.floating)):
        return _float(float(item), dtype)
    if isinstance(item, str):
        return Expr(quoted(item))
    return Expr(repr(item)) if isinstance(item, (bytes, complex)) else None


def elements(array: np.ndarray[Any, Any]) -> Any:
    """Return the elements of an array as Python's numbers, in lists."""
    return (array if array.dtype.kind in "biufcOU" else array.astype(np.float64)).tolist()


def _float(number: float, dtype: DType | None) -> Expr:
    if not math.isfinite(number):
        return Expr(f'float("{number}")')
    short = str(np.float32(number))
    is_same = dtype in (None, DType.float32) and float(np.float32(short)) == number
    text = (repr(float(short)) if is_same else repr(number)).replace("e+", "e")
    return Expr(text, 14 if text[0] == "-" else 20)


def is_name(text: str) -> bool:
    """Return True if a text can be a keyword of a call."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def quoted(text: str) -> str:
    """Return a string as formatters write it."""
    literal = repr(text)
    if literal[0] == "'" and '"' not in text:
        return f'"{literal[1:-1]}"'
    return literal


def type_text(type_: Type) -> Expr | None:
    """Return the expression of a type; None if it has none."""
    if isinstance(type_, (SequenceType, OptionalType)):
        element = type_text(type_.element)
        return None if element is None else call(f"{type(type_).__name__}(", [("", element)])
    if not isinstance(type_, TensorType):
        return None
    shape = Expr("Shape.unknown()")
    if type_.shape.is_ranked:
        shape = display(Expr(str(dim) if dim.is_static else quoted(str(dim))) for dim in type_.shape)
    return call("TensorType(", [("", Expr(f"DType.{type_.dtype.name}")), ("", shape)])


def dict_text(items: Mapping[str, Expr]) -> Expr:
    """Return a dict display."""
    return call("{", [(f"{quoted(key)}: ", item) for key, item in items.items()], "}")


# Rows of a module. After a MARK each has notes of its writer, which are not part of the text.


def names_in(rows: Sequence[str]) -> set[str]:
    """Return the names that code reads, without those of attributes."""
    text = "\n".join(row.partition(MARK)[0] for row in rows) + "\n"
    before, names = "", set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and before != ".":
            names.add(token.string)
        before = token.string
    return names


def spaced(rows: Sequence[str]) -> list[str]:
    """Return the rows with blank lines around functions: two at the top, one inside of functions."""
    result: list[str] = []
    around: list[int] = []
    """The indentation of the functions around a row."""
    for row in rows:
        indent = len(row) - len(row.lstrip())
        blank = 0
        while around and indent <= around[-1] and row.lstrip()[:1] not in (")", "]", "}"):
            blank = 1 if around.pop() else 2
        before = result[-1] if result else ""
        if re.match(r" *(def |@)", row) and not before.startswith("@"):
            blank = 0 if not before or before.partition(MARK)[0].endswith(":") else 1 if indent else 2
        if row.lstrip().startswith("def "):
            around.append(indent)
        result += [""] * blank + [row]
    return result
