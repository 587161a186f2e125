"""Report what lowering does to a graph, and why: the passes that run, and what becomes of each operator on each dtype.

The latter is found by lowering a node of each kind by itself, so that what is reported is what happens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graphcore.build.declare import LIBRARY
from graphcore.errors import GraphcoreError
from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph, Optimize, TargetName
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, walk
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.functions.inline import inlined
from graphcore.runtime.lowering.pipeline import Pass
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY, Legality, legality
from graphcore.runtime.lowering.targets.releases import Runtime
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_SHOWN = 3
"""Names of nodes, and operators of a replacement, that a note gives."""

_ORDINARY = frozenset({"Cast", "Identity", "BitCast", "Constant"})
"""Operators that carry values from one dtype to another around the ones that compute."""


@dataclass(slots=True)
class Note:
    """A kind of node that is not run as it stands."""

    op_type: str
    dtype: str
    reason: str
    """Why the provider's own kernel is not used."""
    action: str
    """The operators that run in its place."""
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(self.names[:_SHOWN])
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        head = " ".join(part for part in (self.op_type, self.dtype, f"x{len(self.names)}") if part)
        return f"{head}: {self.reason}; {self.action} ({shown}{more})"


def lowered_by(
    graph: Graph, target: TargetName, runtime: Runtime | None = None, optimize: Optimize = "off"
) -> list[Pass]:
    """Return the passes that lowering for `target` runs, in order; none for a graph that runs as it is.

    Raises `GraphError` as `lower` does.
    """
    trace: list[Pass] = []
    lower(graph, target, runtime=runtime, optimize=optimize, trace=trace)
    return trace


def notes(graph: Graph, target: TargetName, runtime: Runtime | None = None) -> list[Note]:
    """A note for each kind of node, in bodies too, that lowering for `target` replaces; none where all stay.

    runtime: the release that is lowered for, where it is not what files are written for.
    """
    found: dict[tuple[object, ...], Note | None] = {}
    for node in walk(inlined(graph)):
        key = _kind(node)
        if key not in found:
            found[key] = _note(node, target, runtime)
        note = found[key]
        if note is not None:
            note.names.append(_name(node))
    return _joined([note for note in found.values() if note is not None])


def _joined(made: list[Note]) -> list[Note]:
    """Return one note for kinds that differ in their shapes alone."""
    joined: dict[tuple[str, str, str, str], Note] = {}
    for note in made:
        key = (note.op_type, note.dtype, note.reason, note.action)
        if key in joined:
            joined[key].names += note.names
        else:
            joined[key] = note
    return list(joined.values())


def _name(node: Node) -> str:
    return f"{node.layer}{node.outputs[0].name}" if node.outputs[0].given_name is None else node.outputs[0].name


def _kind(node: Node) -> tuple[object, ...]:
    """Return what lowering looks at: nodes that agree in it are lowered alike."""
    operands = tuple(
        None if s is None else (str(s.type), s.producer.array.tobytes() if _is_small(s) else None)  # type: ignore[union-attr]
        for s in node.inputs
    )
    said = tuple(sorted((k, str(v)) for k, v in node.attributes.items() if not isinstance(v, Graph)))
    return node.op_type, node.domain, operands, tuple(str(s.type) for s in node.outputs), said


def _is_small(symbol: Symbol) -> bool:
    array = constant_array(symbol, weights=True)
    return array is not None and array.size <= 16


def _note(node: Node, target: TargetName, runtime: Runtime | None) -> Note | None:
    if bodies(node):
        return None  # what is in its bodies is noted by itself
    dtype = _dtype(node)
    shown = "" if dtype is None else dtype.name
    if node.domain not in ("", LIBRARY):
        return Note(f"{node.domain}.{node.op_type}", shown, "a custom operator", "left to onnxruntime as it is")
    try:
        lowered = lower(_alone(node), target, runtime=runtime)
    except GraphcoreError as error:
        return Note(node.op_type, shown, error.summary, "cannot be computed")
    made = [n for n in walk(lowered) if n.op_type != "Identity"]
    if [n.op_type for n in made] == [node.op_type] and made[0].outputs[0].type == node.outputs[0].type:
        return None
    if not made:
        return None  # it comes out as a constant
    return Note(
        node.op_type, _pair(node, shown), _reason(node, dtype, legality(target, runtime)), _action(node, dtype, made)
    )


def _pair(node: Node, shown: str) -> str:
    """Return the dtypes of a cast, else the one."""
    result = node.outputs[0].type
    return f"{shown} -> {result.dtype.name}" if node.op_type == "Cast" and isinstance(result, TensorType) else shown


def _dtype(node: Node) -> DType | None:
    """Return the dtype that kernels are chosen by."""
    position = PRIMARY.get(node.op_type, 0)
    operand = node.inputs[position] if position < len(node.inputs) else None
    symbol = node.outputs[0] if operand is None or node.op_type in BY_RESULT else operand
    return symbol.type.dtype if isinstance(symbol.type, TensorType) else None


def _alone(node: Node) -> Graph:
    """Return a graph of one node, its constants constants and its other operands inputs."""
    tensors = [s for s in node.inputs if s is not None]
    fed = list({id(s): s for s in tensors if not isinstance(_source(s).producer, Constant)}.values())
    graph = Graph("alone", [s.type for s in fed])
    symbols = dict(zip(map(id, fed), graph.inputs, strict=True))
    for symbol in tensors:
        producer = _source(symbol).producer
        if isinstance(producer, Constant) and id(symbol) not in symbols:
            held = Constant(producer.array, producer.is_weight, None)
            symbols[id(symbol)] = graph.build.symbol(symbol.type, held)
    operands = tuple(None if s is None else symbols[id(s)] for s in node.inputs)
    types = [s.type for s in node.outputs]
    made = graph.build.emit_many(node.op_type, operands, types, node.attributes, node.domain)
    graph.build.outputs([(f"out{i}", s) for i, s in enumerate(made)])
    return graph


def _source(symbol: Symbol) -> Symbol:
    """Return what a captured Symbol stands for."""
    while isinstance(symbol.producer, Captured):
        symbol = symbol.producer.symbol
    return symbol


def _reason(node: Node, dtype: DType | None, rules: Legality) -> str:
    if node.domain == LIBRARY:
        return "an operator of graphcore's own"
    if dtype is not None and dtype.storage is not dtype:
        return f"ONNX has no {dtype.name}"
    row = rules.table.get(node.op_type)
    if row is None or (dtype is not None and dtype not in row):
        return "no kernel"
    return "its kernel gives other numbers"


def _action(node: Node, dtype: DType | None, made: list[Node]) -> str:
    same = [n for n in made if n.op_type == node.op_type]
    computing = [n for n in made if n.op_type not in _ORDINARY]
    if same and len(computing) == len(same) and node.op_type not in _ORDINARY:
        wide = _dtype(same[0])
        if wide is None or wide is dtype:
            return "with its operands prepared"
        if dtype is not None and wide.bits == dtype.bits:
            return f"computed on the same bits as {wide.name}"
        return f"computed in {wide.name} and {'rounded' if dtype is not None and dtype.is_float else 'brought back'}"
    counts = Counter(n.op_type for n in (computing or made))
    shown = ", ".join(f"{op} x{n}" if n > 1 else op for op, n in list(counts.items())[: 2 * _SHOWN])
    more = f" and {len(counts) - 2 * _SHOWN} more" if len(counts) > 2 * _SHOWN else ""
    return f"computed by {shown}{more}"


__all__ = ["Note", "lowered_by", "notes"]
