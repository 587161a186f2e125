"""The operators of a scan at the opset of its model: what their schemas ask, and which dtypes a target runs."""

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
from graphcore.runtime.sessions.direct.operators import LIMITED, ROWS, Asked, Row
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType

SIZED = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Tile"})
"""Operators whose operands say sizes, and some the factors of sizes."""

_GUARDED = frozenset({"Div", "GRU", "LSTM", "MatMul", "Mod", "Resize"})
"""Operators of whose decompositions the rows leave nothing to do: they leave what needs them to a Graph."""

VARIADIC = 1 << 30
"""Results that only an operator with any number of them has."""

_ONNX = ("", "ai.onnx")

_ROWS_STAY = frozenset(
    "Add Sub Mul Div Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax MatMul Gemm Identity Cast Clip Elu Abs Exp Log"
    " Sqrt Neg Softplus Constant BatchNormalization LayerNormalization".split()
)
"""Operators that leave the rows of a matrix as many as they are: not one where their first operand has several."""

_BROADCASTS = frozenset(("Add", "Sub", "Mul", "Div"))


_LOOKED_AT = frozenset({*LIMITED, *INDEXED, *CHECKED, *SIZED})
"""Operators of which attributes or operands are looked at."""


_READ_APART = frozenset({*INDEXED, *CHECKED, *SIZED, *PACKED, "Constant", "Gemm", "MatMul"})
"""Operators of which more is noted than the dtypes of their results."""


@dataclass(frozen=True, slots=True)
class Known:
    """An operator at the opset of a model.

    begins: whether it sets first marks. takes: whether marks of its operands may mark its results. rows: how many
    operands, from the first on, give its result as many rows as they have; 0 where it may have others. is_plain:
    whether the dtypes of its operands, and its attributes where it is limited, tell all there is to tell of a node.
    """

    row: Row
    schema: Operator
    domains: tuple[str, ...]
    is_looked_at: bool
    begins: bool
    takes: bool
    rows: int
    is_plain: bool
    is_limited: bool


def known_operator(op_type: str, versions: Mapping[str, int]) -> Known | None:
    """Return what is known of an operator at a model's opsets; None where it has no row."""
    row = ROWS.get(op_type) or ML_ROWS.get(op_type)
    schema = None if row is None else schema_of(op_type, row.domain, versions.get(row.domain, 0))
    if row is None or schema is None or schema.deprecated:
        return None
    return Known(
        row=row,
        schema=operator(schema),
        domains=(row.domain,) if row.domain else _ONNX,
        is_looked_at=op_type in _LOOKED_AT,
        begins=op_type in BEGINS,
        takes=op_type in TAKES,
        is_limited=op_type in LIMITED,
        is_plain=row.results is None and not row.gives_map and op_type not in _READ_APART,
        rows=(2 if op_type in _BROADCASTS else 1) if op_type in _ROWS_STAY else 0,
    )


def is_legal(rules: Legality, op_type: str, dtype: DType) -> bool:
    """Return whether a target's kernel of an operator gives the numbers of a Graph for a dtype."""
    if op_type in ("Cast", "If", "Constant"):
        return True
    if dtype is DType.float16:
        return keeps_half(rules, op_type, dtype) or (op_type in _GUARDED and rules.runs_half(op_type, dtype))
    if not rules.allows(op_type, dtype):
        return False
    is_guarded = op_type in _GUARDED
    return is_guarded or keeps_kernel(op_type, dtype, None) or (op_type, dtype) not in rows_of(rules).rows


# The operators of `ai.onnx.ml` that a direct load takes: their checks, and the dtypes of their results.
#
# The Graph hands them on as they are, in the dtypes that their kernels take. The versions of one operator are one
# kernel.

_Given = Sequence[DType | None]
_KINDS = onnx.AttributeProto


def _row(results: Callable[[onnx.NodeProto, DType], Sequence[DType] | None], *, gives_map: bool = False) -> Row:
    """Return a row of the nodes that ONNX allows and whose kernels the Graph keeps. results: for the first operand."""

    def checked(scan: Asked, node: onnx.NodeProto, given: _Given) -> Sequence[DType] | None:
        first = given[0]
        if first is None or None in given or not _is_sound(node, scan.versions[DOMAIN]):
            return None
        made = results(node, first)
        if not made:
            return None
        is_replaced = node.op_type not in _TOLD and _replaces(node.op_type, first, made[0])
        return None if is_replaced else made

    return Row(checked, domain=DOMAIN, gives_map=gives_map)


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


