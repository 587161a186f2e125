"""Which cases run: a sample for `make test`, the other cases for the rest of `make test-all`, a shard of either.

A test function whose cases take 0.4 seconds in all runs whole; another gets 0.12 seconds and 32 cases. Its cases in
their order are cut into as many runs of neighbours as it may have cases, and one case of each run is kept. Neighbours
share their outer parameters, so that the sample covers these; the position inside a run moves on from run to run, so
that it covers the inner ones. A function whose single case takes n times as long has a case in one sample of n, unless
it checks the source itself (`tests/test_*.py`). Hypothesis draws 25 examples at most.

The seed is the time of the commit. As many successive seeds as a run has cases cover every case, so that a week of
commits covers the product. A test marked `full` is left to `make test-all`.

`python -m tests.sampling build/test-all.xml` puts the times of a report into tests/times.json.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TIMES = Path(__file__).with_name("times.json")
MAX_SECONDS = 0.12
MAX_SECONDS_WHOLE = 0.4
MAX_CASES = 32
MAX_EXAMPLES = 25
is_sampled = False
"""Whether this run keeps a sample; set by conftest.py before the tests are imported."""


def drawn(count: int) -> int:
    """Return the number of examples that Hypothesis draws for a test: `count`, in a sample `MAX_EXAMPLES` at most."""
    return min(count, MAX_EXAMPLES) if is_sampled else count


def function_of(test: str) -> str:
    """Return the id of the test function of a case: `tests/a.py::test_b` of `tests/a.py::test_b[int8-3]`."""
    path, _, name = test.partition("::")
    return f"{path}::{name.partition('[')[0]}"


def number_of(text: str) -> int:
    """Return a number that depends on a text alone, on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


@cache
def seconds_of_cases() -> dict[str, float]:
    """Return the median seconds of a case of the functions whose 32 cases take more than `MAX_SECONDS`."""
    times: dict[str, float] = json.loads(TIMES.read_text(encoding="utf-8"))
    return times


def default_seed() -> str:
    """Return the time of the checked-out commit in seconds since 1970; without git, the version of the package."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        seed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        seed = ""
    if not seed:
        from graphcore._version import __version__

        seed = __version__
    return seed


def kept_of_function(cases: Sequence[str], seed: str, seconds: float = 0.0) -> list[int]:
    """Return the positions of the cases that a sample keeps.

    Args:
        cases: the ids of all cases of one function, in their order.
        seed: an integer moves the sample on by that many cases; any other text by a number made from it.
        seconds: the median time of a case, or 0.
    """
    if seconds and seconds * len(cases) <= MAX_SECONDS_WHOLE:
        return list(range(len(cases)))
    start = (int(seed) if seed.isdecimal() else number_of(seed)) + number_of(function_of(cases[0]))
    count = min(MAX_CASES, int(MAX_SECONDS / seconds) if seconds else MAX_CASES)
    if not count:
        start, turn = divmod(start, math.ceil(seconds / MAX_SECONDS))
        if turn:
            return []
        count = 1
    if len(cases) <= count:
        return list(range(len(cases)))
    results = []
    for run in range(count):
        first, end = run * len(cases) // count, (run + 1) * len(cases) // count
        results.append(first + (start + run) % (end - first))
    return results


def sample(cases: Sequence[str], seed: str, full: Sequence[bool], times: Mapping[str, float]) -> list[bool]:
    """Return for each case whether the sample of a seed keeps it. full: whether a case is marked `full`."""
    remaining = [False] * len(cases)
    positions = [position for position, is_full in enumerate(full) if not is_full]
    positions.sort(key=lambda position: function_of(cases[position]))  # stable: cases stay in their order
    for function, group in groupby(positions, key=lambda position: function_of(cases[position])):
        of_function = list(group)
        seconds = 0.0 if function.startswith("tests/test_") else times.get(function, 0.0)
        for chosen in kept_of_function([cases[p] for p in of_function], seed, seconds):
            remaining[of_function[chosen]] = True
    return remaining


def shard_of(text: str) -> tuple[int, int]:
    """Return (i, n) of "i/n". Raises `ValueError` for anything else, or an i outside of 1 to n."""
    first, slash, second = text.partition("/")
    if not slash or not first.isdecimal() or not second.isdecimal() or not 1 <= int(first) <= int(second):
        raise ValueError(f"a shard is i/n with 1 <= i <= n, like 1/4, not {text!r}")
    return int(first), int(second)


def times_of(report: str) -> dict[str, float]:
    """Return the median seconds of a case by function, from the XML of `pytest --junit-xml`.

    Not the mean: the first case of a process imports and warms what the others find.
    """
    totals: dict[str, list[float]] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        path = (case.get("classname") or "").replace(".", "/") + ".py"
        totals.setdefault(function_of(f"{path}::{case.get('name')}"), []).append(float(case.get("time") or 0))
    return {function: round(median(times), 3) for function, times in sorted(totals.items())}


def main() -> None:
    times = dict(seconds_of_cases()) | times_of(Path(sys.argv[1]).read_text(encoding="utf-8"))
    results = {function: time for function, time in sorted(times.items()) if time > MAX_SECONDS / MAX_CASES}
    results = {function: time for function, time in results.items() if (ROOT / function.partition("::")[0]).exists()}
    TIMES.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
