"""The cache of optimised graphs for warm starts: keys, hits, and refusal of damaged entries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import GraphError, ModelError, RunError
from graphcore.runtime import lowering
from graphcore.runtime.ort import memory
from graphcore.runtime.ort import optimised_cache as cache
from graphcore.runtime.ort.optimised_cache import CacheFolder
from graphcore.runtime.sessions.warm_start import files, keys

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
D = DType
OFF = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def weight(seed: int = 0, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape or (32, 64)).astype(np.float32)


X = weight(9, 2, 32)


def linear(w: Array, rows: int | str = "n") -> Graph:
    graph = Graph("linear", {"x": TensorType(D.float32, [rows, w.shape[0]])})
    graph.output(y=ops.relu(graph["x"] @ graph.weight("w", w) + 1) * 2)
    return graph


def expected(w: Array, x: Array = X) -> Array:
    result: Array = np.maximum(x @ w + 1, 0) * 2
    return result


def is_restarted(model: gc.Model) -> bool:
    """Return True if the session was made of a cached optimised model."""
    return bool(model.session.get_session_options().graph_optimization_level == OFF)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.optimised"))


def test_second_start_takes_what_the_first_one_optimised(tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    first = loader.load(linear(weight()), cache_dir=tmp_path / "made" / "here")
    second = loader.load(linear(weight()), cache_dir=str(tmp_path / "made" / "here"))
    assert (is_restarted(first), is_restarted(second)) == (False, True)
    assert len(entries(tmp_path / "made" / "here")) == 1
    assert np.allclose(first(X)[0], expected(weight()), atol=1e-5)
    assert np.array_equal(first(X)[0], second(X)[0])
    assert list(second.debug(X, watch="relu_5")) == ["relu_5"]


def test_graph_is_not_lowered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = gc.InferenceSession()
    result = linear(weight())
    first = loader.load(result, cache_dir=tmp_path)
    with monkeypatch.context() as other:
        other.setattr(lowering, "lower", None)
        second = loader.load(linear(weight()), cache_dir=tmp_path)
        assert repr(second) == repr(first)
        assert np.array_equal(second(X)[0], first(X)[0])
        for changed in (linear(weight(1)), linear(weight(), rows=2)):
            with pytest.raises(TypeError):
                loader.load(changed, cache_dir=tmp_path)
    result.edits += 1  # as inserting nodes does
    again = loader.load(linear(weight()), cache_dir=tmp_path)
    assert again.debug(X, watch="relu_5")["relu_5"].shape == (2, 64)
    third = loader.load(result, cache_dir=tmp_path)
    result.edits += 1
    with pytest.raises(GraphError, match="nodes were inserted into the graph since linear was loaded"):
        third.debug(X, watch="relu_5")


def scaled_by(alpha: float) -> Graph:
    graph = Graph("scaled", {"x": TensorType(D.float64, ["n"])})
    graph.output(y=graph.op("Elu", [graph["x"]], {"alpha": alpha}, [TensorType(D.float64, ["n"])])[0])
    return graph


def test_graphs_that_differ_in_anything_are_told_apart(tmp_path: Path) -> None:
    def of(dtype: DType, **options: Any) -> Graph:
        graph = Graph("g", {"x": TensorType(dtype, ["n"])}, **options)
        graph.output(y=graph["x"] + 1)
        return graph

    graphs = [
        scaled_by(0.5),
        scaled_by(0.5 + 2**-40),
        *map(of, (D.uint64, D.index, D.float32, D.tf32, D.int(5), D.int8)),
        of(D.float32, promotion="array_api"),
    ]
    folder = CacheFolder(tmp_path, ())
    keys = {restart_of(folder, graph) for graph in graphs}
    assert None not in keys
    assert len(keys) == len(graphs)
    assert {restart_of(folder, graph) for graph in (scaled_by(0.5), of(D.int(5)))} <= keys


def test_imported_graph_is_told_from_a_built_one(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, D.float32.onnx, ["n"]) for name in "xy")
    opset = onnx.helper.make_opsetid("", 17)
    imported = Graph.load(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=[opset]))
    built = Graph("g", {"x": TensorType(D.float32, ["n"])})
    built.output(y=built.op("Relu", [built["x"]], {}, [TensorType(D.float32, ["n"])])[0])
    keys = {restart_of(CacheFolder(tmp_path, ()), graph) for graph in (imported, built)}
    assert None not in keys
    assert len(keys) == 2


def restart_of(folder: CacheFolder, graph: Graph) -> str | None:
    return keys.GraphSource(folder, graph).key or None


def test_graphs_with_what_a_program_may_change_are_lowered_again(tmp_path: Path) -> None:
    @gc.function
    def twice(x: gc.Symbol) -> gc.Symbol:
        return x * 2

    x = TensorType(D.float32, ["n"])
    called, branched, remaining = (
        Graph("called", {"x": x}),
        Graph("branched", {"x": x}),
        Graph("kept", {"x": x, "b": Buffer(D.float32, [1])}),
    )
    called.output(twice(called["x"]))
    branched.output(ops.cond(branched["x"].sum() > 0, lambda: branched["x"] + 1, lambda: branched["x"] * 2))
    remaining["b"] = remaining["b"] + 1
    remaining.output(remaining["x"] + remaining["b"])
    ones = np.ones(2, np.float32)
    for graph, wanted in ((called, [2, 2]), (branched, [2, 2]), (remaining, [2, 2])):
        assert restart_of(CacheFolder(tmp_path, ()), graph) is None
        for _ in range(2):
            model = gc.InferenceSession().load(graph, cache_dir=tmp_path)
            assert model(ones)[0].tolist() == wanted
        assert is_restarted(model)


def test_weights_that_only_kernels_read_are_the_graphs_own_whatever_was_kept(tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    for seed in range(3):
        model = loader.load(linear(weight(seed)), cache_dir=tmp_path)
        assert is_restarted(model) is (seed > 0)
        assert np.allclose(model(X)[0], expected(weight(seed)), atol=1e-5)
    value = loader.load(linear(weight(0)), {"w": weight(7)}, cache_dir=tmp_path)
    assert is_restarted(value)
    assert np.allclose(value(X)[0], expected(weight(7)), atol=1e-5)


def convolution(seed: int) -> Graph:
    graph = Graph("conv", {"x": TensorType(D.float32, ["n", 8, 5, 5])})
    kernel = graph.weight("w", weight(seed, 16, 8, 3, 3))
    graph.output(ops.conv2d(graph["x"], kernel, input_layout="NCHW", filter_layout="FCRS"))
    return graph


def test_weights_that_are_optimised_tell_entries_apart(tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    x = weight(5, 1, 8, 5, 5)
    for seed in (0, 1, 0, 1):
        (remaining,) = loader.load(convolution(seed), cache_dir=tmp_path)(x)
        (plain,) = loader.load(convolution(seed))(x)
        assert np.array_equal(remaining, plain)
    assert len(entries(tmp_path)) == 2


def test_other_graphs_and_options_are_other_entries(tmp_path: Path) -> None:
    loads: list[Callable[[], gc.Model]] = [
        lambda: gc.InferenceSession().load(linear(weight()), cache_dir=tmp_path),
        lambda: gc.InferenceSession().load(linear(weight(0, 32, 65)), cache_dir=tmp_path),
        lambda: gc.InferenceSession().load(linear(weight(), rows=2), cache_dir=tmp_path),
        lambda: gc.InferenceSession().load(linear(weight()), cache_dir=tmp_path, prepack="off"),
        lambda: gc.InferenceSession(intra_op_num_threads=1).load(linear(weight()), cache_dir=tmp_path),
        lambda: gc.InferenceSession(
            graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        ).load(linear(weight()), cache_dir=tmp_path),
    ]  # fmt: skip
    assert not any(is_restarted(load()) for load in loads)
    assert len(entries(tmp_path)) == len(loads)
    assert all(is_restarted(load()) for load in loads)


def test_other_versions_and_processors_are_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> gc.Model:
        return gc.InferenceSession().load(linear(weight()), cache_dir=tmp_path)

    load()
    with monkeypatch.context() as other:
        other.setattr(cache, "__version__", "0")
        assert not is_restarted(load())
    with monkeypatch.context() as other:
        other.setattr(onnxruntime, "__version__", "0")
        assert not is_restarted(load())
    with monkeypatch.context() as other:
        other.setattr(cache, "_machine", lambda: "flags: fpu")
        assert not is_restarted(load())
    assert is_restarted(load())
    assert len(entries(tmp_path)) == 4


def cut(content: bytes) -> bytes:
    return content[:-100]


def changed(content: bytes) -> bytes:
    return content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]


def garbage(content: bytes) -> bytes:
    return b"garbage"


def empty(content: bytes) -> bytes:
    return b""


def plausible(content: bytes) -> bytes:
    """An entry whose digest is right, of what onnxruntime does not take."""
    import hashlib

    head = len(cache._MAGIC) + 32
    return content[:head] + hashlib.sha256(b"no model").digest() + b"no model"


@pytest.mark.parametrize("damage", [cut, changed, garbage, empty, plausible])
def test_damaged_entry_is_made_anew(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    path = tmp_path / "linear.onnx"
    linear(weight()).export(path)
    for source in (linear(weight()), path):
        folder = tmp_path / type(source).__name__
        loader.load(source, cache_dir=folder)
        for entry in entries(folder):
            whole = entry.read_bytes()
            entry.write_bytes(damage(whole))
            assert np.allclose(loader.load(source, cache_dir=folder)(X)[0], expected(weight()), atol=1e-5)
            assert entry.read_bytes() == whole
            assert is_restarted(loader.load(source, cache_dir=folder))


def test_entry_under_the_name_of_another_is_not_believed(tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    loader.load(convolution(0), cache_dir=tmp_path)
    (first,) = entries(tmp_path)
    loader.load(convolution(1), cache_dir=tmp_path)
    (second,) = {*entries(tmp_path)} - {first}
    second.write_bytes(first.read_bytes())
    x = weight(5, 1, 8, 5, 5)
    assert np.array_equal(loader.load(convolution(1), cache_dir=tmp_path)(x)[0], loader.load(convolution(1))(x)[0])
    assert second.read_bytes() != first.read_bytes()


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "dangling"])
@pytest.mark.filterwarnings("ignore:load. the optimised graph cannot be written:RuntimeWarning")
def test_what_is_not_a_file_is_not_an_entry(kind: str, tmp_path: Path) -> None:
    loader = gc.InferenceSession()
    loader.load(linear(weight()), cache_dir=tmp_path)
    for entry in tmp_path.iterdir():
        entry.unlink()
        if kind == "folder":
            entry.mkdir()
        elif kind == "pipe":
            if not hasattr(os, "mkfifo"):
                return
            os.mkfifo(entry)  # opening it would wait for somebody who writes
        else:
            entry.symlink_to("/dev/zero" if kind == "endless" else tmp_path / "none" / "there")
    assert np.allclose(loader.load(linear(weight()), cache_dir=tmp_path)(X)[0], expected(weight()), atol=1e-5)
    assert is_restarted(loader.load(linear(weight()), cache_dir=tmp_path)) == (kind != "folder")


def test_entry_is_not_used_when_others_could_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = gc.InferenceSession()
    loader.load(linear(weight()), cache_dir=tmp_path)
    (entry,) = entries(tmp_path)
    entry.chmod(0o666)
    assert not is_restarted(loader.load(linear(weight()), cache_dir=tmp_path))
    assert is_restarted(loader.load(linear(weight()), cache_dir=tmp_path))
    if os.geteuid() != 0:  # only root can change the owner of a file
        return
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    os.chown(entry, 54321, -1)
    assert not is_restarted(loader.load(linear(weight()), cache_dir=tmp_path))


@pytest.mark.parametrize("folder", [3, b"\0", "\0", "file", "file/inside"])
def test_folder_that_cannot_be_used_is_refused(folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"")
    with pytest.raises(
        ModelError,
        match=r"load: (cache_dir must be a path, got (int|bytes)|the folder cache_dir=.* cannot be created or written)",
    ):
        gc.InferenceSession().load(linear(weight()), cache_dir=folder)


def test_model_runs_when_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "replace_files", full)
    with pytest.warns(RuntimeWarning, match=r"cannot be written to .*: No space left on device"):
        model = gc.InferenceSession().load(linear(weight()), cache_dir=tmp_path)
    assert np.allclose(model(X)[0], expected(weight()), atol=1e-5)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files")
def test_log_says_why_nothing_was_kept_when_files_cannot_grow(tmp_path: Path) -> None:
    code = f"""
