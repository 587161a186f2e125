"""Scan a model for anything that needs lowering: one walk over its nodes, with the dtype of each value.

The model is untrusted. A Graph loads everything that the scan does not know or that onnxruntime then refuses, because
its errors explain the fault.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Container, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from graphcore.errors import GraphcoreError, ModelError
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.limits import AXES_OF, MAX_AXIS_NUMBERS, check_constants
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.opened import versions_of
from graphcore.onnx.proto.ranges import CHECKED, INDEXED, MAX_CHECKED_ELEMENTS
from graphcore.runtime.lowering.decompositions.recurrent import ENDS
from graphcore.runtime.lowering.targets.legality import Legality, kernel_operand
from graphcore.runtime.lowering.workarounds import moves, sizes
from graphcore.runtime.ort.memory import PACKED
from graphcore.runtime.sessions.direct.known_operators import (
    SIZED,
    KnownOperator,
    Trail,
    filled,
    is_legal,
    known_operator,
)
from graphcore.runtime.sessions.direct.operators import LIMITED, LOWERED_ALONE, MIN_OPSET, VARIADIC, constant, is_plain
from graphcore.runtime.sessions.direct.scanned_values import STATES, ScannedValues
from graphcore.support.lazy import Lazy
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    import onnx

    from graphcore.runtime.sessions.direct import parts
    from graphcore.runtime.sessions.direct.parts import Path, Scope, Shapes
    from graphcore.runtime.sessions.direct.patches import Patches, Splice
else:  # imports onnx, which most models do not need
    parts = Lazy("graphcore.runtime.sessions.direct.parts")

_MAX_COPIED_BYTES = 32 << 20
"""Up to this many bytes, onnxruntime copies weights of products in less time than building a Graph takes."""

_ALL = 1 << 30
"""The place after the last node."""

_SEQUENCES = 1
"""The axis of sequences, which the first operand and the states of recurrent operators share."""

_CASTS_JOIN = frozenset({"Cast", *moves.PRODUCTS, "Transpose"})
"""Operators that optimisers join with a Cast."""

_MAX_DEPTH = 8
_MAX_IR_VERSION = 14

_MAX_REMEMBERED_BYTES = 64
"""Constants of up to this many bytes are remembered as valid for an operator."""


class Scan(ScannedValues):
    """A scan. reason: why the model needs a Graph; None if it does not. patches: of nodes that need lowering; None if
    there are none. splice: puts them into the file. scopes: what nodes can read, by the place of their graph."""

    def __init__(
        self,
        rules: Legality,
        *,
        keeps_halves: bool = False,
        defaults: Container[str] = frozenset(),
        new_patches: Callable[[], Patches] | None = None,
    ) -> None:
        """keeps_halves: whether onnxruntime's kernels compute float16. defaults: of inputs. new_patches: returns what
        lowers nodes; None to leave models with such nodes to a Graph."""
        self._defaults = defaults
        self._new_patches = new_patches
        self.patches: Patches | None = None
        self.splice: Splice | None = None
        self._scopes: dict[Path, Scope] = {}
        self._path: Path = ()
        self._file: onnx.ModelProto
        self._known_shapes: dict[Path, Shapes] = {}
        super().__init__(rules, keeps_halves=keeps_halves)
        self.reason: str | None = None
        self._maps: set[str] = set()
        self._operators: dict[str, KnownOperator] = {}
        self._sound: set[Hashable] = set()
        self._plain: dict[tuple[object, ...], Sequence[DType]] = {}
        self._trail = Trail()
        self._packs = False
        self._multiplied: list[tuple[Path, str]] = []
        self._product_bytes = 0

    def run(self, model: onnx.ModelProto, is_aligned: Callable[[], bool] = lambda: True) -> bool:
        """Return True if a model runs without lowering.

        model: its large tensors may lack their content. is_aligned: whether a Graph can pass this content by reference.
        """
        self._file = model
        self.reason = self._reason(model, is_aligned)
        return self.reason is None

    def _reason(self, model: onnx.ModelProto, is_aligned: Callable[[], bool]) -> str | None:
        if reason := self._model(model) or self._trail.reason(self.operators):
            return reason
        if self.is_large and is_aligned():
            return "weights that a Graph passes by reference"
        if self.has_unknown_ranks and "Concat" in self.operators and self.rules.has_trap(sizes.RANKS.name):
            return "joined operands of unknown rank"
        if self._filled and (reason := self._empty_value(model)):
            return reason
        if self.patches is not None:
            self.splice = self.patches.finish(self._op_types, self._scopes, self._shapes)
            return "lowered nodes of another opset" if self.splice is None else None
        return None

    @functools.cached_property
    def _op_types(self) -> frozenset[str]:
        """The operators of all nodes, also of those after the current one."""
        return frozenset(node.op_type for graph in nested(self._file.graph) for node in graph.node)

    @property
    def is_large(self) -> bool:
        """True if the weights of products take much memory."""
        return self._product_bytes > _MAX_COPIED_BYTES

    def is_packed(self) -> bool | None:
        """Return True if kernels gain by prepacked weights; None if that depends on shapes."""
        if self._packs or not self._multiplied:
            return self._packs
        if self.patches is None:
            return None
        return not all(_has_one_row(self._shapes(path), name) for path, name in self._multiplied)

    # The walk

    def _model(self, model: onnx.ModelProto) -> str | None:
        try:
            self.versions = versions_of(model.opset_import)
        except ModelError:
            return "two opsets"
        self.opset = self.versions.get("", 0)
        if not 0 <= model.ir_version <= _MAX_IR_VERSION:
            return f"IR version {model.ir_version}"
        if not MIN_OPSET <= self.opset <= OPSET:
            return f"opset {self.opset}"
        if model.functions or model.training_info:
            return "functions"
        graph = model.graph
        if type(graph.name) is not str:
            return "a name that is not text"
        if graph.sparse_initializer or not graph.output:
            return "sparse constants, or no outputs"
        for tensor in graph.initializer:
            if tensor.name in self._defaults:
                if 0 in tensor.dims or tensor.data_location:
                    return f"the default {tensor.name!r}"
            elif not self.takes_constant(tensor.name, tensor):
                return f"the constant {tensor.name!r}"
        for value in graph.input:
            if value.name not in self.dims and not self._takes_input(value):
                return f"the input {value.name!r}"
        return self._walk(graph.node) or self._outputs(graph, {value.name for value in graph.input})

    def _empty_value(self, model: onnx.ModelProto) -> str | None:
        """Return a value that may be empty but must not be, of a node that cannot be patched; None if there is none."""
        sure = {*filled(model.graph)}
        dims_of_inputs = (dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
        dim_names = {dim.dim_param for dim in dims_of_inputs if dim.dim_param}
        patched: set[Path] = set()
        for path, node, name, axis in self._filled:
            if name in sure or (axis == _SEQUENCES and sure.intersection(node.input[STATES : STATES + 1])):
                continue
            shapes = self._shapes(path)
            dims = shapes[name].dim if name in shapes else ()
            if len(dims) > axis and (dims[axis].dim_value > 0 or dims[axis].dim_param in dim_names):
                continue
            if path not in patched and self._patched(path, node) is None:
                return f"{name!r}, whose axis {axis} may be empty"
            patched.add(path)
        return None

    def _shapes(self, path: Path) -> Shapes:
        """Return the known shapes of the values before a node, by name; after the walk, of all in its graph or body."""
        if not self._path:
            path = (*path[:-1], _ALL)
        if path not in self._known_shapes:
            self._known_shapes[path] = parts.shapes_of(self._file, self.versions, path, self._scopes[path[:-1]])
        return self._known_shapes[path]

    def _patched(self, path: Path, node: onnx.NodeProto) -> Sequence[DType] | None:
        """Return the dtypes of the results of a node that is lowered alone; None if it cannot be."""
        if self._new_patches is None or node.op_type not in LOWERED_ALONE:
            return None
        if self.is_large or self._trail.reason(self._op_types):
            return None
        scope, shapes = self._scopes[path[:-1]], self._shapes(path)
        if node.op_type not in ENDS:  # numbers of recurrent nodes do not depend on what is known of shapes
            if not all(name in shapes or name in scope[1] for name in node.input if name):
                return None
            if node.op_type == "DFT" and not _has_known_length(node, shapes[node.input[0]].dim):
                return None
        self.patches = self.patches or self._new_patches()
        results = self.patches.add(path, node, scope, shapes)
        if "Cast" in self.patches.outer and not _CASTS_JOIN.isdisjoint(self._op_types):
            return None
        op_types = {op_type for op_type, _ in self.patches.present}
        self._packs = self._packs or not op_types.isdisjoint(PACKED)
        self.operators |= op_types
        return results

    def _outputs(self, graph: onnx.GraphProto, outer: Container[str]) -> str | None:
        """Return the fault of outputs that are not results of nodes; None if there is none. outer: other names."""
        names = [o.name for o in graph.output]
        results = self.dtypes.keys() | self._maps
        are_made = all(name in results and name not in self.dims and name not in outer for name in names)
        return None if are_made and len({*names}) == len(names) else "outputs that are not results of nodes"

    def _branches(self, node: onnx.NodeProto) -> Sequence[DType] | None:
        """Return the dtypes of an If's results; None if its bodies differ in them, or one of them needs a Graph."""
        if len(self._path) > 2 * _MAX_DEPTH or len(node.attribute) != 2:
            return None
        first, second = (self._body(attribute.g, place) for place, attribute in enumerate(node.attribute))
        return first if first == second and first is not None and len(first) == len(node.output) else None

    def _body(self, graph: onnx.GraphProto, place: int) -> list[DType] | None:
        """Return the dtypes of a body's outputs; None for a body that needs a Graph. place: of its attribute."""
        if graph.sparse_initializer or graph.input:
            return None
        outer, many, path = (self.dtypes, self.dims, self.casts, self._tensors), self._many, self._path
        self.dtypes, self.dims, self.casts, self._tensors = (dict(d) for d in outer)  # type: ignore[assignment]
        self._many, self._path = {*many}, (*path, place)
        try:
            if not all(self.takes_constant(t.name, t) for t in graph.initializer) or self._walk(graph.node):
                return None
            dtypes = [self.dtypes.get(o.name) for o in graph.output]
            return None if None in dtypes or self._outputs(graph, outer[0]) else dtypes  # type: ignore[return-value]
        finally:
            self.dtypes, self.dims, self.casts, self._tensors = outer
            self._many, self._path = many, path

    def _walk(self, nodes: Sequence[onnx.NodeProto]) -> str | None:
        dtypes, outer = self.dtypes, self._path
        self._scopes[outer] = dtypes, self._tensors
        for place, node in enumerate(nodes):
            self._path = (*outer, place)
            trapped = len(self._filled)
            what = self._note_node(node)
            if what is not None:
                del self._filled[trapped:]
                results = self._patched(self._path, node)
                names = [name for name in node.output if name]
                if results is None or not dtypes.keys().isdisjoint(names):
                    return what
                dtypes.update(zip(names, results, strict=True))
        self._path = outer
        self.note_signs(nodes)
        return None

    def _note_node(self, node: onnx.NodeProto) -> str | None:
        """Note the results of a node. Returns what needs a Graph; None if nothing does."""
        op_type, names, outputs = node.op_type, [*node.input], [*node.output]
        rule = self._operators.get(op_type)
        if rule is None:
            rule = known_operator(op_type, self.versions)
            if rule is None:
                return f"{op_type} of opset {self.opset}"
            self.operators.add(op_type)
            self._operators[op_type] = rule
        row, arity = rule.row, rule.arity
        operands = [*map(self.dtypes.get, names)]
        form: tuple[object, ...] = ()
        if rule.is_plain and not self._empties:  # a node that equals a checked one needs no other checks
            form = op_type, node.domain, len(outputs), *operands, *(_serialised(node) if op_type in LIMITED else ())
            cached = self._plain.get(form)
            if cached is not None and "" not in outputs and type(node.name) is str:
                if op_type != "Transpose" or names[0] not in self._lengths:
                    return self._note_results(node, rule, names, outputs, cached)
        if node.domain not in rule.domains or type(node.name) is not str:
            return f"{op_type} of {node.domain!r}"
        if op_type == "Constant":
            return None if constant(self, node) else "this form of Constant"
        if not arity.min_outputs <= len(outputs) <= arity.max_outputs:
            return f"{op_type} of {len(outputs)} results"
        if not arity.min_inputs <= len(names) <= arity.max_inputs or (
            "" in names and ("" in names[: arity.min_inputs] or arity.max_inputs > VARIADIC)
        ):
            return f"{op_type} of {len(names)} operands"
        if "" in outputs and ("" in outputs[: arity.min_outputs] or arity.max_outputs > VARIADIC):
            return f"a result of {op_type} that has no name"  # kernels end the process
        if self._empties and op_type != "Resize" and not self._empties.isdisjoint(names):
            return f"{op_type} of an empty constant"
        if what := self._untested_part(node, names):
            return f"the {what} of {op_type}"
        result_dtypes = self._branches(node) if op_type == "If" else row.results(self, node, operands)
        if result_dtypes is None or len(result_dtypes) < len(outputs):
            return f"this form of {op_type}"
        if row.gives_map:
            if len(self._path) > 1:
                return f"{op_type} in a body"
            self._maps.update(outputs)
            return None
        decides = (operands[row.decides] if operands else None) or result_dtypes[0]
        if not row.domain and not is_legal(self.rules, op_type, decides):
            return f"{op_type} of {decides}"
        if op_type in PACKED:
            self._packs = self._packs or any(len(self.dims.get(name, ())) > 1 for name in names)
        elif op_type in ("MatMul", "Gemm") and names[1] in self.dims:
            self._multiplied.append((self._path, names[0]))
            self._packs = self._packs or names[0] in self._many
            self._product_bytes += math.prod(self.dims[names[1]]) * self.dtypes[names[1]].bits // 8
        if form and None not in operands:
            self._plain[form] = result_dtypes
        return self._note_results(node, rule, names, outputs, result_dtypes)

    def _note_results(
        self,
        node: onnx.NodeProto,
        rule: KnownOperator,
        names: Sequence[str],
        outputs: Sequence[str],
        result_dtypes: Sequence[DType],
    ) -> str | None:
        """Note the results of a checked node. Returns their fault; None if there is none."""
        if rule.is_marked:
            self._trail.follow(node.op_type, names, outputs, self.dims)
        if rule.rows and not self._packs and not self._many.isdisjoint(names[: rule.rows]):
            if node.op_type != "Gemm" or not any(a.name == "transA" and a.i for a in node.attribute):
                self._many.update(outputs)
        for name, dtype in zip(outputs, result_dtypes, strict=False):
            if name in self.dtypes or name in self._maps:
                return f"the result {name!r} twice"
            if name:
                self.dtypes[name] = dtype
        return None

    def _untested_part(self, node: onnx.NodeProto, names: Sequence[str]) -> str | None:
        """Return the part of a node that kernels were not tested with, such as "attributes"; None if there is none."""
        op_type = node.op_type
        if op_type in LIMITED and node.attribute:
            attributes = (op_type, *_serialised(node))
            if attributes not in self._sound and not is_plain(node):
                return "attributes"
            self._sound.add(attributes)
        if op_type == "Transpose" and names[0] in self._lengths:  # onnxruntime checks it only when it runs
            if any(len(a.ints) != len(self._lengths[names[0]]) for a in node.attribute):
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
        """Return a key that is equal for nodes with equal constants; None if a constant is too large."""
        key: list[object] = [op_type]
        for name in names:
            tensor = self._tensors.get(name)
            if tensor is None:
                key.append(None)
            elif 0 < len(raw := tensor.raw_data) <= _MAX_REMEMBERED_BYTES:
                key.append((tensor.data_type, self.dims[name], raw))
            else:
                return None
        return tuple(key)

    def _takes_constants(self, op_type: str, names: Sequence[str]) -> bool:
        """Return True if the lengths of operands, and the numbers in constant ones, are valid for the operator."""
        lengths = (self._lengths.get(names[i], ()) for i in AXES_OF.get(op_type, ()) if i < len(names))
        if any(length > MAX_AXIS_NUMBERS for dims in lengths for length in dims):
            return False
        if self._tensors.keys().isdisjoint(names):
            return True
        arrays = [
            self._values(name)
            if i in CHECKED[op_type] and math.prod(self.dims.get(name, ())) <= MAX_CHECKED_ELEMENTS
            else None
            for i, name in enumerate(names)
        ]
        try:
            check_constants(op_type, arrays, op_type)
        except GraphcoreError:
            return False
        return True

    def _is_within(self, node: onnx.NodeProto, names: Sequence[str]) -> bool:
        """Return True if constant indices are within the axis, or the length of the axis is unknown."""
        name = names[INDEXED[node.op_type]]
        dims = self.dims.get(names[0]) or self._lengths.get(names[0], ())
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        is_known = name in self._tensors and -len(dims) <= axis < len(dims) and dims[axis] > 0
        indices = self._values(name) if is_known else None
        return indices is None or not indices.size or bool(-dims[axis] <= indices.min() and indices.max() < dims[axis])


