"""Measure every operator in every dtype in processes that may die, and judge what onnxruntime does with each case."""

from __future__ import annotations

import queue
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from graphcore.arrays.casting import Array
from graphcore.runtime.ort.openvino import session as openvino
from graphcore.runtime.ort.options import EXACT
from graphcore.runtime.ort.transport_dtypes import from_ort, to_ort
from graphcore.types.dtypes import DType
from tools.kernel_probe import web
from tools.kernel_probe.case import Case, Question, operators, question, swept_dtypes
from tools.kernel_probe.cases import CASES
from tools.kernel_probe.workers import TIMEOUT, Died, Worker

INSERTED = "InsertedPrecisionFreeCast_"
"""The beginning of the names of Casts that onnxruntime puts around a node whose dtype it has no kernel for."""

COMPILED = frozenset({openvino.PROVIDER})
"""Providers that compile what they take, so that there is nothing to write to a file, and insert no Casts."""

TOLERANCES = {DType.float32: 1e-5, DType.float64: 1e-11, DType.float16: 4e-3, DType.bfloat16: 3e-2}
"""The distance from the reference a value may be, absolute and relative to the greatest. Other dtypes must be equal."""

UNCHECKED = {
    "Loop": "the reference joins what the iterations give along its own first axis",
    "LRN": "the reference normalises no channel but the first",
    **dict.fromkeys(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split(), "random"
    ),
}
"""Operators whose values are not compared with the reference's, and why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one case.

    state: `kernel` (its own, or its function's body), `cast` (only through Casts), `none`, `fails` or `dies`. detail:
    what onnxruntime said. checked: whether values were compared with the reference's; values: how they differ.
    """

    state: str
    detail: str = ""
    checked: bool = False
    values: str = ""


def judge(op_type: str, case: Case, dtype: DType, provider: str) -> Outcome:
    """Return the outcome of a case; `provider` is onnxruntime's name. Raises nothing: the sweep goes on."""
    if provider in web.PROVIDERS:
        return _judge_web(question(op_type, case, dtype), provider)
    requested = question(op_type, case, dtype, constant=provider in COMPILED)
    with tempfile.TemporaryDirectory(prefix="graphcore-measure-") as folder:
        optimised = Path(folder) / "optimised.onnx"
        try:
            session = _session(requested.model, optimised, provider)
        except Exception as error:
            refused = "NOT_IMPLEMENTED" in str(error) or "IsNodeCompatibleWithProvider" in str(error)
            return Outcome("none" if refused else "fails", _first_line(error))
        elsewhere = _elsewhere(session, provider)
        if elsewhere:
            return Outcome("none", f"left to {elsewhere}")
        nodes = list(_nodes(onnx.load(optimised).graph)) if optimised.exists() else []
    if any(node.op_type == "Cast" and node.name.startswith(INSERTED) for node in nodes):
        return Outcome("cast")
    try:
        results = _run(session, requested)
    except Exception as error:
        return Outcome("fails", _first_line(error))
    wanted = None if op_type in UNCHECKED else _reference(requested)
    if wanted is None:
        return Outcome("kernel")
    return Outcome("kernel", checked=True, values=_difference(results, wanted))


def _judge_web(requested: Question, provider: str) -> Outcome:
    """Return the outcome in onnxruntime-web. values: how the bits differ from those of onnxruntime itself."""
    with tempfile.TemporaryDirectory(prefix="graphcore-measure-") as folder:
        try:
            native = _session(requested.model, Path(folder) / "optimised.onnx", "CPUExecutionProvider")
        except Exception as error:
            return Outcome("none", f"onnxruntime: {_first_line(error)}")
    prepared, places = web.prepared(requested, native)
    try:
        web.load(prepared.model, provider)
    except RuntimeError as error:
        return Outcome("none", _first_line(error))
    try:
        results = web.run(prepared, provider) if places else []
        wanted = web.native_results(requested, native)
    except Exception as error:
        return Outcome("fails", _first_line(error))
    differences = (web.difference(got, wanted[place]) for got, place in zip(results, places, strict=True))
    return Outcome("kernel", checked=True, values=next(filter(None, differences), ""))


def _session(model: onnx.ModelProto, optimised: Path, provider: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Functions are replaced by their bodies and Casts inserted at every level; the others fold the node away.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if provider not in COMPILED:
        options.optimized_model_filepath = str(optimised)
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    providers = list(dict.fromkeys([provider, "CPUExecutionProvider"]))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=providers, provider_options=[EXACT.get(p, {}) for p in providers]
    )


