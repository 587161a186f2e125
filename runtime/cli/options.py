"""Arguments that commands share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(commands: Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    return commands.add_parser(
        name,
        help=summary[0].lower() + summary[1:].partition(".")[0],
        description=summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider", default="cpu", metavar="NAME", help='onnxruntime\'s provider: "cpu", "cuda" or its own name (cpu)'
    )


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
