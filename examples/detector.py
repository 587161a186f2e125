"""A detector with its preprocessing and postprocessing in one graph: from the bytes of an image to labelled boxes.

python examples/detector.py

The detector is a small one that finds coloured squares, and that of the package nudenet where it is installed.
"""

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.types.dims import Dim

SIZE, LIMIT = 320, 10  # pixels of an image that detectors take, boxes that are shown


def preprocess() -> Graph:
    """An image of any size, made square with black below or on the right, resized, as floats from 0 to 1 in NCHW."""
    graph = Graph("preprocess", {"image": TensorType(DType.uint8, ["height", "width", 3])})
    image = graph["image"]
    height, width, _ = image.shape
    side = Dim.maximum(height, width)
    square = ops.pad(image, [0, side - height, 0, side - width, 0, 0])
    pixels = ops.resize(square.cast(DType.float32).permute(2, 0, 1).unsqueeze(0), [1, 3, SIZE, SIZE])
    graph.output(pixels=pixels / 255, side=ops.shape_of(square)[:1].cast(DType.float32))
    return graph


def postprocess(labels: list[str], anchors: str, threshold: float) -> Graph:
    """The best boxes (left, top, right, bottom, in pixels of the image), with scores and labels, the best first."""
    types = {
        "predictions": TensorType(DType.float32, [1, 4 + len(labels), anchors]),
        "side": TensorType("float32", [1]),
    }
    graph = Graph("postprocess", types)
    boxes, scores = graph["predictions"][:, :4].transpose(1, 2), graph["predictions"][:, 4:]
    y = ops.non_maximum_suppression(
        boxes, scores, 100, iou_threshold=0.5, score_threshold=threshold, center_point_box=True, out_dim="kept"
    )
    best, order = ops.top_k(ops.gather_nd(scores, y), Dim.minimum("kept", LIMIT))
    chosen = ops.gather(y, order)
    result = ops.gather(boxes[0], chosen[:, 2]) * (graph["side"] / SIZE)
    middle, half = result[:, :2], result[:, 2:] / 2
    graph.output(
        boxes=ops.concat([middle - half, middle + half], axis=1),
        scores=best,
        labels=ops.gather(graph.constant(np.array(labels)), chosen[:, 1]),
    )
    return graph


def squares() -> Graph:
    """A detector whose single convolution says how red, green or blue each cell of 32 by 32 pixels is."""
    graph = Graph("squares", {"images": TensorType(DType.float32, ["batch", 3, SIZE, SIZE])})
    weights = np.broadcast_to((2 * np.eye(3) - 1)[:, :, None, None] / 32**2, (3, 3, 32, 32)).astype(np.float32)
    filters = graph.weight("filters", np.ascontiguousarray(weights))
    cells = ops.conv2d(graph["images"], filters, stride=(32, 32), input_layout="NCHW", filter_layout="FCRS")
    scores = ops.sigmoid(cells * 10 - 5).flatten(2)
    row, column = np.divmod(np.arange(100, dtype=np.float32), np.float32(10))
    boxes = np.stack([column * 32 + 16, row * 32 + 16, np.full(100, 32, np.float32), np.full(100, 32, np.float32)])
    everywhere = ops.broadcast_to(graph.constant(boxes), ["batch", 4, 100])
    graph.output(output0=ops.concat([everywhere, scores], axis=1))
    return graph


def drawn() -> np.ndarray:
    """A grey image of 480 by 640 pixels with three squares on it."""
    image = np.full((480, 640, 3), 40, np.uint8)
    for number, (row, column) in enumerate([(64, 128), (192, 448), (320, 64)]):
        image[row : row + 64, column : column + 64, number] = 250 - 20 * number
    return image


# The same by NumPy, around the bare model


