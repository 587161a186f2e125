"""The files of one decoder's weights, for each engine that is installed."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from benchmarks.bench_decode import CONFIG
from benchmarks.peers.decoders import checkpoint, gguf_file, llama_cpp
from benchmarks.peers.decoders.asked import LARGE, SMALL
from benchmarks.peers.decoders.worker import Job
from benchmarks.peers.running import has, package
from graphcore import Graph
from graphcore.models import llama


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's size. rounds: of a measurement. is_wide: it is run in float32 and Q4_K_M too; otherwise its weights
    are rounded to float16 before they are encoded, which needs half of the memory."""

    name: str
    config: llama.Config
    rounds: int
    is_wide: bool


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(SMALL, CONFIG, 5, True),
        Shape(LARGE, llama.Config(32_000, 2048, 5632, 22, 32, 4, 64), 2, False),
    )
}

FORMS: dict[str, Callable[[Graph], Graph]] = {
    "float32": lambda graph: graph,
    "q4_0": lambda graph: gc.quantize(graph, "q4_0").graph,
    "int4 by 128": lambda graph: gc.quantize(graph, "int4").graph,
}
"""Our forms of a decoder."""

_DRAWN, _STEP = 4_194_301, 19_997
"""Random numbers, and how many lie between those that two weights begin with: both prime, so that no rows repeat."""

CACHE = 1024
"""Tokens that the cache of a stream has room for."""


def write(shape: Shape, folder: Path) -> bool:
    """Write the files of all engines; say which engine has none, and why. Return True if there is anything beside ours.

    Without llama.cpp, OpenVINO has no file either.
    """
    weights = random(shape)
    if llama_cpp.folder() is None or not has("gguf"):
        print("llama.cpp is left out: npm install --prefix benchmarks/peers; pip install gguf")
    else:
        _write_gguf(shape, weights, folder)
    if not has("openvino_genai") or not (folder / "q4_0.gguf").exists():
        print("OpenVINO GenAI is left out: pip install openvino-genai; it reads the file that llama.cpp quantises")
    else:
        _write_openvino(folder)
    if not has("onnxruntime_genai", "torch", "transformers", "onnx_ir"):
        print("onnxruntime-genai is left out: pip install onnxruntime-genai onnx-ir torch transformers")
    else:
        write_genai(shape, weights, folder, ("fp32", "int4") if shape.is_wide else ("int4",))
    if not any(folder.iterdir()):
        return False
    _write_ours(shape, weights, folder)
    return True


def _write_ours(shape: Shape, weights: dict[str, np.ndarray[Any, Any]], folder: Path) -> None:
    graph = llama.build(shape.config, weights, cache=CACHE)
    for form in _forms(shape):
        FORMS[form](graph).export(folder / f"{form}.onnx")


def _write_gguf(shape: Shape, weights: dict[str, np.ndarray[Any, Any]], folder: Path) -> None:
    source = folder / "float32.gguf"
    gguf_file.write(shape.config, weights, source)
    llama_cpp.quantize(source, folder / "q4_0.gguf", llama_cpp.Q4_0)
    if shape.is_wide:
        llama_cpp.quantize(source, folder / "q4_k_m.gguf", llama_cpp.Q4_K_M)
    else:
        source.unlink()


def _write_openvino(folder: Path) -> None:
    """Write the graph that the package makes of the GGUF file: a start need not make it again."""
    target = folder / "openvino"
    target.mkdir()
    (target / "model.gguf").symlink_to(folder / "q4_0.gguf")
    with contextlib.redirect_stdout(io.StringIO()):
        package("openvino_genai").LLMPipeline(str(target / "model.gguf"), "CPU", enable_save_ov_model=True)


def write_genai(
    shape: Shape, weights: dict[str, np.ndarray[Any, Any]], folder: Path, precisions: tuple[str, ...]
) -> None:
    """Write a checkpoint, and run the package's model builder on it without a network."""
    source, models = folder / "checkpoint", Path(package("onnxruntime_genai").__file__).parent / "models"
    checkpoint.write(shape.config, weights, source)
    for precision in precisions:
        done = subprocess.run(
            [sys.executable, str(models / "builder.py"), "-i", str(source), "-o", str(folder / f"genai-{precision}"),
             "-p", precision, "-e", "cpu", "-c", str(folder / "genai-cache")],
            env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            print(f"onnxruntime-genai, {precision} is left out: {done.stderr.splitlines()[-1]}")


def jobs(shape: Shape, folder: Path) -> dict[str, Job]:
    """Return the files that each engine opens, ours first."""
    results = {f"graphcore, {form}": Job("ours", str(folder / f"{form}.onnx"), CACHE) for form in _forms(shape)}
    others = (
        ("llama.cpp, float32", "llama_cpp", "float32.gguf"),
        ("llama.cpp, Q4_0", "llama_cpp", "q4_0.gguf"),
        ("llama.cpp, Q4_K_M", "llama_cpp", "q4_k_m.gguf"),
        ("onnxruntime-genai, float32", "genai", "genai-fp32"),
        ("onnxruntime-genai, int4", "genai", "genai-int4"),
        ("OpenVINO GenAI, Q4_0", "openvino", "openvino"),
    )
    return results | {
        name: Job(engine, str(folder / file), CACHE) for name, engine, file in others if (folder / file).exists()
    }


def _forms(shape: Shape) -> list[str]:
    return [form for form in FORMS if shape.is_wide or form != "float32"]


def random(shape: Shape) -> dict[str, np.ndarray[Any, Any]]:
    """Return normal weights of variance 1 / inputs, parts of one long row of numbers, and scales of 1."""
    drawn = np.random.default_rng(0).standard_normal(_DRAWN, np.float32)
    results = {}
    for number, (name, dims) in enumerate(llama.shapes(shape.config).items()):
        if len(dims) == 1:
            results[name] = np.ones(dims, np.float32)
            continue
        part = np.roll(drawn, -_STEP * number) * np.float32(dims[1] ** -0.5)
        results[name] = np.resize(part.astype(np.float32 if shape.is_wide else np.float16), dims)
    return results
