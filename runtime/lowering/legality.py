"""What a target runs as it is: for every ONNX operator the dtypes, read from data.

`<target>.json` has the dtypes for which a provider of onnxruntime has a kernel (or a function body) of its own, as the
package `measure` finds them. Less those whose values are not what docs/numbers.md promises (`wrong.py`) they are legal.
"""

from __future__ import annotations

import functools
from typing import Any

from graphcore.dtypes import DType
from graphcore.errors import DTypeError
from graphcore.graph import Target
from graphcore.onnx.writer import OPSET
from graphcore.runtime.lowering.foreign import of_models
from graphcore.runtime.lowering.runtimes import Runtime, default, table_of
from graphcore.runtime.lowering.wrong import wrong
from graphcore.types import TensorType, Type

PRIMARY = {"Where": 1, "OneHot": 2}
"""The operand whose dtype an operator's kernels are chosen by, where not the first; the result has that dtype too."""

CONTROL = frozenset({"If", "Loop", "Scan"})
"""Operators of any number of dtypes at once: those of all that goes through their bodies count."""

BY_RESULT = frozenset({"ConstantOfShape", "EyeLike", "Constant"})
"""Operators whose kernels are chosen by the dtype of the result."""


class Legality:
    """What is legal on one target. `table` gives the dtypes of each operator; an operator not in it is legal in all."""

    def __init__(
        self, target: Target, table: dict[str, frozenset[DType]], detours: bool, host: Legality | None = None
    ) -> None:
        self.target = target
        self.table = table
        self.host = host
        """What runs the operators that the target cannot: the CPU, behind any other provider."""
        self.detours = detours
        """Whether the operators that compute something else than DESIGN says are replaced."""
        self.views_bits = host is None and bool(table.get("BitCast", True))
        """Whether BitCast is to be had."""

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
        from graphcore.runtime.lowering.detours import detours_of, needed_of

        if not self.allows(op_type, dtype):
            return False
        if not self.detours or (op_type, dtype) not in detours_of(self.target, self.views_bits):
            return True
        needed = needed_of(self.target, self.views_bits).get((op_type, dtype))
        if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
            return False
        return not needed(operand, result)


@functools.cache
def legality(target: Target, runtime: Runtime | None = None) -> Legality:
    """The legality of a target. Other providers leave what they have no kernel for to the CPU, whose table counts.

    runtime: the release that is lowered for, where it is not the one that files are written for.
    """
    if target == "onnx":
        return Legality(target, {}, detours=False)
    runtime = runtime or default(target)
    there = kernels(target) if runtime is None else kernels(target, runtime)
    table = {op: row | of_models(target, op) for op, row in there.items()}
    if runtime is None:
        table = {op: row - wrong(target, op) for op, row in table.items()}
    else:
        table = {op: row - wrong(target, op, older=True) for op, row in table.items()}
    return Legality(target, table, detours=True, host=None if target == "cpu" else legality("cpu", runtime))


def kernels(target: Target, runtime: Runtime | None = None) -> dict[str, frozenset[DType]]:
    """For each operator the dtypes that the target's provider has a kernel for, right or wrong.

    Operators that are newer than the runtime's opset have none.
    """
    table = {op: _dtypes(row) for op, row in measured(target, runtime)["kernels"].items()}
    if runtime is not None:
        newest = table_of("cpu")["kernels"]
        table.update({op: frozenset() for op in {*newest, *table} if _since(op) > runtime.opset})
    return table


@functools.cache
def _dtypes(names: str) -> frozenset[DType]:
    """Most operators have the row of another."""
    return frozenset(map(DType.of, names.split()))


def measured(target: Target, runtime: Runtime | None = None) -> dict[str, Any]:
    """The target's table as it was written: `provider`, the version of `onnxruntime`, `opset` and `kernels`."""
    return table_of(target, runtime)


@functools.cache
def _since(op_type: str) -> int:
    """The opset that an operator came with."""
    import onnx

    found = (s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op_type and not s.domain)
    return min(found, default=0)


def _schema_dtypes(op_type: str) -> frozenset[DType]:
    """The dtypes that the ONNX schema allows for the operand that decides."""
    import onnx

    schema = onnx.defs.get_schema(op_type, OPSET)
    parameter = (
        schema.outputs[0]
        if op_type in BY_RESULT or not schema.inputs
        else schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)]
    )
    found = set()
    for name in parameter.types:
        try:
            plain = name.removeprefix("tensor(").removesuffix(")")
            found.add(DType.of(plain.replace("float8e", "float8_e").replace("float4e", "float4_e")))
        except DTypeError:  # sequences, complex numbers and formats that graphcore has not
            continue
    return frozenset(found)
