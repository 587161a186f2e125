"""Operators of com.microsoft that `ops.microsoft` makes from onnxruntime's schemas: built, written, read and run."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.onnx.proto.opened import Opened
from graphcore.onnx.read.reader import read as read_opened
from graphcore.onnx.schemas.catalogue import entry
from graphcore.onnx.schemas.schemas import MICROSOFT, Parameter, element, recorded
from graphcore.ops import microsoft
from graphcore.runtime.lowering.targets.releases import ReleaseRange
from tests.support.contrib_cases import CASES, heads, softmax
from tests.support.graphs import Array
from tools.contrib_schemas import registry, row

pytestmark = pytest.mark.releases


def require(name: str) -> None:
    ranges = map(ReleaseRange.parse, recorded()[name]["releases"].split())
    if not any(item.includes(onnxruntime.__version__) for item in ranges):
        pytest.skip("the installed release does not have it")


def build(name: str) -> tuple[Graph, list[Array]]:
    case = CASES[name]
    arrays = [a for a in case.operands if a is not None]
    types = [TensorType(DType.string if a.dtype == object else DType.of(a.dtype), a.shape) for a in arrays]
    graph = Graph("g", types)
    symbols = iter(graph.inputs)
    operands = [None if a is None else next(symbols) for a in case.operands]
    requested = {"outputs": case.outputs} if entry(name, MICROSOFT).takes_outputs else {}
    results = getattr(microsoft, name)(*operands, **case.attributes, **requested)
    graph.output(*(results if isinstance(results, tuple) else (results,)))
    return graph, arrays


def bare(path: Path, arrays: list[Array]) -> list[Any]:
    """Return the results of onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True))))


