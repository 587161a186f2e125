"""A scan of a model for what keeps it from running as it is: one walk over its nodes, with the dtype of each value.

Nothing of a model is trusted. What the scan does not know, and what onnxruntime then refuses, is left to a Graph, whose
errors say what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphcore.errors import GraphcoreError, ModelError
from graphcore.onnx.opset import OPSET
from graphcore.onnx.proto.limits import check_constants
from graphcore.onnx.proto.ranges import CHECKED, INDEXED, LONGEST
from graphcore.onnx.read.opsets import versions_of
from graphcore.onnx.schemas.checked_dims import with_checked_dims
from graphcore.onnx.schemas.schemas import Operator, operator, schema_of
from graphcore.runtime.direct.attributes import LIMITED, is_plain
from graphcore.runtime.direct.constants import is_bounded, is_of_bits, is_text, is_within, values
from graphcore.runtime.direct.filled import STATES, filled
from graphcore.runtime.direct.fusible import BEGINS, Trail
from graphcore.runtime.direct.ml_operators import ML_ROWS
from graphcore.runtime.direct.operators import OLDEST, ROWS, Row, constant
from graphcore.runtime.lowering.decompositions import keeps_half, keeps_kernel, rows_of
from graphcore.runtime.lowering.guards import negative_axes
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.memory.prepacking import PACKED
from graphcore.types.dtypes import DType

_DTYPES: dict[int, DType] = {
    dtype.onnx: dtype
    for dtype in (
        DType.bool, DType.int8, DType.uint8, DType.int32, DType.int64, DType.float32, DType.float64, DType.string
    )
}  # fmt: skip
"""The dtypes of models that run as they are, by ONNX's number. float16 is another where it stays with the runtime."""

_KINDS = onnx.AttributeProto
_SIZED = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Reshape", "Resize", "Tile"})
"""Operators whose operands say sizes, and some the factors of sizes."""

_GUARDED = frozenset({"Div", "GRU", "LSTM", "MatMul", "Mod", "Resize"})
"""Operators of whose decompositions the rows leave nothing to do: they leave what needs them to a Graph."""

_SMALL = 64
"""Bytes of constants that are compared."""

_MOST_COPIED = 32 << 20
"""Bytes of weights of products up to which onnxruntime copies them in less time than it takes to make a Graph."""

_SEQUENCES = 1
"""The axis of the first operand of recurrent operators that the states have too."""

_VARIADIC = 1 << 30
"""Results that only an operator with any number of them has."""

_ONNX = ("", "ai.onnx")
_DEEPEST = 8

_ROWS_STAY = frozenset(
    "Add Sub Mul Div Relu LeakyRelu Sigmoid Tanh Softmax LogSoftmax MatMul Gemm Identity Cast Clip Elu Abs Exp Log"
    " Sqrt Neg Softplus Constant BatchNormalization LayerNormalization".split()
)
"""Operators that leave the rows of a matrix as many as they are: not one where their first operand has several."""

_BROADCASTS = frozenset(("Add", "Sub", "Mul", "Div"))


_LOOKED_AT = frozenset({*LIMITED, *INDEXED, *CHECKED, *_SIZED})
"""Operators of which attributes or operands are looked at."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An operator at the opset of a model. begins: whether it sets first marks. rows: how many operands, from the first
    on, give its result as many rows as they have; 0 where it may have others."""

    row: Row
    schema: Operator
    domains: tuple[str, ...]
    is_looked_at: bool
    begins: bool
    rows: int


