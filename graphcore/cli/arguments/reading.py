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
    add_options,
    add_precision,
    add_provider,
    add_repeatable,
    command,
    count,
    counts,
    seconds,
    tolerance,
)

_INSPECT = (
    "Prints facts about a model: inputs, outputs, operators, dtypes, parameters, FLOPs, casts, what a target lacks."
)
_INSPECT_HELP = """\
FLOPs are counted for the sizes of --dim, and 1 for other dims. What --provider lacks are the nodes that onnxruntime
alone would refuse or compute differently, as in `graphcore check`.

examples:
  graphcore inspect model.onnx
  graphcore inspect model.onnx --dim batch=8 --weights
  graphcore inspect model.onnx --nodes --json
"""

_DIFF = "Prints what differs between two models: inputs, outputs, nodes, types, weights, and results."
_DIFF_HELP = """\
With --run both models run on the same arrays, random ones for inputs without --input. Outputs are paired by name, or in
order if both models have the same number. The output has the largest differences, absolute, relative and in units in
the last place (ULP), and the first intermediate value that differs, of those with the same name in both
(and, if the name is generated, such as mat_mul_9, the same operator and operands).

The exit status is 0 if nothing differs, 1 if something does, 2 if a model cannot be read or run. With --run only the
outputs count; numbers within --atol + --rtol * |A| are equal.

examples:
  graphcore diff model.onnx quantised.onnx
  graphcore diff model.onnx other.onnx --run --dim batch=4 --rtol 1e-3
  graphcore diff model.onnx other.onnx --html page.html
"""

_CHECK = "Prints each change that a model needs so that onnxruntime runs it with exact numbers."
_CHECK_HELP = """\
The model is lowered as by InferenceSession.load, and compared node by node with the file. The output has the nodes that
onnxruntime alone would refuse or compute differently, and what replaces them; the operators replaced by faster ones;
the operators that do not change; the passes, each with its reason; and, on the CPU, why loading makes a Graph.

The exit status is 0 if onnxruntime alone runs the model with the same numbers (faster forms do not count, though they
may sum in another order), 1 if it would refuse the model or give other numbers, 2 if the model cannot be read or run.
With --strict it is 0 only if no node is changed, replaced or added, and none falls back from a device to the CPU.

examples:
  graphcore check model.onnx --provider cpu
  graphcore check model.onnx --target webgpu --runtime web-1.30
  graphcore check model.onnx --json
"""

_VIEW = "Draws the graph of a model as a page, and opens it in the browser or writes it to a file."
_VIEW_HELP = """\
The page is one HTML file that needs no network. With --profile the model runs, on random arrays for inputs without
--input, and the page shows the time and the provider of each node.

With --run the page runs the model itself, on values that are typed or dropped in, with onnxruntime-web, which
npm install onnxruntime-web puts into this folder, or into the one that GRAPHCORE_ONNXRUNTIME_WEB names.

examples:
  graphcore view model.onnx
  graphcore view model.onnx -o page.html --target cpu --target cuda
  graphcore view model.onnx --profile --dim batch=8
  graphcore view model.onnx --run -o page.html
"""

_PROMOTE = "Prints the dtype that two dtypes promote to under each promotion system, and why; - if there is none."
_PROMOTE_HELP = """\
Dtypes are float32, uint8, int23, ...; float8 is float8_e4m3fn. A question mark marks a dtype that is only a default: of
a number in the source for anvil, of a constant for kernel_float.
The exit status is 0 even if there is no common dtype.

examples:
  graphcore promote int8 uint64
  graphcore promote int32? int16 --system anvil
"""

_DOCTOR = "Prints which onnxruntime is installed, how graphcore adapts to it, and what keeps graphs from running."
_DOCTOR_HELP = """\
The exit status is 0 if graphs run, even with warnings, and 1 if a problem keeps them from running.

examples:
  graphcore doctor
  graphcore doctor --json
"""

