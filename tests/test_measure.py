"""The table of kernels is what the installed onnxruntime has, and the sweep that measures it survives what kills."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from graphcore import DType, Graph, TensorType
from graphcore.onnx.writer import OPSET
from graphcore.runtime.lowering.detours import DETOURS, signals
from graphcore.runtime.lowering.foreign import of_models
from graphcore.runtime.lowering.legality import kernels, legality, measured
from graphcore.runtime.lowering.measure import sweep as sweeping
from graphcore.runtime.lowering.measure.build import operators, swept_dtypes
from graphcore.runtime.lowering.measure.case import DTYPES, Case, Operand
from graphcore.runtime.lowering.measure.cases import CASES
from graphcore.runtime.lowering.measure.sweep import Job, document, jobs, sweep
from graphcore.runtime.lowering.wrong import UNROUNDED, WRONG, wrong
from graphcore.runtime.values import to_ort

CPU = "CPUExecutionProvider"
D = DType
# A kernel, a function's body, kernels of older opsets only, Casts around, subgraphs, sequences, optionals, strings.
SAMPLE = """Add Attention BitCast CenterCropPad Constant EyeLike Gelu GroupNormalization If LSTM Loop Max
MelWeightMatrix OptionalGetElement QLinearConv RandomNormal Resize RoiAlign Scan SequenceAt Shape StringSplit
Swish TfIdfVectorizer Where""".split()


def test_every_operator_has_a_case_in_every_dtype_of_its_schema() -> None:
    assert sorted(CASES) == operators()
    asked = {(job.op_type, job.dtype) for job in jobs()}
    assert asked == {(op, dtype) for op in operators() for dtype in swept_dtypes(op)}


def test_stored_dtypes_are_all_swept() -> None:
    named = [d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d]
    foreign = {"int2", "uint2", "float4_e2m1", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0"}
    assert {d.name for d in named} - {d.name for d in DTYPES} == foreign


def test_sample_of_the_table_is_what_the_runtime_has() -> None:
    outcomes = sweep(jobs(SAMPLE), CPU)
    found = sweeping.kernels(outcomes)
    if measured("cpu")["onnxruntime"] != onnxruntime.__version__:
        assert legality("cpu").table
        return
    table = kernels("cpu")
    assert {op: frozenset(row) for op, row in found.items()} == {op: table[op] for op in SAMPLE}


@pytest.mark.slow
def test_command_writes_the_table_that_is_there(tmp_path: Path) -> None:
    written = tmp_path / "cpu.json"
    command = [sys.executable, "-m", "graphcore.runtime.lowering.measure", "--output", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True)
    assert "198 operators" in done.stderr or OPSET != 26
    assert json.loads(written.read_text())["onnxruntime"] == onnxruntime.__version__
    if measured("cpu")["onnxruntime"] == onnxruntime.__version__:
        assert written.read_text() == files("graphcore.runtime.lowering").joinpath("cpu.json").read_text()


@pytest.mark.slow
def test_kernels_that_are_legal_give_the_values_of_the_reference() -> None:
    rules = legality("cpu")
    outcomes = sweep(jobs(), CPU)
    assert sum(outcome.checked for outcome in outcomes.values()) > 1600
    differs = {(job.op_type, job.dtype): outcome.values for job, outcome in outcomes.items() if outcome.values}
    # Windows are measured by the dtype of the result, and have a detour by that of the length.
    left = {key: why for key, why in differs.items() if key not in DETOURS and key[0] not in signals.TERMS}
    assert {key: why for key, why in left.items() if rules.allows(*key)} == {}


def test_case_that_kills_the_process_is_recorded_and_the_sweep_goes_on() -> None:
    least, minus_one = Operand((2,), (float(D.int64.min),)), Operand((2,), (-1,))
    dies = Job("Div", D.int64, Case((least, minus_one)))
    others = jobs(["Abs", "Neg"])
    outcomes = sweep([dies, *others], CPU, processes=1)
    # Other processors give MIN for MIN / -1.
    assert outcomes[dies].state == ("dies" if platform.machine() in ("x86_64", "AMD64") else "kernel")
    if sys.platform == "linux" and platform.machine() == "x86_64":
        assert outcomes[dies].detail == "SIGFPE"
    assert set(outcomes) == {dies, *others}
    assert {outcomes[job].state for job in others} <= {"kernel", "cast", "none"}
    assert sweeping.kernels(outcomes)["Div"] == ([] if outcomes[dies].state == "dies" else [D.int64])


def test_case_that_hangs_is_ended_and_the_sweep_goes_on() -> None:
    (one, *_) = others = jobs(["Abs"])
    outcomes = sweep([one], CPU, processes=1, timeout=0)
    assert outcomes[one].state == "dies"
    assert outcomes[one].detail == "no answer in 0 s"
    assert sweep(others[:1], CPU, processes=1)[one].state == "kernel"


def test_case_that_cannot_be_built_ends_the_sweep() -> None:
    with pytest.raises(RuntimeError, match="Concat in float32"):
        sweep([Job("Concat", D.float32, Case(attributes={"axis": object()}))], CPU, processes=1)


def test_document_has_an_operator_a_line() -> None:
    text = document(CPU, {"Sub": [D.int8, D.float32], "Add": []})
    assert json.loads(text) == {
        "provider": CPU,
        "onnxruntime": onnxruntime.__version__,
        "opset": OPSET,
        "kernels": {"Add": "", "Sub": "int8 float32"},
    }
    assert '\n  "Add": "",\n  "Sub": "int8 float32"\n' in text


def test_legal_is_what_is_measured_less_what_is_wrong() -> None:
    rules, there = legality("cpu"), kernels("cpu")
    assert set(rules.table) == set(there) == set(operators())
    assert rules.table == {op: (row | of_models("cpu", op)) - wrong("cpu", op) for op, row in there.items()}
    assert rules.table["GroupNormalization"] == frozenset()
    assert rules.table["Attention"] == {D.float32}
    assert {D.float16, D.bfloat16} <= rules.table["Gather"]
    computed = set(operators()) - UNROUNDED
    assert not any(rules.table[op] & {D.float16, D.bfloat16} for op in computed)


def test_what_is_listed_as_wrong_is_there() -> None:
    there = kernels("cpu")
    assert set(operators()) >= UNROUNDED
    for op, (dtypes, reason) in WRONG["cpu"].items():
        assert {D.of(name) for name in dtypes.split()} <= there[op], op
        assert reason


@pytest.mark.parametrize("dtype", [D.int4, D.uint4], ids=str)
def test_shape_of_a_four_bit_tensor_is_known_when_its_dims_are_not(dtype: DType) -> None:
    # onnxruntime has no kernel for it, which hides as long as the shape is constant and folded.
    graph = Graph("shape", {"x": TensorType(dtype, ["n", 3])})
    graph.output(*graph.op("Shape", [graph["x"]], {}, [TensorType(D.int64, [2])]))
    session = onnxruntime.InferenceSession(graph.to_onnx(target="cpu").SerializeToString(), providers=[CPU])
    (got,) = session.run_with_ort_values(None, {"x": to_ort(np.zeros((4, 3), dtype.numpy), dtype)})
    assert got.numpy().tolist() == [4, 3]
