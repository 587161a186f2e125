"""`python -m graphcore` and the script `graphcore` run the command line."""

from __future__ import annotations

import sys

import graphcore
from graphcore.support import installation


def main() -> int:
    if not hasattr(graphcore, "_HOMES"):  # the package of another distribution, or one without `__init__`
        text, help = installation.conflict() or (f"{graphcore} is not graphcore-engine", installation.how_to_fix([]))
        print(f"error: {text}\n  help: {help}", file=sys.stderr)
        return 1
    try:
        from graphcore.cli import main as run  # here, so that Ctrl-C during the import is handled
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
