"""What a target runs as it is: for every ONNX operator the dtypes, read from data.

`cpu.json` has the dtypes for which onnxruntime's CPU provider has a kernel (or a function body) of its own, measured on
1.31.1, less those whose values are not what docs/numbers.md promises: float16 and bfloat16 wherever something is
computed, Attention but in float32, GroupNormalization, Sign of narrow floats.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files

import onnx

from graphcore.dtypes import DType
from graphcore.errors import DTypeError
from graphcore.graph import Target
from graphcore.onnx.writer import OPSET
from graphcore.types import TensorType, Type

PRIMARY = {"Where": 1, "OneHot": 2}
"""The operand whose dtype an operator's kernels are chosen by, where not the first; the result has that dtype too."""

BY_RESULT = frozenset({"ConstantOfShape", "EyeLike", "Constant"})
"""Operators whose kernels are chosen by the dtype of the result."""


class Legality:
    """What is legal on one target. `table` gives the dtypes of each operator; an operator not in it is legal in all."""

    def __init__(self, target: Target, table: dict[str, frozenset[DType]], detours: bool) -> None:
        self.target = target
        self.table = table
        self.detours = detours
        """Whether the operators that compute something else than DESIGN says are replaced."""

    def allows(self, op_type: str, dtype: DType) -> bool:
        """Whether there is a kernel."""
        row = self.dtypes(op_type)
        return row is None or dtype in row

    def dtypes(self, op_type: str) -> frozenset[DType] | None:
        if op_type not in self.table and not self.detours:
            self.table[op_type] = _schema_dtypes(op_type)
        return self.table.get(op_type)

    def keeps(self, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None) -> bool:
        """Whether an operator chosen by `dtype` stays as it is: on any operands, or on one of the type given."""
        from graphcore.runtime.lowering.detours import DETOURS, NEEDED

        if not self.allows(op_type, dtype):
            return False
        if not self.detours or (op_type, dtype) not in DETOURS:
            return True
        needed = NEEDED.get((op_type, dtype))
        if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
            return False
        return not needed(operand, result)


@functools.cache
def legality(target: Target) -> Legality:
    """The legality of a target. The CUDA provider leaves what it has no kernel for to the CPU, whose table counts."""
    if target == "onnx":
        return Legality(target, {}, detours=False)
    rows = json.loads(files("graphcore.runtime.lowering").joinpath("cpu.json").read_text())
    return Legality(target, {op: frozenset(map(DType.of, row.split())) for op, row in rows.items()}, detours=True)


def _schema_dtypes(op_type: str) -> frozenset[DType]:
    """The dtypes that the ONNX schema allows for the operand that decides."""
    schema = onnx.defs.get_schema(op_type, OPSET)
    parameter = (
        schema.outputs[0]
        if op_type in BY_RESULT or not schema.inputs
        else schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)]
    )
    found = set()
    for name in parameter.types:
        try:
            found.add(DType.of(name.removeprefix("tensor(").removesuffix(")").replace("float8e", "float8_e")))
        except DTypeError:  # sequences, complex numbers and formats that graphcore has not
            continue
    return frozenset(found)