def _of(*dtypes: DType) -> Row:
    return _row(lambda node, first: dtypes)


def _classified(node: onnx.NodeProto, first: DType) -> Sequence[DType]:
    return [DType.string if _said(node, "classlabels_strings", "strings_classlabels") else DType.int64, DType.float32]


def _said(node: onnx.NodeProto, *names: str) -> bool:
    """Return whether one of these attributes has strings."""
    return any(a.name in names and a.strings for a in node.attribute)


def _by_trees(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    """Leave two classes with weights for both to the Graph, which computes them as two targets."""
    attributes = {a.name: a for a in node.attribute}
    labels = sum(len(a.ints) + len(a.strings) for n, a in attributes.items() if n.startswith("classlabels_"))
    classes = attributes.get("class_ids")
    if classes is None or (labels == 2 and len({*classes.ints}) == 2):
        return None
    return _classified(node, first) if first in _FLOATS else None


def _vectorized(scan: Asked, node: onnx.NodeProto, given: _Given) -> Sequence[DType] | None:
    """Leave operands that may have no rows to the Graph: the kernel ends the process."""
    if None in given or not given or not _is_sound(node, scan.versions[DOMAIN]):
        return None
    for name in node.input:
        scan.require_elements([name], [0])
    return [DType.float32]


def _encoded(node: onnx.NodeProto, first: DType) -> Sequence[DType] | None:
    values = [_VALUES.get(a.name) for a in node.attribute if a.name.startswith("values_")]
    return values if len(values) == 1 and values[0] is not None else None  # type: ignore[return-value]


_FLOATS = frozenset({DType.float32, DType.float64})
_VALUES = {"values_strings": DType.string, "values_int64s": DType.int64, "values_floats": DType.float32}
_TOLD = frozenset({"TreeEnsembleClassifier"})
"""Operators of which the row says by itself what is replaced."""

ML_ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "Imputer"), _row(lambda node, first: [first])),
        **dict.fromkeys("Normalizer OneHotEncoder Scaler".split(), _of(DType.float32)),
        "FeatureVectorizer": Row(_vectorized, domain=DOMAIN),
        **dict.fromkeys("LinearRegressor SVMRegressor TreeEnsembleRegressor".split(), _of(DType.float32)),
        **dict.fromkeys(("LinearClassifier", "SVMClassifier"), _row(_classified)),
        "LabelEncoder": _row(_encoded),
        "TreeEnsembleClassifier": _row(_by_trees),
        "ZipMap": _row(lambda node, first: [first], gives_map=True),
    }
)
"""By name, of the domain `ai.onnx.ml`."""


# Values of a model that surely have elements, where all arrays that it is fed have some.

_MOVE = having(Trait.VIEWS) | {"Cast", "Identity", "Transpose"}
_KEEP = _MOVE | frozenset(
    "Clip Dropout Softmax LogSoftmax"
    " Abs Ceil Elu Erf Exp Floor HardSigmoid LeakyRelu Log Neg Not Reciprocal Relu Sigmoid Sign Sqrt Tanh".split()
)
"""Operators whose result has elements where their first operand does; those of `_MOVE` have the same numbers."""

_JOIN = frozenset("Add And Concat Div Gather GatherElements Gemm MatMul Max Min Mul Or Pow Sub Sum Where".split())
"""Operators whose result has elements where all operands do."""