import logging, resource, signal, sys, warnings
import numpy as np
import graphcore as gc
from graphcore import Graph, TensorType
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
warnings.simplefilter("ignore")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
graph = Graph("g", {{"x": TensorType("float32", [4])}})
graph.output(y=graph["x"] * 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
model = gc.InferenceSession().load(graph, cache_dir={str(tmp_path)!r})
assert model(np.ones(4, np.float32))[0].tolist() == [2] * 4
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.split("\n") if line]
    assert lines
    assert all(f"cannot be written to {tmp_path}: File too large" in line for line in lines)
    assert lines[0].startswith("graphcore WARNING load: ")


def test_option_that_says_another_place_is_refused(tmp_path: Path) -> None:
    loader = gc.InferenceSession(optimized_model_filepath=str(tmp_path / "here.onnx"))
    with pytest.raises(GraphError, match="cache_dir and the option optimized_model_filepath both say"):
        loader.load(linear(weight()), cache_dir=tmp_path)


def test_model_that_onnxruntime_refuses_is_refused_all_the_same(tmp_path: Path) -> None:
    graph = Graph("odd", {"x": TensorType(D.float32, [2])})
    graph.output(*graph.op("NoSuchOperator", [graph["x"]], {}, [TensorType(D.float32, [2])], domain="com.microsoft"))
    with pytest.raises((ModelError, GraphError)):
        gc.InferenceSession().load(graph, cache_dir=tmp_path)
    assert not entries(tmp_path)


