"""The command line: `graphcore run`, `check`, `convert`, `quantize` and `promote`."""

from graphcore.runtime.command.entry import main

__all__ = ["main"]
