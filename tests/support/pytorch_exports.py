"""Small models that PyTorch exports, each by both of its exporters: `python -m tests.support.pytorch_exports` (needs
torch and onnxscript) writes them to the archive that tests read, which need neither."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

ARCHIVE = Path(__file__).with_name("pytorch_exports.zip")
EXPORTERS = ("dynamo", "script")


def names() -> list[str]:
    """Return the names of the models in the archive: of the module, and of the exporter."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.namelist()


def load(name: str) -> onnx.ModelProto:
    with zipfile.ZipFile(ARCHIVE) as archive:
        model: onnx.ModelProto = onnx.ModelProto.FromString(archive.read(name))
    return model


def modules() -> Mapping[str, tuple[Any, tuple[Any, ...]]]:
    """Return modules by name, each with its operands, whose first axis is dynamic."""
    import torch  # installed where the archive is made
    from torch import nn
    from torch.nn import functional

    class Of(nn.Module):  # type: ignore[misc]
        """A module that calls a function with the modules that it is given."""

        def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
            super().__init__()
            self.function, self.parts = function, nn.ModuleList(parts)

        def forward(self, *operands: Any) -> Any:
            return self.function(*self.parts, *operands)

    x, image, rows = torch.randn(2, 6), torch.randn(2, 4, 8, 8), torch.randn(2, 5, 8)
    ids, flags = torch.randint(0, 9, (2, 5)), torch.randn(2, 6) > 0
    layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval() for _ in range(2)]
    results: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
        "mlp": (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (x,)),
        "convolution": (nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU6()).eval(), (image,)),
        "depthwise": (nn.Conv2d(4, 8, 3, groups=4, stride=2), (image,)),
        "transposed convolution": (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), (image,)),
        "convolution of signals": (nn.Conv1d(5, 4, 3, dilation=2), (rows,)),
        "norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)).eval(), (image,)),
        "layer norm": (nn.LayerNorm(8), (rows,)),
        "pools": (Of(lambda x: functional.avg_pool2d(functional.max_pool2d(x, 2), 2, ceil_mode=True)), (image,)),
        "global pool": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (image,)),
        "activations": (nn.Sequential(nn.GELU(), nn.SiLU(), nn.Mish(), nn.Hardswish(), nn.ELU(), nn.PReLU()), (x,)),
        "softmax": (nn.Sequential(nn.Softmax(-1), nn.LogSoftmax(1)), (x,)),
        "lstm": (nn.LSTM(8, 4, batch_first=True), (rows,)),
        "gru": (nn.GRU(8, 4, batch_first=True, bidirectional=True), (rows,)),
        "rnn": (nn.RNN(8, 4, batch_first=True), (rows,)),
        "attention": (Of(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True).eval()), (rows,)),
        "causal attention": (
            Of(lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)),
            (rows,),
        ),
        "encoder": (nn.Sequential(*layers), (rows,)),
        "embedding": (nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)), (ids,)),
        "resize": (Of(lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear")), (image,)),
        "grid": (
            Of(lambda x, g: functional.grid_sample(x, g, align_corners=False)), (image, torch.rand(2, 3, 3, 2) * 2 - 1)
        ),
        "einsum": (Of(lambda x, y: torch.einsum("bij,bkj->bik", x, y)), (rows, rows)),
        "sums": (Of(lambda x: (x.cumsum(1), x.sum(-1), x.mean(0), x.std(-1), x.prod(1), x.logsumexp(1))), (x,)),
        "order": (Of(lambda x: (*x.topk(3), *x.sort(descending=True), x.argmax(1))), (x,)),
        "gathered": (Of(lambda x, i: (x.gather(1, i), x.index_select(1, i[0]), x[:, i[1]])), (x, ids % 6)),
        "scattered": (Of(lambda x, i: x.scatter_add(1, i, torch.ones_like(x[:, :5]))), (x, ids % 6)),
        "masked": (Of(lambda x, m: torch.where(m, x, 0.0).masked_fill(~m, -1.0)), (x, flags)),
        "parts": (Of(lambda x: torch.cat([x[:, ::2], x[:, -2:], *x.split(3, 1)], 1)[:, None].transpose(1, 2)), (x,)),
        "padded": (Of(lambda x: functional.pad(functional.pad(x, (1, 2)), (2, 1, 0, 1), mode="reflect")), (image,)),
        "integers": (Of(lambda i: ((i // 2) % 3, i.clamp(1, 5), (i << 1) & 6, i.to(torch.float64) / 3)), (ids,)),
        "elementwise": (Of(lambda x: (x.exp().log1p(), x.erf(), x.abs().pow(0.3), x.sin() * x.cos(), x.round())), (x,)),
    }  # fmt: skip
    return {
        name: (each if isinstance(each, Of) else Of(lambda part, x: part(x), each), operands)
        for name, (each, operands) in results.items()
    }


def exported(module: Any, operands: tuple[Any, ...], exporter: str) -> bytes:
    """Return the file that an exporter writes. Raises the exporter's errors."""
    import torch  # as above

    names = [f"x{i}" for i in range(len(operands))]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = os.path.join(folder, "m.onnx")
        options: dict[str, Any] = {"dynamo": exporter == "dynamo", "input_names": names}
        if exporter == "dynamo":
            batch = torch.export.Dim("batch")
            options |= {"dynamic_shapes": {"operands": tuple({0: batch} for _ in operands)}, "external_data": False}
        else:
            options["dynamic_axes"] = {name: {0: "batch"} for name in names}
        torch.onnx.export(module, operands, path, **options)
        model = onnx.load(path)
    for node in [*model.graph.node, *(node for function in model.functions for node in function.node)]:
        for entry in node.metadata_props:  # of which stack traces have the folders of a machine
            entry.value = re.sub(r'File "[^"]*/', 'File "', entry.value)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def main() -> None:
    import torch  # as above

    torch.manual_seed(0)
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (module, operands) in modules().items():
            for exporter in EXPORTERS:
                entry = zipfile.ZipInfo(f"{name} {exporter}")
                archive.writestr(entry, exported(module, operands, exporter), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()
