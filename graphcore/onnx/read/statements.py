"""Nodes as a file states them, read once into Python, and what their operator and attributes tell, found once.

Most nodes of a model are like others, of it or of another model: a signature is all that can be told of a node without
its operands.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import ModelError
from graphcore.ir.state.frozen import Attributes
from graphcore.ir.state.settings import FAST
from graphcore.onnx.notes import NODE_ACCURACY, ONNX_DOMAINS
from graphcore.onnx.proto.limits import check_text, has_axes
from graphcore.onnx.proto.ranges import POSITIONS
from graphcore.onnx.proto.tensors import read_attributes
from graphcore.onnx.schemas.schemas import Operator, operator, required_attributes, schema_of
from graphcore.onnx.versions import is_unchanged
from graphcore.types.dtypes import DType

_SHOWN = 100
"""Characters of a name that errors show."""

_LONGEST_LAYER = 1000

_MAX_REMEMBERED = 4096
"""Signatures that are remembered over nodes and models."""
_LONGEST = 512
"""Bytes of attributes up to which a signature is remembered."""
_MOST_DTYPES = 64
"""Dtypes of operands that are remembered as approved for a signature."""

_Kinds = onnx.AttributeProto
_SHORT = frozenset({_Kinds.INT, _Kinds.FLOAT, _Kinds.STRING, _Kinds.INTS, _Kinds.FLOATS, _Kinds.STRINGS})
"""The kinds of attributes that signatures have; tensors, types and graphs are read node by node."""

_APART = frozenset({"BitCast", "Cast", "CastLike", "Constant", "Pow", "QuantizeLinear", *POSITIONS})
"""Operators that are read by rules of their own."""


class Signature:
    """The facts of a node that its operator, version, attributes and count of operands and results tell.

    version: of the operator's domain. attributes: as Python values. is_usual: whether a node of it has a schema, keeps
    its form at the opset of Graphs, and is read by no rule of its own. approved: dtypes that operands may have.
    """

    __slots__ = ("_has_lists", "approved", "attributes", "has_axes", "is_usual", "operator", "schema", "version")

    def __init__(
        self, version: int, schema: onnx.defs.OpSchema | None, attributes: Attributes, op_type: str, domain: str
    ) -> None:
        self.version = version
        self.schema = schema
        self.attributes = attributes
        self.operator: Operator | None = None
        self.is_usual = False
        self.has_axes = has_axes(op_type)
        self.approved: set[tuple[DType, ...]] = set()
        self._has_lists = any(type(value) is list for value in attributes.values())
        if schema is not None and domain in ONNX_DOMAINS:
            self.operator = operator(schema)
            is_whole = all(name in attributes for name in required_attributes(schema))
            self.is_usual = is_whole and op_type not in _APART and is_unchanged(domain, op_type, version)

    def approve(self, dtypes: tuple[DType, ...]) -> None:
        """Note that operands of these dtypes go together."""
        if len(self.approved) < _MOST_DTYPES:
            self.approved.add(dtypes)

    def own_attributes(self) -> Attributes:
        """Return the attributes for a node, whose lists are its own."""
        if not self._has_lists:
            return self.attributes
        return Attributes({k: v[:] if type(v) is list else v for k, v in self.attributes.items()})


@dataclass(frozen=True, slots=True)
class Body:
    """A graph that is an attribute of a node, and its nodes."""

    proto: onnx.GraphProto
    statements: list[Statement]


class Statement:
    """A node of a file. As text it is its place in errors.

    domain: "" for ONNX's own. label: its place in errors, where that is none of a file. key: what its signature is
    found by, None where it is to be read by itself. is_checked: whether the checks of a whole model went over it.
    is_fast: it notes that it may be less accurate.
    content: the bytes of a large Constant.
    """

    # fmt: off
    __slots__ = (
        "bodies", "content", "domain", "inputs", "is_checked", "is_fast", "key", "label", "layer", "name", "op_type",
        "outputs", "proto",
    )
    # fmt: on

    def __init__(
        self,
        proto: onnx.NodeProto,
        op_type: str,
        domain: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        name: str,
        key: Hashable,
        is_checked: bool,
    ) -> None:
        self.proto = proto
        self.op_type = op_type
        self.domain = domain
        self.inputs = inputs
        self.outputs = outputs
        self.name = name
        self.key = key
        self.is_checked = is_checked
        self.label: str | None = None
        self.content: memoryview | None = None
        noted = proto.metadata_props
        self.layer = _layer(noted) if noted else ""
        self.is_fast = bool(noted) and any(p.key == NODE_ACCURACY and p.value == FAST for p in noted)
        self.bodies: dict[str, Body] | None = None

    def __str__(self) -> str:
        if self.label is not None:
            return self.label
        name = self.name or next(iter(self.outputs), "")
        return f"{self.op_type[:_SHOWN]} {name[:_SHOWN]!r}" if name else self.op_type[:_SHOWN]

    def signature(self, versions: Mapping[str, int]) -> Signature | None:
        """Return the signature; None where the node is to be read by itself.

        Raises `ModelError` for an opset that is not read, and an attribute that is given twice.
        """
        if self.key is None:
            return None
        found = _signatures.get(self.key)
        if found is None:
            if not self.is_checked:
                return None
            version = version_of(versions, self.domain, self.op_type, self)
            schema = schema_of(self.op_type, self.domain, version)
            attributes, _ = read_attributes(self.proto, _NOWHERE, self)
            found = Signature(version, schema, Attributes(attributes), self.op_type, self.domain)
            if len(_signatures) >= _MAX_REMEMBERED:
                _signatures.clear()
            _signatures[self.key] = found
        return found


_signatures: dict[Hashable, Signature] = {}
_NOWHERE = Folder(None)


def key_of(
    proto: onnx.NodeProto,
    op_type: str,
    domain: str,
    version: int | None,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> Hashable:
    """Return what nodes have in common that are checked and read alike; None for one that is read by itself."""
    given: object = tuple(map(bool, inputs)) if "" in inputs else len(inputs)
    made: object = tuple(map(bool, outputs)) if "" in outputs else len(outputs)
    attributes = proto.attribute
    if not attributes:
        return op_type, domain, version, given, made
    said: list[bytes] = []
    size = 0
    for attribute in attributes:
        if attribute.type not in _SHORT or attribute.ref_attr_name:
            return None
        content = attribute.SerializeToString()
        size += len(content)
        if size > _LONGEST:
            return None
        said.append(content)
    return op_type, domain, version, given, made, *said


def unchecked(protos: Sequence[onnx.NodeProto], versions: Mapping[str, int]) -> list[Statement]:
    """Return nodes that no check of a whole model goes over: of a function that is called, or of ONNX's own."""
    made = []
    for proto in protos:
        op_type, inputs, outputs = proto.op_type, tuple(proto.input), tuple(proto.output)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        key = key_of(proto, op_type, domain, versions.get(domain), inputs, outputs)
        statement = Statement(proto, op_type, domain, inputs, outputs, proto.name, key, False)
        inner = [a for a in proto.attribute if a.type == _Kinds.GRAPH and not a.ref_attr_name] if key is None else []
        if inner:
            statement.bodies = {a.name: Body(a.g, unchecked(a.g.node, versions)) for a in inner}
        made.append(statement)
    return made


