"""Options of several commands, and arguments of those that write models."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from graphcore.arrays.external_data import ExternalData
from graphcore.arrays.resource_limits import Limits

if TYPE_CHECKING:
    from graphcore.ir.graph import Precision, TargetName


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda", "openvino", "wasm", "webgpu")
PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
"""As in `runtime.lowering`, which takes longer to import than the whole command line."""


class LinkArguments(TypedDict):
    """Arguments of loading: where external data may lie."""

    external_data: ExternalData
    external_data_root: str | None


def command(commands: Commands, home: str, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of one command, a function of the module `home` in `commands`.

    Its default `failure` is the exit status when the command raises.
    """
    parser = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:].partition(".")[0],
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(failure=1, home=home)
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document; docs/command_line.md has its keys"
    )


def add_options(parser: argparse.ArgumentParser, *rows: tuple[str, Any, Any, str, str]) -> None:
    """Add options with values. rows: the flag, the type, the default, the metavar and the help of each."""
    for flag, kind, default, metavar, words in rows:
        parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=words)


def add_repeatable(parser: argparse.ArgumentParser, option: str, words: str, **more: Any) -> None:
    """Add an option that collects its values in a list, empty by default."""
    parser.add_argument(option, action="append", default=[], help=f"{words}; repeatable", **more)


def add_feeds(parser: argparse.ArgumentParser) -> None:
    """Add the options that `distances.feeds_of` reads: arrays for the inputs."""
    words = "a .npy file for an input, or a number that fills it, or a list in JSON"
    add_repeatable(parser, "--input", words, type=pair, metavar="NAME=FILE")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of random arrays (0)")
    add_dims(parser)


def add_dims(parser: argparse.ArgumentParser) -> None:
    words = "the size of a dim (1), by its name, or INPUT.AXIS if it has no name"
    add_repeatable(parser, "--dim", words, type=size, metavar="NAME=SIZE")


def add_provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider", default="cpu", metavar="NAME", help='onnxruntime\'s provider: "cpu", "cuda" or its own name (cpu)'
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="exact: narrow floats round after every op; fast: they may not (exact; for imported float16 fast)",
    )


def add_links(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--external-links",
        action="store_true",
        help="follow symbolic links of external data within the repository in Hugging Face's cache, or else within the "
        "model's folder",
    )
    parser.add_argument(
        "--external-root", metavar="FOLDER", help="follow symbolic links of external data within this folder"
    )


def links(args: argparse.Namespace) -> LinkArguments:
    """Return the arguments of loading for the options of `add_links`."""
    root = args.external_root
    return {"external_data": "links" if args.external_links or root else "plain", "external_data_root": root}


def sandbox_limits() -> dict[str, Any]:
    """Return the limits of an IsolatedSession: all memory of the machine, since the command runs one model."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"memory": memory, "load_seconds": 600, "run_seconds": 600}


def add_limits(parser: argparse.ArgumentParser) -> None:
    words = "a limit of the model: bytes, nodes, elements, depth or seconds (docs/security.md)"
    add_repeatable(parser, "--limit", words, type=limit, metavar="NAME=N")


def limits(args: argparse.Namespace) -> Limits:
    """Return the limits for the options of `add_limits`. Raises `GraphError` for an unknown name."""
    return Limits.of(dict(args.limit))


def limit(text: str) -> tuple[str, float]:
    """Return the parts of `name=number` of a limit."""
    name, value = pair(text)
    try:
        return name, float(value) if name == "seconds" else int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, such as nodes=100000") from None


def pair(text: str) -> tuple[str, str]:
    """Return the parts of `name=value`; the name is empty if there is none."""
    name, equals, value = text.partition("=")
    return (name, value) if equals else ("", text)


def size(text: str) -> tuple[str, int]:
    """Return the parts of `name=size` of a dim."""
    name, value = pair(text)
    if not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE, such as batch=4")
    return name, int(value)


def named(text: str) -> tuple[str, str]:
    """Return the parts of `name=value`, neither of them empty."""
    name, value = pair(text)
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def counts(text: str) -> list[int]:
    """Return the numbers of `1,2,4`, without duplicates."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of integers of at least 1, such as 1,2,4")
    return [*dict.fromkeys(map(int, parts))]


