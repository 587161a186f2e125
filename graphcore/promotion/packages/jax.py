"""The promotion of JAX: a lattice with a node for each kind of weak type.

Sources: JAX's page "Type promotion semantics", with either value of `jax_numpy_dtype_promotion` and of
`jax_enable_x64`, and the functions of release 0.10. The type of Python scalars is weak: it gives way to any other of
its kind, is printed `int64?`, and propagates as anvil's ambiguous types do, but not through sums and other reductions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from graphcore.errors import PromotionError
from graphcore.promotion.anvil import Anvil
from graphcore.promotion.packages.numpy import check_order, check_power, check_scalars, no_meaning
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, SymbolLike
from graphcore.promotion.system import SHORT, PromotionSystem, path_text
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

D = DType

# Each type with the types directly above it; i*, f* and c* are weak.
LATTICE: dict[str, tuple[str, ...]] = {
    "b1": ("i*",),
    "i*": ("u2", "i2", "u4", "i4", "u8", "i8"),
    "u8": ("i16", "u16"),
    "u16": ("i32", "u32"),
    "u32": ("i64", "u64"),
    "u64": ("f*",),
    "i8": ("i16",),
    "i16": ("i32",),
    "i32": ("i64",),
    "i64": ("f*",),
    "f*": ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0", "e2m1", "f16", "bf16", "c*"),
    "f16": ("f32",),
    "bf16": ("f32",),
    "f32": ("f64", "c64"),
    "f64": ("c128",),
    "c*": ("c64",),
    "c64": ("c128",),
}

_NAMES: dict[str, DType] = {
    **{name: dtype for name, dtype in SHORT.items() if name in LATTICE or name == "c128"},
    "i2": D.int2,
    "u2": D.uint2,
    "i4": D.int4,
    "u4": D.uint4,
    "e2m1": D.float4_e2m1,
    **{name: D.of(f"float8_{name}") for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0")},
}
_NODES = {dtype: name for name, dtype in _NAMES.items()}
_DEFAULTS = {"i*": D.int64, "f*": D.float64, "c*": D.complex128}


def _above(lattice: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Return the types above each type, including itself."""
    reached: dict[str, frozenset[str]] = {}

    def visit(node: str) -> frozenset[str]:
        if node not in reached:
            reached[node] = frozenset({node}).union(*(visit(above) for above in lattice.get(node, ())))
        return reached[node]

    for node in lattice:
        visit(node)
    return reached


_WEAK = {"i*": ("f*",), "f*": ("c*",), "c*": ()}
_STRICT: dict[str, Sequence[str]] = dict.fromkeys(_NAMES, ()) | {
    weak: (*above, *(name for name, dtype in _NAMES.items() if getattr(dtype, kind)))
    for (weak, above), kind in zip(_WEAK.items(), ("is_integer", "is_float", "is_complex"), strict=True)
}
"""Python scalars alone give way."""
_NARROW = MappingProxyType({D.int64: D.int32, D.uint64: D.uint32, D.float64: D.float32, D.complex128: D.complex64})
"""The dtypes that stand for those of 64 bits where JAX has none."""

# Functions without a meaning for bools, and those that cast bools to int32.
_NOT_OF_BOOLS = frozenset({"negate", "sub", "sign", "round", "softmax", "logsoftmax"})
_IN_INT32 = frozenset({"floor_div", "mod", "pow", "square"})
# Functions that compare complex numbers by their real, then their imaginary parts.
_SORTS = frozenset(
    {"argsort", "greater", "greater_equal", "less", "less_equal", "max", "maximum", "min", "minimum", "sort"}
)
_KEEPS_WIDTH = frozenset({"cumsum", "cumprod"})

# Operators whose results are never weak.
_REDUCTIONS = frozenset({"CumProd", "CumSum", "StandardDeviation", "Variance"})


