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

from graphcore.cli.arguments import parser
from graphcore.errors import GraphcoreError
from graphcore.support.escaping import escaped

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
    with _record_interrupts() as interrupts, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failure = 1
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
        except SystemExit as stop:  # argparse has printed the reason
            return int(stop.code or 0)
        except GraphcoreError as error:
            status = _print_error(_text(error), failure)
        except BrokenPipeError:  # the reader has closed the pipe, such as `head`
            sys.stderr.close()
            return 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        except MemoryError:
            status = _print_error("graphcore: out of memory")
        except Exception as error:
            if interrupts:  # an import can turn KeyboardInterrupt into another error
                return _INTERRUPTED
            reason = " ".join(str(error).split())
            status = _print_error(f"graphcore: internal error, {type(error).__name__}: {reason}; please report it")
    for warning in caught:
        _print_error(f"{warning.category.__name__}: {warning.message}")
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


def _print_error(text: str, status: int = 1) -> int:
    print("\n".join(map(escaped, text.split("\n"))), file=sys.stderr)
    return status


def _text(error: GraphcoreError) -> str:
    """Return the error as the library prints it, without the source line, which is not the user's code here."""
    lines = str(error).split("\n")
    if error.line is not None:
        place = str(error.line)
        lines = [each.removesuffix(place).rstrip() for each in lines if not each.startswith(f"  at {place}")]
    return f"{type(error).__name__}: " + "\n".join(lines)
