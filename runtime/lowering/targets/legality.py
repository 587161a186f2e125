"""The operators that a target runs unchanged, by dtype, from measured tables and the installed build.

An operator is legal in a dtype if the nearest measured release ran it, the installed build lists a kernel of it at the
model's opset, and its values are what docs/numbers.md promises (`compute_dtypes.py`, `decompositions`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from graphcore.errors import DTypeError
from graphcore.ir.graph import TargetName
from graphcore.ir.symbol import Node, Symbol
from graphcore.operators import Trait, having
from graphcore.runtime.lowering.targets import TARGETS, Target
from graphcore.runtime.lowering.targets.compute_dtypes import UNROUNDED
from graphcore.runtime.lowering.targets.releases import ANY, OLDEST_OPSET, Runtime, Table, default, table_of
from graphcore.runtime.lowering.targets.traps import in_force, of_kernel, on_switching
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

PRIMARY = {"Where": 1, "OneHot": 2}
"""The operand whose dtype selects the kernel, if not the first; the result has that dtype too."""

CONTROL = having(Trait.BODIES) - {"SequenceMap"}  # a function of ONNX, without a kernel
"""Operators of several dtypes at once: all values that enter or leave their bodies count."""

BY_RESULT = frozenset({"ConstantOfShape", "EyeLike", "Constant"})
"""Operators whose kernel is selected by the dtype of the result."""


def kernel_operand(op_type: str, count: int) -> int | None:
    """Return the position, among `count` operands, of the one whose dtype selects the kernel; None for the result."""
    position = PRIMARY.get(op_type, 0)
    return position if op_type not in BY_RESULT and position < count else None


def kernel_dtype(op_type: str, inputs: Sequence[Symbol | None], results: Sequence[Type]) -> DType | None:
    """Return the dtype that selects the kernel; None if a type without a dtype selects it."""
    position = kernel_operand(op_type, len(inputs))
    chosen: Type | None = results[0] if results else None
    if position is not None and (operand := inputs[position]) is not None:
        chosen = operand.type
    return chosen.dtype if isinstance(chosen, TensorType) else None


class Legality:
    """The legal operators of a target. `table` has the kernels; others are legal in all dtypes."""

    def __init__(
        self,
        target: Target,
        table: dict[str, frozenset[DType]],
        host: Legality | None = None,
        runtime: Runtime = ANY,
    ) -> None:
        self.target = target
        self.runtime = runtime
        self.host = host
        """The target that runs operators without a kernel in this one."""
        self.decomposes = bool(target.table)
        """True if operators whose results differ from docs/numbers.md are replaced."""
        self.table = table
        self._dtypes_cache: dict[str, frozenset[DType] | None] = {}
        self._traps: dict[str, bool] = {}

    @functools.cached_property
    def views_bits(self) -> bool:
        """True if there is a kernel of BitCast."""
        row = self.dtypes("BitCast")
        return self.target.has_bitcast and (row is None or bool(row))

    def allows(self, op_type: str, dtype: DType) -> bool:
        """Return True if there is a kernel."""
        row = self.dtypes(op_type)
        return row is None or dtype in row

    def dtypes(self, op_type: str) -> frozenset[DType] | None:
        """Return the dtypes that have a correct kernel; None if all have."""
        if op_type not in self._dtypes_cache:
            self._dtypes_cache[op_type] = self._dtypes(op_type)
        return self._dtypes_cache[op_type]

    def _dtypes(self, op_type: str) -> frozenset[DType] | None:
        opset = self.runtime.opset
        if not self.decomposes:
            return schema_dtypes(op_type, opset)
        row = self.table.get(op_type)
        if row is None:
            return None
        if opset < OLDEST_OPSET and _changed(op_type, opset):  # some releases accept more than ONNX allows in files
            row &= schema_dtypes(op_type, opset)
        return _registered(self.target, op_type, row, self.runtime) - incorrect(self.target, op_type, self.runtime)

    def runs_half(self, op_type: str, dtype: DType) -> bool:
        """Return True if the runtime runs an operator in float16 or bfloat16, with rounding at any point.

        If the CPU provider has no kernel of float16, the runtime puts casts around that of float32. It would decompose
        Attention first, and round after each part; the kernels of some releases are not correct. The parts that it
        decomposes AffineGrid into do not run.
        """
        row = self.table.get(op_type)
        if not self.decomposes or row is None or op_type in ("AffineGrid", "Attention"):
            return False
        if dtype in _registered(self.target, op_type, row, self.runtime):
            return True
        if dtype is not DType.float16 or not self.target.is_host:
            return False
        return self.allows(op_type, DType.float32) and dtype in schema_dtypes(op_type, self.runtime.opset)

    @functools.cached_property
    def may_lack(self) -> bool:
        """True if kernels that decompositions use may be missing."""
        if not self.decomposes:
            return not self.views_bits
        newest = _newest_table(self.target.name).newest.version
        return not self.views_bits or self.runtime.registry is not None or self.runtime.version != newest

    def lacks(self, op_type: str, dtype: DType) -> bool:
        """Return True if a kernel that decompositions use, exact or not, is missing."""
        return (not self.views_bits and not self.allows(op_type, dtype)) or self.has_lost(op_type, dtype)

    def has_lost(self, op_type: str, dtype: DType) -> bool:
        """Return True if a kernel is missing that the newest measured release has."""
        if not self.decomposes or dtype not in _newest(self.target.name).get(op_type, ()):
            return False
        row = self.table.get(op_type, frozenset())
        return dtype not in row or dtype not in _registered(self.target, op_type, row, self.runtime)

    def has_trap(self, trap: str) -> bool:
        """Return True if a trap must be avoided."""
        if trap not in self._traps:
            self._traps[trap] = _has_trap(self.target, trap, self.runtime)
        return self._traps[trap]


@functools.cache
def legality(target: TargetName, runtime: Runtime | None = None) -> Legality:
    """Return the legality of a target.

    runtime: the runtime to lower for; by default the one that files are written for.
    """
    row = TARGETS[target]
    runtime = runtime or default(target)
    host = None if row.host is None else legality(row.host, runtime)
    return Legality(row, kernels(target, runtime) if row.table else {}, host=host, runtime=runtime)


on_switching(legality.cache_clear)


def incorrect(target: Target, op_type: str, runtime: Runtime = ANY) -> frozenset[DType]:
    """Return the dtypes in which a target's kernels of an operator are not used, in the releases to lower for."""
    listed, _ = target.incorrect.get(op_type, ("", ""))
    here = {d for d in map(DType.of, listed.split()) if _has_trap(target, of_kernel(op_type, d), runtime)}
    if op_type not in UNROUNDED and op_type not in target.once:
        here.update(d for d in target.rounded if _has_trap(target, f"{d} kernels", runtime))
    return frozenset(here)


