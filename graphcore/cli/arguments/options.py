"""Arguments that commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from graphcore.arrays.external_data import ExternalData

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


def command(commands: Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of one command. Its default `failure` is the exit status where it raises."""
    made = commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:].partition(".")[0],
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.set_defaults(failure=1)
    return made


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