_HOLD_SIZES = frozenset(
    {onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
)
_GRAPH = onnx.AttributeProto.GRAPH
STATES = 5
"""The operand of recurrent operators with a state for each sequence, whose number onnxruntime checks against those of
the first operand before it computes."""


def filled(graph: onnx.GraphProto) -> Collection[str]:
    """Return the names of values that surely have elements, in each of the bodies that have a value of the name.

    Values of bodies that never run, as the size of something that has elements says, are among them.
    """
    found = _Found()
    _Walk({value.name for value in graph.input}, set(), found).follow(graph)
    return found.sure - found.unsure


@dataclass(slots=True)
class _Found:
    """Names of values that somewhere have elements for sure, and of those that somewhere may not."""

    sure: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Walk:
    """The walk over a graph. filled: names of what has elements there. sizes: of what holds numbers above 0 alone."""

    filled: set[str]
    sizes: set[str]
    found: _Found

    def follow(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._note([tensor.name], 0 not in tensor.dims)
        filled, sizes, made = self.filled, self.sizes, []
        for node in graph.node:
            op_type, outputs = node.op_type, [*node.output]
            made += outputs
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
        self.found.sure |= filled
        self.found.unsure.update(name for name in made if name not in filled)

    def _note(self, names: Iterable[str], has_elements: bool) -> None:
        """Note of new values whether they have elements: one of a body may have the name of one in another body."""
        (self.filled.update if has_elements else self.filled.difference_update)(names)

    def _has_elements(self, node: onnx.NodeProto, op_type: str, names: Sequence[str]) -> bool:
        if op_type == "Constant":
            return all(map(_holds_some, node.attribute))
        if op_type in _KEEP:
            return bool(names) and names[0] in self.filled
        return op_type in _JOIN and all(name in self.filled for name in names if name)

    def _choose(self, node: onnx.NodeProto) -> None:
        """Follow the bodies of an If that may run, whose results have elements where each gives some."""
        always = node.input[0] in self.sizes
        self.sizes.difference_update(node.output)
        given: list[list[bool]] = []
        for attribute in node.attribute:
            if always and attribute.name == "else_branch":
                self.found.sure.update(_names(attribute.g))
                continue
            inner = _Walk({*self.filled}, {*self.sizes}, self.found)
            inner.follow(attribute.g)
            given.append([value.name in inner.filled for value in attribute.g.output])
        for name, *each in zip(node.output, *given, strict=False):
            self._note([name], bool(each) and all(each))


def _moves(node: onnx.NodeProto) -> bool:
    """Return whether numbers above 0 stay that: what is cast to narrow integers may wrap around to 0."""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in _HOLD_SIZES for a in node.attribute)
    return node.op_type in _MOVE or node.op_type == "Gather"


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


# Traces of fusions in a model that is scanned: what tells that one may match, for less than matching it.

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
"""From the mark of an operand and the operator that takes it to the mark of its result."""

_BY_NUMBERS: Mapping[tuple[str, str], str] = MappingProxyType(
    {("Conv", "Add"): "scaled", ("Conv", "Mul"): "scaled", ("swish", "Mul"): "times", ("times", "Add"): "affine"}
)
"""The same, where the other operand is a constant of one element."""

TAKES = frozenset(op_type for _, op_type in (*_STEPS, *_BY_NUMBERS))
"""Operators whose results may be marked by what their operands are marked with."""

BEGINS = frozenset({"Add", "Conv", "HardSigmoid", "Neg", "ReduceMean", "Softmax"})
"""Operators whose results are marked with their own names."""

_GRAPHS = "graphs"
"""The mark that no value has: of a fusion that keeps all bits and does not pay for the time of making a Graph."""

_SIGNS: Mapping[str, str] = MappingProxyType(
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
"""The mark that every match of a fusion has; a fusion that is not here may match where its sign is."""

_NUMBERS = frozenset({(), (1,)})
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})


class Trail:
    """The marks of values, by name, and those that tell of a fusion. Only nodes of `BEGINS` set first marks."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}
        self._found: set[str] = set()

    def follow(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], constants: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Mark the results of a node. constants: the dims of those that are known, by name."""
        marks = self.marks
        if op_type in BEGINS:
            for name in outputs:
                marks[name] = op_type
        if op_type not in TAKES:
            return
        for name in inputs:
            mark = marks.get(name)
            if mark is None:
                continue
            made = _STEPS.get((mark, op_type))
            if (mark, op_type) in _BY_NUMBERS and any(constants.get(other) in _NUMBERS for other in inputs):
                made = _BY_NUMBERS[mark, op_type]
            if made is not None:
                self._found.add(made)
                marks.update(dict.fromkeys(outputs, made))

    def reason(self, operators: set[str]) -> str | None:
        """Return the fusion that may match; None where none can. operators: those of the model."""
        for fusion in FUSIONS:
            if fusion.sign not in operators:
                continue
            mark = _SIGNS.get(fusion.name)
            if mark is None or mark in self._found or (mark == "norm" and not _NORMS.isdisjoint(operators)):
                return f"the fusion {fusion.name}"
        return None
