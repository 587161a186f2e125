"""Statements: nodes of a file, read once into Python; and signatures: facts about nodes, cached.

Most nodes resemble others of the same or another model. A signature has all facts about a node that do not depend on
its operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.ir.state.frozen import Attributes
from graphcore.ir.state.settings import FAST
from graphcore.onnx.notes import NODE_ACCURACY, NODE_LAYER, ONNX_DOMAINS
from graphcore.onnx.proto.limits import MAX_NAME_LENGTH, has_axes, invalid
from graphcore.onnx.proto.opened import domain_of
from graphcore.onnx.proto.ranges import POSITIONS
from graphcore.onnx.proto.tensors import read_attributes
from graphcore.onnx.schemas.schemas import Operator, operator, required_attributes, schema_of
from graphcore.onnx.versions import is_unchanged

_MAX_LAYER_LENGTH = 1000

_MAX_REMEMBERED = 4096
"""The size of the cache of signatures, shared by all models."""
_MAX_KEY_BYTES = 512
"""Signatures with more bytes of attributes are not cached."""

_Kinds = onnx.AttributeProto
_SHORT = frozenset({_Kinds.INT, _Kinds.FLOAT, _Kinds.STRING, _Kinds.INTS, _Kinds.FLOATS, _Kinds.STRINGS})
"""The kinds of attributes that signatures can have; tensors, types and graphs are read node by node."""

_SPECIAL = frozenset({"BitCast", "Cast", "CastLike", "Constant", "Pow", "QuantizeLinear", *POSITIONS})
"""Operators that are read by special rules."""


class NodeSignature:
    """The facts about a node that follow from its operator, version, attributes and numbers of operands and results.

    version: of the operator's domain. attributes: as Python values. is_usual: True if the node has a schema and needs
    neither a conversion nor a special rule.
    """

    __slots__ = ("_has_lists", "attributes", "has_axes", "is_usual", "operator", "schema", "version")

    def __init__(
        self, version: int, schema: onnx.defs.OpSchema | None, attributes: Attributes, op_type: str, domain: str
    ) -> None:
        self.version = version
        self.schema = schema
        self.attributes = attributes
        self.operator: Operator | None = None
        self.is_usual = False
        self.has_axes = has_axes(op_type)
        self._has_lists = any(type(value) is list for value in attributes.values())
        if schema is not None and domain in ONNX_DOMAINS:
            self.operator = operator(schema)
            is_whole = all(name in attributes for name in required_attributes(schema))
            self.is_usual = is_whole and op_type not in _SPECIAL and is_unchanged(domain, op_type, version)

    def own_attributes(self) -> Attributes:
        """Return the attributes for a node, with lists copied."""
        if not self._has_lists:
            return self.attributes
        return Attributes({k: v[:] if type(v) is list else v for k, v in self.attributes.items()})


@dataclass(frozen=True, slots=True)
class BodyStatements:
    """A graph that is an attribute of a node, and its nodes."""

    proto: onnx.GraphProto
    statements: list[Statement]


@dataclass(slots=True, eq=False)
class Statement:
    """A node of a file. Its str() is its place for errors.

    domain: "" for ONNX's own. label: its place for errors, if it is not from a file. key: of its signature, None if it
    has none. is_checked: True if it passed `check_model`. is_fast: True if it may be less accurate. is_noted: True if
    it has metadata. content: the bytes of a large Constant.
    """

    proto: onnx.NodeProto
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str
    key: Hashable
    is_checked: bool
    label: str | None = None
    content: memoryview | None = None
    is_noted: bool = False
    layer: str = ""
    is_fast: bool = False
    bodies: dict[str, BodyStatements] | None = None

    def __post_init__(self) -> None:
        if noted := self.proto.metadata_props:
            self.is_noted, self.layer = True, _layer(noted)
            self.is_fast = any(p.key == NODE_ACCURACY and p.value == FAST for p in noted)

    def __str__(self) -> str:
        if self.label is not None:
            return self.label
        name, op_type = self.name or next(iter(self.outputs), ""), self.op_type[:MAX_NAME_LENGTH]
        return f"{op_type} {name[:MAX_NAME_LENGTH]!r}" if name else op_type

    def signature(self, versions: Mapping[str, int]) -> NodeSignature | None:
        """Return the cached signature; None for a node without one.

        Raises `ModelError` for an opset that is not supported, and a duplicate attribute.
        """
        if self.key is None:
            return None
        signature = signatures.get(self.key)
        if signature is None:
            if not self.is_checked:
                return None
            version = version_of(versions, self.domain, self.op_type, self)
            schema = schema_of(self.op_type, self.domain, version)
            attributes, _ = read_attributes(self.proto, _NOWHERE, self)
            signature = NodeSignature(version, schema, Attributes(attributes), self.op_type, self.domain)
            remember(self.key, signature)
        return signature


signatures: dict[Hashable, NodeSignature | None] = {}
"""The signatures by the keys of nodes that passed the checks; None for those that are not needed yet."""


def remember(key: Hashable, signature: NodeSignature | None) -> None:
    """Record that nodes of a key passed the checks, and their signature."""
    if len(signatures) >= _MAX_REMEMBERED:
        signatures.clear()
    signatures[key] = signature


_NOWHERE = Folder(None)


def key_of(
    proto: onnx.NodeProto, domain: str, version: int | None, inputs: Sequence[str], outputs: Sequence[str]
) -> Hashable:
    """Return a key for nodes that are checked and read alike; None for a node that is read individually."""
    operands: object = tuple(map(bool, inputs)) if "" in inputs else len(inputs)
    results: object = tuple(map(bool, outputs)) if "" in outputs else len(outputs)
    attributes = proto.attribute
    if not attributes:
        return proto.op_type, domain, version, operands, results
    contents: list[bytes] = []
    size = 0
    for attribute in attributes:
        if attribute.type not in _SHORT or attribute.ref_attr_name:
            return None
        content = attribute.SerializeToString()
        size += len(content)
        if size > _MAX_KEY_BYTES:
            return None
        contents.append(content)
    return proto.op_type, domain, version, operands, results, *contents


def make_statements(protos: Sequence[onnx.NodeProto], versions: Mapping[str, int]) -> list[Statement]:
    """Return statements of nodes that `check_model` does not check: of a called function, or from ONNX."""
    statements = []
    for proto in protos:
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        domain = domain_of(proto.domain)
        key = key_of(proto, domain, versions.get(domain), inputs, outputs)
        statement = Statement(proto, proto.op_type, domain, inputs, outputs, proto.name, key, False)
        inner = [a for a in proto.attribute if a.type == _Kinds.GRAPH and not a.ref_attr_name] if key is None else []
        if inner:
            statement.bodies = {a.name: BodyStatements(a.g, make_statements(a.g.node, versions)) for a in inner}
        statements.append(statement)
    return statements


def used_names(statement: Statement) -> Sequence[str]:
    """Return the names that a node and its bodies use, possibly with some that bodies define themselves."""
    if not statement.bodies:
        return statement.inputs
    names = [*statement.inputs]
    for body in statement.bodies.values():
        defined = {name for s in body.statements for name in s.outputs} | {i.name for i in body.proto.input}
        names += [name for inner in body.statements for name in used_names(inner) if name not in defined]
    return names


def _layer(properties: Iterable[onnx.StringStringEntryProto]) -> str:
    """Return the layer in a node's metadata; "" if it is too long, since files are untrusted."""
    noted: Any = next((p.value for p in properties if p.key == NODE_LAYER), "")
    return noted if len(noted) <= _MAX_LAYER_LENGTH else ""


# The opsets of a model, and the version at which an operator is read.

OLDEST = 7
"""The oldest supported opset: before it, broadcasting had other rules."""


def version_of(versions: Mapping[str, int], domain: str, op_type: str, place: object) -> int:
    """Return the opset version of an operator. Raises `ModelError` if it is not imported or not supported."""
    version = versions.get(domain)
    if version is None:
        if domain:
            return 1
        raise invalid(f"{place}: the model does not import an opset of ONNX")
    newest = onnx.defs.onnx_opset_version()
    if not domain and version < OLDEST and _is_same(op_type, version, OLDEST):
        return OLDEST
    if not domain and not OLDEST <= version <= newest:
        raise invalid(
            f"{place}: the model uses opset {version}, but only {OLDEST} to {newest} can be read",
            help="convert it with onnx.version_converter" if version < OLDEST else "install a newer onnx",
        )
    return version


def _is_same(op_type: str, version: int, other: int) -> bool:
    """Return True if an operator did not change between two opsets."""
    first, second = schema_of(op_type, "", version), schema_of(op_type, "", other)
    return first is not None and second is not None and first.since_version == second.since_version
