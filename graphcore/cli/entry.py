"""The command line: runs the command that its arguments name; errors are their text on stderr, never a traceback."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from graphcore.cli.arguments import parser
from graphcore.errors import GraphcoreError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. argv: its arguments, by default those of the process. Returns the exit status: 0, 1 where the
    command fails, 2 where it is used wrongly, 130 where it is interrupted; those of `check` are in its help."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            command = import_module(f"graphcore.cli.commands.{args.command}")
            status = int(getattr(command, args.command)(args))
            sys.stdout.flush()
        except GraphcoreError as error:
            status = _failed(_text(error), args.failure)
        except BrokenPipeError:  # who reads has read enough
            sys.stderr.close()
            return 1
        except KeyboardInterrupt:
            return 130
        except MemoryError:
            status = _failed("graphcore: there is not enough memory")
        except Exception as error:
            reason = " ".join(str(error).split())
            status = _failed(f"graphcore: an error of its own, {type(error).__name__}: {reason}; please report it")
    for warning in caught:
        print(f"{warning.category.__name__}: {warning.message}", file=sys.stderr)
    return status


def _failed(text: str, status: int = 1) -> int:
    print(text, file=sys.stderr)
    return status


def _text(error: GraphcoreError) -> str:
    """Return the error as the library prints it, without the line of code that led to it, which is no line of the
    user's here."""
    lines = str(error).split("\n")
    if error.line is not None and lines[-1].startswith("  at "):
        lines.pop()
    return f"{type(error).__name__}: " + "\n".join(lines)