def count(text: str) -> int:
    """Return an integer of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds, above 0."""
    value = _float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def tolerance(text: str) -> float:
    """Return a number of at least 0."""
    value = _float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


# Arguments of the commands that write models.

_CONVERT = "Writes a model that onnxruntime alone runs on the target, or standard ONNX."

_QUANTIZE = "Writes a model with quantised weights of matrix products, and prints a report of each layer."
_QUANTIZE_HELP = """\
Patterns match names of layers, results or weights: * ? [...] as in the shell; * also matches /.

examples:
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore quantize model.onnx small.onnx --scheme int4 --exclude 'head*' --embeddings
"""

_MIXED = "Writes a model whose layers are as narrow as an error budget on samples allows, and prints a report of each."
_MIXED_HELP = """\
A file of samples has an array for each input: numpy.savez("a.npz", x=x); with one more axis, one sample for each index.

examples:
  graphcore mixed-precision model.onnx mixed.onnx --samples a.npz --samples b.npz --max-error 1e-3
  graphcore mixed-precision model.onnx half.onnx --samples a.npz --max-error 1e-2 --dtype float16 --plot curve.svg
"""

_OUT_HELP = """\
OUT may be IN, which is replaced once everything is written. If IN has its weights in another file, so has OUT.
"""

_EXTRACT = "Writes the part of a model that computes some values from others."
_EXTRACT_HELP = f"""\
Values are inputs, weights or outputs of nodes: `graphcore inspect MODEL --nodes` lists them. Without --inputs, OUT has
the inputs of the model that it needs. Give IN and OUT before --inputs and --outputs.
{_OUT_HELP}
examples:
  graphcore extract model.onnx head.onnx --inputs features --outputs scores
  graphcore extract model.onnx part.onnx --outputs y=encoder/add_7
"""

_RENAME = "Writes a model with other names of inputs, outputs, weights, values or dims."
_RENAME_HELP = f"""\
Names may be swapped.
{_OUT_HELP}
examples:
  graphcore rename model.onnx named.onnx input.1=image unk__0=batch
  graphcore rename model.onnx named.onnx --dim n=batch
"""

_SET_DIMS = "Writes a model with other dims of inputs: sizes, names or expressions."
_SET_DIMS_HELP = f"""\
NAME=DIM replaces the dim of that name everywhere. INPUT=[DIM,DIM,...] sets all dims of one input; where a size becomes
a name, the same size inside the model does too. --verify runs the result before it is written.
{_OUT_HELP}
examples:
  graphcore set-dims model.onnx fixed.onnx batch=1 seq=128
  graphcore set-dims model.onnx free.onnx 'image=[batch,3,224,224]'
"""

_ASTYPE = "Writes a model that computes in another float dtype."
_ASTYPE_HELP = f"""\
Inputs and outputs keep their dtype unless --io is given.
{_OUT_HELP}
examples:
  graphcore astype model.onnx half.onnx float16 --keep Softmax --keep 'head/*'
  graphcore astype half.onnx whole.onnx float32 --io
"""

_DEPLOY = "Writes files for servers: a model repository for Triton, a manifest for KServe, a folder for Docker."
_DEPLOY_HELP = """\
Several models form a pipeline: outputs of one are inputs of the next with the same name. docs/howto/serve.md lists
which of these files were tested on their servers.

examples:
  graphcore deploy model.onnx --triton repository/ --batch 32 --instances 2 --provider cuda
  graphcore deploy encoder.onnx head.onnx --triton repository/ --name classifier --runtime 1.22
  graphcore deploy model.onnx --docker image/ --kserve model.yaml
"""


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")


