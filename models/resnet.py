"""ResNet: image classification. The defaults are ResNet-50."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphcore import ops
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import BaseConfig, ModelWeights, Source, WeightsSource, arrays_of, from_file, require
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

EPSILON = 1e-5
REDUCTION = 4
"""The factor by which a bottleneck reduces the channels."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """The configuration of a ResNet.

    Attributes:
        channels: The channels of images.
        stem: The channels before the first stage.
        widths: The channels of each stage.
        depths: The number of layers of each stage.
        bottleneck: A layer has three convolutions with fewer channels in the middle, otherwise two.
        halves_first: The first stage halves the image too.
        halves_early: A bottleneck halves the image in its first convolution, not in its second.
        classes: The number of classes.
    """

    channels: int = from_file("num_channels", 3, 3)
    stem: int = from_file("embedding_size", 64)
    widths: tuple[int, ...] = from_file("hidden_sizes", (256, 512, 1024, 2048))
    depths: tuple[int, ...] = from_file("depths", (3, 4, 6, 3))
    bottleneck: bool = True
    halves_first: bool = from_file("downsample_in_first_stage", False, False)
    halves_early: bool = from_file("downsample_in_bottleneck", False, False)
    classes: int = 1000

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        widths, depths = self.widths, self.depths
        require(len(widths) == len(depths), f"{len(widths)} widths (hidden_sizes), but {len(depths)} depths")
        require(
            sum(depths) <= _config.MAX_LAYERS, f"{sum(depths)} layers, but at most {_config.MAX_LAYERS} are supported"
        )
        narrow = [w for w in widths if w % REDUCTION and self.bottleneck]
        require(not narrow, f"widths (hidden_sizes) {narrow} of bottlenecks are not multiples of {REDUCTION}")

    @classmethod
    def _values(cls, content: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
        values = _config.values_of(cls, _config.read(content, SCHEMA, ignore))
        is_basic = content.get("layer_type") == "basic"
        return {**values, "bottleneck": not is_basic, "classes": _config.class_count(content)}


SCHEMA = _config.schema_of(
    Config,
    ("resnet",),
    {"hidden_act": ("relu",), "is_encoder_decoder": (False,), "layer_type": ("bottleneck", "basic")},
    "stage_names out_features out_indices",
)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution with its batch normalisation."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1


class ResidualLayer(NamedTuple):
    """The convolutions of a residual layer. shortcut: one if the size or the channels change."""

    name: str
    path: tuple[Convolution, ...]
    shortcut: Convolution | None


def stem(config: Config) -> Convolution:
    """Return the convolution before the first stage."""
    return Convolution("resnet.embedder.embedder", config.channels, config.stem, 7, 2)


def layers(config: Config) -> Iterator[ResidualLayer]:
    """Yield the layers of all stages in order."""
    inputs = config.stem
    for stage, (width, depth) in enumerate(zip(config.widths, config.depths, strict=True)):
        for number in range(depth):
            stride = 2 if not number and (stage or config.halves_first) else 1
            name = f"resnet.encoder.stages.{stage}.layers.{number}"
            shortcut = Convolution(f"{name}.shortcut", inputs, width, 1, stride)
            changes = inputs != width or stride != 1
            path = _path(config, f"{name}.layer", inputs, width, stride)
            yield ResidualLayer(name, path, shortcut if changes else None)
            inputs = width


def _path(config: Config, name: str, inputs: int, width: int, stride: int) -> tuple[Convolution, ...]:
    if not config.bottleneck:
        return Convolution(f"{name}.0", inputs, width, 3, stride), Convolution(f"{name}.1", width, width, 3)
    narrow = width // REDUCTION
    first, second = (stride, 1) if config.halves_early else (1, stride)
    return (
        Convolution(f"{name}.0", inputs, narrow, 1, first),
        Convolution(f"{name}.1", narrow, narrow, 3, second),
        Convolution(f"{name}.2", narrow, width, 1),
    )


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints."""
    result: dict[str, tuple[int, ...]] = {}
    convolutions = [stem(config)]
    for _, path, shortcut in layers(config):
        convolutions += [*path, *([shortcut] if shortcut else [])]
    for part in convolutions:
        result[f"{part.name}.convolution.weight"] = (part.outputs, part.inputs, part.kernel, part.kernel)
        for kind in ("weight", "bias", "running_mean", "running_var"):
            result[f"{part.name}.normalization.{kind}"] = (part.outputs,)
    result["classifier.1.weight"] = (config.classes, config.widths[-1])
    result["classifier.1.bias"] = (config.classes,)
    return result


def build(
    config: Config | Source, weights: WeightsSource = None, *, image: tuple[int, int] | None = None, seed: int = 0
) -> Graph:
    """Build the network as a Graph.

    The input is `pixel_values` float32[batch, channels, height, width], the output `logits` float32[batch, classes].

    Args:
        config: A `Config`, or an argument of `Config.read`.
        weights: Arrays by the names of the checkpoint, or the path of a safetensors file or of the index of several;
            float32, float16 or bfloat16. None for random weights.
        image: The height and width of all images, if known. The runtime then adds in place, and takes 1.5 % less time.
        seed: The seed of random weights.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match, or the image size is invalid.

    Source: He et al. 2015, arXiv:1512.03385.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    arrays = arrays_of(weights, shapes(config), seed=seed, ignored=r".*\.num_batches_tracked")
    pixels = TensorType(DType.float32, ["batch", config.channels, *(_sides(image) or ("height", "width"))])
    graph = Graph("resnet", {"pixel_values": pixels})
    parts = ModelWeights(graph, arrays)
    with graph.layer("stem"):
        x = ops.relu(_convolve(parts, graph["pixel_values"], stem(config)))
        x = ops.max_pool2d(x, 3, 2, padding=1, input_layout="NCHW")
    for layer in layers(config):
        with graph.layer(layer.name.removeprefix("resnet.encoder.").replace(".", "/")):
            x = _add_layer(parts, x, layer)
    with graph.layer("head"):
        graph.output(logits=parts.dense(ops.mean(x, axis=(2, 3)), "classifier.1"))
    return graph


def _sides(image: tuple[int, int] | None) -> tuple[int, int] | None:
    if image is None:
        return None
    sides = tuple(image) if isinstance(image, (tuple, list)) else ()
    fits = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    require(fits, f"image is {image!r:.80}, not a height and a width in pixels", "give image=(224, 224), or omit it")
    return sides[0], sides[1]


def _convolve(weights: ModelWeights, x: Symbol, part: Convolution) -> Symbol:
    filters = weights[f"{part.name}.convolution.weight"]
    padding = [part.kernel // 2] * 4
    convolved = ops.conv2d(x, filters, part.stride, padding=padding, input_layout="NCHW", filter_layout="FCRS")
    kinds = ("weight", "bias", "running_mean", "running_var")
    scale, bias, mean, var = (weights[f"{part.name}.normalization.{kind}"] for kind in kinds)
    return ops.batch_norm(convolved, scale, bias, mean, var, EPSILON)  # the runtime folds it into the filters


def _add_layer(weights: ModelWeights, x: Symbol, layer: ResidualLayer) -> Symbol:
    result = x
    for part in layer.path[:-1]:
        result = ops.relu(_convolve(weights, result, part))
    result = _convolve(weights, result, layer.path[-1])
    # Built after the main path, so that the runtime computes it just before the addition, which then finds it in the
    # processor's cache.
    shortcut = x if layer.shortcut is None else _convolve(weights, x, layer.shortcut)
    return ops.relu(result + shortcut)
