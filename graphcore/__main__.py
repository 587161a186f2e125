"""`python -m graphcore` runs the command `graphcore`."""

from __future__ import annotations

import sys


def _main() -> int:
    try:
        from graphcore.cli import main  # here, so that Ctrl-C during the import is handled
    except KeyboardInterrupt:
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(_main())
