"""The command line: processor time of a process, beside one that imports NumPy.

python -m benchmarks.bench_cli
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable

from benchmarks.timing import Bounds, compare

ROUNDS = 15
MOST = 1.2
COMMANDS = {"--help": ("--help",), "promote": ("promote", "int8", "float32")}


def processor() -> float:
    """Return the processor seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def started(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    bounds = Bounds()
    for name, arguments in COMMANDS.items():
        ours, peer = started("-m", "graphcore", *arguments), started("-c", "import numpy")
        bounds.ratio(f"graphcore {name}, beside importing NumPy", compare(ours, peer, ROUNDS, clock=processor), MOST)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
