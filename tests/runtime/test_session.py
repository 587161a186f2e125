"""Graphs and files loaded and run: providers, options, weights by reference, errors."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import FeedError, GraphError, ModelError, RunError
from graphcore.runtime.lowering.targets.releases import ReleaseRange
from graphcore.runtime.ort import sessions
from graphcore.runtime.ort.options import require_started
from graphcore.types.tensor_types import SequenceType

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]


def linear(weight: Array, name: str = "w") -> Graph:
    graph = Graph("linear", {"x": TensorType(DType.float32, ["n", weight.shape[0]])})
    graph.output(y=graph["x"] @ graph.weight(name, weight))
    return graph


def weight(seed: int = 0, shape: tuple[int, int] = (32, 64)) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = np.ones((2, 32), np.float32)


def doubled(
    shape: list[str | int] | None, dtype: int = onnx.TensorProto.FLOAT, name: str = "x", metadata: str | None = None
) -> onnx.ModelProto:
    """A model of another tool: y = x + x."""
    graph = helper.make_graph(
        [helper.make_node("Add", [name, name], ["y"])],
        "doubled",
        [helper.make_tensor_value_info(name, dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    if metadata is not None:
        helper.set_model_props(model, {"graphcore.dtypes": metadata})
    return model


def test_model_says_what_it_takes_and_gives() -> None:
    model = gc.InferenceSession().load(linear(weight()))
    assert model.name == "linear"
    assert model.inputs == {"x": TensorType(DType.float32, ["n", 32])}
    assert model.outputs == {"y": TensorType(DType.float32, ["n", 64])}
    assert repr(model) == "<Model linear(x: float32[n, 32]) -> y: float32[n, 64]>"


def test_semantic_dtypes_are_reported_when_loaded_and_when_read_back(tmp_path: Path) -> None:
    graph = Graph("semantic", {"i": TensorType(DType.index, [2]), "t": TensorType(DType.tf32, [2])})
    graph.output(a=graph["i"] + 1, b=graph["t"] * 2)
    graph.export(tmp_path / "semantic.onnx")
    for model in (gc.InferenceSession().load(graph), gc.InferenceSession().load(tmp_path / "semantic.onnx")):
        assert [str(t) for t in model.inputs.values()] == ["index[2]", "tensor_float32[2]"]
        assert [str(t) for t in model.outputs.values()] == ["index[2]", "tensor_float32[2]"]


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "proto", "external"])
def test_finished_model_is_run_as_it_is(kind: str, tmp_path: Path) -> None:
    w = weight()
    graph = linear(w)
    path = tmp_path / "linear.onnx"
    graph.export(path, external_data=kind == "external")
    value: Any = {
        "path": path, "text": str(path), "external": path, "bytes": path.read_bytes(), "proto": graph.to_onnx(),
    }[kind]  # fmt: skip
    model = gc.InferenceSession().load(value)
    assert str(model.inputs["x"]) == "float32[n, 32]"
    assert np.allclose(model(X)[0], X @ w, atol=1e-5)


def test_weights_are_the_callers_memory_when_loaded() -> None:
    w = weight(shape=(512, 512))
    graph = Graph("rows", {"i": TensorType(DType.int64, ["n"])})
    graph.output(y=ops.gather(graph.weight("w", w), graph["i"]))
    model = gc.InferenceSession().load(graph)
    w[3] = 7
    assert (model(np.array([3]))[0] == 7).all()


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.int8, DType.uint64, DType.int4], ids=str)
def test_weights_of_any_dtype_are_right_when_the_session_reads_them_early(dtype: DType) -> None:
    w = (np.arange(4096) % 7).reshape(64, 64).astype(dtype.numpy)
    graph = Graph("early", {"x": TensorType(DType.float32, ["n", 64])})
    symbol = graph.weight("w", w)
    # Casts, transposes and sums of constants are folded while the session is made.
    graph.output(graph["x"] @ symbol.cast(DType.float32).T, ops.sum(symbol.cast(DType.int64)), symbol)
    x = np.eye(64, dtype=np.float32)
    product, total, same = gc.InferenceSession().load(graph)(x)
    assert np.array_equal(product, w.astype(np.float32).T)
    assert total == w.astype(np.int64).sum()
    assert same.tobytes() == w.tobytes()


@pytest.mark.numbers
def test_convolution_weights_are_right_when_the_session_reorders_them() -> None:
    w = np.random.default_rng(1).standard_normal((16, 8, 3, 3)).astype(np.float32)
    x = np.random.default_rng(2).standard_normal((1, 8, 5, 5)).astype(np.float32)
    graph = Graph("conv", {"x": TensorType(DType.float32, ["n", 8, 5, 5])})
    graph.output(ops.conv2d(graph["x"], graph.weight("w", w), input_layout="NCHW", filter_layout="FCRS"))
    (got,) = gc.InferenceSession().load(graph)(x)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    assert np.allclose(got[0], np.einsum("cijkl,fckl->fij", windows, w), atol=1e-4)


def test_given_weights_take_the_place_of_the_graphs() -> None:
    graph = linear(weight(0))
    other = weight(1)
    assert np.allclose(gc.InferenceSession().load(graph, weights={"w": other})(X)[0], X @ other, atol=1e-5)
    with pytest.raises(ModelError, match="the graph has no weight 'v'"):
        gc.InferenceSession().load(graph, weights={"v": other})
    with pytest.raises(ModelError, match=r"weight 'w' must be float32\[32, 64\], got float32\[31, 64\]"):
        gc.InferenceSession().load(graph, weights={"w": other[1:]})


def test_provider_is_refused_when_not_installed() -> None:
    missing = "TensorrtExecutionProvider"
    assert missing not in onnxruntime.get_available_providers()
    with pytest.raises(RunError, match=f"provider '{missing}' is not installed; installed are "):
        gc.InferenceSession(missing)
    with pytest.raises(RunError, match="provider 'gpu' is not installed"):
        gc.InferenceSession(["gpu", "cpu"])


def test_provider_is_found_by_either_name() -> None:
    for name in ("cpu", ["cpu"], "CPUExecutionProvider", None):
        assert gc.InferenceSession(name).providers == ("CPUExecutionProvider",)


def test_session_options_reach_onnxruntime() -> None:
    model = gc.InferenceSession(intra_op_num_threads=1, enable_mem_pattern=False).load(linear(weight()))
    assert model.session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(GraphError, match="onnxruntime has no session option 'threads'"):
        gc.InferenceSession(threads=1)
    with pytest.raises(GraphError, match="intra_op_num_threads='two'"):
        gc.InferenceSession(intra_op_num_threads="two").load(linear(weight()))


def test_precision_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphError, match="there is no precision 'sloppy'"):
        gc.InferenceSession(precision="sloppy")  # type: ignore[arg-type]


def test_graph_without_outputs_is_refused() -> None:
    with pytest.raises(GraphError, match="graph 'empty' has no outputs"):
        gc.InferenceSession().load(Graph("empty", {"x": TensorType(DType.float32, [])}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere.onnx", "load: nowhere.onnx is not a file"),
        (".", r"load: \. is a folder"),
        (
            b"garbage, not a model",
            "load: the model of 20 bytes is not an ONNX model: byte 0 does not start a field",
        ),
        (b"", "load: the model is empty"),
        (3, "load: the model must be a path, bytes or a ModelProto, got int"),
        (None, "load: the model must be a path, bytes or a ModelProto, got NoneType"),
    ],
)
def test_model_is_refused_when_it_cannot_be_read(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        gc.InferenceSession().load(model)


def test_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    linear(weight()).export(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cut.onnx of .* bytes is not an ONNX model: .* claims .*(.|\n)*truncated"):
        gc.InferenceSession().load(path)


def test_run_error_shows_what_was_fed() -> None:
    graph = Graph("reshaped", {"x": TensorType(DType.float32, ["n"])})
    graph.output(*graph.op("Reshape", [graph["x"], graph.constant([2, 3])], out_types=[TensorType("float32", [2, 3])]))
    with pytest.raises(RunError, match=r"reshaped: onnxruntime failed(.|\n)*x  float32\[5\]|x +float32\[5\]"):
        gc.InferenceSession().load(graph)(np.ones(5, np.float32))


@pytest.mark.numbers
def test_model_is_right_when_eight_threads_call_it() -> None:
    model = gc.InferenceSession().load(linear(weight()))
    wrong: list[int] = []

    def call(i: int) -> None:
        results = [model(X * i)[0] for _ in range(20)]
        wrong.extend(i for result in results if not np.allclose(result, i * (X @ weight()), atol=1e-4))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_benchmark_gives_seconds() -> None:
    taken = gc.InferenceSession().load(linear(weight())).benchmark(X, runs=5)
    assert 0 < taken["best"] <= taken["median"] <= taken["worst"]


@pytest.mark.numbers
def test_bfloat16_goes_in_and_out_when_mixed_with_float32() -> None:
    graph = Graph("mixed", {"x": TensorType(DType.bfloat16, ["n"]), "y": TensorType(DType.float32, ["n"])})
    x, y = graph.inputs
    graph.output(a=x + y, b=x + x)
    a, b = gc.InferenceSession().load(graph)(np.ones(3, ml_dtypes.bfloat16), np.ones(3, np.float32))
    assert a.dtype == np.float32
    assert b.dtype == ml_dtypes.bfloat16
    assert (b == 2).all()


@pytest.mark.numbers
def test_large_constants_are_right_when_operators_read_them_early_and_late() -> None:
    table = np.random.default_rng(3).standard_normal((64, 32)).astype(np.float32)
    graph = Graph("table", {"i": TensorType(DType.int64, ["n"]), "x": TensorType(DType.float32, [64, 32])})
    graph.output(ops.gather(graph.constant(table), graph["i"]), graph["x"] + table)
    rows, total = gc.InferenceSession().load(graph)(np.array([5, 0]), table)
    assert np.array_equal(rows, table[[5, 0]])
    assert np.array_equal(total, table + table)


def test_weight_that_nothing_uses_does_no_harm() -> None:
    graph = linear(weight())
    spare = Graph("spare", {"x": TensorType(DType.float32, ["n"])})
    spare.weight("unused", weight())
    spare.output(spare["x"] + 1)
    assert np.allclose(gc.InferenceSession().load(graph)(X)[0], X @ weight(), atol=1e-5)
    assert gc.InferenceSession().load(spare)(np.ones(2, np.float32))[0].tolist() == [2, 2]


@pytest.mark.numbers
def test_weights_are_right_when_an_optimiser_reads_them_against_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_READ_LATE", frozenset({"Conv"}))  # which is reordered while the session is made
    test_convolution_weights_are_right_when_the_session_reorders_them()


def test_results_outlive_the_model() -> None:
    graph = Graph("kept", {"x": TensorType(DType.bfloat16, ["n"]), "y": TensorType(DType.float32, ["n"])})
    graph.output(graph["x"] + 1, graph["y"] + 1)
    n = 1 << 18
    model = gc.InferenceSession().load(graph)
    low, plain = model(np.ones(n, ml_dtypes.bfloat16), np.ones(n, np.float32))
    for i in range(4):
        model(np.full(n, i, ml_dtypes.bfloat16), np.full(n, i, np.float32))
    del model
    assert (low == 2).all()
    assert (plain == 2).all()


def test_output_that_is_an_input_is_not_the_callers_memory() -> None:
    bfloat16 = helper.make_tensor_value_info("low", onnx.TensorProto.BFLOAT16, ["n"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Cast", ["x"], ["low"], to=onnx.TensorProto.BFLOAT16)]
    proto = helper.make_model(
        helper.make_graph(nodes, "through", [x], [x, bfloat16]), opset_imports=[helper.make_opsetid("", 21)]
    )
    proto.ir_version = 10
    array = np.ones(3, np.float32)
    same, _ = gc.InferenceSession().load(proto)(array)
    same[:] = 9
    assert (array == 1).all()


def test_weights_given_are_made_right_or_refused() -> None:
    graph = linear(weight())
    swapped = weight(1).astype(">f4")
    assert np.allclose(gc.InferenceSession().load(graph, weights={"w": swapped})(X)[0], X @ weight(1), atol=1e-5)
    with pytest.raises(ModelError, match=r"weight 'w' must be float32\[32, 64\], got list"):
        gc.InferenceSession().load(graph, weights={"w": weight().tolist()})
    for wrong in (3, ["w"], weight(), "model.safetensors"):
        with pytest.raises(ModelError, match=r"load: weights must be a mapping of names to arrays, got \w+"):
            gc.InferenceSession().load(graph, weights=wrong)  # type: ignore[arg-type]


def test_weights_given_that_do_not_fit_are_all_named() -> None:
    graph = linear(weight())
    more: Any = {"w": weight().astype(np.float64), 3: weight(), **{f"v{i}": weight() for i in range(30)}}
    with pytest.raises(ModelError) as caught:
        gc.InferenceSession().load(graph, weights=more)
    shown = caught.value.summary
    assert "weight 'w' must be float32[32, 64], got float64[32, 64]; the graph has no weight 3; " in shown
    assert shown.endswith("no weight 'v17'; and 12 more")
    assert caught.value.help == "give arrays of the types of the graph's weights, which are w"


def test_extra_to_install_is_named_when_cuda_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(RunError, match=r"installed are CPUExecutionProvider\n(.|\n)*graphcore-engine\[gpu\]"):
        gc.InferenceSession(["cuda", "cpu"])


def test_provider_that_does_not_start_is_an_error_and_not_another_provider() -> None:
    started = gc.InferenceSession().load(linear(weight())).session
    require_started(started, ["CPUExecutionProvider"])
    with pytest.raises(RunError, match="CUDAExecutionProvider is installed but did not start; started are CPUExec"):
        require_started(started, ["CUDAExecutionProvider"])


@pytest.mark.parametrize("providers", [5, [], [None], [["cpu"]], [("CPUExecutionProvider", {})]])
def test_providers_that_are_not_names_are_refused(providers: Any) -> None:
    with pytest.raises(RunError, match="must be a name or a list of names"):
        gc.InferenceSession(providers)


def test_provider_given_twice_counts_once() -> None:
    assert gc.InferenceSession(["cpu", "CPUExecutionProvider"]).providers == ("CPUExecutionProvider",)


def test_unknown_options_are_all_named_and_a_close_one_proposed() -> None:
    with pytest.raises(GraphError, match=r"'intra_op_threads', 'bar'\n  help: did you mean intra_op_num_threads"):
        gc.InferenceSession(intra_op_threads=1, bar=2)
    with pytest.raises(GraphError, match="no session option 'add_initializer'"):
        gc.InferenceSession(add_initializer=1)
    with pytest.raises(GraphError, match="no session option '__doc__'"):
        gc.InferenceSession(__doc__="text")


@pytest.mark.parametrize("name", ["intra_op_num_threads", "inter_op_num_threads"])
@pytest.mark.parametrize("count", [-1, 4097, 2**31 - 1, True])
def test_numbers_of_threads_that_no_machine_has_are_refused(name: str, count: int) -> None:
    options: dict[str, Any] = {name: count}
    with pytest.raises(GraphError, match=rf"{name}={count} is not a valid number of threads"):
        gc.InferenceSession(**options)


@pytest.mark.parametrize("options", [3, ["cpu"], "cpu", {"cpu": 3}])
def test_provider_options_that_are_not_mappings_are_refused(options: Any) -> None:
    with pytest.raises(GraphError, match="InferenceSession: provider_options"):
        gc.InferenceSession(provider_options=options)


def test_nothing_is_printed_when_a_model_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError):
        gc.InferenceSession().load(b"garbage, not a model")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("seen", "off"), [(ReleaseRange(), True), (ReleaseRange(last="0.1"), False)])
def test_optimiser_that_is_slow_on_many_initializers_is_off_for_them(
    monkeypatch: pytest.MonkeyPatch, seen: ReleaseRange, off: bool
) -> None:
    monkeypatch.setattr(sessions, "MANY_CONSTANTS", 3)
    monkeypatch.setattr(sessions, "QUADRATIC", {"ConstantSharing": seen})
    results: list[list[str]] = []
    real = onnxruntime.InferenceSession

    def spy(*args: Any, disabled_optimizers: list[str], **kwargs: Any) -> Any:
        results.append(disabled_optimizers)
        return real(*args, disabled_optimizers=disabled_optimizers, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    for numbers in ([0, 1], [0, 1, 2], [1, 1, 1, 2]):
        graph = Graph("many", {"x": TensorType(DType.float32, [4])})
        total = graph["x"]
        for i, number in enumerate(numbers):
            total = total + graph.weight(f"w{i}", np.full(4, number, np.float32))
        graph.output(total)
        assert gc.InferenceSession().load(graph)(np.zeros(4, np.float32))[0][0] == sum(numbers)
    assert ["ConstantSharing" in names for names in results] == [False, off, False]


@pytest.mark.parametrize("noted", ["{", "[]", "null", '{"x": 3}', '{"x": "nope"}', '{"x": "float64"}', "[" * 100_000])
def test_metadata_that_makes_no_sense_is_ignored(noted: str) -> None:
    model = gc.InferenceSession().load(doubled(["n"], metadata=noted))
    assert model.inputs == {"x": TensorType(DType.float32, ["n"])}
    assert model(np.ones(2, np.float32))[0].tolist() == [2, 2]


def test_input_of_unknown_rank_takes_any() -> None:
    model = gc.InferenceSession().load(doubled(None))
    assert model(np.ones((2, 1), np.float32))[0].tolist() == [[2], [2]]
    assert model(np.ones(2, np.float32))[0].tolist() == [2, 2]


def test_inputs_may_be_called_like_a_methods_own_argument() -> None:
    model = gc.InferenceSession().load(doubled(["n"], name="self"))
    assert model(self=np.ones(1, np.float32))[0].tolist() == [2]
    with pytest.raises(FeedError, match="no array is given for self"):
        model()


def test_dtypes_that_no_array_has_are_refused_when_loaded() -> None:
    with pytest.raises(ModelError, match=r"A is tensor\(complex64\), which Add of opset 14 does not take"):
        gc.InferenceSession().load(doubled(["n"], onnx.TensorProto.COMPLEX64))


def test_sequences_are_lists_when_a_graph_and_when_its_model_is_loaded() -> None:
    graph = Graph("list", {"s": SequenceType(TensorType(DType.float32, ["n"]))})
    graph.output(*graph.op("SequenceLength", [graph["s"]], out_types=[TensorType(DType.int64, [])]))
    for source in (graph, graph.to_onnx()):
        model = gc.InferenceSession().load(source)
        assert str(model.inputs["s"]) == "seq(float32[n])"
        assert model([np.zeros(2, np.float32)] * 3)[0] == 3


def test_strings_go_beside_low_precision_outputs() -> None:
    types = {"s": TensorType(DType.string, ["n"]), "x": TensorType(DType.bfloat16, ["n"])}
    graph = Graph("both", types)
    graph.output(graph["s"], graph["x"] + 1)
    text, number = gc.InferenceSession().load(graph)(np.array(["a"]), np.ones(1, ml_dtypes.bfloat16))
    assert (text.tolist(), number.tolist(), number.dtype) == (["a"], [2.0], ml_dtypes.bfloat16)


def test_profile_tells_kernels_layers_and_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = Graph("profiled", {"x": TensorType(DType.float32, ["n", 32])})
    with graph.layer("head"):
        graph.output(ops.softmax(graph["x"] @ graph.weight("w", weight())))
    profile = gc.InferenceSession().load(graph).profile(X, runs=4)
    assert profile.runs == 4
    assert set(profile.by_operator()) == {"MatMul", "Softmax"}
    assert set(profile.by_layer()) == {"head"}
    assert all(kernel.calls == 1 and kernel.provider == "CPUExecutionProvider" for kernel in profile.kernels)
    assert 0 < sum(kernel.seconds for kernel in profile.kernels) <= profile.seconds
    assert "2 kernels, 4 runs" in str(profile)
    assert not list(tmp_path.iterdir())


def test_profile_of_a_file_runs_it_again(tmp_path: Path) -> None:
    linear(weight()).export(tmp_path / "linear.onnx")
    profile = gc.InferenceSession().load(tmp_path / "linear.onnx").profile(x=X, runs=1)
    assert [kernel.operator for kernel in profile.kernels] == ["MatMul"]


def test_session_says_what_it_runs_on_when_printed() -> None:
    result = gc.InferenceSession("cpu", precision="fast")
    assert repr(result) == "<InferenceSession on CPUExecutionProvider, fast>"


def test_large_constants_in_bodies_are_given_with_the_model() -> None:
    graph = Graph("branches", {"x": TensorType(DType.float32, ["n", 1000])})
    x, row = graph[0], np.arange(1000, dtype=np.float32)
    graph.output(ops.cond(ops.sum(x) > 0, lambda: x + row, lambda: x - row))
    (result,) = gc.InferenceSession().load(graph)(np.ones((2, 1000), np.float32))
    np.testing.assert_array_equal(result, np.ones((2, 1000), np.float32) + row)


def test_config_entries_reach_onnxruntime() -> None:
    loader = gc.InferenceSession(config={"session.intra_op.allow_spinning": False, "session.dynamic_block_base": 4})
    options = loader.load(linear(weight())).session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.dynamic_block_base") == "4"


@pytest.mark.parametrize(
    "config", [{"allow_spinning": False}, {3: "1"}, {"session.x": 1.5}, {"session.x": None}, "session.x", 3]
)
def test_config_that_is_none_is_refused(config: Any) -> None:
    with pytest.raises(GraphError, match=r"InferenceSession: config: .* is not a config entry of a session"):
        gc.InferenceSession(config=config)
    with pytest.raises(GraphError, match=r"InferenceSession: config: 'session\.x+'"):
        gc.InferenceSession(config={"session." + "x" * 2000: "1"})


def test_model_goes_on_when_the_file_of_its_weights_is_replaced_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    gc.save_tensors(path, {"w": weight(7)})
    model = gc.InferenceSession().load(linear(gc.load_tensors(path)["w"]), prepack="off")
    assert np.allclose(model(X)[0], X @ weight(7), atol=1e-5)
    gc.save_tensors(path, {"w": weight(8)})  # by renaming another file to its place
    assert np.allclose(model(X)[0], X @ weight(7), atol=1e-5)
    path.unlink()
    assert np.allclose(model(X)[0], X @ weight(7), atol=1e-5)


def test_numbers_of_calls_and_names_to_watch_are_looked_at() -> None:
    model = gc.InferenceSession().load(linear(weight()))
    for runs in ("2", 2.5, None, True):
        for measure in (model.benchmark, model.profile):
            with pytest.raises(FeedError, match=r"linear: runs=.* is not a number of calls"):
                measure(X, runs=runs)  # type: ignore[arg-type]
    assert model.benchmark(X, runs=np.int64(2))["best"] > 0  # type: ignore[arg-type]
    for watch in (3, [3], [None], b"y"):
        with pytest.raises(FeedError, match=r"debug: linear: watch must be a name or a list of names"):
            model.debug(X, watch=watch)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="load: prepack='some' is not a choice"):
        gc.InferenceSession().load(b"whatever it is", prepack="some")  # type: ignore[arg-type]


def two_outputs() -> gc.Model:
    graph = Graph("two", {"x": TensorType("float32", ["n"])})
    graph.output(hidden=graph["x"] + 1, count=graph["x"] * 2)
    return gc.InferenceSession().load(graph)


def test_results_are_a_list_that_knows_names() -> None:
    results = two_outputs()(np.ones(3, np.float32))
    hidden, count = results
    assert isinstance(results, list)
    assert results["hidden"] is results.hidden is results[0] is hidden
    assert results["count"] is results[-1] is count
    assert callable(results.count)  # the method of lists
    assert [len(r) for r in results[:]] == [3, 3]


def test_results_say_which_outputs_there_are() -> None:
    results = two_outputs()(np.ones(3, np.float32))
    with pytest.raises(FeedError, match=r"no output is called 'hiden'\n  help: did you mean hidden\?"):
        results["hiden"]
    with pytest.raises(AttributeError, match="no output is called 'logits'; the outputs are 'hidden', 'count'"):
        results.logits  # noqa: B018


def test_results_keep_their_names_when_copied_and_pickled() -> None:
    results = two_outputs().execute(np.ones(3, np.float32))
    for other in (pickle.loads(pickle.dumps(results)), copy.copy(results), copy.deepcopy(results)):
        np.testing.assert_array_equal(other.hidden, results["hidden"])


def test_argument_of_the_session_is_suggested() -> None:
    with pytest.raises(GraphError, match="did you mean providers"):
        gc.InferenceSession(provider="cpu")
