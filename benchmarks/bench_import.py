"""All of graphcore that builds graphs beside the import of onnx: new processes, modules compiled already.

python -m benchmarks.bench_import
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.timing import Bounds, compare

BOUND = 1.2
ROUNDS = 21


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}

        def fresh(statement: str) -> None:
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment)

        ratio = compare(lambda: fresh("import graphcore; graphcore.Graph"), lambda: fresh("import onnx"), ROUNDS)
    bounds.ratio("import what builds graphs, beside import onnx", ratio, BOUND)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
