"""`graphcore completion`: a script that completes the command in a shell."""

from __future__ import annotations

import argparse

from graphcore.cli.arguments import parser
from graphcore.errors import MissingExtraError

_FILES = frozenset({"MODEL", "IN", "OUT", "A", "B", "FILE"})
"""Names of arguments that are files."""


def completion(args: argparse.Namespace) -> int:
    try:
        import shtab  # of the extra `cli`
    except ImportError:
        raise MissingExtraError(
            "completion: the package shtab is not installed", help='pip install "graphcore-engine[cli]"'
        ) from None
    made = parser()
    _mark_files(made, shtab.FILE)
    print(shtab.complete(made, shell=args.shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, kind: object) -> None:
    """Tell the arguments that are files, which argparse does not know."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _mark_files(inner, kind)
        elif action.metavar in _FILES:
            action.complete = kind  # type: ignore[attr-defined]
