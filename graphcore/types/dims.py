"""The size of one axis, as far as it is known while a graph is built. Equal dims are one object.

A dim is kept as a polynomial with integer coefficients over atoms; an atom is a name, or a floor division, a maximum
or a minimum of dims. Two assumptions make it simplify: a named dim is >= 0, and what a dim is divided by is not zero.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
import weakref
from collections.abc import Mapping
from numbers import Integral
from typing import Any, SupportsIndex, final

from graphcore.support.markup import code
from graphcore.types import dim_polynomial
from graphcore.types.dim_polynomial import (
    BOUND,
    MAX_PRODUCTS,
    MOST,
    Poly,
    Terms,
    added,
    cancelled,
    exact_quotient,
    factors_of_product,
    is_at_least,
    lower_bound,
    minus,
    order,
    product,
    scaled,
    split,
    terms,
    written,
)

_MAX_ARGS = 16  # of a max or min
_MAX_FACTORS = 10_000  # of all terms of a product together: what bounds the time that it takes
_MAX_TEXT = 100_000  # characters; remainders of remainders would triple them with each
_KEPT = 1024  # sizes that stay when nothing uses them


@final
class Dim:
    """The size of one axis: `Dim(4)`, `Dim("batch")`, `Dim("a") * 2 + 1`, `Dim("2 * a + 1")`, `Dim.dynamic()`.

    min: the size that a named dim has at least, `Dim("batch", min=1)`, written `batch>=1`. A Graph whose inputs have
    such a dim calls it by its name alone, keeps the bound in its metadata, and what is fed is checked against it. The
    two are other dims: `Dim("batch", min=1) != Dim("batch")`. Raises `ValueError` for a bound of what is no name.

    value: an int >= 0, a name (letters, digits and _ . : /, not starting with a digit), what `str` of a dim gives, or
    a Dim. Raises `ValueError` for a negative int and for text that is neither, `TypeError` for a bool and the rest.

    Arithmetic with Dims and ints (+ - * // % and unary -) gives the normal form, so equal dims are the same object;
    results may be negative. Anything with a dynamic dim is dynamic. `==` asks whether two dims are known to be the
    same, and compares with ints and with text as `str` writes it; < <= > >= raise `TypeError` where neither answer
    holds for all values of the names. Immutable.
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
    """The size that a plain named dim was stated to have at least, else 0."""
    is_static: bool
    is_symbolic: bool
    """Named, or an expression of names."""
    is_dynamic: bool
    """Nothing is known."""
    parameters: frozenset[str]
    """The names that occur in it."""
    _op: str  # "name", "//", "max" or "min" for an atom, else ""
    _args: tuple[Dim, ...]
    _terms: Terms[Dim]  # empty for an atom, which would otherwise hold itself
    _text: str
    _hash: int
    _lower: tuple[int | None] | None  # None until it is asked for

    def __new__(cls, value: Dim | str | SupportsIndex, *, min: int = 0) -> Dim:
        if type(value) is int and not min:
            found = _small.get(value)
            if found is not None:
                return found
        return _bounded(_dim(value), min) if min else _dim(value)

    @staticmethod
    def dynamic() -> Dim:
        """The dim of which nothing is known; written `?`."""
        return _DYNAMIC

    @staticmethod
    def maximum(a: Dim | int | str, b: Dim | int | str) -> Dim:
        """The larger of two dims. Picked where that is provable, else kept as `max(a, b)`."""
        return _extreme("max", _argument(a), _argument(b))

    @staticmethod
    def minimum(a: Dim | int | str, b: Dim | int | str) -> Dim:
        """The smaller of two dims. Picked where that is provable, else kept as `min(a, b)`."""
        return _extreme("min", _argument(a), _argument(b))

    def ceildiv(self, divisor: Dim | int) -> Dim:
        """The quotient rounded up: `-(-self // divisor)`. Raises `ZeroDivisionError` for a static 0."""
        return -(-self // divisor)

    @property
    def lower_bound(self) -> int | None:
        """A number that it is provably never below, or None where none is known."""
        known = self._lower
        if known is None:
            known = (lower_bound(self),)
            object.__setattr__(self, "_lower", known)
        return known[0]

    def substitute(self, values: Mapping[str, Dim | int | str] | Mapping[Dim, Dim | int | str]) -> Dim:
        """The dim with names replaced, all at once; names without a value stay, values without a use are ignored.

        A key may be a plain named Dim; `ValueError` for any other Dim as key and for a negative value.
        """
        for key in values:
            if isinstance(key, Dim) and key.name is None:
                raise ValueError(f"substitute: only names can be replaced, {str(key)!r} is no plain name")
        chosen: dict[str, Dim] = {}
        for name in self.parameters:
            value = values.get(name)  # type: ignore[call-overload]  # a named Dim equals and hashes as its name
            if value is not None:
                chosen[name] = _argument(value)
                _check_size(name, chosen[name].value)
        return _substituted(self, chosen) if chosen else self

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The size for given sizes of the names. Raises `ValueError` for a name without a value or with one below 0,
        `ZeroDivisionError` where a divisor comes out as 0, and `TypeError` for a dynamic dim."""
        if self.value is not None:
            return self.value
        if self.name is not None:
            return _size_of(self.name, values)
        if self.is_dynamic:
            raise TypeError("evaluate: nothing is known about a dynamic dim (?), so it has no size")
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
            raise ValueError(f"a dim cannot have so many terms: product of sums of {len(left)} and {len(factor)}")
        if (factors := factors_of_product(left, factor)) > _MAX_FACTORS:
            raise ValueError(f"a dim cannot have so many factors: {factors} in a product, at most {_MAX_FACTORS}")
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
        left = _operand(other)
        return NotImplemented if left is None else left - self

    def __floordiv__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        return NotImplemented if right is None else _floordiv(self, right)

    def __rfloordiv__(self, other: int) -> Dim:
        left = _operand(other)
        return NotImplemented if left is None else _floordiv(left, self)

    def __mod__(self, other: Dim | int) -> Dim:
        right = _operand(other)
        return NotImplemented if right is None else self - _floordiv(self, right) * right

    def __rmod__(self, other: int) -> Dim:
        left = _operand(other)
        return NotImplemented if left is None else left % self

    def __lt__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else not _at_most(right, self, f"{self} < {right}")

    def __le__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else _at_most(self, right, f"{self} <= {right}")

    def __gt__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else not _at_most(self, right, f"{self} > {right}")

    def __ge__(self, other: Dim | int) -> bool:
        right = _operand(other)
        return NotImplemented if right is None else _at_most(right, self, f"{self} >= {right}")

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
                "take it inside the graph with ops.shape_of(x)"
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

    def _repr_html_(self) -> str:
        return code(str(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Dim is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Dim is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (self._text,)

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: object) -> Dim:
        return self


# Making dims: the keys are an int, a name, the terms of a polynomial, or (op, args).
_interned: weakref.WeakValueDictionary[Any, Dim] = weakref.WeakValueDictionary()
_lock = threading.RLock()  # setdefault of a weak dictionary is not atomic; reentrant, for a __del__ that makes dims


def _make(key: object, text: str, *, value: int | None = None, op: str = "", args: tuple[Dim, ...] = ()) -> Dim:
    """A new dim, or the one that another thread made meanwhile."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"a dim cannot be written in so many characters: {len(text)}, at most {_MAX_TEXT}")
    made = object.__new__(Dim)
    put = object.__setattr__
    own: Any = key if op == "" and value is None and isinstance(key, tuple) else ()
    parts = args or [atom for m, _ in own for atom in m]
    put(made, "value", value)
    name, _, least = text.partition(BOUND) if op == "name" else ("", "", "")
    put(made, "name", name or None)
    put(made, "min", int(least or 0))
    put(made, "is_static", value is not None)
    put(made, "is_dynamic", key == "?")
    put(made, "is_symbolic", value is None and key != "?")
    put(made, "parameters", frozenset((name,)) if op == "name" else frozenset().union(*(p.parameters for p in parts)))
    put(made, "_op", op)
    put(made, "_args", args)
    put(made, "_terms", (((), value),) if value else own)
    put(made, "_text", text)
    put(made, "_hash", hash(text if value is None else value))
    put(made, "_lower", None)
    with _lock:
        return _interned.setdefault(key, made)


def _constant(value: int) -> Dim:
    found = _small.get(value)
    if found is None:
        found = _interned.get(value)
    if found is None:
        found = _make(value, str(value), value=value)
        if 0 <= value <= _KEPT:
            _small[value] = found
    return found


def _leaf(value: int | str) -> Dim:
    if isinstance(value, int):
        return _constant(value)
    if BOUND in value:
        name, _, least = value.partition(BOUND)
        value = f"{name}{BOUND}{int(least)}" if int(least) else name
    found = _interned.get(value)
    return _make(value, value, op="name") if found is None else found


def _bounded(dim: Dim, least: int) -> Dim:
    """Return a named dim that is not below a number."""
    if isinstance(least, bool) or not isinstance(least, Integral) or not 0 <= least <= MOST:
        raise ValueError(f"dim {str(dim)!r} cannot have the bound {least!r}: give a number from 0 to {MOST}")
    if dim.name is None:
        raise ValueError(f"dim {str(dim)!r} cannot have a bound: only a name can")
    return dim if dim.min >= least else _leaf(f"{dim.name}{BOUND}{int(least)}")


def _atom(op: str, args: tuple[Dim, ...]) -> Dim:
    found = _interned.get((op, args))
    if found is not None:
        return found
    if op == "//":
        above = args[0]._text if len(terms(args[0])) == 1 and args[0]._text[0] != "-" else f"({args[0]})"
        below = args[1]._text if args[1].is_static or args[1]._op in ("name", "max", "min") else f"({args[1]})"
        return _make((op, args), f"{above} // {below}", op=op, args=args)
    return _make((op, args), f"{op}({', '.join(map(str, args))})", op=op, args=args)


def _build(poly: Poly[Dim]) -> Dim:
    """The dim of a polynomial, which may hold zero coefficients."""
    kept = [(m, c) for m, c in poly.items() if c]
    if not kept:
        return _constant(0)
    if len(kept) == 1:
        m, c = kept[0]
        if not m:
            return _constant(c)
        if c == 1 and len(m) == 1:
            return m[0]
    key = tuple(sorted(kept, key=order))
    found = _interned.get(key)
    return _make(key, dim_polynomial.of_sum(written(key))) if found is None else found


def _dim(value: object) -> Dim:
    """Return the result of the constructor."""
    if type(value) is Dim:
        return value
    if type(value) is int and value >= 0:  # as below, without asking what it is
        return _constant(value)
    if isinstance(value, str):
        found = _interned.get(value)
        return _parsed(value) if found is None else found
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{value!r} is no dim: a dim is an int >= 0, a name, an expression of those, or Dim.dynamic()")
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{number} is no dim: a size is >= 0 (Dim.dynamic() where it is not known)")
    return _constant(number)


def _parsed(text: str) -> Dim:
    dim: Dim = dim_polynomial.parse(str(text), _leaf, {"max": Dim.maximum, "min": Dim.minimum})
    return dim


def _operand(value: object) -> Dim | None:
    """An operand of arithmetic, which may be negative; None for what is none."""
    if type(value) is Dim:
        return value
    if type(value) is int:
        return _constant(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return _constant(int(value))
    return None


def _argument(value: Dim | int | str) -> Dim:
    """An operand of a function: what the constructor takes, or a negative number."""
    found = _operand(value)
    return _dim(value) if found is None else found


def _check_size(name: str, size: int | None) -> None:
    if size is not None and size < 0:
        raise ValueError(f"dim {name!r} cannot be {size}: a size is >= 0")


def _size_of(name: str, values: Mapping[str, int]) -> int:
    if name not in values:
        raise ValueError(f"evaluate: no size is given for dim {name!r}")
    size = operator.index(values[name])
    _check_size(name, size)
    return size


def _at_most(a: Dim, b: Dim, question: str) -> bool:
    if is_at_least(b - a, 0):
        return True
    if is_at_least(a - b, 1):
        return False
    raise TypeError(f"{question} cannot be decided: it depends on the sizes when the graph runs")


def _substituted(dim: Dim, chosen: Mapping[str, Dim]) -> Dim:
    if dim.name is not None:
        return chosen.get(dim.name, dim)
    args = [_substituted(arg, chosen) for arg in dim._args]
    if dim._op == "//":
        return _floordiv(*args)
    if dim._op:
        return functools.reduce(functools.partial(_extreme, dim._op), args)
    total = _constant(0)
    for m, c in dim._terms:
        total += functools.reduce(operator.mul, (_substituted(atom, chosen) for atom in m), _constant(c))
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
    """x // d where nothing can be cancelled or split off; d is not negated."""
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
    """The maximum or minimum: flat, in the order of the text with numbers last, without those provably not needed."""
    if a.is_dynamic or b.is_dynamic:
        return _DYNAMIC
    first, second = sorted((a, b), key=_argument_order)
    kept = list(first._args if first._op == op else (first,))
    for new in second._args if second._op == op else (second,):
        if not any(_covers(op, old, new) for old in kept):
            kept = [*(old for old in kept if not _covers(op, new, old)), new]
    if len(kept) > _MAX_ARGS:
        raise ValueError(f"a dim cannot have a {op} of more than {_MAX_ARGS} arguments")
    return kept[0] if len(kept) == 1 else _atom(op, tuple(sorted(kept, key=_argument_order)))


def _argument_order(dim: Dim) -> tuple[bool, str]:
    return dim.is_static, dim._text


def _covers(op: str, a: Dim, b: Dim) -> bool:
    """With a, the maximum or minimum needs no b."""
    return is_at_least(a - b if op == "max" else b - a, 0)


_small: dict[int, Dim] = {}  # sizes up to _KEPT, once made
_DYNAMIC = _make("?", "?")
