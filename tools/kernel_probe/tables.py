"""Kernels of one release, and the tables that ranges of releases make of it.

`python -m tools.kernel_probe.tables --output facts.json` writes the kernels that the installed onnxruntime-gpu lists.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphcore.custom_ops.custom_op import lookup
from graphcore.onnx.notes import NEWEST_OPSET
from graphcore.onnx.versions.table import IR_OF_OPSET
from graphcore.ops.microsoft._declare import DOMAIN
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY, schema_dtypes
from graphcore.runtime.lowering.targets.releases import ReleaseRange, ordered
from graphcore.runtime.ort.release import (
    PARAMETER,
    KernelDef,
    build_commit,
    newest_ir,
    newest_opset,
    parameter_of,
    registered,
)
from graphcore.types.dtypes import DType

Ran = Mapping[str, Iterable[DType]]
Rows = dict[str, dict[int, dict[str, str]]]

_OLDEST_OPSET = 17
"""The oldest opset that files are written at."""

_SAID = [d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d]
_ORDER = {dtype: place for place, dtype in enumerate(dict.fromkeys(_SAID))}


def facts(provider: str, ran: Ran) -> dict[str, Any]:
    """Return the kernels of the installed release: for each version of an operator the dtypes.
    ran: the dtypes that were seen to run at the newest opset. In an older version those count that are registered.
    """
    listed = _listed(state.get_all_opkernel_def(), provider)
    schemas = state.get_all_operator_schema()
    rows = {}
    for op_type, dtypes in ran.items():
        seen = {*dtypes, *_third_party(provider, op_type)}
        versions = versions_of(op_type, schemas)
        rows[op_type] = {
            str(since): named(_runs(op_type, since, seen, listed.get(op_type, ()), is_newest=since == versions[-1]))
            for since in versions
        }
    results = {s.name: [len(s.inputs), " ".join(sorted(s.attributes))] for s in schemas if s.domain == DOMAIN}
    return {**head(provider), "kernels": rows, DOMAIN: results}


def head(provider: str) -> dict[str, Any]:
    """Return the description of the installed release."""
    results = {"provider": provider, "onnxruntime": onnxruntime.__version__, "commit": build_commit()}
    return {**results, "opset": newest_opset(NEWEST_OPSET), "ir": newest_ir(IR_OF_OPSET[NEWEST_OPSET])}


def _listed(kernels: Iterable[KernelDef], provider: str) -> dict[str, list[KernelDef]]:
    """Return those kernels that a provider has of ONNX's own operators, by operator."""
    results: dict[str, list[KernelDef]] = {}
    for kernel in kernels:
        if not kernel.domain and kernel.provider == provider:
            results.setdefault(kernel.op_name, []).append(kernel)
    return results


def _third_party(provider: str, op_type: str) -> Iterable[DType]:
    """Return the dtypes that only third-party models have, which the sweep leaves out."""
    if provider != "CPUExecutionProvider":
        return ()
    return [dtype for dtype, row in TARGETS["cpu"].extra.items() if op_type in row]


def _runs(op_type: str, since: int, seen: set[DType], kernels: Iterable[Any], *, is_newest: bool) -> set[DType]:
    """Return the dtypes in which a version runs by a kernel; by a function body where the operator has no kernel."""
    if not kernels:
        return seen if is_newest else set()
    there = registered(kernels, since, _parameter(op_type))
    return seen if there is None else seen & there


def _parameter(op_type: str) -> str:
    """Return the type parameter that an operator's dtypes are counted by."""
    if op_type in PARAMETER:
        return PARAMETER[op_type]
    schema = onnx.defs.get_schema(op_type, newest_opset())
    if op_type in BY_RESULT or not schema.inputs:
        return schema.outputs[0].type_str
    return schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)].type_str


def versions_of(op_type: str, schemas: Iterable[Any]) -> list[int]:
    """Return the versions that an operator has at the opsets that files are written at, oldest first."""
    results = sorted({s.since_version for s in schemas if s.name == op_type and not s.domain})
    results = [version for version in results if version <= newest_opset()]
    start = max((v for v in results if v <= _OLDEST_OPSET), default=0)
    return [version for version in results if version >= start]


