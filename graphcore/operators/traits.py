"""Traits of operators, the row that says what is known of one, and the rows of the library's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Flag, auto
from typing import NamedTuple

from graphcore.operators.shapes.call import Rule, of_pairs, pairs


class Trait(Flag):
    """A property that an operator has whatever its operands are."""

    VIEWS = auto()
    """The result has the elements of operand 0 in the same order, in another shape."""
    MOVES = auto()
    """Every element of every result is an element of operand 0; the other operands are positions or sizes."""
    FILLS = auto()
    """As MOVES, with zeros or a filler among the elements."""
    JOINS = auto()
    """As MOVES, with elements of several operands, or of another one than the first. A Scatter with a `reduction`
    computes."""
    CARRIES = auto()
    """It puts whole values into sequences and optionals, takes them out, or tells about them."""
    SELECTS = auto()
    """Every element is one of the operands' elements, or a stated bound, chosen by comparing numbers."""
    SIGN = auto()
    """Elements change nothing but their sign."""
    BODIES = auto()
    """It has graphs as attributes, and computes what they compute."""
    ELEMENTWISE = auto()
    """An element of the result depends on the elements of the operands in the same place alone."""
    BROADCASTS = auto()
    """It takes two or more operands, which are broadcast against each other. PRelu broadcasts one to the other."""
    COMMUTATIVE = auto()
    """Two operands may change places: the result has the same bits but for the payload of a NaN, and in Max and Min for
    the sign of a zero."""
    COMPARES = auto()
    """It compares two numbers and gives truth values."""
    RING = auto()
    """The low n bits of an integer result depend on the low n bits of the operands alone."""
    REDUCES = auto()
    """An element of the result depends on a whole axis: reductions, running sums, norms, softmax."""
    PRODUCT = auto()
    """It multiplies and sums: matrix products, convolutions, attention, recurrent layers."""
    WINDOW = auto()
    """It reads or writes windows along spatial axes: convolutions, pools and their inverses."""
    RECURRENT = auto()
    """The operands are X, W, R, B, the lengths of sequences, and states."""
    QUANTIZED = auto()
    """Operands or results are integers that mean numbers by a scale and a zero point."""
    RANDOM = auto()
    """Two nodes, or two runs, give different numbers."""
    TYPE_ONLY = auto()
    """The result depends on the shape, the dtype or the presence of an operand, not on its elements."""
    TESTS = auto()
    """It finds truth values or positions by properties of floats that rounding them first would change."""
    POSITIONS = auto()
    """A result has positions, lengths or counts: of operators that select, each result after the first."""
    SIZED = auto()
    """The value of an integer operand decides the shape of a result."""
    ROUNDS = auto()
    """Results are rounded to the dtype, or are not known to be exact."""


(
    VIEWS, MOVES, FILLS, JOINS, CARRIES, SELECTS, SIGN, BODIES, ELEMENTWISE, BROADCASTS, COMMUTATIVE, COMPARES, RING,
    REDUCES, PRODUCT, WINDOW, RECURRENT, QUANTIZED, RANDOM, TYPE_ONLY, TESTS, POSITIONS, SIZED, ROUNDS,
) = (trait.value for trait in Trait)  # fmt: skip
"""The bits of traits: 400 unions of numbers take a tenth of the time of those of flags."""

EVERY = range(1 << 30)
"""The positions of all operands."""


class Row(NamedTuple):
    """An operator.

    traits: the bits of its traits. data: the positions of the operands whose elements are in the results, where it
    moves, joins, carries or selects them. dtype_attribute: the attribute that says the dtype of the result. shapes: the
    rule of what shapes its results have, where its traits do not tell: see `operators.shapes_of`.
    """

    traits: int = 0
    data: Collection[int] = (0,)
    dtype_attribute: str = ""
    shapes: Rule | None = None


# The library's own operators: nodes of Graphs, which lowering expands.

