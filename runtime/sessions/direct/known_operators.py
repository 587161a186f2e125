"""The operators of a scan at the opset of its model: their schemas, and the dtypes that a target runs."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from graphcore.onnx.proto.messages import TENSOR, nested
from graphcore.onnx.proto.ranges import CHECKED, INDEXED
from graphcore.operators import Trait, having
from graphcore.runtime.lowering.decompositions.rows import keeps_half, keeps_kernel, rows_of
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.ort.memory import PACKED
from graphcore.runtime.sessions.direct.operators import ROWS, Arity, DirectRow, arity_of, same_dtype
from graphcore.runtime.sessions.direct.scanned_values import STATES
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    import onnx

SIZED = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Tile"})
"""Operators with operands that are sizes, or factors of sizes."""

_DECOMPOSED = frozenset({"Div", "GRU", "LSTM", "MatMul", "Mod", "Resize"})
"""Operators with decompositions: their rows leave the nodes that need one to a Graph."""

ML_DOMAIN = "ai.onnx.ml"

_ONNX = ("", "ai.onnx")

_ROWS_STAY: Mapping[str, int] = {
    **dict.fromkeys(
        "Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax MatMul Gemm Identity Cast Clip Elu Abs Exp Log Sqrt Neg"
        " Softplus Constant BatchNormalization LayerNormalization".split(),
        1,
    ),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), 2),
}
"""The number of leading operands whose number of rows the result of an operator has."""


_INSPECTED = frozenset({*INDEXED, *CHECKED, *SIZED, *PACKED, "Constant", "Gemm", "If", "MatMul"})
"""Operators that need more than the dtypes of their results."""


@dataclass(frozen=True, slots=True)
class KnownOperator:
    """An operator at the opset of a model.

    is_marked: whether its results may have marks. rows: the number of leading operands whose number of rows the result
    has; 0 if it may differ. is_plain: whether the dtypes of its operands, and its attributes if they are limited, fully
    describe a node.
    """

    row: DirectRow
    arity: Arity
    domains: tuple[str, ...]
    is_marked: bool
    rows: int
    is_plain: bool


def known_operator(op_type: str, versions: Mapping[str, int]) -> KnownOperator | None:
    """Return an operator at a model's opsets; None if it has no row."""
    row, arity = ROWS.get(op_type), arity_of(op_type, versions.get("", 0))
    if row is None and ML_DOMAIN in versions:
        from graphcore.runtime.sessions.direct import ml_rows  # imports onnx, which other models do not need

        row, arity = ml_rows.ROWS.get(op_type), arity_of(op_type, versions[ML_DOMAIN])
    if row is None or arity is None:
        return None
    return KnownOperator(
        row=row,
        arity=arity,
        domains=(row.domain,) if row.domain else _ONNX,
        is_marked=op_type in STARTS_MARK or op_type in PROPAGATES_MARK,
        is_plain=row.results is same_dtype and not row.gives_map and op_type not in _INSPECTED,
        rows=_ROWS_STAY.get(op_type, 0),
    )


@functools.cache
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

_SIZE_DTYPES = frozenset(dtype.onnx for dtype in (DType.bool, DType.int64, DType.float32, DType.float64))


def filled(graph: onnx.GraphProto) -> Collection[str]:
    """Return the names of values that certainly have elements, in each of the bodies with a value of that name.

    They include values of bodies that never run, because the condition is the size of a value with elements.
    """
    sure: set[str] = set()
    unsure: set[str] = set()
    _follow(graph, {value.name for value in graph.input}, set(), sure, unsure)
    return sure - unsure


