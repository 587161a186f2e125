"""Expressions of Python, and their layout in lines as formatters of code write them."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType

WIDTH = 88
"""The characters of a line, the default of formatters."""


class Expr(NamedTuple):
    """An expression. rank: its precedence. head, parts, close: of a call or display, which can span several lines."""

    text: str
    rank: int = 20
    head: str = ""
    parts: tuple[Expr, ...] = ()
    close: str = ""


def call(head: str, parts: Iterable[Expr], close: str = ")") -> Expr:
    """Return a call, or a list in brackets. head: up to the bracket."""
    parts = tuple(parts)
    return Expr(f"{head}{', '.join(part.text for part in parts)}{close}", 20, head, parts, close)


def prefixed(prefix: str, expr: Expr) -> Expr:
    """Return an expression after a text, like the name of an argument."""
    return expr._replace(text=prefix + expr.text, head=prefix + expr.head)


def keywords(items: Mapping[str, Expr]) -> list[Expr]:
    """Return arguments by name."""
    if all(map(is_name, items)):
        return [prefixed(f"{key}=", item) for key, item in items.items()]
    return [prefixed("**", display(items))]


def display(items: Iterable[Expr] | Mapping[str, Expr]) -> Expr:
    """Return a list or dict of expressions."""
    if isinstance(items, Mapping):
        return call("{", [prefixed(f"{quoted(key)}: ", item) for key, item in items.items()], "}")
    return call("[", items, "]")


def unpacked(items: Iterable[Expr]) -> Expr:
    """Return a tuple without brackets, which it gets where it spans several lines."""
    result = call("(", items)
    return result._replace(text=result.text[1:-1], rank=0)


def operation(sign: str, rank: int, operands: Sequence[Expr]) -> Expr:
    """Return an expression of an operator of Python."""
    if len(operands) == 1:
        return Expr(f"{sign}{_within(operands[0], rank)}", rank)
    left, right = operands
    space = "" if sign == "**" and all(_is_simple(operand.text) for operand in operands) else " "
    start = f"{_within(left, rank)}{space}{sign}{space}"
    return prefixed(start, right)._replace(rank=rank) if right.rank > rank else Expr(f"{start}({right.text})", rank)


_is_simple = re.compile(r"\w+|\d+\.\d+").fullmatch


def _within(expr: Expr, rank: int) -> str:
    return expr.text if expr.rank >= rank else f"({expr.text})"


def lines(prefix: str, expr: Expr, suffix: str = "", indent: int = 0, comment: str = "") -> list[str]:
    """Return the lines of an expression between two texts. comment: added where there is room."""
    blank = " " * indent
    line = f"{blank}{prefix}{expr.text}{suffix}"
    if len(line) <= WIDTH or not expr.parts:
        return [f"{line}  # {comment}" if comment and len(line) + len(comment) + 4 <= WIDTH else line]
    inner = f"{blank}    {', '.join(part.text for part in expr.parts)}"
    start = f"{blank}{prefix}{expr.head}"
    if comment and len(start) + len(comment) + 4 <= WIDTH:
        start += f"  # {comment}"
    if len(inner) <= WIDTH:
        return [start, inner, f"{blank}{expr.close}{suffix}"]
    rows = [row for part in expr.parts for row in lines("", part, ",", indent + 4)]
    return [start, *rows, f"{blank}{expr.close}{suffix}"]


def value(item: Any, dtype: DType | None = None) -> Expr | None:
    """Return the literal of an attribute, a type or a small constant; None if it has none. dtype: of the elements."""
    if isinstance(item, np.ndarray):
        item = (item if item.dtype.kind in "biufcOU" else item.astype(np.float64)).tolist()
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, DType):
        return Expr(f"DType.{item.name}")
    if isinstance(item, TensorType):
        shape = Expr("Shape.unknown()")
        if item.shape.is_ranked:
            shape = display(Expr(str(dim) if dim.is_static else quoted(str(dim))) for dim in item.shape)
        return call("TensorType(", [Expr(f"DType.{item.dtype.name}"), shape])
    if isinstance(item, (SequenceType, OptionalType)):
        element = value(item.element)
        return None if element is None else call(f"{type(item).__name__}(", [element])
    if isinstance(item, (list, tuple)):
        items = [value(element, dtype) for element in item]
        return None if None in items else display([element for element in items if element is not None])
    if isinstance(item, int):
        return Expr(str(item), 14 if item < 0 else 20)
    if isinstance(item, float):
        return _float(item, dtype)
    if isinstance(item, str):
        return Expr(quoted(item))
    return Expr(repr(item)) if isinstance(item, (bytes, complex)) else None


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


def spaced(rows: Iterable[str]) -> list[str]:
    """Return the rows, which have some blank ones around functions, with two of them at the top and one inside."""
    result: list[str] = []
    for row in rows:
        if row != "":
            result += [""] * (result[-1:] == [""] and row[0] != " ") + [row]
        elif result[-1] != "" and not result[-1].endswith(":"):
            result.append("")
    return result
