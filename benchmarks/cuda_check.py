"""Check every op in every dtype and every pair of dtypes on a provider against the reference.

`python -m benchmarks.cuda_check [--provider cuda] [--minutes 8] [--only add,sort]`, for a machine with a GPU; with
`--provider cpu` for one without. Prints the cells that differ, the counts by op, and the operators that the provider
left to the CPU. Exits with 1 where a cell differs, and lists the cells that there was no time for.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import graphcore as gc
import graphcore.ops.families
from graphcore import DType
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphcoreError
from graphcore.promotion.max import DTYPES
from graphcore.runtime.inspection.placement import Placement
from tests.ops import test_every_dtype, test_every_op, test_sweep
from tests.support.every.case import ALL
from tests.support.every_op import CASES, graph_of

Job = tuple[str, Callable[[], None]]


@dataclass
class Outcome:
    """The results of the cells so far."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    on_cpu: Counter[tuple[str, str]] = field(default_factory=Counter)
    skipped: int = 0

    def check(self, cell: str, test: Callable[[], None]) -> None:
        """Run one cell, "op dtype": passed unless the test raises."""
        op = cell.split()[0]
        try:
            test()
        except BaseException as error:  # pytest's own failures are not Exceptions
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self.failed[op] += 1
            print(f"{cell}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
        else:
            self.passed[op] += 1

    def place(self, placement: Placement) -> None:
        self.on_cpu.update((o.operator, o.reason) for o in placement.left)


def every_op(session: Any, outcome: Outcome, only: set[str]) -> Iterator[Job]:
    """Run a graph for each family of ops and dtype; one for each op where that fails to run."""
    for family in sorted({op.family for op in REGISTRY.values()}):
        for dtype in ALL:
            names = [
                name
                for name, op in REGISTRY.items()
                if op.family == family and dtype not in CASES[name].refused and (not only or name in only)
            ]
            if names:
                yield f"{family} {dtype}", functools.partial(_family, session, outcome, names, dtype)


def _family(session: Any, outcome: Outcome, names: list[str], dtype: DType) -> None:
    graph, result, arrays = graph_of(names, dtype)
    try:
        model = session().load(graph)
        results = list(model(*arrays))
        outcome.place(model.placement())
    except GraphcoreError:
        if len(names) == 1:
            outcome.check(f"{names[0]} {dtype}", lambda: _one(session, names[0], dtype))
            return
        for name in names:
            _family(session, outcome, [name], dtype)
        return
    for name in names:
        symbols = result[name]
        got, results = results[: len(symbols)], results[len(symbols) :]
        promised = functools.partial(test_every_op.assert_promised, name, CASES[name], dtype, symbols, got)
        outcome.check(f"{name} {dtype}", promised)


def _one(session: Any, name: str, dtype: DType) -> None:
    graph, result, arrays = graph_of([name], dtype)
    got = list(session().load(graph)(*arrays))
    test_every_op.assert_promised(name, CASES[name], dtype, result[name], got)


def sweeps(outcome: Outcome) -> Iterator[Job]:
    """Run the sweeps of the tests: casts, moves, sums, reductions, and operators on all pairs of dtypes."""
    table: list[tuple[str, Callable[..., None], list[tuple[DType, ...]]]] = [
        ("casts", test_sweep.test_cast_equals_reference_when_between_any_two_dtypes, [(d,) for d in ALL]),
        ("reductions", test_sweep.test_reductions_equal_reference_when_of_any_dtype, [(d,) for d in DTYPES]),
        (
            "moves",
            test_every_dtype.test_values_are_moved_and_ordered_exactly_when_of_any_dtype,
            [(d,) for d in test_every_dtype.DTYPES_20],
        ),
        (
            "sums",
            test_every_dtype.test_values_are_combined_exactly_when_of_any_dtype,
            [(d,) for d in test_every_dtype.DTYPES_20 if d is not DType.bool],
        ),
        (
            "pairs",
            test_sweep.test_operators_equal_reference_when_two_dtypes_meet,
            [(a, b) for a in DTYPES for b in DTYPES],
        ),
    ]
    for name, test, cells in table:
        for dtypes in cells:
            cell = f"{name} {' '.join(map(str, dtypes))}"
            yield cell, functools.partial(outcome.check, cell, functools.partial(test, *dtypes))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_check", description=__doc__)
    parser.add_argument("--provider", default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0, help="after which nothing more is begun (default 8)")
    parser.add_argument("--only", default="", help="ops, with commas between; no sweeps then")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    only = {name for name in arguments.only.split(",") if name}
    session = functools.partial(gc.InferenceSession, arguments.provider)
    session()  # reports a missing package before anything is built
    gc.InferenceSession = session  # type: ignore[misc,assignment]  # what the tests run on
    outcome = Outcome()
    begin = time.perf_counter()
    jobs = [*every_op(session, outcome, only), *(() if only else sweeps(outcome))]
    for i, (_, job) in enumerate(jobs):
        if time.perf_counter() - begin > 60 * arguments.minutes:
            outcome.skipped = len(jobs) - i
            print(f"no time for the last {outcome.skipped} of {len(jobs)}, from {jobs[i][0]} on")
            break
        job()
    _report(outcome, time.perf_counter() - begin)
    return 1 if outcome.failed else 0


def _report(outcome: Outcome, seconds: float) -> None:
    for op in sorted({*outcome.passed, *outcome.failed}):
        if outcome.failed[op]:
            print(f"{op:<24} {outcome.passed[op]:5} pass {outcome.failed[op]:5} differ")
    print("left to the CPU:" if outcome.on_cpu else "nothing is left to the CPU")
    for (operator, reason), count in sorted(outcome.on_cpu.items()):
        print(f"{count:6} {operator:<24} {reason}")
    total, failed = sum(outcome.passed.values()), sum(outcome.failed.values())
    kinds = len({*outcome.passed, *outcome.failed})
    print(f"{total} cells of {kinds} ops and sweeps pass, {failed} differ, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
