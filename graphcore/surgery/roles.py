"""Which operands and results of a node `Graph.astype` converts, by its operator."""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.build.declare import LIBRARY
from graphcore.errors import GraphError, LossyCastWarning
from graphcore.ir.definitions import definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, parts
from graphcore.onnx.notes import DOMAINS, OPSET
from graphcore.onnx.schemas.schemas import Operator, Parameter, operator, schema_of
from graphcore.operators import ROWS, Trait, data_of, having
from graphcore.support.escaping import escaped, similar
from graphcore.support.source_lines import Line, Origin, line_of, user_line
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, tensor_type

_FLOATS = frozenset({"tensor(float16)", "tensor(bfloat16)", "tensor(float)", "tensor(double)"})

_EXACT = frozenset({"BitCast", "DequantizeLinear", "QuantizeLinear"})
"""Operators of ONNX that read the bits of floats, or scales whose rounding would change every number."""

_ONE_DTYPE = frozenset({"Celu", "OptionalGetElement"})
"""ONNX operators of one dtype throughout, although their schemas do not say so: Celu is float32 only in ONNX, and the
lowering computes it in any float dtype; OptionalGetElement returns its operand."""

_LIKE = frozenset({"Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose results have the dtype of the operand unless an attribute says otherwise."""

_ANY_FLOAT = having(Trait.TESTS, Trait.TYPE_ONLY) - _LIKE - {"SequenceLength"} | {
    "Cast"
}  # sequences are converted as a whole
"""Operators that take an operand of any dtype: rounding it first would change their result."""

_MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS) | {"Unique"}
"""Operators that only move elements. Between nodes that keep their dtype they keep it too."""

_DTYPE_OF_RESULT = {name: row.dtype_attribute for name, row in ROWS.items() if row.dtype_attribute}
"""The attribute with the dtype of the result; for operators in `_LIKE` the default is the operand's dtype."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The types to convert: tensors of some dtypes, and sequences of them if `with_sequences`."""

    dtypes: frozenset[DType]
    with_sequences: bool

    def has(self, type_: Type | None) -> bool:
        """Return True if values of a type are converted."""
        while isinstance(type_, (SequenceType, OptionalType)):
            if not self.with_sequences:
                return False
            type_ = type_.element
        return isinstance(type_, TensorType) and type_.dtype in self.dtypes


@dataclass(frozen=True, slots=True)
class Roles:
    """The operands and results to convert if they have the old dtype."""

    operands: tuple[bool, ...]
    results: tuple[bool, ...]


def none_of(node: Node) -> Roles:
    """Return the roles of a node that keeps its dtype."""
    return Roles((False,) * len(node.inputs), (False,) * len(node.outputs))


def all_of(node: Node) -> Roles:
    """Return the roles of a node that is of one dtype throughout."""
    return Roles((True,) * len(node.inputs), (True,) * len(node.outputs))


def is_plain(type_: Type | None) -> bool:
    """Return True if a type is a tensor type, or None for an omitted operand."""
    return type_ is None or isinstance(type_, TensorType)


def takes_any(node: Node) -> bool:
    """Return True if a node takes an operand of any dtype."""
    if node.domain not in ("", LIBRARY):
        return False
    is_only_shape = node.op_type in _LIKE and "dtype" in node.attributes
    return is_only_shape or (node.op_type in _ANY_FLOAT and not _is_to_string(node))


def moved_operands(node: Node) -> tuple[Symbol | None, ...]:
    """Return the operands whose elements a node moves to its results unchanged; none for other nodes."""
    if node.domain or node.op_type not in _MOVES or node.attributes.get("reduction", "none") != "none":
        return ()
    return tuple(data_of(node.op_type, node.inputs))


def _is_to_string(node: Node) -> bool:
    """Return True if a node casts numbers to strings, which has no kernel for narrow floats."""
    return node.op_type == "Cast" and is_plain(node.outputs[0].type) and node.outputs[0].dtype is DType.string


def roles_of(node: Node, sources: Sources, dtype: DType) -> Roles:
    """Return the roles of a node without bodies that calls no function."""
    types = [None if s is None else s.type for s in node.inputs]
    if not all(map(is_plain, (*types, *(s.type for s in node.outputs)))):
        return all_of(node) if sources.with_sequences else none_of(node)
    if node.domain == LIBRARY:
        return _library_roles(node)
    schema = schema_of(node.op_type, node.domain, DOMAINS.get(node.domain, OPSET))
    if node.domain or schema is None:
        return none_of(node)
    if node.op_type in _EXACT or _is_to_string(node) or node.op_type.startswith("QLinear"):
        return none_of(node)
    return _schema_roles(node, operator(schema), types, sources, dtype)


def _library_roles(node: Node) -> Roles:
    """Return the roles of an operator of graphcore. Scales of quantised numbers keep their dtype."""
    if node.op_type not in ("Dequantize", "QMatMul", "Quantize"):
        return all_of(node)
    is_read, is_made = node.op_type != "Dequantize", node.op_type == "QMatMul"
    return Roles((is_read, *(False,) * (len(node.inputs) - 1)), (is_made,) * len(node.outputs))


def _schema_roles(node: Node, op: Operator, types: list[Type | None], sources: Sources, dtype: DType) -> Roles:
    if node.op_type in _ONE_DTYPE:
        return all_of(node)
    operands = tuple(sources.has(type_) and _is_free(op.input(i), dtype) for i, type_ in enumerate(types))
    bound = {p.type: is_new for i, is_new in enumerate(operands) if types[i] is not None and (p := op.input(i))}
    results = []
    for position, symbol in enumerate(node.outputs):
        parameter = op.output(position)
        if not sources.has(symbol.type) or not _is_free(parameter, dtype):
            results.append(False)
            continue
        assert parameter is not None
        says_dtype = node.op_type in _DTYPE_OF_RESULT or node.op_type == "ConstantOfShape"
        results.append(bound.get(parameter.type, says_dtype))
    return Roles(operands, tuple(results))


def with_dtype(type_: Type, dtype: DType) -> Type:
    """Return the type of a tensor, or of a sequence of them, with another dtype."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(with_dtype(type_.element, dtype))
    assert isinstance(type_, TensorType)
    return tensor_type(dtype, type_.shape, type_.ambiguous)


def _is_free(parameter: Parameter | None, dtype: DType) -> bool:
    """Return True if a parameter allows the dtype or several float dtypes: the lowering handles the others."""
    if parameter is None:
        return False
    own = f"tensor({dtype.name})"
    return own in parameter.allowed or len(parameter.allowed & _FLOATS) > 1


def attributes_of(node: Node, roles: Roles, sources: Sources, arrays: CastArrays) -> Mapping[str, Any]:
    """Return the attributes of a node whose results have the new dtype."""
    if not any(is_new and sources.has(s.type) for s, is_new in zip(node.outputs, roles.results, strict=True)):
        return node.attributes
    attributes = dict(node.attributes)
    dtype = arrays.dtype
    if not node.domain and node.op_type == "ConstantOfShape":
        value = attributes.get("value")
        value = np.zeros(1, np.float32) if value is None else value
        attributes["value"] = arrays.cast(value, DType.of(value.dtype), "a constant", node.origin)
    elif not node.domain and node.op_type in _DTYPE_OF_RESULT:
        name = _DTYPE_OF_RESULT[node.op_type]
        if name in attributes or node.op_type not in _LIKE:
            attributes[name] = dtype
    else:
        swapped = {
            key: dtype for key, value in attributes.items() if isinstance(value, DType) and value in sources.dtypes
        }
        attributes.update(swapped)
    return attributes


# Patterns for what keeps its dtype: operators, layers and names of values.


class Keep:
    """Patterns with `*`, `?` and `[...]` as in the shell, compared with operators, layers and names of values."""

    def __init__(self, graph: Graph, patterns: object, dtypes: frozenset[DType] = frozenset()) -> None:
        """Raise `GraphError` for patterns that are not strings or match nothing.

        dtypes: those that are converted. A warning names a pattern that matches nothing of them.
        """
        self.patterns = _patterns(patterns)
        self._matches = functools.cache(lambda name: any(fnmatch.fnmatchcase(name, p) for p in self.patterns))
        if self.patterns:
            _check_patterns(graph, self.patterns, Sources(dtypes, True))

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def has_node(self, node: Node) -> bool:
        """Return True if a node keeps its dtype."""
        return bool(self.patterns) and any(map(self._matches, _names_of_node(node)))

    def has_value(self, symbol: Symbol) -> bool:
        """Return True if an input, weight or constant keeps its dtype."""
        return symbol.given_name is not None and bool(self.patterns) and self._matches(symbol.given_name)


def _names_of_node(node: Node) -> set[str]:
    """Return the names that patterns are compared with: the operator, its layers, and its results."""
    names = {node.op_type}
    layers = node.layer.rstrip("/").split("/")
    names |= {"/".join(layers[: i + 1]) for i in range(len(layers))}
    for symbol in node.outputs:
        name = symbol.name
        names |= {name, name if name.startswith(node.layer) else node.layer + name}
    return names - {""}


def _patterns(value: object) -> tuple[str, ...]:
    patterns = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if all(isinstance(each, str) for each in patterns):
        return patterns
    raise GraphError(
        f"astype: keep must be a pattern or a list of patterns, got {value!r:.80}",
        help="give a pattern such as 'Softmax' or 'encoder/*', or a list of them",
    )


def _check_patterns(graph: Graph, patterns: tuple[str, ...], sources: Sources) -> None:
    names: dict[str, bool] = {}  # True if something of that name would be converted
    for part in parts(graph):
        for node in part.nodes:
            definition = definition_of(node)
            values = (*node.inputs, *node.outputs)
            is_converted = bool(definition or bodies(node)) or any(
                s is not None and sources.has(s.type) for s in values
            )
            own = sorted(_names_of_node(node)) + ([definition.name] if definition else [])
            names.update({name: is_converted or names.get(name, False) for name in own})
        named = [s for s in part.symbols if s.given_name and (isinstance(s.producer, Constant) or s.is_constant)]
        names.update({s.name: sources.has(s.type) for s in (*named, *part.input_symbols)})
    for pattern in patterns:
        matches = fnmatch.filter(names, pattern)
        if not matches:
            near = similar(pattern, names, cutoff=0.4) or [*names][:5]
            raise GraphError(
                f"astype: no operator, layer or value matches {pattern!r}",
                help=f"some names are {', '.join(map(repr, near))}" if near else "the graph is empty",
            )
        if not any(names[name] for name in matches):
            converted = [name for name, is_converted in names.items() if is_converted]
            near = similar(pattern, converted, cutoff=0.4) or converted[:5]
            warn(
                f"astype: keep={pattern!r} keeps nothing: what it matches has no dtype that is converted "
                f"({', '.join(sorted(map(str, sources.dtypes)))})",
                f"some names of these dtypes are {', '.join(map(repr, near))}" if near else "nothing is converted",
                UserWarning,
            )


# Arrays of weights and constants in another float dtype, and the report of values it cannot represent.

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """An array with values that the new dtype cannot represent.

    beyond: elements that become the largest finite value. zeros: elements other than 0 that become 0.
    """

    label: str
    line: Line | None
    source: DType
    shape: tuple[int, ...]
    beyond: int
    zeros: int

    def text(self, dtype: DType) -> str:
        """Return one line of the warning."""
        size = int(np.prod(self.shape))
        parts = []
        if self.beyond:
            parts.append(
                f"{self.beyond} of {size} values are beyond {dtype} and become {dtype.max:.6g} or its negative"
            )
        if self.zeros:
            parts.append(f"{self.zeros} of {size} values become 0")
        place = f" ({self.line})" if self.line else ""
        return f"{self.label} {self.source}{list(self.shape)}{place}: {'; '.join(parts)}"


class CastArrays:
    """The converted arrays of one `astype`: each is cast once, however many Symbols share it."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.losses: list[Loss] = []
        self._casts: dict[int, tuple[Array, Array]] = {}
        self._constants: dict[int, tuple[Constant, Constant]] = {}
        self._others: dict[DType, CastArrays] = {dtype: self}

    def of(self, dtype: DType) -> CastArrays:
        """Return the converted arrays in another dtype."""
        if dtype not in self._others:
            self._others[dtype] = CastArrays(dtype)
        return self._others[dtype]

    def constant(self, symbol: Symbol, producer: Constant) -> Constant:
        """Return the producer of a constant or weight in the new dtype."""
        cached = self._constants.get(id(producer))
        if cached is None:
            label = repr(symbol.given_name) if symbol.given_name else "a constant"
            array = self.cast(producer.array, symbol.dtype, label, producer.origin)
            cached = self._constants[id(producer)] = producer, Constant(array, producer.is_weight, producer.origin)
        return cached[1]

    def cast(self, array: Array, source: DType, label: str, origin: Origin | Line | None) -> Array:
        """Return an array in the new dtype. Finite values stay finite."""
        cached = self._casts.get(id(array))
        if cached is not None:
            return cached[1]
        result = cast_array(array, source, self.dtype)
        if self.dtype.bits < source.bits or float(self.dtype.max) < float(source.max):
            infinite = np.isinf(result) & np.isfinite(array)
            beyond = int(np.count_nonzero(infinite))
            zeros = int(np.count_nonzero((result == 0) & (array != 0)))
            if beyond:
                largest = np.copysign(float(self.dtype.max), array.astype(np.float64)).astype(self.dtype.numpy)
                result = np.where(infinite, largest, result).astype(self.dtype.numpy)
            if beyond or zeros:
                self.losses.append(Loss(label, line_of(origin), source, array.shape, beyond, zeros))
        self._casts[id(array)] = array, result
        return result

    def report(self, what: str = "astype", fix: str = "keep what reads them: astype(..., keep=[...])") -> None:
        """Warn at the user's line about arrays with values that the dtype cannot represent."""
        if not self.losses:
            return
        rows = sorted(self.losses, key=lambda loss: -loss.beyond)
        lines = [f"\n    {escaped(loss.text(self.dtype))}" for loss in rows[:_MAX_LISTED]]
        more = f"\n    and {len(rows) - _MAX_LISTED} more" if len(rows) > _MAX_LISTED else ""
        text = f"{what}: {self.dtype} cannot represent every value of {len(rows)} constants and weights"
        warn(f"{text}{''.join(lines)}{more}", fix, LossyCastWarning)


def warn(text: str, help: str, category: type[UserWarning]) -> None:
    """Warn at the user's line."""
    path, number = user_line() or ("<unknown>", 0)
    warnings.warn_explicit(f"{text}\n  help: {help}", category, path, number)
