"""The command line: runs the command that its arguments name; errors are their text on stderr, never a traceback."""

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
"""The exit status after Ctrl-C, as shells have it: 128 and the number of SIGINT."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. argv: its arguments, by default those of the process.

    Returns the exit status: 0, 1 where the command fails, 2 where it is used wrongly, 130 where it is interrupted;
    those of `check` and `diff` are in their help.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an encoding that lacks what a model's names have
            stream.reconfigure(errors="backslashreplace")
    with _noticed() as interrupts, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failure = 1
        try:
            args = parser().parse_args(argv)
            failure = args.failure
            name = args.command.replace("-", "_")
            command = import_module(f"graphcore.cli.commands.{args.home}")
            status = int(getattr(command, name)(args))
            sys.stdout.flush()
        except SystemExit as stop:  # argparse has said why
            return int(stop.code or 0)
        except GraphcoreError as error:
            status = _failed(_text(error), failure)
        except BrokenPipeError:  # who reads has read enough
            sys.stderr.close()
            return 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        except MemoryError:
            status = _failed("graphcore: there is not enough memory")
        except Exception as error:
            if interrupts:  # which imports turn into errors of their own
                return _INTERRUPTED
            reason = " ".join(str(error).split())
            status = _failed(f"graphcore: an error of its own, {type(error).__name__}: {reason}; please report it")
    for warning in caught:
        _failed(f"{warning.category.__name__}: {warning.message}")
    return status


@contextlib.contextmanager
def _noticed() -> Iterator[list[int]]:
    """Yield a list that gets longer with each Ctrl-C, which raises KeyboardInterrupt as ever."""
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _failed(text: str, status: int = 1) -> int:
    print("\n".join(map(escaped, text.split("\n"))), file=sys.stderr)
    return status


def _text(error: GraphcoreError) -> str:
    """Return the error as the library prints it, without the line of code that led to it, which is no line of the
    user's here."""
    lines = str(error).split("\n")
    if error.line is not None:
        place = str(error.line)
        lines = [each.removesuffix(place).rstrip() for each in lines if not each.startswith(f"  at {place}")]
    return f"{type(error).__name__}: " + "\n".join(lines)