ROWS: Mapping[str, Row] = {
    "Angle": Row(ELEMENTWISE | ROUNDS),
    "Atan2": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "BitReverse": Row(ELEMENTWISE),
    "BoolGreater": Row(ELEMENTWISE | BROADCASTS | COMPARES),
    "BoolGreaterEqual": Row(ELEMENTWISE | BROADCASTS | COMPARES),
    "BoolLess": Row(ELEMENTWISE | BROADCASTS | COMPARES),
    "BoolLessEqual": Row(ELEMENTWISE | BROADCASTS | COMPARES),
    "BoolMod": Row(ELEMENTWISE | BROADCASTS),
    "BoolPow": Row(ELEMENTWISE | BROADCASTS),
    "Cbrt": Row(ELEMENTWISE | ROUNDS),
    "ComplexOf": Row(ELEMENTWISE | BROADCASTS),
    "Conjugate": Row(ELEMENTWISE),
    "CopySign": Row(ELEMENTWISE | BROADCASTS),
    "CosineWindow": Row(ROUNDS),
    "CounterBits": Row(),
    "CounterNormal": Row(),
    "CounterUniform": Row(),
    "Dequantize": Row(ELEMENTWISE | QUANTIZED | ROUNDS),
    "Digamma": Row(ELEMENTWISE | ROUNDS),
    "Erfc": Row(ELEMENTWISE | ROUNDS),
    "Erfcinv": Row(ELEMENTWISE | ROUNDS),
    "Erfcx": Row(ELEMENTWISE | ROUNDS),
    "Erfinv": Row(ELEMENTWISE | ROUNDS),
    "Exp10": Row(ELEMENTWISE | ROUNDS),
    "Exp2": Row(ELEMENTWISE | ROUNDS),
    "Expm1": Row(ELEMENTWISE | ROUNDS),
    "Fdim": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "FloorDiv": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "FloorMod": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "Fma": Row(ELEMENTWISE | BROADCASTS | RING | ROUNDS),
    "Fourier": Row(ROUNDS),
    "Frexp": Row(ELEMENTWISE),
    "FromPairs": Row(shapes=of_pairs),
    "Glu": Row(ROUNDS),
    "Heaviside": Row(ELEMENTWISE | BROADCASTS),
    "Hypot": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "IeeeRemainder": Row(ELEMENTWISE | BROADCASTS),
    "ImaginaryPart": Row(ELEMENTWISE),
    "IntegerPow": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "IsFinite": Row(ELEMENTWISE | TESTS),
    "Ldexp": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "LeadingZeros": Row(ELEMENTWISE),
    "Lgamma": Row(ELEMENTWISE | ROUNDS),
    "Log10": Row(ELEMENTWISE | ROUNDS),
    "Log1p": Row(ELEMENTWISE | ROUNDS),
    "Log2": Row(ELEMENTWISE | ROUNDS),
    "LogAddExp": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "Logb": Row(ELEMENTWISE),
    "Magnitude": Row(ELEMENTWISE | ROUNDS),
    "Modf": Row(ELEMENTWISE | ROUNDS),
    "MulComplex": Row(ROUNDS),
    "NormCdf": Row(ELEMENTWISE | ROUNDS),
    "NormCdfInverse": Row(ELEMENTWISE | ROUNDS),
    "NotEqual": Row(ELEMENTWISE | BROADCASTS | COMMUTATIVE | COMPARES),
    "PopCount": Row(ELEMENTWISE),
    "ProductOfTerms": Row(ELEMENTWISE | BROADCASTS),
    "QMatMul": Row(PRODUCT | QUANTIZED | ROUNDS),
    "Quantile": Row(),
    "Quantize": Row(ELEMENTWISE | QUANTIZED | ROUNDS),
    "RealPart": Row(ELEMENTWISE),
    "ReciprocalCbrt": Row(ELEMENTWISE | ROUNDS),
    "ReciprocalHypot": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "RecurrentSteps": Row(PRODUCT | ROUNDS),
    "RoundHalfAway": Row(ELEMENTWISE),
    "Rsqrt": Row(ELEMENTWISE | ROUNDS),
    "ShiftLeft": Row(ELEMENTWISE | BROADCASTS | RING),
    "ShiftRight": Row(ELEMENTWISE | BROADCASTS),
    "SignBit": Row(ELEMENTWISE),
    "Sinc": Row(ELEMENTWISE | ROUNDS),
    "Square": Row(ELEMENTWISE | RING | ROUNDS),
    "StandardDeviation": Row(),
    "SumOfTerms": Row(ELEMENTWISE | BROADCASTS),
    "SwiGlu": Row(ELEMENTWISE | BROADCASTS | ROUNDS),
    "Tgamma": Row(ELEMENTWISE | ROUNDS),
    "ToPairs": Row(shapes=pairs),
    "TrailingZeros": Row(ELEMENTWISE),
    "Trunc": Row(ELEMENTWISE),
    "Variance": Row(),
}