_DECOMPILE = "Writes a model as a module of Python that builds it, as a person would write it."
_DECOMPILE_HELP = """\
The module has the graph as `graph`, and reads its weights from a .safetensors file beside it. Without -o, the text is
printed.

example:
  graphcore decompile model.onnx -o model.py
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
    add_options(
        parser,
        ("--atol", tolerance, 0.0, "X", "absolute difference that is ignored (0)"),
        ("--rtol", tolerance, 0.0, "X", "difference relative to A's that is ignored (0)"),
    )
    add_provider(parser)
    add_precision(parser)
    add_links(parser)
    parser.set_defaults(failure=2)


def add_check(commands: Commands) -> None:
    parser = command(commands, "check", "check", _CHECK, _CHECK_HELP)
    add_model(parser)
    add_provider(parser)
    parser.add_argument("--target", choices=TARGETS[1:], help="check a file exported for this target, not a session")
    parser.add_argument(
        "--runtime", metavar="RELEASE", help="check a file exported for this release: 1.20, ... or web-1.30"
    )
    add_json(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if any node is changed, removed or added")
    parser.add_argument(
        "--isolated",
        action=argparse.BooleanOptionalAction,
        help="load the model in a separate process first, so that it cannot crash this one (on for the CPU)",
    )
    add_links(parser)
    add_limits(parser)
    parser.set_defaults(failure=2)


def add_view(commands: Commands) -> None:
    parser = command(commands, "showing", "view", _VIEW, _VIEW_HELP)
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="the .html file to write; does not open the browser")
    add_repeatable(parser, "--target", "show each node as lowered for this target (cpu)", choices=TARGETS)
    parser.add_argument("--against", metavar="FILE", help="another model; show the differences from it")
    parser.add_argument("--profile", action="store_true", help="run the model, and show where the time goes")
    parser.add_argument(
        "--weight-bytes",
        type=int,
        default=1 << 20,
        metavar="N",
        help="bytes of weights that the page contains, the smallest first, to save them as .npy files (1048576)",
    )
    parser.add_argument("--run", action="store_true", help="a page that also runs the model; needs onnxruntime-web")
    parser.add_argument(
        "--wasm",
        choices=("inline", "beside"),
        help="with --run, where the WebAssembly is: beside needs a server (inline)",
    )
    add_json(parser)
    add_feeds(parser)
    add_provider(parser)
    add_links(parser)


def add_decompile(commands: Commands) -> None:
    parser = command(commands, "showing", "decompile", _DECOMPILE, _DECOMPILE_HELP)
    add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="the .py file to write; its arrays go beside it")
    add_json(parser)
    add_links(parser)


def add_promote(commands: Commands) -> None:
    parser = command(commands, "promote", "promote", _PROMOTE, _PROMOTE_HELP)
    parser.add_argument("lhs", metavar="LHS", help="the dtype of the left operand")
    parser.add_argument("rhs", metavar="RHS", help="the dtype of the right operand")
    add_repeatable(parser, "--system", "one of the promotion systems (all)", metavar="NAME")
    add_json(parser)


def add_doctor(commands: Commands) -> None:
    parser = command(commands, "doctor", "doctor", _DOCTOR, _DOCTOR_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead; docs/howto/doctor.md has its keys"
    )
    parser.add_argument("--traps", action="store_true", help="name every trap and the releases in which it was seen")


def add_conform(commands: Commands) -> None:
    parser = command(commands, "conform", "conform", _CONFORM, _CONFORM_HELP)
    suites = ("onnx", "dtypes", "onnx-tests", "array-api")
    add_repeatable(parser, "--suite", "a suite (all that can run)", choices=suites)
    engines = ("graphcore", "onnxruntime", "onnxruntime-web", "openvino", "reference")
    words = f"{', '.join(engines[:-1])} or {engines[-1]} (graphcore, onnxruntime)"
    add_repeatable(parser, "--engine", words, metavar="NAME", choices=engines)
    words = "a release of onnxruntime or the other engine, installed into the cache (the installed one)"
    add_repeatable(parser, "--runtime", words, metavar="VERSION")
    parser.add_argument("--onnx-tests", metavar="FOLDER", help="the checkout of onnx-tests")
    parser.add_argument("--array-api", metavar="FOLDER", help="the checkout of array-api-tests")
    parser.add_argument("--examples", type=count, default=10, metavar="N", help="examples of each of these tests (10)")
    parser.add_argument("--page", metavar="FILE", help="update the table of this Markdown page")
    add_provider(parser)
    add_json(parser)


def add_completion(commands: Commands) -> None:
    parser = command(commands, "showing", "completion", _COMPLETION, _COMPLETION_HELP)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


# Arguments of the commands that run models.

_RUN = "Runs a model and prints a summary of its outputs."
_RUN_HELP = """\
NumPy has no bfloat16, float8 and int4. .npz files store those floats as unsigned integers of the same bits, and 4-bit
integers as 8-bit ones; `name.dtype` has the name of the dtype. --input takes arrays in that form too.

examples:
  graphcore run model.onnx --random --seed 3 --dim batch=4
  graphcore run model.onnx --input x=x.npy --input rate=16000 --output results.npz
