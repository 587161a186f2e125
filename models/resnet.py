"""ResNet: images to the logits of classes. The defaults are ResNet-50."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import REQUIRED, Given, Schema, Source, Weights, arrays_of, require
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

EPSILON = 1e-5
REDUCTION = 4
"""The factor by which the middle of a bottleneck is narrower."""

SCHEMA = Schema(
    ("resnet",),
    {
        **dict.fromkeys(("num_channels", "embedding_size"), int),
        **dict.fromkeys(("hidden_sizes", "depths"), list),
        "layer_type": str,
        **dict.fromkeys(("downsample_in_first_stage", "downsample_in_bottleneck"), bool),
    },
    {
        "num_channels": 3,
        "embedding_size": REQUIRED,
        "hidden_sizes": REQUIRED,
        "depths": REQUIRED,
        "layer_type": "bottleneck",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    },
    {"hidden_act": ("relu",), "is_encoder_decoder": (False,)},
    frozenset({"stage_names", "out_features", "out_indices"}),
)


@dataclass(frozen=True, slots=True)
class Config:
    """The shape of a residual network. stem: the channels in front of the first stage. widths, depths: the channels
    and the layers of each stage. bottleneck: layers are three convolutions, narrow in the middle, else two.
    halves_first: the first stage halves the image too. halves_early: a bottleneck halves it in its first convolution,
    not in its second.
    """

    channels: int = 3
    stem: int = 64
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    bottleneck: bool = True
    halves_first: bool = False
    halves_early: bool = False
    classes: int = 1000

    def __post_init__(self) -> None:
        """Raise `ModelError` for values that no network has."""
        _config.require_values(self)
        widths, depths = self.widths, self.depths
        require(len(widths) == len(depths), f"{len(widths)} widths, and {len(depths)} depths")
        require(sum(depths) <= _config.MOST_LAYERS, f"{sum(depths)} layers, and {_config.MOST_LAYERS} are the most")
        narrow = [w for w in widths if w % REDUCTION and self.bottleneck]
        require(not narrow, f"widths {narrow} of bottlenecks are no multiples of {REDUCTION}")

    @staticmethod
    def read(source: Source, ignore: Collection[str] = ()) -> Config:
        """Read a Config from a `config.json`: a dict of its fields or its path.

        ignore: unknown fields to ignore. Raises `ModelError` with the names of all fields that are missing, unknown or
        of unsupported values.
        """
        content = _config.content_of(source)
        given = _config.read(content, SCHEMA, ignore)
        kind, widths, depths = given["layer_type"], given["hidden_sizes"], given["depths"]
        require(kind in ("bottleneck", "basic"), f"layer_type is {kind!r:.80}; computed is 'bottleneck' or 'basic'")
        require(len(widths) == len(depths), f"{len(widths)} hidden_sizes, and {len(depths)} depths")
        require(sum(depths) <= _config.MOST_LAYERS, f"{sum(depths)} layers, and {_config.MOST_LAYERS} are the most")
        narrow = [w for w in widths if w % REDUCTION and kind == "bottleneck"]
        require(not narrow, f"hidden_sizes {narrow} are no multiples of {REDUCTION}")
        return Config(
            channels=given["num_channels"],
            stem=given["embedding_size"],
            widths=tuple(widths),
            depths=tuple(depths),
            bottleneck=kind == "bottleneck",
            halves_first=given["downsample_in_first_stage"],
            halves_early=given["downsample_in_bottleneck"],
            classes=_config.classes(content),
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution and the normalisation after it."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """The convolutions of a residual layer, and that of its shortcut where the image size or the channels change."""

    name: str
    path: tuple[Convolution, ...]
    shortcut: Convolution | None


def stem(config: Config) -> Convolution:
    """Return the convolution before all stages."""
    return Convolution("resnet.embedder.embedder", config.channels, config.stem, 7, 2)


def layers(config: Config) -> Iterator[Layer]:
    """Return the layers of all stages, in order."""
    inputs = config.stem
    for stage, (width, depth) in enumerate(zip(config.widths, config.depths, strict=True)):
        for number in range(depth):
            stride = 2 if not number and (stage or config.halves_first) else 1
            name = f"resnet.encoder.stages.{stage}.layers.{number}"
            path = _path(config, f"{name}.layer", inputs, width, stride)
            changes = inputs != width or stride != 1
            yield Layer(name, path, Convolution(f"{name}.shortcut", inputs, width, 1, stride) if changes else None)
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
    """Return the shapes of the weights, by the names in checkpoints."""
    made: dict[str, tuple[int, ...]] = {}
    all_of = [stem(config)]
    for layer in layers(config):
        all_of += [*layer.path, *([layer.shortcut] if layer.shortcut else [])]
    for part in all_of:
        made[f"{part.name}.convolution.weight"] = (part.outputs, part.inputs, part.kernel, part.kernel)
        for kind in ("weight", "bias", "running_mean", "running_var"):
            made[f"{part.name}.normalization.{kind}"] = (part.outputs,)
    made["classifier.1.weight"] = (config.classes, config.widths[-1])
    made["classifier.1.bias"] = (config.classes,)
    return made


def build(
    config: Config | Source, weights: Given = None, *, image: tuple[int, int] | None = None, seed: int = 0
) -> Graph:
    """Build the network as a Graph.

    config: a `Config`, or an argument of `Config.read`. weights: arrays by the names of the checkpoint, or the path of
    a safetensors file or of the index of several; float32, float16 or bfloat16; None for random ones of `seed`. image:
    the height and width of all images, if known: the runtime then adds in place, and takes 1.5 % less time.

    The input is `pixel_values` float32[batch, channels, height, width], the output `logits` float32[batch, classes].
    Raises `ModelError` with the names of all weights that do not match, or for an image of no size. He et al. 2015,
    arXiv:1512.03385.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    arrays = arrays_of(weights, shapes(config), seed=seed, ignored=r".*\.num_batches_tracked")
    pixels = TensorType(DType.float32, ["batch", config.channels, *(_sides(image) or ("height", "width"))])
    return _Network(Graph("resnet", {"pixel_values": pixels}), arrays).build(config)


