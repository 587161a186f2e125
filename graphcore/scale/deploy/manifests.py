"""Manifests of KServe and an image of our own server, as text. Neither is run here: docs/scale.md says what was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphcore._version import __version__
from graphcore.errors import GraphError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Names of Kubernetes: RFC 1123."""

PORT = 8080
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:@-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def kubernetes_name(name: str) -> str:
    """Return a name that Kubernetes takes. Raises `GraphError` where nothing of it does."""
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-")
    if not _NAME.fullmatch(made):
        raise GraphError(f"deploy: {name!r:.80} is no name for Kubernetes", help="give --name with letters in it")
    return made


def inference_service(name: str, *, image: str, storage: str | None, batch: int, instances: int, gpu: bool) -> str:
    """Return the manifest of an InferenceService as YAML.

    storage: where a model repository for Triton lies, such as `s3://models/repository`: KServe then runs Triton on it.
    Without it the image of our own server is run.
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
    """Return maps, lists, text, numbers and bools as YAML."""
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
    """Return a Dockerfile of our own server for models beside it: `models/NAME.onnx`.

    runtime: the release of onnxruntime that is installed in it.
    """
    package = "onnxruntime-gpu" if gpu else "onnxruntime"
    start = ["python", "-m", "graphcore.scale.serving.http_server", *(f"/models/{name}.onnx" for name in names)]
    start += ["--host", "0.0.0.0", "--port", str(PORT), "--provider", "cuda" if gpu else "cpu"]
    probe = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/v2/health/ready', timeout=2)"
    return "\n".join(
        [
            "FROM python:3.13-slim",
            f"RUN pip install --no-cache-dir 'graphcore-engine=={__version__}' '{package}=={runtime}' \\",
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
