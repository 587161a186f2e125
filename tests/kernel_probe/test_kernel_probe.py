"""The table of kernels matches the installed onnxruntime, and the sweep that measures it survives crashes."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from graphcore import DType, Graph, TensorType
from graphcore.runtime.lowering.decompositions import fourier as window_functions
from graphcore.runtime.lowering.decompositions.rows import DECOMPOSITIONS
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.compute_dtypes import UNROUNDED
from graphcore.runtime.lowering.targets.legality import incorrect, kernels, legality
from graphcore.runtime.lowering.targets.releases import ReleaseRange, Runtime, table_of
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.transport_dtypes import to_ort
from tools.kernel_probe import __main__ as probe
from tools.kernel_probe import sweep as sweeping
from tools.kernel_probe.case import DTYPES, Case, Operand, operators, swept_dtypes
from tools.kernel_probe.cases import CASES
from tools.kernel_probe.sweep import Job, Outcomes, jobs, judge, sweep
from tools.kernel_probe.tables import document, facts, merged, seen_in

pytestmark = pytest.mark.releases

Command = Callable[..., tuple[dict[str, Any], str]]

CPU = "CPUExecutionProvider"
D = DType
# A kernel, a function's body, kernels of older opsets only, Casts around, subgraphs, sequences, optionals, strings.
SAMPLE = """Add Attention BitCast CenterCropPad Constant EyeLike Gelu GroupNormalization If LSTM Loop Max
MelWeightMatrix OptionalGetElement QLinearConv RandomNormal Resize RoiAlign Scan SequenceAt Shape StringSplit
Swish TfIdfVectorizer Where""".split()


def test_every_operator_has_a_case_in_every_dtype_of_its_schema() -> None:
    assert sorted(CASES) == operators()
    results = {(job.op_type, job.dtype) for job in jobs()}
    assert results == {(op, dtype) for op in operators() for dtype in swept_dtypes(op)}


def test_stored_dtypes_are_all_swept() -> None:
    named = [d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d]
    third_party = {"int2", "uint2", "float4_e2m1", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0"}
    third_party |= {"float6_e2m3fn", "float6_e3m2fn"}
    assert {d.name for d in named} - {d.name for d in DTYPES} == third_party


def table_rows(version: str) -> dict[str, frozenset[DType]]:
    """The table's kernels in a release, less those that the sweep leaves out."""
    result = table_of("cpu").kernels(Runtime(version, runtime().opset))
    return {op: row.intersection(DTYPES) for op, row in result.items()}


@pytest.mark.full
def test_sample_of_the_table_is_what_the_runtime_has() -> None:
    result = facts(CPU, sweeping.kernels(sweep(jobs(SAMPLE), CPU, processes=1)))
    measured = merged([{**result, "onnxruntime": "1.0.0"}])
    newest = {op: [*rows.values()][-1] for op, rows in measured["kernels"].items()}
    there = {op: frozenset(D.of(n) for names in row.values() for n in names.split()) for op, row in newest.items()}
    if not table_of("cpu").measures(onnxruntime.__version__):
        assert table_rows(onnxruntime.__version__)["Add"] == there["Add"]
        return
    table = table_rows(onnxruntime.__version__)
    assert {op: row.intersection(DTYPES) for op, row in there.items()} == {op: table[op] for op in SAMPLE}


@pytest.fixture(scope="module")
def swept() -> Outcomes:
    """Outcomes of all jobs."""
    return sweep(jobs(), CPU)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs the command and returns the facts that it writes and its stderr."""

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["kernel_probe", "--output", str(tmp_path / "facts.json"), *arguments])
        assert probe.main() == 0
        return json.loads((tmp_path / "facts.json").read_text()), capsys.readouterr().err

    return run


def check_facts(result: dict[str, Any]) -> None:
    """Check that the command's facts are those of the table."""
    assert result["onnxruntime"] == onnxruntime.__version__
    if table_of("cpu").measures(onnxruntime.__version__):
        newest = {op: max(map(int, rows)) for op, rows in result["kernels"].items()}
        there = {op: frozenset(map(D.of, result["kernels"][op][str(newest[op])].split())) for op in newest}
        remaining = kernels("cpu", Runtime(onnxruntime.__version__, runtime().opset))
        assert there == {op: remaining[op] for op in there}


@pytest.mark.full
def test_command_writes_what_the_table_has_of_the_release(
    command: Command, swept: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "sweep", lambda *_: swept)
    result, err = command()
    assert f"{len(operators())} operators" in err
    check_facts(result)


def test_command_sample(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "jobs", lambda: jobs(["Abs", "Where"]))
    result, err = command("--jobs", "1")
    assert "2 operators" in err
    assert set(result["kernels"]) == {"Abs", "Where"}
    check_facts(result)