def _add_versions(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        ("--opset", int, None, "N", "ONNX's opset of OUT (the oldest possible)"),
        ("--ir-version", int, None, "N", "the IR version of OUT (the one that matches the opset)"),
        ("--runtime", str, None, "RELEASE", 'the release of onnxruntime that must run OUT: 1.20, ... or "installed"'),
    )


def _add_surgery(commands: Commands, name: str, summary: str, help: str) -> argparse.ArgumentParser:
    """Return the parser of a command that applies a method of docs/howto/edit_model.md to files."""
    parser = command(commands, "rewriting", name, summary, help)
    _add_files(parser)
    return parser


def _add_written(parser: argparse.ArgumentParser) -> None:
    """Add the options of writing OUT."""
    parser.add_argument(
        "--target", choices=TARGETS, default="onnx", help="where OUT will run (onnx: operators do not change)"
    )
    _add_versions(parser)
    parser.add_argument("--external-data", action="store_true", help="write weights to a separate file, OUT.data")
    add_json(parser)
    add_links(parser)


def add_convert(commands: Commands) -> None:
    parser = command(
        commands, "rewriting", "convert", _CONVERT, "example:\n  graphcore convert new.onnx plain.onnx --target cpu\n"
    )
    _add_files(parser)
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="where OUT will run (cpu)")
    add_precision(parser)
    parser.add_argument(
        "--implicit-casts", action="store_true", help="cast operands of different dtypes by the promotion system"
    )
    parser.add_argument(
        "--promotion", metavar="SYSTEM", help="the promotion system (the one in the model's metadata, or max)"
    )
    parser.add_argument(
        "--io-dtype", metavar="DTYPE", help="dtype of every float input and output, with casts inside: float32, ..."
    )
    _add_versions(parser)
    parser.add_argument("--external-data", action="store_true", help="write weights to a separate file, OUT.data")
    add_json(parser)
    add_links(parser)


def add_quantize(commands: Commands) -> None:
    parser = command(commands, "rewriting", "quantize", _QUANTIZE, _QUANTIZE_HELP)
    _add_files(parser)
    parser.add_argument(
        "--scheme", default="int8_dynamic", metavar="NAME", help="int8_dynamic, int8, int4, q4_0, ... (int8_dynamic)"
    )
    add_repeatable(parser, "--include", "only these layers", metavar="PATTERN")
    add_repeatable(parser, "--exclude", "not these", metavar="PATTERN")
    parser.add_argument(
        "--embeddings",
        action=argparse.BooleanOptionalAction,
        help="quantise embedding tables to int8 too (on for decoders)",
    )
    add_options(
        parser,
        ("--min-elements", int, 1024, "N", "skip weights with fewer elements (1024)"),
        ("--block-size", int, None, "N", "block size of int4: 16, 32, 64, ... (32; up to 128 for decoders)"),
    )
    parser.add_argument(
        "--many-rows",
        choices=("int8", "same"),
        help="for 4 bits: multiply many rows in int8, or in the same way as few rows (int8 for decoders)",
    )
    parser.add_argument("--reduce-range", action="store_true", help="for int8: use 7 bits, for x86 without VNNI")
    parser.add_argument("--accuracy-level", type=int, choices=(0, 4), help="0 is exact, 4 is faster (4)")
    parser.add_argument("--strict", action="store_true", help="fail if a selected layer cannot be quantised")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="where OUT will run (cpu)")
    parser.add_argument(
        "--for-this-cpu", action="store_true", help="write what is fastest on this processor, maybe inexact on others"
    )
    parser.add_argument("--report", metavar="FILE", help="also write the rows of the report as JSON")
    add_json(parser)
    add_links(parser)


