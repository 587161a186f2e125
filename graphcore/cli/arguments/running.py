"""Arguments of the commands that run models."""

from __future__ import annotations

from graphcore.cli.arguments.options import (
    PRECISIONS,
    Commands,
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

_HOME = "running"

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
    parser = command(commands, _HOME, "run", _RUN, _RUN_HELP)
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
    parser = command(commands, _HOME, "bench", _BENCH, _BENCH_HELP)
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
    parser = command(commands, _HOME, "compare", _COMPARE, _COMPARE_HELP)
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