def _sides(image: tuple[int, int] | None) -> tuple[int, int] | None:
    if image is None:
        return None
    sides = tuple(image) if isinstance(image, (tuple, list)) else ()
    fits = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    require(fits, f"image is {image!r:.80}, not a height and a width in pixels", "such as (224, 224), or leave it out")
    return sides[0], sides[1]


class _Network:
    def __init__(self, graph: Graph, arrays: Mapping[str, Array]) -> None:
        self.graph = graph
        self.weights = Weights(graph, arrays)

    def convolve(self, x: Symbol, part: Convolution) -> Symbol:
        before = part.kernel // 2
        filters = self.weights[f"{part.name}.convolution.weight"]
        made = ops.conv2d(x, filters, part.stride, padding=[before] * 4, input_layout="NCHW", filter_layout="FCRS")
        kinds = ("weight", "bias", "running_mean", "running_var")
        scale, bias, mean, var = (self.weights[f"{part.name}.normalization.{kind}"] for kind in kinds)
        return ops.batch_norm(made, scale, bias, mean, var, EPSILON)  # which the runtime folds into the filters

    def layer(self, x: Symbol, layer: Layer) -> Symbol:
        made = x
        for part in layer.path[:-1]:
            made = ops.relu(self.convolve(made, part))
        made = self.convolve(made, layer.path[-1])
        # After the main path: the runtime then computes it just before the addition, and it is in the processor's
        # cache.
        beside = x if layer.shortcut is None else self.convolve(x, layer.shortcut)
        return ops.relu(made + beside)

    def build(self, config: Config) -> Graph:
        with self.graph.layer("stem"):
            x = ops.relu(self.convolve(self.graph["pixel_values"], stem(config)))
            x = ops.max_pool2d(x, 3, 2, padding=1, input_layout="NCHW")
        for layer in layers(config):
            with self.graph.layer(layer.name.removeprefix("resnet.encoder.").replace(".", "/")):
                x = self.layer(x, layer)
        with self.graph.layer("head"):
            pooled = ops.mean(x, axis=(2, 3))
            logits = ops.linear(pooled, self.weights["classifier.1.weight"], self.weights["classifier.1.bias"])
        self.graph.output(logits=logits)
        return self.graph