class Scan:
    """One scan. reason: why the model is left to a Graph; None where it is not.

    opset: of the model. dtypes, dims: of values by name; the dims are those of constants. casts: by the name of its
    result, from which dtype each Cast is. constants: their number. operators: the names of those that were met.
    """

    def __init__(self, rules: Legality, *, keeps_halves: bool = False) -> None:
        """keeps_halves: whether float16 stays with the runtime's kernels."""
        self.rules = rules
        self._stored = {**_DTYPES, DType.float16.onnx: DType.float16} if keeps_halves else _DTYPES
        self.dtypes: dict[str, DType] = {}
        self.dims: dict[str, tuple[int, ...]] = {}
        self.casts: dict[str, DType] = {}
        self.constants = 0
        self.reason: str | None = None
        self.operators: set[str] = set()
        self._tensors: dict[str, onnx.TensorProto] = {}
        self.opset = 0
        self.versions: dict[str, int] = {}
        self._maps: set[str] = set()
        self._many: set[str] = set()
        self._legal: dict[tuple[str, DType], bool] = {}
        self._known: dict[str, _Known] = {}
        self._ranks: dict[str, int] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}
        self._attributes: set[tuple[str, bytes]] = set()
        self._trail = Trail()
        self._depth = 0
        self._empties: set[str] = set()
        self._filled: list[tuple[str, int, str]] = []
        self._packs = False
        self._multiplies = False
        self._referred = 0
        self._trapped = rules.has_trap(negative_axes.GUARD.trap)

    def run(self, model: onnx.ModelProto, slim: Callable[[], onnx.ModelProto] | None = None) -> bool:
        """Return whether a model runs as it is.

        model: its large tensors may be without their content. slim: returns the model without that, for inference.
        """
        self.reason = self._model(model) or self._trail.reason(self.operators)
        if self.reason is None and self._referred > _MOST_COPIED:
            self.reason = "weights that a Graph gives by reference"
        if self.reason is None and self._filled:
            self.reason = self._unsure(model, slim)
        return self.reason is None

    @property
    def has_empty_constants(self) -> bool:
        """Return whether some constant has no elements."""
        return bool(self._empties)

    @property
    def has_float64(self) -> bool:
        """Return whether some value is of float64."""
        return DType.float64 in self.dtypes.values()

    def different(self) -> int:
        """Return how many different values the constants have, of which each large one counts as another."""
        found = self._tensors.items()
        return len({(t.data_type, *t.dims, t.raw_data) if 0 < len(t.raw_data) <= _SMALL else n for n, t in found})

    def is_packed(self) -> bool | None:
        """Return whether kernels gain by an order of weights of their own; None where only shapes tell."""
        return None if self._multiplies and not self._packs else self._packs

    # Questions of rows

    def dtype_of(self, number: int) -> DType | None:
        """Return the dtype of ONNX's number; None for one that is left to a Graph."""
        return self._stored.get(number)

    def takes_constant(self, name: str, tensor: onnx.TensorProto) -> bool:
        """Note a constant. Return whether it is of one of the dtypes, within the model, and alone of its name."""
        dtype = self._stored.get(tensor.data_type)
        if dtype is None or tensor.data_location or name in self.dtypes or not name:
            return False
        if dtype is DType.string and not is_text(tensor):
            return False
        if dtype is DType.bool and not is_of_bits(tensor):
            return False
        dims = self.dims[name] = tuple(tensor.dims)
        if 0 in dims:
            self._empties.add(name)
        self.dtypes[name] = dtype
        self._tensors[name] = tensor
        self.constants += 1
        return True

    def divides(self, name: str) -> bool:
        """Return whether a divisor is a constant of integers by which every integer can be divided."""
        found = self._values(name)
        return found is not None and not ((found == 0) | (found == -1)).any()

    def reduces(self, node: onnx.NodeProto) -> bool:
        """Return whether a reduction does not meet the trap of axes below 0."""
        if not self._trapped:
            return True
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
        if axes is None and len(node.input) > 1 and node.input[1]:
            found = self._values(node.input[1])
            axes = [-1] if found is None else found.tolist()
        return all(axis >= 0 for axis in axes or ())

    def require_elements(self, names: Sequence[str], axes: Sequence[int]) -> None:
        """Leave the model to a Graph where these axes of the first operand of a recurrent node may be empty."""
        states = names[STATES] if len(names) > STATES else ""
        self._filled += [(names[0], axis, states) for axis in axes]

    def branches(self, node: onnx.NodeProto) -> Sequence[DType] | None:
        """Return the dtypes of what the bodies of an If give; None where they differ, or a node of them has no row."""
        given: list[list[DType]] = []
        if self._depth == _DEEPEST:
            return None
        for attribute in node.attribute:
            inner = self._body(attribute.g)
            if inner is None:
                return None
            given.append(inner)
        return given[0] if len(given) == 2 and given[0] == given[1] and len(given[0]) == len(node.output) else None

    # The walk

    def _model(self, model: onnx.ModelProto) -> str | None:
        try:
            self.versions = versions_of(model.opset_import)
        except ModelError:
            return "two opsets"
        self.opset = self.versions.get("", 0)
        if not 0 <= model.ir_version <= onnx.IR_VERSION:
            return f"IR version {model.ir_version}"
        if not OLDEST <= self.opset <= OPSET:
            return f"opset {self.opset}"
        if model.functions or model.training_info:
            return "functions"
        graph = model.graph
        if type(graph.name) is not str:
            return "a name that is no text"
        if graph.sparse_initializer or not graph.output:
            return "sparse constants, or no outputs"
        for tensor in graph.initializer:
            if not self.takes_constant(tensor.name, tensor):
                return f"the constant {tensor.name!r}"
        for value in graph.input:
            if value.name not in self.dims and not self._takes_input(value):
                return f"the input {value.name!r}"
        return self._nodes(graph.node) or self._outputs(graph, {value.name for value in graph.input})

    def _unsure(self, model: onnx.ModelProto, slim: Callable[[], onnx.ModelProto] | None) -> str | None:
        """Return which value may turn out to be empty that must not be; None where there is none."""
        sure = filled(model.graph)
        left = [(name, axis) for name, axis, states in self._filled
                if name not in sure and not (axis == _SEQUENCES and states in sure)]  # fmt: skip
        if not left:
            return None
        known = {d.dim_param for value in model.graph.input for d in value.type.tensor_type.shape.dim if d.dim_param}
        try:
            safe = with_checked_dims(model if slim is None else slim(), self.operators)
            found = onnx.shape_inference.infer_shapes(safe)
        except Exception:
            return "its shapes"
        shapes = {v.name: v.type.tensor_type.shape.dim for v in _values(found.graph)}
        for name, axis in left:
            dims = shapes.get(name, ())
            if len(dims) <= axis or not (dims[axis].dim_value > 0 or dims[axis].dim_param in known):
                return f"{name!r}, whose axis {axis} may be empty"
        return None

    def _takes_input(self, value: onnx.ValueInfoProto) -> bool:
        tensor = value.type.tensor_type
        dtype = self._stored.get(tensor.elem_type)
        if dtype is None or type(value.name) is not str or not value.name or value.name in self.dtypes:
            return False
        if any(d.HasField("dim_value") and (d.dim_value == 0 or d.dim_value < -1) for d in tensor.shape.dim):
            return False
        self.dtypes[value.name] = dtype
        if tensor.HasField("shape"):
            dims = tensor.shape.dim
            self._ranks[value.name] = len(dims)
            self._lengths[value.name] = tuple(d.dim_value for d in dims)
            if len(dims) > 1 and dims[0].dim_value != 1:
                self._many.add(value.name)
        return True

    def _outputs(self, graph: onnx.GraphProto, outer: Container[str]) -> str | None:
        """Return what is wrong with outputs that no node of the graph gives. outer: what else has names."""
        names = [o.name for o in graph.output]
        made = self.dtypes.keys() | self._maps
        are_made = all(name in made and name not in self.dims and name not in outer for name in names)
        return None if are_made and len({*names}) == len(names) else "outputs that are no results of nodes"

    def _body(self, graph: onnx.GraphProto) -> list[DType] | None:
        """Return the dtypes of a body's outputs; None for one that is left to a Graph."""
        if graph.sparse_initializer or graph.input:
            return None
        outer, many = (self.dtypes, self.dims, self.casts, self._tensors), self._many
        self.dtypes, self.dims, self.casts, self._tensors = (dict(d) for d in outer)  # type: ignore[assignment]
        self._many = {*many}
        self._depth += 1
        try:
            if not all(self.takes_constant(t.name, t) for t in graph.initializer) or self._nodes(graph.node):
                return None
            found = [self.dtypes.get(o.name) for o in graph.output]
            return None if None in found or self._outputs(graph, outer[0]) else found  # type: ignore[return-value]
        finally:
            self._depth -= 1
            self.dtypes, self.dims, self.casts, self._tensors = outer
            self._many = many

    def _nodes(self, nodes: Sequence[onnx.NodeProto]) -> str | None:
        dtypes, known, legal, trail = self.dtypes, self._known, self._legal, self._trail
        for node in nodes:
            op_type = node.op_type
            found = known.get(op_type)
            if found is None:
                found = self._row(op_type)
                if found is None:
                    return f"{op_type} of opset {self.opset}"
                known[op_type] = found
            row, schema = found.row, found.schema
            if node.domain not in found.domains or type(node.name) is not str:
                return f"{op_type} of {node.domain!r}"
            if op_type == "Constant":
                if not constant(self, node):
                    return "this form of Constant"
                continue
            names, outputs = [*node.input], [*node.output]
            if not schema.fewest <= len(names) <= schema.most or (
                "" in names and ("" in names[: schema.fewest] or schema.most > _VARIADIC)
            ):
                return f"{op_type} of {len(names)} operands"
            if "" in outputs and ("" in outputs[: schema.fewest_results] or schema.most_results > _VARIADIC):
                return f"a result of {op_type} that has no name"  # kernels end the process
            given = [*map(dtypes.get, names)]
            if self._empties and op_type != "Resize" and not self._empties.isdisjoint(names):
                return f"{op_type} of an empty constant"
            if found.is_looked_at and (what := self._unfit(node, names)):
                return f"the {what} of {op_type}"
            results = row.results
            if results is None:
                first = given[0] if given else None
                made: Sequence[DType] | None = None if first is None else [first] * len(outputs)
            else:
                made = results(self, node, given)
            if made is None or len(made) < len(outputs):
                return f"this form of {op_type}"
            if row.gives_map:
                if self._depth:
                    return f"{op_type} in a body"
                self._maps.update(outputs)
                continue
            decides = (given[row.decides] if given else None) or made[0]
            if not row.domain and not legal.get((op_type, decides)):
                if not self._is_legal(op_type, decides):
                    return f"{op_type} of {decides}"
                legal[op_type, decides] = True
            if found.begins or trail.marks:
                trail.follow(op_type, names, outputs, self.dims)
            if op_type in PACKED:
                self._packs = self._packs or any(len(self.dims.get(name, ())) > 1 for name in names)
            elif op_type in ("MatMul", "Gemm") and names[1] in self.dims:
                self._multiplies = True
                self._packs = self._packs or names[0] in self._many
                self._referred += math.prod(self.dims[names[1]]) * self.dtypes[names[1]].bits // 8
            if found.rows and not self._packs and not self._many.isdisjoint(names[: found.rows]):
                if op_type != "Gemm" or not any(a.name == "transA" and a.i for a in node.attribute):
                    self._many.update(outputs)
            for name, dtype in zip(outputs, made, strict=False):
                if name in dtypes or name in self._maps:
                    return f"the result {name!r} twice"
                if name:
                    dtypes[name] = dtype
        return None

    def _unfit(self, node: onnx.NodeProto, names: Sequence[str]) -> str | None:
        """Return what kernels were not tried with: some attributes or operands. None where there is nothing."""
        op_type = node.op_type
        if op_type in LIMITED and not self._has_plain_attributes(node):
            return "attributes"
        if op_type == "Transpose" and names[0] in self._ranks and not self._turns(node, self._ranks[names[0]]):
            return "axes"
        if op_type in INDEXED and not self._is_within(node, names):
            return "indices"
        if op_type in CHECKED and not self._takes_constants(op_type, names):
            return "operands"
        return "sizes" if op_type in _SIZED and not all(map(self._is_bounded, names)) else None

    def _takes_constants(self, op_type: str, names: Sequence[str]) -> bool:
        """Return whether constant operands hold numbers that the operator takes."""
        if self._tensors.keys().isdisjoint(names):
            return True
        places = CHECKED[op_type]
        arrays = [self._values(name) if i in places and self._is_short(name) else None for i, name in enumerate(names)]
        try:
            check_constants(op_type, arrays, op_type)
        except GraphcoreError:
            return False
        return True

    def _is_short(self, name: str) -> bool:
        return math.prod(self.dims.get(name, ())) <= LONGEST

    def _is_within(self, node: onnx.NodeProto, names: Sequence[str]) -> bool:
        """Return whether constant indices lie within a length that the file tells; true where it tells none."""
        name = names[INDEXED[node.op_type]]
        dims = self.dims.get(names[0]) or self._lengths.get(names[0], ())
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        is_known = name in self._tensors and -len(dims) <= axis < len(dims) and dims[axis] > 0
        return not is_known or is_within(self._values(name), dims[axis])

    def _row(self, op_type: str) -> _Known | None:
        """Return what is known of an operator at the model's opset; None where it has no row."""
        row = ROWS.get(op_type) or ML_ROWS.get(op_type)
        schema = None if row is None else schema_of(op_type, row.domain, self.versions.get(row.domain, 0))
        if row is None or schema is None or schema.deprecated:
            return None
        self.operators.add(op_type)
        return _Known(
            row=row,
            schema=operator(schema),
            domains=(row.domain,) if row.domain else _ONNX,
            is_looked_at=op_type in _LOOKED_AT,
            begins=op_type in BEGINS,
            rows=(2 if op_type in _BROADCASTS else 1) if op_type in _ROWS_STAY else 0,
        )

    def _is_legal(self, op_type: str, dtype: DType) -> bool:
        if op_type in ("Cast", "If", "Constant"):
            return True
        if dtype is DType.float16:
            return keeps_half(self.rules, op_type, dtype) or (
                op_type in _GUARDED and self.rules.runs_half(op_type, dtype)
            )
        if not self.rules.allows(op_type, dtype):
            return False
        is_guarded = op_type in _GUARDED
        return is_guarded or keeps_kernel(op_type, dtype, None) or (op_type, dtype) not in rows_of(self.rules).rows

    def _has_plain_attributes(self, node: onnx.NodeProto) -> bool:
        """Return whether attributes say numbers and words that kernels were tried with."""
        if not node.attribute:
            return True
        key = node.op_type, b"".join([a.SerializeToString() for a in node.attribute])
        if key not in self._attributes:
            if not is_plain(node):
                return False
            self._attributes.add(key)
        return True

    def _turns(self, node: onnx.NodeProto, rank: int) -> bool:
        """Return whether a Transpose has an axis for each of its operand, which onnxruntime looks at when it runs."""
        return all(len(a.ints) == rank for a in node.attribute)

    def _is_bounded(self, name: str) -> bool:
        """Return whether a constant that may say sizes says small ones; true for what is no small constant."""
        tensor = self._tensors.get(name)
        return tensor is None or is_bounded(tensor, self.dtypes[name])

    def _values(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the values of a small constant; None for what is none, and for one that is damaged."""
        tensor = self._tensors.get(name)
        return None if tensor is None else values(tensor, self.dtypes[name])


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield what is known of the values of a graph and of the bodies in it."""
    yield from graph.input
    yield from graph.value_info
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == _KINDS.GRAPH:
                yield from _values(attribute.g)


__all__ = ["Scan"]
