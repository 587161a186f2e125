"""The command: `python -m tests.fuzz --minutes N [--kind graphs] [--kind ops] [--seed N]`; `--help` has the kinds."""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import argparse
import functools
import sys
import time
import warnings

from tests.fuzz.runner import KINDS, Tally, fuzz, saved


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Hunt for wrong numbers, deaths and hangs."
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="how long, in all (20)")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="what to try; all by default")
    parser.add_argument("--seed", type=int, help="where to begin; by default the moment that it is")
    requested = parser.parse_args()
    warnings.simplefilter("ignore")
    seed = time.time_ns() // 1000 if requested.seed is None else requested.seed
    kinds = requested.kind or list(KINDS)
    end = time.monotonic() + requested.minutes * 60
    tallies: list[Tally] = []
    for i, kind in enumerate(kinds):
        now = time.monotonic()
        until = now + (end - now) / (len(kinds) - i)
        going = functools.partial(lambda until, count: time.monotonic() < until, until)
        tallies.append(fuzz(kind, seed, going, lambda text: print(text, flush=True)))
    total = sum(len(tally.findings) for tally in tallies)
    if total:
        print(f"{total} findings: {saved(tallies)}", file=sys.stderr)
    return min(total, 1)


if __name__ == "__main__":
    sys.exit(main())
