"""Arguments of commands that read models, and of those that run them."""

from __future__ import annotations

import argparse

from graphcore.cli.arguments.options import (
    PRECISIONS,
    TARGETS,
    Commands,
    add_dims,
    add_feeds,
    add_json,
    add_limits,
    add_links,
    add_model,
    add_precision,
    add_provider,
    command,
    count,
    counts,
    seconds,
)

_INSPECT = "Prints what a model is: inputs, outputs, operators, dtypes, parameters, work, casts, what a target lacks."
_INSPECT_HELP = """\
FLOPs are counted for the sizes that --dim gives, 1 for the others. What --provider lacks is what onnxruntime alone
would refuse or compute otherwise, as `graphcore check` has it.

examples:
  graphcore inspect model.onnx
  graphcore inspect model.onnx --dim batch=8 --weights
  graphcore inspect model.onnx --nodes --json
"""

_DIFF = "Prints what differs between two models: inputs, outputs, nodes, types, weights, and what they compute."
_DIFF_HELP = """\
With --run both models are given the same arrays, random ones where no --input is given. Outputs are paired by name, or
in order where there are as many. Printed are the largest differences, absolute, relative and in units in the last place
(ULP), and the first value inside whose numbers differ, of those that have the same name in both.

The exit status is 0 where nothing differs, 1 where something does, 2 where a model cannot be read or run. With --run it
tells of the outputs alone, in which numbers within --atol + --rtol * |A| are the same.

examples:
  graphcore diff model.onnx quantised.onnx
  graphcore diff model.onnx other.onnx --run --dim batch=4 --rtol 1e-3
  graphcore diff model.onnx other.onnx --html page.html
"""

_CHECK = "Says what is done to a model so that onnxruntime runs it with the promised numbers, a line each."
_CHECK_HELP = """\
The model is lowered as InferenceSession.load does, and compared node by node with what was read. Printed
are the nodes that onnxruntime alone would refuse or compute otherwise, and what runs in their place; the operators that
give way to faster ones; the operators that stay; the passes, each with its reason; and why, on the CPU, loading makes a
Graph of the file at all.

The exit status is 0 where onnxruntime alone runs the model with the same numbers (faster forms do not count: their sums
may come in another order), 1 where it would refuse it or give other numbers, 2 where the model cannot be read or run.
With --strict it is 0 where the nodes run as they stand and no other: faster forms and added nodes count too.

examples:
  graphcore check model.onnx --provider cpu
  graphcore check model.onnx --json
"""

_VIEW = "Writes a page that shows the graph of a model, or opens it in the browser."
_VIEW_HELP = """\
The page is one HTML file that needs no network. With --profile the model is run, on random arrays where no --input is
given, and the page shows the time and the provider of each node.

examples:
  graphcore view model.onnx
  graphcore view model.onnx -o page.html --target cpu --target cuda
  graphcore view model.onnx --profile --dim batch=8
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

_COMPLETION = "Prints a script that completes this command in a shell."
_COMPLETION_HELP = """\
examples:
  graphcore completion bash > ~/.local/share/bash-completion/completions/graphcore
  graphcore completion zsh > ~/.zfunc/_graphcore
  graphcore completion fish > ~/.config/fish/completions/graphcore.fish
"""


def add_inspect(commands: Commands) -> None:
    parser = command(commands, "showing", "inspect", _INSPECT, _INSPECT_HELP)
    add_model(parser)
    add_json(parser)
    parser.add_argument("--nodes", action="store_true", help="also list the nodes")
    parser.add_argument("--weights", action="store_true", help="also list the weights, with statistics of their values")
    add_dims(parser)
    add_provider(parser)
    add_links(parser)


def add_diff(commands: Commands) -> None:
    parser = command(commands, "diff", "diff", _DIFF, _DIFF_HELP)
    parser.add_argument("old", metavar="A", help="the first .onnx file")
    parser.add_argument("new", metavar="B", help="the second .onnx file")
    add_json(parser)
    parser.add_argument("--html", metavar="FILE", help="write a page that shows both")
    parser.add_argument("--run", action="store_true", help="run both, and compare the numbers")
    add_feeds(parser)
    parser.add_argument(
        "--atol", type=_tolerance, default=0.0, metavar="X", help="absolute difference that counts as none (0)"
    )
    parser.add_argument(
        "--rtol", type=_tolerance, default=0.0, metavar="X", help="difference relative to A's that counts as none (0)"
    )
    add_provider(parser)
    add_precision(parser)
    add_links(parser)
    parser.set_defaults(failure=2)


def _tolerance(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return found


def add_check(commands: Commands) -> None:
    parser = command(commands, "check", "check", _CHECK, _CHECK_HELP)
    add_model(parser)
    add_provider(parser)
    add_json(parser)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where any node is changed, left out or added"
    )
    parser.add_argument(
        "--isolated",
        action=argparse.BooleanOptionalAction,
        help="load it in a process of its own first, so that nothing in it ends this one (on the CPU it is)",
    )
    add_links(parser)
    add_limits(parser)
    parser.set_defaults(failure=2)


def add_view(commands: Commands) -> None:
    parser = command(commands, "showing", "view", _VIEW, _VIEW_HELP)
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="the .html file to write; the browser stays closed")
    parser.add_argument(
        "--target",
        action="append",
        choices=TARGETS,
        help="show what lowering for it makes of each node (cpu); repeatable",
    )
    parser.add_argument("--against", metavar="FILE", help="another model; what differs from it is shown")
    parser.add_argument("--profile", action="store_true", help="run the model, and show where the time goes")
    add_json(parser)
    add_feeds(parser)
    add_provider(parser)
    add_links(parser)


def add_promote(commands: Commands) -> None:
    parser = command(commands, "promote", "promote", _PROMOTE, _PROMOTE_HELP)
    parser.add_argument("lhs", metavar="LHS", help="the dtype of the left operand")
    parser.add_argument("rhs", metavar="RHS", help="the dtype of the right operand")
    parser.add_argument(
        "--system", action="append", metavar="NAME", help="one of the promotion systems (all); repeatable"
    )
    add_json(parser)


def add_doctor(commands: Commands) -> None:
    parser = command(commands, "doctor", "doctor", _DOCTOR, _DOCTOR_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead; docs/howto/doctor.md has its keys"
    )
    parser.add_argument("--traps", action="store_true", help="name every trap and the releases in which it was seen")


def add_completion(commands: Commands) -> None:
    parser = command(commands, "showing", "completion", _COMPLETION, _COMPLETION_HELP)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


# Arguments of the commands that run models.

_RUN = "Runs a model and prints what its outputs are."
_RUN_HELP = """\
NumPy has no name for bfloat16, float8 and int4. In .npz files those floats are stored as unsigned
integers of their bits and the 4-bit integers as 8-bit ones; `name.dtype` beside them names the dtype.
Inputs are taken in that form too.

