"""The command line: `graphcore run`, `graphcore check`, `graphcore convert`, `graphcore promote`."""

from graphcore.runtime.command.entry import main

__all__ = ["main"]
