"""The operators that a direct load takes: the dtypes of their results, and the nodes that are left to a Graph.

An operator has a row where its kernel, at every opset from `OLDEST` on, gives the bits that the lowered Graph gives:
no adapter of its versions changes numbers, and what a decomposition would mend is told by `Legality` from dtypes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import onnx

from graphcore.errors import GraphcoreError
from graphcore.onnx.proto.limits import AXES, CHOICES, RANGES, check_values
from graphcore.onnx.proto.ranges import MAX_AXES
from graphcore.operators import ONNX, REDUCTIONS, Trait, having
from graphcore.runtime.lowering.decompositions.recurrent import ENDS, FEATURES, FLAT
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.workarounds import empty
from graphcore.types.dtypes import DType

OLDEST = 7
"""The opset from which on the rows hold; onnxruntime has no kernels of older ones."""


class Asked(Protocol):
    """The part of a scan that rows ask: see `scan.Scan`."""

    rules: Legality
    opset: int
    versions: dict[str, int]
    dtypes: dict[str, DType]
    dims: dict[str, tuple[int, ...]]
    casts: dict[str, DType]
    has_unknown_ranks: bool

    def dtype_of(self, number: int) -> DType | None: ...
    def takes_constant(self, name: str, tensor: onnx.TensorProto) -> bool: ...
    def divides(self, name: str) -> bool: ...
    def reduces(self, node: onnx.NodeProto) -> bool: ...
    def require_elements(self, names: Sequence[str], axes: Sequence[int]) -> None: ...
    def branches(self, node: onnx.NodeProto) -> Sequence[DType] | None: ...


_BOUNDS_ARE_OPERANDS = 11
"""The opset from which on the bounds of Clip are operands."""

_OTHER_MEANS = 19
"""The opset from which on onnxruntime has another kernel of AveragePool, which rounds otherwise: that of Graphs."""


Results: TypeAlias = Callable[["Asked", onnx.NodeProto, Sequence[DType | None]], Sequence[DType] | None]
"""Returns the dtypes of a node's results; None for a node that is left to a Graph."""


@dataclass(frozen=True, slots=True)
class Row:
    """An operator. results: None for those of the first operand. decides: the operand that its kernel is chosen by.

    domain: that of its nodes; ONNX's own by default. gives_map: whether its result is no tensor, and nothing but an
    output.
    """

    results: Results | None = None
    decides: int = 0
    domain: str = ""
    gives_map: bool = False


def _always(*dtypes: DType) -> Row:
    return Row(lambda scan, node, given: dtypes)


def _of_first(node: onnx.NodeProto, given: Sequence[DType | None]) -> list[DType] | None:
    first = given[0] if given else None
    return None if first is None else [first] * len(node.output)