def named(dtypes: Iterable[DType]) -> str:
    return " ".join(str(dtype) for dtype in sorted(dtypes, key=_ORDER.__getitem__))


def merged(measured: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one table of the facts of several releases of a provider."""
    results = sorted(measured, key=lambda facts: ordered(facts["onnxruntime"]))
    names = [facts["onnxruntime"] for facts in results]
    rows: Rows = {}
    for op_type in sorted({op for facts in results for op in facts["kernels"]}):
        versions = sorted({int(v) for facts in results for v in facts["kernels"].get(op_type, {})})
        rows[op_type] = {v: _ranges(names, [_row(facts, op_type, v) for facts in results]) for v in versions}
    releases = {facts["onnxruntime"]: [facts["opset"], facts["ir"], facts["commit"]] for facts in results}
    contributed = _contributed(names, [facts.get(DOMAIN, {}) for facts in results])
    return {"provider": results[0]["provider"], "releases": releases, "kernels": rows, DOMAIN: contributed}


def _contributed(releases: list[str], measured: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each declared operator of com.microsoft how many operands and which attributes releases know."""
    results = {}
    for op_type in sorted(op for op in {name for row in measured for name in row} if lookup(DOMAIN, op)):
        counts = [row[op_type][0] if op_type in row else 0 for row in measured]
        names = [set(row[op_type][1].split()) if op_type in row else set[str]() for row in measured]
        operands = {
            str(r): count for count in sorted({*counts} - {0}) for r in seen_in(releases, [c == count for c in counts])
        }
        attributes = {
            name: " ".join(str(r) for r in seen_in(releases, [name in row for row in names]))
            for name in sorted(set().union(*names))
        }
        results[op_type] = {"operands": operands, "attributes": attributes}
    return results


def facts_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of each release that a merged table was made of."""
    results = []
    for name, (opset, ir, *commit) in table["releases"].items():
        rows: dict[str, dict[str, str]] = {}
        for op_type, versions in table["kernels"].items():
            for since, item in versions.items():
                fit = [dtypes for text, dtypes in item.items() if ReleaseRange.parse(text).includes(name)]
                if fit:
                    dtypes = named({DType.of(dtype) for names in fit for dtype in names.split()})
                    rows.setdefault(op_type, {})[str(since)] = dtypes
        head = {"provider": table["provider"], "onnxruntime": name, "commit": commit[0] if commit else ""}
        by_name = {op: _known_in(name, row) for op, row in table.get(DOMAIN, {}).items()}
        item = {op: row for op, row in by_name.items() if row is not None}
        results.append({**head, "opset": opset, "ir": ir, "kernels": rows, DOMAIN: item})
    return results


def _known_in(release: str, row: Mapping[str, Any]) -> list[Any] | None:
    """Return the operands and attributes of an operator of com.microsoft in a release; None where it has none."""
    counts = [count for text, count in row["operands"].items() if ReleaseRange.parse(text).includes(release)]
    names = [
        n
        for n, texts in row["attributes"].items()
        if any(ReleaseRange.parse(t).includes(release) for t in texts.split())
    ]
    return [counts[0], " ".join(names)] if counts else None


def _row(facts: Mapping[str, Any], op_type: str, since: int) -> set[str] | None:
    """Return the dtypes of a version; None where the release does not know it."""
    names = facts["kernels"].get(op_type, {}).get(str(since))
    return None if names is None else set(names.split())


def _ranges(releases: list[str], rows: list[set[str] | None]) -> dict[str, str]:
    """Return for each range of releases the dtypes that ran in just that range; none where a version is only known."""
    results: dict[str, list[str]] = {}
    for item in seen_in(releases, [row is not None and not row for row in rows]):
        results[str(item)] = []
    for name in {name for row in rows for name in row or ()}:
        for item in seen_in(releases, [row is not None and name in row for row in rows]):
            results.setdefault(str(item), []).append(name)
    return {text: named(map(DType.of, names)) for text, names in sorted(results.items())}


def seen_in(releases: list[str], was_seen: list[bool]) -> list[ReleaseRange]:
    """Return the ranges of releases in which something was seen; open at the ends of the list."""
    places = [place for place, seen in enumerate(was_seen) if seen]
    results = []
    for _gap, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        run = [place for _, place in group]
        first = "" if run[0] == 0 else releases[run[0]]
        last = "" if run[-1] == len(releases) - 1 else releases[run[-1]]
        results.append(ReleaseRange(first, last))
    return results


def document(table: Mapping[str, Any]) -> str:
    """Return a table as JSON, a version of an operator a line."""
    lines = []
    for op_type, versions in table["kernels"].items():
        rows = ",\n".join(f"   {json.dumps(str(since))}: {json.dumps(row)}" for since, row in versions.items())
        lines.append(f"  {json.dumps(op_type)}: {{\n{rows}\n  }}")
    releases = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table["releases"].items())
    head = f' "provider": {json.dumps(table["provider"])},\n "releases": {{\n{releases}\n }},\n'
    results = [f"  {json.dumps(op)}: {json.dumps(row)}" for op, row in table.get(DOMAIN, {}).items()]
    tail = ',\n "com.microsoft": {\n' + ",\n".join(results) + "\n }" if results else ""
    return "{\n" + head + ' "kernels": {\n' + ",\n".join(lines) + "\n }" + tail + "\n}\n"


# Of CUDA

CUDA = "CUDAExecutionProvider"

KERNELLESS = frozenset({"Constant"})
"""Operators that run without a kernel: nothing of them is left when a session has started."""


def registered_facts(kernels: Iterable[KernelDef], schemas: Iterable[Any], provider: str = CUDA) -> dict[str, Any]:
    """Return the dtypes of every operator of ONNX, by version, that a build's list has a provider's kernels for."""
    listed = _listed(kernels, provider)
    schemas = list(schemas)
    by_version = {(s.name, s.since_version): s for s in schemas if not s.domain}
    rows = {}
    for op_type in sorted({name for name, _ in by_version}):
        results = sorted(since for name, since in by_version if name == op_type)
        versions = versions_of(op_type, schemas) or results[:1]  # or one that is newer than all opsets
        if not by_version[op_type, results[-1]].deprecated:
            rows[op_type] = {
                str(since): named(_registered_dtypes(op_type, by_version[op_type, since], listed.get(op_type, ())))
                for since in versions
            }
    return {**head(provider), "kernels": rows}


def _registered_dtypes(op_type: str, schema: Any, kernels: Iterable[KernelDef]) -> Iterable[DType]:
    """Return the dtypes of the kernels of a version; those that ONNX allows where the kernels take any."""
    results = (
        None if op_type in KERNELLESS else registered(kernels, schema.since_version, parameter_of(op_type, schema))
    )
    results = schema_dtypes(op_type, schema.since_version) if results is None else results
    return [dtype for dtype in results if not dtype.is_complex]


def main() -> int:
    """Write the kernels that the installed onnxruntime-gpu lists.

    Unlike the CPU's, they are not run: a kernel counts in the dtypes that the registry has it for.
    `tools/cuda_without_gpu` asks each release, without a GPU, and merges the answers to `cuda.json`.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_probe.tables", description=main.__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if CUDA not in onnxruntime.get_available_providers():
        parser.error(f"onnxruntime {onnxruntime.__version__} has no {CUDA}: install onnxruntime-gpu")
    kernels = state.get_all_opkernel_def()
    count = sum(kernel.provider == CUDA for kernel in kernels)
    result = registered_facts(kernels, state.get_all_operator_schema())
    arguments.output.write_text(json.dumps({**result, "count": count}))
    print(f"onnxruntime-gpu {onnxruntime.__version__}: {count} kernels", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
