"""Arguments that commands share."""

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
    """Return the parser of one command, whose function lies in the folder `home` of `commands`. Its default `failure`
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


class Walls(TypedDict):
    """Arguments of an IsolatedSession."""

    memory: int
    load_seconds: float
    run_seconds: float


def walls() -> Walls:
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