def without_kernel(node: Node, rules: Legality) -> DType | None:
    """Return the dtype in which a lowered node of ONNX has no kernel; None if it has one."""
    if node.domain or node.op_type in CONTROL:
        return None
    types = [s.type for s in node.outputs]
    dtypes = [kernel_dtype(node.op_type, node.inputs, types)]
    if node.op_type == "Cast":
        dtypes += [t.dtype for t in types if isinstance(t, TensorType)]
    return next((d for d in dtypes if d is not None and d not in rules.table.get(node.op_type, (d,))), None)


def _has_trap(target: Target, trap: str, runtime: Runtime) -> bool:
    """Return True if a trap must be avoided; traps that were not measured always are."""
    return not target.by_release or in_force(trap, runtime)


def kernels(target: TargetName, runtime: Runtime | None = None) -> dict[str, frozenset[DType]]:
    """Return for each operator the dtypes that the target's provider ran when measured, correct or not.

    Operators that are newer than the runtime's opset have none.
    """
    dtypes = table_of(target).kernels(runtime or default(target))
    host = TARGETS[target].host
    if host is not None:  # the table of the host has more operators
        newest = table_of(host).rows
        dtypes.update(
            {op: frozenset() for op in newest if op not in dtypes and min(newest[op]) > (runtime or ANY).opset}
        )
    dtypes.update(dict.fromkeys((runtime or ANY).avoided, frozenset()))
    return dtypes


@functools.cache
def _newest(target: TargetName) -> dict[str, frozenset[DType]]:
    """Return the kernels of the newest measured release, at the opset that graphs are built with."""
    table = _newest_table(target)
    return table.kernels(Runtime(table.newest.version))


def _newest_table(target: TargetName) -> Table:
    """Return the table that has all kernels which decompositions use: for a derived one that of its base."""
    table = table_of(target)
    return table if table.base is None else table_of(table.base)


def _registered(target: Target, op_type: str, row: frozenset[DType], runtime: Runtime) -> frozenset[DType]:
    """Return the dtypes of a row that the installed build lists too, if its list was read."""
    if runtime.registry is None or not target.lists_kernels:
        return row
    listed = runtime.registry.dtypes(target.provider, op_type, runtime.opset)
    return row if listed is None else row & listed


def _changed(op_type: str, opset: int) -> bool:
    """Return True if an operator changed after an opset."""
    from graphcore.onnx.versions.table import versions  # onnx, which running a Graph does not import

    return any(version.version > opset for version in versions(op_type))


@functools.cache
def schema_dtypes(op_type: str, opset: int) -> frozenset[DType]:
    """Return the dtypes that the ONNX schema at an opset allows for the operand that selects the kernel."""
    import onnx

    from graphcore.onnx.versions.downgrade import REPLACED  # onnx, as above

    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:  # newer, or not an operator of ONNX
        return frozenset()
    if schema.deprecated or opset < REPLACED.get(op_type, 0):
        return frozenset()
    parameter = (
        schema.outputs[0]
        if op_type in BY_RESULT or op_type in CONTROL or not schema.inputs
        else schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)]
    )
    dtypes = set()
    for name in parameter.types:
        plain = name.removeprefix("tensor(").removesuffix(")").upper()
        try:
            dtypes.add(DType.of(onnx.TensorProto.DataType.Value(plain)))
        except (DTypeError, ValueError):  # complex numbers, sequences
            continue
    return frozenset(dtypes)
