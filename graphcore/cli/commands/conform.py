"""`graphcore conform`: how many cases of conformance suites pass on graphcore and on other runtimes."""

from __future__ import annotations

import argparse
from pathlib import Path

from graphcore.cli import output
from graphcore.conformance.conform import TITLES, Result, Runtime, run_checkout, run_suite, table


def conform(args: argparse.Namespace) -> int:
    """Print the number of cases that pass. Returns 0."""
    results = []
    for runtime in _runtimes(args):
        for suite in args.suite or ("onnx", "dtypes"):
            with output.progress(f"{runtime}: {TITLES[suite]}") as advance:
                results.append(run_suite(suite, runtime, advance))
            _print(args, results[-1])
        outside = [("onnx-tests", args.onnx_tests)]
        if runtime.name == "graphcore":
            outside.append(("array-api", args.array_api))
        for suite, folder in outside:
            if folder:
                with output.working(f"{runtime}: {TITLES[suite]}"):
                    results.append(run_checkout(suite, runtime, Path(folder).resolve(), args.examples))
                _print(args, results[-1])
    if args.page:
        page = Path(args.page)
        output.write_text("conform", args.page, table(results, page.read_text("utf-8") if page.exists() else ""))
    if args.json:
        output.document([result.as_json() for result in results])
    return 0


def _runtimes(args: argparse.Namespace) -> list[Runtime]:
    runtimes = []
    for name in args.engine or ("graphcore", "onnxruntime"):
        releases = (args.runtime if name not in ("openvino", "reference") else None) or [""]
        runtimes += [Runtime(name, release, args.provider) for release in releases]
    return runtimes


def _print(args: argparse.Namespace, result: Result) -> None:
    if not args.json:
        output.line(f"{result.runtime}: {TITLES[result.suite]}: {result.passed:,} of {result.count:,} pass")