def add_mixed_precision(commands: Commands) -> None:
    parser = command(commands, "rewriting", "mixed-precision", _MIXED, _MIXED_HELP)
    _add_files(parser)
    add_repeatable(parser, "--samples", "a .npz file with inputs", metavar="FILE", required=True)
    parser.add_argument("--max-error", type=tolerance, required=True, metavar="E", help="the budget, in the metric")
    words = "a dtype that layers may have (float16, bfloat16, int8, int4)"
    add_repeatable(parser, "--dtype", words, dest="dtypes", metavar="DTYPE")
    add_options(
        parser,
        ("--metric", str, "relative", "NAME", "relative, max or cosine (relative)"),
        ("--cost", str, "bytes", "NAME", "what to save: bytes, flops or time (bytes)"),
        ("--resume", str, None, "FILE", "store trials in this file, and continue with those that it has"),
        ("--plot", str, None, "FILE", "also draw error against cost, as SVG"),
    )
    add_repeatable(parser, "--keep", "operators, layers, results or weights that stay", metavar="PATTERN")
    parser.add_argument("--io", action="store_true", help="change the dtype of inputs and outputs too")
    parser.add_argument("--target", choices=TARGETS, default="onnx", help="where OUT will run (onnx)")
    add_provider(parser)
    add_json(parser)
    add_links(parser)


def add_extract(commands: Commands) -> None:
    parser = _add_surgery(commands, "extract", _EXTRACT, _EXTRACT_HELP)
    # Options of several values would take IN and OUT too if those followed: argparse would print them last.
    parser.usage = "%(prog)s IN OUT --outputs VALUE [VALUE ...] [--inputs VALUE [VALUE ...]] [OPTION ...]"
    parser.add_argument("--inputs", nargs="+", metavar="VALUE", help="the inputs of OUT: names of values, or NEW=NAME")
    parser.add_argument(
        "--outputs", nargs="+", required=True, metavar="VALUE", help="the outputs of OUT: names of values, or NEW=NAME"
    )
    _add_written(parser)


def add_rename(commands: Commands) -> None:
    parser = _add_surgery(commands, "rename", _RENAME, _RENAME_HELP)
    parser.add_argument(
        "names", nargs="*", type=named, metavar="OLD=NEW", help="rename an input, output, weight, value or dim"
    )
    for option, words in (
        ("--value", "rename a value, not a dim of that name"),
        ("--dim", "rename a dim, not a value"),
    ):
        parser.add_argument(option, action="append", default=[], type=named, metavar="OLD=NEW", help=words)
    _add_written(parser)


def add_set_dims(commands: Commands) -> None:
    parser = _add_surgery(commands, "set-dims", _SET_DIMS, _SET_DIMS_HELP)
    parser.add_argument(
        "dims", nargs="+", type=named, metavar="NAME=DIM", help="a dim, or all dims of an input: INPUT=[DIM,DIM,...]"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the result with two sizes of each new symbolic dim, and write nothing if it fails",
    )
    _add_written(parser)


def add_astype(commands: Commands) -> None:
    parser = _add_surgery(commands, "astype", _ASTYPE, _ASTYPE_HELP)
    parser.add_argument("dtype", metavar="DTYPE", help="float16, bfloat16, float32 or float64")
    add_repeatable(parser, "--from", "a dtype to replace", dest="dtypes", metavar="DTYPE")
    add_repeatable(parser, "--keep", "operators, layers, results or weights that keep their dtype", metavar="PATTERN")
    parser.add_argument("--io", action="store_true", help="change the dtype of inputs and outputs too")
    _add_written(parser)


