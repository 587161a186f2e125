"""Models whose inputs have no declared rank, fed with arrays of every rank, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from graphcore import Graph, Shape, TensorType
from tests.support.microsoft_cases import CASES
from tests.support.operators.cases import every

ROOT = Path(__file__).parents[2]

_FEW = """
import sys
import numpy as np, onnx, onnxruntime
from onnx import helper
import graphcore as gc

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
OPERANDS = {"DFT": ["x"], "Conv": ["x", "w"], "GridSample": ["x", "grid"], "STFT": ["x", "step", "", "length"]}
sizes = {"step": np.array(1), "length": np.array(2)}
for op_type, operands in OPERANDS.items():
    names = [name for name in operands if name]
    inputs = [helper.make_tensor_value_info(n, INT64 if n in sizes else FLOAT, None) for n in names]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([helper.make_node(op_type, operands, ["y"])], "few", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    gc.Graph.load(model).export(sys.argv[1])
    runs = [gc.InferenceSession(optimize=how).load(model) for how in ("exact", "off")]
    plain = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    runs.append(lambda feed: plain.run(None, feed)[0])
    for shape in ((), (1,), (1, 2, 2, 2) if op_type in ("Conv", "GridSample") else (1, 8, 1)):
        feed = {name: sizes.get(name, np.ones(shape, np.float32)) for name in names}
        for run in runs:
            try:
                print("ran" if np.asarray(run(feed)).size else "empty")
            except Exception as error:
                print(str(error).partition(chr(10))[0])
"""


@pytest.mark.releases
def test_operands_of_fewer_axes_are_an_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FEW, str(tmp_path / "few.onnx")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.splitlines()
    assert len(parts) == 36
    for first, op_type in enumerate(("DFT", "Conv", "GridSample", "STFT")):
        *few, one, two, three = parts[9 * first : 9 * first + 9]
        assert [one, two, three] == ["ran"] * 3
        for place, text in enumerate(few):
            assert "Unsqueeze" in text if place % 3 == 2 else f"onnxruntime failed at y, a {op_type}: " in text


_EVERY = """
import sys, warnings
import numpy as np
from onnx import helper
import graphcore as gc
from graphcore import DType
from tests.support.microsoft_cases import CASES
from tests.support.operators.cases import Place

warnings.simplefilter("ignore")
session = gc.InferenceSession(intra_op_num_threads=1)
runs = 0


def models(domain, name):
    if domain == "com.microsoft":
        case = CASES[name]
        feeds = {f"x{i}": x for i, x in enumerate(case.operands) if x is not None}
        names = ["" if x is None else f"x{i}" for i, x in enumerate(case.operands)]
        node = helper.make_node(case.name, names, ["y"], domain=domain, **case.attributes)
        kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in feeds.items()}
        inputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()]
        graph = helper.make_graph([node], "few", inputs, [helper.make_empty_tensor_value_info("y")])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
        yield helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds
        return
    for dtype in (DType.float32, DType.int64, DType.string):
        place = Place(domain, name, dtype)
        for case in place.cases[:2]:
            question = place.question(case)
            for value in (*question.model.graph.input, *question.model.graph.output):
                value.type.tensor_type.ClearField("shape")
            yield question.model, {n: a.astype(d.storage.numpy) for n, (a, d) in question.feeds.items()}


for text in sys.argv[1:]:
    for model, feeds in models(*text.split(":")):
        try:
            loaded = session.load(model)
        except gc.errors.GraphcoreError:
            continue
        pairs = [[a, b] for a in feeds for b in feeds if a < b]
        for names in ([[*feeds]], pairs, ([n] for n in feeds)):
            for fed in names:
                for shape in ((), (1,), (0,), (1, 1), (1,) * 6):
                    print(text, shape, fed, flush=True)
                    made = {n: np.resize(feeds[n], shape).astype(feeds[n].dtype) for n in fed}
                    try:
                        loaded({**feeds, **made})
                    except gc.errors.GraphcoreError:
                        pass
                    runs += 1
print(runs)
"""
"""Feeds models of one node of unknown rank, and says before each run what it feeds."""

OPERATORS = [f"{domain}:{name}" for domain, name in every()] + [f"com.microsoft:{name}" for name in CASES]
BATCHES = [OPERATORS[start::16] for start in range(16)]


@pytest.mark.full
@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_operands_of_any_rank_end_no_process(batch: int) -> None:
    """Of the newest release: older ones end where Concat joins matrices with a vector without elements."""
    command = [sys.executable, "-c", _EVERY, *BATCHES[batch]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last} {done.stderr[-600:]}"
    assert int(last[0]) > 100


@pytest.mark.releases
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "string"])
@pytest.mark.parametrize("is_list", [False, True])
def test_joined_operands_of_other_ranks_are_an_error_and_others_are_joined(is_list: bool, dtype: str) -> None:
    unknown = TensorType(dtype, Shape.unknown())
    graph = Graph("joined", {"x": unknown, "y": unknown})
    value = graph.op("SequenceConstruct", list(graph.inputs)) if is_list else list(graph.inputs)
    result = graph.op("ConcatFromSequence" if is_list else "Concat", value, {"axis": 0}, [unknown])
    graph.output(*result)
    full = np.full((2, 3), "a", object) if dtype == "string" else np.ones((2, 3), dtype)
    for runtime in (None, "1.31.1"):  # which ends the process without
        file = graph.to_onnx(runtime=runtime).SerializeToString()
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        for some in (full, full[:0], full[None, :1]):
            np.testing.assert_array_equal(session.run(None, {"x": some, "y": some})[0], np.concatenate([some, some]))
        for other in (full[:0, 0], full[0], full[None, :0], full[0, 0:1].reshape(())):
            with pytest.raises(Exception, match=r"Concat|Reshape"):
                session.run(None, {"x": full, "y": np.asarray(other)})