def _cast(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    (source,) = given
    target = scan.dtype_of(next((a.i for a in node.attribute if a.name == "to"), 0))
    if source is None or target is None or len(node.attribute) != 1 or DType.string in (source, target):
        return None
    if source is target:
        scan.casts[node.output[0]] = scan.casts.get(node.input[0], source)
        return [target]
    before = scan.casts.get(node.input[0])  # onnxruntime merges the two, and drops what the first one rounded
    if before is not None and not (_holds(source, before) or {before, source, target} <= _ROUNDED_FREELY):
        return None
    scan.casts[node.output[0]] = source
    return [target]


_ROUNDED_FREELY = frozenset({DType.float16, DType.float32})
"""Floats between which the runtime merges casts in models whose float16 it rounds as it likes."""


def _holds(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is one of `wide`."""
    if narrow is DType.bool or wide is narrow:
        return True
    if wide is DType.bool:
        return False
    if narrow.is_float:
        return wide is DType.float64
    if wide.is_float:
        return narrow.bits <= (24 if wide is DType.float32 else 53)
    return narrow.bits < wide.bits and (wide.is_signed or narrow.is_unsigned)


def constant(scan: Asked, node: onnx.NodeProto) -> bool:
    """Note the value of a Constant. Return whether it is one of the forms and dtypes that are taken."""
    attributes, outputs = node.attribute, node.output
    if len(attributes) != 1 or len(outputs) != 1:
        return False
    attribute, name = attributes[0], outputs[0]
    if attribute.name == "value":
        return scan.takes_constant(name, attribute.t)
    made = _NUMBERS.get(attribute.name)
    return made is not None and scan.takes_constant(name, made(attribute))


def _floats(attribute: onnx.AttributeProto) -> onnx.TensorProto:
    return onnx.TensorProto(data_type=_Kind.FLOAT, dims=[len(attribute.floats)], float_data=attribute.floats)


def _integers(attribute: onnx.AttributeProto) -> onnx.TensorProto:
    return onnx.TensorProto(data_type=_Kind.INT64, dims=[len(attribute.ints)], int64_data=attribute.ints)


_Kind = onnx.TensorProto
_NUMBERS: Mapping[str, Callable[[onnx.AttributeProto], onnx.TensorProto]] = {
    "value_float": lambda a: onnx.TensorProto(data_type=_Kind.FLOAT, float_data=[a.f]),
    "value_floats": _floats,
    "value_int": lambda a: onnx.TensorProto(data_type=_Kind.INT64, int64_data=[a.i]),
    "value_ints": _integers,
}
"""Functions that make a tensor of the numbers of a Constant, by the attribute that says them."""


def _filled(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    value = next((a.t for a in node.attribute if a.name == "value"), None)
    dtype = DType.float32 if value is None else scan.dtype_of(value.data_type)
    return None if dtype is None else [dtype]


def _division(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    dtype = given[0]
    if dtype is None or (dtype.is_integer and not scan.divides(node.input[1])) or node.attribute:
        return None
    return [dtype]


def _power(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    base, exponent = given
    return [base] if base is not None and exponent in (base, DType.int32, DType.int64) else None


def _product(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    dims = scan.dims.get(node.input[1])  # kernels get some products wrong that have nothing to add up
    return None if dims is None or len(dims) < 2 or given[0] is None else [given[0]]


def _window(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    if node.op_type == "AveragePool" and scan.opset < _OTHER_MEANS:
        return None
    for attribute in node.attribute:
        if attribute.name == "ceil_mode" and attribute.i:
            return None
        if attribute.name == "auto_pad" and attribute.s not in (b"NOTSET", b"VALID"):
            return None
    return None if given[0] is None or len(node.output) != 1 else [given[0]]


def _reduction(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return None if given[0] is None or not scan.reduces(node) else [given[0]]


def _resized(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    said = {a.name: a.s for a in node.attribute}
    smooths = any(a.name == "antialias" and a.i for a in node.attribute)
    if said.get("mode", b"nearest") not in (b"nearest", b"linear") or "axes" in said or smooths:
        return None
    by_corners = said.get("coordinate_transformation_mode", b"half_pixel") == b"align_corners"
    if given[0] is None or (by_corners and said.get("mode") == b"linear"):
        return None
    return [given[0]]


def _normalized(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    trains = any((a.name == "training_mode" and a.i) or (a.name == "spatial" and a.i != 1) for a in node.attribute)
    return None if trains or len(node.output) != 1 or given[0] is None else [given[0]]


def _dropped(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return None if len(node.input) != 1 or len(node.output) != 1 or given[0] is None else [given[0]]


def _dropped_statistics(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return None if len(node.output) != 1 or given[0] is None else [given[0]]


def _recurrent(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    if any(a.name == "layout" and a.i for a in node.attribute):
        return None
    if scan.has_unknown_ranks and scan.rules.has_trap(FLAT):
        return None
    features = scan.dims.get(node.input[1], ())
    trapped = [
        axis
        for axis, trap in ENDS.get(node.op_type, {}).items()
        if scan.rules.has_trap(trap) and not (axis == FEATURES and len(features) == 3 and features[FEATURES])
    ]
    scan.require_elements(node.input, trapped)
    return _of_first(node, given)


_LONGEST_STEP = 3
"""With a stride up to this there is no gap of three elements between the windows of a convolution."""


def _convolved(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    if any(a.name == "auto_pad" and a.s.startswith(b"SAME") for a in node.attribute):
        if any(a.name == "dilations" and {*a.ints} - {1} for a in node.attribute):
            return None  # which the kernel refuses
        if any(a.name == "strides" and max(a.ints, default=1) > _LONGEST_STEP for a in node.attribute):
            return None  # between windows with gaps it pads by numbers below 0
    # Filters that only the run knows may have no elements.
    is_known = len(node.input) > 1 and node.input[1] in scan.dims
    return _of_first(node, given) if is_known or not scan.rules.has_trap(empty.KERNELS.name) else None


def _clipped(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    # Before bounds were operands they were those of float32 by default, which the kernel of float16 leaves out.
    is_other = scan.opset < _BOUNDS_ARE_OPERANDS and given[0] is DType.float16
    return None if given[0] is None or is_other else [given[0]]


def _split(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    count = next((a.i for a in node.attribute if a.name == "num_outputs"), len(node.output))
    return _of_first(node, given) if count == len(node.output) else None


def _squeezed(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return None if len(node.input) > 1 and 0 in scan.dims.get(node.input[1], ()) else _of_first(node, given)


def _gathered(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    # Kernels trust how many batch dims there are, and end the process where the operands have fewer.
    return None if any(a.i for a in node.attribute) else _of_first(node, given)


def _chosen(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return scan.branches(node)


def _top(scan: Asked, node: onnx.NodeProto, given: Sequence[DType | None]) -> Sequence[DType] | None:
    return None if given[0] is None else [given[0], DType.int64]


_SAME = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Compress
    Concat ConvTranspose Cos Cosh CumSum DepthToSpace Det Elu Erf Exp Expand Flatten Floor Gather GatherElements Gelu
    Gemm GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Hardmax Identity LRN LeakyRelu Log
    LogSoftmax LpNormalization Max Mean MeanVarianceNormalization Min Mish Mul Neg Not Or PRelu Reciprocal Relu
    Reshape Round ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus Softsign
    SpaceToDepth Sqrt Sub Sum Tan Tanh ThresholdedRelu Tile Transpose Trilu Unsqueeze Xor
"""

ROWS = MappingProxyType(
    {
        **dict.fromkeys(_SAME.split(), Row()),
        **dict.fromkeys(having(Trait.COMPARES) & ONNX, _always(DType.bool)),
        **dict.fromkeys(("IsInf", "IsNaN"), _always(DType.bool)),
        **dict.fromkeys(("ArgMax", "ArgMin", "Shape", "Size"), _always(DType.int64)),
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), Row(_window)),
        **dict.fromkeys(("GRU", "LSTM"), Row(_recurrent)),
        "Conv": Row(_convolved),
        **dict.fromkeys(REDUCTIONS, Row(_reduction)),
        **dict.fromkeys(("Div", "Mod"), Row(_division)),
        "BatchNormalization": Row(_normalized),
        "Cast": Row(_cast),
        "Clip": Row(_clipped),
        "Constant": Row(),
        "ConstantOfShape": Row(_filled),
        "Dropout": Row(_dropped),
        "GatherND": Row(_gathered),
        "If": Row(_chosen),
        "LayerNormalization": Row(_dropped_statistics),
        "MatMul": Row(_product),
        "Pad": Row(),
        "Pow": Row(_power),
        "Range": Row(),
        "Split": Row(_split),
        "Squeeze": Row(_squeezed),
        "Resize": Row(_resized),
        "TopK": Row(_top),
        "Where": Row(lambda scan, node, given: None if given[1] is None else [given[1]], decides=1),
    }
)
"""By name, of ONNX's own domain."""