"""

_BENCH = "Measures a model: latency, throughput and memory, compared with onnxruntime alone on the same file."
_BENCH_HELP = """\
Both sides run in this process and alternate call by call, so that other load of the machine affects both. A row is a
number of threads and a size of the batch, the first dim of the first input. Memory is the peak of a separate process
for each side that loads the model and calls it once, without the memory of imports.

The exit status is 0 if the model runs, even if onnxruntime alone does not run it.

examples:
  graphcore bench model.onnx --dim batch=8 --seconds 5
  graphcore bench model.onnx --threads 1,2,4 --batch 1,8,32 --plot bench.svg
  graphcore bench model.onnx --json > today.json
"""

_COMPARE = "Compares forms of a model with the exact one on the CPU: errors and times."
_COMPARE_HELP = """\
A form is the model on another provider, in another precision or dtype, or quantised. By default these are every
installed provider, the precision "fast", the dtypes float16 and bfloat16, and the schemes int8_dynamic, int8 and int4.
A form that cannot be built or run is a row with the reason.
Calls of a form alternate with calls of the exact model. Errors are over all float outputs.

The exit status is 0 if the exact model runs.

examples:
  graphcore compare model.onnx --dim batch=4
  graphcore compare model.onnx --scheme int8_dynamic --scheme int4 --input x=x.npy
  graphcore compare model.onnx --provider cuda --dtype float16 --json
"""

_CONFORM = "Runs conformance suites against graphcore and other runtimes, and prints how many cases pass."
_CONFORM_HELP = """\
Suites: ONNX's backend tests of single nodes ("onnx"), 20 operators on operands of 13 dtypes each ("dtypes"), and, with
the paths of their checkouts, onnx-tests ("onnx-tests") and array-api-tests ("array-api"), which tests graphcore alone.
A case that crashes a runtime fails, and the others go on.

The exit status is 0 if the suites ran, whatever they found.

examples:
  graphcore conform
  graphcore conform --runtime 1.27.0 --runtime 1.32.0 --json
  graphcore conform --engine onnxruntime-web --runtime 1.30.0 --suite onnx
  graphcore conform --engine graphcore --provider wasm --runtime 1.30.0
  graphcore conform --engine openvino --runtime 2026.4.1 --suite dtypes
  graphcore conform --suite onnx-tests --onnx-tests ../onnx-tests --page conformance.md
"""


def add_run(commands: Commands) -> None:
    parser = command(commands, "run", "run", _RUN, _RUN_HELP)
    add_model(parser)
    parser.add_argument("--random", action="store_true", help="use random arrays for inputs without --input")
    add_feeds(parser)
    add_provider(parser)
    add_links(parser)
    add_limits(parser)
    add_precision(parser)
    parser.add_argument(
        "--isolated",
        action="store_true",
        help="load and run it in a sandboxed process, with limits of memory and time, no other files and no network",
    )
    parser.add_argument("--output", metavar="FILE", help="write the outputs to a .npz file")
    add_json(parser)


def add_bench(commands: Commands) -> None:
    parser = command(commands, "bench", "bench", _BENCH, _BENCH_HELP)
    add_model(parser)
    add_json(parser)
    parser.add_argument("--seconds", type=seconds, default=2.0, metavar="S", help="seconds to measure each row (2)")
    parser.add_argument("--threads", type=counts, metavar="N,N", help="threads of a kernel (onnxruntime's default)")
    parser.add_argument("--batch", type=counts, metavar="N,N", help="sizes of the batch (that of --dim)")
    parser.add_argument("--plot", metavar="FILE", help="also write a plot, as SVG")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory, which starts two processes")
    add_feeds(parser)
    add_provider(parser)
    add_precision(parser)
    add_links(parser)


def add_compare(commands: Commands) -> None:
    parser = command(commands, "compare", "compare", _COMPARE, _COMPARE_HELP)
    add_model(parser)
    add_json(parser)
    provider = 'onnxruntime\'s provider: "cpu", "cuda" or its own name'
    add_repeatable(parser, "--provider", provider, metavar="NAME")
    add_repeatable(parser, "--dtype", "a float dtype to compute in", metavar="NAME")
    add_repeatable(parser, "--scheme", "a scheme of `graphcore quantize`", metavar="NAME")
    add_repeatable(parser, "--precision", "as for `graphcore run`", choices=PRECISIONS)
    parser.add_argument("--seconds", type=seconds, default=1.0, metavar="S", help="seconds to measure each form (1)")
    parser.add_argument("--threads", type=count, metavar="N", help="threads of a kernel")
    add_feeds(parser)
    add_links(parser)
