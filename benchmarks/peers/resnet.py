"""ResNet-50 of random weights in the peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from graphcore.models import resnet

SIDE = 224

BOUNDS = (
    ("graphcore", "onnxruntime on PyTorch's folded export", 1.02),  # about 1: the kernels are the same
    ("graphcore", "PyTorch, eager", 1.0),
)


def cases() -> tuple[Case, ...]:
    return (Case(f"ResNet-50, 1 of {SIDE}x{SIDE}", 1, images(1, SIDE), 15),)


def runs(threads: int, folder: Path, compiles: bool) -> Iterator[tuple[str, Run]]:
    """Return each installed peer and its function; nothing without PyTorch."""
    if not has("torch", "transformers", "onnxscript"):
        return
    module = _torch_module()
    session = gc.InferenceSession(intra_op_num_threads=threads)
    graph = resnet.build(*saved(module, folder), image=(SIDE, SIDE))
    yield "graphcore", on_graphcore(session.load(graph))
    yield "PyTorch, eager", on_torch(alone(module), threads)
    if compiles:
        yield "PyTorch, compile", compiled(alone(module), threads)
    path = export_images(alone(module), SIDE, folder / "exported.onnx")
    yield from on_files(path, session, threads)
    yield from on_openvino(path, threads)
    _fold(module)
    yield from on_files(export_images(alone(module), SIDE, folder / "folded.onnx"), session, threads, "folded export")


def _torch_module() -> Any:
    torch, transformers = package("torch"), package("transformers")
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    result = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)).eval()
    with torch.no_grad():
        for part in result.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                for scale in (part.weight, part.running_var):
                    scale.uniform_(0.5, 1.0, generator=generator)
                for offset in (part.bias, part.running_mean):
                    offset.normal_(0.0, 0.1, generator=generator)
    return result


def _fold(module: Any) -> None:
    """Fold each normalisation into the convolution before it."""
    torch, fusion = package("torch"), package("torch.nn.utils.fusion")
    for part in [part for part in module.modules() if hasattr(part, "normalization")]:
        part.convolution = fusion.fuse_conv_bn_eval(part.convolution, part.normalization)
        part.normalization = torch.nn.Identity()


SUBJECT = Subject("resnet", cases, runs, BOUNDS)
