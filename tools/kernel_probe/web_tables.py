"""`python -m tools.kernel_probe.web_tables 1.30.0`: measure the kernels of a release of onnxruntime-web.

Writes `webgpu.json`, and says in which cases its wasm differs from onnxruntime's CPU provider of the same release: in
kernels, which would be `missing` in `wasm.json`, or in bits. Needs Node.js, npm, Chromium and the package of that
release of onnxruntime for Python, which is installed into the user's cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from graphcore.conformance.conform import Runtime, _environment
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import operators
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.onnx.versions.table import IR_OF_OPSET
from graphcore.runtime.lowering import targets
from graphcore.runtime.lowering.file_versions import at_versions
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.runtime.ort.web import WEB_FOLDER
from graphcore.types.dtypes import DType
from tools.kernel_probe import web
from tools.kernel_probe.case import Question, question
from tools.kernel_probe.sweep import Job, Outcome, _session, jobs, sweep
from tools.kernel_probe.tables import named

_OLDEST_OPSET = 17
_BY_BODY = frozenset({"CastLike", "Constant", "LogSoftmax"})
"""Operators that run without a kernel of their own, or in some dtypes only by their bodies."""

_IF = frozenset("bool int32 uint8 uint32 float16 float32".split())
"""The dtypes of If that the GPU holds; the kernel takes others too, which stay on the CPU."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_probe.web_tables", description=__doc__)
    parser.add_argument("release", help="of onnxruntime and onnxruntime-web")
    release = parser.parse_args().release
    if onnxruntime.__version__ != release:  # again, with both packages of that release
        environment = _environment(Runtime("onnxruntime", release)) | {
            WEB_FOLDER: _environment(Runtime("onnxruntime-web", release))[WEB_FOLDER]
        }
        return subprocess.run([sys.executable, "-m", __spec__.name, release], env=environment, check=False).returncode
    wasm = sweep(jobs(), web.WASM, 1)
    for job, outcome in wasm.items():
        if outcome.values or (outcome.state != "kernel" and not outcome.detail.startswith("onnxruntime: ")):
            print(f"wasm: {job.op_type} {job.dtype}: {outcome.values or outcome.detail}")
    missing = _missing(wasm, sweep(jobs(), "webgpu-host", 1))
    document = {"provider": "webgpu", "base": "cpu", "releases": [release], "missing": missing, "kernels": _on_gpu()}
    (Path(targets.__file__).parent / "webgpu.json").write_text(_text(document))
    return 0


def _missing(wasm: Mapping[Job, Outcome], host: Mapping[Job, Outcome]) -> dict[str, str]:
    """Return the operators by the dtypes that the CPU provider beside WebGPU lacks, and that of wasm has."""
    runs: dict[str, dict[DType, list[bool]]] = {}
    for job, outcome in host.items():
        if wasm[job].state == "kernel":
            runs.setdefault(job.op_type, {}).setdefault(job.dtype, []).append(outcome.state == "kernel")
    results: dict[str, list[str]] = {}
    for op_type, row in sorted(runs.items()):
        enough = any if op_type in ("Cast", "CastLike") else all  # casts to other dtypes are checked by those dtypes
        if lost := named(dtype for dtype, ran in row.items() if not enough(ran)):
            results.setdefault(lost, []).append(op_type)
    return {names: " ".join(op_types) for names, op_types in sorted(results.items())}


def _on_gpu() -> dict[str, dict[str, dict[str, str]]]:
    """Return the dtypes that WebGPU runs alone, by operator and version."""
    seen: dict[str, dict[int, dict[DType, set[bool]]]] = {}
    for job in jobs():
        if job.op_type not in _BY_BODY:
            for since, model in _at_versions(job):
                if (placed := _is_on_gpu(model)) is not None:
                    seen.setdefault(job.op_type, {}).setdefault(since, {}).setdefault(job.dtype, set()).add(placed)
    results: dict[str, dict[str, dict[str, str]]] = {}
    for op_type, versions in sorted(seen.items()):
        for since, row in sorted(versions.items()):
            dtypes = [d for d, placed in row.items() if True in placed and (False not in placed or op_type == "Cast")]
            if names := named(d for d in dtypes if op_type != "If" or d.name in _IF):
                results.setdefault(op_type, {})[str(since)] = {"-": names}
    return results


def _at_versions(job: Job) -> Iterator[tuple[int, Question]]:
    """Yield a case at the oldest opset of each version of its operator."""
    requested = question(job.op_type, job.case, job.dtype)
    newest = requested.model.opset_import[0].version
    rows = table_of("cpu").rows[job.op_type]
    for since in sorted(v for v, row in rows.items() if any(r.includes(onnxruntime.__version__) for r in row)):
        opset = max(since, _OLDEST_OPSET)
        if opset >= newest:
            yield since, requested
            continue
        try:
            graph = Graph.load(requested.model)
            older = at_versions(graph, operators(graph), {"": opset})
            content = join(encode(older, ir=IR_OF_OPSET[opset], versions={"": opset}))
        except GraphcoreError:  # it has no form there
            continue
        yield since, Question(onnx.ModelProto.FromString(content), requested.feeds)


def _is_on_gpu(requested: Question) -> bool | None:
    """Return True if WebGPU runs every node; None if onnxruntime itself does not load the model."""
    with tempfile.TemporaryDirectory(prefix="graphcore-measure-") as folder:
        try:
            native = _session(requested.model, Path(folder) / "optimised.onnx", "CPUExecutionProvider")
        except Exception:  # of many kinds
            return None
    names = [value.name for value in native.get_inputs()]
    feeds = dict(zip(names, requested.feeds.values(), strict=False)) if len(names) == len(requested.feeds) else {}
    try:
        web.load(web.prepared(Question(requested.model, feeds or requested.feeds), native)[0].model, "webgpu")
    except RuntimeError:
        return False
    return True


def _text(document: Mapping[str, Any]) -> str:
    """Return a table as JSON, an operator or a set of dtypes a line."""
    parts = []
    for key, value in document.items():
        lines = (
            ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) if type(value) is dict else ""
        )
        parts.append(f' "{key}": {{\n{lines}\n }}' if lines else f' "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
