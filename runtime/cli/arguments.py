"""The arguments of the commands, in files of no others: helping and refusing need neither NumPy nor onnxruntime."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from graphcore._version import __version__
from graphcore.runtime.cli.options import Commands, add_links, add_provider, command, pair, size

if TYPE_CHECKING:
    from graphcore.ir.graph import Precision, TargetName

_EXAMPLES = """examples:
  graphcore run model.onnx --random --dim batch=4
  graphcore run model.onnx --input tokens=tokens.npy --input gain=gain.npy --output results.npz
  graphcore check model.onnx
  graphcore convert model.onnx lowered.onnx --target cpu
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore promote int8 uint64
  graphcore doctor
"""

_TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda", "openvino")
_PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
"""As in `runtime.lowering`, which takes longer to import than all of the command line."""

_RUN = "Runs a model and prints what its outputs are."
_RUN_HELP = """\
NumPy has no name for bfloat16, float8 and int4. In .npz files those floats are stored as unsigned
integers of their bits and the 4-bit integers as 8-bit ones; `name.dtype` beside them names the dtype.
Inputs are taken in that form too.

examples:
  graphcore run model.onnx --random --seed 3 --dim batch=4
  graphcore run model.onnx --input x=x.npy --output results.npz
"""

_CHECK = "Says what is done to a model so that onnxruntime runs it with the promised numbers, a line each."
_CHECK_HELP = """\
The model is lowered as InferenceSession.load does, and compared node by node with what was read. Printed
are the nodes that onnxruntime alone would refuse or compute otherwise, and what runs in their place; the operators that
give way to faster ones; the operators that stay; the passes, each with its reason; and why, on the CPU, loading makes a
Graph of the file at all.

The exit status is 0 where onnxruntime alone runs the model with the same numbers (faster forms do not count: their sums
may come in another order), 1 where it would refuse it or give other numbers, 2 where the model cannot be read or run.

examples:
  graphcore check model.onnx --provider cpu
  graphcore check model.onnx --json
"""

_CONVERT = "Writes a model so that a plain onnxruntime of the target runs it, or as standard ONNX."

_QUANTIZE = "Writes a model whose matrix products read weights of few bits, and prints what became of each layer."
_QUANTIZE_HELP = """\
Patterns are of layers, results or weights, with * ? [...] as in the shell; * goes across layers.

examples:
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore quantize model.onnx small.onnx --scheme int4 --exclude 'head*' --embeddings
"""

_PROMOTE = "Prints the dtype in which two dtypes meet under each promotion system, and why; - where they do not meet."
_PROMOTE_HELP = """\
Dtypes are float32, uint8, int23, ...; float8 is float8_e4m3fn. A question mark says that a dtype is only a
default: that of a number written in the source for anvil, of a constant for kernel_float.
The exit status is 0 whether they meet or not.

examples:
  graphcore promote int8 uint64
  graphcore promote int32? int16 --system anvil
"""

_DOCTOR = "Says which onnxruntime is installed and what is done about it, and what keeps graphs from running."
_DOCTOR_HELP = """\
The exit status is 0 where graphs run, whatever there is to note, and 1 where a problem keeps them from it.

examples:
  graphcore doctor
  graphcore doctor --json
"""


def parser() -> argparse.ArgumentParser:
    """Return what the commands take. `command` of what it reads is the name of a module beside this one, which has a
    function of that name."""
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
    for add in (_run, _check, _convert, _quantize, _promote, _doctor):
        add(commands)
    return made


def _run(commands: Commands) -> None:
    parser = command(commands, "run", _RUN, _RUN_HELP)
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=FILE",
        help="a .npy file for an input; repeatable",
    )
    parser.add_argument("--random", action="store_true", help="random arrays for the inputs that no file is given for")
    parser.add_argument("--seed", type=int, default=0, help="of the random arrays (0)")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=size,
        metavar="NAME=SIZE",
        help="a dim of the random arrays (1); repeatable",
    )
    add_provider(parser)
    add_links(parser)
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        help="whether narrow floats round after every op (exact, but for float16 in models of other tools)",
    )
    parser.add_argument("--output", metavar="FILE", help="a .npz file for the outputs")


def _check(commands: Commands) -> None:
    parser = command(commands, "check", _CHECK, _CHECK_HELP)
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    add_provider(parser)
    parser.add_argument("--json", action="store_true", help="print one object of JSON")
    add_links(parser)
    parser.set_defaults(failure=2)


def _convert(commands: Commands) -> None:
    parser = command(commands, "convert", _CONVERT, "example:\n  graphcore convert new.onnx plain.onnx --target cpu\n")
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument("--target", choices=_TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        help="whether narrow floats round after every op (exact, but for float16 in models of other tools)",
    )
    parser.add_argument(
        "--implicit-casts", action="store_true", help="cast operands of several dtypes as the promotion system says"
    )
    parser.add_argument(
        "--promotion", metavar="SYSTEM", help="the promotion system (the one that the model notes, or max)"
    )
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset of OUT (the oldest that will do)")
    parser.add_argument(
        "--ir-version", type=int, metavar="N", help="the version of the file format (the one that goes with the opset)"
    )
    parser.add_argument("--runtime", metavar="RELEASE", help="the onnxruntime that is to run it, such as 1.20")
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside it, OUT.data")
    add_links(parser)


def _quantize(commands: Commands) -> None:
    parser = command(commands, "quantize", _QUANTIZE, _QUANTIZE_HELP)
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument(
        "--scheme", default="int8_dynamic", metavar="NAME", help="int8_dynamic, int8, int4, q4_0, ... (int8_dynamic)"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only these layers; repeatable"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="not these; repeatable")
    parser.add_argument("--embeddings", action="store_true", help="also tables that rows are looked up in, to int8")
    parser.add_argument("--min-elements", type=int, default=1024, metavar="N", help="leave smaller weights (1024)")
    parser.add_argument("--block-size", type=int, metavar="N", help="of int4: 16, 32, 64, ... (32)")
    parser.add_argument("--reduce-range", action="store_true", help="of int8: 7 bits, for x86 without VNNI")
    parser.add_argument("--accuracy-level", type=int, choices=(0, 4), help="0 is exact, 4 is faster (4)")
    parser.add_argument("--strict", action="store_true", help="fail where a chosen layer cannot be quantised")
    parser.add_argument("--target", choices=_TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument("--report", metavar="FILE", help="write the rows of the report as JSON too")
    add_links(parser)


def _promote(commands: Commands) -> None:
    parser = command(commands, "promote", _PROMOTE, _PROMOTE_HELP)
    parser.add_argument("lhs", metavar="LHS", help="the dtype of the left operand")
    parser.add_argument("rhs", metavar="RHS", help="the dtype of the right operand")
    parser.add_argument(
        "--system", action="append", metavar="NAME", help="one of the promotion systems (all); repeatable"
    )


def _doctor(commands: Commands) -> None:
    parser = command(commands, "doctor", _DOCTOR, _DOCTOR_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead; docs/doctor.md has its keys"
    )
    parser.add_argument("--traps", action="store_true", help="name every trap and the releases in which it was seen")