CHILD = """
import sys
import numpy as np
import graphcore as gc
from tests.runtime.test_cache import X, linear, weight, expected
for _ in range(10):
    for seed in range(3):
        model = gc.InferenceSession().load(linear(weight(seed, 32, 64 + seed)), cache_dir=sys.argv[1])
        assert np.allclose(model(X)[0], expected(weight(seed, 32, 64 + seed)), atol=1e-5)
"""


@pytest.mark.full
def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    running = [subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], cwd=root) for _ in range(2)]
    assert [process.wait(300) for process in running] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 6  # and no file that was being written


# Files


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make it an error to read a model into a graph from then on."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the model was read")

    return lambda: monkeypatch.setattr(Graph, "load", refuse)


@pytest.mark.parametrize("kind", ["path", "external", "bytes", "proto"])
def test_model_is_not_read_again(kind: str, tmp_path: Path, unread: Callable[[], None]) -> None:
    path = tmp_path / "linear.onnx"
    linear(weight()).export(path, external_data=kind == "external")
    source: Any = {"bytes": path.read_bytes(), "proto": onnx.load(path)}.get(kind, path)
    loader = gc.InferenceSession()
    first = loader.load(source, cache_dir=tmp_path)
    unread()
    second = loader.load(source, cache_dir=tmp_path)
    assert repr(second) == repr(first)
    assert second.inputs == first.inputs
    assert np.array_equal(second(X)[0], first(X)[0])
    assert np.array_equal(second.bind(n=2)(X)[0], first(X)[0])


