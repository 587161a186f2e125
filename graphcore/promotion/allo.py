"""The promotion of Allo, a language for hardware accelerators, in its two styles hls and cpp.

Source: Allo's document "Type promotion rules"; lists that are missing in its print are from its code. Integers have
any width, and bool is the unsigned integer of one bit. In the style hls, sums and products of integers are promoted
over the whole expression, so that no bit is lost; in cpp, pair by pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from graphcore.errors import DTypeError, PromotionError
from graphcore.operators import Trait, having
from graphcore.promotion.allo_rules import (
    COMPARISONS,
    CPP,
    FLOATS,
    HLS,
    SHIFTS,
    SPECIAL,
    Rule,
    common_numeric,
    integer,
    is_integer,
    product_type,
    sum_type,
)
from graphcore.promotion.rules import (
    Key,
    NoPromotion,
    Operand,
    Resolution,
    Scalar,
    SymbolLike,
    Term,
    check_literal,
    no_complex,
)
from graphcore.promotion.system import PromotionSystem
from graphcore.types import dtypes
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

# The operators for integers of more than 64 bits, checked when a node is built, so that errors name the user's line.
#
# Lowering computes such integers in limbs, with a rule for each operator. Operators without a rule are refused here.

MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS) - {"CenterCropPad", "OneHot", "TensorScatter"}
"""Operators that move elements. Those removed are built by `ops.onnx` alone, which takes ONNX's dtypes."""

OPERATORS = MOVES.union(
    {
        "Abs", "Add", "ArgMax", "ArgMin", "BitCast", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast",
        "Clip", "ConstantOfShape", "CumProd", "CumSum", "Div", "Einsum", "Equal", "FloorDiv", "Fma", "Greater",
        "GreaterOrEqual", "If", "IntegerPow", "Less", "LessOrEqual", "Loop", "MatMul", "Max", "MaxPool", "Min", "Mod",
        "Mul", "Neg", "NotEqual", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Resize", "Scan", "Shape",
        "ShiftLeft", "ShiftRight", "Sign", "Size", "Square", "Sub", "Sum", "TopK",
    }
)  # fmt: skip
"""Operators with a lowering rule in limbs."""

EXPRESSIONS = frozenset({"SumOfTerms", "ProductOfTerms"})
"""Operators that expand to operators with such a rule."""


