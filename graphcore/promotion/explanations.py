"""Explain the result of a promotion system for two dtypes: the path on a lattice, the rule, the refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from graphcore.promotion.allo import Allo, AlloHls
from graphcore.promotion.allo_rules import FLOATS, is_integer
from graphcore.promotion.anvil import Anvil
from graphcore.promotion.array_api import ArrayApi
from graphcore.promotion.kernel_float import KernelFloat
from graphcore.promotion.max import max_published, max_system
from graphcore.promotion.packages import jax, numpy, torch
from graphcore.promotion.rules import Key, NoPromotion, Operand
from graphcore.promotion.system import LatticeSystem, PromotionSystem, TableSystem, path_text
from graphcore.promotion.system import system as find
from graphcore.support.markup import table
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Kind: TypeAlias = Literal[
    "common",  # they have a common dtype
    "forbidden",  # the publication forbids the pair
    "undefined",  # the publication leaves the pair open
    "no rule",  # no rule of the system covers the pair
    "unknown",  # the system does not have one of the dtypes
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of a system for two dtypes: their common dtype, None if there is none, and the reason.

    Attributes:
        ambiguous: The dtype is only a default.
    """

    system: str
    dtype: DType | None
    reason: str
    kind: Kind
    ambiguous: bool = False

    def _repr_html_(self) -> str:
        return table(("system", "dtype", "reason"), [(self.system, self.result, self.reason)])

    @property
    def result(self) -> str:
        """The dtype as printed: `int32?` if it is only a default, `-` if there is none."""
        if self.dtype is None:
            return "-"
        return f"{self.dtype.name}?" if self.ambiguous else self.dtype.name


@dataclass(frozen=True, slots=True)
class _DTypePair:
    lhs: DType
    rhs: DType
    lhs_ambiguous: bool
    rhs_ambiguous: bool

    @property
    def dtypes(self) -> tuple[DType, DType]:
        return self.lhs, self.rhs

    def has(self, *dtypes: DType) -> bool:
        return any(d in dtypes for d in self.dtypes)


def explain(lhs: object, rhs: object, system: str | PromotionSystem = "max") -> Explanation:
    """Return the common dtype of two dtypes, as `implicit_cast_type` does, with the reason.

    A refusal is not an error here: `dtype` is None, and `kind` tells the sort of refusal.

    Args:
        lhs: As for `implicit_cast_type`, or a Symbol or Tensor, whose dtype is taken. A question mark, "int32?", marks
            a dtype that is only a default, such as that of a literal in anvil or a constant in kernel_float.
        rhs: Likewise.
        system: A name or a `PromotionSystem`.

    Raises:
        DTypeError: An argument is not a dtype.
        PromotionError: There is no such system.
    """
    rules = find(system)
    (left, left_ambiguous), (right, right_ambiguous) = _read(rules, lhs), _read(rules, rhs)
    pair = _DTypePair(left, right, left_ambiguous, right_ambiguous)
    name = str(rules)
    if (left_ambiguous or right_ambiguous) and not rules.knows_ambiguous:
        return Explanation(name, None, f"{rules.name} has no dtypes that are only a default", "unknown")
    operands = [Operand(left, ambiguous=left_ambiguous), Operand(right, ambiguous=right_ambiguous)]
    try:
        answer = rules.resolve(Key("implicit_cast", "join"), operands)
    except NoPromotion as refusal:
        kind, reason = _refusal(rules, pair, refusal)
        return Explanation(name, None, reason, kind)
    return Explanation(name, answer.result, _reason(rules, pair, answer.result), "common", answer.ambiguous)


def _read(rules: PromotionSystem, operand: object) -> tuple[DType, bool]:
    type_ = getattr(operand, "type", None)  # of a Symbol or a Tensor
    if isinstance(type_, TensorType):
        return rules.dtype_of(type_.dtype), type_.ambiguous
    return rules.read(operand)


def _refusal(rules: PromotionSystem, pair: _DTypePair, refusal: NoPromotion) -> tuple[Kind, str]:
    if refusal.undefined:
        return "undefined", f"undefined: {_undefined_reason(rules, pair)}"
    if not all(supports(rules, dtype) for dtype in pair.dtypes):
        return "unknown", refusal.reason.rpartition(": ")[2]
    if isinstance(rules, KernelFloat) and not all(d.is_float for d in pair.dtypes):
        return "forbidden", "forbidden: signed with unsigned"
    return "no rule", refusal.reason


def supports(rules: PromotionSystem, dtype: DType) -> bool:
    """Return True if a system has a dtype. Those of Allo have integers of every width."""
    if isinstance(rules, Allo):
        return is_integer(dtype) or dtype is DType.index or dtype in FLOATS
    return dtype in rules.dtypes


def _reason(rules: PromotionSystem, pair: _DTypePair, met: DType) -> str:
    for type_, reason in _REASONS:
        if isinstance(rules, type_):
            return reason(rules, pair, met)
    return "the same dtype" if pair.lhs is pair.rhs else f"as {rules.name} says"


# One system each


def _on_lattice(rules: LatticeSystem, pair: _DTypePair, met: DType) -> str:
    if pair.lhs is pair.rhs:
        return "the same dtype"
    return path_text(rules.edges, pair.dtypes, met, lambda dtype: dtype.name)


def _in_table(rules: TableSystem, pair: _DTypePair, met: DType) -> str:
    if pair.lhs is pair.rhs:
        return "the same dtype"
    where = f"printed in row {pair.lhs}, column {pair.rhs}"
    if rules is max_published and (joined := max_system.meet(*pair.dtypes)) is not met:
        return f"{where}; on the lattice they meet in {joined}"
    return where


