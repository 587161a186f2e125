"""The command line: `graphcore run`, `graphcore check`, `graphcore convert`."""

from graphcore.runtime.command.entry import main

__all__ = ["main"]