def is_wide(type_: Type) -> bool:
    """Return True for integers of more than 64 bits, and for lists and optionals of them."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return is_wide(type_.element)
    return isinstance(type_, TensorType) and dtypes.is_wide(type_.dtype)


def check_width(operator: str, inputs: Sequence[SymbolLike | None], type_: Type, position: int = 0) -> Type:
    """Return the type of a result unchanged. Raises `DTypeError` for an operator without a rule for wide integers."""
    if operator in EXPRESSIONS:
        return type_
    try:  # the fast path: this runs for every node, and wide integers are rare
        narrow = type_.dtype.bits <= 64 or not type_.dtype.is_integer  # type: ignore[union-attr]
        for symbol in inputs:
            if symbol is not None and symbol.type.dtype.bits > 64 and symbol.type.dtype.is_integer:
                narrow = False
    except AttributeError:
        narrow = not any(map(is_wide, (type_, *(s.type for s in inputs if s is not None))))
    if narrow or operator in OPERATORS:
        return type_
    wide = next((s.type for s in inputs if s is not None and is_wide(s.type)), type_)
    name = wide.dtype if isinstance(wide, TensorType) else wide
    raise DTypeError(
        f"{operator}: it does not support {name}, an integer of more than 64 bits",
        operands={f"input {i}": s for i, s in enumerate(inputs) if s is not None},
        help="cast the operands to at most 64 bits first: .cast(DType.int64)",
    )


REVISIONS = ("seed", "latest")
"""seed: of 2026-05-10. latest: of 2026-08-18, in which hls promotes signed with unsigned integers to signed ones, and
index is neither shifted nor inverted."""

_UNARY = frozenset({"neg", "invert", "pos", "abs", "logical_not", *SPECIAL})

# Allo's names of ops that differ from the names here.
_OPERATORS = {
    "floor_div": "floordiv", "maximum": "max", "minimum": "min", "equal": "eq", "not_equal": "ne", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "left_shift": "lshift", "right_shift": "rshift",
    "negate": "neg", "bitwise_not": "invert", "positive": "pos", "implicit_cast": "max",
}  # fmt: skip

# Ops without an operator in Allo follow a similar operator, by their promotion rule.
_SIMILAR_RULES = {
    "join": "max", "arithmetic": "max", "subtract": "max", "divide": "div", "compare": "eq", "bitwise": "bitwise_and",
    "logical": "logical_and", "float": "sin", "mean": "sin", "test": "sin", "number": "pos", "keep": "pos",
    "sum": "pos",
}  # fmt: skip
_APINT = re.compile(r"apint\(([1-9]\d{0,17})(?:, *signed=(True|False))?\)")
# Sums of products: elements have the type of the product. A third operand is added.
_PRODUCTS = frozenset({"matmul", "linear", "outer", "vecdot", "einsum", "fma"})
_PLUS_THIRD = frozenset({"linear", "fma"})
_TERNARY = frozenset({"where", "select"})
# Reductions with the same result in one bit as in more.
_SAME_IN_ONE_BIT = frozenset({"prod", "cumprod"})
# Computed in one bit, where 1 + 1 is 0, unlike bool + bool here.
_IN_ONE_BIT = frozenset({"add", "sub", "neg", "lshift", "rshift"})


class Allo(PromotionSystem):
    """The rules that both styles share. revision: "seed" or "latest"; raises `PromotionError` for any other."""

    dtypes = frozenset(
        {
            DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
            DType.uint64, DType.index, *FLOATS,
        }
    )  # fmt: skip
    style: str
    rules: Mapping[str, Rule]
    keeps_sign = False
    """Signed with unsigned integers promote to signed ones."""
    result_type = staticmethod(check_width)
    defaults = MappingProxyType({float: DType.float32, int: DType.int32})
    counter_dtype = DType.index
    converts_stores = True
    aliases: Mapping[DType, DType] = MappingProxyType({DType.uint(1): DType.bool})

    def __init__(self, revision: str = "seed") -> None:
        if revision not in REVISIONS:
            raise PromotionError(
                f"{self.name}: there is no revision {revision!r}", help=f"use one of {', '.join(map(repr, REVISIONS))}"
            )
        self.revision = revision
        self.options: dict[str, Any] = {} if revision == "seed" else {"revision": revision}

    def dtype_of(self, x: object) -> DType:
        """Return `DType.of(x)`, also for `apint(23, signed=True)`, `apint(17)`, and u1, which is bool."""
        if isinstance(x, str) and (written := _APINT.fullmatch(x)):
            return integer(int(written[1]), written[2] == "True")
        return super().dtype_of("uint1" if x == "u1" else x)

    def common(self, lhs: DType, rhs: DType) -> DType:
        return self._promote("max", (lhs, rhs))

    def meet(self, lhs: DType, rhs: DType) -> DType:
        return self.common(lhs, rhs)

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        operator = _OPERATORS.get(key.op, key.op)
        dtypes = self._operand_dtypes(operator, operands)
        for dtype in dtypes:
            self._check_known(dtype)
        if key.op in _TERNARY:
            return _ternary(dtypes)
        if key.op in _PRODUCTS:
            return self._product_of(key, dtypes)
        if key.rule == "sum" and key.op not in _SAME_IN_ONE_BIT and dtypes[0] is DType.bool:
            raise _sum_of_bits()
        rule = operator if operator in self.rules else self._similar_rule(key, len(dtypes))
        met = self._promote(rule, dtypes, operator)
        return self._resolution_of(key, rule, dtypes, met)

    def _similar_rule(self, key: Key, count: int) -> str:
        if key.rule == "shift":
            return "lshift"
        if key.rule == "subtract" and count == 1:
            return "neg"
        if key.rule in ("logical", "bitwise") and count == 1:
            return "logical_not" if key.rule == "logical" else "invert"
        return _SIMILAR_RULES[key.rule]

    def _resolution_of(self, key: Key, operator: str, dtypes: Sequence[DType], met: DType) -> Resolution:
        same = (met,) * len(dtypes)
        if operator in COMPARISONS or key.rule in ("compare", "test"):
            return Resolution(same, DType.bool)
        if operator in SHIFTS:
            count = DType.uint8 if dtypes[1] is DType.bool else None
            if met is DType.bool:
                return Resolution((DType.uint(1), count), met, computed=DType.uint(1))
            return Resolution((met, count), met)
        if met is DType.bool and operator in _IN_ONE_BIT:
            return Resolution((DType.uint(1),) * len(dtypes), met, computed=DType.uint(1))
        return Resolution(same, met)

    def _promote(self, operator: str, dtypes: Sequence[DType], label: str = "") -> DType:
        """Return the common dtype of all operands, pair by pair from the left. label: the operator's name in errors."""
        for operand_dtype in dtypes:
            self._check_known(operand_dtype)
        rule = self.rules[operator]
        rest: Sequence[DType | None]
        met: DType | None = dtypes[0]
        if operator in _UNARY:
            each = [rule(self, (dtype,)) for dtype in dtypes]
            met, rule, rest = each[0], common_numeric, each[1:]
        else:
            rest = dtypes[1:]
        for dtype in rest:
            met = None if met is None or dtype is None else rule(self, (met, dtype))
        if met is None:
            names = ", ".join(_long_name(d) for d in dtypes)
            raise NoPromotion(
                f"No {self.style} type promotion rule for operator '{label or operator}' with operand "
                f"type{'s' if len(dtypes) > 1 else ''} {names}",
                help="cast the operands to types that it has a rule for, such as .cast(DType.int32)",
            )
        return met

    def _check_known(self, dtype: DType) -> None:
        if not (is_integer(dtype) or dtype is DType.index or dtype in FLOATS):
            raise NoPromotion(
                f"{self.name} has no {dtype}",
                help="cast it to an integer of any width, float16, bfloat16, float32, float64 or index",
            )

    def _operand_dtypes(self, operator: str, operands: Sequence[Operand]) -> list[DType]:
        """Return the dtypes of operands; a Python number has that of the first operand that is not a number."""
        literals = [o.literal for o in operands if o.literal is not None]
        first_dtype = next((o.dtype for o in operands if o.literal is None), None)
        if operator == "pow" and first_dtype is not None and len(operands) == 2 and operands[1].literal is not None:
            power = operands[1].literal
            if (
                isinstance(power, float) is not first_dtype.is_float
            ):  # the only case in which a literal has its own dtype
                return [first_dtype, DType.float32 if isinstance(power, float) else DType.int32]
        anchor = first_dtype or self.default_dtype(literals)
        if any(isinstance(literal, complex) for literal in literals):
            raise no_complex(self.name)
        if not operator.startswith("logical"):
            for literal in literals:
                _check_literal(literal, anchor)
        return [
            self.aliases.get(o.dtype, o.dtype) if o.literal is None and o.dtype is not None else anchor
            for o in operands
        ]

    def _product_of(self, key: Key, dtypes: Sequence[DType]) -> Resolution:
        met = self._promote("mul", dtypes, key.op)
        if met is DType.bool and key.op != "outer":
            raise _sum_of_bits()
        return Resolution((met,) * len(dtypes), met)


