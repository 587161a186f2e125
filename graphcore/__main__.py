"""`python -m graphcore` is the command `graphcore`."""

from __future__ import annotations

import sys


def _main() -> int:
    try:
        from graphcore.cli import main  # the order of folders: this file is the door to the command
    except KeyboardInterrupt:
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(_main())
