"""`python -m graphcore.runtime.kernel_probe.cuda_table kernels.json [--output cuda.json]`: a table out of a registry.

For a provider that is not at hand to be measured. The registry has for each operator the status of every dtype, as a
session reports where it would run it: `{"Add": {"types": {"float": "CUDA", "int8": "CPU-fallback", ...}}, ...}`. What
has no statuses, such as operators of sequences, counts by the kernels registered for it: `{"static": {"types": ...}}`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphcore.errors import DTypeError
from graphcore.onnx.opset import IR_VERSION, OPSET
from graphcore.runtime.kernel_probe.tables import document
from graphcore.types.dtypes import DType

KERNEL = frozenset({"CUDA", "CUDA+fn", "ok+elim", "UNKNOWN(fake-gpu)"})
"""The statuses of what stays on the device: a kernel, a function body of operators that all have one, nothing left to
run, and a kernel that starts only where a device is."""

_NAMES = {"float": "float32", "double": "float64"}


def kernels(registry: Mapping[str, Any]) -> dict[str, list[DType]]:
    """Return the dtypes of each operator for which the registry says that the provider runs it."""
    return {
        name: _dtypes(entry) for name, entry in registry.items() if not name.startswith("_") and not name.endswith("*")
    }


def _dtypes(entry: Mapping[str, Any]) -> list[DType]:
    statuses = entry["types"]
    if statuses:
        return _known(name for name, status in statuses.items() if status in KERNEL)
    registered = (entry.get("static") or {}).get("types", {})
    names: list[str] = next(iter(registered.values()), [])
    return _known(name.removeprefix("seq(") for name in names)


def _known(names: Iterable[str]) -> list[DType]:
    made = []
    for name in names:
        try:
            made.append(DType.of(_NAMES.get(name, name.replace("float8e", "float8_e"))))
        except DTypeError:  # formats that graphcore has not
            continue
    return made


def _introduced(op_type: str) -> int:
    """Return the version that an operator came with."""
    import onnx

    found = onnx.defs.get_all_schemas_with_history()
    return min((s.since_version for s in found if s.name == op_type and not s.domain), default=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graphcore.runtime.kernel_probe.cuda_table", description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--provider", default="CUDAExecutionProvider")
    parser.add_argument("--onnxruntime", default="1.31.1", help="the version that the registry is of")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "lowering" / "targets" / "cuda.json")
    arguments = parser.parse_args()
    found = kernels(json.loads(arguments.registry.read_text()))
    table = {
        "provider": arguments.provider,
        "releases": {arguments.onnxruntime: [OPSET, IR_VERSION]},
        "kernels": {op: {_introduced(op): {"-": " ".join(map(str, dtypes))}} for op, dtypes in sorted(found.items())},
    }
    arguments.output.write_text(document(table))
    print(f"{arguments.output}: {len(found)} operators", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
