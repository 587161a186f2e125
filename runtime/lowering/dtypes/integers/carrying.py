"""The pass: from a graph with integers of any width to one with integers of ONNX's widths only.

Up to 64 bits a value is stored in the next wider integer of ONNX. As long as nothing reads its upper bits, it need only
be equal modulo 2^bits. Its possible values are tracked as an interval; if that lies within the width, the value needs
no wrapping before its upper bits are read.
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
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.operators import data_of
from graphcore.promotion.allo import MOVES
from graphcore.runtime.lowering.dtypes import with_longer_operands
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
)
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limbs, WideValue
from graphcore.types.dtypes import DType, Kind
from graphcore.types.dtypes import is_wide as is_wide_dtype
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Result: TypeAlias = "Symbol | WideValue | WideDigits"

_SHIFTS = frozenset({"ShiftLeft", "ShiftRight"})


@dataclass(frozen=True, slots=True)
class WideDigits:
    """A wide integer as uint32 digits along a last axis, within its width."""

    symbol: Symbol


@dataclass(frozen=True, slots=True)
class WideRules:
    """The rules of wide integers. results: those of a node on them. count: a wide shift count as int64."""

    results: Callable[[Widths, Node], Sequence[Result]]
    count: Callable[[Widths, Symbol], Symbol]


class Widths(Policy[Rewrite]):
    """The pass over one graph. outer: the pass over the outer graph, if this one is a body."""

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
        self._values: dict[int, WideValue] = {}
        self._digits: dict[int, Symbol] = {}
        self._exact_values: dict[int, WideValue] = {}

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
        """Wrap an output, or convert it to digits; the unwrapped value loses its name if an output needs that."""
        if not isinstance(symbol.type, TensorType) or not concerns(symbol.type):
            return
        self.new.site.origin, self.new.site.layer = symbol.producer.origin, getattr(symbol.producer, "layer", "")
        if is_wide(symbol):
            self.rewrite.bind(symbol, self.digits(symbol))
            return
        loose = self.rewrite.of(symbol)
        exact = self.exact(symbol)
        if exact is not loose and loose.given_name in labels and isinstance(loose.producer, Node):
            del self.new.names.taken[loose.given_name]
            change(loose, given_name=None)
        self.rewrite.bind(symbol, exact)

    # Symbols of the new graph for those of the old graph

    def dtype(self, symbol: Symbol) -> DType:
        """Return the dtype of a Symbol, or int64 if it is wide and only 64 bits of it are used."""
        dtype: DType = symbol.type.dtype
        return DType.int64 if symbol.id in self._narrowed else dtype

    def loose(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol, equal modulo 2^bits, or modulo 2^64 for wide integers."""
        if is_wide(symbol) and symbol.id not in self._narrowed:
            low, interval = conversions.low_bits(self.limbs, self.value(symbol), DType.int64)
            self._intervals.setdefault(low.id, interval)
            return low
        return self.rewrite.of(symbol)

    def exact(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol, within its width. Wide integers must fit in int64."""
        if not isinstance(symbol.type, TensorType):
            return self.rewrite.of(symbol)
        dtype = self.dtype(symbol)
        if is_wide_dtype(dtype):
            value = self.value(symbol)
            limits = present(of_dtype(DType.int64))
            if not value.interval.within(limits):
                raise DTypeError(
                    f"{symbol.dtype} values do not fit in the int64 operand of an operator",
                    operands={"value": symbol},
                    help="cast it first: .cast(DType.int64)",
                )
            return self.loose(symbol)
        loose = self.loose(symbol)
        if not is_odd(dtype):
            return loose
        limits = present(of_dtype(dtype))
        key = (loose.id, dtype)
        result = self._wrapped.get(key)
        if result is None:
            result = loose
            if not self.interval(loose).within(limits):
                result = wrapped(loose, dtype, self.interval(loose))
                self._intervals[result.id] = limits
            self._wrapped[key] = result
        return result

    def interval(self, symbol: Symbol) -> Interval:
        """Return the interval of a Symbol of the new graph, an integer or bool."""
        interval = self._intervals.get(symbol.id)
        if interval is None:
            producer = symbol.producer
            if isinstance(producer, Captured) and self._outer is not None:
                interval = self._outer.interval(producer.symbol)
            elif isinstance(producer, Constant) and not producer.is_weight:
                interval = of_array(producer.array)
            interval = self._intervals[symbol.id] = interval or of_dtype(symbol.dtype.storage) or Interval(0, 0)
        return interval

    def value(self, symbol: Symbol) -> WideValue:
        """Return the limbs of an integer: modulo 2^bits if it is wide, within its width otherwise."""
        dtype = self.dtype(symbol)
        if not is_wide_dtype(dtype):
            loose = self.loose(symbol)
            limits = of_dtype(dtype)
            if dtype.bits > 32 and limits and (loose.id, dtype) not in self._wrapped:
                if not self.interval(loose).within(limits):
                    return conversions.split(self.limbs, loose, dtype)
            exact = self.exact(symbol)
            return conversions.widened(exact, self.interval(exact))
        value = self._values.get(symbol.id)
        if value is None:
            producer = symbol.producer
            if isinstance(producer, Constant):
                value = conversions.of_constant(self.limbs, self.new.build.scalar(0, U64), producer.array)
            elif isinstance(producer, Input) and self._outer is None:  # a fed value may exceed the width
                value = conversions.unpacked(self.rewrite.of(symbol), symbol.dtype)
            else:
                value = conversions.unpacked(self.digits(symbol), symbol.dtype, of_dtype(symbol.dtype))
            self._values[symbol.id] = value
        return value

    def digits(self, symbol: Symbol) -> Symbol:
        """Return the uint32 digits of a wide integer along a last axis, within its width."""
        digits = self._digits.get(symbol.id)
        if digits is not None:
            return digits
        producer = symbol.producer
        if isinstance(producer, Captured) and self._outer is not None:
            digits = self.rewrite.captured(self._outer.digits(producer.symbol))
        elif isinstance(producer, Constant):
            digits = self.new.build.constant(big_integers.to_digits(producer.array, symbol.dtype), DType.uint32)
        elif isinstance(producer, Input):
            digits = self.rewrite.of(symbol)
            if self._outer is None:
                digits = words.exact(digits, symbol.dtype)
        else:
            digits = conversions.packed(self.limbs, self.value(symbol), symbol.dtype, symbol.shape)
        self._digits[symbol.id] = digits
        return digits

    def fed_digits(self, symbol: Symbol) -> Symbol:
        """Return the uint32 digits of a wide integer along a last axis, modulo 2^bits."""
        is_fed = self._outer is None and isinstance(symbol.producer, Input)
        return self.rewrite.of(symbol) if is_fed else self.digits(symbol)

    def exact_value(self, symbol: Symbol) -> WideValue:
        """Return the limbs of an integer, within its width."""
        if not is_wide_dtype(self.dtype(symbol)):
            return self.value(symbol)
        value = self._exact_values.get(symbol.id)
        if value is None:
            value = self._exact_values[symbol.id] = self.limbs.wrapped(self.value(symbol), symbol.dtype)
        return value

    def with_interval(self, symbol: Symbol, interval: Interval) -> Symbol:
        """Record the interval of a Symbol of the new graph, and return it."""
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
        """Return True if a node reinterprets integers of an odd width as others of that width: then it is a cast."""
        if node.op_type != "BitCast" or node.domain or not concerns(node.outputs[0].type):
            return False
        return node.inputs[0] is not None and self.dtype(node.inputs[0]).is_integer

    def _is_wide(self, node: Node) -> bool:
        """Return True if a node computes in limbs: its result is wide, or it reads all bits of wide operands."""
        if node.op_type in WHOLE_BODIES and not node.domain:
            return False
        results = [s for s in node.outputs if is_wide(s)]
        if results:
            return any(s.id not in self._narrowed for s in results)
        if not any(s is not None and is_wide(s) and s.id not in self._narrowed for s in node.inputs):
            return False
        if node.op_type in _SHIFTS and not is_wide(node.inputs[0]):
            return False
        # Other operators read wide operands as positions or sizes, which fit in int64.
        return node.op_type in LOOKS or not low_operands(node)

    def _wide(self, node: Node) -> Results:
        results = self._rules.results(self, node)
        for symbol, result in zip(node.outputs, results, strict=True):
            if isinstance(result, WideValue):
                self._values[symbol.id] = result
            elif isinstance(result, WideDigits):
                self._digits[symbol.id] = result.symbol
        return [None if isinstance(result, (WideValue, WideDigits)) else result for result in results]

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
        narrow = (tensor_type(DType.int64, s.shape) if s.id in self._narrowed else s.type for s in node.outputs)
        types = [stored_type(type_) for type_ in narrow]
        attributes = self.rewrite.attributes(node)
        if node.op_type == "Scan":
            attributes = with_longer_operands(node, attributes, is_wide)
        results = self.new.build.emit_many(node.op_type, tuple(inputs), types, attributes, node.domain)
        for symbol, result in zip(node.outputs, results, strict=True):
            if whole and is_wide(symbol):
                self._digits[symbol.id] = result
                continue
            interval = self._result(node, symbol, inputs)
            if interval is not None:
                self._intervals[result.id] = interval
        return results

    def _agrees(self, symbol: Symbol, out: Symbol) -> bool:
        if out.id in self._narrowed:
            return is_wide(symbol)
        return isinstance(symbol.type, TensorType) and self.dtype(symbol) is self.dtype(out)

    def _result(self, node: Node, symbol: Symbol, inputs: Sequence[Symbol | None]) -> Interval | None:
        """Return the interval of a result, if it is narrower than its storage dtype."""
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
            if not all(_is_integral(s) for s in moved):
                return None
            inserted = [Interval(0, 0)] if node.op_type in ZEROS else []
            interval: Interval | None = joined([*(self.interval(s) for s in moved), *inserted])
        else:
            rule = RULES.get(node.op_type)
            operands = [s for s in inputs if s is not None]
            whole = [s for s in operands if _is_integral(s)]
            if rule is None or not whole or len(whole) < min(len(operands), 2):
                return None
            interval = rule([self.interval(s) for s in whole], node)
        return interval if interval is not None and interval.within(limits) else None

    def _cast(self, node: Node) -> Symbol:
        """Return the result of a cast between dtypes that are each stored in one tensor."""
        (source,) = map(present, node.inputs)
        from_, to = self.dtype(source), self.dtype(node.outputs[0])
        if from_.is_float and is_odd(to):
            limits = present(of_dtype(to))
            result = e.cast(self.rewrite.of(source), to.storage)
            result = e.emit("Clip", result, *(e.const(result, limit) for limit in limits))
            self._intervals[result.id] = limits
            return result
        is_low = from_.is_integer and to.is_integer and (to.bits <= from_.bits or is_wide(source))
        value = self.loose(source) if is_low else self.exact(source)
        stored = to.storage if is_odd(to) else to
        if value.dtype is stored:
            return value
        result = self.new.build.emit("Cast", (value,), tensor_type(stored, value.shape), {"to": stored})
        bounds = of_dtype(stored)
        if bounds is not None and _is_integral(value) and stored.kind is not Kind.bool:
            interval = self.interval(value)
            self._intervals[result.id] = interval if interval.within(bounds) else bounds
        return result

    def spread(self, values: Sequence[WideValue], node: Node, others: Sequence[Symbol] = ()) -> list[WideValue]:
        """Expand the limbs of the operands of an element-wise node to the shape of its result.

        values: its wide operands. others: Symbols of the new graph that broadcast with them.
        """
        shape = node.outputs[0].shape
        some = [next((b.symbol for b in v.limbs if b.symbol is not None), None) for v in values]
        tensors = [*(s for s in some if s is not None), *others]
        if not tensors or (len(tensors) == 1 and not others) or _have_shape(shape, tensors):
            return list(values)
        zeros = self.zeros(tensors)
        spread = []
        for value in values:
            limbs = [
                b
                if b.symbol is None or (_have_shape(shape, [b.symbol]))
                else b._replace(symbol=e.emit("Add", b.symbol, zeros))
                for b in value.limbs
            ]
            spread.append(WideValue(tuple(limbs), value.interval))
        return spread

    def zeros(self, symbols: Sequence[Symbol]) -> Symbol:
        """Return a uint64 tensor of zeros in the shape that Symbols of the new graph broadcast to."""
        result: Symbol | None = None
        for symbol in symbols:
            wide = symbol if symbol.dtype is U64 else e.cast_within(symbol, U64)
            zeros = e.emit("BitwiseAnd", wide, e.const(wide, 0))
            result = zeros if result is None else e.emit("Add", result, zeros)
        return present(result)


def _have_shape(shape: Shape, symbols: Sequence[Symbol]) -> bool:
    """Return True if Symbols certainly have one shape."""
    return shape.is_ranked and not shape.is_dynamic and all(s.shape.is_ranked and s.shape == shape for s in symbols)


def _is_integral(symbol: Symbol) -> bool:
    type_ = symbol.type
    return isinstance(type_, TensorType) and (type_.dtype.is_integer or type_.dtype.kind is Kind.bool)


# Wrapping of integers of widths that ONNX does not have.


def wrapped(symbol: Symbol, dtype: DType, interval: Interval) -> Symbol:
    """Wrap a tensor of a storage dtype into the range of the narrower dtype."""
    mask = (1 << dtype.bits) - 1
    low = symbol
    if interval.lo < 0 or interval.hi > mask:
        low = e.emit("BitwiseAnd", symbol, e.const(symbol, mask))
    if dtype.is_unsigned:
        return low
    sign = e.const(symbol, 1 << (dtype.bits - 1))
    return e.emit("Sub", e.emit("BitwiseXor", low, sign), sign)