def _follow(graph: onnx.GraphProto, filled: set[str], sizes: set[str], sure: set[str], unsure: set[str]) -> None:
    """Add the names of the values of a graph or body, by what they certainly have.

    filled: with elements. sizes: with positive numbers only. sure: with elements in some body. unsure: maybe without
    elements in some body.
    """

    def note(names: Iterable[str], kind: set[str], belong: bool) -> None:
        (kind.update if belong else kind.difference_update)(names)  # values of different bodies may share a name

    for tensor in graph.initializer:
        note([tensor.name], filled, 0 not in tensor.dims)
    results: list[str] = []
    for node in graph.node:
        op_type, names, outputs = node.op_type, [*node.input], [*node.output]
        first = names[0] if names else ""
        results += outputs
        if op_type == "If":
            branches: list[list[bool]] = []
            for attribute in node.attribute:
                if first in sizes and attribute.name == "else_branch":
                    sure.update(n for body in nested(attribute.g) for each in body.node for n in each.output)
                    continue
                inner = {*filled}
                _follow(attribute.g, inner, {*sizes}, sure, unsure)
                branches.append([value.name in inner for value in attribute.g.output])
            for name, *each in zip(outputs, *branches, strict=False):
                note([name], filled, bool(each) and all(each))
        elif op_type in ("LSTM", "GRU"):
            note(outputs[:1], filled, first in filled)
            note(outputs[1:], filled, not filled.isdisjoint((first, *names[STATES : STATES + 1])))
        elif op_type == "Constant":
            note(outputs, filled, all(map(_holds_some, node.attribute)))
        else:
            has_all = op_type in _ALL_ELEMENTS and all(name in filled for name in names if name)
            note(outputs, filled, has_all or (op_type in _SAME_ELEMENTS and first in filled))
        note(outputs, sizes, first in filled if op_type == "Shape" else first in sizes and _moves(node))
    sure |= filled
    unsure.update(name for name in results if name not in filled)


def _moves(node: onnx.NodeProto) -> bool:
    """Return True if positive numbers stay positive: a cast to narrow integers may wrap around to 0."""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in _SIZE_DTYPES for a in node.attribute)
    return node.op_type in _SAME_NUMBERS or node.op_type == "Gather"


def _holds_some(attribute: onnx.AttributeProto) -> bool:
    if attribute.type == TENSOR:
        return 0 not in attribute.t.dims
    return attribute.name in ("value_float", "value_int") or bool(attribute.floats or attribute.ints)


# Traces of fusions in a scanned model, which show that a fusion may match: cheaper than matching it.

_STEPS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Softmax", "MatMul"): "attention",
        **{("Softmax", op): "Softmax" for op in ("Cast", "Dropout", "Identity", "IsNaN", "Where")},
        ("Exp", "Div"): "weights",
        ("weights", "MatMul"): "of a file",
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

STARTS_MARK = frozenset({"Add", "Conv", "Exp", "HardSigmoid", "Neg", "ReduceMean", "Softmax"})
"""Operators whose results are marked with their own names."""

_GRAPHS = "graphs"
"""A mark that no value has: for a fusion that keeps all bits and does not pay for the time of building a Graph."""

TRACES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Attention": ("Softmax", "attention"),
        "no Reshape of a Reshape": ("Softmax", "attention"),
        "Attention of a Graph": ("Exp", "of a file"),
        "parts before a Transpose": ("Split", _GRAPHS),
        "RMSNormalization, LayerNormalization": ("ReduceMean", "norm"),
        "scale within the norm": ("ReduceMean", "norm"),
        "bias within the norm": ("ReduceMean", "norm"),
        "sum of squares of a length": ("ReduceL2", ""),
        "AveragePool as a convolution": ("AveragePool", ""),
        "RotaryEmbedding": ("Neg", "rotary"),
        "RotaryEmbedding of neighbours": ("Neg", "rotary"),
        "HardSigmoid of a Clip": ("Clip", "sixth"),
        "factor and bias within the convolution": ("Conv", "scaled"),
        "factor and bias as a convolution": ("Conv", "affine"),
    }
)
"""The sign of each fusion, and the mark that every match has; "": none. Loads do not import the fusions to see that."""

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

    def reason(self, operators: Set[str]) -> str | None:
        """Return the fusion that may match; None if none can. operators: those of the model."""
        for name, (sign, mark) in TRACES.items():
            if sign not in operators:
                continue
            if not mark or mark in self._matched or (mark == "norm" and not _NORMS.isdisjoint(operators)):
                return f"the fusion {name}"
        return None