def _sum_of_bits() -> NoPromotion:
    return NoPromotion(
        "bool is an integer of one bit, too narrow for a sum",
        help="cast it to the width of the sum: .cast(DType.int32); to test if any is true use ops.any",
        error=DTypeError,
    )


def _check_literal(literal: Scalar, anchor: DType) -> None:
    try:
        check_literal(literal, anchor)
    except NoPromotion as refusal:
        literal_dtype = (
            DType.float32 if not isinstance(literal, int) else integer(max(1, literal.bit_length()) + 1, True)
        )
        fix = "a number takes the dtype of the first operand that has one"
        fix += f"; cast that operand, or make it a constant: graph.constant({literal!r}, {literal_dtype!r})"
        raise NoPromotion(refusal.reason, help=fix, error=refusal.error) from None


def _long_name(dtype: DType) -> str:
    """Return a dtype as Allo prints it."""
    return "uint1" if dtype is DType.bool else dtype.name


def _ternary(dtypes: Sequence[DType]) -> Resolution:
    then, other = dtypes
    if then is not other:
        raise NoPromotion(
            "Type mismatch between then vs else branches of ternary expression: "
            f"{_long_name(then)} vs {_long_name(other)}.",
            help=f"cast one of them: .cast(DType.{other.name}) or .cast(DType.{then.name})",
        )
    return Resolution((then, then), then)


