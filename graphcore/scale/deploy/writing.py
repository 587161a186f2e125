"""Write the files of a deployment: a model repository for Triton, a folder for Docker, a manifest for KServe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcore._version import __version__
from graphcore.errors import ExportError, GraphError, ModelError
from graphcore.ir.graph import Graph
from graphcore.runtime.export import Options, export
from graphcore.runtime.lowering.targets.releases import OLDEST_SUPPORTED, is_supported
from graphcore.scale.deploy.triton import Settings, ensemble, initial_states, model_config, to_text, without_scalars
from graphcore.scale.protocol.tensors import NAMES
from graphcore.support.atomic_files import replace_files
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def triton_repository(
    folder: str | os.PathLike[str],
    graphs: Mapping[str, Graph],
    settings: Settings,
    lowering: Options,
    *,
    pipeline: str | None = None,
    version: int | None = None,
) -> list[str]:
    """Write models into a model repository for Triton.

    The configuration of a model is written after the model, so that Triton never reads one without the other.

    Args:
        folder: The repository.
        graphs: Graphs by the names of models.
        settings: The settings of all models.
        lowering: The target, the release of onnxruntime on the server, None for most releases, and the opset.
        pipeline: The name of an ensemble that runs the models in order, or None.
        version: The version of the models; by default the latest one + 1.

    Returns:
        The paths of the files.

    Raises:
        ModelError: Triton does not support a model. Nothing is written then.
        GraphError: Triton does not accept a name or version.
        ExportError: A file cannot be written.
    """
    names = [*graphs, *([pipeline] if pipeline is not None else [])]
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise GraphError(
                f"deploy: {name!r:.80} is not a valid and unique name of a model", help="use letters, digits, _ and -"
            )
    if version is not None and version < 1:
        raise GraphError(f"deploy: version must be at least 1, got {version}", help="omit it for the next version")
    graphs = {name: without_scalars(name, graph, settings) for name, graph in graphs.items()}
    configs = {name: model_config(name, graph, settings) for name, graph in graphs.items()}
    ensemble_config = ensemble(pipeline, graphs, [*configs.values()]) if pipeline is not None else None
    root = Path(folder)
    paths: list[str] = []
    for name, graph in graphs.items():
        place = root / name / str(version or _next(root / name))
        _make_folder(place)
        export(graph, place / "model.onnx", None, lowering)
        paths += sorted(os.fspath(each) for each in place.iterdir())
        for state, content in initial_states(graph).items():
            _make_folder(root / name / "initial_state")
            paths.append(_write(root / name / "initial_state" / state, content))
        paths.append(_write(root / name / "config.pbtxt", to_text(configs[name]).encode()))
    if ensemble_config is not None:
        _make_folder(root / str(pipeline) / "1")  # Triton needs the folder of a version, even empty
        paths.append(_write(root / str(pipeline) / "config.pbtxt", to_text(ensemble_config).encode()))
    return paths


def docker_folder(
    folder: str | os.PathLike[str],
    graphs: Mapping[str, Graph],
    settings: Settings,
    lowering: Options,
    installed: str,
    wheels: Sequence[str] = (),
) -> list[str]:
    """Write a folder for `docker build` with a server and the models. Returns the paths of the files.

    The server is graphcore's, or a small one without graphcore for releases of onnxruntime that graphcore does not
    run on.

    Args:
        folder: The folder.
        graphs: Graphs by the names of models.
        settings: The settings of all models.
        lowering: The target, the release of onnxruntime on the server, None for most releases, and the opset.
        installed: The release of onnxruntime in the image, if `lowering` has none.
        wheels: Paths of wheels to copy into the image, which are installed instead of the packages of their names.

    Raises:
        ModelError: The small server does not support a model. Nothing is written then.
        GraphError: The name of a model or a wheel is invalid. Nothing is written then.
        ExportError: A file cannot be written.
    """
    root = Path(folder)
    for name in graphs:
        if not _NAME.fullmatch(name):
            raise GraphError(
                f"deploy: {name!r:.80} is not a valid name of a model", help="use letters, digits, _ and -"
            )
    for wheel in wheels:
        if not _WHEEL.fullmatch(os.path.basename(wheel)) or not os.path.isfile(wheel):
            raise GraphError(
                f"deploy: {wheel!r:.200} is not a wheel",
                help="give the path of a file NAME-VERSION-TAGS.whl; `python -m build` in a checkout makes one",
            )
    release = lowering.runtime or installed
    is_plain = not is_supported(release)
    for name, graph in graphs.items() if is_plain else ():
        _check_plain(name, graph, release)
    _make_folder(root / "models")
    for name, graph in graphs.items():
        export(graph, root / "models" / f"{name}.onnx", None, lowering)
    required = requirements(release, gpu=settings.provider == "cuda")
    text = dockerfile([*graphs], required, wheels=wheels, batch=settings.batch, is_plain=is_plain)
    ignored = ["*", "!models/", *["!wheels/"] * bool(wheels), *["!server.py"] * is_plain]
    texts = {"Dockerfile": text, ".dockerignore": "".join(f"{each}\n" for each in ignored)}
    files = [_write(root / name, content.encode()) for name, content in texts.items()]
    if is_plain:
        files.append(_write(root / "server.py", PLAIN_SERVER.encode()))
    if wheels:
        _make_folder(root / "wheels")
        files += [_write(root / "wheels" / os.path.basename(each), Path(each).read_bytes()) for each in wheels]
    return [*sorted(os.fspath(each) for each in (root / "models").iterdir()), *files]


def _check_plain(name: str, graph: Graph, release: str) -> None:
    """Raise `ModelError` if onnxruntime alone cannot serve a graph: it has state, or types that NumPy lacks."""
    fix = f"give --runtime {OLDEST_SUPPORTED} or newer, whose image has graphcore's server"
    if graph.buffers:
        raise ModelError(f"deploy: {name} has buffers, which onnxruntime {release} alone does not keep", help=fix)
    for label, type_ in {**{s.name: s.type for s in graph.inputs}, **graph.output_types}.items():
        if not isinstance(type_, TensorType) or type_.dtype not in _PLAIN_DTYPES:
            raise ModelError(
                f"deploy: {name}: {label!r} is {type_}, which the server of onnxruntime {release} alone does not take",
                help=fix,
            )


def kserve_manifest(
    path: str | os.PathLike[str], name: str, settings: Settings, *, image: str | None, storage: str | None
) -> list[str]:
    """Write the manifest of an InferenceService. Returns a list with its path."""
    return [_write(Path(path), inference_service(name, settings, image=image, storage=storage).encode())]


def _release(release: str) -> str:
    """Return the version specifier for pip: 1.20 means any patch release."""
    return release if release.count(".") > 1 else f"{release}.*"


def _next(folder: Path) -> int:
    """Return the number of the next version of a model."""
    versions = [int(each.name) for each in folder.glob("*") if each.name.isdigit()] if folder.is_dir() else []
    return max(versions, default=0) + 1


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(
            f"deploy: {folder} cannot be created: {error.strerror or error}",
            help="choose a folder with write permission",
        ) from None


def _write(path: Path, content: bytes) -> str:
    try:
        replace_files([(os.path.realpath(path), [content])])
    except OSError as error:
        raise ExportError(
            f"deploy: {path} cannot be written: {error.strerror or error}", help="choose an existing folder"
        ) from None
    return os.fspath(path)


# Manifests of KServe and images of graphcore's server, as text. docs/howto/serve.md lists how they were tested.

_RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Valid names of Kubernetes: RFC 1123."""

