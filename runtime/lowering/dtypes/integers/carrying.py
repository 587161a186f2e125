"""The pass itself: a graph whose integers are all of widths that ONNX has, made of one with any.

Up to 64 bits a value is stored in the next integer that ONNX has, and is the same as what is meant modulo 2^bits
only, as long as nothing looks at its upper bits. What it may hold is known as an interval; where that lies within the
width, nothing needs to be done before something does look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.arrays import big_integers
from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.errors import DTypeError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.operators import data_of
from graphcore.promotion.allo import MOVES
from graphcore.runtime.lowering.dtypes.integers import concerns, conversions, is_odd, words
from graphcore.runtime.lowering.dtypes.integers.intervals import RULES, Interval, joined, of_array, of_dtype
from graphcore.runtime.lowering.dtypes.integers.kinds import (
    LOOKS,
    WHOLE_BODIES,
    ZEROS,
    is_count,
    is_wide,
    low_operands,
    narrowed,
    stored_type,
    with_axes_of_digits,
)
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limbs, Value
from graphcore.types.dtypes import DType, Kind
from graphcore.types.dtypes import is_wide as is_wide_dtype
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Result: TypeAlias = "Symbol | Value | Digits"

_SHIFTS = frozenset({"ShiftLeft", "ShiftRight"})


@dataclass(frozen=True, slots=True)
class Digits:
    """A wide integer as uint32 digits along a last axis, within its width."""

    symbol: Symbol


@dataclass(frozen=True, slots=True)
class WideRules:
    """The rules of wide integers. results: of a node on them. count: a wide count of a shift, as int64."""

    results: Callable[[Widths, Node], Sequence[Result]]
    count: Callable[[Widths, Symbol], Symbol]


class Widths(Policy[Rewrite]):
    """The pass over one graph. outer: that over the outer graph, where this one is a body."""

    def __init__(self, graph: Graph, rules: WideRules, outer: Widths | None = None) -> None:
        self.rewrite: Rewrite = Rewrite(graph, self, outer.rewrite if outer else None)
        self.old = graph
        self.new = self.rewrite.new
        self.limbs = Limbs(lambda value: self.new.build.scalar(value, U64))
        self._outer = outer
        self._rules = rules
        self._narrowed = narrowed(graph)
        self._intervals: dict[int, Interval] = {}
        self._wrapped: dict[tuple[int, DType], Symbol] = {}
        self._values: dict[int, Value] = {}
        self._digits: dict[int, Symbol] = {}
        self._exact_values: dict[int, Value] = {}

    def retype(self, type_: Type) -> Type:
        return stored_type(type_)

    def operands(self, rewrite: Rewrite, node: Node) -> Inputs:
        return ()

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return Widths(body, self._rules, self).rewrite.run()

    def finish(self, rewrite: Rewrite) -> Graph:
        labels = {label or symbol.name for label, symbol in self.old.named_outputs}
        for _, symbol in self.old.named_outputs:
            self._output(symbol, labels)
        self.new.site.layer, self.new.site.origin = "", None
        return rewrite.finish()

    def _output(self, symbol: Symbol, labels: set[str]) -> None:
        """Brings an output into its width, or into digits; the unfinished value gives up a name that an output has."""
        if not isinstance(symbol.type, TensorType) or not concerns(symbol.type):
            return
        if is_wide(symbol):
            self.new.site.origin, self.new.site.layer = symbol.producer.origin, getattr(symbol.producer, "layer", "")
            self.rewrite.bind(symbol, self.digits(symbol))
            return
        self.new.site.origin, self.new.site.layer = symbol.producer.origin, getattr(symbol.producer, "layer", "")
        loose = self.rewrite.of(symbol)
        made = self.exact(symbol)
        if made is not loose and loose.given_name in labels and isinstance(loose.producer, Node):
            del self.new.names.taken[loose.given_name]
            change(loose, given_name=None)
        self.rewrite.bind(symbol, made)

    # What a Symbol of the old graph is in the new one

    def dtype(self, symbol: Symbol) -> DType:
        """Its dtype, or int64 where it is wide and only 64 bits of it are used."""
        found: DType = symbol.type.dtype
        return DType.int64 if symbol.id in self._narrowed else found

    def loose(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol, equal modulo 2^bits; of wide integers modulo 2^64."""
        if is_wide(symbol) and symbol.id not in self._narrowed:
            made, interval = conversions.low_bits(self.limbs, self.value(symbol), DType.int64)
            self._intervals.setdefault(made.id, interval)
            return made
        return self.rewrite.of(symbol)

    def exact(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol, within its width. Wide integers must fit into int64."""
        if not isinstance(symbol.type, TensorType):
            return self.rewrite.of(symbol)
        dtype = self.dtype(symbol)
        if is_wide_dtype(dtype):
            value = self.value(symbol)
            limits = of_dtype(DType.int64)
            assert limits is not None
            if not value.interval.within(limits):
                raise DTypeError(
                    f"{symbol.dtype} values do not fit where an operator takes int64", operands={"value": symbol}
                )
            return self.loose(symbol)
        loose = self.loose(symbol)
        if not is_odd(dtype):
            return loose
        limits = of_dtype(dtype)
        assert limits is not None
        key = (loose.id, dtype)
        found = self._wrapped.get(key)
        if found is None:
            found = loose
            if not self.interval(loose).within(limits):
                found = wrapped(loose, dtype, self.interval(loose))
                self._intervals[found.id] = limits
            self._wrapped[key] = found
        return found

    def interval(self, symbol: Symbol) -> Interval:
        """Return the range of a Symbol of the new graph, which is an integer or bool."""
        found = self._intervals.get(symbol.id)
        if found is None:
            producer = symbol.producer
            if isinstance(producer, Captured) and self._outer is not None:
                found = self._outer.interval(producer.symbol)
            elif isinstance(producer, Constant) and not producer.is_weight:
                found = of_array(producer.array)
            found = self._intervals[symbol.id] = found or of_dtype(symbol.dtype.storage) or Interval(0, 0)
        return found

    def value(self, symbol: Symbol) -> Value:
        """The limbs of an integer, modulo 2^bits if it is wide and within its width if not."""
        dtype = self.dtype(symbol)
        if not is_wide_dtype(dtype):
            loose = self.loose(symbol)
            limits = of_dtype(dtype)
            if dtype.bits > 32 and limits and (loose.id, dtype) not in self._wrapped:
                if not self.interval(loose).within(limits):
                    return conversions.split(self.limbs, loose, dtype)
            made = self.exact(symbol)
            return conversions.widened(made, self.interval(made))
        found = self._values.get(symbol.id)
        if found is None:
            producer = symbol.producer
            if isinstance(producer, Constant):
                found = conversions.of_constant(self.limbs, self._any(), producer.array)
            elif isinstance(producer, Input) and self._outer is None:  # what is fed may lie beyond the width
                found = conversions.unpacked(self.rewrite.of(symbol), symbol.dtype)
            else:
                found = conversions.unpacked(self.digits(symbol), symbol.dtype, of_dtype(symbol.dtype))
            self._values[symbol.id] = found
        return found

    def digits(self, symbol: Symbol) -> Symbol:
        """The uint32 digits of a wide integer along a last axis, within its width."""
        found = self._digits.get(symbol.id)
        if found is not None:
            return found
        producer = symbol.producer
        if isinstance(producer, Captured) and self._outer is not None:
            found = self.rewrite.captured(self._outer.digits(producer.symbol))
        elif isinstance(producer, Constant):
            found = self.new.build.constant(big_integers.to_digits(producer.array, symbol.dtype), DType.uint32)
        elif isinstance(producer, Input):
            found = self.rewrite.of(symbol)
            if self._outer is None:
                found = words.exact(found, symbol.dtype)
        else:
            found = conversions.packed(self.limbs, self.value(symbol), symbol.dtype, symbol.shape)
        self._digits[symbol.id] = found
        return found

    def fed_digits(self, symbol: Symbol) -> Symbol:
        """The uint32 digits of a wide integer along a last axis, modulo 2^bits."""
        is_fed = self._outer is None and isinstance(symbol.producer, Input)
        return self.rewrite.of(symbol) if is_fed else self.digits(symbol)

    def exact_value(self, symbol: Symbol) -> Value:
        """The limbs of an integer that lies within its width."""
        if not is_wide_dtype(self.dtype(symbol)):
            return self.value(symbol)
        found = self._exact_values.get(symbol.id)
        if found is None:
            found = self._exact_values[symbol.id] = self.limbs.wrapped(self.value(symbol), symbol.dtype)
        return found

    def _any(self) -> Symbol:
        return self.new.build.scalar(0, U64)

    def known(self, symbol: Symbol, interval: Interval) -> Symbol:
        """The Symbol of the new graph, which from now on is known to hold no more than `interval`."""
        self._intervals[symbol.id] = interval
        return symbol

    # Nodes

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results:
        if self._is_wide(node):
            return self._wide(node)
        if (node.op_type == "Cast" and not node.domain) or self._is_view(node):
            return (self._cast(node),)
        return self._narrow(node)

    def _is_view(self, node: Node) -> bool:
        """Return whether a node reads integers of an odd width as others of that width: a cast does so."""
        if node.op_type != "BitCast" or node.domain or not concerns(node.outputs[0].type):
            return False
        return node.inputs[0] is not None and self.dtype(node.inputs[0]).is_integer

    def _is_wide(self, node: Node) -> bool:
        """Return whether a node computes in limbs: its result is wide, or it looks at operands that are."""
        if node.op_type in WHOLE_BODIES and not node.domain:
            return False
        results = [s for s in node.outputs if is_wide(s)]
        if results:
            return any(s.id not in self._narrowed for s in results)
        if not any(s is not None and is_wide(s) and s.id not in self._narrowed for s in node.inputs):
            return False
        if node.op_type in _SHIFTS and not is_wide(node.inputs[0]):
            return False
        # What else takes a wide operand takes it as a position or a size, which fits into int64.
        return node.op_type in LOOKS or not low_operands(node)

    def _wide(self, node: Node) -> Results:
        made = self._rules.results(self, node)
        for symbol, result in zip(node.outputs, made, strict=True):
            if isinstance(result, Value):
                self._values[symbol.id] = result
            elif isinstance(result, Digits):
                self._digits[symbol.id] = result.symbol
        return [None if isinstance(result, (Value, Digits)) else result for result in made]

    def _narrow(self, node: Node) -> Results:
        whole = node.op_type in WHOLE_BODIES and not node.domain
        out = next((s for s in node.outputs if isinstance(s.type, TensorType)), None)
        low = low_operands(node) if out is not None else ()
        inputs: list[Symbol | None] = []
        for position, symbol in enumerate(node.inputs):
            if symbol is None:
                inputs.append(None)
            elif whole and is_wide(symbol) and not is_count(node, position):
                inputs.append(self.digits(symbol))
            elif position in low and out is not None and self._agrees(symbol, out):
                inputs.append(self.loose(symbol))
            elif position == 1 and node.op_type in _SHIFTS and is_wide_dtype(self.dtype(symbol)):
                inputs.append(self._rules.count(self, symbol))
            else:
                inputs.append(self.exact(symbol))
        types = [stored_type(self._narrow_type(s)) for s in node.outputs]
        attributes = self.rewrite.attributes(node)
        if node.op_type == "Scan":
            attributes = with_axes_of_digits(node, attributes)
        made = self.new.build.emit_many(node.op_type, tuple(inputs), types, attributes, node.domain)
        for symbol, result in zip(node.outputs, made, strict=True):
            if whole and is_wide(symbol):
                self._digits[symbol.id] = result
                continue
            found = self._result(node, symbol, inputs)
            if found is not None:
                self._intervals[result.id] = found
        return made

    def _agrees(self, symbol: Symbol, out: Symbol) -> bool:
        if out.id in self._narrowed:
            return is_wide(symbol)
        return isinstance(symbol.type, TensorType) and self.dtype(symbol) is self.dtype(out)

    def _narrow_type(self, symbol: Symbol) -> Type:
        type_: Type = symbol.type
        return tensor_type(DType.int64, symbol.shape) if symbol.id in self._narrowed else type_

    def _result(self, node: Node, symbol: Symbol, inputs: Sequence[Symbol | None]) -> Interval | None:
        """Return the range of a result where more is known than its storage."""
        if not isinstance(symbol.type, TensorType):
            return None
        dtype = self.dtype(symbol)
        limits = of_dtype(dtype.storage)
        if limits is None or node.domain not in ("", LIBRARY):
            return None
        if node.op_type in WHOLE_BODIES:
            return of_dtype(dtype)
        if node.op_type == "ConstantOfShape":
            return of_array(node.attributes["value"]) if "value" in node.attributes else Interval(0, 0)
        if node.op_type in MOVES:
            moved = [s for s in data_of(node.op_type, inputs) if s is not None]
            if node.attributes.get("reduction", "none") not in ("none", b"none"):
                return None
            if not all(_is_whole(s) for s in moved):
                return None
            nothing = [Interval(0, 0)] if node.op_type in ZEROS else []
            found: Interval | None = joined([*(self.interval(s) for s in moved), *nothing])
        else:
            rule = RULES.get(node.op_type)
            given = [s for s in inputs if s is not None]
            whole = [s for s in given if _is_whole(s)]
            if rule is None or not whole or len(whole) < min(len(given), 2):
                return None
            found = rule([self.interval(s) for s in whole], node)
        return found if found is not None and found.within(limits) else None

    def _cast(self, node: Node) -> Symbol:
        """Return a cast between dtypes that are stored in one tensor."""
        (source,) = node.inputs
        assert source is not None
        from_, to = self.dtype(source), self.dtype(node.outputs[0])
        if from_.is_float and is_odd(to):
            limits = of_dtype(to)
            assert limits is not None
            made = e.cast(self.rewrite.of(source), to.storage)
            made = e.emit("Clip", made, *(e.const(made, limit) for limit in limits))
            self._intervals[made.id] = limits
            return made
        is_low = from_.is_integer and to.is_integer and (to.bits <= from_.bits or is_wide(source))
        value = self.loose(source) if is_low else self.exact(source)
        stored = to.storage if is_odd(to) else to
        if value.dtype is stored:
            return value
        made = self.new.build.emit("Cast", (value,), tensor_type(stored, value.shape), {"to": stored})
        limits = of_dtype(stored)
        if limits is not None and _is_whole(value) and stored.kind is not Kind.bool:
            known = self.interval(value)
            self._intervals[made.id] = known if known.within(limits) else limits
        return made

    def spread(self, values: Sequence[Value], node: Node, others: Sequence[Symbol] = ()) -> list[Value]:
        """The operands of an element-wise node, with limbs of the whole shape of its result.

        values: of its wide operands. others: Symbols of the new graph that broadcast with them.
        """
        shape = node.outputs[0].shape
        some = [next((b.symbol for b in v.limbs if b.symbol is not None), None) for v in values]
        given = [*(s for s in some if s is not None), *others]
        if not given or (len(given) == 1 and not others) or _all_of(shape, given):
            return list(values)
        nothing = self.zeros(given)
        spread = []
        for value in values:
            limbs = [
                b
                if b.symbol is None or (_all_of(shape, [b.symbol]))
                else b._replace(symbol=e.emit("Add", b.symbol, nothing))
                for b in value.limbs
            ]
            spread.append(Value(tuple(limbs), value.interval))
        return spread

    def zeros(self, given: Sequence[Symbol]) -> Symbol:
        """A uint64 tensor of zeros of the shape that Symbols of the new graph broadcast to."""
        found: Symbol | None = None
        for symbol in given:
            wide = symbol if symbol.dtype is U64 else e.cast_within(symbol, U64)
            nothing = e.emit("BitwiseAnd", wide, e.const(wide, 0))
            found = nothing if found is None else e.emit("Add", found, nothing)
        assert found is not None
        return found


def _all_of(shape: Shape, given: Sequence[Symbol]) -> bool:
    """Return whether Symbols have one shape for certain."""
    return shape.is_ranked and not shape.is_dynamic and all(s.shape.is_ranked and s.shape == shape for s in given)


def _is_whole(symbol: Symbol) -> bool:
    type_ = symbol.type
    return isinstance(type_, TensorType) and (type_.dtype.is_integer or type_.dtype.kind is Kind.bool)


# Integers of widths that ONNX lacks, brought into their range.


def wrapped(symbol: Symbol, dtype: DType, held: Interval) -> Symbol:
    """A tensor of a storage dtype brought into the range of the narrower one."""
    mask = (1 << dtype.bits) - 1
    low = symbol
    if held.lo < 0 or held.hi > mask:
        low = e.emit("BitwiseAnd", symbol, e.const(symbol, mask))
    if dtype.is_unsigned:
        return low
    sign = e.const(symbol, 1 << (dtype.bits - 1))
    return e.emit("Sub", e.emit("BitwiseXor", low, sign), sign)
