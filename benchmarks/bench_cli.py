"""The command line, and importing the package: processor time of a process, beside one that imports NumPy.

    python -m benchmarks.bench_cli

Modules are compiled already: the first round is not counted.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks.timing import Bounds, Ratio

MOST = 1.2
ROUNDS = 15
COMMANDS = {
    "graphcore --help": ("-m", "graphcore", "--help"),
    "graphcore promote": ("-m", "graphcore", "promote", "int8", "uint64"),
    "import graphcore": ("-c", "import graphcore"),
}
PEER = ("-c", "import numpy")


def processor(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the processor seconds of a process, of its user and the system."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=silent)
    _, status, used = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        for number in range(ROUNDS + 1):
            for name, arguments in COMMANDS.items():
                pair = processor(arguments, environment), processor(PEER, environment)
                if number:
                    found[name].append(pair)
    for name, pairs in found.items():
        ours, peer = zip(*pairs, strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        bounds.ratio(f"{name}, beside importing NumPy", Ratio(ratio, *map(statistics.median, (ours, peer))), MOST)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
