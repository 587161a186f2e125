"""The command line, through `main(argv)` and as a process: what it prints, writes and returns."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.cli.arguments import parser
from graphcore.models import llama
from tests.support.onnx_models import FLOAT, model, value

Call = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]


def save(name: str, types: dict[str, TensorType], function: Callable[..., Any], target: Any = "onnx") -> None:
    graph = Graph("saved", types)
    graph.output(**function(*graph.inputs))
    graph.export(name, target=target)


def doubled() -> None:
    save("m.onnx", {"x": TensorType(DType.float32, ["batch", 2])}, lambda x: {"y": x + x})


# run


def test_run_prints_the_same_when_it_is_isolated(call: Call) -> None:
    doubled()
    np.save("x.npy", np.array([[1, -2], [0.5, 3]], np.float32))
    assert call("run", "m.onnx", "--input", "x=x.npy", "--isolated") == (
        0,
        "y  float32[2, 2]  min -4  max 6  [2 -4 1 6]\n",
        "",
    )
    status, _, err = call("run", "gone.onnx", "--isolated")
    assert status == 1
    assert "gone.onnx is not a file" in err


def test_run_prints_outputs_when_fed_from_a_file(call: Call) -> None:
    doubled()
    np.save("x.npy", np.array([[1, -2], [0.5, 3]], np.float32))
    assert call("run", "m.onnx", "--input", "x=x.npy") == (0, "y  float32[2, 2]  min -4  max 6  [2 -4 1 6]\n", "")


def test_run_takes_a_file_without_a_name_when_there_is_one_input(call: Call) -> None:
    doubled()
    np.save("x.npy", np.ones((1, 2), np.float32))
    assert call("run", "m.onnx", "--input", "x.npy")[:2] == (0, "y  float32[1, 2]  min 2  max 2  [2 2]\n")


def test_run_shows_the_first_values_when_there_are_many(call: Call) -> None:
    doubled()
    np.save("x.npy", np.arange(20, dtype=np.float32).reshape(10, 2))
    assert call("run", "m.onnx", "--input", "x=x.npy")[1] == ("y  float32[10, 2]  min 0  max 38  [0 2 4 6 8 10 ...]\n")


def test_run_counts_nan_when_there_is_some(call: Call) -> None:
    doubled()
    np.save("x.npy", np.array([[np.nan, 1]], np.float32))
    assert call("run", "m.onnx", "--input", "x=x.npy")[1] == "y  float32[1, 2]  min 2  max 2  NaN x1  [nan 2]\n"


def test_run_shows_no_extremes_when_there_is_nothing(call: Call) -> None:
    doubled()
    assert call("run", "m.onnx", "--random", "--dim", "batch=0")[1] == "y  float32[0, 2]  []\n"


@pytest.mark.parametrize("dtype", [DType.bool, DType.int4, DType.uint8, DType.int64, DType.float16, DType.bfloat16])
def test_run_invents_inputs_of_every_dtype_when_asked_for_random_ones(call: Call, dtype: DType) -> None:
    save("m.onnx", {"x": TensorType(dtype, ["n"])}, lambda x: {"y": x[::-1]})
    status, out, err = call("run", "m.onnx", "--random", "--dim", "n=4")
    assert (status, err) == (0, "")
    assert out.startswith(f"y  {dtype}[4]")


def test_run_invents_the_same_when_the_seed_is_the_same(call: Call) -> None:
    doubled()
    lines = [call("run", "m.onnx", "--random", "--seed", seed, "--dim", "batch=3")[1] for seed in ("7", "7", "8")]
    assert lines[0] == lines[1] != lines[2]
    expected = 2 * np.random.default_rng(7).standard_normal((3, 2)).astype(np.float32)
    assert f"min {expected.min():.6g}  max {expected.max():.6g}" in lines[0]


def test_run_gives_every_dim_1_when_none_is_told(call: Call) -> None:
    doubled()
    assert call("run", "m.onnx", "--random")[1].startswith("y  float32[1, 2]")


def test_run_evaluates_dims_when_they_are_expressions(call: Call) -> None:
    n = gc.Dim("n")
    save("m.onnx", {"x": TensorType(DType.float32, [2 * n + 1])}, lambda x: {"y": -x})
    assert call("run", "m.onnx", "--random", "--dim", "n=3")[1].startswith("y  float32[7]")


def test_run_writes_outputs_when_told_where(call: Call) -> None:
    types = {"x": TensorType(DType.bfloat16, [2]), "i": TensorType(DType.int4, [2])}
    save("m.onnx", types, lambda x, i: {"y": x + x, "j": i + i, "z": x.cast(DType.float32)})
    np.savez("ignored.npz")
    np.save("x.npy", np.array([1.5, -2], ml_dtypes.bfloat16).view(np.uint16))
    np.save("i.npy", np.array([1, -3], np.int8))
    status, out, err = call("run", "m.onnx", "--input", "x=x.npy", "--input", "i=i.npy", "--output", "out.npz")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "y  bfloat16[2]  min -4  max 3  [3 -4]",
        "j  int4[2]  min -6  max 2  [2 -6]",
        "z  float32[2]  min -2  max 1.5  [1.5 -2]",
        "y is stored as uint16; y.dtype says bfloat16",
        "j is stored as int8; j.dtype says int4",
    ]
    with np.load("out.npz", allow_pickle=False) as written:
        assert written["y"].view(str(written["y.dtype"])).tolist() == [3, -4]
        assert written["j"].tolist() == [2, -6]
        assert str(written["j.dtype"]) == "int4"
        assert written["z"].dtype == np.float32


def test_run_takes_bfloat16_when_numpy_saved_it_as_bytes(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.bfloat16, [2])}, lambda x: {"y": x + x})
    np.save("x.npy", np.array([1.5, -2], ml_dtypes.bfloat16))
    assert call("run", "m.onnx", "--input", "x=x.npy")[1] == "y  bfloat16[2]  min -4  max 3  [3 -4]\n"


def test_run_takes_and_writes_strings(call: Call) -> None:
    node = helper.make_node("Identity", ["s"], ["t"])
    kinds = [[value(n, TensorProto.STRING, [2])] for n in ("s", "t")]
    Path("m.onnx").write_bytes(model([node], kinds[0], kinds[1]).SerializeToString())
    np.save("s.npy", np.array(["a", "bc"]))
    status, out, _ = call("run", "m.onnx", "--input", "s=s.npy", "--output", "out.npz")
    assert (status, out) == (0, "t  string[2]  ['a' 'bc']\n")
    with np.load("out.npz", allow_pickle=False) as written:
        assert written["t"].tolist() == ["a", "bc"]


def test_run_rounds_less_when_fast(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.bfloat16, [1])}, lambda x: {"y": (x * x) * x - x})
    np.save("x.npy", np.array([1.0078125], ml_dtypes.bfloat16))
    exact = call("run", "m.onnx", "--input", "x=x.npy")
    fast = call("run", "m.onnx", "--input", "x=x.npy", "--precision", "fast")
    assert exact[0] == fast[0] == 0
    assert exact[1] != fast[1]


def test_run_fills_an_input_with_a_number_or_takes_a_list(call: Call) -> None:
    doubled()
    assert (
        call("run", "m.onnx", "--input", "x=3", "--dim", "batch=2")[1] == "y  float32[2, 2]  min 6  max 6  [6 6 6 6]\n"
    )
    assert call("run", "m.onnx", "--input", "x=[[1, 2.5]]")[1] == "y  float32[1, 2]  min 2  max 5  [2 5]\n"
    save("i.onnx", {"x": TensorType(DType.int8, ["n"])}, lambda x: {"y": -x})
    assert call("run", "i.onnx", "--input", "x=[1, -2]")[1] == "y  int8[2]  min -1  max 2  [-1 2]\n"
    for wrong in ("x=300", "x=1.5", "x=[[1], [2, 3]]", "x=[null]"):
        status, out, err = call("run", "i.onnx", "--input", wrong)
        assert (status, out) == (1, "")
        assert "is not a valid array" in err


def test_run_prints_json(call: Call) -> None:
    doubled()
    status, out, _ = call("run", "m.onnx", "--input", "x=[[1, NaN]]", "--output", "o.npz", "--json")
    (result,) = json.loads(out)["outputs"]
    assert status == 0
    assert result == {
        "name": "y", "dtype": "float32", "shape": [1, 2], "first": [2.0, "nan"], "min": 2.0, "max": 2.0, "nan": 1
    }  # fmt: skip


def test_run_takes_a_size_for_a_dim_without_a_name(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.float32, ["?", 2])}, lambda x: {"y": -x})
    assert call("run", "m.onnx", "--random", "--dim", "x.0=3")[1].startswith("y  float32[3, 2]")
    assert "its dims: x.0" in call("run", "m.onnx", "--random", "--dim", "x.1=3")[2]


# Errors of run

REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "nothing given": (["run", "m.onnx"], ["no array is given for x", "float32[batch, 2]", "--random"]),
    "no such model": (["run", "gone.onnx", "--random"], ["ModelError: load: gone.onnx is not a file"]),
    "folder": (["run", ".", "--random"], ["is a folder"]),
    "no model": (["run", "x.npy", "--random"], ["ModelError"]),
    "no such file": (["run", "m.onnx", "--input", "x=gone.npy"], ["gone.npy", "no such file"]),
    "no array": (["run", "m.onnx", "--input", "x=m.onnx"], ["m.onnx for input 'x' cannot be read"]),
    "objects": (["run", "m.onnx", "--input", "x=objects.npy"], ["objects.npy for input 'x' cannot be read"]),
    "several arrays": (["run", "m.onnx", "--input", "x=x.npz"], ["holds several arrays"]),
    "no such input": (["run", "m.onnx", "--input", "z=x.npy"], ["no input 'z'", "its inputs: x"]),
    "twice": (["run", "m.onnx", "--input", "x=x.npy", "--input", "x=x.npy"], ["'x' is given twice"]),
    "wrong dtype": (["run", "m.onnx", "--input", "x=ints.npy"], ["FeedError", "got int64[1, 2]"]),
    "wrong rank": (["run", "m.onnx", "--input", "x=flat.npy"], ["FeedError", "rank 2"]),
    "no such dim": (["run", "m.onnx", "--random", "--dim", "width=3"], ["called 'width'", "its dims: batch"]),
    "huge": (["run", "m.onnx", "--random", "--dim", "batch=1000000000000"], ["ResourceLimitError", "too large"]),
    "negative seed": (["run", "m.onnx", "--random", "--seed", "-1"], ["--seed -1 is negative"]),
    "no such provider": (["run", "m.onnx", "--random", "--provider", "abacus"], ["RunError", "'abacus'"]),
    "nowhere to write": (["run", "m.onnx", "--random", "--output", "no/out.npz"], ["ExportError", "no/out.npz"]),
    "convert: no such model": (["convert", "gone.onnx", "o.onnx"], ["ModelError: load: gone.onnx is not a file"]),
    "convert: nowhere to write": (["convert", "m.onnx", "no/o.onnx"], ["ExportError", "no/o.onnx"]),
    "convert: onto itself": (["convert", "m.onnx", "./m.onnx"], ["ExportError", "is the file that is read"]),
    "convert: no such opset": (
        ["convert", "m.onnx", "o.onnx", "--opset", "3"],
        ["opset must be 17 to 28, got 3", "17 to 28"],
    ),
    "convert: no such release": (["convert", "m.onnx", "o.onnx", "--runtime", "1.2"], ["'1.2'", "1.20.1, 1.22.0"]),
    "convert: beyond a release": (
        ["convert", "m.onnx", "o.onnx", "--runtime", "1.20", "--opset", "24"],
        ["onnxruntime 1.20.1 takes opset 21 at most, not 24"],
    ),
    "convert: no such system": (["convert", "m.onnx", "o.onnx", "--promotion", "none"], ["none"]),
    "quantize: no such model": (["quantize", "gone.onnx", "o.onnx"], ["ModelError: load: gone.onnx is not a file"]),
    "quantize: nowhere to write": (["quantize", "m.onnx", "no/o.onnx"], ["ExportError", "no/o.onnx"]),
    "quantize: nowhere to report": (["quantize", "m.onnx", "o.onnx", "--report", "no/r.json"], ["ExportError", "no/r"]),
    "quantize: onto itself": (["quantize", "m.onnx", "./m.onnx"], ["ExportError", "is the file that is read"]),
    "quantize: no such scheme": (["quantize", "m.onnx", "o.onnx", "--scheme", "int3"], ["'int3'", "int8_dynamic"]),
    "quantize: no such layer": (["quantize", "m.onnx", "o.onnx", "--include", "head"], ["'head'"]),
}


@pytest.mark.parametrize(("argv", "words"), REFUSED.values(), ids=REFUSED)
def test_errors_are_the_librarys_own_text(call: Call, argv: list[str], words: list[str]) -> None:
    doubled()
    np.save("x.npy", np.ones((1, 2), np.float32))
    np.save("ints.npy", np.ones((1, 2), np.int64))
    np.save("flat.npy", np.ones(2, np.float32))
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez("x.npz", x=np.ones((1, 2), np.float32))
    status, out, err = call(*argv)
    assert (status, out) == (1, "")
    for word in words:
        assert word in err
    assert "  help: " in err
    assert "Traceback" not in err
    assert "  at " not in err


@pytest.mark.parametrize(
    "argv",
    [
        ["fly"],
        ["run"],
        ["run", "m.onnx", "--dim", "batch"],
        ["run", "m.onnx", "--dim", "batch=-1"],
        ["run", "m.onnx", "--dim", "=3"],
        ["run", "m.onnx", "--seed", "seven"],
        ["run", "m.onnx", "--precision", "some"],
        ["run", "m.onnx", "--rand"],
        ["check"],
        ["convert", "m.onnx"],
        ["bench", "m.onnx", "--threads", "0"],
        ["bench", "m.onnx", "--batch", "1,x"],
        ["bench", "m.onnx", "--seconds", "-1"],
        ["diff", "m.onnx"],
        ["diff", "m.onnx", "m.onnx", "--rtol", "nan"],
        ["rename", "m.onnx", "o.onnx", "x"],
        ["set-dims", "m.onnx", "o.onnx"],
        ["extract", "m.onnx", "o.onnx"],
        ["astype", "m.onnx", "o.onnx"],
        ["mixed-precision", "m.onnx", "o.onnx", "--max-error", "1e-3"],
        ["mixed-precision", "m.onnx", "o.onnx", "--samples", "x.npz", "--max-error", "-1"],
        ["completion", "tcsh"],
        ["convert", "m.onnx", "o.onnx", "--target", "tpu"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(call: Call, argv: list[str]) -> None:
    status, out, err = call(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("usage: graphcore")


def test_usage_of_extract_has_the_files_first(call: Call) -> None:
    """Options of several values would take the files too."""
    status, _, err = call("extract", "--outputs", "y", "m.onnx", "o.onnx")
    assert status == 2
    assert err.startswith("usage: graphcore extract IN OUT --outputs VALUE")


def test_error_of_its_own_is_not_a_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oh\nno")

    monkeypatch.setattr(gc.runtime, "InferenceSession", broken)
    status, _, err = call("check", "m.onnx", "--no-isolated")
    assert (status, err) == (1, "graphcore: internal error, KeyError: 'oh\\nno'; please report it\n")


def test_interrupted_command_ends_with_130(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gc.runtime, "InferenceSession", interrupted)
    assert call("check", "m.onnx", "--no-isolated") == (130, "", "")


READING = "inspect view diff check promote doctor completion".split()
COMMANDS = [*READING, *"run bench compare convert quantize extract rename set-dims astype".split()]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example(call: Call, command: str) -> None:
    status, out, err = call(*filter(None, [command]), "--help")
    assert (status, err) == (0, "")
    assert f"  graphcore {command or 'run'} " in out or f"  graphcore {command}\n" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_are_understood(call: Call, command: str) -> None:
    for line in call(command, "--help")[1].splitlines():
        if line.startswith(f"  graphcore {command}"):
            parser().parse_args(shlex.split(line.partition(" > ")[0])[1:])


def test_help_names_every_command(call: Call) -> None:
    out = call("--help")[1]
    assert all(f"\n    {command}" in out for command in COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])
def test_every_command_prints_json(call: Call, command: str) -> None:
    assert "--json" in call(command, "--help")[1]


def test_version_is_that_of_the_package(call: Call) -> None:
    assert call("--version") == (0, f"graphcore {gc.__version__}\n", "")


# convert


def test_convert_writes_for_an_opset_and_for_a_release(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.float32, ["n"])}, lambda x: {"y": gc.ops.gelu(x)})
    cases = ("--opset", "18", 18, 8), ("--runtime", "1.22", 22, 10), ("--ir-version", "10", 20, 10)
    for flag, text, opset, ir in cases:
        code, _, _ = call("convert", "m.onnx", "o.onnx", flag, text)
        written = onnx.load("o.onnx")
        assert (code, written.opset_import[0].version, written.ir_version) == (0, opset, ir)


def test_convert_writes_what_plain_onnxruntime_runs(call: Call) -> None:
    import onnxruntime

    save("m.onnx", {"x": TensorType(DType.int16, [3])}, lambda x: {"y": x // (x + 1)})
    status, out, err = call("convert", "m.onnx", "plain.onnx")
    assert (status, out, err) == (0, "plain.onnx: 1 inputs, 1 outputs, for cpu\n", "")
    session = onnxruntime.InferenceSession("plain.onnx", providers=["CPUExecutionProvider"])
    x = np.array([7, -9, -1], np.int16)
    (y,) = session.run(None, {"x": x})
    assert y.tolist() == [0, 1, 0]


def test_convert_writes_inputs_and_outputs_of_a_dtype(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.bfloat16, [3])}, lambda x: {"y": x + 1})
    assert call("convert", "m.onnx", "o.onnx", "--io-dtype", "float32")[0] == 0
    assert str(gc.Graph.load("o.onnx").inputs[0].type) == "float32[3]"
    assert "int8 is not a dtype" in call("convert", "m.onnx", "o.onnx", "--io-dtype", "int8")[2]


def test_convert_and_quantize_print_json(call: Call) -> None:
    dense()
    data = json.loads(call("convert", "m.onnx", "o.onnx", "--json")[1])
    assert data == {
        "source": "m.onnx", "path": "o.onnx", "bytes": Path("o.onnx").stat().st_size, "target": "cpu",
        "inputs": ["x"], "outputs": ["y"],
    }  # fmt: skip
    data = json.loads(call("quantize", "m.onnx", "o.onnx", "--scheme", "int4", "--json")[1])
    assert (data["quantized"], data["scheme"], data["rows"][0]["weight"]) == (1, "int4", "head")
    assert data["after"] < data["before"]


def test_convert_keeps_operators_when_the_target_is_onnx(call: Call) -> None:
    save("m.onnx", {"x": TensorType(DType.bfloat16, [3])}, lambda x: {"y": x + x})
    assert call("convert", "m.onnx", "o.onnx", "--target", "onnx")[0] == 0
    assert [n.op_type for n in onnx.load("o.onnx").graph.node] == ["Add"]


def test_convert_puts_weights_beside_the_model_when_told(call: Call) -> None:
    weight = helper.make_tensor("w", FLOAT, [2, 2000], np.ones(4000))
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], None, [value("y", FLOAT, [2000])], [weight])
    Path("m.onnx").write_bytes(proto.SerializeToString())
    assert call("convert", "m.onnx", "o.onnx", "--external-data")[0] == 0
    assert Path("o.onnx.data").stat().st_size == 16_000
    assert Path("o.onnx").stat().st_size < 2000
    assert call("run", "o.onnx", "--random")[0] == 0


def test_convert_fixes_mixed_dtypes_when_casts_are_implicit(call: Call) -> None:
    inputs = [value("x"), value("i", TensorProto.INT32)]
    Path("m.onnx").write_bytes(model([helper.make_node("Add", ["x", "i"], ["y"])], inputs).SerializeToString())
    status, _, err = call("convert", "m.onnx", "o.onnx")
    assert status == 1
    assert "mixes" in err
    status, _, err = call("convert", "m.onnx", "o.onnx", "--implicit-casts")
    assert (status, err) == (0, "")
    assert gc.Graph.load("o.onnx").outputs[0].dtype is DType.float32


def test_convert_prints_warnings_as_lines_when_a_cast_loses(call: Call) -> None:
    inputs = [value("x", TensorProto.INT64), value("i", TensorProto.UINT64)]
    proto = model([helper.make_node("Add", ["x", "i"], ["y"])], inputs, [value("y", TensorProto.FLOAT16)])
    Path("m.onnx").write_bytes(proto.SerializeToString())
    status, _, err = call("convert", "m.onnx", "o.onnx", "--implicit-casts")
    assert status == 0
    assert err.startswith("LossyCastWarning: ")


# quantize


def dense(k: int = 64) -> None:
    w = np.random.default_rng(0).standard_normal((k, 32)).astype(np.float32)
    save("m.onnx", {"x": TensorType(DType.float32, ["batch", k])}, lambda x: {"y": x @ x.graph.weight("head", w)})


def test_quantize_writes_a_small_model_and_prints_the_report(call: Call) -> None:
    dense()
    status, out, err = call("quantize", "m.onnx", "small.onnx", "--scheme", "int8_dynamic", "--report", "rows.json")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["layer", "operator", "weight"]
    assert lines[2].startswith("1 of 1 layers quantised to int8_dynamic, their weights from 8.2 kB to 2.2 kB")
    assert lines[3] == f"small.onnx: {Path('small.onnx').stat().st_size} bytes, for cpu"
    assert [row["weight"] for row in json.loads(Path("rows.json").read_text())] == ["head"]
    assert {node.op_type for node in onnx.load("small.onnx").graph.node} >= {"MatMulIntegerToFloat"}
    assert call("run", "small.onnx", "--random")[0] == 0
    status, _, err = call("quantize", "small.onnx", "smaller.onnx", "--scheme", "int4")
    assert status == 1
    assert "is already quantised: it has int8_dynamic" in err


def test_quantize_writes_standard_onnx_when_told(call: Call) -> None:
    dense()
    assert call("quantize", "m.onnx", "o.onnx", "--scheme", "int4", "--target", "onnx", "--block-size", "16")[0] == 0
    assert {node.domain for node in onnx.load("o.onnx").graph.node} == {""}


def test_quantize_fails_when_strict_and_writes_nothing(call: Call) -> None:
    dense(40)
    status, out, err = call("quantize", "m.onnx", "o.onnx", "--scheme", "int4", "--strict")
    assert (status, out) == (1, "")
    assert "blocks of 32 do not divide 40" in err
    assert not Path("o.onnx").exists()
    status, out, _ = call("quantize", "m.onnx", "o.onnx", "--scheme", "int4")
    assert status == 0
    assert "- blocks of 32 do not divide 40" in out


def decoder() -> None:
    config = llama.Config(vocabulary=64, width=64, inner=64, layers=1, heads=2, kv_heads=1, size=32)
    llama.build(config, cache=16).export("m.onnx")


@pytest.mark.parametrize("argv", [[], ["--embeddings"], ["--no-embeddings"], ["--many-rows", "same"]], ids=" ".join)
def test_quantize_of_a_decoder_chooses_as_the_library_does(call: Call, argv: list[str]) -> None:
    decoder()
    status, _, err = call("quantize", "m.onnx", "o.onnx", "--scheme", "int4", "--report", "rows.json", *argv)
    assert (status, err) == (0, "")
    options: dict[tuple[str, ...], dict[str, Any]] = {
        (): {},
        ("--embeddings",): {"embeddings": True},
        ("--no-embeddings",): {"embeddings": False},
        ("--many-rows", "same"): {"many_rows": "same"},
    }
    result, report = gc.quantize(Graph.load("m.onnx"), "int4", **options[tuple(argv)])
    assert json.loads(Path("rows.json").read_text()) == report.as_dicts()
    assert Graph.load("o.onnx").metadata.get("graphcore.many_rows") == result.metadata.get("graphcore.many_rows")
    assert bool(report.rows[0].scheme) == ("--no-embeddings" not in argv)
    assert ("graphcore.many_rows" in result.metadata) == ("same" not in argv)


def test_quantize_says_what_has_no_many_rows(call: Call) -> None:
    dense()
    status, _, err = call("quantize", "m.onnx", "o.onnx", "--many-rows", "int8")
    assert status == 1
    assert "scheme 'int8_dynamic' does not take many_rows='int8'" in err


# As a process


@pytest.mark.parametrize("start", [["-m", "graphcore"], ["-c", "from graphcore.cli import main; exit(main())"]])
def test_process_prints_and_ends_as_the_function_does(tmp_path: Path, start: list[str], call: Call) -> None:
    doubled()
    command = [sys.executable, *start]
    environment = {"PYTHONPATH": str(ROOT)}
    good = subprocess.run(
        [*command, "run", "m.onnx", "--random"], capture_output=True, text=True, env=environment, check=False
    )
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("y  float32[1, 2]")
    bad = subprocess.run([*command, "run", "no.onnx"], capture_output=True, text=True, env=environment, check=False)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "ModelError: load: no.onnx is not a file\n  help: give the path of an .onnx file\n"


def test_commands_of_the_documents_are_understood() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("graphcore ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if " > " not in line and "--help" not in line]
    assert {"run", "check", "convert", "inspect", "view", "bench", "diff", "doctor"} <= {words[0] for words in commands}
    for words in commands:
        parser().parse_args(words)


def test_command_is_installed_under_its_name() -> None:
    assert '[project.scripts]\ngraphcore = "graphcore.__main__:main"' in (ROOT / "pyproject.toml").read_text()


def test_help_is_printed_without_a_command(call: Call) -> None:
    code, out, _ = call()
    assert code == 0
    assert out.startswith("usage: graphcore")


def test_similar_command_is_suggested(call: Call) -> None:
    code, _, err = call("inspct")
    assert code == 2
    assert "unknown command 'inspct'; did you mean inspect?" in err
