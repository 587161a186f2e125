"""The arguments of the commands, in files of no others: helping and refusing need neither NumPy nor onnxruntime."""

from __future__ import annotations

import argparse

from graphcore._version import __version__
from graphcore.cli.arguments import reading, running, writing

_EXAMPLES = """examples:
  graphcore run model.onnx --random --dim batch=4
  graphcore run model.onnx --input tokens=tokens.npy --input gain=gain.npy --output results.npz
  graphcore check model.onnx
  graphcore convert model.onnx lowered.onnx --target cpu
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore promote int8 uint64
  graphcore doctor
"""

_COMMANDS = (
    running.add_run,
    reading.add_check,
    writing.add_convert,
    writing.add_quantize,
    reading.add_promote,
    reading.add_doctor,
)
"""In the order of the help."""


def parser() -> argparse.ArgumentParser:
    """Return what the commands take. `command` of what it reads is the name of a module of `cli/commands`, which
    has a function of that name."""
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
    for add in _COMMANDS:
        add(commands)
    return made