examples:
  graphcore run model.onnx --random --seed 3 --dim batch=4
  graphcore run model.onnx --input x=x.npy --input rate=16000 --output results.npz
"""

_BENCH = "Measures a model: latency, throughput and memory, beside onnxruntime alone on the same file."
_BENCH_HELP = """\
Both sides run in this process and take turns, call by call, so that whatever else the machine does meets both. A row is
a number of threads and a size of the batch, which is the first dim of the first input. Memory is what a process of each
side's own holds at most for loading the model and one call, without what importing takes.

The exit status is 0 where the model runs, whether onnxruntime alone runs it or not.

examples:
  graphcore bench model.onnx --dim batch=8 --seconds 5
  graphcore bench model.onnx --threads 1,2,4 --batch 1,8,32 --plot bench.svg
  graphcore bench model.onnx --json > today.json
"""

_COMPARE = "Compares forms of one model with its exact one on the CPU: their errors and their times."
_COMPARE_HELP = """\
Forms are the model on another provider, in another precision, computed in another dtype, or quantised. By default they
are every provider that is installed, the precision "fast", the dtypes float16 and bfloat16, and the schemes
int8_dynamic, int8 and int4. A form that cannot be made or run is a row with the reason.
Times are of calls that take turns with calls of the exact model. Errors are over all outputs of floats.

The exit status is 0 where the exact model runs.

examples:
  graphcore compare model.onnx --dim batch=4
  graphcore compare model.onnx --scheme int8_dynamic --scheme int4 --input x=x.npy
  graphcore compare model.onnx --provider cuda --dtype float16 --json
"""


def add_run(commands: Commands) -> None:
    parser = command(commands, "run", "run", _RUN, _RUN_HELP)
    add_model(parser)
    parser.add_argument("--random", action="store_true", help="random arrays for the inputs that none is given for")
    add_feeds(parser)
    add_provider(parser)
    add_links(parser)
    add_limits(parser)
    add_precision(parser)
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="load and run it in a process of its own, with limits of memory and time, no other files and no network",
    )
    parser.add_argument("--output", metavar="FILE", help="a .npz file for the outputs")
    add_json(parser)


def add_bench(commands: Commands) -> None:
    parser = command(commands, "bench", "bench", _BENCH, _BENCH_HELP)
    add_model(parser)
    add_json(parser)
    parser.add_argument("--seconds", type=seconds, default=2.0, metavar="S", help="measured for each row (2)")
    parser.add_argument(
        "--threads", type=counts, metavar="N,N", help="threads that a kernel may use (as many as onnxruntime takes)"
    )
    parser.add_argument("--batch", type=counts, metavar="N,N", help="sizes of the batch (as --dim says)")
    parser.add_argument("--plot", metavar="FILE", help="write a picture too, as SVG")
    parser.add_argument("--no-memory", action="store_true", help="do not start processes to measure memory")
    add_feeds(parser)
    add_provider(parser)
    add_precision(parser)
    add_links(parser)


def add_compare(commands: Commands) -> None:
    parser = command(commands, "compare", "compare", _COMPARE, _COMPARE_HELP)
    add_model(parser)
    add_json(parser)
    for option, metavar, words in (
        ("--provider", "NAME", 'onnxruntime\'s provider: "cpu", "cuda" or its own name'),
        ("--dtype", "NAME", "a dtype of floats that the model is to compute in"),
        ("--scheme", "NAME", "a scheme of `graphcore quantize`"),
    ):
        parser.add_argument(option, action="append", metavar=metavar, help=f"{words}; repeatable")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="as of `graphcore run`; repeatable")
    parser.add_argument("--seconds", type=seconds, default=1.0, metavar="S", help="measured for each form (1)")
    parser.add_argument("--threads", type=count, metavar="N", help="threads that a kernel may use")
    add_feeds(parser)
    add_links(parser)
