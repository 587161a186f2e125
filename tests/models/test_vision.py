"""ResNet and the Vision Transformer: their numbers, configurations and checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, save_tensors
from graphcore.errors import FeedError, ModelError
from graphcore.models import resnet, vit
from tests.support.decoders import gelu, normalised, softmax, some
from tests.support.graphs import Array, operators_on_newest

RNG = np.random.default_rng(3)
NET = resnet.Config(channels=3, stem=4, widths=(8, 16), depths=(2, 2), classes=5)
NETS = {
    "bottlenecks": NET,
    "basic": replace(NET, bottleneck=False),
    "first stage halves": replace(NET, halves_first=True),
    "first convolution halves": replace(NET, halves_early=True),
    "as many channels as before": replace(NET, stem=8, widths=(8, 8)),
}
VIT = vit.Config(width=16, layers=2, heads=4, inner=24, image=11, patch=4, channels=2, classes=5)
VITS = {"biases": VIT, "no biases": replace(VIT, biases=False), "whole image": replace(VIT, image=4)}
NET_FIELDS: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 4,
    "hidden_sizes": [8, 16],
    "depths": [2, 2],
    "id2label": {str(i): f"class {i}" for i in range(5)},
}
VIT_FIELDS: dict[str, Any] = {
    "model_type": "vit",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 11,
    "patch_size": 4,
    "num_channels": 2,
    "id2label": {str(i): f"class {i}" for i in range(5)},
}


def run(graph: Graph, images: Array) -> Array:
    (logits,) = gc.InferenceSession(intra_op_num_threads=1).load(graph)(images)
    result: Array = logits
    return result


# References, image by image


def net_weights(config: resnet.Config) -> dict[str, Array]:
    arrays = some(resnet.shapes(config))
    for name, array in arrays.items():
        if name.endswith("running_var"):
            array[:] = np.abs(array) + 0.5
        elif array.ndim == 4:
            array /= np.float32(array.shape[1] ** 0.5)
    return arrays


def convolved(x: Array, filters: Array, stride: int, before: int) -> Array:
    """[channels, height, width] with [features, channels, kernel, kernel]."""
    x = np.pad(x, ((0, 0), (before, before), (before, before)))
    kernel = filters.shape[-1]
    rows, columns = ((size - kernel) // stride + 1 for size in x.shape[1:])
    array = np.zeros((len(filters), rows, columns))
    for i, j in np.ndindex(rows, columns):
        window = x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
        array[:, i, j] = (filters * window).sum((1, 2, 3))
    return array


def net_logits(config: resnet.Config, arrays: dict[str, Array], image: Array) -> Array:
    w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def step(x: Array, name: str, stride: int) -> Array:
        filters = w[f"{name}.convolution.weight"]
        scale, bias, mean, var = (
            w[f"{name}.normalization.{k}"][:, None, None] for k in ("weight", "bias", "running_mean", "running_var")
        )
        return np.asarray(
            (convolved(x, filters, stride, filters.shape[-1] // 2) - mean) / np.sqrt(var + 1e-5) * scale + bias
        )

    x = np.maximum(step(image.astype(np.float64), "resnet.embedder.embedder", 2), 0)
    x = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    sizes = [(size - 3) // 2 + 1 for size in x.shape[1:]]
    x = np.array(
        [[[c[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max() for j in range(sizes[1])] for i in range(sizes[0])] for c in x]
    )
    for stage, depth in enumerate(config.depths):
        for number in range(depth):
            name = f"resnet.encoder.stages.{stage}.layers.{number}"
            stride = 2 if number == 0 and (stage > 0 or config.halves_first) else 1
            beside = step(x, f"{name}.shortcut", stride) if f"{name}.shortcut.convolution.weight" in w else x
            if config.bottleneck:
                strides = [stride, 1, 1] if config.halves_early else [1, stride, 1]
            else:
                strides = [stride, 1]
            result = x
            for i, own in enumerate(strides):
                result = step(result, f"{name}.layer.{i}", own)
                result = np.maximum(result, 0) if i + 1 < len(strides) else result
            x = np.maximum(result + beside, 0)
    return np.asarray(w["classifier.1.weight"] @ x.mean((1, 2)) + w["classifier.1.bias"])


def vit_logits(config: vit.Config, arrays: dict[str, Array], image: Array) -> Array:
    w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def dense(x: Array, name: str) -> Array:
        return np.asarray(x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.zeros(1)))

    def norm(x: Array, name: str) -> Array:
        return normalised(x, w[f"{name}.weight"], w[f"{name}.bias"], config.epsilon)

    filters = w["vit.embeddings.patch_embeddings.projection.weight"]
    cells = convolved(image.astype(np.float64), filters, config.patch, 0).reshape(config.width, -1).T
    cells = cells + w["vit.embeddings.patch_embeddings.projection.bias"]
    x = np.concatenate([w["vit.embeddings.cls_token"][0], cells]) + w["vit.embeddings.position_embeddings"][0]
    for number in range(config.layers):
        name = f"vit.encoder.layer.{number}"
        h = norm(x, f"{name}.layernorm_before")
        q, k, v = (
            dense(h, f"{name}.attention.attention.{part}").reshape(len(x), config.heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        mixed = softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v
        x = x + dense(mixed.swapaxes(0, 1).reshape(x.shape), f"{name}.attention.output.dense")
        wide = gelu(dense(norm(x, f"{name}.layernorm_after"), f"{name}.intermediate.dense"), "none")
        x = x + dense(wide, f"{name}.output.dense")
    return dense(norm(x, "vit.layernorm")[0], "classifier")


# Numbers


@pytest.mark.parametrize("form", NETS)
def test_resnet_equals_reference_for_images_of_any_size(form: str) -> None:
    config = NETS[form]
    arrays = net_weights(config)
    graph = resnet.build(config, arrays)
    for size in ((32, 32), (33, 47)):
        images = RNG.normal(size=(2, 3, *size)).astype(np.float32)
        want = [net_logits(config, arrays, image) for image in images]
        np.testing.assert_allclose(run(graph, images), want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("form", VITS)
def test_vit_equals_reference(form: str) -> None:
    config = VITS[form]
    arrays = some(vit.shapes(config))
    images = RNG.normal(size=(3, 2, config.image, config.image)).astype(np.float32)
    want = [vit_logits(config, arrays, image) for image in images]
    np.testing.assert_allclose(run(vit.build(config, arrays), images), want, atol=2e-5)


def test_defaults_are_resnet_50_and_vit_base() -> None:
    counts = {
        "resnet": sum(int(np.prod(s)) for n, s in resnet.shapes(resnet.Config()).items() if "running" not in n),
        "vit": sum(int(np.prod(s)) for s in vit.shapes(vit.Config()).values()),
    }
    assert counts == {"resnet": 25_557_032, "vit": 86_567_656}
    assert sum(len(layer.path) + bool(layer.shortcut) for layer in resnet.layers(resnet.Config())) + 1 == 53


def test_convolutions_and_attention_are_single_operators() -> None:
    net = operators_on_newest(resnet.build(NET))
    assert (net.count("Conv"), net.count("BatchNormalization"), net.count("Transpose")) == (15, 15, 0)
    seen = operators_on_newest(vit.build(VIT))
    assert (seen.count("Gemm"), seen.count("Attention"), seen.count("Gelu")) == (6 * 2 + 1, 2, 2)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_exported_file_runs_in_plain_onnxruntime(tmp_path: Path, kind: str) -> None:
    graph = resnet.build(NET) if kind == "resnet" else vit.build(VIT)
    graph.export(tmp_path / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    images = RNG.normal(size=(2, 3, 32, 32) if kind == "resnet" else (2, 2, 11, 11)).astype(np.float32)
    (got,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["logits"], {"pixel_values": images})
    np.testing.assert_allclose(got, run(graph, images), atol=1e-6)


def test_images_of_another_size_or_number_of_channels_are_refused() -> None:
    for graph, shape in ((vit.build(VIT), (1, 2, 12, 12)), (resnet.build(NET), (1, 1, 32, 32))):
        with pytest.raises(FeedError):
            run(graph, np.zeros(shape, np.float32))


def test_resnet_of_one_size_of_images_gives_what_one_of_any_size_gives() -> None:
    images = RNG.normal(size=(2, 3, 37, 32)).astype(np.float32)
    graph = resnet.build(NET, image=(37, 32))
    assert str(graph["pixel_values"].shape) == "[batch, 3, 37, 32]"
    np.testing.assert_allclose(run(graph, images), run(resnet.build(NET), images), rtol=1e-6, atol=1e-6)
    with pytest.raises(FeedError):
        run(graph, images.swapaxes(2, 3))


@pytest.mark.parametrize("image", [0, 224, (224,), (32, 0), (32, True), (32, 32.0), (1, 2, 3), "ab", ("a", "b")])
def test_resnet_of_no_size_of_images_is_refused(image: Any) -> None:
    with pytest.raises(ModelError, match="not a height and a width in pixels"):
        resnet.build(NET, image=image)


def test_resnet_gives_nan_for_an_image_that_has_one() -> None:
    images = RNG.normal(size=(2, 3, 32, 32)).astype(np.float32)
    images[0, 1, 5, 6] = np.nan
    logits = run(resnet.build(replace(NET, stem=16)), images)
    assert np.isnan(logits[0]).all()
    assert np.isfinite(logits[1]).all()


# Configurations and weights


def test_config_is_that_of_the_fields(tmp_path: Path) -> None:
    assert resnet.Config.read(NET_FIELDS) == NET
    assert resnet.Config.read(NET_FIELDS | {"layer_type": "basic"}) == NETS["basic"]
    assert resnet.Config.read(NET_FIELDS | {"id2label": None}).classes == 2
    path = tmp_path / "config.json"
    path.write_text(json.dumps(VIT_FIELDS | {"qkv_bias": False, "hidden_act": "gelu", "encoder_stride": 16}))
    assert vit.Config.read(path) == VITS["no biases"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported is 'relu'"),
        ({"layer_type": "wide"}, "layer_type is 'wide'"),
        ({"depths": [2]}, r"2 widths \(hidden_sizes\), but 1 depths"),
        ({"hidden_sizes": [8, 18]}, r"widths \(hidden_sizes\) \[18\] of bottlenecks are not multiples of 4"),
        ({"hidden_sizes": []}, "not a list of whole numbers above 0"),
        ({"depths": [10**9, 1]}, "but at most 10000 are supported"),
        ({"id2label": [1]}, "not an object of names"),
        ({"groups": 32}, "unknown: groups"),
    ],
)
def test_resnet_fields_that_are_not_computed_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        resnet.Config.read(NET_FIELDS | fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"hidden_act": "relu"}, "supported is 'gelu'"),
        ({"num_attention_heads": 3}, r"width \(hidden_size\) 16 is not a multiple of heads \(num_attention_heads\) 3"),
        ({"patch_size": 12}, r"smaller than a patch \(patch_size\) of 12"),
        ({"num_hidden_layers": 10**6}, "but at most 10000 are supported"),
        ({"image_size": [11, 11]}, "not a whole number above 0"),
        ({"use_mean_pooling": True}, "unknown: use_mean_pooling"),
    ],
)
def test_vit_fields_that_are_not_computed_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        vit.Config.read(VIT_FIELDS | fields)


def test_counts_of_batches_are_passed_over_and_other_names_are_not(tmp_path: Path) -> None:
    arrays = net_weights(NET)
    counted = arrays | {"resnet.embedder.embedder.normalization.num_batches_tracked": np.array(7)}
    save_tensors(tmp_path / "model.safetensors", counted)
    images = RNG.normal(size=(1, 3, 32, 32)).astype(np.float32)
    got = run(resnet.build(NET_FIELDS, tmp_path / "model.safetensors"), images)
    np.testing.assert_array_equal(got, run(resnet.build(NET, arrays), images))
    with pytest.raises(ModelError, match=r"1 unexpected: resnet\.pooler\.weight"):
        resnet.build(NET, counted | {"resnet.pooler.weight": np.zeros(3, np.float32)})


def test_narrow_weights_are_widened_exactly() -> None:
    images = RNG.normal(size=(1, 3, 32, 32)).astype(np.float32)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        narrow = {name: array.astype(dtype) for name, array in net_weights(NET).items()}
        wide = {name: array.astype(np.float32) for name, array in narrow.items()}
        got, want = (run(resnet.build(NET, arrays), images) for arrays in (narrow, wide))
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_gguf_files_are_refused(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "vit")
    writer.add_tensor("a", np.zeros(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="GGUF files are not supported for this model"):
        vit.build(VIT, tmp_path / "model.gguf")
