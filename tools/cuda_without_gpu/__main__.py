"""`python -m tools.cuda_without_gpu table|check [--releases 1.31.1 ...]`: see the package."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from graphcore.errors import GraphcoreError, RunError
from graphcore.runtime.lowering.targets.releases import table_of
from tools.cuda_without_gpu import stubs
from tools.kernel_probe.tables import document, facts_of, merged
from tools.kernel_probe.venvs import folder, package_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "runtime" / "lowering" / "targets" / "cuda.json"
_SECONDS = 1800.0
"""The most that a process is waited for."""


def environment(release: str) -> dict[str, str]:
    """Return the environment of a process with the onnxruntime-gpu of a release, on stubs of CUDA."""
    package = package_of(release)
    libraries = stubs.built(package, folder() / f"stubs-{release}")
    paths = {"PYTHONPATH": os.pathsep.join([str(package), str(ROOT)]), "LD_LIBRARY_PATH": str(libraries)}
    return {**os.environ, **paths, "ORT_DISABLE_TELEMETRY": "1"}


def run(release: str, module: str, *arguments: str) -> None:
    """Run a module with the onnxruntime-gpu of a release, on stubs of CUDA. Raises `RunError` where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(release),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-6:]
        raise RunError(
            f"onnxruntime-gpu {release}: {module} ended with {done.returncode}: {' / '.join(lines)}",
            help="run it alone, with LD_LIBRARY_PATH and PYTHONPATH as tools/cuda_without_gpu sets them",
        )


def run_in_release(release: str, module: str, *arguments: str) -> dict[str, Any]:
    """Return the content that a module writes to its --output."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "output.json"
        run(release, module, *arguments, "--output", str(path))
        data: dict[str, Any] = json.loads(path.read_text())
        return data


def write_table(releases: list[str]) -> int:
    """Write cuda.json; releases that it has already and that are not named keep their rows."""
    new = []
    for release in releases:
        facts = run_in_release(release, "tools.kernel_probe.tables")
        print(f"onnxruntime-gpu {release}: {facts['count']:,} kernels", file=sys.stderr)
        new.append(facts)
    named = {facts["onnxruntime"] for facts in new}
    results = [facts for facts in facts_of(json.loads(TABLE.read_text())) if facts["onnxruntime"] not in named]
    TABLE.write_text(document(merged([*new, *results])))
    return 0


def check(release: str, jobs: int, only: str) -> bool:
    """Open all sessions with a release, and print what is wrong; return whether nothing is."""
    start = time.perf_counter()
    environment(release)  # which makes what is missing, once

    def part(number: int) -> dict[str, Any]:
        return run_in_release(release, "tools.cuda_without_gpu.sessions", "--part", f"{number}/{jobs}", "--only", only)

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(part, range(1, jobs + 1)))
    failed = {name: error for each in results for name, error in each["failed"].items()}
    unexplained = {what: name for each in results for what, name in each["unexplained"].items()}
    for name, error in failed.items():
        print(f"{release}: does not start: {name}: {error}")
    for what, name in unexplained.items():
        print(f"{release}: on the CPU, and not in docs/howto/cuda.md: {what} (in {name})")
    started, on_cpu = (_counted(each[key] for each in results) for key in ("started", "on_cpu"))
    seconds = time.perf_counter() - start
    print(f"{release}: {started or 'nothing'} start in {seconds:.0f} s; on the CPU: {on_cpu or 'none'}")
    return bool(started) and not failed and not unexplained


def _counted(counts: Iterable[dict[str, int]]) -> str:
    """Return the counts of several parts, in words."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return ", ".join(f"{count:,} {name}" for name, count in total.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cuda_without_gpu", description=__doc__)
    parser.add_argument("what", choices=("table", "check"))
    measured = [r.version for r in table_of("cuda").releases]
    parser.add_argument("--releases", nargs="+", default=measured, metavar="VERSION", help="by default those measured")
    parser.add_argument("--newest", action="store_true", help="check: the newest of them alone")
    parser.add_argument("--jobs", type=int, default=2, help="check: processes at a time (default 2)")
    parser.add_argument("--only", default="", help="check: these graphs, with commas between")
    arguments = parser.parse_args()
    releases = arguments.releases[-1:] if arguments.newest else arguments.releases
    try:
        if arguments.what == "table":
            return write_table(releases)
        wrong = [release for release in releases if not check(release, arguments.jobs, arguments.only)]
        return min(len(wrong), 1)
    except GraphcoreError as error:
        text, _, _ = str(error).partition("\n  at ")
        print(f"error: {text}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