PORT = 8080
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:@-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def kubernetes_name(name: str) -> str:
    """Return a valid name for Kubernetes. Raises `GraphError` if no character is valid."""
    result = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-")
    if not _RESOURCE_NAME.fullmatch(result):
        raise GraphError(
            f"deploy: {name!r:.80} is not a valid name for Kubernetes", help="give --name with letters or digits"
        )
    return result


def inference_service(name: str, settings: Settings, *, image: str | None, storage: str | None) -> str:
    """Return the manifest of an InferenceService as YAML.

    storage: the location of a model repository for Triton, such as `s3://models/repository`, on which KServe runs
    Triton; None to run the image of graphcore's server.
    """
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    if settings.provider == "cuda":
        resources["limits"]["nvidia.com/gpu"] = "1"
    predictor: dict[str, Any] = {"minReplicas": 1, "maxReplicas": settings.instances}
    if storage is not None:
        predictor["model"] = {
            "modelFormat": {"name": "triton"},
            "protocolVersion": "v2",
            "storageUri": storage,
            "resources": resources,
        }
    else:
        probe = {"httpGet": {"path": "/v2/health/ready", "port": PORT}, "periodSeconds": 5}
        predictor["containers"] = [
            {
                "name": "kserve-container",
                "image": image or f"{name}:1",
                "args": ["--batch", str(max(settings.batch, 1))],
                "ports": [{"containerPort": PORT, "protocol": "TCP"}],
                "readinessProbe": probe,
                "resources": resources,
            }
        ]
    return yaml(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": kubernetes_name(name)},
            "spec": {"predictor": predictor},
        }
    )