def used(statement: Statement) -> Sequence[str]:
    """Return the names that a node uses, in its bodies too; those that a body makes itself may be among them."""
    if not statement.bodies:
        return statement.inputs
    names = [*statement.inputs]
    for body in statement.bodies.values():
        own = {name for s in body.statements for name in s.outputs} | {i.name for i in body.proto.input}
        names += [name for inner in body.statements for name in used(inner) if name not in own]
    return names


def _layer(properties: Iterable[onnx.StringStringEntryProto]) -> str:
    """Return the layer that a node notes; none where the note, which is untrusted and read once a call, is long."""
    noted: Any = next((p.value for p in properties if p.key == "graphcore.layer"), "")
    return noted if len(noted) <= _LONGEST_LAYER else ""


# The opsets that a model says it uses, and in which of them an operator is read.

OLDEST = 7
"""The oldest opset that is read: before it, broadcasting was another."""

"""Characters of a name that errors show."""


def versions_of(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each domain. Raises `ModelError` where one has two."""
    found: dict[str, int] = {}
    check_text((entry.domain for entry in imports), "an opset")
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if found.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"load: the model uses opset {found[domain]} and {entry.version} of {domain[:_SHOWN] or 'ONNX'}",
                help="write it with one of them",
            )
    return found


def version_of(versions: Mapping[str, int], domain: str, op_type: str, place: object) -> int:
    """The opset that an operator is of. Raises `ModelError` where the model does not say, and for one not read."""
    version = versions.get(domain)
    if version is None:
        if domain:
            return 1
        raise ModelError(f"load: {place}: the model does not say which opset it uses", help="export the model again")
    newest = onnx.defs.onnx_opset_version()
    if not domain and version < OLDEST and _is_same(op_type, version, OLDEST):
        return OLDEST
    if not domain and not OLDEST <= version <= newest:
        raise ModelError(
            f"load: {place}: the model uses opset {version}, and {OLDEST} to {newest} are read",
            help="convert it with onnx.version_converter" if version < OLDEST else "install a newer onnx",
        )
    return version


def _is_same(op_type: str, version: int, other: int) -> bool:
    """Return whether an operator did not change between two opsets."""
    first, second = schema_of(op_type, "", version), schema_of(op_type, "", other)
    return first is not None and second is not None and first.since_version == second.since_version
