"""`python -m tools.contrib_schemas VERSION ...`: schemas of the operators of com.microsoft.

It asks the registry of each release of onnxruntime (in the environments of `make test-releases`, and the installed
one) for the operators that have a kernel of the CPU provider, and writes those that `ops.microsoft` does not declare,
as the newest release describes them, to `graphcore/onnx/schemas/microsoft.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphcore.ops import microsoft
from tools.kernel_probe.tables import seen_in

PATH = Path(__file__).parents[1] / "graphcore" / "onnx" / "schemas" / "microsoft.json"

REGISTRY = """
import json, onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def, get_all_operator_schema

def word(option):
    return str(option).rpartition(".")[2]

def formal(p):
    return [p.name, p.typeStr, word(p.option), p.isHomogeneous]

kernels = [k for k in get_all_opkernel_def() if k.provider == "CPUExecutionProvider"]
there = {k.op_name for k in kernels if k.domain == "com.microsoft"}
rows = {}
for s in get_all_operator_schema():
    if s.domain == "com.microsoft" and s.name in there and not s.deprecated:
        rows[s.name] = {
            "inputs": [formal(p) for p in s.inputs],
            "outputs": [formal(p) for p in s.outputs],
            "attributes": [[a.name, word(a.type), a.required, a._default_value.hex()] for a in s.attributes.values()],
            "types": {t.type_param_str: t.allowed_type_strs for t in s.type_constraints},
        }
print(json.dumps([onnxruntime.__version__, rows]))
"""
"""What a release is asked, by the Python of its environment, which has no other package."""


def registry(python: str) -> tuple[str, dict[str, Any]]:
    """Return the version of an environment's onnxruntime and its operators with a CPU kernel."""
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    run = subprocess.run([python, "-c", REGISTRY], capture_output=True, text=True, check=True, env=environment)
    version, rows = json.loads(run.stdout)
    return version, rows


def _default(content: str) -> Any:
    proto = onnx.AttributeProto.FromString(bytes.fromhex(content))
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _formal(name: str, type_: str, option: str, is_homogeneous: bool) -> str:
    """Return a parameter as text: "x: T", "x?: T" if it is optional, "*x: T" if there can be any number of it.

    "**x: T" if their types may differ.
    """
    star = ("*" if is_homogeneous else "**") if option == "Variadic" else ""
    return f"{star}{name}{'?' if option == 'Optional' else ''}: {_short(type_)}"


def _short(type_: str) -> str:
    return type_.removeprefix("tensor(").removesuffix(")") if type_.startswith("tensor(") else type_


def row(facts: dict[str, Any], releases: str) -> dict[str, Any]:
    """Return an operator of the data file. releases: the ranges of releases that have its kernel."""
    attributes = {}
    for name, kind, is_required, default in sorted(facts["attributes"]):
        attributes[name] = [kind] if is_required else [kind, _default(default)]
    return {
        "releases": releases,
        "inputs": [_formal(*p) for p in facts["inputs"]],
        "outputs": [_formal(*p) for p in facts["outputs"]],
        "attributes": attributes,
        "types": {name: " ".join(map(_short, sorted(types))) for name, types in sorted(facts["types"].items())},
    }


def document(registries: list[tuple[str, dict[str, Any]]]) -> str:
    """Return the data file of releases, oldest first: an operator a line."""
    versions = [version for version, _ in registries]
    declared = {*microsoft.__all__}
    lines = []
    for name in sorted({name for _, rows in registries for name in rows} - declared):
        seen = seen_in(versions, [name in rows for _, rows in registries])
        releases = " ".join(f"{item.first or versions[0]}-{item.last}" for item in seen)
        newest = next(rows[name] for _, rows in reversed(registries) if name in rows)
        lines.append(f" {json.dumps(name)}: {json.dumps(row(newest, releases))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    folder = Path(os.environ.get("GRAPHCORE_RELEASES") or Path.home() / ".cache" / "graphcore" / "releases")
    places = [next(folder.glob(f"{version}-py*")) / "bin" / "python" for version in sys.argv[1:]]
    registries = [registry(str(python)) for python in (*places, sys.executable)]
    PATH.write_text(document(registries), encoding="utf-8")
    print(f"{len(json.loads(PATH.read_text()))} operators of {', '.join(version for version, _ in registries)}")


if __name__ == "__main__":
    main()
