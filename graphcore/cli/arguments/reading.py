"""Arguments of the commands that read and report."""

from __future__ import annotations

from graphcore.cli.arguments.options import Commands, add_links, add_provider, command

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


def add_check(commands: Commands) -> None:
    parser = command(commands, "check", _CHECK, _CHECK_HELP)
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    add_provider(parser)
    parser.add_argument("--json", action="store_true", help="print one object of JSON")
    add_links(parser)
    parser.set_defaults(failure=2)


def add_promote(commands: Commands) -> None:
    parser = command(commands, "promote", _PROMOTE, _PROMOTE_HELP)
    parser.add_argument("lhs", metavar="LHS", help="the dtype of the left operand")
    parser.add_argument("rhs", metavar="RHS", help="the dtype of the right operand")
    parser.add_argument(
        "--system", action="append", metavar="NAME", help="one of the promotion systems (all); repeatable"
    )


def add_doctor(commands: Commands) -> None:
    parser = command(commands, "doctor", _DOCTOR, _DOCTOR_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead; docs/doctor.md has its keys"
    )
    parser.add_argument("--traps", action="store_true", help="name every trap and the releases in which it was seen")
