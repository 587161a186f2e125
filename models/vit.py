"""The Vision Transformer: image classification from patches. The defaults are ViT-Base."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from graphcore import ops
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import BaseConfig, ModelWeights, Source, WeightsSource, arrays_of, from_file, require
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """The configuration of a Vision Transformer.

    Attributes:
        width: The size of a patch's vector.
        layers: The number of layers.
        heads: The number of attention heads.
        inner: The width inside the dense layers.
        image: The height and width of images in pixels.
        patch: The height and width of patches in pixels.
        channels: The channels of images.
        epsilon: The epsilon of LayerNorm.
        biases: Queries, keys and values have biases.
        classes: The number of classes.
    """

    width: int = from_file("hidden_size", 768)
    layers: int = from_file("num_hidden_layers", 12)
    heads: int = from_file("num_attention_heads", 12)
    inner: int = from_file("intermediate_size", 3072)
    image: int = from_file("image_size", 224)
    patch: int = from_file("patch_size", 16)
    channels: int = from_file("num_channels", 3, 3)
    epsilon: float = from_file("layer_norm_eps", 1e-12, 1e-12)
    biases: bool = from_file("qkv_bias", True, True)
    classes: int = 1000

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)
        require(
            self.width % self.heads == 0,
            f"width (hidden_size) {self.width} is not a multiple of heads (num_attention_heads) {self.heads}",
        )
        require(
            self.image >= self.patch,
            f"an image (image_size) of {self.image} is smaller than a patch (patch_size) of {self.patch}",
        )

    @classmethod
    def _values(cls, content: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
        values = _config.values_of(cls, _config.read(content, SCHEMA, ignore))
        return {**values, "classes": _config.class_count(content)}


SCHEMA = _config.schema_of(
    Config,
    ("vit",),
    {"hidden_act": ("gelu",), "is_encoder_decoder": (False,)},
    "hidden_dropout_prob attention_probs_dropout_prob encoder_stride pooler_output_size pooler_act",
)


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints."""
    width, inner, side = config.width, config.inner, config.image // config.patch
    result: dict[str, tuple[int, ...]] = {
        "vit.embeddings.cls_token": (1, 1, width),
        "vit.embeddings.position_embeddings": (1, side * side + 1, width),
    }
    parts: dict[str, tuple[int, ...]] = {
        "vit.embeddings.patch_embeddings.projection": (width, config.channels, config.patch, config.patch)
    }
    for name in (f"vit.encoder.layer.{number}" for number in range(config.layers)):
        parts |= dict.fromkeys((f"{name}.layernorm_before", f"{name}.layernorm_after"), (width,))
        parts |= {f"{name}.attention.attention.{part}": (width, width) for part in ("query", "key", "value")}
        parts |= {f"{name}.attention.output.dense": (width, width), f"{name}.intermediate.dense": (inner, width)}
        parts |= {f"{name}.output.dense": (width, inner)}
    for name, shape in (parts | {"vit.layernorm": (width,), "classifier": (config.classes, width)}).items():
        result[f"{name}.weight"] = shape
        if config.biases or ".attention.attention." not in name:
            result[f"{name}.bias"] = shape[:1]
    return result


def build(config: Config | Source, weights: WeightsSource = None, *, seed: int = 0) -> Graph:
    """Build the network as a Graph.

    The input is `pixel_values` float32[batch, channels, image, image], the output `logits` float32[batch, classes].

    Args:
        config: A `Config`, or an argument of `Config.read`.
        weights: Arrays by the names of the checkpoint, or the path of a safetensors file or of the index of several;
            float32, float16 or bfloat16. None for random weights.
        seed: The seed of random weights.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match.

    Source: Dosovitskiy et al. 2020, arXiv:2010.11929.
    """
    config = config if isinstance(config, Config) else Config.read(config)
    arrays = arrays_of(weights, shapes(config), seed=seed)
    image = TensorType(DType.float32, ["batch", config.channels, config.image, config.image])
    graph = Graph("vit", {"pixel_values": image})
    parts = ModelWeights(graph, arrays)
    with graph.layer("embeddings"):
        x = _embed(parts, graph["pixel_values"], config)
    batch, places, width = x.shape
    rows = x.reshape(batch * places, width)
    for number in range(config.layers):
        with graph.layer(f"encoder/{number}"):
            rows = _add_layer(parts, rows, f"vit.encoder.layer.{number}", x.shape, config)
    with graph.layer("head"):
        first = rows.reshape(batch, places, width)[:, 0]
        graph.output(logits=parts.dense(parts.layer_norm(first, "vit.layernorm", config.epsilon), "classifier"))
    return graph


def _embed(weights: ModelWeights, pixels: Symbol, config: Config) -> Symbol:
    """Return the vectors of the class token and of all patches."""
    name, side = "vit.embeddings", config.image // config.patch
    filters, bias = (weights[f"{name}.patch_embeddings.projection.{k}"] for k in ("weight", "bias"))
    patches = ops.conv2d(pixels, filters, config.patch, bias=bias, input_layout="NCHW", filter_layout="FCRS")
    batch = pixels.shape[0]
    cells = patches.reshape(batch, config.width, side * side).transpose(0, 2, 1)
    first = ops.broadcast_to(weights[f"{name}.cls_token"], [batch, 1, config.width])
    return ops.concat([first, cells], axis=1) + weights[f"{name}.position_embeddings"]


def _add_layer(weights: ModelWeights, x: Symbol, name: str, shape: Shape, config: Config) -> Symbol:
    """Return the rows of all patches of all images after a layer. shape: of the patches by image."""
    prefix, heads = f"{name}.attention.attention", config.heads
    h = weights.layer_norm(x, f"{name}.layernorm_before", config.epsilon)
    query, key, value = (weights.dense(h, f"{prefix}.{part}").reshape(*shape) for part in ("query", "key", "value"))
    mixed = ops.scaled_dot_product_attention(query, key, value, q_num_heads=heads, kv_num_heads=heads)
    x = x + weights.dense(mixed.reshape(*x.shape), f"{name}.attention.output.dense")
    h = weights.layer_norm(x, f"{name}.layernorm_after", config.epsilon)
    return x + weights.dense(ops.gelu(weights.dense(h, f"{name}.intermediate.dense")), f"{name}.output.dense")
