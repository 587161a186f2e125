"""`python -m tools.kernel_probe --output path`: what the installed release of onnxruntime runs.

`--releases 1.27.0 1.32.0 ...` measures these releases, each in an environment of its own: kernels, traps, and what is
right. It writes `cpu.json`, `traps.json` and `docs/development/releases.md`.
GRAPHCORE_RELEASES names the folder of environments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from graphcore.errors import RunError
from graphcore.runtime.ort.options import resolve
from tools.kernel_probe.sweep import Job, jobs, kernels, sweep
from tools.kernel_probe.tables import facts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_probe", description=__doc__)
    parser.add_argument("--provider", choices=("cpu", "cuda", "openvino"), default="cpu")
    parser.add_argument("--output", type=Path, help="where the facts of the installed release go")
    parser.add_argument(
        "--releases", nargs="+", metavar="VERSION", help="measure these releases, and write what is found"
    )
    parser.add_argument("--only-probes", action="store_true", help="with --releases: the traps alone")
    parser.add_argument("--fresh", action="store_true", help="with --releases: forget the traps that are recorded")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument("--verbose", action="store_true", help="say also what has no kernel, and why")
    arguments = parser.parse_args()
    if arguments.releases:
        return _measure_releases(arguments)
    if arguments.output is None:
        parser.error("say --output, or --releases")
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
    result = facts(provider, kernels(outcomes))
    arguments.output.write_text(json.dumps(result, indent=1))
    counts = ", ".join(
        f"{count} {state}" for state, count in sorted(Counter(o.state for o in outcomes.values()).items())
    )
    seconds = time.perf_counter() - start
    print(f"{len(result['kernels'])} operators, {len(outcomes)} cases ({counts}) in {seconds:.0f} s", file=sys.stderr)
    return 0


def _measure_releases(arguments: argparse.Namespace) -> int:
    # fcntl, which Windows lacks: one release is measured there without it
    from tools.kernel_probe.campaign import Campaign

    start = time.perf_counter()
    requested = Campaign(tuple(arguments.releases), arguments.only_probes, arguments.fresh, arguments.jobs)
    failures = requested.run()
    seconds = time.perf_counter() - start
    print(f"{len(arguments.releases)} releases, {failures} failures, in {seconds:.0f} s", file=sys.stderr)
    return min(failures, 1)


def _order(job: Job) -> tuple[str, str]:
    return job.op_type, job.dtype.name


if __name__ == "__main__":
    sys.exit(main())
