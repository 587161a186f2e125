"""The arguments of the command line, and what becomes of errors: their text on stderr, never a traceback."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from graphcore._version import __version__
from graphcore.errors import GraphcoreError
from graphcore.runtime.cli import check, convert, doctor, promote, quantize, run

_EXAMPLES = """examples:
  graphcore run model.onnx --random --dim batch=4
  graphcore run model.onnx --input tokens=tokens.npy --input gain=gain.npy --output results.npz
  graphcore check model.onnx
  graphcore convert model.onnx lowered.onnx --target cpu
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore promote int8 uint64
  graphcore doctor
"""


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
            status = int(args.function(args))
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


def parser() -> argparse.ArgumentParser:
    """Return what the commands take."""
    made = argparse.ArgumentParser(
        prog="graphcore",
        description="Runs ONNX models with exact numbers, says what onnxruntime alone makes of them, writes ones that "
        "any onnxruntime runs, quantises them, compares promotion systems, and looks at what is installed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"graphcore {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (run, check, convert, quantize, promote, doctor):
        module.add(commands)
    return made
