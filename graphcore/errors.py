"""The exceptions and warnings of the library, and their common format.

An error shows what failed and why, each operand with its type and source line, the fix, and the line of user code:

    ShapeError: matmul: inner dimensions differ: 768 and 512
        lhs  hidden   float32[batch, 128, 768]   encoder.py:41
        rhs  w_query  float32[512, 768]          encoder.py:37
      help: transpose rhs, or reshape lhs so that its last dimension is 512
      at encoder.py:44   q = hidden @ w_query
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

from graphcore.support.escaping import escaped, escaped_lines
from graphcore.support.source_lines import Line, user_line


@runtime_checkable
class Described(Protocol):
    """An operand that errors can show: its name, its type and its source line."""

    def _describe(self) -> tuple[str, str, str]: ...


class GraphcoreError(Exception):
    """The base class of all errors of the library.

    Attributes:
        summary: What failed and why.
        help: The fix, or "".
        line: The line of user code, or None.
        operands: Of each operand the role, name, type and source line, as text.
    """

    operands: tuple[tuple[str, str, str, str], ...]

    def __init__(
        self,
        summary: str,
        *,
        operands: Mapping[str, object] | None = None,
        help: str = "",
        line: Line | None = None,
        raw: str = "",
    ) -> None:
        """
        Args:
            line: The line of user code, by default the running one.
            raw: The unchanged message of another program.
        """
        self.summary = summary = escaped_lines(summary)
        self.help = help = escaped_lines(help)
        self.line = user_line(2) if line is None else line
        self.operands = tuple((escaped(role), *_described(value)) for role, value in (operands or {}).items())
        closing = [*_closing(help, self.line), *([f"  {escaped_lines(raw)}"] if raw else [])]
        super().__init__("\n".join([summary, *_table(self.operands), *closing]))

    def with_help(self, summary: str, help: str) -> Self:
        """Return an error with the same operands, but another summary and help."""
        error = type(self)(summary, help=help)
        error.operands = self.operands
        error.args = ("\n".join([error.summary, *_table(error.operands), *_closing(error.help, error.line)]),)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DTypeError(GraphcoreError, TypeError):
    """A dtype that does not exist, does not fit, or is not supported by an op."""


class ShapeError(GraphcoreError, ValueError):
    """Incompatible or invalid shapes, axes or ranks."""


class PromotionError(GraphcoreError, TypeError):
    """Operands whose dtypes have no common dtype in the promotion system."""


class GraphError(GraphcoreError, ValueError):
    """An invalid use of a graph: mixed graphs, duplicate names, missing outputs."""


class SymbolError(GraphError, TypeError):
    """A Symbol used where a value is needed: `if x`, `y in x`, `int(x)`."""


class ImmutableError(GraphError, AttributeError, TypeError):
    """An assignment to an immutable attribute: `symbol.type = ...`, `node.attributes["axis"] = ...`."""


class ModelError(GraphcoreError, ValueError):
    """A model that cannot be read or run."""


class FeedError(GraphcoreError, TypeError, ValueError):
    """An array passed to a Model that does not fit its input."""


class RunError(GraphcoreError, RuntimeError):
    """The runtime failed, or a provider is missing."""


class RunTimeoutError(RunError, TimeoutError):
    """A run, or a waiting request, that exceeded its `timeout=`."""


class RunCancelledError(RunError):
    """A run, or a waiting request, that was cancelled."""


class BusyError(RunError):
    """A full queue of requests: try again later."""


class ExportError(GraphcoreError, OSError):
    """A file that cannot be written."""


class MissingExtraError(GraphcoreError, ImportError):
    """A package of an optional extra is not installed."""


class UnsafePathError(GraphcoreError, OSError):
    """A path that leaves its allowed folder."""


class ResourceLimitError(GraphcoreError, MemoryError):
    """A limit on size, depth or time that was exceeded."""


class LossyCastWarning(UserWarning):
    """An implicit cast to a dtype that cannot hold the range of the operand's dtype."""


def _restore(kind: type[GraphcoreError], args: tuple[Any, ...], attributes: dict[str, Any]) -> GraphcoreError:
    error = kind("")
    error.args = args
    error.__dict__.update(attributes)
    return error


def _described(value: object) -> tuple[str, str, str]:
    if isinstance(value, Described):
        name, type_, line = value._describe()
        return escaped(name), escaped(type_), escaped(line)
    return ("", escaped(value if isinstance(value, str) else repr(value)), "")


def _table(rows: tuple[tuple[str, str, str, str], ...]) -> list[str]:
    used = [column for column in range(4) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    gap = {0: "  ", 1: "   ", 2: "   ", 3: ""}
    return ["    " + "".join(row[c].ljust(widths[c]) + gap[c] for c in used).rstrip() for row in rows]


def _closing(help: str, line: Line | None) -> list[str]:
    closing = [f"  help: {help}"] if help else []
    if line is not None:
        closing.append(escaped(f"  at {line}   {line.excerpt}").rstrip())
    return closing
