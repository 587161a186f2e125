"""`python -m tools.kernel_probe.cuda_table --output facts.json`: the kernels that an onnxruntime-gpu lists.

Unlike the CPU's, they are not run: a kernel counts in the dtypes that the registry has it for. `tools/cuda_without_gpu`
asks each release, without a GPU, and merges the answers to `cuda.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphcore.runtime.lowering.targets.legality import schema_dtypes
from graphcore.runtime.ort.kernel_registry import KernelDef, parameter_of, registered
from graphcore.types.dtypes import DType
from tools.kernel_probe.tables import head, named, versions_of

PROVIDER = "CUDAExecutionProvider"

WITHOUT = frozenset({"Constant"})
"""Operators that run without a kernel: nothing of them is left when a session has started."""


def facts(kernels: Iterable[KernelDef], schemas: Iterable[Any], provider: str = PROVIDER) -> dict[str, Any]:
    """Return the dtypes of every operator of ONNX, by version, that a build's list has a provider's kernels for."""
    listed: dict[str, list[KernelDef]] = {}
    for kernel in kernels:
        if not kernel.domain and kernel.provider == provider:
            listed.setdefault(kernel.op_name, []).append(kernel)
    schemas = list(schemas)
    by_version = {(s.name, s.since_version): s for s in schemas if not s.domain}
    rows = {}
    for op_type in sorted({name for name, _ in by_version}):
        known = sorted(since for name, since in by_version if name == op_type)
        versions = versions_of(op_type, schemas) or known[:1]  # or one that is newer than all opsets
        if not by_version[op_type, known[-1]].deprecated:
            rows[op_type] = {
                str(since): named(_dtypes(op_type, by_version[op_type, since], listed.get(op_type, ())))
                for since in versions
            }
    return {**head(provider), "kernels": rows}


def _dtypes(op_type: str, schema: Any, kernels: Iterable[KernelDef]) -> Iterable[DType]:
    """Return the dtypes of the kernels of a version; those that ONNX allows where the kernels take any."""
    found = None if op_type in WITHOUT else registered(kernels, schema.since_version, parameter_of(op_type, schema))
    found = schema_dtypes(op_type, schema.since_version) if found is None else found
    return [dtype for dtype in found if not dtype.is_complex]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_probe.cuda_table", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if PROVIDER not in onnxruntime.get_available_providers():
        parser.error(f"onnxruntime {onnxruntime.__version__} has no {PROVIDER}: install onnxruntime-gpu")
    kernels = state.get_all_opkernel_def()
    count = sum(kernel.provider == PROVIDER for kernel in kernels)
    made = facts(kernels, state.get_all_operator_schema())
    arguments.output.write_text(json.dumps({**made, "count": count}))
    print(f"onnxruntime-gpu {onnxruntime.__version__}: {count} kernels", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
