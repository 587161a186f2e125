"""ONNX's operators as users of the library call them: names, parameters, attributes with defaults, docstrings."""

from __future__ import annotations

import functools
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.onnx.schemas.schemas import (
    BY_ELEMENT,
    MICROSOFT,
    Operator,
    Parameter,
    operator,
    recorded,
    recorded_operator,
)
from graphcore.support.escaping import similar

KINDS = onnx.AttributeProto
_WORDS: dict[int, tuple[str, str]] = {
    KINDS.INT: ("int", "an int of 64 bits, or a DType that ONNX has"),
    KINDS.INTS: ("ints", "a list of ints"),
    KINDS.FLOAT: ("float", "a number in the range of float32"),
    KINDS.FLOATS: ("floats", "a list of numbers in the range of float32"),
    KINDS.STRING: ("string", "a str"),
    KINDS.STRINGS: ("strings", "a list of str"),
    KINDS.TENSOR: ("tensor", "an array"),
    KINDS.SPARSE_TENSOR: ("tensor", "a dense array"),
    KINDS.GRAPH: ("body", "a function of Symbols, or a Graph"),
    KINDS.TYPE_PROTO: ("type", "a type, such as TensorType(DType.float32, [2])"),
}
"""The name of each kind of attributes, and the values that it accepts."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an operator. kind: of `onnx.AttributeProto`. default: None where the schema has none."""

    name: str
    kind: int
    default: Any
    is_required: bool

    @property
    def word(self) -> str:
        """The name of its kind."""
        return _WORDS[self.kind][0]

    @property
    def accepted(self) -> str:
        """The values that it accepts, for errors."""
        return _WORDS[self.kind][1]


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """An operator of a domain that can be called."""

    domain: str
    version: int
    """The newest version of the domain that has the operator; reading converts it to the version of Graphs."""
    is_gone: bool
    """True if newer versions replace it by other operators, which are built instead."""
    op: Operator
    attributes: tuple[Attribute, ...]

    @property
    def label(self) -> str:
        """The name in errors."""
        if self.domain == MICROSOFT:
            return f"{MICROSOFT}::{self.op.name}"
        return f"{self.domain.removeprefix('ai.') or 'onnx'}.{self.op.name}"

    @property
    def variadic(self) -> Parameter | None:
        """The operand that can occur any number of times."""
        last = self.op.inputs[-1] if self.op.inputs else None
        return last if last is not None and last.is_variadic else None

    @property
    def gives_list(self) -> bool:
        """True if its results are a list of any length."""
        return any(p.is_variadic for p in self.op.outputs)

    @property
    def takes_outputs(self) -> bool:
        """True if the caller chooses the number of results."""
        return self.gives_list or self.least_results < len(self.op.outputs)

    @property
    def least_results(self) -> int:
        """The default number of results."""
        return max(sum(not p.is_optional and not p.is_variadic for p in self.op.outputs), 1)

    @property
    def usage(self) -> str:
        """The signature on one line, for errors."""
        return f"{self.label}{signature(self).replace(return_annotation=inspect.Signature.empty)}"


@functools.cache
def names(domain: str = "") -> tuple[str, ...]:
    """Return the sorted names of a domain's operators, of all versions that the installed onnx has.

    Of com.microsoft: those of `recorded`. `ops.microsoft` declares the others.
    """
    if domain == MICROSOFT:
        return tuple(recorded())
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain}))


@functools.cache
def entry(name: str, domain: str = "") -> OperatorSpec:
    """Return an operator. Raises `GraphError` if there is none of that name."""
    if name not in names(domain):
        near = " or ".join(similar(name, names(domain), 2))
        raise GraphError(
            f"onnx: {domain or 'ONNX'} has no operator {name!r}",
            help=f"did you mean {near}?" if near else "dir() of the module lists its operators",
        )
    contributed = recorded_operator(domain, name)
    if contributed is not None:
        rows = recorded()[name]["attributes"].items()
        attributes = [
            Attribute(label, KINDS.AttributeType.Value(kind), default[0] if default else None, not default)
            for label, (kind, *default) in sorted(rows, key=lambda row: (len(row[1]) > 1, row[0]))
        ]
        return OperatorSpec(domain, 1, False, contributed, tuple(attributes))
    schema = onnx.defs.get_schema(name, domain=domain)
    version = schema.since_version if domain else onnx.defs.onnx_opset_version()
    is_gone = schema.deprecated
    if is_gone:
        version = schema.since_version - 1
        schema = onnx.defs.get_schema(name, version, domain)
    schema_attributes: dict[str, Any] = dict(schema.attributes)
    attributes = [Attribute(a.name, int(a.type), _default(a), a.required) for a in schema_attributes.values()]
    attributes.sort(key=lambda a: (not a.is_required, a.name))
    return OperatorSpec(domain, version, is_gone, operator(schema), tuple(attributes))


def _default(attribute: Any) -> Any:
    value = attribute.default_value
    if not value.name:
        return None
    default = onnx.helper.get_attribute_value(value)
    if isinstance(default, bytes):
        return default.decode()
    if isinstance(default, float):
        return float(str(np.float32(default)))  # as written in the schema, before single precision
    if isinstance(default, (int, str)):
        return default
    if value.type == KINDS.STRINGS:
        return tuple(s.decode() for s in default)
    return tuple(default) if value.type in (KINDS.INTS, KINDS.FLOATS) else None


