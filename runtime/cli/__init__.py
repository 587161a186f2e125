"""The command line: `graphcore run`, `check`, `convert`, `quantize`, `promote` and
`doctor`."""

from graphcore.runtime.cli.entry import main

__all__ = ["main"]