class Jax(PromotionSystem):
    """JAX's lattice, weak types, and the result dtypes of its functions.

    x64: `jax_enable_x64`; False makes every dtype of 64 bits the one of 32. dtype_promotion:
    `jax_numpy_dtype_promotion`, "standard" or "strict", in which only Python scalars give way. Raises `PromotionError`
    for other values.
    """

    name = "jax"
    dtypes = frozenset(_NODES)
    defaults = MappingProxyType({complex: D.complex128, float: D.float64, int: D.int64})
    knows_ambiguous = True
    guesses_literals = True
    bounds_promote = True

    def __init__(self, x64: bool = True, dtype_promotion: str = "standard") -> None:
        if not isinstance(x64, bool) or dtype_promotion not in ("standard", "strict"):
            raise PromotionError(
                f"jax: x64={x64!r}, dtype_promotion={dtype_promotion!r} are not options of it",
                help='x64 is True or False, and dtype_promotion is "standard" or "strict"',
            )
        options: dict[str, Any] = {} if x64 else {"x64": False}
        self.options = options if dtype_promotion == "standard" else options | {"dtype_promotion": dtype_promotion}
        self.lattice: Mapping[str, Sequence[str]] = _STRICT if dtype_promotion == "strict" else LATTICE
        if not x64:
            # As in JAX, dtypes of 32 bits do not meet in one of 64.
            self.lattice = self.lattice if self.lattice is _STRICT else LATTICE | {"u32": ("i32", "u64")}
            self.aliases = _NARROW
            self.index_dtype = D.int32
        self._above = _above(self.lattice)

    def common(self, lhs: DType, rhs: DType) -> DType:
        return self._least_above({_NODES[lhs], _NODES[rhs]})[0]

    def _least_above(self, nodes: set[str]) -> tuple[DType, bool]:
        """Return the least dtype above all, and True if it is weak."""
        met = _least_above(nodes, self._above)
        dtype = _DEFAULTS.get(met) or _NAMES[met]
        return self.aliases.get(dtype, dtype), met in _DEFAULTS

    def resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if not self.aliases:
            return self._resolve(key, operands)
        names: dict[Any, DType] = dict(self.aliases)
        plan = self._resolve(key, [replace(o, dtype=names.get(o.dtype, o.dtype)) for o in operands])
        cast = tuple(names.get(dtype, dtype) for dtype in plan.operands)
        return replace(plan, operands=cast, result=names.get(plan.result, plan.result))

    def _resolve(self, key: Key, operands: Sequence[Operand]) -> Resolution:
        if key.op == "pow" and isinstance(operands[-1].literal, int) and self.lattice is _STRICT:
            # JAX raises to a Python int or bool without a cast of it.
            joined, is_weak = self._dtype_of(operands[0])
            joined = D.int32 if joined is D.bool and type(operands[-1].literal) is int else joined
        else:
            joined, is_weak = self._join_weak(operands)
        check_order(key, joined, "JAX", _SORTS)
        if key.rule != "logical":
            check_scalars(operands, joined)
        check_power(key, operands, joined, "Integers cannot be raised to negative powers in JAX")
        if joined is D.bool and key.op in _NOT_OF_BOOLS:
            raise no_meaning(key, joined, "JAX", "cast it to int32 first: .cast(DType.int32)")
        if key.op == "pow" and len(operands) == 2:
            joined, is_weak = _power_dtype(operands, joined, is_weak)
        if joined is D.bool and (key.op in _IN_INT32 or key.rule == "shift"):
            joined = D.int32
        is_whole = joined in self.dtypes and not joined.is_float and not joined.is_complex
        if is_whole and key.op == "angle":
            joined = D.float64
        elif is_whole and key.rule in ("divide", "float", "mean"):
            joined = D.float64 if joined.bits == 64 else D.float32
        elif is_whole and key.rule == "sum" and (key.op not in _KEEPS_WIDTH or joined is D.bool):
            joined = D.uint64 if joined.is_unsigned else D.int64
        plain = super().resolve(key, [Operand(joined)] * len(operands))
        result = joined if key.rule == "shift" else plain.result
        cast = (joined,) * len(operands) if key.rule == "shift" else plain.operands
        return Resolution(cast, result, is_weak and result is not D.bool)

    def _join_weak(self, operands: Sequence[Operand]) -> tuple[DType, bool]:
        """Return the common dtype of operands, and True if it is weak."""
        read = [self._dtype_of(operand) for operand in operands]
        dtypes = {dtype for dtype, _ in read}
        if len(dtypes) == 1:
            return read[0][0], all(weak for _, weak in read)
        for dtype in dtypes - self.dtypes:
            other = next(d for d in dtypes if d is not dtype)
            self.meet(dtype, other)  # raises
        is_all_weak = all(weak or dtype is D.bool for dtype, weak in read) and any(weak for _, weak in read)
        if is_all_weak and self.lattice is not _STRICT:
            return self._least_above({_NODES[dtype] for dtype in dtypes})[0], True
        return self._least_above({_node(dtype, weak) for dtype, weak in read})

    def _dtype_of(self, operand: Operand) -> tuple[DType, bool]:
        if operand.literal is not None:
            dtype = self.default_dtype([operand.literal])
            return dtype, dtype is not D.bool
        assert operand.dtype is not None
        return operand.dtype, operand.ambiguous and operand.dtype is not D.bool

    @staticmethod
    def result_type(operator: str, inputs: Sequence[SymbolLike | None], type_: Type, position: int = 0) -> Type:
        """Return the type of a node's result: weak if all the values that it depends on are, except for reductions."""
        if operator in _REDUCTIONS or operator.startswith("Reduce"):
            return type_
        if isinstance(type_, TensorType) and type_.dtype is D.bool:
            return type_
        return Anvil.result_type(operator, inputs, type_, position)