class CountingScan(Scan):
    """A scan for a report. counts: of nodes by operator and the dtype that selects the kernel."""

    def __init__(self, rules: Legality, **options: Any) -> None:
        super().__init__(rules, **options)
        self.counts: Counter[tuple[str, str]] = Counter()

    def _walk(self, nodes: Sequence[onnx.NodeProto]) -> str | None:
        fault = super()._walk(nodes)
        for node in nodes:
            op_type, place = node.op_type, kernel_operand(node.op_type, len(node.input))
            dtype = self.dtypes.get((place is not None and node.input[place]) or node.output[0])
            if op_type != "Constant":
                name = f"{node.domain}.{op_type}" if node.domain not in ("", "ai.onnx") else op_type
                self.counts[name, "" if dtype is None else dtype.name] += 1
        return fault


def _has_known_length(node: onnx.NodeProto, dims: Sequence[onnx.TensorShapeProto.Dimension]) -> bool:
    """Return True if the length of a Fourier transform is known, and whether it is of complex numbers."""
    axes = [a.i for a in node.attribute if a.name == "axis" and -len(dims) <= a.i < len(dims)]
    return all(dim.dim_value for dim in ((dims[axes[0]], dims[-1]) if axes else dims))


def _has_one_row(shapes: Shapes, name: str) -> bool:
    return name in shapes and all(dim.dim_value == 1 for dim in shapes[name].dim[:-1])


def _serialised(node: onnx.NodeProto) -> list[bytes]:
    return [a.SerializeToString() for a in node.attribute]
