"""The command line: `graphcore run`, `check`, `convert`, `quantize`, `promote` and
`doctor`."""

from graphcore.runtime.command.entry import main

__all__ = ["main"]
