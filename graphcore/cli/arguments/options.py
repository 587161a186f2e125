"""Options of several commands, and arguments of those that write models."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from graphcore.arrays.external_data import ExternalData
from graphcore.arrays.resource_limits import Limits

if TYPE_CHECKING:
    from graphcore.ir.graph import Precision, TargetName


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda", "openvino")
PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
"""As in `runtime.lowering`, which takes longer to import than all of the command line."""


class Links(TypedDict):
    """Arguments of loading: what external data may lie in."""

    external_data: ExternalData
    external_data_root: str | None


def command(commands: Commands, home: str, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of one command, whose function lies in the module `home` of `commands`. Its default `failure`
    is the exit status where it raises."""
    made = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:].partition(".")[0],
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.set_defaults(failure=1, home=home)
    return made


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document; docs/command_line.md has its keys"
    )


def add_feeds(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measuring.feeds`: the arrays that inputs are given."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=FILE",
        help="a .npy file for an input, or a number that fills it, or a list in JSON; repeatable",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random arrays (0)")
    add_dims(parser)


def add_dims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=size,
        metavar="NAME=SIZE",
        help="the size of a dim (1), by its name, or as INPUT.AXIS where it has none; repeatable",
    )


def add_provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider", default="cpu", metavar="NAME", help='onnxruntime\'s provider: "cpu", "cuda" or its own name (cpu)'
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="whether narrow floats round after every op (exact, but for float16 in models of other tools)",
    )


def add_links(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--external-links",
        action="store_true",
        help="follow symbolic links of external data, as in Hugging Face's cache, within the repository there or else "
        "the model's folder",
    )
    parser.add_argument(
        "--external-root", metavar="FOLDER", help="follow symbolic links of external data within this folder"
    )


def links(args: argparse.Namespace) -> Links:
    """Return the arguments of loading that `add_links` stands for."""
    root = args.external_root
    return {"external_data": "links" if args.external_links or root else "plain", "external_data_root": root}


class SandboxLimits(TypedDict):
    """Arguments of an IsolatedSession."""

    memory: int
    load_seconds: float
    run_seconds: float


def sandbox_limits() -> SandboxLimits:
    """Return the limits of isolated models: what the machine has, since it runs one model that its user chose."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"memory": memory, "load_seconds": 600, "run_seconds": 600}


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        type=limit,
        metavar="NAME=N",
        help="what the model may take: bytes, nodes, elements, depth or seconds (docs/security.md); repeatable",
    )


def limits(args: argparse.Namespace) -> Limits:
    """Return the limits that `add_limits` stands for. Raises `GraphError` for one that there is not."""
    return Limits.of(dict(args.limit))


def limit(text: str) -> tuple[str, float]:
    """Return the parts of `name=number` of a limit."""
    name, value = pair(text)
    try:
        return name, float(value) if name == "seconds" else int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, such as nodes=100000") from None


def pair(text: str) -> tuple[str, str]:
    """Return the parts of `name=value`; the name is empty where there is none."""
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
    """Return the numbers of `1,2,4`, each once."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are no numbers of 1 or more, such as 1,2,4")
    return [*dict.fromkeys(map(int, parts))]


def count(text: str) -> int:
    """Return a number of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds, above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return found


# Arguments of the commands that write models.

_CONVERT = "Writes a model so that a plain onnxruntime of the target runs it, or as standard ONNX."

_QUANTIZE = "Writes a model whose matrix products read weights of few bits, and prints what became of each layer."
_QUANTIZE_HELP = """\
Patterns are of layers, results or weights, with * ? [...] as in the shell; * goes across layers.

examples:
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore quantize model.onnx small.onnx --scheme int4 --exclude 'head*' --embeddings
"""

_KEPT = """\
OUT may be IN, which is then replaced when all is written. Weights that lie in a file beside IN lie in one beside OUT.
"""

_EXTRACT = "Writes the part of a model that computes some values from others."
_EXTRACT_HELP = f"""\
Values are inputs, weights, or what nodes make: `graphcore inspect MODEL --nodes` lists them. Without --inputs the
inputs of the model that are needed stay. IN and OUT stand before --inputs and --outputs. {_KEPT}
examples:
  graphcore extract model.onnx head.onnx --inputs features --outputs scores
  graphcore extract model.onnx part.onnx --outputs y=encoder/add_7
"""

_RENAME = "Writes a model with other names of inputs, outputs, weights, values or dims."
_RENAME_HELP = f"""\
Names may be swapped. {_KEPT}
examples:
  graphcore rename model.onnx named.onnx input.1=image unk__0=batch
  graphcore rename model.onnx named.onnx --dim n=batch
"""

_SET_DIMS = "Writes a model whose inputs have other dims: sizes, names or expressions."
_SET_DIMS_HELP = f"""\
NAME=DIM gives what stands for the name of a dim everywhere. INPUT=[DIM,DIM,...] gives all dims of one input; sizes that
become names are looked for inside of the model too; --verify runs the result before it is written. {_KEPT}
examples:
  graphcore set-dims model.onnx fixed.onnx batch=1 seq=128
  graphcore set-dims model.onnx free.onnx 'image=[batch,3,224,224]'
"""

_ASTYPE = "Writes a model that computes in another dtype of floats."
_ASTYPE_HELP = f"""\
Inputs and outputs stay in their dtype unless --io is given. {_KEPT}
examples:
  graphcore astype model.onnx half.onnx float16 --keep Softmax --keep 'head/*'
  graphcore astype half.onnx whole.onnx float32 --io
"""

_DEPLOY = "Writes what other servers read: a model repository for Triton, a manifest for KServe, a folder for Docker."
_DEPLOY_HELP = """\
Several models are a pipeline: values of one that another takes go to it by name. docs/howto/serve.md says what was
run of this, and what was only checked.

examples:
  graphcore deploy model.onnx --triton repository/ --batch 32 --instances 2 --provider cuda
  graphcore deploy encoder.onnx head.onnx --triton repository/ --name classifier --runtime 1.22
  graphcore deploy model.onnx --docker image/ --kserve model.yaml
"""


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")


def _add_versions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset of OUT (the oldest that will do)")
    parser.add_argument(
        "--ir-version", type=int, metavar="N", help="the version of the file format (the one that goes with the opset)"
    )
    parser.add_argument("--runtime", metavar="RELEASE", help="the onnxruntime that is to run it, such as 1.20")


def _add_surgery(commands: Commands, name: str, summary: str, help: str) -> argparse.ArgumentParser:
    """Return the parser of a command that is a call of docs/howto/edit_model.md on files."""
    parser = command(commands, "rewriting", name, summary, help)
    _add_files(parser)
    return parser


def _add_written(parser: argparse.ArgumentParser) -> None:
    """Add how the result of such a call is written."""
    parser.add_argument("--target", choices=TARGETS, default="onnx", help="what it is to run on (onnx: operators stay)")
    _add_versions(parser)
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside it, OUT.data")
    add_json(parser)
    add_links(parser)


def add_convert(commands: Commands) -> None:
    parser = command(
        commands, "rewriting", "convert", _CONVERT, "example:\n  graphcore convert new.onnx plain.onnx --target cpu\n"
    )
    _add_files(parser)
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    add_precision(parser)
    parser.add_argument(
        "--implicit-casts", action="store_true", help="cast operands of several dtypes as the promotion system says"
    )
    parser.add_argument(
        "--promotion", metavar="SYSTEM", help="the promotion system (the one that the model notes, or max)"
    )
    _add_versions(parser)
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside it, OUT.data")
    add_json(parser)
    add_links(parser)


def add_quantize(commands: Commands) -> None:
    parser = command(commands, "rewriting", "quantize", _QUANTIZE, _QUANTIZE_HELP)
    _add_files(parser)
    parser.add_argument(
        "--scheme", default="int8_dynamic", metavar="NAME", help="int8_dynamic, int8, int4, q4_0, ... (int8_dynamic)"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only these layers; repeatable"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="not these; repeatable")
    parser.add_argument(
        "--embeddings",
        action=argparse.BooleanOptionalAction,
        help="also tables that rows are looked up in, to int8 (of decoders)",
    )
    parser.add_argument("--min-elements", type=int, default=1024, metavar="N", help="leave smaller weights (1024)")
    parser.add_argument("--block-size", type=int, metavar="N", help="of int4: 16, 32, 64, ... (32; of decoders to 128)")
    parser.add_argument(
        "--many-rows",
        choices=("int8", "same"),
        help="of 4 bits: multiply many rows as bytes, or as few rows are (int8 of decoders)",
    )
    parser.add_argument("--reduce-range", action="store_true", help="of int8: 7 bits, for x86 without VNNI")
    parser.add_argument("--accuracy-level", type=int, choices=(0, 4), help="0 is exact, 4 is faster (4)")
    parser.add_argument("--strict", action="store_true", help="fail where a chosen layer cannot be quantised")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument("--report", metavar="FILE", help="write the rows of the report as JSON too")
    add_json(parser)
    add_links(parser)


def add_extract(commands: Commands) -> None:
    parser = _add_surgery(commands, "extract", _EXTRACT, _EXTRACT_HELP)
    # Options of several values take what follows them, IN and OUT as well: argparse would print those last.
    parser.usage = "%(prog)s IN OUT --outputs VALUE [VALUE ...] [--inputs VALUE [VALUE ...]] [OPTION ...]"
    parser.add_argument("--inputs", nargs="+", metavar="VALUE", help="the values that it is given: names, or NEW=NAME")
    parser.add_argument(
        "--outputs", nargs="+", required=True, metavar="VALUE", help="the values that it gives: names, or NEW=NAME"
    )
    _add_written(parser)


def add_rename(commands: Commands) -> None:
    parser = _add_surgery(commands, "rename", _RENAME, _RENAME_HELP)
    parser.add_argument("names", nargs="*", type=named, metavar="OLD=NEW", help="a name of anything")
    for option, words in (("--value", "a value, where a dim has its name too"), ("--dim", "a dim, where a value has")):
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
        help="run the result with two sizes of each dim that is freed, and write nothing where it fails",
    )
    _add_written(parser)


def add_astype(commands: Commands) -> None:
    parser = _add_surgery(commands, "astype", _ASTYPE, _ASTYPE_HELP)
    parser.add_argument("dtype", metavar="DTYPE", help="float16, bfloat16, float32 or float64")
    parser.add_argument("--from", dest="dtypes", action="append", metavar="DTYPE", help="what becomes it; repeatable")
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="PATTERN",
        help="operators, layers, results or weights that stay as they are; repeatable",
    )
    parser.add_argument("--io", action="store_true", help="inputs and outputs become of the dtype too")
    _add_written(parser)


def add_deploy(commands: Commands) -> None:
    parser = command(commands, "deploy", "deploy", _DEPLOY, _DEPLOY_HELP)
    parser.add_argument("sources", nargs="+", metavar="MODEL", help="the .onnx files, those of a pipeline in its order")
    parser.add_argument("--triton", metavar="FOLDER", help="write a model repository for Triton, or add to one")
    parser.add_argument("--kserve", metavar="FILE", help="write the manifest of an InferenceService")
    parser.add_argument("--docker", metavar="FOLDER", help="write a Dockerfile of our own server, with the models")
    parser.add_argument("--name", help="of the model, or of the pipeline (the file's; pipeline)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="rows of a batch at most; 0 for none (32)")
    parser.add_argument("--wait", type=float, default=2.0, metavar="MS", help="ms that a request waits for others (2)")
    parser.add_argument("--instances", type=int, default=1, metavar="N", help="copies that run side by side (1)")
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="what the server runs it on (cpu)")
    parser.add_argument("--model-version", type=int, metavar="N", help="in the repository (one more than the latest)")
    parser.add_argument("--runtime", metavar="RELEASE", help="the server's onnxruntime, such as 1.22 (most of them)")
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset (the oldest that will do)")
    parser.add_argument("--storage", metavar="URI", help="of --kserve: where the repository for Triton will lie")
    parser.add_argument("--image", metavar="NAME", help="of --kserve: the image of our own server (NAME:1)")
    add_json(parser)
    add_links(parser)
