"""Traits of operators, the row of an operator, and the rows of the library's own operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Flag, auto
from typing import Any, NamedTuple

from graphcore.operators.shapes.call import Rule, of_pairs, pairs


class Trait(Flag):
    """A property of an operator that is independent of its operands."""

    VIEWS = auto()
    """The result has the elements of operand 0 in the same order, in another shape."""
    MOVES = auto()
    """All elements of results are elements of operand 0; the other operands are positions or sizes."""
    FILLS = auto()
    """As MOVES, with additional zeros or fill values."""
    JOINS = auto()
    """As MOVES, with elements of several operands, or not of the first one. Scatter with a `reduction` computes."""
    CARRIES = auto()
    """Stores whole values in sequences and optionals, extracts them, or queries the container."""
    SELECTS = auto()
    """All elements are elements of the operands, or a stated bound, selected by comparisons."""
    SIGN = auto()
    """Changes only the sign of elements."""
    BODIES = auto()
    """Has graphs as attributes, and computes their nodes."""
    ELEMENTWISE = auto()
    """An element of the result depends only on the elements of the operands at the same position."""
    BROADCASTS = auto()
    """Two or more operands broadcast against each other. In PRelu only the slope broadcasts."""
    COMMUTATIVE = auto()
    """Swapping two operands gives the same bits, except for NaN payloads, and the sign of zeros in Max and Min."""
    COMPARES = auto()
    """Compares two numbers and returns bools."""
    RING = auto()
    """The low n bits of an integer result depend only on the low n bits of the operands."""
    REDUCES = auto()
    """An element of the result depends on a whole axis: reductions, cumulative sums, norms, softmax."""
    PRODUCT = auto()
    """Multiplies and sums: matrix products, convolutions, attention, recurrent layers."""
    WINDOW = auto()
    """Reads or writes windows along spatial axes: convolutions, pools and their inverses."""
    RECURRENT = auto()
    """The operands are X, W, R, B, sequence lengths, and states."""
    QUANTIZED = auto()
    """Operands or results are integers with a scale and a zero point."""
    RANDOM = auto()
    """Two nodes, or two runs, give different numbers."""
    TYPE_ONLY = auto()
    """The result depends on the shape, dtype or presence of an operand, not on its elements."""
    TESTS = auto()
    """Computes bools or positions from properties of floats that rounding would change."""
    POSITIONS = auto()
    """A result has positions, lengths or counts; for operators that select, all results after the first."""
    SIZED = auto()
    """The value of an integer operand determines the shape of a result."""
    ROUNDS = auto()
    """Results are rounded to the dtype, or are not known to be exact."""


EVERY = range(1 << 30)
"""The positions of all operands."""


class OperatorRow(NamedTuple):
    """The properties of an operator.

    traits: the bits of its traits. data: the positions of the operands whose elements occur in the results, for
    operators that move, join, carry or select. dtype_attribute: the attribute with the dtype of the result. shapes: the
    shape rule, if it does not follow from the traits. See `operators.SHAPES`.
    """

    traits: int = 0
    data: Collection[int] = (0,)
    dtype_attribute: str = ""
    shapes: Rule | None = None


def row(traits: str = "", **properties: Any) -> OperatorRow:
    """Return a row. traits: their names, separated by spaces. properties: other fields of the row."""
    return OperatorRow(sum(Trait[name].value for name in traits.split()), **properties)


def rows(names: str, traits: str = "", **properties: Any) -> dict[str, OperatorRow]:
    """Return one row for several operators. names: separated by spaces."""
    return dict.fromkeys(names.split(), row(traits, **properties))


# The library's own operators, which lowering expands.

ROWS: Mapping[str, OperatorRow] = {
    **rows(
        "Angle Cbrt Digamma Erfc Erfcinv Erfcx Erfinv Exp10 Exp2 Expm1 Lgamma Log10 Log1p Log2 Magnitude Modf "
        "NormCdf NormCdfInverse ReciprocalCbrt Rsqrt Sinc Tgamma",
        "ELEMENTWISE ROUNDS",
    ),
    **rows(
        "Atan2 Fdim FloorDiv FloorMod Hypot IntegerPow Ldexp LogAddExp ReciprocalHypot SwiGlu",
        "ELEMENTWISE BROADCASTS ROUNDS",
    ),
    **rows(
        "BitReverse Conjugate Frexp ImaginaryPart LeadingZeros Logb PopCount RealPart RoundHalfAway SignBit "
        "TrailingZeros Trunc",
        "ELEMENTWISE",
    ),
    **rows("BoolGreater BoolGreaterEqual BoolLess BoolLessEqual", "ELEMENTWISE BROADCASTS COMPARES"),
    **rows(
        "BoolMod BoolPow ComplexOf CopySign Heaviside IeeeRemainder ProductOfTerms ShiftRight SumOfTerms",
        "ELEMENTWISE BROADCASTS",
    ),
    **rows("CosineWindow Fourier Glu MulComplex", "ROUNDS"),
    **rows("CounterBits CounterNormal CounterUniform Quantile StandardDeviation Variance"),
    **rows("Dequantize Quantize", "ELEMENTWISE QUANTIZED ROUNDS"),
    "Fma": row("ELEMENTWISE BROADCASTS RING ROUNDS"),
    "FromPairs": row(shapes=of_pairs),
    "IsFinite": row("ELEMENTWISE TESTS"),
    "NotEqual": row("ELEMENTWISE BROADCASTS COMMUTATIVE COMPARES"),
    "QMatMul": row("PRODUCT QUANTIZED ROUNDS"),
    "RecurrentSteps": row("PRODUCT ROUNDS"),
    "ShiftLeft": row("ELEMENTWISE BROADCASTS RING"),
    "Square": row("ELEMENTWISE RING ROUNDS"),
    "ToPairs": row(shapes=pairs),
}
