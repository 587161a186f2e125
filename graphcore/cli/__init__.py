"""The command line: the command `graphcore`."""

from graphcore.cli.entry import main

__all__ = ["main"]
