"""Strings: concatenation, splitting, patterns, and conversion from and to numbers.

Ops that move elements (`gather`, `concat`, `where`, indexing) and `==` accept strings too.
See docs/howto/lists_and_strings.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import dtype_of, graph_of, operand
from graphcore.build.shapes import broadcast
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.reduction import any as any_of
from graphcore.ops.shared.dims import shape_vector, size_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

StringLike: TypeAlias = "str | Symbol | np.ndarray[Any, Any]"
_STRING, _I64, _U64 = DType.string, DType.int64, DType.uint64


@op(onnx="StringConcat")
def string_concat(lhs: StringLike, rhs: StringLike) -> Symbol:
    """Elementwise concatenation of strings.

    Args:
        lhs: Strings whose shapes broadcast; a Python str is a scalar.
        rhs: Strings whose shapes broadcast; a Python str is a scalar.

    Raises:
        DTypeError: For other dtypes.
        ShapeError: For shapes that do not broadcast.

    ONNX StringConcat.
    """
    graph = graph_of("string_concat", (lhs, rhs))
    roles = {
        "lhs": _strings(graph, "string_concat", lhs, "lhs"),
        "rhs": _strings(graph, "string_concat", rhs, "rhs"),
    }
    shape = broadcast("string_concat", roles)
    return graph.build.emit("StringConcat", tuple(roles.values()), tensor_type(_STRING, shape))


@op(onnx="StringConcat")
def string_join(values: Sequence[StringLike], separator: str = "") -> Symbol:
    """Strings concatenated with a separator between them.

    Args:
        values: One or more, as `string_concat` takes them.
        separator: A Python str. Raises as `string_concat` does, and `ShapeError` for no values.

    ONNX StringConcat.
    """
    if isinstance(values, (str, Symbol)) or not isinstance(values, Iterable) or not list(values):
        raise ShapeError(
            "string_join: values must be a list of one or more strings", operands={"values": values}, help="give a list"
        )
    graph = graph_of("string_join", values)
    first, *others = [_strings(graph, "string_join", value, f"value {i}") for i, value in enumerate(values)]
    between = [string_concat(separator, other) if separator else other for other in others]
    return functools.reduce(string_concat, between, first)


@op(onnx="StringSplit")
def string_split(x: StringLike, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[Symbol, Symbol]:
    """The parts of each string between delimiters, and the number of parts.

    Args:
        x: Strings of any shape.
        delimiter: A Python str; without one the parts are separated by runs of spaces, and a string of spaces only has
            none.
        maxsplit: The maximum number of splits, from the start.

    Returns:
        The parts, with a last axis as long as the greatest number of parts and "" after the last part, and their
        numbers, int64 in the shape of x.

    Raises:
        DTypeError: For anything but strings.
        ShapeError: For a maxsplit below 0 and an empty delimiter.

    Python's str.split; ONNX StringSplit.
    """
    graph = graph_of("string_split", (x,))
    symbol = _strings(graph, "string_split", x, "x")
    if delimiter is not None and (not isinstance(delimiter, str) or not delimiter):
        raise ShapeError(
            f"string_split: delimiter must be a str of one or more characters, got {delimiter!r}",
            help="give a str, or None for spaces",
        )
    if maxsplit is not None and (not isinstance(maxsplit, int) or isinstance(maxsplit, bool) or maxsplit < 0):
        raise ShapeError(
            f"string_split: maxsplit must be an int >= 0, got {maxsplit!r}", help="give an int >= 0, or None"
        )
    options = {"delimiter": delimiter, "maxsplit": maxsplit}
    parts = tensor_type(_STRING, _shape([*symbol.shape, Dim.dynamic()]))
    counts = tensor_type(_I64, symbol.shape)
    attributes = {name: value for name, value in options.items() if value is not None}
    first, second = graph.build.emit_many("StringSplit", (symbol,), [parts, counts], attributes)
    return first, second


def _in_case(case: str, function: str, exception: str = "") -> Callable[[StringLike], Symbol]:
    """Declare the conversion to a case."""
    name = f"string_{case}"
    doc = f"""The strings in {case} case.

    Args:
        x: Strings of any shape. Each letter is converted by itself, as the C library's {function} does in a UTF-8 locale{exception}.

    Raises:
        DTypeError: For anything but strings.

    ONNX StringNormalizer.
    """  # noqa: E501

    @op(onnx="StringNormalizer", name=name, doc=doc)
    def convert(x: StringLike) -> Symbol:
        graph = graph_of(name, (x,))
        symbol = _strings(graph, name, x, "x")
        # StringNormalizer needs a vector that is not empty.
        line = e.emit("Reshape", symbol, graph.build.vector([-1]), shape=_shape([Dim.dynamic()]))
        line = e.emit("Concat", line, graph.constant([""]), shape=_shape([Dim.dynamic()]), axis=0)
        result = e.emit("StringNormalizer", line, shape=line.shape, case_change_action=case.upper())
        result = e.emit("Slice", result, graph.build.vector([0]), graph.build.vector([-1]), shape=line.shape)
        vector = shape_vector(graph, [size_of(symbol, i) for i in range(symbol.rank)])
        return e.emit("Reshape", result, vector, shape=symbol.shape, allowzero=1)

    return convert


string_lower = _in_case("lower", "towlower")
string_upper = _in_case(
    "upper", "towupper", ":\n            letters without a single upper-case letter, such as sharp s, stay"
)


@op(onnx="Equal, Compress")
def string_remove(x: StringLike, words: Sequence[str], case_sensitive: bool = True) -> Symbol:
    """The strings that are not in a list of words.

    Args:
        x: Strings of shape [n].
        words: Python strs.
        case_sensitive: If not, strings are compared as by `string_lower`.

    Returns:
        Strings of shape [?], empty where all are words.

    Raises:
        DTypeError: For anything but strings.
        ShapeError: For another rank.

    ONNX StringNormalizer keeps one "" if no string is left.
    """
    graph = graph_of("string_remove", (x,))
    symbol = _strings(graph, "string_remove", x, "x")
    if symbol.rank != 1:
        raise ShapeError(
            f"string_remove: x must have rank 1, got {symbol.rank}",
            operands={"x": symbol},
            help="flatten it: ops.flatten(x)",
        )
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise DTypeError(
            "string_remove: words must be a list of strs", operands={"words": repr(words)}, help="give a list of strs"
        )
    if not len(words):
        return symbol
    excluded = graph.constant(np.array(list(words), object))
    compared, excluded = (symbol, excluded) if case_sensitive else (string_lower(symbol), string_lower(excluded))
    is_excluded = any_of(e.equal(compared[:, None], excluded[None, :]), axis=1)
    remaining: Symbol = symbol[e.opposite(is_excluded)]
    return remaining


@op(onnx="RegexFullMatch")
def string_matches(x: StringLike, pattern: str) -> Symbol:
    """True where a pattern matches the whole string.

    Args:
        x: Strings of any shape.
        pattern: A regular expression of RE2, without look-around and backreferences; `.` is any character but a
            newline. A pattern that RE2 rejects is a `ModelError` when the graph is loaded.

    Raises:
        DTypeError: For anything but strings.

    ONNX RegexFullMatch.
    """
    graph = graph_of("string_matches", (x,))
    symbol = _strings(graph, "string_matches", x, "x")
    if not isinstance(pattern, str):
        raise DTypeError(f"string_matches: pattern must be a str, got {pattern!r:.60}", help="give a str: r'[a-z]+'")
    return graph.build.emit("RegexFullMatch", (symbol,), tensor_type(DType.bool, symbol.shape), {"pattern": pattern})


@op(onnx="Cast")
def string_of(x: TensorLike) -> Symbol:
    """Numbers as strings.

    Args:
        x: Any shape, integers of up to 64 bits in all their digits, bools as "True" and "False", floats in 8
            significant digits as C's %.8g writes them, with "INF", "-INF" and "NaN". float64 loses digits, and float32
            may need a ninth digit to be read back exactly. Strings stay.

    Raises:
        DTypeError: For wider integers.

    ONNX Cast.
    """
    symbol = operand("string_of", x)
    dtype = symbol.dtype
    graph = symbol.graph
    if dtype is _STRING:
        return symbol
    if dtype.is_complex:
        raise DTypeError(
            f"string_of: {dtype} cannot be written as text",
            operands={"x": symbol},
            help="write its parts: ops.string_of(ops.real(x))",
        )
    if dtype.bits > 64:
        raise DTypeError(
            f"string_of: {dtype} has more than 64 bits", operands={"x": symbol}, help="cast it: .cast(DType.int64)"
        )
    if dtype is DType.bool:
        yes, no = (_strings(graph, "string_of", text, "x") for text in ("True", "False"))
        return graph.build.emit("Where", (symbol, yes, no), tensor_type(_STRING, symbol.shape))
    if dtype.is_float:
        wide = DType.float64 if dtype is DType.float64 else DType.float32
    else:
        wide = _U64 if dtype.is_unsigned and dtype.bits == 64 else _I64
    return e.cast_within(graph.build.cast(symbol, wide), _STRING)


@op(onnx="RegexFullMatch, Cast")
def string_parse(x: StringLike, dtype: object) -> Symbol:
    """The numbers that strings represent, with or without surrounding spaces.

    Args:
        x: Strings of any shape.
        dtype: An integer, for digits with an optional sign; or a float, for decimal numbers with an optional exponent,
            and inf and nan in any case. Floats are read as float64 and then rounded. Other strings, an integer out of
            range of the dtype, and a float out of range of float64 (1e400, 1e-400) are errors of the run.

    Raises:
        DTypeError: For anything but strings, and for other dtypes.

    ONNX RegexFullMatch, then Cast.
    """
    name = "string_parse"
    graph = graph_of(name, (x,))
    symbol = _strings(graph, name, x, "x")
    wanted = dtype_of(name, dtype, graph)
    if wanted.is_float:
        read = DType.float64
    elif wanted.is_integer and wanted.bits <= 64:
        read = _U64 if wanted.is_unsigned and wanted.bits == 64 else _I64
    else:
        raise DTypeError(
            f"{name}: {wanted} is neither a float nor an integer of up to 64 bits",
            help="compare the strings instead: x == 'True'" if wanted is DType.bool else "give another dtype",
        )
    pattern = _REAL if wanted.is_float else _UNSIGNED if wanted.is_unsigned else _SIGNED
    valid = string_matches(symbol, pattern)
    parsed = _read(symbol, valid, read)
    if wanted.is_integer and wanted.bits < 64:
        least, greatest = (graph.build.scalar(int(limit), _I64) for limit in (wanted.min, wanted.max))
        low, high = (e.emit(test, parsed, limit, dtype=DType.bool) for test, limit in
                     (("GreaterOrEqual", least), ("LessOrEqual", greatest)))  # fmt: skip
        parsed = _read(symbol, e.both(low, high), read)
    return graph.build.cast(parsed, wanted)


_SIGNED = r"\s*[+-]?[0-9]+\s*"
_UNSIGNED = r"\s*\+?[0-9]+\s*"
_REAL = r"(?i)\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*|\s*[+-]?(inf|infinity|nan)\s*"


def _read(x: Symbol, valid: Symbol, dtype: DType) -> Symbol:
    """Cast strings; invalid ones are replaced by a string that the kernel refuses."""
    nothing = _strings(x.graph, "string_parse", "", "x")
    checked = x.graph.build.emit("Where", (valid, x, nothing), tensor_type(_STRING, x.shape))
    return e.cast_within(checked, dtype)


def _strings(graph: Graph, name: str, value: object, role: str) -> Symbol:
    """Return an operand that must be strings."""
    if isinstance(value, str):
        return graph.constant(value)
    symbol = graph.build.operand(value, name, role)
    if not isinstance(symbol.type, TensorType) or symbol.dtype is not _STRING:
        is_complex = isinstance(symbol.type, TensorType) and symbol.dtype.is_complex
        raise DTypeError(
            f"{name}: {role} must be strings, got {symbol.type}",
            operands={role: symbol},
            help=f"ops.string_of({'ops.real(z)' if is_complex else 'x'}) converts numbers to strings",
        )
    return symbol
