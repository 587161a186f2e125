"""ViT-Base of random weights in the peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import graphcore as gc
from benchmarks.peers.running import (
    Case,
    Run,
    Subject,
    alone,
    compiled,
    export_images,
    has,
    images,
    on_files,
    on_graphcore,
    on_openvino,
    on_torch,
    package,
    saved,
)
from graphcore.models import vit

SIDE = 224

BOUNDS = (
    ("graphcore", "onnxruntime on PyTorch's export", 1.0),
    ("graphcore", "PyTorch, eager", 1.0),
)


def cases() -> tuple[Case, ...]:
    return (Case(f"ViT-Base, 1 of {SIDE}x{SIDE}", 1, images(1, SIDE), 5),)


def runs(threads: int, folder: Path, compiles: bool) -> Iterator[tuple[str, Run]]:
    """Return each installed peer and its function; nothing without PyTorch."""
    if not has("torch", "transformers", "onnxscript"):
        return
    package("torch").manual_seed(0)
    transformers = package("transformers")
    own = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval()
    session = gc.InferenceSession(intra_op_num_threads=threads)
    graph = vit.build(*saved(own, folder))
    yield "graphcore", on_graphcore(session.load(graph))
    for scheme in ("int8_dynamic", "int8_split"):
        yield f"graphcore, {scheme}", on_graphcore(session.load(gc.quantize(graph, scheme).graph))
    module = alone(own)
    yield "PyTorch, eager", on_torch(module, threads)
    if compiles:
        yield "PyTorch, compile", compiled(module, threads)
    path = export_images(module, SIDE, folder / "exported.onnx")
    yield from on_files(path, session, threads)
    yield from on_openvino(path, threads)


SUBJECT = Subject("vit", cases, runs, BOUNDS)