def _node(dtype: DType, is_weak: bool) -> str:
    if is_weak and dtype is not D.bool:
        return "c*" if dtype.is_complex else "f*" if dtype.is_float else "i*"
    return _NODES[dtype]


def _least_above(nodes: set[str], above: Mapping[str, frozenset[str]]) -> str:
    """Return the least type above all. Raises `NoPromotion` if there is none."""
    bounds = frozenset.intersection(*(above[node] for node in nodes))
    for bound in bounds:
        if bounds <= above[bound]:
            return bound
    names = " and ".join(sorted(map(_display_name, nodes)))
    raise NoPromotion(
        f"{names} have no available implicit dtype promotion path in JAX",
        help="cast one of them explicitly, such as .cast(DType.float32)",
    )


def _power_dtype(operands: Sequence[Operand], joined: DType, is_weak: bool) -> tuple[DType, bool]:
    """Return the dtype of a power: an integer exponent does not count, and a bool base is int32 or int64."""
    base, exponent = operands
    if base.dtype is D.bool and type(exponent.literal) is int:
        return D.int32, False
    is_base_inexact = type(base.literal) in (float, complex) or (
        base.dtype is not None and (base.dtype.is_float or base.dtype.is_complex)
    )
    if is_base_inexact and exponent.dtype is not None and exponent.dtype.is_integer and not exponent.ambiguous:
        return joined, False
    if joined.is_integer and exponent.dtype is D.bool:
        return joined, False
    return joined, is_weak


def reason(rules: Jax, lhs: DType, rhs: DType, weak: tuple[bool, bool]) -> str:
    """Return the paths on the lattice to the common dtype of two dtypes, which may be weak."""
    if lhs is rhs:
        return "the same dtype"
    ends = [_node(dtype, is_weak and not all(weak)) for dtype, is_weak in zip((lhs, rhs), weak, strict=True)]
    bound = _least_above(set(ends), _above(rules.lattice))
    both = "; both are weak, and so is the result" if all(weak) else ""
    return path_text(rules.lattice, ends, bound, _display_name) + both


def _display_name(node: str) -> str:
    return _NAMES[node].name if node in _NAMES else f"{_DEFAULTS[node].name}?"