def yaml(value: Mapping[str, Any]) -> str:
    """Return mappings, lists, strings, numbers and bools as YAML."""
    return "".join(f"{line}\n" for line in _lines(value, 0))


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, (Mapping, list)) and each:
                yield f"{indent}{_scalar(key)}:"
                yield from _lines(each, depth + 1)
            else:
                yield f"{indent}{_scalar(key)}: {_scalar(each)}"
        return
    for each in value:
        if isinstance(each, (Mapping, list)) and each:
            first, *rest = _lines(each, depth + 1)
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}- {_scalar(each)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not value.endswith(":"):
        return value
    return json.dumps(value)


_WHEEL = re.compile(r"([A-Za-z0-9_.]+)-[A-Za-z0-9_.!+]+(-\d[A-Za-z0-9_.]*)?(-[A-Za-z0-9_.]+){3}\.whl")


def requirements(release: str, *, gpu: bool) -> list[str]:
    """Return the requirements of an image with a release of onnxruntime: graphcore only where it runs on it."""
    package = f"{'onnxruntime-gpu' if gpu else 'onnxruntime'}=={_release(release)}"
    return [f"graphcore-engine[serve]=={__version__}", package] if is_supported(release) else [package]


def dockerfile(
    names: Sequence[str], required: Sequence[str], *, wheels: Sequence[str] = (), batch: int, is_plain: bool = False
) -> str:
    """Return a Dockerfile of a server for models in `models/NAME.onnx`.

    required: the requirements for pip. wheels: files in `wheels/`, installed instead of the requirements of their
    names. is_plain: the server is `server.py`, and graphcore's otherwise.
    """
    gpu = any(each.startswith("onnxruntime-gpu") for each in required)
    installed = {_project(each): each for each in required}
    for wheel in map(os.path.basename, wheels):
        project = _project(wheel)
        extra = "[serve]" if project == "graphcore-engine" else ""
        installed[project] = f"/wheels/{wheel}{extra}"
    packages = " ".join(f"'{each}'" for each in installed.values())
    paths = [f"/models/{name}.onnx" for name in names]
    start = [*(["python", "/server.py"] if is_plain else ["graphcore", "serve"]), *paths]
    start += ["--host", "0.0.0.0", "--port", str(PORT)]
    start += [] if is_plain else ["--provider", "cuda" if gpu else "cpu"]
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/v2/health/ready', timeout=2)"
    return "\n".join(
        [
            "FROM python:3.13-slim",  # for which onnxruntime has wheels from 1.20 on
            *(["COPY wheels/ /wheels/"] if wheels else []),
            f"RUN pip install --no-cache-dir {packages} \\",
            "    && useradd --uid 1000 --no-create-home server",
            *(["COPY server.py /"] if is_plain else []),
            "COPY models/ /models/",
            "USER 1000",
            f"EXPOSE {PORT}",
            f"HEALTHCHECK --interval=10s --start-period=60s CMD {json.dumps(['python', '-c', probe])}",
            "STOPSIGNAL SIGTERM",
            f"ENTRYPOINT {json.dumps(start)}",
            f"CMD {json.dumps(['--batch', str(max(batch, 1))])}",
            "",
        ]
    )


def _project(requirement: str) -> str:
    """Return the name of the project of a requirement or wheel, as pip compares it."""
    name = re.split(r"[\[=]|-\d", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


PLAIN_SERVER = '''"""Serve ONNX files with onnxruntime alone, by the JSON of the Open Inference Protocol."""

import argparse
import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

TYPES = {
    "bool": ("BOOL", "?"), "uint8": ("UINT8", "u1"), "uint16": ("UINT16", "u2"), "uint32": ("UINT32", "u4"),
    "uint64": ("UINT64", "u8"), "int8": ("INT8", "i1"), "int16": ("INT16", "i2"), "int32": ("INT32", "i4"),
    "int64": ("INT64", "i8"), "float16": ("FP16", "f2"), "float": ("FP32", "f4"), "double": ("FP64", "f8"),
    "string": ("BYTES", "O"),
}
MAX_BYTES = 64 << 20


MODELS = {}


def type_of(end):
    return TYPES[end.type.removeprefix("tensor(").removesuffix(")")]


def infer(model, tensors):
    types = {end.name: type_of(end)[1] for end in model.get_inputs()}
    if sorted(types) != sorted(tensor["name"] for tensor in tensors):
        raise ValueError(f"the inputs of the model are {', '.join(types)}")
    arrays = {t["name"]: np.array(t["data"], types[t["name"]]).reshape(t["shape"]) for t in tensors}
    results = zip(model.get_outputs(), model.run(None, arrays))
    pairs = [({"name": end.name, "datatype": type_of(end)[0]}, array) for end, array in results]
    return [{**words, "shape": list(array.shape), "data": array.ravel().tolist()} for words, array in pairs]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.removeprefix("/v2/models/").removesuffix("/ready")
        status = 200 if name in MODELS or self.path in ("/v2", "/v2/health/live", "/v2/health/ready") else 404
        self.reply(status, {"name": "onnxruntime", "version": onnxruntime.__version__, "models": [*MODELS]})

    def do_POST(self):
        try:
            size = int(self.headers.get("Content-Length", -1))
            if not 0 <= size <= MAX_BYTES:
                self.close_connection = True
                raise ValueError(f"Content-Length must be 0 to {MAX_BYTES}, got {size}")
            body = self.rfile.read(size)
            name = self.path.removeprefix("/v2/models/").removesuffix("/infer")
            if name not in MODELS:
                return self.reply(404, {"error": f"{self.path} is not /v2/models/NAME/infer of {', '.join(MODELS)}"})
            self.reply(200, {"model_name": name, "outputs": infer(MODELS[name], json.loads(body)["inputs"])})
        except Exception as error:  # of the request, or of a kernel for its arrays
            self.reply(400, {"error": f"{type(error).__name__}: {error}"})

    def reply(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--batch", help="ignored: requests are not batched")
    options = parser.parse_args()
    installed = onnxruntime.get_available_providers()
    providers = [each for each in ("CUDAExecutionProvider", "CPUExecutionProvider") if each in installed]
    for path in options.models:
        MODELS[os.path.basename(path).removesuffix(".onnx")] = onnxruntime.InferenceSession(path, providers=providers)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    print(f"serving {', '.join(MODELS)} at http://{options.host}:{server.server_port}/v2", flush=True)
    server.serve_forever()
'''
"""The server of images without graphcore."""

_PLAIN_DTYPES = NAMES.keys() - {DType.bfloat16}
"""The dtypes of that server."""