def wrong(outcomes: Outcomes) -> dict[tuple[str, DType], str]:
    """Return the legal kernels whose values are not those of the reference."""
    rules = legality("cpu")
    differs = {(job.op_type, job.dtype): outcome.values for job, outcome in outcomes.items() if outcome.values}
    # Windows are measured by the dtype of the result, and have a decomposition by that of the length.
    results = {
        key: why for key, why in differs.items() if key not in DECOMPOSITIONS and key[0] not in window_functions.TERMS
    }
    return {key: why for key, why in results.items() if rules.allows(*key)}


@pytest.mark.numbers
@pytest.mark.full
def test_kernels_that_are_legal_give_the_values_of_the_reference(swept: Outcomes) -> None:
    assert sum(outcome.checked for outcome in swept.values()) > 1600
    assert wrong(swept) == {}


@pytest.mark.numbers
@pytest.mark.parametrize("op", SAMPLE)
def test_legal_kernels_sample(op: str) -> None:
    outcomes = {job: judge(job.op_type, job.case, job.dtype, CPU) for job in jobs([op])}
    assert wrong(outcomes) == {}


@pytest.mark.full
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
    with pytest.raises(RuntimeError, match=r"Concat.*float32"):
        sweep([Job("Concat", D.float32, Case(attributes={"axis": object()}))], CPU, processes=1)


def test_tables_of_releases_become_ranges() -> None:
    def of(version: str, **kernels: dict[str, str]) -> dict[str, object]:
        return {"provider": CPU, "onnxruntime": version, "commit": "c", "opset": 26, "ir": 13, "kernels": kernels}

    result = merged(
        [
            of("1.10.0", Add={"13": "float32"}, Sub={"13": ""}),
            of("1.9.0", Add={"13": "float32"}),
            of("1.32.0", Add={"13": "int8 float32", "25": ""}, Sub={"13": "int8"}),
        ]
    )
    assert list(result["releases"]) == ["1.9.0", "1.10.0", "1.32.0"]
    assert result["kernels"]["Add"] == {13: {"-": "float32", "1.32.0-": "int8"}, 25: {"1.32.0-": ""}}
    assert result["kernels"]["Sub"] == {13: {"1.10.0-1.10.0": "", "1.32.0-": "int8"}}
    text = document(result)
    assert json.loads(text)["kernels"]["Add"] == {"13": {"-": "float32", "1.32.0-": "int8"}, "25": {"1.32.0-": ""}}
    assert '"25": {"1.32.0-": ""}\n' in text


def test_ranges_are_open_at_the_ends_of_what_was_measured() -> None:
    releases = ["1.1.0", "1.2.0", "1.3.0", "1.4.0"]
    results = {text: [str(r) for r in seen_in(releases, [c == "1" for c in text])] for text in ("1111", "0110", "1001")}
    assert results == {"1111": ["-"], "0110": ["1.2.0-1.3.0"], "1001": ["-1.1.0", "1.4.0-"]}
    assert [ReleaseRange.parse("1.2.0-1.3.0").includes(r) for r in (*releases, "1.10.0")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert ReleaseRange.parse("1.2.0-").includes("1.10.0")


def test_legal_is_what_is_measured_less_what_is_wrong() -> None:
    newest = Runtime(table_of("cpu").newest.version)
    rules, there = legality("cpu", newest), kernels("cpu", newest)
    assert set(rules.table) == set(there) >= set(operators())
    assert {op: rules.dtypes(op) for op in there} == {
        op: row - incorrect(TARGETS["cpu"], op, newest) for op, row in there.items()
    }
    assert rules.dtypes("GroupNormalization") == frozenset()
    assert D.int2 in there["Transpose"]
    assert D.int2 in TARGETS["cpu"].extra
    assert {D.float16, D.bfloat16} <= (rules.dtypes("Gather") or frozenset())
    computed = set(operators()) - UNROUNDED
    assert not any((rules.dtypes(op) or frozenset()) & {D.float16, D.bfloat16} for op in computed)


def test_what_is_listed_as_wrong_is_there() -> None:
    releases = [Runtime(r.version, 24) for r in table_of("cpu").releases if r.opset >= 24]
    assert set(operators()) >= UNROUNDED
    for op, (dtypes, reason) in TARGETS["cpu"].incorrect.items():
        there = frozenset[DType]().union(*(kernels("cpu", release)[op] for release in releases))
        assert {D.of(name) for name in dtypes.split()} <= there, op
        assert reason


@pytest.mark.parametrize("dtype", [D.int4, D.uint4], ids=str)
def test_shape_of_a_four_bit_tensor_is_known_when_its_dims_are_not(dtype: DType) -> None:
    # onnxruntime has no kernel for it, which hides as long as the shape is constant and folded.
    graph = Graph("shape", {"x": TensorType(dtype, ["n", 3])})
    graph.output(*graph.op("Shape", [graph["x"]], {}, [TensorType(D.int64, [2])]))
    session = onnxruntime.InferenceSession(graph.to_onnx(target="cpu").SerializeToString(), providers=[CPU])
    (got,) = session.run_with_ort_values(None, {"x": to_ort(np.zeros((4, 3), dtype.numpy), dtype)})
    assert got.numpy().tolist() == [4, 3]
