"""`python -m graphcore.runtime.lowering.measure [--provider cpu] [--output path] [--jobs 2]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from graphcore.errors import RunError
from graphcore.runtime.installed import older
from graphcore.runtime.lowering.measure.sweep import Job, document, jobs, kernels, sweep
from graphcore.runtime.providers import resolve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graphcore.runtime.lowering.measure", description=__doc__)
    parser.add_argument("--provider", choices=("cpu", "cuda", "openvino"), default="cpu")
    parser.add_argument("--output", type=Path, help="default: the table of the provider in the package")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--verbose", action="store_true", help="say also what has no kernel, and why")
    arguments = parser.parse_args()
    try:
        (provider,) = resolve(arguments.provider)
    except RunError as error:
        parser.error(str(error))
    start = time.perf_counter()
    outcomes = sweep(jobs(), provider, arguments.jobs)
    for job in sorted(outcomes, key=_order):
        outcome = outcomes[job]
        if outcome.values:
            print(f"{job.op_type} {job.dtype}: values: {outcome.values}")
        elif outcome.state in ("dies", "fails") or (arguments.verbose and outcome.state != "kernel"):
            print(f"{job.op_type} {job.dtype}: {outcome.state} {outcome.detail}")
    found = kernels(outcomes)
    output = arguments.output or Path(__file__).parents[1] / _table(arguments.provider)
    output.write_text(document(provider, found))
    counts = ", ".join(
        f"{count} {state}" for state, count in sorted(Counter(o.state for o in outcomes.values()).items())
    )
    seconds = time.perf_counter() - start
    print(f"{output}: {len(found)} operators, {len(outcomes)} cases ({counts}) in {seconds:.0f} s", file=sys.stderr)
    return 0


def _table(provider: str) -> str:
    """The file of a provider's table; the CPU provider's has the version of a release that is older in its name."""
    runtime = older()
    if provider != "cpu" or runtime is None:
        return f"{provider}.json"
    return f"cpu-{'.'.join(runtime.version.split('.')[:2])}.json"


def _order(job: Job) -> tuple[str, str]:
    return job.op_type, job.dtype.name


if __name__ == "__main__":
    sys.exit(main())
