"""Arguments of the commands that run models."""

from __future__ import annotations

from graphcore.cli.arguments.options import Commands, add_links, add_precision, add_provider, command, pair, size

_RUN = "Runs a model and prints what its outputs are."
_RUN_HELP = """\
NumPy has no name for bfloat16, float8 and int4. In .npz files those floats are stored as unsigned
integers of their bits and the 4-bit integers as 8-bit ones; `name.dtype` beside them names the dtype.
Inputs are taken in that form too.

examples:
  graphcore run model.onnx --random --seed 3 --dim batch=4
  graphcore run model.onnx --input x=x.npy --output results.npz
"""


def add_run(commands: Commands) -> None:
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
    add_precision(parser)
    parser.add_argument("--output", metavar="FILE", help="a .npz file for the outputs")
