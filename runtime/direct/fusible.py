"""Traces of fusions in a model that is scanned: what tells that one may match, for less than matching it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from graphcore.runtime.fusions import FUSIONS

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