def add_deploy(commands: Commands) -> None:
    parser = command(commands, "deploy", "deploy", _DEPLOY, _DEPLOY_HELP)
    parser.add_argument("sources", nargs="+", metavar="MODEL", help="the .onnx files; of a pipeline in order")
    parser.add_argument("--triton", metavar="FOLDER", help="write a model repository for Triton, or add to one")
    parser.add_argument("--kserve", metavar="FILE", help="write the manifest of an InferenceService")
    parser.add_argument(
        "--docker",
        metavar="FOLDER",
        help="write a Dockerfile with the models and graphcore's server; before onnxruntime 1.27 a server without it",
    )
    words = "for --docker: install this wheel, of graphcore or another package, from the folder"
    add_repeatable(parser, "--wheel", words, metavar="FILE")
    parser.add_argument("--name", help="the name of the model or pipeline (the file's name; pipeline)")
    add_options(
        parser,
        ("--batch", int, 32, "N", "maximum number of rows of a batch; 0 to disable (32)"),
        ("--wait", float, 2.0, "MS", "milliseconds that a request waits for others (2)"),
        ("--instances", int, 1, "N", "copies of the model that run in parallel (1)"),
    )
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="where the server runs it (cpu)")
    parser.add_argument("--model-version", type=int, metavar="N", help="the version in the repository (the latest + 1)")
    parser.add_argument(
        "--runtime", metavar="RELEASE", help="the server's release of onnxruntime, such as 1.22 (most releases)"
    )
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset (the oldest possible)")
    parser.add_argument("--storage", metavar="URI", help="for --kserve: the location of the Triton repository")
    parser.add_argument("--image", metavar="NAME", help="for --kserve: the image of graphcore's server (NAME:1)")
    add_json(parser)
    add_links(parser)


_SERVE = "Serves models over HTTP, and gRPC, by the Open Inference Protocol."
_SERVE_HELP = """\
A model is an .onnx file, or a folder of Hugging Face with config.json; its name is that of the file or folder. Ctrl-C
and SIGTERM refuse new requests and finish the accepted ones; a second one ends at once. docs/howto/serve.md has the
protocol.

examples:
  graphcore serve model.onnx
  graphcore serve small.onnx large.onnx --host 0.0.0.0 --port 8080 --workers 4 --grpc-port 8081
  graphcore serve Qwen3-8B --draft Qwen3-0.6B --adapter style=folder
"""


def add_serve(commands: Commands) -> None:
    parser = command(commands, "serve", "serve", _SERVE, _SERVE_HELP)
    parser.add_argument("sources", nargs="+", metavar="MODEL", help="the .onnx files, or folders")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="the port, 0 for any free one (8000)")
    parser.add_argument("--grpc-port", type=int, metavar="N", help="the port of gRPC (none)")
    add_provider(parser)
    add_options(
        parser,
        ("--workers", int, 1, "N", "processes, each of which loads the models (1)"),
        ("--threads", int, None, "N", "threads of a run (as many as cores)"),
        ("--batch", int, 32, "N", "maximum number of rows of a batch (32)"),
        ("--wait", float, 2.0, "MS", "milliseconds that a request waits for others (2)"),
        ("--slots", int, 8, "N", "texts that a decoder generates at once (8)"),
        ("--context", int, None, "N", "tokens of a prompt and its text, of a folder (1024, or fewer if it has fewer)"),
        ("--dtype", str, None, "SCHEME", "what the weights of a folder are quantized to, such as int4 (none)"),
        ("--max-waiting", int, 256, "N", "maximum number of waiting requests of a model (256)"),
        ("--timeout", float, 30.0, "SECONDS", "maximum time of a request, from its last byte to its result (30)"),
        ("--client-timeout", float, 60.0, "SECONDS", "time of a client to send a request or read its response (60)"),
        ("--max-bytes", int, 64 << 20, "N", "maximum size of a body, also unpacked (64 MiB)"),
        ("--max-connections", int, 1000, "N", "maximum number of connections (1000)"),
    )
    words = "a LoRA adapter of a folder, in a folder that PEFT saved; a request names it as its model"
    add_repeatable(parser, "--adapter", words, type=named, metavar="NAME=FOLDER")
    parser.add_argument("--draft", metavar="FOLDER", help="a smaller model that proposes tokens to that of a folder")
    add_json(parser)
