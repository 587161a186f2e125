"""Every exception and warning of the library, and the one look they have.

What was asked and why not, each operand with its type and where it came from, what to do, and the user's own line:

    ShapeError: matmul: inner dimensions differ: 768 and 512
        lhs  hidden   float32[batch, 128, 768]   encoder.py:41
        rhs  w_query  float32[512, 768]          encoder.py:37
      help: transpose rhs, or reshape lhs so that its last dimension is 512
      at encoder.py:44   q = hidden @ w_query
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

from graphcore.support.escaping import escaped, escaped_lines
from graphcore.support.source_lines import Line, user_line


@runtime_checkable
class Described(Protocol):
    """An operand that an error can show: its name, its type and the line that made it."""

    def _describe(self) -> tuple[str, str, str]: ...


class GraphcoreError(Exception):
    """The root of all errors of the library.

    Attributes: `summary` (what was asked and why not), `help` (what to do, or ""), `line` (the user's line, or None).
    """

    def __init__(
        self,
        summary: str,
        *,
        operands: Mapping[str, object] | None = None,
        help: str = "",
        line: Line | None = None,
        raw: str = "",
    ) -> None:
        """line: the user's line, where that is not the one that runs. raw: what another program said, word by word."""
        self.summary = summary = escaped_lines(summary)
        self.help = help = escaped_lines(help)
        self.line = user_line(2) if line is None else line
        self._rows = [(escaped(role), *_described(value)) for role, value in (operands or {}).items()]
        closing = [*_closing(help, self.line), *([f"  {escaped_lines(raw)}"] if raw else [])]
        super().__init__("\n".join([summary, *_table(self._rows), *closing]))

    def with_help(self, summary: str, help: str) -> Self:
        """Return the error with the same operands, that says something else and what to do about it."""
        error = type(self)(summary, help=help)
        error._rows = self._rows
        error.args = ("\n".join([error.summary, *_table(error._rows), *_closing(error.help, error.line)]),)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), str(self), self.summary, self.help, self.line)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DTypeError(GraphcoreError, TypeError):
    """A dtype that does not exist, does not fit, or that an op has no meaning for."""


class ShapeError(GraphcoreError, ValueError):
    """Shapes, axes or ranks that do not go together."""


class PromotionError(GraphcoreError, TypeError):
    """Operands whose dtypes the promotion system does not bring together."""


class GraphError(GraphcoreError, ValueError):
    """A graph used in a way that a graph cannot be: mixed graphs, duplicate names, missing outputs."""


class SymbolError(GraphError, TypeError):
    """A Symbol used where only a value would do: `if x`, `y in x`, `int(x)`."""


class ImmutableError(GraphError, AttributeError, TypeError):
    """An assignment to what does not change: `symbol.type = ...`, `node.attributes["axis"] = ...`."""


class ModelError(GraphcoreError, ValueError):
    """A model that cannot be read or run as it is."""


class FeedError(GraphcoreError, TypeError, ValueError):
    """An array given to a Model that its input does not take."""


class RunError(GraphcoreError, RuntimeError):
    """The runtime failed, or a provider is missing."""


class RunTimeoutError(RunError, TimeoutError):
    """A run, or a request that waits for one, that has taken longer than its `timeout=`."""


class RunCancelledError(RunError):
    """A run, or a request that waits for one, that was cancelled."""


class BusyError(RunError):
    """A queue of requests that is full: try again later."""


class ExportError(GraphcoreError, OSError):
    """A file that could not be written."""


class MissingExtraError(GraphcoreError, ImportError):
    """A package of an optional extra is not installed."""


class UnsafePathError(GraphcoreError, OSError):
    """A path that leaves the folder it must stay in."""


class ResourceLimitError(GraphcoreError, MemoryError):
    """Something larger or deeper than the limit set for it."""


class LossyCastWarning(UserWarning):
    """An implicit cast to a dtype that cannot hold the range of the operand's."""


def _restore(kind: type[GraphcoreError], text: str, summary: str, help: str, line: Line | None) -> GraphcoreError:
    error = kind(summary, help=help)
    error.args = (text,)
    error.line = line
    return error


def _described(value: object) -> tuple[str, str, str]:
    if isinstance(value, Described):
        name, type_, line = value._describe()
        return escaped(name), escaped(type_), escaped(line)
    return ("", escaped(value if isinstance(value, str) else repr(value)), "")


def _table(rows: list[tuple[str, str, str, str]]) -> list[str]:
    used = [column for column in range(4) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    gap = {0: "  ", 1: "   ", 2: "   ", 3: ""}
    return ["    " + "".join(row[c].ljust(widths[c]) + gap[c] for c in used).rstrip() for row in rows]


def _closing(help: str, line: Line | None) -> list[str]:
    closing = [f"  help: {help}"] if help else []
    if line is not None:
        closing.append(escaped(f"  at {line}   {line.excerpt}").rstrip())
    return closing
