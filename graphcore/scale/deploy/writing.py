"""Files of a deployment, written: a model repository for Triton, an image's folder, a manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphcore.errors import ExportError, GraphError
from graphcore.ir.graph import Graph, TargetName
from graphcore.runtime.export import Options, export
from graphcore.scale.deploy.manifests import dockerfile, inference_service
from graphcore.scale.deploy.text_format import written
from graphcore.scale.deploy.triton import Settings, configured, ensemble, fitted, initial_states
from graphcore.support.atomic_files import replace_files

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Lowering:
    """The form of a file. runtime: the release of onnxruntime that the server has, None for most of them."""

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
    """Write models into a model repository for Triton, and return the paths of the files.

    graphs: by the names of the models. pipeline: the name of an ensemble that runs them one after another. version: of
    the models, by default one more than the latest that is there. A model's configuration is written after the model,
    so that Triton never reads one without the other. Raises `ModelError` for what Triton has not, before anything is
    written, `GraphError` for names and versions that it refuses, and `ExportError` where a file cannot be written.
    """
    names = [*graphs, *([pipeline] if pipeline is not None else [])]
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise GraphError(
                f"deploy: {name!r:.80} is no name of a model, or that of two", help="give letters, digits, _ and -"
            )
    if version is not None and version < 1:
        raise GraphError(f"deploy: version {version} is no number from 1 on", help="leave it out")
    graphs = {name: fitted(name, graph, settings) for name, graph in graphs.items()}
    configs = {name: configured(name, graph, settings) for name, graph in graphs.items()}
    whole = ensemble(pipeline, graphs, [*configs.values()]) if pipeline is not None else None
    root = Path(folder)
    made: list[str] = []
    for name, graph in graphs.items():
        place = root / name / str(version or _next(root / name))
        _make(place)
        export(graph, place / "model.onnx", None, lowering.options())
        made += sorted(os.fspath(each) for each in place.iterdir())
        for state, content in initial_states(graph).items():
            _make(root / name / "initial_state")
            made.append(_write(root / name / "initial_state" / state, content))
        made.append(_write(root / name / "config.pbtxt", written(configs[name]).encode()))
    if whole is not None:
        _make(root / str(pipeline) / "1")  # which Triton wants, though there is nothing in it
        made.append(_write(root / str(pipeline) / "config.pbtxt", written(whole).encode()))
    return made


def docker_folder(
    folder: str | os.PathLike[str], graphs: Mapping[str, Graph], settings: Settings, lowering: Lowering, installed: str
) -> list[str]:
    """Write a folder of which `docker build` makes an image of our own server, and return the paths of the files.

    installed: the release of onnxruntime that the image gets where the lowering names none.
    """
    root = Path(folder)
    _make(root / "models")
    for name in graphs:
        if not _NAME.fullmatch(name):
            raise GraphError(f"deploy: {name!r:.80} is no name of a model", help="give letters, digits, _ and -")
    for name, graph in graphs.items():
        export(graph, root / "models" / f"{name}.onnx", None, lowering.options())
    gpu = settings.provider == "cuda"
    text = dockerfile([*graphs], batch=settings.batch, runtime=_release(lowering.runtime or installed), gpu=gpu)
    made = [_write(root / "Dockerfile", text.encode()), _write(root / ".dockerignore", b"*\n!models/\n")]
    return [*sorted(os.fspath(each) for each in (root / "models").iterdir()), *made]


def kserve_manifest(
    path: str | os.PathLike[str], name: str, settings: Settings, *, image: str | None, storage: str | None
) -> list[str]:
    """Write the manifest of an InferenceService, and return its path in a list."""
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
    """Return what pip takes for a release: 1.20 is any of its patches."""
    return release if release.count(".") > 1 else f"{release}.*"


def _next(folder: Path) -> int:
    """Return the number of the next version of a model."""
    there = [int(each.name) for each in folder.glob("*") if each.name.isdigit()] if folder.is_dir() else []
    return max(there, default=0) + 1


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(
            f"deploy: {folder} cannot be made: {error.strerror or error}", help="choose a folder that can be written to"
        ) from None


def _write(path: Path, content: bytes) -> str:
    try:
        replace_files([(os.path.realpath(path), [content])])
    except OSError as error:
        raise ExportError(
            f"deploy: {path} cannot be written: {error.strerror or error}", help="choose a folder that exists"
        ) from None
    return os.fspath(path)
