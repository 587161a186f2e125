"""The operators of a scan at the opset of its model: their schemas, and the dtypes that a target runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx

from graphcore.errors import GraphcoreError
from graphcore.onnx.proto.ranges import CHECKED, INDEXED
from graphcore.onnx.read.checks import check_node
from graphcore.onnx.schemas.schemas import Operator, operator, schema_of
from graphcore.operators import Trait, having
from graphcore.runtime.fusions import FUSIONS
from graphcore.runtime.lowering.decompositions.ml_operators import DOMAIN, needs_replacement
from graphcore.runtime.lowering.decompositions.rows import keeps_half, keeps_kernel, rows_of
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.ort.memory import PACKED
from graphcore.runtime.sessions.direct.operators import LIMITED, ROWS, DirectRow, ScanQuery
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

SIZED = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Tile"})
"""Operators with operands that are sizes, or factors of sizes."""

_DECOMPOSED = frozenset({"Div", "GRU", "LSTM", "MatMul", "Mod", "Resize"})
"""Operators with decompositions: their rows leave the nodes that need one to a Graph."""

VARIADIC = 1 << 30
"""More results than any operator has, except variadic ones."""

_ONNX = ("", "ai.onnx")

_ROWS_STAY = frozenset(
    "Add Sub Mul Div Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax MatMul Gemm Identity Cast Clip Elu Abs Exp Log"
    " Sqrt Neg Softplus Constant BatchNormalization LayerNormalization".split()
)
"""Operators that do not change the number of rows of a matrix."""

_BROADCASTS = frozenset(("Add", "Sub", "Mul", "Div"))


_CHECKED = frozenset({*LIMITED, *INDEXED, *CHECKED, *SIZED})
"""Operators whose attributes or operands are checked."""


_INSPECTED = frozenset({*INDEXED, *CHECKED, *SIZED, *PACKED, "Constant", "Gemm", "MatMul"})
"""Operators that need more than the dtypes of their results."""


@dataclass(frozen=True, slots=True)
class KnownOperator:
    """An operator at the opset of a model.

    starts_mark: whether it sets first marks. propagates_mark: whether marks of operands may mark its results. rows: the
    number of leading operands whose number of rows the result has; 0 if it may differ. is_plain: whether the dtypes of
    its operands, and its attributes if they are limited, fully describe a node.
    """

    row: DirectRow
    schema: Operator
    domains: tuple[str, ...]
    is_checked: bool
    starts_mark: bool
    propagates_mark: bool
    rows: int
    is_plain: bool
    is_limited: bool


def known_operator(op_type: str, versions: Mapping[str, int]) -> KnownOperator | None:
    """Return an operator at a model's opsets; None if it has no row."""
    row = ROWS.get(op_type) or ML_ROWS.get(op_type)
    schema = None if row is None else schema_of(op_type, row.domain, versions.get(row.domain, 0))
    if row is None or schema is None or schema.deprecated:
        return None
    return KnownOperator(
        row=row,
        schema=operator(schema),
        domains=(row.domain,) if row.domain else _ONNX,
        is_checked=op_type in _CHECKED,
        starts_mark=op_type in STARTS_MARK,
        propagates_mark=op_type in PROPAGATES_MARK,
        is_limited=op_type in LIMITED,
        is_plain=row.results is None and not row.gives_map and op_type not in _INSPECTED,
        rows=(2 if op_type in _BROADCASTS else 1) if op_type in _ROWS_STAY else 0,
    )


def is_legal(rules: Legality, op_type: str, dtype: DType) -> bool:
    """Return True if a target's kernel of an operator gives the same numbers as a Graph for a dtype."""
    if op_type in ("Cast", "If", "Constant"):
        return True
    if dtype is DType.float16:
        return keeps_half(rules, op_type, dtype) or (op_type in _DECOMPOSED and rules.runs_half(op_type, dtype))
    if not rules.allows(op_type, dtype):
        return False
    is_decomposed = op_type in _DECOMPOSED
    return is_decomposed or keeps_kernel(rules, op_type, dtype, None) or (op_type, dtype) not in rows_of(rules).rows


