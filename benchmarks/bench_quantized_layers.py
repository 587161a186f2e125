"""Recurrent layers and convolutions quantised, beside float32 and beside onnxruntime's own, in the same run.

    python -m benchmarks.bench_quantized_layers
    pip install nudenet rapidocr-onnxruntime      # models that others trained; those not installed are left out

CPU time of one thread, and how far results are off: the length of the change over that of the result. Images are noise
whose frequencies fall off as those of photographs do: four for the ranges, another one for the figures. onnxruntime
quantises LSTMs by `quantize_dynamic`, convolutions by `quantize_static` with the same images (QDQ, a scale for each
output). It leaves GRU, RNN and ConvTranspose in float32, beside which those of bytes stand.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

import graphcore as gc
from benchmarks.timing import Bounds, compare
from graphcore import Graph

ROUNDS = 15
Array = np.ndarray[Any, Any]

IMAGES = (
    ("nudenet", "320n.onnx", (320, 320), 0.7),
    ("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", (48, 320), 0.85),
    ("rapidocr_onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192), 1.4),
)
"""Package, file, height and width, and the most that bytes may take of float32's time. The last has convolutions of a
few hundred numbers, which stay, and every change between floats and bytes costs."""


def image(height: int, width: int, seed: int) -> Array:
    """Return noise, float32[1, 3, height, width] from 0 to 1, with fewer high frequencies than low ones."""
    rng = np.random.default_rng(seed)
    at = np.meshgrid(np.fft.fftfreq(height) * height, np.arange(width // 2 + 1), indexing="ij")
    waves = rng.standard_normal((2, 1, 3, height, width // 2 + 1))
    result: Array = np.fft.irfft2((waves[0] + 1j * waves[1]) / (1 + np.hypot(*at)), s=(height, width))
    result = (result - result.min()) / (result.max() - result.min())
    return np.asarray(result, np.float32)


GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}

STEPS = (("GRU", 320, 1, 1), ("GRU", 512, 1, 1), ("GRU", 384, 4, 2), ("RNN", 512, 1, 1), ("RNN", 384, 4, 2))
"""Recurrent layers without a kernel of bytes: operator, width of what comes in and goes out, rows, and directions."""

TRANSPOSED = (
    ((256, 128, 2, 2), (32, 32), 2, 0),
    ((256, 128, 4, 4), (32, 32), 2, 1),
    ((512, 256, 4, 4), (16, 16), 2, 1),
    ((256, 128, 16), (100,), 8, 4),
    ((128, 64, 4), (6400,), 2, 1),
)
"""Transposed convolutions: filters, what comes in, stride and padding, as of U-Nets, pose detectors and vocoders."""


def recurrent(op_type: str, width: int, hidden: int, directions: int) -> onnx.ModelProto:
    """Build a recurrent layer with random weights."""
    rng, gates = np.random.default_rng(0), GATES[op_type]
    arrays = {
        "w": rng.standard_normal((directions, gates * hidden, width)) / np.sqrt(width),
        "r": rng.standard_normal((directions, gates * hidden, hidden)) / np.sqrt(hidden),
        "b": rng.standard_normal((directions, 2 * gates * hidden)) / 4,
    }
    value: dict[str, Any] = {"linear_before_reset": 1} if op_type == "GRU" else {}  # as PyTorch has it
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(op_type, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, direction=direction, **value)
    return model(node, ["length", "batch", width], ["length", directions, "batch", hidden], arrays)


def transposed(shape: tuple[int, ...], stride: int, pad: int) -> onnx.ModelProto:
    """Build a transposed convolution with random filters."""
    rng, rank = np.random.default_rng(0), len(shape) - 2
    arrays = {"w": rng.standard_normal(shape) / np.sqrt(shape[0]), "b": rng.standard_normal(shape[1])}
    node = helper.make_node("ConvTranspose", [*"xwb"], ["y"], strides=[stride] * rank, pads=[pad] * 2 * rank)
    return model(node, ["n", shape[0], *["height", "width"][:rank]], None, arrays)


def model(
    node: onnx.NodeProto, shape: list[Any], result: list[Any] | None, arrays: dict[str, Array]
) -> onnx.ModelProto:
    results = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    graph = helper.make_graph([node], "layer", [x], [y], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Images(CalibrationDataReader):  # type: ignore[misc, unused-ignore]
    """The images that onnxruntime finds ranges on."""

    def __init__(self, name: str, arrays: list[Array]) -> None:
        self._rest = iter([{name: array} for array in arrays])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._rest, None)


def bare(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def distance(result: Array, exact: Array) -> float:
    return float(np.linalg.norm(result.astype(np.float64) - exact) / np.linalg.norm(exact.astype(np.float64)))


def measured(
    bounds: Bounds, what: str, path: Path, other: Path | None, x: Array, samples: list[Array], most: float
) -> None:
    """Print how long ours and onnxruntime's take beside float32, and how far both are off.

    other: the file that onnxruntime quantised, None where it has no kernel of bytes.
    """
    graph = Graph.load(path).optimize()
    session = gc.InferenceSession(intra_op_num_threads=1)
    small, report = gc.quantize(graph, samples=[(sample,) for sample in samples] or None)
    floats, bytes_ = session.load(graph), session.load(small)
    exact, ours = floats(x)[0], bytes_(x)[0]
    detail = f"off {distance(ours, exact):.3f}, {len(report.quantized)} of {len(report)} layers"
    ratio = compare(lambda: bytes_(x), lambda: floats(x), ROUNDS, clock=time.process_time)
    bounds.ratio(f"{what}: int8 beside float32", ratio, most)
    if other is None:
        print(f"{'':<52} {detail}")
        return
    theirs = bare(other)
    name = theirs.get_inputs()[0].name
    peers = theirs.run(None, {name: x})[0]
    ratio = compare(lambda: bytes_(x), lambda: theirs.run(None, {name: x}), ROUNDS, clock=time.process_time)
    bounds.ratio(f"{what}: beside onnxruntime's", ratio, 1.15)
    print(f"{'':<52} {detail}; onnxruntime's {distance(peers, exact):.3f}")


def main() -> int:
    logging.disable(logging.WARNING)
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "model.onnx", Path(folder) / "other.onnx"
        for width, hidden, length, batch in ((256, 256, 64, 1), (384, 384, 64, 4)):
            onnx.save(recurrent("LSTM", width, hidden, 2), path)
            quantize_dynamic(str(path), str(other), op_types_to_quantize=["LSTM"], per_channel=True)
            x = np.random.default_rng(1).standard_normal((length, batch, width)).astype(np.float32)
            measured(bounds, f"LSTM {width} to {hidden}, {length} x {batch}", path, other, x, [], 0.6)
        for op_type, width, batch, directions in STEPS:
            onnx.save(recurrent(op_type, width, width, directions), path)
            x = np.random.default_rng(1).standard_normal((64, batch, width)).astype(np.float32)
            what = f"{op_type} {width} to {width}, 64 x {batch}, {directions} ways"
            measured(bounds, what, path, None, x, [], 0.95)
        for shape, size, stride, pad in TRANSPOSED:
            onnx.save(transposed(shape, stride, pad), path)
            arrays = [np.random.default_rng(seed).random((1, shape[0], *size)).astype(np.float32) for seed in range(4)]
            what = f"ConvTranspose {shape[0]} to {shape[1]}, {size}, kernel {shape[2]}, stride {stride}"
            measured(bounds, what, path, None, arrays[-1], arrays[:-1], 0.9)
        for package, file, (height, width), most in IMAGES:
            spec = importlib.util.find_spec(package)
            places = () if spec is None else spec.submodule_search_locations or ()
            result = next((p for place in places for p in Path(place).rglob(file)), None)
            if result is None:
                print(f"{package}: not measured, it is not installed")
                continue
            arrays = [image(height, width, seed) for seed in range(4)]
            Graph.load(result).optimize().export(path, target="onnx", optimize="off")
            name = bare(path).get_inputs()[0].name
            quantize_static(str(path), str(other), Images(name, arrays), QuantFormat.QDQ, per_channel=True)
            measured(bounds, file, result, other, image(height, width, 9), arrays, most)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