# The attributes of a node in a model that is scanned: what kernels were tried with.

LIMITED = frozenset({*RANGES, *AXES, *(op for op, _ in CHOICES), "Transpose"})
"""Operators whose attributes `is_plain` looks at."""

_AXES = frozenset({"axis", "axes", "batch_axis", "time_axis"})
_KINDS = onnx.AttributeProto

_LARGEST_SAID = 1 << 24
"""The largest window, group or count that an attribute may say."""


def is_plain(node: onnx.NodeProto) -> bool:
    """Return whether the attributes of a node say numbers and words that kernels were tried with."""
    said: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return False
        kind, name = attribute.type, attribute.name
        if kind == _KINDS.INT:
            said[name] = attribute.i
        elif kind == _KINDS.INTS:
            said[name] = list(attribute.ints)
        elif kind == _KINDS.STRING:
            said[name] = attribute.s
    try:
        check_values(node.op_type, said, node.op_type)
    except GraphcoreError:
        return False
    if node.op_type in RANGES and any(abs(n) > _LARGEST_SAID for n in _numbers(said.values())):
        return False
    for name in _AXES & said.keys():
        axes = said[name] if isinstance(said[name], list) else [said[name]]
        if not all(isinstance(axis, int) and abs(axis) < MAX_AXES for axis in axes):
            return False
    perm = said.get("perm")
    return perm is None or (isinstance(perm, list) and sorted(perm) == [*range(len(perm))])


def _numbers(said: Iterable[Any]) -> Iterator[int]:
    """Yield the integers among the values of attributes."""
    for value in said:
        if isinstance(value, int):
            yield value
        elif isinstance(value, list):
            yield from value
