"""Read nodes of a model, a body or a function into a Graph: check, type, and convert them to the opset of Graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore.custom_ops.declaration import require_callable
from graphcore.ir.definitions import new_body
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import Attributes, change
from graphcore.ir.state.settings import FAST, KEY, OPERATORS
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.onnx.notes import ONNX_DOMAINS
from graphcore.onnx.proto import tensors
from graphcore.onnx.proto.limits import check_axes, check_elements, check_size, invalid
from graphcore.onnx.proto.opened import graph_name, versions_of
from graphcore.onnx.proto.ranges import POSITIONS
from graphcore.onnx.proto.tensors import constant_value, dtype_value, read_attributes
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.proto.value_protos import Large
from graphcore.onnx.read import bodies
from graphcore.onnx.read.bodies import ResultTypes, declared_types
from graphcore.onnx.read.checks import check_call, check_declared, check_declared_default, check_node, place_of
from graphcore.onnx.read.fields import graph_fields, origins
from graphcore.onnx.read.model import ModelContext, sort_nodes
from graphcore.onnx.read.statements import (
    BodyStatements,
    NodeSignature,
    Statement,
    make_statements,
    version_of,
)
from graphcore.onnx.schemas.schemas import check_operands, operator, required_attributes, schema_of
from graphcore.onnx.versions import ReadNode, convert, is_unchanged, older
from graphcore.support.source_lines import Loaded, OfFile
from graphcore.types.dtypes import TRANSPORT, DType
from graphcore.types.tensor_types import OpaqueType, TensorType, Type, _shape, tensor_type

_MAX_UNNAMED_BYTES = 4096
"""Constants of at most this many bytes do not keep their names. Larger ones are weights in files of some exporters."""
_set_given_name = Symbol.__dict__["given_name"].__set__  # an assignment would call `__setattr__`
_DTYPE_ATTRIBUTES = frozenset({("Cast", "to"), ("BitCast", "to")})


class NodeReader:
    """Reads nodes into one Graph: those of a model, a body, or a called function."""

    def __init__(
        self,
        model: ModelContext,
        graph: Graph,
        versions: Mapping[str, int],
        declared_types: Mapping[str, onnx.TypeProto],
        values: dict[str, Symbol | None] | None = None,
        outer: NodeReader | None = None,
        depth: int = 0,
    ) -> None:
        self.model = model
        self.graph = graph
        self.versions = versions
        self.values = {} if values is None else values
        self.outer = outer
        self.depth = depth
        self.prefix: str | None = outer.prefix if outer is not None else "" if not depth else None
        """The prefix of the names of nodes; None for nodes that are not of the file."""
        self._has_functions = bool(model.functions)
        self._types = ResultTypes(model, versions, declared_types)
        self.is_top = outer is None and not depth
        self._keeps_names = self.is_top or (outer is not None and model.keeps_fields and self.prefix is not None)
        """True if values have their names in the file. Those of a function that is expanded do not."""
        model.limits.check("depth", depth, f"the model nests bodies and functions {depth} deep")

    # Graphs

    def graph_proto(self, read: BodyStatements, large: Large, inputs: Sequence[Symbol] | None = None) -> None:
        """Read a whole graph: constants, inputs (unless passed), nodes, outputs."""
        proto = read.proto
        site = self.graph.site
        if self.model.origin is not None:
            site.is_user, site.origin = False, self.model.origin
        folder = self.model.folder
        names = [*(t.name for t in proto.initializer), *(s.values.name for s in proto.sparse_initializer)]
        tensors_read = [tensors.array_of(t, folder, large.initializers.get(i)) for i, t in enumerate(proto.initializer)]
        tensors_read += [tensors.dense(sparse, folder) for sparse in proto.sparse_initializer]
        arrays = tensors.align([array for array, _ in tensors_read])
        defaults: dict[str, tuple[np.ndarray[Any, Any], DType]] = {}
        for name, array, (_, dtype) in zip(names, arrays, tensors_read, strict=True):
            if inputs is None and name in self.model.defaults:
                defaults[name] = array, dtype
            else:
                self._initializer(name, array, dtype)
        if inputs is None:
            self._inputs([i for i in proto.input if i.name not in self.values], defaults)
        for position, content in large.nodes.items():
            read.statements[position].content = content
        self._statements(read.statements)
        outputs = [(o.name, self._output(o)) for o in proto.output]
        self.graph.build.outputs(outputs)
        site.is_user, site.origin = True, None
        if self.model.keeps_fields and self.prefix is not None:
            self.graph.file_fields = graph_fields(self.model, proto, self.is_top)
        if self.model.origin is None and not self.model.keeps_fields:
            for node in self.graph.nodes:
                change(node, origin=self.model.line)

    def _inputs(
        self, infos: Sequence[onnx.ValueInfoProto], defaults: Mapping[str, tuple[np.ndarray[Any, Any], DType]]
    ) -> None:
        for info in infos:
            type_ = read_type(info.type)
            default, dtype = defaults.get(info.name, (None, None))
            if default is not None:
                check_declared_default(type_, TensorType(dtype, default.shape), info.name)
            if isinstance(type_, TensorType):
                stored, type_ = type_.dtype, tensor_type(self.model.dtype(info.name, type_.dtype), type_.shape)
            check_elements(type_, self.model.limits, info.name)
            small = type_.dtype if isinstance(type_, TensorType) and type_.dtype in TRANSPORT else None
            if small is not None and default is not None:
                default = default.astype(small.numpy)
            symbol = self.graph.build.input(type_, info.name if self.is_top else None, default=default)
            if small is not None:
                symbol = self.graph.build.cast(symbol, stored)
            self.define(info.name, symbol)

    def _initializer(self, name: str, array: np.ndarray[Any, Any], dtype: DType) -> None:
        type_ = tensor_type(self.model.dtype(name, dtype), TensorType(dtype, array.shape).shape)
        if is_small := type_.dtype in TRANSPORT:
            array = array.astype(type_.dtype.numpy)
        producer = Constant(array, True, self.graph.site.origin)
        symbol = self.graph.build.symbol(type_, producer, name if self._keeps_names else None)
        self.define(name, self.graph.build.cast(symbol, dtype) if is_small else symbol)

    def _output(self, info: onnx.ValueInfoProto) -> Symbol:
        symbol = self.value(info.name)
        if symbol is None:
            raise invalid(f"no node computes the output {info.name!r}")
        declared = read_type(info.type)
        check_declared(symbol, declared, info.name)
        if isinstance(symbol.type, OpaqueType) and not symbol.type.onnx and not isinstance(declared, OpaqueType):
            change(symbol, type=declared)  # of an operator of another domain
        if isinstance(symbol.type, TensorType) and isinstance(symbol.producer, Node):
            dtype = self.model.dtype(info.name, symbol.type.dtype) if self.is_top else symbol.type.dtype
            if dtype in TRANSPORT and dtype is not symbol.type.dtype:
                if symbol.given_name == info.name:  # which the result of the cast takes over
                    del self.graph.names.taken[info.name]
                    change(symbol, given_name=None)
                type_ = tensor_type(dtype, symbol.type.shape)
                symbol = self.graph.build.emit("Cast", (symbol,), type_, {"to": dtype, "within": True})
                self._name(symbol, info.name)
            shape = symbol.type.shape
            if self.is_top and not shape.is_ranked and isinstance(declared, TensorType):
                shape = declared.shape  # ONNX's checker rejects outputs of unknown rank
            if dtype is not symbol.type.dtype or shape is not symbol.type.shape:
                change(symbol, type=tensor_type(dtype, shape))
        return symbol

    # Values

    def define(self, name: str, symbol: Symbol) -> None:
        if name in self.values:
            raise invalid(f"two values have the name {name!r}", help="names of values must be unique in ONNX")
        if self.model.checks_elements:
            check_elements(symbol.type, self.model.limits, name)
        self.values[name] = symbol

    def _name(self, symbol: Symbol, name: str) -> None:
        """Give a node's result its name in the model."""
        if not self._keeps_names or symbol.given_name is not None:
            return
        taken, producer = self.graph.names.taken, symbol.producer
        is_named = type(producer) is Node or (
            isinstance(producer, Constant) and producer.array.nbytes > _MAX_UNNAMED_BYTES
        )
        if is_named and name not in taken:
            _set_given_name(symbol, name)
            taken[name] = symbol

    def value(self, name: str) -> Symbol | None:
        """Return the value of a name, of this graph or an outer one. None for the empty name."""
        if not name:
            return None
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            raise invalid(
                f"{name!r} is used, but no node computes it", help="the model is truncated, or names are misspelt"
            )
        outer_value = self.outer.value(name)
        return None if outer_value is None else self.graph.build.capture(outer_value)

    # Nodes

    def nodes(self, protos: Sequence[onnx.NodeProto]) -> None:
        """Read nodes of a function, which are checked already or come from ONNX."""
        self._statements(make_statements(protos, self.versions))

    def _statements(self, statements: Sequence[Statement]) -> None:
        ordered = sort_nodes(statements, self._is_known)
        model, site, nodes = self.model, self.graph.site, self.graph.nodes
        own: Sequence[OfFile | None] = [None] * len(ordered)
        if self.prefix is not None and model.keeps_fields:
            own = origins(ordered, model.line, self.prefix, model.has_devices)
        for statement, origin in zip(ordered, own, strict=True):
            if origin is None or model.origin is not None:
                site.origin = origin or site.origin
                self._node(statement)
                continue
            before = len(nodes)
            self._node(statement)
            for node in nodes[before:]:
                if type(node.origin) is not Loaded:  # a node of a function that is called has its own
                    change(node, origin=origin)

    def _is_known(self, name: str) -> bool:
        return name in self.values or (self.outer is not None and self.outer._is_known(name))

    def _node(self, statement: Statement) -> None:
        model, values = self.model, self.values
        model.count()
        inputs = [values[name] if name and name in values else self.value(name) for name in statement.inputs]
        if self._has_functions:
            proto = statement.proto
            function = model.functions.get(statement.domain, proto.op_type, proto.overload)
            if function is not None:
                self._call(statement, function, inputs)
                return
        if statement.layer or statement.is_fast:
            before = len(self.graph.nodes)
            results = self._operator(statement, inputs)
            self._annotate(statement, self.graph.nodes[before:])
        else:
            results = self._operator(statement, inputs)
        for name, symbol in zip(statement.outputs, results, strict=False):
            if not name:
                continue
            self.define(name, symbol)
            self._name(symbol, name)

    def _annotate(self, statement: Statement, nodes: Iterable[Node]) -> None:
        """Copy the notes of a statement to the nodes that it became."""
        for node in nodes:
            if statement.layer:
                # Below the layer of the enclosing function.
                change(node, layer=f"{self.graph.site.layer}{statement.layer}/")
            if statement.is_fast and node.op_type in OPERATORS:
                change(node, attributes=Attributes({**node.attributes, KEY: FAST}))

    def _operator(self, statement: Statement, inputs: list[Symbol | None]) -> Sequence[Symbol]:
        signature = None if statement.key is None else statement.signature(self.versions)
        if signature is not None and signature.is_usual:
            return self._usual(statement, signature, inputs)
        domain, op_type, proto = statement.domain, statement.op_type, statement.proto
        if not domain and op_type == "Constant":
            array, dtype = constant_value(proto, self.model.folder, statement, statement.content)
            if not array.flags.aligned:
                (array,) = tensors.align([array])
            return [self.graph.build.constant(array, dtype)]
        version = version_of(self.versions, domain, op_type, statement)
        schema = schema_of(op_type, domain, version)
        if schema is None and not domain:
            proto, version = older.standard(proto, version, statement)
            op_type = proto.op_type
            schema = schema_of(op_type, domain, version)
        if schema is None and domain in ONNX_DOMAINS:
            raise invalid(
                f"{statement}: opset {version} of {domain or 'ONNX'} has no such operator",
                help="export the model with an opset that has it, or give the domain of a custom operator",
            )
        if schema is not None:
            inputs = check_operands(self.graph, operator(schema), inputs, self.model.implicit_casts, statement)
            if op_type in POSITIONS:
                inputs = with_one_position(self.graph, op_type, inputs, statement)
        attributes, nested = self._attributes(statement, signature)
        if schema is not None:
            check_axes(op_type, inputs, attributes, statement)
            missing = [n for n in required_attributes(schema) if n not in attributes and n not in nested]
            if missing:
                raise invalid(f"{statement} lacks the attribute {missing[0]!r}")
        if domain not in ONNX_DOMAINS:
            require_callable(domain, op_type, self.model.custom_ops, statement)
        if nested:
            outputs = len(proto.output) or None
            typed, graphs = bodies.read(
                self.body, op_type, nested, inputs, attributes, outputs, self.versions.get("", 0), statement
            )
            attributes.update(graphs)
        else:
            typed = None if schema is not None else declared_types(domain, proto, inputs, attributes, statement)
        types = self._types.of(proto, schema, inputs, attributes, statement) if typed is None else typed
        for type_ in types:
            check_size(type_, statement)
        if not domain and op_type in ("Cast", "CastLike"):
            cast = self._cast(op_type, inputs, attributes, statement)
            if cast is not None:
                return [cast]
        if domain not in ONNX_DOMAINS:
            return self.graph.build.emit_many(op_type, tuple(inputs), types, attributes, domain)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if not domain:
            older.align_dtypes(op_type, inputs)
        if not nested and (op_type, "to") not in _DTYPE_ATTRIBUTES and is_unchanged(domain, op_type, version):
            return self.graph.build.emit_many(op_type, tuple(inputs), types, attributes, domain)
        node = ReadNode(
            graph=self.graph,
            op_type=op_type,
            inputs=list(inputs),
            attributes=attributes,
            types=tuple(types),
            version=version,
            nested=self._nested,
            domain=domain,
        )
        results = convert(node)
        if results is not None:
            return results
        for key in node.attributes:
            if (node.op_type, key) in _DTYPE_ATTRIBUTES:
                node.attributes[key] = dtype_value(node.attributes[key], statement)
        return self.graph.build.emit_many(node.op_type, tuple(node.inputs), node.types, node.attributes, node.domain)

    def _usual(self, statement: Statement, signature: NodeSignature, inputs: list[Symbol | None]) -> Sequence[Symbol]:
        """Read a node that needs no conversion, and of which only the operands are left to check."""
        schema, op = present(signature.schema), present(signature.operator)
        inputs = check_operands(self.graph, op, inputs, self.model.implicit_casts, statement)
        attributes = signature.attributes
        if signature.has_axes:
            check_axes(statement.op_type, inputs, attributes, statement)
        types = self._types.cached(statement, schema, inputs, attributes)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return self.graph.build.emit_many(
            statement.op_type, tuple(inputs), types, signature.own_attributes(), statement.domain
        )

    def _attributes(
        self, statement: Statement, signature: NodeSignature | None
    ) -> tuple[dict[str, Any], Mapping[str, BodyStatements]]:
        """Return the attributes of a node, and those that are graphs."""
        if signature is not None:
            return dict(signature.own_attributes()), {}
        attributes, graphs = read_attributes(statement.proto, self.model.folder, statement)
        bodies = statement.bodies or {}
        return attributes, {
            key: bodies[key] if key in bodies else BodyStatements(proto, make_statements(proto.node, self.versions))
            for key, proto in graphs.items()
        }

    def _cast(
        self, op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], place: Statement
    ) -> Symbol | None:
        """Return a Cast with the library's semantics; None for strings, which only the runtime casts."""
        symbol = inputs[0]
        like = inputs[1] if op_type == "CastLike" else None
        if symbol is None or not isinstance(symbol.type, TensorType):
            return None
        if op_type == "CastLike":
            if like is None or not isinstance(like.type, TensorType):
                return None
            target = like.dtype.storage
        else:
            target = dtype_value(attributes.get("to"), place)
        if DType.string in (symbol.dtype, target):
            return None
        return older.cast(symbol, target, attributes)

    # Bodies and functions

    def body(self, name: str, read: BodyStatements, types: Sequence[Type]) -> Graph:
        """Return a body whose inputs have these types."""
        proto = read.proto
        graph = new_body(self.graph, graph_name(proto.name))
        graph.site.layer = ""
        reader = NodeReader(
            self.model, graph, self.versions, _custom_value_types(proto), outer=self, depth=self.depth + 1
        )
        if len(proto.input) != len(types):
            raise invalid(f"the body {name!r} has {len(proto.input)} inputs, but its node passes {len(types)}")
        symbols = []
        for info, type_ in zip(proto.input, types, strict=True):
            declared = read_type(info.type)
            chosen = declared if isinstance(type_, OpaqueType) and not type_.onnx else type_
            symbol = graph.build.input(chosen, (info.name or None) if reader._keeps_names else None)
            symbols.append(symbol)
            reader.define(info.name, symbol)
        reader.graph_proto(read, Large(), symbols)
        return graph

    def _call(self, statement: Statement, function: onnx.FunctionProto, inputs: Sequence[Symbol | None]) -> None:
        check_call(function, statement.proto)
        nodes = self.model.functions.instance(function, statement.proto)
        values: dict[str, Symbol | None] = dict.fromkeys(function.input)
        values.update(zip(function.input, inputs, strict=False))
        versions = {**self.versions, **versions_of(function.opset_import)}
        layer = statement.layer or statement.op_type
        before, self.graph.site.layer = self.graph.site.layer, f"{self.graph.site.layer}{layer}/"
        for node in nodes:  # with the attributes of this call
            check_node(node, versions, place_of(node))
        inner = NodeReader(self.model, self.graph, versions, {}, values, depth=self.depth + 1)
        inner.prefix = None if self.prefix is None else f"{self.prefix}{statement.name or layer}/"
        inner.nodes(nodes)
        self.graph.site.layer = before
        for formal, name in zip(function.output, statement.outputs, strict=False):
            result = inner.value(formal)
            if name and result is not None:
                self.define(name, result)
                self._name(result, name)

    def _nested(self, nodes: Sequence[onnx.NodeProto], names: dict[str, Symbol | None], version: int) -> None:
        """Read the nodes of an operator's function body, and enter their results into `names`."""
        versions = {**self.versions, "": version}
        NodeReader(self.model, self.graph, versions, {}, names, depth=self.depth + 1).nodes(nodes)