# The operators of `ai.onnx.ml` that a direct load supports: their checks, and the dtypes of their results.
#
# A Graph does not change them, in the dtypes that their kernels support. All versions of an operator share a kernel.

_Dtypes = Sequence[DType | None]
_KINDS = onnx.AttributeProto


def _row(results: Callable[[onnx.NodeProto, DType], Sequence[DType] | None], *, gives_map: bool = False) -> DirectRow:
    """Return a row for valid nodes that a Graph does not replace. results: the dtypes for the first operand."""

    def check(scan: ScanQuery, node: onnx.NodeProto, dtypes: _Dtypes) -> Sequence[DType] | None:
        first = dtypes[0]
        if first is None or None in dtypes or not _is_sound(node, scan.versions[DOMAIN]):
            return None
        result_dtypes = results(node, first)
        if not result_dtypes:
            return None
        is_replaced = node.op_type not in _OWN_CHECKS and _replaces(node.op_type, first, result_dtypes[0])
        return None if is_replaced else result_dtypes

    return DirectRow(check, domain=DOMAIN, gives_map=gives_map)


def _is_sound(node: onnx.NodeProto, version: int) -> bool:
    attributes = node.attribute
    if len({a.name for a in attributes}) != len(attributes) or any(a.type == _KINDS.TENSOR for a in attributes):
        return False
    try:
        check_node(node, {DOMAIN: version}, node.op_type)
    except GraphcoreError:
        return False
    return True


@functools.cache
def _replaces(op_type: str, operand: DType, result: DType) -> bool:
    unknown = Shape.unknown()
    return needs_replacement(op_type, TensorType(operand, unknown), TensorType(result, unknown))


def _always(*dtypes: DType) -> DirectRow:
    return _row(lambda node, first: dtypes)


def _classified(node: onnx.NodeProto, first: DType) -> Sequence[DType]:
    return [
        DType.string if _has_strings(node, "classlabels_strings", "strings_classlabels") else DType.int64,
        DType.float32,
    ]


def _has_strings(node: onnx.NodeProto, *names: str) -> bool:
    """Return True if one of these attributes has string values."""
    return any(a.name in names and a.strings for a in node.attribute)


def _by_trees(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    """Leave two classes with weights for both to a Graph, which computes them as two targets."""
    attributes = {a.name: a for a in node.attribute}
    labels = sum(len(a.ints) + len(a.strings) for n, a in attributes.items() if n.startswith("classlabels_"))
    classes = attributes.get("class_ids")
    if classes is None or (labels == 2 and len({*classes.ints}) == 2):
        return None
    return _classified(node, first) if first in _FLOATS else None


def _vectorized(scan: ScanQuery, node: onnx.NodeProto, dtypes: _Dtypes) -> Sequence[DType] | None:
    """Leave operands that may have no rows to a Graph: the kernel ends the process."""
    if None in dtypes or not dtypes or not _is_sound(node, scan.versions[DOMAIN]):
        return None
    for name in node.input:
        scan.require_elements([name], [0])
    return [DType.float32]


def _encoded(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    values = [_VALUES.get(a.name) for a in node.attribute if a.name.startswith("values_")]
    return values if len(values) == 1 and values[0] is not None else None  # type: ignore[return-value]


_FLOATS = frozenset({DType.float32, DType.float64})
_VALUES = {"values_strings": DType.string, "values_int64s": DType.int64, "values_floats": DType.float32}
_OWN_CHECKS = frozenset({"TreeEnsembleClassifier"})
"""Operators whose row decides which nodes a Graph replaces."""

ML_ROWS: Mapping[str, DirectRow] = MappingProxyType(
    {
        **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "Imputer"), _row(lambda node, first: [first])),
        **dict.fromkeys("Normalizer OneHotEncoder Scaler".split(), _always(DType.float32)),
        "FeatureVectorizer": DirectRow(_vectorized, domain=DOMAIN),
        **dict.fromkeys("LinearRegressor SVMRegressor TreeEnsembleRegressor".split(), _always(DType.float32)),
        **dict.fromkeys(("LinearClassifier", "SVMClassifier"), _row(_classified)),
        "LabelEncoder": _row(_encoded),
        "TreeEnsembleClassifier": _row(_by_trees),
        "ZipMap": _row(lambda node, first: [first], gives_map=True),
    }
)
"""Rows of operators of the domain `ai.onnx.ml`, by name."""


