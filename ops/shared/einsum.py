"""The notation of einsum: parse an equation, check it against operands, rewrite it to what every runtime supports."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphcore.build import primitives as e
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_DOTS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """A parsed equation. inputs, output: labels, each a letter or "...", such as ("...", "i", "j")."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join("".join(labels) for labels in self.inputs) + "->" + "".join(self.output)

    def is_lone(self, label: str) -> bool:
        """Return True if a label is summed over and belongs to one operand only."""
        return label not in self.output and [label in labels for labels in self.inputs].count(True) == 1


def parse(text: str, count: int, roles: Mapping[str, Symbol]) -> Equation:
    """Parse the equation for `count` operands and make its output explicit. Raises `ShapeError`."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != count:
        raise _error(
            text,
            f"{len(terms)} terms for {count} operands",
            roles,
            "write one term for each operand, separated by commas",
        )
    inputs = tuple(_labels(text, term, roles) for term in terms)
    if not arrow:
        return Equation(inputs, _implied(inputs))
    output = _labels(text, right, roles)
    for label, times in Counter(output).items():
        if times > 1:
            raise _error(text, f"the output has {label!r} twice", roles, "name each axis of the result once")
        if label != _DOTS and not any(label in labels for labels in inputs):
            raise _error(text, f"no operand has {label!r}", roles, "the output takes its letters from the operands")
    return Equation(inputs, output)


def _labels(text: str, term: str, roles: Mapping[str, Symbol]) -> tuple[str, ...]:
    before, dots, after = term.partition(_DOTS)
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            raise _error(text, f"{letter!r} is not a letter", roles, 'a term is letters and "...": "...ij,jk->...ik"')
    return (*before, *([_DOTS] if dots else []), *after)


def _implied(inputs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the implied output: "...", then the letters that occur once, in alphabetical order."""
    times = Counter(label for labels in inputs for label in labels if label != _DOTS)
    dots = [_DOTS] if any(_DOTS in labels for labels in inputs) else []
    return (*dots, *sorted(label for label, count in times.items() if count == 1))


def spelled(equation: Equation, ranks: Sequence[int]) -> Equation:
    """Return the equation with letters in place of "...", aligned at the last axes."""
    counts = [rank - len(labels) + 1 for rank, labels in zip(ranks, equation.inputs, strict=True) if "..." in labels]
    used = {label for labels in (*equation.inputs, equation.output) for label in labels}
    free = [letter for letter in string.ascii_letters if letter not in used]
    if max(counts, default=0) > len(free):
        return equation
    dots = free[: max(counts, default=0)]

    def spell(labels: tuple[str, ...], count: int) -> tuple[str, ...]:
        place = labels.index("...") if "..." in labels else len(labels)
        return (*labels[:place], *dots[len(dots) - count :], *labels[place + 1 :])

    inputs = tuple(
        spell(labels, rank - len(labels) + 1 if "..." in labels else 0)
        for rank, labels in zip(ranks, equation.inputs, strict=True)
    )
    return Equation(inputs, spell(equation.output, len(dots) if "..." in equation.output else 0))


@dataclass(frozen=True, slots=True)
class LabelSizes:
    """The sizes of labels: the dim of each letter, and the dims of "..."."""

    letters: dict[str, Dim]
    batch: Shape

    def shape(self, labels: Sequence[str]) -> Shape:
        """Return the shape of a tensor with these labels."""
        return _shape([d for label in labels for d in (self.batch if label == _DOTS else (self.letters[label],))])