@functools.cache
def signature(spec: OperatorSpec) -> inspect.Signature:
    """Operands in order, by position or by name; then, by name only, attributes and the number of results."""
    return inspect.Signature(_parameters(spec), return_annotation=_returned(spec))


def _parameters(spec: OperatorSpec) -> list[inspect.Parameter]:
    kinds = inspect.Parameter
    parameters = []
    for position, parameter in enumerate(spec.op.inputs):
        if parameter.is_variadic:
            parameters.append(kinds(parameter.name, kinds.VAR_POSITIONAL))
        else:  # before a required operand, an optional one is passed as None
            is_last = parameter.is_optional and all(p.is_optional or p.is_variadic for p in spec.op.inputs[position:])
            default = None if is_last else kinds.empty
            parameters.append(kinds(parameter.name, kinds.POSITIONAL_OR_KEYWORD, default=default))
    for attribute in spec.attributes:
        default = kinds.empty if attribute.is_required else attribute.default
        parameters.append(kinds(attribute.name, kinds.KEYWORD_ONLY, default=default))
    if spec.takes_outputs:
        parameters.append(kinds("outputs", kinds.KEYWORD_ONLY, default=None))
    return parameters


def _returned(spec: OperatorSpec) -> Any:
    if spec.gives_list:
        return list[Symbol]
    if spec.takes_outputs:
        return Symbol | tuple[Symbol, ...]
    return Symbol if spec.least_results == 1 else tuple[Symbol, ...]


@functools.cache
def doc(spec: OperatorSpec) -> str:
    """Return the docstring: operands and results with their types, attributes with their defaults."""
    op = spec.op
    what = f"operator of {spec.domain}" if spec.domain else "operator"
    lines = [f"ONNX's {what} {op.name}, as version {op.version} defines it.", ""]
    if spec.domain == MICROSOFT:
        releases = recorded()[op.name]["releases"]
        lines = [f"onnxruntime's operator {op.name} of com.microsoft. Releases with a CPU kernel: {releases}.", ""]
    if spec.is_gone:
        lines += ["Newer versions of ONNX do not have it: the operators that replaced it are built.", ""]
    if op.inputs:
        lines += ["Operands:", *(f"    {_described(p)}" for p in op.inputs)]
    if spec.attributes:
        lines += ["Attributes:", *(f"    {_attribute(a)}" for a in spec.attributes)]
    results = [_described(p) for p in op.outputs]
    lines += ["Results:", *(f"    {line}" for line in results)]
    if spec.takes_outputs:
        lines.append(f"    outputs: the number of results, by default {_count(spec)}")
    variables: dict[str, frozenset[str]] = {p.type: p.allowed for p in (*op.inputs, *op.outputs) if _is_variable(p)}
    if variables:
        lines.append("Types:")
    for name, allowed in variables.items():
        lines += textwrap.wrap(f"{name}: {types(allowed)}", 116, initial_indent="    ", subsequent_indent="        ")
    source = f"https://onnx.ai/onnx/operators/onnx_{spec.domain.replace('.', '')}_{op.name}.html"
    if spec.domain == MICROSOFT:
        source = f"https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#{spec.domain}.{op.name}"
    lines += [
        "Operands of one type variable are promoted to one dtype by the graph's promotion system.",
        "Raises `DTypeError` for dtypes that it does not accept, `ShapeError` for shapes, `GraphError` otherwise.",
        source,
    ]
    return "\n".join(lines)


def _count(spec: OperatorSpec) -> str:
    if not spec.gives_list:
        return str(spec.least_results)
    return "given by `split` or `num_outputs`" if spec.op.name == "Split" else "as many as its body returns"


def _is_variable(parameter: Parameter) -> bool:
    return parameter.allowed != frozenset({parameter.type})


def _described(parameter: Parameter) -> str:
    kind = parameter.type if _is_variable(parameter) else types(parameter.allowed)
    if parameter.is_variadic:
        mixed = "" if parameter.is_homogeneous else ", not all of one type"
        return f"*{parameter.name}: {kind}{mixed}"
    return f"{parameter.name}{' (optional)' if parameter.is_optional else ''}: {kind}"


def _attribute(attribute: Attribute) -> str:
    if attribute.is_required:
        return f"{attribute.name}: {attribute.word}"
    if attribute.default is None:
        return f"{attribute.name} (optional): {attribute.word}"
    return f"{attribute.name}: {attribute.word}, by default {attribute.default!r}"


def types(allowed: frozenset[str]) -> str:
    """Return the types of a schema by the library's names: `float32, int64; sequences of int64`."""
    groups: dict[str, list[str]] = {}
    for text in sorted(allowed):
        word, rest = "", text
        for prefix, plural in (("optional(", "optional "), ("seq(", "sequences of "), ("map(", "maps of ")):
            if rest.startswith(prefix):
                word, rest = word + plural, rest[len(prefix) : -1]
        rest = ", ".join(part.strip().removeprefix("tensor(").removesuffix(")") for part in rest.split(","))
        groups.setdefault(word, []).append(BY_ELEMENT[rest].name if rest in BY_ELEMENT else rest)
    return "; ".join(word + ", ".join(sorted(names)) for word, names in groups.items())