def _numbers_reason(pair: _DTypePair) -> str:
    """Return the rule that kernel_float and anvil share, except for signed with unsigned integers."""
    lhs, rhs = pair.dtypes
    if lhs is rhs:
        return "the same dtype"
    if pair.has(DType.bool):
        return "bool with anything: the other"
    if lhs.is_float and rhs.is_float:
        return "floats: the wider" if lhs.bits != rhs.bits else "floats of one width: one that holds both"
    if lhs.is_float or rhs.is_float:
        return "a float with an integer: the float"
    return "the same sign: the wider"


def _in_kernel_float(rules: KernelFloat, pair: _DTypePair, met: DType) -> str:
    if pair.lhs_ambiguous is not pair.rhs_ambiguous:
        return "a constant takes the dtype of what it meets"
    both = "of two constants, " if pair.lhs_ambiguous else ""
    return both + _numbers_reason(pair)


def _in_anvil(rules: Anvil, pair: _DTypePair, met: DType) -> str:
    if pair.lhs_ambiguous is pair.rhs_ambiguous:
        flag = "; both are ambiguous, and so is the result" if pair.lhs_ambiguous else ""
        return _fixed_reason(pair) + flag
    guessed, fixed = pair.dtypes if pair.lhs_ambiguous else pair.dtypes[::-1]
    if guessed.is_float and not fixed.is_float:
        return "an ambiguous float with a known integer or bool: the float"
    if fixed is DType.bool and guessed is not DType.bool:
        return "an ambiguous number with a known bool: the number"
    return "an ambiguous dtype with a known one: the known one"


def _fixed_reason(pair: _DTypePair) -> str:
    lhs, rhs = pair.dtypes
    if not (lhs.is_integer and rhs.is_integer and lhs.is_signed is not rhs.is_signed):
        return _numbers_reason(pair)
    signed, unsigned = pair.dtypes if lhs.is_signed else pair.dtypes[::-1]
    if signed.bits > unsigned.bits:
        return "signed with a narrower unsigned: the signed one"
    return "signed with unsigned: signed, twice as wide as the unsigned one, at most 64 bits"


def _in_array_api(rules: ArrayApi, pair: _DTypePair, met: DType) -> str:
    lhs, rhs = pair.dtypes
    if (lhs, rhs) not in rules.table:
        return "the same dtype"
    if lhs.is_float or lhs.is_complex:
        return "table of floats and complex numbers" if lhs.is_complex or rhs.is_complex else "table of floats"
    if lhs.is_signed is rhs.is_signed:
        return f"table of {'signed' if lhs.is_signed else 'unsigned'} integers"
    return "table of mixed integers"


def _undefined_reason(rules: PromotionSystem, pair: _DTypePair) -> str:
    """Return the gap in the tables of the array API standard."""
    for dtype in pair.dtypes:
        if dtype not in rules.dtypes:
            return f"the standard has no {dtype}"
    if pair.has(DType.bool):
        return "no table has bool with another dtype"
    if pair.lhs.is_integer and pair.rhs.is_integer:
        return f"no table has {pair.lhs} with {pair.rhs}"
    kind = "complex number" if any(d.is_complex for d in pair.dtypes) else "float"
    return f"no table has an integer with a {kind}"


def _in_allo(rules: Allo, pair: _DTypePair, met: DType) -> str:
    common = _allo_common(rules, pair)
    if not isinstance(rules, AlloHls) or not all(map(is_integer, pair.dtypes)):
        return common
    try:
        operands = [Operand(dtype) for dtype in pair.dtypes]
        added, subtracted, product = (
            rules.resolve(Key(op, "arithmetic", True), operands).result for op in ("add", "sub", "mul")
        )
    except NoPromotion as refusal:
        return f"{common}; {refusal.reason}"
    if added is subtracted:
        return f"{common}; + and - give {added}, * gives {product}"
    return f"{common}; + gives {added}, - gives {subtracted}, * gives {product}"


def _allo_common(rules: Allo, pair: _DTypePair) -> str:
    lhs, rhs = pair.dtypes
    if lhs is rhs:
        return "the same dtype"
    if pair.has(DType.index):
        return "index with an integer: index"
    if lhs.is_float and rhs.is_float:
        return "floats: the wider" if lhs.bits != rhs.bits else "floats of one width: the left one"
    if lhs.is_float or rhs.is_float:
        return "a float with an integer: the float"
    if lhs.is_signed is rhs.is_signed:
        return "the same sign: the wider"
    if rules.keeps_sign:
        return "signed with unsigned: signed, and wide enough for both"
    signed, unsigned = pair.dtypes if lhs.is_signed else pair.dtypes[::-1]
    if unsigned.bits >= signed.bits:
        return "signed with unsigned: the unsigned one, which is at least as wide"
    return "signed with unsigned: the signed one, which is wider"


_REASONS: tuple[tuple[type[PromotionSystem], Callable[[Any, _DTypePair, DType], str]], ...] = (
    (LatticeSystem, _on_lattice),
    (TableSystem, _in_table),
    (KernelFloat, _in_kernel_float),
    (Anvil, _in_anvil),
    (ArrayApi, _in_array_api),
    (Allo, _in_allo),
    (numpy.NumPy, lambda rules, pair, met: numpy.reason(*pair.dtypes)),
    (jax.Jax, lambda rules, pair, met: jax.reason(rules, pair.lhs, pair.rhs, (pair.lhs_ambiguous, pair.rhs_ambiguous))),
    (torch.Torch, lambda rules, pair, met: torch.reason(*pair.dtypes)),
)
