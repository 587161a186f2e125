"""What a target runs as it is: for every ONNX operator the dtypes, from measured tables and the installed build.

An operator is legal in a dtype where the nearest measured release was seen to run it, the installed build lists a
kernel of it at the model's opset, and its values are what docs/numbers.md promises (`wrong.py`, `detours`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from graphcore.errors import DTypeError
from graphcore.ir.graph import Target
from graphcore.runtime.lowering.targets.incorrect import wrong
from graphcore.runtime.lowering.targets.releases import ANY, OLDEST_OPSET, Runtime, default, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.decompositions import Replaced

PRIMARY = {"Where": 1, "OneHot": 2}
"""The operand whose dtype an operator's kernels are chosen by, where not the first; the result has that dtype too."""

CONTROL = frozenset({"If", "Loop", "Scan"})
"""Operators of any number of dtypes at once: those of all that goes through their bodies count."""

BY_RESULT = frozenset({"ConstantOfShape", "EyeLike", "Constant"})
"""Operators whose kernels are chosen by the dtype of the result."""


class Legality:
    """What is legal on one target. `table` has the kernels; an operator that is not in it is legal in all dtypes."""

    def __init__(
        self,
        target: Target,
        table: dict[str, frozenset[DType]],
        detours: bool,
        host: Legality | None = None,
        runtime: Runtime = ANY,
    ) -> None:
        self.target = target
        self.runtime = runtime
        self.host = host
        """What runs the operators that the target cannot: the CPU, behind any other provider."""
        self.detours = detours
        """Whether the operators that compute something else than DESIGN says are replaced."""
        self.table = table
        self._found: dict[str, frozenset[DType] | None] = {}
        self._traps: dict[str, bool] = {}

    @functools.cached_property
    def views_bits(self) -> bool:
        """Whether BitCast is to be had."""
        row = self.dtypes("BitCast")
        return self.host is None and (row is None or bool(row))

    @functools.cached_property
    def replaced(self) -> Replaced:
        """What is computed in another way than by the kernel."""
        from graphcore.runtime.lowering.decompositions import replaced_by

        return replaced_by(self)

    def allows(self, op_type: str, dtype: DType) -> bool:
        """Whether there is a kernel."""
        row = self.dtypes(op_type)
        return row is None or dtype in row

    def dtypes(self, op_type: str) -> frozenset[DType] | None:
        """The dtypes that have a kernel that is right; None where all have."""
        if op_type not in self._found:
            self._found[op_type] = self._dtypes(op_type)
        return self._found[op_type]

    def _dtypes(self, op_type: str) -> frozenset[DType] | None:
        opset = self.runtime.opset
        if not self.detours:
            return _schema_dtypes(op_type, opset)
        row = self.table.get(op_type)
        if row is None:
            return None
        if opset < OLDEST_OPSET and _changed(op_type, opset):  # some releases take more than ONNX allows in files
            row &= _schema_dtypes(op_type, opset)
        return _registered(self.target, op_type, row, self.runtime) - wrong(self.target, op_type, self.runtime)

    @functools.cached_property
    def may_lack(self) -> bool:
        """Return whether kernels may not be there that the replacements of others are built of."""
        if not self.detours:
            return not self.views_bits
        newest = table_of(self.target).newest.version
        return not self.views_bits or self.runtime.registry is not None or self.runtime.version != newest

    def lacks(self, op_type: str, dtype: DType) -> bool:
        """Return whether a kernel that replacements are built of, right or wrong, is not there."""
        return (not self.views_bits and not self.allows(op_type, dtype)) or self.has_lost(op_type, dtype)

    def has_lost(self, op_type: str, dtype: DType) -> bool:
        """Return whether there is no kernel that the newest measured release has."""
        if not self.detours or dtype not in _newest(self.target).get(op_type, ()):
            return False
        row = self.table.get(op_type, frozenset())
        return dtype not in row or dtype not in _registered(self.target, op_type, row, self.runtime)

    def has_trap(self, trap: str) -> bool:
        """Whether a trap of the CPU provider is to be avoided; those of others are not measured and always are."""
        if trap not in self._traps:
            self._traps[trap] = self.target != "cpu" or in_force(trap, self.runtime)
        return self._traps[trap]

    def keeps(self, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None) -> bool:
        """Whether an operator chosen by `dtype` stays as it is: on any operands, or on one of the type given."""
        if not self.allows(op_type, dtype):
            return False
        if not self.detours or (op_type, dtype) not in self.replaced.rows:
            return True
        needed = self.replaced.needed.get((op_type, dtype))
        if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
            return False
        return not needed(operand, result)


@functools.cache
def legality(target: Target, runtime: Runtime | None = None) -> Legality:
    """The legality of a target. Other providers leave what they have no kernel for to the CPU, whose table counts.

    runtime: what is lowered for, where it is not what files are written for.
    """
    if target == "onnx":
        return Legality(target, {}, detours=False, runtime=runtime or ANY)
    runtime = runtime or default(target)
    host = None if target == "cpu" else legality("cpu", runtime)
    return Legality(target, kernels(target, runtime), detours=True, host=host, runtime=runtime)


def kernels(target: Target, runtime: Runtime | None = None) -> dict[str, frozenset[DType]]:
    """For each operator the dtypes that the target's provider was seen to run, right or wrong.

    Operators that are newer than the runtime's opset have none.
    """
    found = table_of(target).kernels(runtime or default(target))
    if target != "cpu":  # whose table knows more operators than others run
        newest = table_of("cpu").rows
        found.update({op: frozenset() for op in newest if op not in found and min(newest[op]) > (runtime or ANY).opset})
    found.update(dict.fromkeys((runtime or ANY).avoided, frozenset()))
    return found


@functools.cache
def _newest(target: Target) -> dict[str, frozenset[DType]]:
    """The kernels of the newest measured release, at the opset that graphs are built of."""
    table = table_of(target)
    return table.kernels(Runtime(table.newest.version))


def _registered(target: Target, op_type: str, row: frozenset[DType], runtime: Runtime) -> frozenset[DType]:
    """The dtypes of a row that the installed build lists too, where it was asked."""
    if runtime.registry is None or target not in ("cpu", "cuda"):
        return row
    listed = runtime.registry.dtypes(table_of(target).provider, op_type, runtime.opset)
    return row if listed is None else row & listed


def _changed(op_type: str, opset: int) -> bool:
    """Return whether an operator changed behind an opset."""
    from graphcore.onnx.versions.history import versions

    return any(version.version > opset for version in versions(op_type))


@functools.cache
def _schema_dtypes(op_type: str, opset: int) -> frozenset[DType]:
    """The dtypes that the ONNX schema at an opset allows for the operand that decides."""
    import onnx

    from graphcore.onnx.versions.downgrade import REPLACED

    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:  # which is newer, or none of ONNX's
        return frozenset()
    if schema.deprecated or opset < REPLACED.get(op_type, 0):
        return frozenset()
    parameter = (
        schema.outputs[0]
        if op_type in BY_RESULT or op_type in CONTROL or not schema.inputs
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
