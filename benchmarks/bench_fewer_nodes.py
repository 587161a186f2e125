"""Nodes that `Graph.optimize` leaves of models that others wrote, beside onnxslim and onnxsim, and whether they compute
the same.

    python -m benchmarks.bench_fewer_nodes FILE_OR_FOLDER ...
    pip install onnxslim onnxsim       # peers that are not installed are left out

Without arguments: the models of the packages that tests are run with, and some exports of PyTorch where it is installed
(`benchmarks.bench_architectures`), beside onnxslim alone. Each tool runs in a process of its own. Nodes are counted in
bodies and functions too, without Constant. Files are run as they are, with onnxruntime's optimisations off, at two
sizes of the dims that vary:

- equal: the same bits as those of the file, with onnxruntime's optimisations off or with its own folding of constants
  alone (kernels that reorder constant weights add up in another order than with weights computed in the run). A NaN is
  any NaN.
- near: within 1e-3 of the greatest magnitude, as products with folded batch norms are.
- wrong: further off, or other shapes. broken: no file, or one that does not load or run.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.bench_architectures import file
from benchmarks.peers import architectures
from benchmarks.timing import Bounds, record
from graphcore import Graph

SECONDS = 600
TOOLS = ("graphcore", "onnxslim", "onnxsim")
EXPORTS = (
    "DeBERTa", "FastViT", "Funnel", "GPT-Neo", "Granite", "HuBERT", "LayoutLMv3", "LeViT", "M2M-100", "MobileViT",
)  # fmt: skip
_NEAR = 1e-3
_DTYPES = {"float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_} | {
    name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}

Array = np.ndarray[Any, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="models, or folders of them")
    parser.add_argument("--tools", nargs="*", help="; ".join(TOOLS))
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    value = parser.parse_args()
    if value.run:
        print(json.dumps(_one(*value.run)))
        return 0
    named = value.tools or (TOOLS if value.files else TOOLS[:2])
    tools = [tool for tool in named if tool == "graphcore" or _is_installed(tool)]
    bounds, remaining = Bounds(), collections.Counter[str]()
    verdicts: dict[str, collections.Counter[str]] = {tool: collections.Counter() for tool in tools}
    with tempfile.TemporaryDirectory() as folder:
        for path in _files(value.files):
            before = count(onnx.load(path, load_external_data=False))
            remaining["before"] += before
            shown = f"{path.parent.name}/{path.name:<40} {before:5}"
            for tool in tools:
                row = _row(tool, path, Path(folder) / f"{tool}.onnx")
                nodes = row.get("nodes", before)
                remaining[tool] += nodes
                verdicts[tool][row["verdict"]] += 1
                shown += f"  {tool} {nodes:5} {row['verdict']:<6}"
                record("nodes", {"file": path.name, "tool": tool, "before": before, **row})
            print(shown, flush=True)
    print(f"nodes of {sum(verdicts[tools[0]].values())} files: {remaining['before']}")
    for tool in tools:
        print(f"  {tool:<10} {remaining[tool]:6}  {dict(verdicts[tool])}")
    ours = verdicts.get("graphcore", collections.Counter())
    faults = sum(ours[verdict] for verdict in ("near", "wrong", "broken"))
    bounds.figure("files that differ or do not run", faults, 0, "")
    if {"graphcore", "onnxslim"} <= {*tools}:
        bounds.figure("nodes left beside onnxslim", remaining["graphcore"] / remaining["onnxslim"], 1.0, "x")
    return bounds.exit_code()


def _is_installed(tool: str) -> bool:
    if importlib.util.find_spec(tool) is not None:
        return True
    print(f"{tool}: not measured, it is not installed")
    return False


def count(model: onnx.ModelProto) -> int:
    """Return the nodes of a model without Constant, those in bodies and functions included."""

    def of(nodes: Sequence[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            total += node.op_type != "Constant"
            for attribute in node.attribute:
                bodies = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
                total += sum(of(body.node) for body in bodies)
        return total

    return of(model.graph.node) + sum(of(function.node) for function in model.functions)


def _files(values: Sequence[Path]) -> Iterator[Path]:
    for path in values:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
    if values:
        return
    for package in ("basic_pitch", "magika", "nudenet", "rapidocr_onnxruntime", "silero_vad", "speechmos"):
        spec = importlib.util.find_spec(package)
        for place in () if spec is None else spec.submodule_search_locations or ():
            yield from sorted(Path(place).rglob("*.onnx"))
    if any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "timm", "transformers")):
        print("exports of PyTorch: left out, it is not installed")
        return
    for case in architectures.CASES:
        if case.name in EXPORTS:
            yield file(case)


def _row(tool: str, source: Path, result: Path) -> dict[str, Any]:
    """Return the number of nodes that a tool leaves, and True if the results are the same."""
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_fewer_nodes", "--run", tool, str(source), str(result)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return {"verdict": "broken", "why": "the process ended"}
    return row


def _one(tool: str, source: str, result: str) -> dict[str, Any]:
    try:
        if tool == "graphcore":
            Graph.load(source).optimize().export(result, target="onnx", optimize="off")
        else:
            _simplified(tool, source, result)
        nodes = count(onnx.load(result, load_external_data=False))
        return {"nodes": nodes, **_compared(source, result)}
    except Exception as error:  # tools and onnxruntime raise many kinds
        return {"verdict": "broken", "why": f"{type(error).__name__}: {error}"[:200]}


def _simplified(tool: str, source: str, result: str) -> None:
    peer = importlib.import_module(tool)
    model = peer.slim(source) if tool == "onnxslim" else peer.simplify(onnx.load(source))[0]
    onnx.save(model, result)


def _compared(source: str, result: str) -> dict[str, Any]:
    """Compare the results of two files: without any optimisation, else with onnxruntime's own folding of constants.

    Kernels that reorder constant weights add products up in another order than where these are computed in the run.
    """
    match = _compared_at(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, source, result)
    if match["verdict"] != "near":
        return match
    folded = _compared_at(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC, source, result)
    return folded if folded["verdict"] == "equal" else match


def _compared_at(level: onnxruntime.GraphOptimizationLevel, source: str, result: str) -> dict[str, Any]:
    before, after = _session(source, level), _session(result, level)
    verdict, runs = "equal", 0
    for sizes in ((2, 16), (1, 24), (3, 7), (1, 1600), (1, 16000), (1, 48000)):
        feeds = feeds_of(before, *sizes)
        try:
            want = before.run(None, feeds)
        except Exception:  # sizes that the model does not take
            continue
        runs += 1
        names = {i.name for i in after.get_inputs()}
        got = after.run([o.name for o in before.get_outputs()], {k: v for k, v in feeds.items() if k in names})
        match = max((_distance(a, b) for a, b in zip(got, want, strict=True)), default=0.0)
        if match > _NEAR:
            return {"verdict": "wrong", "why": f"{match:.2g} at {sizes}"}
        verdict = "near" if match else verdict
        if runs == 2:
            break
    return {"verdict": verdict, "runs": runs} if runs else {"verdict": "not run"}


def _session(path: str, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds_of(session: onnxruntime.InferenceSession, first: int, other: int) -> dict[str, Array]:
    """Return arrays for the inputs of a model. first, other: the sizes of first and other dims that vary."""
    rng = np.random.default_rng(0)
    named: dict[str, int] = {}
    results: dict[str, Array] = {}
    inputs = session.get_inputs()
    is_voice = any(info.name == "state" for info in inputs)  # detectors of voice, which take 36 ms at a time
    for info in inputs:
        rank = len(info.shape)
        # Sound, of which files take a second or so; shorter ones end the process in some files.
        sound = 576 if is_voice else other * 1000
        length = sound if info.type == "tensor(float)" and rank == 2 else other * 4 if rank == 4 else other
        dims = []
        for axis, dim in enumerate(info.shape):
            size = first if not axis else 3 if axis == 1 and rank == 4 else length
            dims.append(dim if isinstance(dim, int) else size if dim is None else named.setdefault(dim, size))
        name = info.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype(_DTYPES[name])
        if dtype.kind == "f":
            results[info.name] = rng.standard_normal(dims).astype(dtype)
        elif dtype.kind == "b" or "mask" in info.name:
            results[info.name] = np.ones(dims, dtype)
        else:
            whole = 16000 if info.name == "sr" else None
            results[info.name] = np.full(dims, whole, dtype) if whole else rng.integers(1, 60, dims).astype(dtype)
    return results


def _distance(got: Any, want: Any) -> float:
    """Return the error of an output as a part of the greatest magnitude; infinity for another shape or dtype."""
    if not isinstance(want, np.ndarray) or want.dtype.kind not in "fiub":
        return 0.0 if str(got) == str(want) else float("inf")
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if np.array_equal(got, want, equal_nan=want.dtype.kind == "f"):
        is_float = want.dtype.kind == "f"
        same = not is_float or ((np.signbit(got) == np.signbit(want)) | np.isnan(want)).all()
        return 0.0 if same else _NEAR / 2
    finite = np.isfinite(want.astype(np.float64))
    if not np.array_equal(finite, np.isfinite(got.astype(np.float64))):
        return float("inf")
    a, b = got.astype(np.float64)[finite], want.astype(np.float64)[finite]
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


if __name__ == "__main__":
    sys.exit(main())