def measure(text: str, equation: Equation, roles: Mapping[str, Symbol]) -> LabelSizes:
    """Return the sizes of the labels. Raises `ShapeError` where ranks or dims of operands do not match the equation."""
    sizes: dict[str, tuple[Dim, str]] = {}
    batches: list[Shape] = []
    for (role, symbol), labels in zip(roles.items(), equation.inputs, strict=True):
        dims = symbol.shape
        letters = len(labels) - (_DOTS in labels)
        if symbol.rank < letters or (symbol.rank > letters and _DOTS not in labels):
            raise _error(
                text,
                f"the term {''.join(labels)!r} does not describe {role}, which has rank {symbol.rank}",
                roles,
                "write a letter for each axis, and ... for batch axes",
            )
        start = labels.index(_DOTS) if _DOTS in labels else 0
        extra = symbol.rank - letters
        if _DOTS in labels:
            batches.append(dims[start : start + extra])
            dims = _shape([*dims[:start], Dim(1), *dims[start + extra :]])
        for label, dim in zip(labels, dims, strict=True):
            if label != _DOTS:
                sizes[label] = _agreed(text, label, sizes.get(label), dim, role, roles)
    try:
        batch = broadcast_shapes(batches) if batches else _shape(())
    except ValueError as clash:
        raise _error(text, f"the axes of ... do not broadcast: {clash}", roles, "make them equal or 1") from None
    if batch and _DOTS not in equation.output:
        raise _error(text, "the output lacks the ... of the operands", roles, "add ... after ->")
    if _DOTS in equation.output and not batches:
        raise _error(text, "no operand has ...", roles, "write ... in the terms that have batch axes")
    return LabelSizes({label: size for label, (size, _) in sizes.items()}, batch)


def _agreed(
    text: str, label: str, previous: tuple[Dim, str] | None, dim: Dim, role: str, roles: Mapping[str, Symbol]
) -> tuple[Dim, str]:
    """Return the size of a letter, and the role it is from, after one more axis that has it."""
    if previous is None:
        return dim, role
    size, where = previous
    if dim is size or dim.is_dynamic or (dim == 1 and role != where):
        return previous
    if size.is_dynamic or (size == 1 and role != where):
        return dim, role
    raise _error(
        text,
        f"{label!r} is {size} in {where} and {dim} in {role}",
        roles,
        "give the axes different letters, or make the dims equal; ops.rebind declares that two dims always agree",
    )


def _error(text: str, reason: str, roles: Mapping[str, Symbol], help: str) -> ShapeError:
    return ShapeError(f"einsum: {text!r}: {reason}", operands=roles, help=help)


def plain(text: str, equation: Equation, symbols: Sequence[Symbol], sizes: LabelSizes) -> tuple[Equation, list[Symbol]]:
    """Remove "...", and letters of operands where they have size 1 and are longer in another; the result is the same.

    Runtimes infer wrong shapes for them.
    """
    used = {label for labels in equation.inputs for label in labels}
    fresh = [letter for letter in string.ascii_letters if letter not in used][: len(sizes.batch)]
    if len(fresh) < len(sizes.batch):
        roles = {f"operand {i}": symbol for i, symbol in enumerate(symbols)}
        raise _error(text, "there are more axes than letters of the alphabet", roles, "reshape to fewer axes")
    letters = {**sizes.letters, **dict(zip(fresh, sizes.batch, strict=True))}
    inputs, operands = [], []
    for symbol, labels in zip(symbols, equation.inputs, strict=True):
        labels = _without_dots(labels, fresh[len(fresh) - (symbol.rank - len(labels) + 1) :])
        short = [
            axis
            for axis, (label, dim) in enumerate(zip(labels, symbol.shape, strict=True))
            if dim == 1 and letters[label] != 1
        ]
        if short:
            symbol = e.squeeze(symbol, *short)
            labels = tuple(label for axis, label in enumerate(labels) if axis not in short)
        inputs.append(labels)
        operands.append(symbol)
    return Equation(tuple(inputs), _without_dots(equation.output, fresh)), operands


def _without_dots(labels: tuple[str, ...], letters: Sequence[str]) -> tuple[str, ...]:
    return tuple(letter for label in labels for letter in (letters if label == _DOTS else label))


def summed(x: Symbol, labels: tuple[str, ...], lone: Sequence[str]) -> tuple[Symbol, tuple[str, ...]]:
    """Sum an operand over letters that only it has; return the sum and its labels."""
    order = tuple(dict.fromkeys(labels))
    if order != labels:
        shape = _shape([x.shape[labels.index(label)] for label in order])
        x = e.emit("Einsum", x, shape=shape, equation=str(Equation((labels,), order)))
    axes = [axis for axis, label in enumerate(order) if label in lone]
    shape = _shape([d for axis, d in enumerate(x.shape) if axis not in axes])
    total = e.emit("ReduceSum", x, e.ints(x, axes), shape=shape, keepdims=0)
    return total, tuple(label for label in order if label not in lone)
