"""The command line: parses arguments, runs the command, and prints errors as text on stderr, without a traceback."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

from graphcore.cli import output
from graphcore.cli.arguments import UsageError, parser
from graphcore.errors import GraphcoreError
from graphcore.support.escaping import escaped
from graphcore.support.source_lines import Line

_INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT, as in shells."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit status: 0 for success, 1 for failure, 2 for wrong usage, 130 after Ctrl-C. The help of `check` and
        `diff` lists theirs.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in a model may have characters that the encoding lacks
            stream.reconfigure(errors="backslashreplace")
    as_json = "--json" in (sys.argv[1:] if argv is None else argv)
    with _record_interrupts() as interrupts, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failure = 1
        failed: BaseException | None = None
        try:
            root = parser()
            if not (sys.argv[1:] if argv is None else argv):
                root.print_help()
                return 0
            args = root.parse_args(argv)
            failure = args.failure
            name = args.command.replace("-", "_")
            command = import_module(f"graphcore.cli.commands.{args.home}")
            status = int(getattr(command, name)(args))
            sys.stdout.flush()
        except UsageError as error:
            status, failed = 2, error
        except SystemExit as stop:  # argparse has printed the help
            return int(stop.code or 0)
        except BrokenPipeError:  # the reader has closed the pipe, such as `head`
            sys.stderr.close()
            return 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        except Exception as error:
            if interrupts and not isinstance(error, GraphcoreError):
                return _INTERRUPTED  # an import can turn KeyboardInterrupt into another error
            status, failed = failure if isinstance(error, GraphcoreError) else 1, error
    if failed is not None:
        text, document = _describe(failed)
        _print_error(text)
        if as_json:
            try:
                print(output.json_text(document), flush=True)
            except BrokenPipeError:
                sys.stderr.close()
                return status
    for warning in caught:
        text = _without(Line(warning.filename, warning.lineno), str(warning.message))
        _print_error(f"{warning.category.__name__}: {text}")
    return status


@contextlib.contextmanager
def _record_interrupts() -> Iterator[list[int]]:
    """Yield a list that grows with each Ctrl-C, which still raises KeyboardInterrupt."""
    interrupts: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _print_error(text: str) -> None:
    print("\n".join(map(escaped, text.split("\n"))), file=sys.stderr)


def _describe(error: BaseException) -> tuple[str, dict[str, Any]]:
    """Return an error as text and as the document of `--json`, without the source line, which is not user code here."""
    kind, help = type(error).__name__, ""
    operands: list[tuple[str, ...]] = []
    if isinstance(error, GraphcoreError):
        summary, help = error.summary, error.help
        lines = [_without(error.line, line) for line in str(error).split("\n")]
        text = "\n".join([f"{kind}: {lines[0]}", *filter(None, lines[1:])])
        operands = [(*each[:3], _without(error.line, each[3])) for each in error.operands]
    elif isinstance(error, UsageError):
        summary, help = error.summary, " ".join(error.usage.split())
        text = f"{error.usage}{error.command}: error: {summary}"
    elif isinstance(error, MemoryError):
        summary = "out of memory"
        text = f"graphcore: {summary}"
    else:
        summary, help = f"internal error, {kind}: {' '.join(str(error).split())}", "please report it"
        text = f"graphcore: {summary}; {help}"
    rows = [dict(zip(("role", "name", "type", "line"), each, strict=True)) for each in operands]
    return text, {"error": kind, "summary": summary, "operands": rows, "help": help, "message": text}


def _without(place: Line | None, text: str) -> str:
    """Return a text without the line of code that it ends with."""
    if place is None:
        return text
    excerpt = f"{place}   {place.excerpt}".rstrip()
    return text.removesuffix(excerpt).removesuffix(str(place)).removesuffix(" at ").rstrip()
