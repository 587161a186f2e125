"""Shared parts of the models and their peers: how each peer runs a model, and its feeds."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

import graphcore as gc

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[..., Array]
"""From the arrays of a case to a result of [rows, features]."""


@dataclass(frozen=True, slots=True)
class Case:
    """Feeds. name: such as "MiniLM, 1 of 128 tokens". rounds: the number of turns of each peer."""

    name: str
    batch: int
    feed: tuple[Array, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A model. runs: maps the number of threads, a folder to write to and the use of PyTorch's compiler to names and
    functions, graphcore's first. bounds: the greatest ratio of CPU time of one to another."""

    model: str
    cases: Callable[[], tuple[Case, ...]]
    runs: Callable[[int, Path, bool], Iterator[tuple[str, Run]]]
    bounds: tuple[tuple[str, str, float], ...]


def has(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def package(name: str) -> Any:
    """Import a peer's package as Any: its types change from version to version, and it may be missing."""
    return importlib.import_module(name)


def on_graphcore(model: gc.Model) -> Run:
    def run(*arrays: Array) -> Array:
        result: Array = model(*arrays)[0]
        return result

    return run


def on_onnxruntime(path: Path, threads: int, disabled: tuple[str, ...] = ()) -> Run:
    """disabled: of its optimisers."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=[*disabled]
    )
    names = [i.name for i in session.get_inputs()]

    def run(*arrays: Array) -> Array:
        result: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
        return result

    return run


def on_torch(module: Any, threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)

    def run(*arrays: Array) -> Array:
        with torch.inference_mode():
            result: Array = module(*(torch.from_numpy(array) for array in arrays)).numpy()
        return result

    return run


def compiled(module: Any, threads: int) -> Run:
    """Compile by PyTorch, which takes minutes and a C++ compiler."""
    import torch

    return on_torch(torch.compile(module), threads)


def on_openvino(path: Path, threads: int) -> Iterator[tuple[str, Run]]:
    """Return runs in both of its precisions, if it is installed."""
    if has("openvino"):
        yield "OpenVINO, float32", _on_openvino(path, threads, "f32")
        yield "OpenVINO, bfloat16", _on_openvino(path, threads, "bf16")


def _on_openvino(path: Path, threads: int, precision: str) -> Run:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(path), "CPU", options).create_infer_request()

    def run(*arrays: Array) -> Array:
        return np.array(request.infer([*arrays])[0])

    return run


def on_files(path: Path, session: gc.InferenceSession, threads: int, what: str = "export") -> Iterator[tuple[str, Run]]:
    """Return runs of an exported file on graphcore and on onnxruntime."""
    yield f"graphcore on PyTorch's {what}", on_graphcore(session.load(path))
    yield f"onnxruntime on PyTorch's {what}", on_onnxruntime(path, threads)


def export(
    module: Any, arguments: tuple[Any, ...], names: list[str], dims: dict[str, Any] | tuple[Any, ...], path: Path
) -> Path:
    """Write PyTorch's export. dims: the arguments' dims that vary."""
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, arguments, path, input_names=names, output_names=["result"], dynamic_shapes=dims, dynamo=True,
            external_data=False, verbose=False,
        )  # fmt: skip
    return path


def saved(module: Any, folder: Path) -> tuple[Path, Path]:
    """Save a model of transformers; return the paths of its configuration and weights, as in checkpoints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        module.save_pretrained(folder)
    return folder / "config.json", folder / "model.safetensors"


def alone(module: Any) -> Any:
    """Wrap a model of transformers that returns images' logits as a module from an array to an array."""
    import torch

    class Alone(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.own = module

        def forward(self, pixel_values: Any) -> Any:
            return self.own(pixel_values=pixel_values).logits

    return Alone().eval()


def export_images(module: Any, side: int, path: Path) -> Path:
    """Write PyTorch's export of `alone`, for any number of images of one size."""
    import torch

    dims = {"pixel_values": {0: torch.export.Dim("batch")}}
    return export(module, (torch.zeros((2, 3, side, side)),), ["pixel_values"], dims, path)


def images(batch: int, side: int) -> tuple[Array, ...]:
    return (np.random.default_rng(0).standard_normal((batch, 3, side, side), np.float32),)