@pytest.mark.numbers
@pytest.mark.parametrize("name", CASES)
def test_operator_is_built_written_read_and_run(name: str, tmp_path: Path) -> None:
    require(name)
    case = CASES[name]
    graph, arrays = build(name)
    (node,) = graph.nodes
    assert (node.domain, node.op_type) == (MICROSOFT, name)
    path = tmp_path / "g.onnx"
    graph.export(path)
    assert [(n.domain, n.op_type) for n in onnx.load(path).graph.node] == [(MICROSOFT, name)]
    alone = bare(path, arrays)
    read = Graph.load(path)
    assert [s.type for s in read.outputs] == [s.type for s in graph.outputs]
    for source in (graph, path):
        results = gc.InferenceSession().load(source).execute(*arrays)
        for result, wanted in zip(results, alone, strict=True):
            assert result.dtype == wanted.dtype
            assert result.tolist() == wanted.tolist() or result.tobytes() == wanted.tobytes()
    for symbol, result in zip(graph.outputs, alone, strict=True):
        shape = symbol.type.shape
        assert shape.is_ranked
        assert len(shape) == result.ndim
        assert all(not d.is_static or d == n for d, n in zip(shape, result.shape, strict=True))
    if case.formula is None:
        return
    expected = case.formula(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(expected) == len(alone)
    for result, wanted in zip(alone, expected, strict=True):
        assert result.shape == wanted.shape
        if not case.near:
            np.testing.assert_array_equal(result, wanted)
        elif result.dtype.kind == "f":
            size = max(float(np.abs(wanted).max()), 1e-3)
            np.testing.assert_allclose(result / size, wanted / size, rtol=0, atol=case.near)
        else:
            assert np.abs(result.astype(int) - wanted.astype(int)).max() <= case.near


# Calls that are refused, generated from the data.

EVERY = sorted(recorded())
DTYPES = [DType.float64, DType.float32, DType.int64, DType.int32, DType.int16, DType.uint8, DType.bool, DType.string]
WRONG = {"int": "a", "ints": 3, "float": "a", "floats": "a", "string": 3, "strings": 3, "body": 3}
RIGHT = {"int": 1, "ints": [1, 1], "float": 1.0, "floats": [1.0], "string": "a", "strings": ["a"]}


def accepted(parameter: Parameter) -> TensorType:
    return next(TensorType(d, ["?"]) for d in DTYPES if element(TensorType(d, ["?"])) in parameter.allowed)


def call(name: str, changes: dict[str, Any], wrong: dict[int, DType] | None = None) -> Any:
    """Call an operator on required operands and attributes of the right kinds, but for some changes."""
    spec = entry(name, MICROSOFT)
    types = [accepted(p) for p in spec.op.inputs]
    for position, dtype in (wrong or {}).items():
        types[position] = TensorType(dtype, ["?"])
    graph = Graph("g", types)
    used = {i for i, p in enumerate(spec.op.inputs) if not p.is_optional} | {*(wrong or {})}
    operands = {p.name: graph[i] for i, p in enumerate(spec.op.inputs) if i in used and not p.is_variadic}
    rest = [graph[i] for i, p in enumerate(spec.op.inputs) if p.is_variadic]
    body = Graph("body", [types[0]])
    body.output(body[0])
    attributes = {a.name: RIGHT.get(a.word, body) for a in spec.attributes if a.is_required}
    named = {**operands, **attributes, **changes}
    named = {key: value for key, value in named.items() if value is not ABSENT}
    more = {spec.variadic.name: rest} if spec.variadic is not None else {}
    return getattr(microsoft, name)(**named, **more)


ABSENT = object()


@pytest.mark.parametrize("name", EVERY)
def test_wrong_number_of_operands_is_refused(name: str) -> None:
    spec = entry(name, MICROSOFT)
    start = re.escape(f"{MICROSOFT}::{name}: ")
    graph = Graph("g", [accepted(spec.op.inputs[0])] * 30)
    if spec.variadic is None:
        with pytest.raises(GraphError, match=f"{start}at most {len(spec.op.inputs)} operands are accepted, got 30"):
            getattr(microsoft, name)(*graph.inputs)
    required = next(p.name for p in spec.op.inputs if not p.is_optional)
    with pytest.raises(GraphError, match=f"(?s){start}the operand '{required}' is missing.*help: the signature is"):
        call(name, {required: ABSENT})


@pytest.mark.parametrize("name", EVERY)
def test_dtype_that_an_operand_does_not_take_is_refused_at_the_line(name: str) -> None:
    spec = entry(name, MICROSOFT)
    for position, parameter in enumerate(spec.op.inputs):
        wrong = [d for d in DTYPES if element(TensorType(d, [])) not in parameter.allowed]
        shared = [p for p in spec.op.inputs if p.type == parameter.type]
        if not wrong or parameter.is_variadic or len(shared) > 1:  # operands of one type variable are promoted
            continue
        with pytest.raises(DTypeError) as caught:
            call(name, {}, {position: wrong[0]})
        text = str(caught.value)
        assert text.startswith(f"{MICROSOFT}::{name}: {parameter.name} is {wrong[0]}, which it does not take")
        assert re.search(rf"\n +{parameter.name} .*{wrong[0]}\[", text)
        assert "help: it takes " in text
        assert "test_contrib_schemas.py:" in text


@pytest.mark.parametrize("name", EVERY)
def test_attributes_have_the_kinds_and_defaults_of_the_registry(name: str) -> None:
    spec = entry(name, MICROSOFT)
    start = re.escape(f"{MICROSOFT}::{name}: ")
    parameters = inspect.signature(getattr(microsoft, name)).parameters
    for attribute in spec.attributes:
        assert (parameters[attribute.name].default is inspect.Parameter.empty) is attribute.is_required
        with pytest.raises(GraphError, match=f"{start}attribute '{attribute.name}' must be "):
            call(name, {attribute.name: WRONG[attribute.word]})
        if attribute.is_required:
            with pytest.raises(GraphError, match=f"{start}the attribute '{attribute.name}' is missing"):
                call(name, {attribute.name: ABSENT})
    with pytest.raises(GraphError, match=f"{start}there is no operand or attribute 'unheard'"):
        call(name, {"unheard": 1})


def test_shape_that_onnxruntime_refuses_is_refused_at_the_line() -> None:
    (x,) = Graph("g", {"x": TensorType("float32", [3])}).inputs
    with pytest.raises(
        ShapeError, match=r"(?s)::CropAndResize: first input tensor has wrong .*X +x +float32\[3\].*help: "
    ):
        microsoft.CropAndResize(x, x, [0], [1, 1])


def test_data_is_that_of_the_registry() -> None:
    version, rows = registry(sys.executable)
    if version != "1.32.0":  # the newest release that the data was written for
        return
    assert sorted({*recorded(), *microsoft.__all__} & {*rows}) == sorted(rows)
    for name, own in recorded().items():
        assert own == row(rows[name], own["releases"]), "run python -m tools.contrib_schemas"


def test_export_for_a_release_without_the_kernel_is_refused(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", [3])})
    graph.output(microsoft.ScaledSiLU(graph[0]))
    with pytest.raises(GraphError, match=r"1\.30\.0 has no CPU kernel of com\.microsoft::ScaledSiLU\n.*1\.31\.1-"):
        graph.export(tmp_path / "g.onnx", runtime="1.30")
    assert not (tmp_path / "g.onnx").exists()
    graph.export(tmp_path / "g.onnx", runtime="1.32")
    text = Graph("g", {"x": TensorType("string", [3])})
    text.output(microsoft.Tokenizer(text[0], mark=0, mincharnum=1, pad_value="#", separators=[" "]))
    text.export(tmp_path / "g.onnx", runtime="1.20")  # older than the first release that was asked


def test_unknown_operator_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"com\.microsoft has no operator 'Tokeniser'; did you mean Tokenizer"):
        microsoft.Tokeniser  # type: ignore[attr-defined]  # noqa: B018
    assert {*EVERY, *microsoft.__all__} <= {*dir(microsoft)}
    assert "Releases with a CPU kernel: 1.24.4-" in str(microsoft.Tokenizer.__doc__)


def test_operators_are_typed_without_a_runtime() -> None:
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, "n"]) for name in "xy"]
    node = helper.make_node("ScaledSiLU", ["x"], ["z"], domain=MICROSOFT)
    graph = helper.make_graph([node], "g", inputs[:1], [onnx.ValueInfoProto(name="z")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    read = read_opened(Opened(model, None), runtime=lambda: None)
    assert str(read.outputs[0].type) == "float32[...]"


# Operators whose calls need more


def test_weight_that_this_processor_may_not_have_a_kernel_for_is_typed_and_written(tmp_path: Path) -> None:
    graph = Graph("g", {"a": TensorType("float32", ["n", 32])})
    graph.output(microsoft.MatMulFpQ4(graph["a"], np.zeros(84, np.uint8), np.array([32, 4])))
    assert str(graph.outputs[0].type) == "float32[n, ?]"
    graph.export(tmp_path / "g.onnx")
    assert Graph.load(tmp_path / "g.onnx").outputs[0].type == graph.outputs[0].type


@pytest.mark.numbers
@pytest.mark.parametrize("blk_quant_type", [0, 1])
def test_weight_in_blocks_of_4_bits_is_multiplied(blk_quant_type: int) -> None:
    rng = np.random.default_rng(3)
    numbers, scales = rng.integers(0, 16, (5, 2, 32)), rng.uniform(0.5, 2, (5, 2)).astype(np.float32)
    zeros = rng.integers(0, 16, (5, 2)) if blk_quant_type else np.full((5, 2), 8)
    content = b""
    for column, block in np.ndindex(5, 2):  # scale, zero point, and the halves of a block in the halves of bytes
        low, high = numbers[column, block].reshape(2, 16)
        content += scales[column, block].tobytes() + bytes([zeros[column, block]] * blk_quant_type)
        content += (low | high << 4).astype(np.uint8).tobytes()
    graph = Graph("g", {"a": TensorType("float32", ["n", 64])})
    weight, shape = np.frombuffer(content, np.uint8).copy(), np.array([64, 5])
    graph.output(microsoft.MatMulFpQ4(graph["a"], weight, shape, blk_quant_type=blk_quant_type))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    try:
        (result,) = gc.InferenceSession().load(graph)(x)
    except gc.errors.GraphcoreError as error:
        if "not yet supported on this hardware" not in str(error):
            raise
        pytest.skip("the kernel does not support this processor")
    matrix = ((numbers - zeros[..., None]) * scales[..., None].astype(np.float64)).reshape(5, 64)
    np.testing.assert_allclose(result, x @ matrix.T, rtol=1e-5, atol=1e-4)


@pytest.mark.numbers
def test_sparse_attention_updates_caches_in_place() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 2, size)).astype(np.float32) for size in (64, 32, 32))
    cache = gc.Buffer(DType.float32, [1, 2, 32, 16], in_place=True)
    types = {n: TensorType("float32", a.shape) for n, a in {"q": q, "k": k, "v": v}.items()}
    graph = Graph("g", {**types, "keys": cache, "values": cache})
    past = [ops.buffer_load(graph.buffers[name]) for name in ("keys", "values")]
    blocks = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)
    sizes = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    attention: Any = microsoft.SparseAttention
    y, keys, values = attention(*graph.inputs[:3], *past, *blocks, np.int32(2), [2], **sizes)
    graph["keys"], graph["values"] = keys, values
    graph.output(y=y)
    model = gc.InferenceSession().load(graph)
    result = model(q, k, v)
    scores = heads(q, 4) @ np.repeat(heads(k, 2), 2, 1).swapaxes(-1, -2) / 4
    shares = softmax(np.where(np.tri(2, dtype=bool), scores.astype(np.float64), -np.inf))
    wanted = (shares @ np.repeat(heads(v, 2), 2, 1)).swapaxes(1, 2).reshape(1, 2, 64)
    np.testing.assert_allclose(result[0], wanted, atol=2e-6)
    np.testing.assert_array_equal(model.buffers["keys"][:, :, :2], heads(k, 2))
