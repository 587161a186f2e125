"""Write the files of a deployment: a model repository for Triton, a folder for Docker, a manifest for KServe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcore._version import __version__
from graphcore.errors import ExportError, GraphError
from graphcore.ir.graph import Graph, TargetName
from graphcore.runtime.export import Options, export
from graphcore.scale.deploy.triton import Settings, ensemble, initial_states, model_config, to_text, without_scalars
from graphcore.support.atomic_files import replace_files

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Lowering:
    """How to lower models. runtime: the release of onnxruntime on the server, None for most releases."""

    target: TargetName = "cpu"
    runtime: str | None = None
    opset: int | None = None

    def options(self) -> Options:
        """Return the options of an export."""
        return Options(target=self.target, runtime=self.runtime, opset=self.opset)


def triton_repository(
    folder: str | os.PathLike[str],
    graphs: Mapping[str, Graph],
    settings: Settings,
    lowering: Lowering,
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
        lowering: How to lower the models.
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
        export(graph, place / "model.onnx", None, lowering.options())
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
    folder: str | os.PathLike[str], graphs: Mapping[str, Graph], settings: Settings, lowering: Lowering, installed: str
) -> list[str]:
    """Write a folder for `docker build` with graphcore's server and the models. Returns the paths of the files.

    installed: the release of onnxruntime in the image, if `lowering` has none.
    """
    root = Path(folder)
    _make_folder(root / "models")
    for name in graphs:
        if not _NAME.fullmatch(name):
            raise GraphError(
                f"deploy: {name!r:.80} is not a valid name of a model", help="use letters, digits, _ and -"
            )
    for name, graph in graphs.items():
        export(graph, root / "models" / f"{name}.onnx", None, lowering.options())
    gpu = settings.provider == "cuda"
    text = dockerfile([*graphs], batch=settings.batch, runtime=_release(lowering.runtime or installed), gpu=gpu)
    files = [_write(root / "Dockerfile", text.encode()), _write(root / ".dockerignore", b"*\n!models/\n")]
    return [*sorted(os.fspath(each) for each in (root / "models").iterdir()), *files]


def kserve_manifest(
    path: str | os.PathLike[str], name: str, settings: Settings, *, image: str | None, storage: str | None
) -> list[str]:
    """Write the manifest of an InferenceService. Returns a list with its path."""
    text = inference_service(
        name,
        image=image or f"{name}:1",
        storage=storage,
        batch=settings.batch,
        instances=settings.instances,
        gpu=settings.provider == "cuda",
    )
    return [_write(Path(path), text.encode())]


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


def inference_service(name: str, *, image: str, storage: str | None, batch: int, instances: int, gpu: bool) -> str:
    """Return the manifest of an InferenceService as YAML.

    storage: the location of a model repository for Triton, such as `s3://models/repository`, on which KServe runs
    Triton; None to run the image of graphcore's server.
    """
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    if gpu:
        resources["limits"]["nvidia.com/gpu"] = "1"
    predictor: dict[str, Any] = {"minReplicas": 1, "maxReplicas": max(instances, 1)}
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
                "image": image,
                "args": ["--batch", str(max(batch, 1))],
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


def dockerfile(names: Sequence[str], *, batch: int, runtime: str, gpu: bool) -> str:
    """Return a Dockerfile of graphcore's server for models in `models/NAME.onnx`.

    runtime: the release of onnxruntime to install.
    """
    package = "onnxruntime-gpu" if gpu else "onnxruntime"
    start = ["python", "-m", "graphcore.scale.serving.http_server", *(f"/models/{name}.onnx" for name in names)]
    start += ["--host", "0.0.0.0", "--port", str(PORT), "--provider", "cuda" if gpu else "cpu"]
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/v2/health/ready', timeout=2)"
    return "\n".join(
        [
            "FROM python:3.13-slim",
            f"RUN pip install --no-cache-dir 'graphcore-engine[serve]=={__version__}' '{package}=={runtime}' \\",
            "    && useradd --uid 1000 --no-create-home server",
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
