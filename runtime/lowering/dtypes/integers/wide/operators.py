"""Operators on integers of more than 64 bits. One row per operator; operators without one are refused."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.arrays.big_integers import count_of
from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, present
from graphcore.runtime.lowering.dtypes.integers import conversions, is_odd
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, WideRules, Widths
from graphcore.runtime.lowering.dtypes.integers.kinds import WHOLE_BODIES, is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import WideValue
from graphcore.runtime.lowering.dtypes.integers.wide import arithmetic, products, running, sorting
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, filled_out, refused, with_shape
from graphcore.types.dtypes import Kind


def _cast(on: Widths, node: Node) -> Sequence[Result]:
    source, out = present(node.inputs[0]), node.outputs[0]
    from_, to = source.dtype, out.dtype
    if from_.is_float:
        return (conversions.of_float(on.limbs, on.exact(source), to),)
    if from_.kind is Kind.string or to.kind is Kind.string:
        raise refused(node)
    if not is_wide(source):
        return (on.value(source),)
    if to.is_integer and to.bits <= from_.bits:
        value = on.value(source)
        if is_wide(out):
            return (on.limbs.summed([[limb] for limb in value.limbs], count_of(to.bits), value.interval),)
        low, interval = conversions.low_bits(on.limbs, with_shape(on, value), to.storage)
        return (on.with_interval(low if is_odd(to) else e.cast(low, to), interval),)
    value = on.exact_value(source)
    if to.is_integer:
        return (value,)
    if to.kind is Kind.bool:
        return (e.opposite(on.limbs.zero_mask(value)),)
    return (conversions.to_float(on.limbs, value, to),)


_RULES: dict[str, Rule] = {
    **arithmetic.RULES,
    **products.RULES,
    **running.RULES,
    **sorting.RULES,
    "Cast": _cast,
    "BitCast": _cast,
}

SUPPORTED_WIDE = frozenset({*_RULES, *WHOLE_BODIES})
"""The operators that support integers of more than 64 bits."""


def computed(on: Widths, node: Node) -> list[Result]:
    """Return the results of a node on wide integers. Raises `DTypeError` for operators without a rule."""
    rule = _RULES.get(node.op_type) if node.domain in ("", LIBRARY) else None
    if rule is None:
        raise refused(node)
    return [filled_out(on, node, result) if isinstance(result, WideValue) else result for result in rule(on, node)]


def stored(graph: Graph) -> Graph:
    """Return the graph with integers of ONNX's widths in place of others."""
    return Widths(graph, WideRules(computed, arithmetic.clip_count)).rewrite.run()
