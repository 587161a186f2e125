"""`graphcore conform`: how many cases of conformance suites pass on graphcore and on other runtimes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from graphcore.cli import output
from graphcore.conformance.conform import TITLES, Runtime, run_checkout, run_suite, table
from graphcore.errors import GraphError


def conform(args: argparse.Namespace) -> int:
    """Print the number of cases that pass. Returns 0."""
    checkouts = {"onnx-tests": args.onnx_tests, "array-api": args.array_api}
    suites = args.suite or [suite for suite in TITLES if checkouts.get(suite, True)]
    engines = args.engine or ("graphcore", "onnxruntime")
    for suite in suites:
        if not checkouts.get(suite, True):
            raise GraphError(f"conform: --suite {suite} needs a checkout", help=f"give its path: --{suite} FOLDER")
    if "array-api" in suites and "graphcore" not in engines:
        raise GraphError("conform: array-api-tests test graphcore alone", help="add --engine graphcore")
    results = []
    releases = args.runtime or [""]
    pairs = [(name, release) for name in engines for release in (releases if name != "reference" else [""])]
    for runtime in [Runtime(name, release, args.provider) for name, release in pairs]:
        for suite in suites if runtime.name == "graphcore" else [s for s in suites if s != "array-api"]:
            what = f"{runtime}: {TITLES[suite]}"
            if suite in checkouts:
                with output.working(what):
                    results.append(run_checkout(suite, runtime, Path(checkouts[suite]).resolve(), args.examples))
            else:
                with output.progress(what) as advance:
                    results.append(run_suite(suite, runtime, advance))
            if not args.json:
                output.line(f"{what}: {results[-1].passed:,} of {results[-1].count:,} pass")
    if args.page:
        page = Path(args.page)
        output.write_text("conform", args.page, table(results, page.read_text("utf-8") if page.exists() else ""))
    if args.json:
        output.document([asdict(result) for result in results])
    return 0