def _custom_value_types(proto: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Return the types, by name, that a body declares for results of operators of other domains."""
    if not proto.value_info:
        return {}
    names = {name for n in proto.node if n.domain not in ONNX_DOMAINS for name in n.output}
    return {v.name: v.type for v in proto.value_info if v.name in names}


# Positions of operators on sequences: kernels read the first element even if there is none.


def with_one_position(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], place: object
) -> list[Symbol | None]:
    """Return operands whose position is certain to have one element, by a Reshape if its type does not tell.

    Raises `ModelError` if the type has no or several elements.
    """
    operands = list(inputs)
    position = POSITIONS[op_type]
    symbol = operands[position] if position < len(operands) else None
    if symbol is None or not isinstance(symbol.type, TensorType):
        return operands
    shape = symbol.type.shape
    if shape.is_ranked and all(dim.is_static for dim in shape):
        if math.prod(int(dim) for dim in shape) == 1:
            return operands
        raise invalid(f"{place}: the position must be one number", operands={"position": symbol}, help="give a scalar")
    scalar = graph.build.constant(np.zeros(0, np.int64), DType.int64)
    operands[position] = graph.build.emit_many(
        "Reshape", (symbol, scalar), [tensor_type(symbol.dtype, _shape([]))], {}
    )[0]
    return operands
