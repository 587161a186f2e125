"""A scan of a model for what keeps it from running as it is: one walk over its nodes, with the dtype of each value.

Nothing of a model is trusted. What the scan does not know, and what onnxruntime then refuses, is left to a Graph, whose
errors say what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Iterator, Sequence

import onnx

from graphcore.errors import GraphcoreError, ModelError
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.limits import AXES_OF, MAX_AXIS_NUMBERS, check_constants
from graphcore.onnx.proto.ranges import CHECKED, INDEXED
from graphcore.onnx.read.statements import versions_of
from graphcore.onnx.schemas.inference import with_checked_dims
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.workarounds import sizes
from graphcore.runtime.ort.memory import PACKED
from graphcore.runtime.sessions.direct.known_operators import (
    SIZED,
    STATES,
    VARIADIC,
    Known,
    Trail,
    filled,
    is_legal,
    known_operator,
)
from graphcore.runtime.sessions.direct.operators import LIMITED, OLDEST, constant, is_plain
from graphcore.runtime.sessions.direct.scanned_values import ScannedValues, is_within
from graphcore.types.dtypes import DType

_KINDS = onnx.AttributeProto

_MOST_COPIED = 32 << 20
"""Bytes of weights of products up to which onnxruntime copies them in less time than it takes to make a Graph."""

_SEQUENCES = 1
"""The axis of the first operand of recurrent operators that the states have too."""

_DEEPEST = 8

_SHORT = 64
"""Bytes of constants that are remembered as sound for an operator."""


class Scan(ScannedValues):
    """One scan. reason: why the model is left to a Graph; None where it is not.

    opset: of the model.
    """

    def __init__(self, rules: Legality, *, keeps_halves: bool = False) -> None:
        """keeps_halves: whether float16 stays with the runtime's kernels."""
        super().__init__(rules, keeps_halves=keeps_halves)
        self.reason: str | None = None
        self.opset = 0
        self.versions: dict[str, int] = {}
        self._maps: set[str] = set()
        self._legal: dict[tuple[str, DType], bool] = {}
        self._known: dict[str, Known] = {}
        self._sound: set[Hashable] = set()
        self._plain: set[tuple[object, ...]] = set()
        self._attributes: set[tuple[str, bytes]] = set()
        self._trail = Trail()
        self._depth = 0
        self._filled: list[tuple[str, int, str]] = []
        self._packs = False
        self._multiplies = False
        self._referred = 0

    def run(self, model: onnx.ModelProto, slim: Callable[[], onnx.ModelProto] | None = None) -> bool:
        """Return whether a model runs as it is.

        model: its large tensors may be without their content. slim: returns the model without that, for inference.
        """
        self.reason = self._model(model) or self._trail.reason(self.operators)
        if self.reason is None and self._referred > _MOST_COPIED:
            self.reason = "weights that a Graph gives by reference"
        if self.reason is None and self.has_unknown_ranks and "Concat" in self.operators:
            if self.rules.has_trap(sizes.RANKS.name):
                self.reason = "joined operands of unknown rank"
        if self.reason is None and self._filled:
            self.reason = self._unsure(model, slim)
        return self.reason is None

    def is_packed(self) -> bool | None:
        """Return whether kernels gain by an order of weights of their own; None where only shapes tell."""
        return None if self._multiplies and not self._packs else self._packs

    # Questions of rows

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
            if found is not None and found.is_plain and not self._empties:
                names, outputs = [*node.input], [*node.output]
                given = [*map(dtypes.get, names)]
                form = op_type, node.domain, len(outputs), *given, *(_written(node) if found.is_limited else ())
                is_known = form in self._plain and not (op_type == "Transpose" and names[0] in self._ranks)
                if is_known and type(node.name) is str:
                    if what := self._note_plain(found, op_type, names, outputs, given[0]):
                        return what
                    continue
            if found is None:
                found = known_operator(op_type, self.versions)
                if found is None:
                    return f"{op_type} of opset {self.opset}"
                self.operators.add(op_type)
                known[op_type] = found
            row, schema = found.row, found.schema
            if node.domain not in found.domains or type(node.name) is not str:
                return f"{op_type} of {node.domain!r}"
            if op_type == "Constant":
                if not constant(self, node):
                    return "this form of Constant"
                continue
            names, outputs = [*node.input], [*node.output]
            if not schema.min_outputs <= len(outputs) <= schema.max_outputs:
                return f"{op_type} of {len(outputs)} results"
            if not schema.min_inputs <= len(names) <= schema.max_inputs or (
                "" in names and ("" in names[: schema.min_inputs] or schema.max_inputs > VARIADIC)
            ):
                return f"{op_type} of {len(names)} operands"
            if "" in outputs and ("" in outputs[: schema.min_outputs] or schema.max_outputs > VARIADIC):
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
                if not is_legal(self.rules, op_type, decides):
                    return f"{op_type} of {decides}"
                legal[op_type, decides] = True
            if found.begins or (found.takes and trail.marks):
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
            if found.is_plain and None not in given:
                said = _written(node) if found.is_limited else ()
                self._plain.add((op_type, node.domain, len(outputs), *given, *said))
        self.note_signs(nodes)
        return None

    def _note_plain(
        self, found: Known, op_type: str, names: Sequence[str], outputs: Sequence[str], dtype: DType | None
    ) -> str | None:
        """Note the results of a node that is like another one, all of whose operands are tensors with names.

        Return what is wrong with them; None where nothing is.
        """
        assert dtype is not None
        if found.begins or (found.takes and self._trail.marks):
            self._trail.follow(op_type, names, outputs, self.dims)
        if found.rows and not self._packs and not self._many.isdisjoint(names[: found.rows]):
            self._many.update(outputs)
        dtypes, maps = self.dtypes, self._maps
        for name in outputs:
            if name in dtypes or name in maps:
                return f"the result {name!r} twice"
            if name:
                dtypes[name] = dtype
            elif found.schema.max_outputs > VARIADIC or "" in outputs[: found.schema.min_outputs]:
                return f"a result of {op_type} that has no name"
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
        if op_type not in CHECKED and op_type not in SIZED:
            return None
        key = self._content_key(op_type, names)
        if key in self._sound:
            return None
        if op_type in CHECKED and not self._takes_constants(op_type, names):
            return "operands"
        if op_type in SIZED and not all(map(self._is_bounded, names)):
            return "sizes"
        if key is not None:
            self._sound.add(key)
        return None

    def _content_key(self, op_type: str, names: Sequence[str]) -> Hashable:
        """Return what nodes have in common whose constants hold the same; None where one is not short."""
        key: list[object] = [op_type]
        for name in names:
            tensor = self._tensors.get(name)
            if tensor is None:
                key.append(None)
            elif 0 < len(raw := tensor.raw_data) <= _SHORT:
                key.append((tensor.data_type, self.dims[name], raw))
            else:
                return None
        return tuple(key)

    def _takes_constants(self, op_type: str, names: Sequence[str]) -> bool:
        """Return whether operands are as long, and constant ones hold numbers, as the operator takes."""
        lengths = (self._lengths.get(names[i], ()) for i in AXES_OF.get(op_type, ()) if i < len(names))
        if any(length > MAX_AXIS_NUMBERS for dims in lengths for length in dims):
            return False
        if self._tensors.keys().isdisjoint(names):
            return True
        places = CHECKED[op_type]
        arrays = [self._values(name) if i in places and self._is_short(name) else None for i, name in enumerate(names)]
        try:
            check_constants(op_type, arrays, op_type)
        except GraphcoreError:
            return False
        return True

    def _is_within(self, node: onnx.NodeProto, names: Sequence[str]) -> bool:
        """Return whether constant indices lie within a length that the file tells; true where it tells none."""
        name = names[INDEXED[node.op_type]]
        dims = self.dims.get(names[0]) or self._lengths.get(names[0], ())
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        is_known = name in self._tensors and -len(dims) <= axis < len(dims) and dims[axis] > 0
        return not is_known or is_within(self._values(name), dims[axis])

    def _has_plain_attributes(self, node: onnx.NodeProto) -> bool:
        """Return whether attributes say numbers and words that kernels were tried with."""
        if not node.attribute:
            return True
        key = node.op_type, b"".join(_written(node))
        if key not in self._attributes:
            if not is_plain(node):
                return False
            self._attributes.add(key)
        return True

    def _turns(self, node: onnx.NodeProto, rank: int) -> bool:
        """Return whether a Transpose has an axis for each of its operand, which onnxruntime looks at when it runs."""
        return all(len(a.ints) == rank for a in node.attribute)


def _written(node: onnx.NodeProto) -> list[bytes]:
    return [a.SerializeToString() for a in node.attribute]


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield what is known of the values of a graph and of the bodies in it."""
    yield from graph.input
    yield from graph.value_info
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == _KINDS.GRAPH:
                yield from _values(attribute.g)