def test_types_are_right_when_warm_started(tmp_path: Path, unread: Callable[[], None]) -> None:
    n = gc.Dim("n")
    types: Any = {
        "a": TensorType(D.index, [n, 2]), "b": TensorType(D.bfloat16, [n * 2 + 1]), "c": TensorType(D.tf32, []),
        "d": TensorType(D.int4, ["a.b/0", gc.Dim.dynamic()]), "e": TensorType(D.float64, gc.Shape.unknown()),
        "f": TensorType(D.string, [3]), "g": TensorType(D.bool, [4]),
    }  # fmt: skip
    for chosen in (types.keys() - {"f"}, {"f", "a"}):
        graph = Graph("typed", {name: types[name] for name in sorted(chosen)})
        graph.output(**{f"{s.name}_": ops.onnx.Identity(s) for s in graph.inputs})
        path = tmp_path / f"typed{len(chosen)}.onnx"
        graph.export(path, target="onnx")
        loader = gc.InferenceSession()
        first = loader.load(path, cache_dir=tmp_path)
        second = loader.load(path, cache_dir=tmp_path)
        assert is_restarted(second)
        assert (second.inputs, second.outputs) == (first.inputs, first.outputs)


def test_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    loader = gc.InferenceSession()
    for external in (False, True):
        for seed in (0, 1):
            linear(weight(seed)).export(path, external_data=external)
            for _ in range(2):
                model = loader.load(path, cache_dir=tmp_path)
                assert np.allclose(model(X)[0], expected(weight(seed)), atol=1e-5)


def test_weights_beyond_hashing_are_known_by_when_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HASHED", 0)
    path = tmp_path / "linear.onnx"
    loader = gc.InferenceSession()
    for external in (False, True):
        linear(weight(0)).export(path, external_data=external)
        loader.load(path, cache_dir=tmp_path)
        young = loader.load(path, cache_dir=tmp_path)  # the file could be written again in the same moment
        assert young._source is not None
        with monkeypatch.context() as later:
            later.setattr(keys, "SETTLED", -1.0)
            loader.load(path, cache_dir=tmp_path)
            assert loader.load(path, cache_dir=tmp_path)._source is None
        linear(weight(1)).export(path, external_data=external)
        assert np.allclose(loader.load(path, cache_dir=tmp_path)(X)[0], expected(weight(1)), atol=1e-5)