def _elsewhere(session: onnxruntime.InferenceSession, provider: str) -> str:
    """Return the provider that got a node which the asked one has no kernel for."""
    if provider == "CPUExecutionProvider":
        return ""
    if provider not in session.get_providers():
        raise RuntimeError(f"{provider} did not start")
    parts = session.get_provider_graph_assignment_info()
    return next((part.ep_name for part in parts if part.ep_name != provider), "")


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _run(session: onnxruntime.InferenceSession, requested: Question) -> list[Any]:
    """Return the results as arrays; None for those that are not tensors."""
    if any(dtype is DType.string for _, dtype in requested.feeds.values()):
        return list(session.run(None, {name: array for name, (array, _) in requested.feeds.items()}))
    values = session.run_with_ort_values(None, {name: to_ort(*item) for name, item in requested.feeds.items()})
    return [from_ort(v, DType.of(v.element_type())) if v.is_tensor() else None for v in values]


def _reference(requested: Question) -> list[Array] | None:
    """Return the results of onnx's evaluator; None where it lacks the operator or dtype, or gives no tensors."""
    feeds = {name: array for name, (array, _) in requested.feeds.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted: Any = ReferenceEvaluator(requested.model).run(None, feeds)
    except Exception:  # of many kinds
        return None
    return list(wanted) if all(isinstance(want, (np.ndarray, np.generic)) for want in wanted) else None


def _difference(results: Iterable[Array | None], wanted: Iterable[Array]) -> str:
    for got, want in zip(results, wanted, strict=True):
        if got is not None and not _close(np.asarray(got), np.asarray(want)):
            return f"{np.ravel(got)[:6].tolist()} where the reference has {np.ravel(want)[:6].tolist()}"
    return ""


def _close(got: Array, want: Array) -> bool:
    if got.shape != want.shape:
        return False
    if got.dtype == object or want.dtype == object or DType.of(got.dtype) not in TOLERANCES:
        return bool((got == want).all())
    tolerance = TOLERANCES[DType.of(got.dtype)]
    x, y = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.nanmax(np.abs(y), initial=0, where=np.isfinite(y))))
    return bool(np.allclose(x, y, rtol=0, atol=tolerance * scale, equal_nan=True))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@dataclass(frozen=True, slots=True)
class Job:
    """One case of an operator in one dtype."""

    op_type: str
    dtype: DType
    case: Case


Outcomes: TypeAlias = dict[Job, Outcome]


def jobs(op_types: Iterable[str] | None = None) -> list[Job]:
    """Return every case of the operators (default: all of the opset) in every dtype that it is for."""
    return [
        Job(op_type, dtype, case)
        for op_type in (operators() if op_types is None else op_types)
        for dtype in swept_dtypes(op_type)
        for case in CASES[op_type]
        if case.only is None or dtype in case.only
    ]


def sweep(todo: Iterable[Job], provider: str, processes: int = 2, timeout: float = TIMEOUT) -> Outcomes:
    """Return the outcome of each job. A process that dies or hangs costs its job and is replaced."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in todo:
        waiting.put(job)
    outcomes: Outcomes = {}
    with ThreadPoolExecutor(processes) as pool:
        drivers = [pool.submit(_drive, waiting, outcomes, provider, timeout) for _ in range(processes)]
    for driver in drivers:
        driver.result()
    return outcomes


def kernels(outcomes: Mapping[Job, Outcome]) -> dict[str, list[DType]]:
    """Return the dtypes of each operator in which all of its cases ran with a kernel of their own."""
    results: dict[str, dict[DType, bool]] = {}
    for job, outcome in outcomes.items():
        row = results.setdefault(job.op_type, {})
        row[job.dtype] = row.get(job.dtype, True) and outcome.state == "kernel"
    return {op: [dtype for dtype in swept_dtypes(op) if row.get(dtype)] for op, row in sorted(results.items())}


def _judged(op_type: str, case: Case, dtype: DType, provider: str) -> Outcome:
    try:
        return judge(op_type, case, dtype, provider)
    except Exception as error:
        raise RuntimeError(f"{op_type} in {dtype}: {error!r}") from None


def _drive(waiting: queue.SimpleQueue[Job], outcomes: Outcomes, provider: str, timeout: float) -> None:
    worker: Worker | None = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker(_judged)
        answer = worker.ask(job.op_type, job.case, job.dtype, provider, timeout=timeout)
        outcomes[job] = Outcome("dies", answer.how) if isinstance(answer, Died) else answer
        if isinstance(answer, Died):
            worker = None
    if worker:
        worker.end()