class AlloHls(Allo):
    """The style hls. fast_math: sums and products of floats are balanced trees too."""

    name = "allo_hls"
    style = "hls"
    rules = HLS

    def __init__(self, revision: str = "seed", fast_math: bool = False) -> None:
        super().__init__(revision)
        if not isinstance(fast_math, bool):
            raise PromotionError(
                f"allo_hls: fast_math must be True or False, got {fast_math!r}", help="give True or False"
            )
        self.fast_math = fast_math
        self.keeps_sign = revision == "latest"
        if fast_math:
            self.options["fast_math"] = True

    def flattens(self, op: str) -> frozenset[str]:
        return _FLAT.get(op, frozenset())

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.op in _FLAT:
            resolution = self._resolve_expression(key, operands)
            if resolution is not None:
                return resolution
        return super().resolve(key, operands)

    def _resolve_expression(self, key: Key, operands: Sequence[Operand]) -> Resolution | None:
        """Resolve all terms of a flattened expression together, None if pairs are promoted one by one."""
        left, right = (operand.terms or (Term(operand),) for operand in operands)
        terms = left + right
        # There are many terms, but few distinct objects: dtypes are computed once for each object.
        kinds = {id(term): term for term in terms}
        dtypes = dict(zip(kinds, self._operand_dtypes(key.op, [t.operand for t in kinds.values()]), strict=True))
        for dtype in dtypes.values():
            self._check_known(dtype)
        if all(map(is_integer, dtypes.values())):
            if key.op == "mul":
                whole = product_type([dtypes[id(term)] for term in terms])
            else:
                negated = any(t.negated for t in left) or any(t.negated is not (key.op == "sub") for t in right)
                whole = sum_type([*dtypes.values()], [negated], len(terms))
            return Resolution((whole,) * len(terms), whole, expression=True)
        if not self.fast_math or DType.index in dtypes.values():
            return None
        met = self._promote(key.op, [*dtypes.values()])
        return Resolution((met,) * len(terms), met, expression=True)

    def _product_of(self, key: Key, dtypes: Sequence[DType]) -> Resolution:
        if not all(map(is_integer, dtypes)):
            return super()._product_of(key, dtypes)
        if key.op in _PLUS_THIRD and len(dtypes) == 3:
            met = sum_type([product_type(dtypes[:2]), dtypes[2]], [])
        else:
            met = product_type(dtypes)
        return Resolution((met,) * len(dtypes), met)


_FLAT = {"add": frozenset({"add", "sub"}), "sub": frozenset({"add", "sub"}), "mul": frozenset({"mul"})}


class AlloCpp(Allo):
    """The style cpp."""

    name = "allo_cpp"
    style = "cpp"
    rules = CPP
