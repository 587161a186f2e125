"""Symbolic sizes of axes. Equal dims are one object.

A dim is a polynomial with integer coefficients over atoms; an atom is a name, or a floor division, a maximum or a
minimum of dims. Simplification assumes that named dims are >= 0 and that divisors are not zero.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
import weakref
from collections.abc import Container, Mapping
from numbers import Integral
from typing import Any, SupportsIndex, final

from graphcore.types import dim_polynomial
from graphcore.types.dim_polynomial import (
    BOUND,
    MAX_BOUND,
    MAX_PRODUCTS,
    Poly,
    Terms,
    added,
    cancelled,
    exact_quotient,
    factor_texts,
    factors_of_product,
    is_at_least,
    lower_bound,
    minus,
    order,
    product,
    scaled,
    split,
    terms,
)
from graphcore.types.immutable import Immutable

_MAX_ARGS = 16  # of a max or min
_MAX_FACTORS = 10_000  # of all terms of a product together, which bounds its time
_MAX_TEXT = 100_000  # characters; each nested remainder would triple them
_MAX_CACHED = 1024  # sizes up to this stay when nothing uses them


@final
class Dim(Immutable):
    """The size of one axis: `Dim(4)`, `Dim("batch")`, `Dim("a") * 2 + 1`, `Dim("2 * a + 1")`, `Dim.dynamic()`.

    Arithmetic with Dims and ints (+ - * // % and unary -) returns the normal form, so equal dims are the same object.
    Results may be negative. An expression with a dynamic dim is dynamic. `==` is True if two dims are provably equal,
    and also compares with ints and with text in the form of `str`. < <= > >= raise `TypeError` if the answer depends
    on the sizes of the names. Immutable.

    Args:
        value: An int >= 0, a name (letters, digits and _ . : /, not starting with a digit), the `str` of a dim, or a
            Dim.
        min: The minimum size of a named dim: `Dim("batch", min=1)`, written `batch>=1`. A Graph with such an input
            uses the plain name, stores the bound in its metadata, and checks feeds against it. The dims differ:
            `Dim("batch", min=1) != Dim("batch")`.

    Raises:
        ValueError: The int is negative, the text is invalid, or `min` is given for a dim that is not a name.
        TypeError: The value is a bool or has another type.
    """

    # fmt: off
    __slots__ = (
        "__weakref__", "_args", "_hash", "_lower", "_op", "_terms", "_text",
        "is_dynamic", "is_static", "is_symbolic", "min", "name", "parameters", "value",
    )
    # fmt: on

    value: int | None
    """The size of a static dim, else None."""
    name: str | None
    """The name of a plain named dim, else None."""
    min: int
    """The declared minimum size of a plain named dim, else 0."""
    is_static: bool
    """True if the size is a known number."""
    is_symbolic: bool
    """True for a name or an expression of names."""
    is_dynamic: bool
    """True if nothing is known about the size."""
    parameters: frozenset[str]
    """The names in the dim."""
    _op: str  # "name", "//", "max" or "min" for an atom, else ""
    _args: tuple[Dim, ...]
    _terms: Terms[Dim]  # empty for an atom, whose only term would be itself
    _text: str
    _hash: int
    _lower: tuple[int | None] | None  # computed on demand, None before

    def __new__(cls, value: Dim | str | SupportsIndex, *, min: int = 0) -> Dim:
        if type(value) is int and not min:
            cached = _small.get(value)
            if cached is not None:
                return cached
        return _bounded(_dim(value), min) if min else _dim(value)

    @staticmethod
    def dynamic() -> Dim:
        """Return the dim of unknown size, written `?`."""
        return _DYNAMIC

    @staticmethod
    def maximum(a: Dim | int | str, b: Dim | int | str) -> Dim:
        """Return the larger of two dims if that is provable, else the expression `max(a, b)`."""
        return _extreme("max", _argument(a), _argument(b))

    @staticmethod
    def minimum(a: Dim | int | str, b: Dim | int | str) -> Dim:
        """Return the smaller of two dims if that is provable, else the expression `min(a, b)`."""
        return _extreme("min", _argument(a), _argument(b))

    def is_part_of(self, other: Dim) -> bool:
        """Return True if the dim is written as the minimum of another one and more, as the length of `x[:n]` is."""
        return self._op == "min" and other in self._args

    def ceildiv(self, divisor: Dim | int) -> Dim:
        """Return the quotient rounded up: `-(-self // divisor)`.

        Raises:
            ZeroDivisionError: For a static 0.
        """
        return -(-self // divisor)

    @property
    def lower_bound(self) -> int | None:
        """A proven lower bound, or None if there is none."""
        cached = self._lower
        if cached is None:
            cached = (lower_bound(self),)
            object.__setattr__(self, "_lower", cached)
        return cached[0]

    def substitute(self, values: Mapping[str, Dim | int | str] | Mapping[Dim, Dim | int | str]) -> Dim:
        """Return the dim with names replaced simultaneously. Names without a value stay; unused values are ignored.

        Args:
            values: New dims by name, or by plain named Dim.

        Raises:
            ValueError: A key is a Dim that is not a plain name, or a value is negative.
        """
        for key in values:
            if isinstance(key, Dim) and key.name is None:
                raise ValueError(f"substitute: only names can be replaced, {str(key)!r} is not a plain name")
        replacements: dict[str, Dim] = {}
        for name in self.parameters:
            value = values.get(name)  # type: ignore[call-overload]  # a named Dim equals and hashes as its name
            if value is not None:
                replacements[name] = _argument(value)
                _check_size(name, replacements[name].value)
        return _substituted(self, replacements) if replacements else self

    def depends_on(self, names: Container[str]) -> bool:
        """Return True if sizes of these names determine the size of the dim."""
        return not self.is_dynamic and all(name in names for name in self.parameters)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the size of the dim for sizes of its names.

        Raises:
            ValueError: A name has no value, or a negative one.
            ZeroDivisionError: A divisor is 0.
            TypeError: The dim is dynamic.
        """
        if self.value is not None:
            return self.value
        if self.name is not None:
            return _size_of(self.name, values)
        if self.is_dynamic:
            raise TypeError("evaluate: the size of a dynamic dim (?) is unknown")
        if self._op == "":
            return sum(c * math.prod([atom.evaluate(values) for atom in m]) for m, c in self._terms)
        numbers = [arg.evaluate(values) for arg in self._args]
        if self._op == "//":
            return numbers[0] // numbers[1]
        return max(numbers) if self._op == "max" else min(numbers)

    def __add__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        if right is None:
            return NotImplemented
        if self.value is not None and right.value is not None:
            return _constant(self.value + right.value)
        if self.is_dynamic or right.is_dynamic:
            return _DYNAMIC
        return _build(added(dict(terms(self)), terms(right)))

    def __mul__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        if right is None:
            return NotImplemented
        if self.value is not None and right.value is not None:
            return _constant(self.value * right.value)
        if self.is_dynamic or right.is_dynamic:
            return _DYNAMIC
        left, factor = terms(self), terms(right)
        if len(left) * len(factor) > MAX_PRODUCTS:
            raise ValueError(f"dim has too many terms: product of sums of {len(left)} and {len(factor)} terms")
        if (factors := factors_of_product(left, factor)) > _MAX_FACTORS:
            raise ValueError(f"dim has too many factors: {factors} in a product, at most {_MAX_FACTORS}")
        return _build(product(left, factor))

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        if right is None:
            return NotImplemented
        if self.value is not None or right.value is not None or self.is_dynamic or right.is_dynamic:
            return self + -right
        return _build(minus(dict(terms(self)), dict(terms(right))))

    def __rsub__(self, other: int) -> Dim:
        dim = _operand(other)
        return NotImplemented if dim is None else dim - self

    def __floordiv__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        return NotImplemented if right is None else _floordiv(self, right)

    def __rfloordiv__(self, other: int) -> Dim:
        dim = _operand(other)
        return NotImplemented if dim is None else _floordiv(dim, self)

    def __mod__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        return NotImplemented if right is None else self - _floordiv(self, right) * right

    def __rmod__(self, other: int) -> Dim:
        dim = _operand(other)
        return NotImplemented if dim is None else dim % self

    def __lt__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else not _is_less_or_equal(right, self, f"{self} < {right}")

    def __le__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else _is_less_or_equal(self, right, f"{self} <= {right}")

    def __gt__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else not _is_less_or_equal(self, right, f"{self} > {right}")

    def __ge__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else _is_less_or_equal(right, self, f"{self} >= {right}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Dim:
            return False
        if isinstance(other, str):
            return self.value is None and self._text == other
        if isinstance(other, Integral):
            return self.value == int(other)
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __int__(self) -> int:
        if self.value is None:
            raise TypeError(
                f"dim {self._text!r} is not static: its size is known only when the graph runs; "
                "compute it in the graph with ops.shape_of(x)"
            )
        return self.value

    __index__ = __int__

    def __bool__(self) -> bool:
        if self.value is None:
            raise TypeError(f"dim {self._text!r} is not static: whether it is 0 is known only when the graph runs")
        return self.value != 0

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        if self.is_dynamic:
            return "Dim.dynamic()"
        return f"Dim({self._text})" if self.value is not None and self.value >= 0 else f"Dim({self._text!r})"

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Dim is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (self._text,)


# Interned dims by key: an int, a name, the terms of a polynomial, or (op, args).
_interned: weakref.WeakValueDictionary[Any, Dim] = weakref.WeakValueDictionary()
_lock = threading.RLock()  # setdefault of a weak dictionary is not atomic; reentrant, since a __del__ may create dims


def _make(key: object, text: str, *, value: int | None = None, op: str = "", args: tuple[Dim, ...] = ()) -> Dim:
    """Return a new dim, or the equal one that another thread has created meanwhile."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"the text of a dim has too many characters: {len(text)}, at most {_MAX_TEXT}")
    dim = object.__new__(Dim)
    put = object.__setattr__
    polynomial: Any = key if op == "" and value is None and isinstance(key, tuple) else ()
    parts = args or [atom for m, _ in polynomial for atom in m]
    put(dim, "value", value)
    name, _, least = text.partition(BOUND) if op == "name" else ("", "", "")
    put(dim, "name", name or None)
    put(dim, "min", int(least or 0))
    put(dim, "is_static", value is not None)
    put(dim, "is_dynamic", key == "?")
    put(dim, "is_symbolic", value is None and key != "?")
    put(dim, "parameters", frozenset((name,)) if op == "name" else frozenset().union(*(p.parameters for p in parts)))
    put(dim, "_op", op)
    put(dim, "_args", args)
    put(dim, "_terms", (((), value),) if value else polynomial)
    put(dim, "_text", text)
    put(dim, "_hash", hash(text if value is None else value))
    put(dim, "_lower", None)
    with _lock:
        return _interned.setdefault(key, dim)


def _constant(value: int) -> Dim:
    dim = _small.get(value)
    if dim is None:
        dim = _interned.get(value)
    if dim is None:
        dim = _make(value, str(value), value=value)
        if 0 <= value <= _MAX_CACHED:
            _small[value] = dim
    return dim


def _leaf(value: int | str) -> Dim:
    if isinstance(value, int):
        return _constant(value)
    if BOUND in value:
        name, _, least = value.partition(BOUND)
        value = f"{name}{BOUND}{int(least)}" if int(least) else name
    dim = _interned.get(value)
    return _make(value, value, op="name") if dim is None else dim


def _bounded(dim: Dim, least: int) -> Dim:
    """Return a named dim with a minimum size."""
    if isinstance(least, bool) or not isinstance(least, Integral) or not 0 <= least <= MAX_BOUND:
        raise ValueError(f"dim {str(dim)!r}: min must be a number from 0 to {MAX_BOUND}, got {least!r}")
    if dim.name is None:
        raise ValueError(f"dim {str(dim)!r} cannot have a min: only a plain name can")
    return dim if dim.min >= least else _leaf(f"{dim.name}{BOUND}{int(least)}")


def _atom(op: str, args: tuple[Dim, ...]) -> Dim:
    dim = _interned.get((op, args))
    if dim is not None:
        return dim
    if op == "//":
        above = args[0]._text if len(terms(args[0])) == 1 and args[0]._text[0] != "-" else f"({args[0]})"
        below = args[1]._text if args[1].is_static or args[1]._op in ("name", "max", "min") else f"({args[1]})"
        return _make((op, args), f"{above} // {below}", op=op, args=args)
    return _make((op, args), f"{op}({', '.join(map(str, args))})", op=op, args=args)


def _build(poly: Poly[Dim]) -> Dim:
    """Return the dim of a polynomial, which may have zero coefficients."""
    nonzero = [(m, c) for m, c in poly.items() if c]
    if not nonzero:
        return _constant(0)
    if len(nonzero) == 1:
        m, c = nonzero[0]
        if not m:
            return _constant(c)
        if c == 1 and len(m) == 1:
            return m[0]
    key = tuple(sorted(nonzero, key=order))
    dim = _interned.get(key)
    return _make(key, dim_polynomial.of_sum(factor_texts(key))) if dim is None else dim


def _dim(value: object) -> Dim:
    """Return the result of the constructor."""
    if type(value) is Dim:
        return value
    if type(value) is int and value >= 0:  # the common case of the code below
        return _constant(value)
    if isinstance(value, str):
        dim = _interned.get(value)
        return _parsed(value) if dim is None else dim
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(
            f"{value!r} is not a valid dim: a dim is an int >= 0, a name, an expression of those, or Dim.dynamic()"
        )
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{number} is not a valid dim: a size is >= 0 (Dim.dynamic() if it is unknown)")
    return _constant(number)


def _parsed(text: str) -> Dim:
    dim: Dim = dim_polynomial.parse(str(text), _leaf, {"max": Dim.maximum, "min": Dim.minimum})
    return dim


def _operand(value: object) -> Dim | None:
    """Return an operand of arithmetic, which may be negative; None for other types."""
    if type(value) is Dim:
        return value
    if type(value) is int:
        return _constant(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return _constant(int(value))
    return None


def _argument(value: Dim | int | str) -> Dim:
    """Return the argument of a function: anything that the constructor accepts, or a negative number."""
    dim = _operand(value)
    return _dim(value) if dim is None else dim


def _check_size(name: str, size: int | None) -> None:
    if size is not None and size < 0:
        raise ValueError(f"dim {name!r} cannot be {size}: a size is >= 0")


def _size_of(name: str, values: Mapping[str, int]) -> int:
    if name not in values:
        raise ValueError(f"evaluate: the size of dim {name!r} is missing")
    size = operator.index(values[name])
    _check_size(name, size)
    return size


def _is_less_or_equal(a: Dim, b: Dim, question: str) -> bool:
    if is_at_least(b - a, 0):
        return True
    if is_at_least(a - b, 1):
        return False
    raise TypeError(f"{question} cannot be decided: it depends on the sizes when the graph runs")


def _substituted(dim: Dim, replacements: Mapping[str, Dim]) -> Dim:
    if dim.name is not None:
        return replacements.get(dim.name, dim)
    args = [_substituted(arg, replacements) for arg in dim._args]
    if dim._op == "//":
        return _floordiv(*args)
    if dim._op:
        return functools.reduce(functools.partial(_extreme, dim._op), args)
    total = _constant(0)
    for m, c in dim._terms:
        total += functools.reduce(operator.mul, (_substituted(atom, replacements) for atom in m), _constant(c))
    return total


@functools.lru_cache(maxsize=1024)
def _floordiv(x: Dim, d: Dim) -> Dim:
    if d.value == 0:
        raise ZeroDivisionError(f"dim {str(x)!r} divided by zero")
    if x.is_dynamic or d.is_dynamic:
        return _DYNAMIC
    if x.value is not None and d.value is not None:
        return _constant(x.value // d.value)
    if x.value == 0:
        return x
    top, bottom = dict(terms(x)), dict(terms(d))
    if terms(d)[0][1] < 0:
        top, bottom = scaled(top, -1), scaled(bottom, -1)
    top, bottom = cancelled(top, bottom)
    if len(bottom) == 1:
        whole, rest = split(top, bottom)
        if whole:
            return _build(whole) + _floordiv(_build(rest), _build(bottom))
    elif (exact := exact_quotient(top, bottom)) is not None:
        return _build(exact)
    return _quotient(_build(top), _build(bottom))


def _quotient(x: Dim, d: Dim) -> Dim:
    """Return x // d when nothing can be cancelled or split off, and d is not negated."""
    constant = dict(terms(x)).get((), 0)
    if d.value is not None:
        common = math.gcd(d.value, *(c for m, c in terms(x) if m))
        if common > 1:  # (g y + c) // (g k) = (y + c // g) // k
            return _floordiv(_build({m: c // common for m, c in terms(x)}), _constant(d.value // common))
        inner = x - constant
        if inner._op == "//" and inner._args[1].is_static:  # (y // m + c) // n = (y + c m) // (m n)
            return _floordiv(inner._args[0] + inner._args[1] * constant, inner._args[1] * d)
    if is_at_least(d, 0):
        if all(c < 0 for m, c in terms(x) if m or x.is_static):  # keeps a.ceildiv(2) as (a + 1) // 2
            return -_floordiv(-x - 1, d) - 1
        if is_at_least(x, 0) and is_at_least(d - x, 1):
            return _constant(0)
    return _atom("//", (x, d))


@functools.lru_cache(maxsize=1024)
def _extreme(op: str, a: Dim, b: Dim) -> Dim:
    """Return the flat maximum or minimum, without redundant arguments, sorted by text with numbers last."""
    if a.is_dynamic or b.is_dynamic:
        return _DYNAMIC
    first, second = sorted((a, b), key=_argument_order)
    arguments = list(first._args if first._op == op else (first,))
    for new in second._args if second._op == op else (second,):
        if not any(_covers(op, old, new) for old in arguments):
            arguments = [*(old for old in arguments if not _covers(op, new, old)), new]
    if len(arguments) > _MAX_ARGS:
        raise ValueError(f"a dim cannot have a {op} of more than {_MAX_ARGS} arguments")
    return arguments[0] if len(arguments) == 1 else _atom(op, tuple(sorted(arguments, key=_argument_order)))


def _argument_order(dim: Dim) -> tuple[bool, str]:
    return dim.is_static, dim._text


def _covers(op: str, a: Dim, b: Dim) -> bool:
    """Return True if a makes the argument b of a maximum or minimum redundant."""
    return is_at_least(a - b if op == "max" else b - a, 0)


_small: dict[int, Dim] = {}  # sizes up to _MAX_CACHED
_DYNAMIC = _make("?", "?")