def test_graph_is_read_on_demand_when_warm_started(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    graph = Graph("picked", {"i": TensorType(D.int64, ["n"])})
    graph.output(y=ops.gather(graph.weight("w", weight()), graph["i"]).print("rows") + 1)
    graph.export(path)
    loader = gc.InferenceSession()
    loader.load(path, cache_dir=tmp_path)
    at = np.array([3])
    uses: list[Callable[[gc.Model], object]] = [
        lambda m: m.debug(at, watch="y"),
        lambda m: m.placement(),
        lambda m: m.profile(at, runs=1),
        lambda m: m.benchmark(at, runs=1),
    ]
    for use in uses:
        model = loader.load(path, cache_dir=tmp_path)
        assert model._source is None
        assert use(model)
    model = loader.load(path, cache_dir=tmp_path)
    with pytest.raises(RunError, match="onnxruntime failed"):
        model(np.array([99]))
    other = loader.load(path, cache_dir=tmp_path)
    linear(weight()).export(path)
    with pytest.raises(ModelError, match="the file of picked was changed since it was loaded"):
        other.debug(at, watch="y")
    assert np.array_equal(other(at)[0], weight()[[3]] + 1)


def test_file_that_is_not_a_model_is_refused_as_ever(tmp_path: Path) -> None:
    for content in (b"", b"garbage, not a model"):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelError, match=r"bad.onnx (is empty|of .* is not an ONNX model)"):
            gc.InferenceSession().load(tmp_path / "bad.onnx", cache_dir=tmp_path)
    with pytest.raises(ModelError, match="is not a file"):
        gc.InferenceSession().load(tmp_path / "nowhere.onnx", cache_dir=tmp_path)


# Prepacking


def rows(*shape: int | str, transposed: bool = False) -> Graph:
    graph = Graph("rows", {"x": TensorType(D.float32, shape)})
    w = graph.weight("w", weight())
    if transposed:
        graph.output(graph.op("Gemm", [graph["x"], w.T], {"transB": 1}, [TensorType(D.float32, [shape[0], 64])])[0])
    else:
        graph.output(graph["x"] @ w)
    return graph


@pytest.mark.parametrize(
    ("graph", "gains"),
    [
        (rows(1, 32), False),
        (rows(32), False),
        (rows(1, 1, 32), False),
        (rows(1, 32, transposed=True), False),
        (rows(2, 32), True),
        (rows(2, 1, 32), True),
        (rows("n", 32), True),
        (rows("n", 32, transposed=True), True),
        (convolution(0), True),
    ],
)
def test_weights_are_put_in_order_where_several_rows_meet_them(graph: Graph, gains: bool) -> None:
    assert memory.gains(graph) is gains
    assert memory.entries(graph, "auto") == (memory.PARALLEL if gains else memory.OFF)
    assert memory.entries(graph, "on") == memory.PARALLEL
    assert memory.entries(graph, "off") == memory.OFF


def test_constants_of_rotary_embeddings_are_left_as_they_are() -> None:
    for op, gains in (("RotaryEmbedding", False), ("SomethingElse", True)):
        graph = Graph("rotary", {"x": TensorType(D.float32, [1, 1, 32]), "at": TensorType(D.int64, [1, 1])})
        table = graph.constant(weight())
        graph.output(
            *graph.op(op, [graph["x"], graph["at"], table, table], {}, [graph["x"].type], domain="com.microsoft")
        )
        assert memory.gains(graph) is gains


def test_products_in_bodies_count() -> None:
    for shape, gains in (((1, 32), False), (("n", 32), True)):
        graph = Graph("body", {"x": TensorType(D.float32, shape), "c": TensorType(D.bool, [])})
        x, w = graph["x"], graph.weight("w", weight())
        graph.output(ops.cond(graph["c"], lambda x=x, w=w: x @ w, lambda x=x, w=w: (x + 1) @ w))
        assert memory.gains(graph) is gains


@pytest.mark.parametrize("prepack", ["auto", "on", "off"])
def test_numbers_are_the_same_however_weights_lie(prepack: Any) -> None:
    for graph, x in ((linear(weight()), X), (linear(weight(), rows=1), X[:1]), (convolution(0), weight(5, 1, 8, 5, 5))):
        (result,) = gc.InferenceSession().load(graph, prepack=prepack)(x)
        (plain,) = gc.InferenceSession().load(graph)(x)
        assert np.allclose(result, plain, atol=1e-5)


def test_prepack_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphError, match="prepack='never' is not a choice"):
        gc.InferenceSession().load(linear(weight()), prepack="never")  # type: ignore[arg-type]