# Values of a model that certainly have elements, if all fed arrays have some.

_SAME_NUMBERS = having(Trait.VIEWS) | {"Cast", "Identity", "Transpose"}
_SAME_ELEMENTS = _SAME_NUMBERS | frozenset(
    "Clip Dropout Softmax LogSoftmax"
    " Abs Ceil Elu Erf Exp Floor HardSigmoid LeakyRelu Log Neg Not Reciprocal Relu Sigmoid Sign Sqrt Tanh".split()
)
"""Operators whose result has elements if the first operand does; those of `_SAME_NUMBERS` have the same numbers."""

_ALL_ELEMENTS = frozenset(
    "Add And Concat Div Gather GatherElements Gemm MatMul Max Min Mul Or Pow Sub Sum Where".split()
)
"""Operators whose result has elements if all operands do."""

_SIZE_DTYPES = frozenset(
    {onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
)
_GRAPH = onnx.AttributeProto.GRAPH
STATES = 5
"""The operand of recurrent operators with a state for each sequence. onnxruntime checks the number of sequences against
the first operand before it computes."""


def filled(graph: onnx.GraphProto) -> Collection[str]:
    """Return the names of values that certainly have elements, in each of the bodies with a value of that name.

    They include values of bodies that never run, because the condition is the size of a value with elements.
    """
    names = _FilledNames()
    _FilledWalk({value.name for value in graph.input}, set(), names).follow(graph)
    return names.sure - names.unsure


@dataclass(slots=True)
class _FilledNames:
    """Names of values that certainly have elements in some body, and of values that may have none in some body."""

    sure: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _FilledWalk:
    """The walk over a graph. filled: names of values with elements. sizes: of values with positive numbers only."""

    filled: set[str]
    sizes: set[str]
    names: _FilledNames

    def follow(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._note([tensor.name], 0 not in tensor.dims)
        filled, sizes, results = self.filled, self.sizes, []
        for node in graph.node:
            op_type, outputs = node.op_type, [*node.output]
            results += outputs
            if op_type == "If":
                self._choose(node)
                continue
            names = [*node.input]
            first = names[0] if names else ""
            if op_type in ("LSTM", "GRU"):
                has_states = len(names) > STATES and names[STATES] in filled
                self._note(outputs[:1], first in filled)
                self._note(outputs[1:], first in filled or has_states)
                continue
            self._note(outputs, self._has_elements(node, op_type, names))
            sized = (first in filled) if op_type == "Shape" else first in sizes and _moves(node)
            (sizes.update if sized else sizes.difference_update)(outputs)
        self.names.sure |= filled
        self.names.unsure.update(name for name in results if name not in filled)

    def _note(self, names: Iterable[str], has_elements: bool) -> None:
        """Note whether new values have elements: values of different bodies may share a name."""
        (self.filled.update if has_elements else self.filled.difference_update)(names)

    def _has_elements(self, node: onnx.NodeProto, op_type: str, names: Sequence[str]) -> bool:
        if op_type == "Constant":
            return all(map(_holds_some, node.attribute))
        if op_type in _SAME_ELEMENTS:
            return bool(names) and names[0] in self.filled
        return op_type in _ALL_ELEMENTS and all(name in self.filled for name in names if name)

    def _choose(self, node: onnx.NodeProto) -> None:
        """Follow the bodies of an If that may run: its results have elements if those of each body do."""
        always = node.input[0] in self.sizes
        self.sizes.difference_update(node.output)
        branches: list[list[bool]] = []
        for attribute in node.attribute:
            if always and attribute.name == "else_branch":
                self.names.sure.update(_names(attribute.g))
                continue
            inner = _FilledWalk({*self.filled}, {*self.sizes}, self.names)
            inner.follow(attribute.g)
            branches.append([value.name in inner.filled for value in attribute.g.output])
        for name, *each in zip(node.output, *branches, strict=False):
            self._note([name], bool(each) and all(each))


def _moves(node: onnx.NodeProto) -> bool:
    """Return True if positive numbers stay positive: a cast to narrow integers may wrap around to 0."""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in _SIZE_DTYPES for a in node.attribute)
    return node.op_type in _SAME_NUMBERS or node.op_type == "Gather"


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the results in a graph and in its bodies."""
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == _GRAPH:
                yield from _names(attribute.g)


def _holds_some(attribute: onnx.AttributeProto) -> bool:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return 0 not in attribute.t.dims
    return attribute.name in ("value_float", "value_int") or bool(attribute.floats or attribute.ints)


# Traces of fusions in a scanned model, which show that a fusion may match: cheaper than matching it.

_STEPS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Softmax", "MatMul"): "attention",
        **{("Softmax", op): "Softmax" for op in ("Cast", "Dropout", "Identity", "IsNaN", "Where")},
        ("ReduceMean", "Add"): "mean",
        ("mean", "Sqrt"): "norm",
        ("ReduceMean", "LayerNormalization"): "norm",
        ("Neg", "Concat"): "rotary",
        ("Neg", "Reshape"): "Neg",
        ("Neg", "Unsqueeze"): "Neg",
        ("Add", "Clip"): "clipped",
        ("clipped", "Div"): "sixth",
        ("clipped", "Mul"): "product",
        ("product", "Div"): "sixth",
        ("product", "Mul"): "sixth",
        ("HardSigmoid", "Mul"): "swish",
    }
)
"""The mark of a result, by the mark of an operand and the operator."""

_BY_NUMBERS: Mapping[tuple[str, str], str] = MappingProxyType(
    {("Conv", "Add"): "scaled", ("Conv", "Mul"): "scaled", ("swish", "Mul"): "times", ("times", "Add"): "affine"}
)
"""The same, if the other operand is a constant of one element."""

PROPAGATES_MARK = frozenset(op_type for _, op_type in (*_STEPS, *_BY_NUMBERS))
"""Operators whose results may be marked if their operands are."""

STARTS_MARK = frozenset({"Add", "Conv", "HardSigmoid", "Neg", "ReduceMean", "Softmax"})
"""Operators whose results are marked with their own names."""

_GRAPHS = "graphs"
"""A mark that no value has: for a fusion that keeps all bits and does not pay for the time of building a Graph."""

_MARKS: Mapping[str, str] = MappingProxyType(
    {
        "Attention": "attention",
        "no Reshape of a Reshape": "attention",
        "parts before a Transpose": _GRAPHS,
        "RMSNormalization, LayerNormalization": "norm",
        "scale within the norm": "norm",
        "bias within the norm": "norm",
        "RotaryEmbedding": "rotary",
        "RotaryEmbedding of neighbours": "rotary",
        "HardSigmoid of a Clip": "sixth",
        "factor and bias within the convolution": "scaled",
        "factor and bias as a convolution": "affine",
    }
)
"""The mark that every match of a fusion has; any other fusion may match if its `sign` occurs."""

_NUMBERS = frozenset({(), (1,)})
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})


class Trail:
    """The marks of values by name, and the marks of possible fusions. Only nodes of `STARTS_MARK` set first marks."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._matched: set[str] = set()

    def follow(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], constants: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Mark the results of a node. constants: the dims of constants by name."""
        marks = self.marks
        if op_type in STARTS_MARK:
            for name in outputs:
                marks[name] = op_type
        if op_type not in PROPAGATES_MARK:
            return
        for name in inputs:
            mark = marks.get(name)
            if mark is None:
                continue
            new_mark = _STEPS.get((mark, op_type))
            if (mark, op_type) in _BY_NUMBERS and any(constants.get(other) in _NUMBERS for other in inputs):
                new_mark = _BY_NUMBERS[mark, op_type]
            if new_mark is not None:
                self._matched.add(new_mark)
                marks.update(dict.fromkeys(outputs, new_mark))

    def reason(self, operators: set[str]) -> str | None:
        """Return the fusion that may match; None if none can. operators: those of the model."""
        for fusion in FUSIONS:
            if fusion.sign not in operators:
                continue
            mark = _MARKS.get(fusion.name)
            if mark is None or mark in self._matched or (mark == "norm" and not _NORMS.isdisjoint(operators)):
                return f"the fusion {fusion.name}"
        return None
