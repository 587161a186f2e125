"""The examples run and print their results."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "promotion",
        "mlp",
        "plain_onnxruntime",
        "fix_model",
        "own_system",
        "function",
        "loops",
        "custom_op",
        "buffers",
        "quantize",
        "mixed_precision",
        "running",
        "generate",
        "serve",
        "decompile",
        "detector",
        "browser",  # in tests/view/browser/test_example.py
        "scale",  # in tests/scale/test_map_batches.py
    }


def test_promotion_prints_graph_with_cast_and_runs_in_bfloat16(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("promotion", capsys)
    graph = [line.partition("#")[0].strip() for line in lines[:8]]
    assert graph == [
        "graph scale (max) {",
        "input   tokens: int8[batch, 4]",
        "input   gain: bfloat16[4]",
        "cast_2: bfloat16[batch, 4] = Cast(tokens, to=bfloat16)",
        "mul_3: bfloat16[batch, 4] = Mul(cast_2, gain)",
        "add_5: bfloat16[batch, 4] = Add(mul_3, bfloat16(1.0))",
        "prob: bfloat16[batch, 4] = Softmax(add_5, axis=1)",
        "output  prob: bfloat16[batch, 4]",
    ]
    assert lines[3].endswith("# promotion.py:13")
    assert lines[9:] == [
        "int8 and bfloat16 meet in bfloat16",
        "int8 and uint8 meet in int16",
        "int64 and uint64 meet in float16",
        "float16 and bfloat16 meet in bfloat16",
        "bfloat16 [[0.101562 0.455078 0.275391 0.166992]]",
    ]


def test_mlp_names_its_layers_and_its_file_answers_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("mlp", capsys)
    assert [line.split() for line in lines[:5]] == [
        ["hidden/gemm_3", "float32[batch,", "32]"],
        ["relu_4", "float32[batch,", "32]"],
        ["out/gemm_7", "float32[batch,", "1]"],
        ["squeeze_9", "float32[batch]"],
        ["inside", "bool[batch]"],
    ]
    assert re.fullmatch(r"right for 9[5-9]% of 2000 points", lines[5])
    assert lines[6:] == ["the file answers the same: True"]
    assert Path("circle.onnx").exists()


LEVEL = [
    "samples tensor(int16) ['channel', 'time']",
    "energy int16 [169, -15487]",
    "half int16 [[1, -2, 6], [100, 50, -4]]",
    "rounded float32 [[1.0, -1.3359375, 4.0], [66.5, 33.25, -2.328125]]",
]


def test_plain_onnxruntime_prints_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("plain_onnxruntime", capsys) == LEVEL


def test_plain_onnxruntime_runs_its_file_where_graphcore_cannot_be_imported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed("plain_onnxruntime", capsys)
    code = "import runpy, sys; sys.modules['graphcore'] = None; runpy.run_path(sys.argv[1])['run']('level.onnx')"
    path = str(EXAMPLES / "plain_onnxruntime.py")
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == LEVEL


def test_fix_model_runs_what_onnxruntime_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("fix_model", capsys)
    assert lines[0].startswith("onnxruntime: [ONNXRuntimeError]")
    assert lines[1:] == [
        "graphcore: load: Add 'y' mixes bfloat16 and int8",
        "Swish bfloat16[batch, 2]",
        "Mul bfloat16[batch, 2]",
        "Cast bfloat16[2]",
        "Add bfloat16[batch, 2]",
        "bfloat16 [[12.1875, -2.96875]]",
    ]
    assert Path("fixed.onnx").exists()


def test_decompile_edits_a_model_as_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("decompile", capsys) == [
        "def layer(x: Symbol, i: int) -> Symbol:",
        '    add = x + ops.relu(x @ w(f"layer.{i}.weight"))  # float32[batch, 16]',
        "    x_2 = layer(x_2, i)",
        "18 nodes, the mean is 2.416",
        "12 nodes, the mean is 1.127",
    ]
    assert Path("network.safetensors").exists()


def test_own_system_casts_to_the_dtype_of_its_lattice(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.partition("  #")[0].strip() for line in printed("own_system", capsys)]
    assert lines == [
        "int8 and uint8 meet in int16: int8 < int16 > uint8",
        "uint8 and float32 meet in float32: uint8 < int16 < float32",
        "int32 and float32 meet in float64: int32 < float64 > float32",
        "graph level (exact) {",
        "input   count: int32[n]",
        "input   gain: float32[n]",
        "cast_2: float64[n] = Cast(count, to=float64)",
        "cast_3: float64[n] = Cast(gain, to=float64)",
        "level: float64[n] = Mul(cast_2, cast_3)",
        "output  level: float64[n]",
        "}",
        "float64 [33554434.]",
        "add: int32 and int64 have no common dtype in exact: int64 only goes with itself",
    ]


def test_function_writes_a_block_once_and_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("function", capsys) == [
        "6 calls, the last: y: float32[batch, length, 16] = block(block_4/block_15, 5.qkv, 5.gate)",
        "kept: 6 nodes and a function of 28",
        "inlined: 138 nodes",
        "(2, 5, 16) the same from the file: True",
    ]


def test_buffers_prints_what_two_streams_and_the_file_give(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("buffers", capsys)
    assert [" ".join(line.partition("#")[0].split()) for line in lines if " store " in line or " buffer " in line] == [
        "buffer window: float32[3]",
        "buffer count: int64[]",
        "store window = scatter_nd_10",
        "store count = add_12",
    ]
    assert [line.split() for line in lines[-6:-2]] == [
        ["3.00", "67.67"],
        ["4.50", "36.33"],
        ["6.00", "6.00"],
        ["5.00", "5.00"],
    ]
    assert lines[-2:] == ["held [0. 6. 9.] 4", "plain onnxruntime 5.00"]
    assert Path("smoother.onnx").exists()


def test_custom_op_prints_what_python_and_bodies_give(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime_extensions", reason="there are no wheels of it for this Python: pyproject.toml")
    assert printed("custom_op", capsys) == [
        "medians [2.9375, 11.0, 19.0] product bfloat16 (3, 3)",
        "nodes ['acme::Gate', 'com.microsoft::FusedMatMul', 'acme::Median']",
        "functions ['acme::Gate', 'com.microsoft::FusedMatMul']",
        "read again bfloat16[n]",
        "acme::Gate: 4 features meet 3 rows",
    ]


def test_loops_prints_bodies_and_what_they_compute(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("loops", capsys)
    assert sum(line.strip().startswith("body: {") for line in lines) == 3
    assert any("then_branch: {" in line for line in lines)
    assert lines[-1] == "8 turns, [[1.0, 5.0], [3.0, 5.0], [3.0, 9.0]], 9 rows up to [9.0, 13.0]"


def test_quantize_prints_sizes_distances_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("quantize", capsys)
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines[:3]}
    assert sizes["int8_dynamic"] < 0.27 * sizes["float32"]
    assert sizes["int4"] < 0.18 * sizes["float32"]
    assert [line.split()[:2] for line in lines[4:7]] == [["wide", "Gemm"], ["deep", "Gemm"], ["head", "Gemm"]]
    assert lines[6].endswith("- excluded by 'head'")
    assert lines[7].startswith("2 of 3 layers quantised to int4, their weights from 2.1 MB to 354.3 kB")


def test_running_gives_the_same_in_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("running", capsys)
    assert [line.split()[:2] for line in lines[:2]] == [["first", "start"], ["second", "start"]]
    assert lines[2:] == ["bound True"] * 3 + ["later True", "pieces True", "requests True"]


def test_generate_streams_draws_and_gives_each_prompt_what_it_gets_alone(capsys: pytest.CaptureFixture[str]) -> None:
    likeliest, drawn, together, small = printed("generate", capsys)
    for line, label in ((likeliest, "likeliest"), (drawn, "drawn"), (small, "4 bits")):
        tokens = [int(token) for token in line.removeprefix(label).split()]
        assert len(tokens) == 8
        assert all(0 <= token < 1000 for token in tokens)
    assert together.endswith("as alone: True")


def test_serve_streams_cancels_refuses_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    alone, streamed, cancelled, refused, looked_up, counts = printed("serve", capsys)
    assert alone.split() == ["as", "alone", "True"]
    assert len(re.findall(r"\d+", streamed)) == 2
    assert "a request was cancelled after" in cancelled
    assert "60 tokens and 100 new ones do not fit into a cache of 128" in refused
    assert "40 tokens" in looked_up
    result, calls, shared = map(int, re.findall(r"\d+", counts))
    assert calls < result
    assert shared >= 5 * 60


def test_detector_finds_the_squares_and_gives_what_numpy_gives(capsys: pytest.CaptureFixture[str]) -> None:
    first, *lines = printed("detector", capsys)
    assert re.fullmatch(r"squares: 11 nodes, whole (\d+), folded (\d+)", first)
    whole, folded = map(int, re.findall(r"\d+", first)[1:])
    assert folded == whole - 1
    assert lines[:5] == [
        "  red 0.84 at [128, 64, 192, 128]",
        "  green 0.71 at [448, 192, 512, 256]",
        "  blue 0.52 at [64, 320, 128, 384]",
        "  called as composed: True True",
        "  3 boxes as by NumPy: True True",
    ]
    # The same for nudenet's, where it is installed.
    assert [line for line in lines[5:] if "True" in line] in (
        [], ["  called as composed: True True", "  10 boxes as by NumPy: True True"]
    )  # fmt: skip
    assert Path("detector.onnx").exists()


def test_mixed_precision_names_the_layer_that_overflows(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("mixed_precision", capsys)
    narrow, wider = ([line for line in lines if line.startswith(name)] for name in ("first", "norm"))
    assert [line.split()[3] for line in narrow] == ["float16", "float16"]
    assert all("overflow: Mul gives norm/mul_" in line for line in wider)
    assert ["float32" in wider[0], "bfloat16" in wider[1]] == [True, True]
    assert all("within" in line and "NOT" not in line for line in lines if "layers narrow" in line)
    assert lines[-1].startswith("the same class for ")
    assert Path("curve.svg").read_text().startswith("<svg")
