"""The written form of a dim, written and read: names, integers, `?`, + - * // %, parentheses, max(...) and min(...)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

BOUND = ">="
"""Stands between a name and the size that it has at least."""

MOST = 10**15 - 1
"""The greatest such size."""

_NAME = rf"(?!\d)(?:[\w.:]|/(?!/))+(?:{BOUND}[0-9]{{1,15}}(?![\w.:]))?"
_TOKEN = re.compile(rf" *(?:(?P<int>[0-9]+(?![\w.:]))|(?P<name>{_NAME})|(?P<op>//|[-+*%(),?]))")
_BINARY: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "//": (2, operator.floordiv),
    "%": (2, operator.mod),
}
# A model file may hold any text as a dim: both limits bound the time and the stack that reading it takes.
_LONGEST = 4096
_DEEPEST = 64


def of_sum(terms: Sequence[tuple[int, Sequence[str]]]) -> str:
    """The text of a sum of products: each a coefficient and the texts of its factors. A positive one comes first."""
    first = next((i for i, (coefficient, _) in enumerate(terms) if coefficient > 0), 0)
    text = ""
    for coefficient, factors in (terms[first], *terms[:first], *terms[first + 1 :]):
        number = [] if abs(coefficient) == 1 and factors else [str(abs(coefficient))]
        sign = "-" if coefficient < 0 else "+"
        text += (f" {sign} " if text else sign.strip("+")) + " * ".join([*number, *factors])
    return text


def parse(text: str, leaf: Callable[[int | str], Any], functions: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    """The value of `text`: `leaf` makes names (and `?`) and integers into values, `functions` holds max and min.

    Binary - and // need a space on either side, so that "batch-size" is refused and not taken for a difference.
    Raises `ValueError` (one line, with the text) for what is no dim.
    """
    if len(text) > _LONGEST:
        _refuse(text, f"it is longer than {_LONGEST} characters")
    parser = _Parser(text, leaf, functions)
    try:
        value = parser.expression(0)
    except ZeroDivisionError:
        _refuse(text, "it divides by zero")
    if parser.token != "":
        parser.refuse()
    return value


class _Parser:
    """Precedence climbing over the tokens of one text; `token` is the next one, "" at the end."""

    def __init__(
        self, text: str, leaf: Callable[[int | str], Any], functions: Mapping[str, Callable[[Any, Any], Any]]
    ) -> None:
        self._text = text.rstrip(" ")
        self._leaf = leaf
        self._functions = functions
        self._end = 0
        self._depth = 0
        self._advance()

    def expression(self, above: int) -> Any:
        """Operands joined by operators that bind tighter than `above`."""
        left = self._operand()
        while self.token in _BINARY and _BINARY[self.token][0] > above:
            precedence, apply = _BINARY[self.token]
            if self.token in ("-", "//") and not self._spaced():
                self.refuse()
            self._advance()
            left = apply(left, self.expression(precedence))
        return left

    def _operand(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(self._text, f"it nests deeper than {_DEEPEST}")
        kind, token = self._kind, self._advance()
        if kind == "int":
            value = self._leaf(int(token))
        elif kind == "name" and self.token == "(" and token in self._functions:
            value = self._call(self._functions[token])
        elif kind == "name" or token == "?":
            value = self._leaf(token)
        elif token == "-":
            value = -self._operand()
        elif token == "(":
            value = self.expression(0)
            self._expect(")")
        else:
            self.refuse()
        self._depth -= 1
        return value

    def _call(self, function: Callable[[Any, Any], Any]) -> Any:
        self._advance()
        value = self.expression(0)
        if self.token != ",":
            self.refuse()
        while self.token == ",":
            self._advance()
            value = function(value, self.expression(0))
        self._expect(")")
        return value

    def _expect(self, token: str) -> None:
        if self._advance() != token:
            self.refuse()

    def _spaced(self) -> bool:
        start = self._end - len(self.token)
        return self._text[start - 1] == " " and self._text[self._end : self._end + 1] == " "

    def _advance(self) -> str:
        """Step to the next token; returns the one that was current."""
        passed = self.token if self._end else ""
        match = _TOKEN.match(self._text, self._end)
        if match is None and self._end < len(self._text):
            self.refuse()
        self._kind = (match.lastgroup or "") if match else ""
        self.token: str = match[self._kind] if match else ""
        self._end = match.end() if match else len(self._text)
        return passed

    def refuse(self) -> NoReturn:
        _refuse(
            self._text,
            "a name is letters, digits and _ . : / and does not start with a digit; "
            "an expression is written like '(a - 1) // 2', with spaces around - and //",
        )


def _refuse(text: str, why: str) -> NoReturn:
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise ValueError(f"{shown!r} is no dim: {why}")