def resized(image: np.ndarray) -> np.ndarray:
    """Resize a square image, interpolating between pixel centres."""
    side = len(image)
    at = np.clip((np.arange(SIZE, dtype=np.float32) + np.float32(0.5)) * side / SIZE - np.float32(0.5), 0, side - 1)
    low = np.floor(at).astype(int)
    high, part = np.minimum(low + 1, side - 1), (at - low)[:, None]
    rows = image[low] * (1 - part[..., None]) + image[high] * part[..., None]
    return np.asarray(rows[:, low] * (1 - part) + rows[:, high] * part)


def by_numpy(session: onnxruntime.InferenceSession, image: np.ndarray, threshold: float) -> tuple[np.ndarray, ...]:
    """Return boxes, scores and classes."""
    side = max(image.shape)
    square = np.zeros((side, side, 3), np.float32)
    square[: image.shape[0], : image.shape[1]] = image
    pixels = resized(square).transpose(2, 0, 1)[None] / np.float32(255)
    (result,) = session.run(None, {session.get_inputs()[0].name: pixels.astype(np.float32)})
    middle, half = result[0, :2].T, result[0, 2:4].T / 2
    boxes = np.concatenate([middle - half, middle + half], axis=1)
    results: list[tuple[float, int, int]] = []
    for number, scores in enumerate(result[0, 4:]):
        remaining = np.argsort(-scores, kind="stable")[: int((scores > threshold).sum())]
        while len(remaining):
            results.append((float(scores[remaining[0]]), number, int(remaining[0])))
            remaining = remaining[overlaps(boxes[remaining[0]], boxes[remaining]) <= 0.5]
    results.sort(key=lambda row: -row[0])
    best = results[:LIMIT]
    scale = np.float32(side / SIZE)
    return (
        boxes[[i for _, _, i in best]] * scale,
        np.array([score for score, _, _ in best], np.float32),
        np.array([number for _, number, _ in best], int),
    )


def overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the intersection of a box with others over their union."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    both = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1)
    return np.asarray(shared / (both - shared))


def show(path: str, labels: list[str], threshold: float) -> None:
    """Build the whole around the model of a file, write it, run the file, and compare it with NumPy's steps."""
    model = Graph.load(path)
    before, after = preprocess(), postprocess(labels, "anchors", threshold)

    # Three graphs, connected by the names of outputs and inputs.
    whole = gc.compose(before, model.with_dims(batch=1), {"pixels": "images"})
    whole = gc.compose(whole, after, {"output0": "predictions", "side": "side"}, name="detector")

    # The same as calls on Symbols.
    called = Graph("called", {"image": before["image"].type})
    prepared = before(called["image"])
    called.output(**after(model(prepared["pixels"]), prepared["side"]).asdict())

    folded = whole.fold_preprocessing()
    folded.export("detector.onnx")
    print(f"{model.name}: {len(model.nodes)} nodes, whole {len(whole.nodes)}, folded {len(folded.nodes)}")
    image = drawn()
    boxes, scores, names = gc.InferenceSession().load("detector.onnx")(image)
    for box, score, name in zip(boxes[:3], scores, names, strict=False):
        print(f"  {name} {score:.2f} at {box.round().astype(int).tolist()}")
    again = gc.InferenceSession().load(called)(image)
    print("  called as composed:", np.allclose(again[0], boxes, atol=0.05), [*again[2]] == [*names])
    bare = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = by_numpy(bare, image, threshold)
    same = [np.allclose(boxes, wanted[0], atol=0.05), np.allclose(scores, wanted[1], atol=1e-4)]
    print(f"  {len(boxes)} boxes as by NumPy:", all(same), [*names] == [labels[i] for i in wanted[2]])


if __name__ == "__main__":
    squares().export("squares.onnx")
    show("squares.onnx", ["red", "green", "blue"], 0.5)
    package = importlib.util.find_spec("nudenet")
    if package is not None and package.origin is not None:
        show(str(Path(package.origin).with_name("320n.onnx")), [f"class {i}" for i in range(18)], 1e-5)
