"""The models beside those of the transformers package, whose checkpoints they read. Only where that is installed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import models
from graphcore.models import gpt2, llama, resnet, vit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

TOLERANCE = 1e-4
TEXT = 20
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GPT2 = {
    "vocab_size": 61,
    "n_positions": 64,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

DECODERS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "llama": (llama, "Llama", SMALL),
    "llama, all biases, tied, wide heads": (
        llama, "Llama",
        SMALL | {"head_dim": 32, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama, heads that no kernel takes": (llama, "Llama", SMALL | {"num_attention_heads": 8}),
    "llama, linear": (
        llama, "Llama", SMALL | {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}}
    ),
    "llama, llama3": (llama, "Llama", SMALL | {"rope_parameters": LLAMA3}),
    "mistral": (llama, "Mistral", SMALL),
    "qwen2": (llama, "Qwen2", SMALL),
    "gpt2": (gpt2, "GPT2", GPT2),
    "gpt2, erf": (gpt2, "GPT2", GPT2 | {"activation_function": "gelu", "n_inner": 100}),
}  # fmt: skip


def randomised(model: Any) -> Any:
    """With weights and statistics of which none could be left out unseen."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        scale, offset = (parameter.shape[1:].numel() ** -0.5, 0.0) if parameter.ndim > 1 else (0.3, 0.7)
        parameter.data = torch.randn_like(parameter) * scale + offset
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.data = torch.rand_like(buffer) + 0.5
    return model.eval()


def saved(model: Any, folder: Path) -> tuple[Path, Path]:
    """The paths of its configuration and its weights, in several files."""
    model.save_pretrained(folder, max_shard_size="100KB")
    index = folder / "model.safetensors.index.json"
    return folder / "config.json", index if index.exists() else folder / "model.safetensors"


def decoder(kind: str) -> tuple[Any, Any]:
    module, family, config = DECODERS[kind]
    causal = getattr(transformers, "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")
    return module, randomised(causal(getattr(transformers, f"{family}Config")(**config)))


@pytest.mark.parametrize("kind", DECODERS)
def test_logits_are_those_of_transformers_step_by_step(kind: str, tmp_path: Path) -> None:
    module, peer = decoder(kind)
    state = gc.InferenceSession().load(module.build(*saved(peer, tmp_path), cache=32)).state()
    tokens = np.random.default_rng(0).integers(0, 61, (2, TEXT))
    with torch.no_grad():
        want = peer(torch.tensor(tokens)).logits.numpy()
    (got,) = state(tokens[:, :7], np.array([7, 7]))
    assert np.abs(got - want[:, 6]).max() < TOLERANCE
    for at in range(7, TEXT):
        (got,) = state(tokens[:, at : at + 1], np.array([at + 1] * 2))
        assert np.abs(got - want[:, at]).max() < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_greedy_text_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    module, peer = decoder(kind)
    model = gc.InferenceSession().load(module.build(*saved(peer, tmp_path), cache=32))
    prompt = [3, 17, 40, 5]
    with torch.no_grad():
        want = peer.generate(
            torch.tensor([prompt]), max_new_tokens=20, min_new_tokens=20, do_sample=False, pad_token_id=0
        )
    assert models.generate(model, prompt, 20).tolist() == want[0, 4:].tolist()


@pytest.mark.parametrize(
    "config",
    [{}, {"layer_type": "basic"}, {"downsample_in_first_stage": True}, {"downsample_in_bottleneck": True}],
    ids=str,
)  # fmt: skip
def test_resnet_is_that_of_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"embedding_size": 16, "hidden_sizes": [32, 64, 96], "depths": [2, 1, 2], "num_labels": 7}
    peer = randomised(transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, **config)))
    images = np.random.default_rng(0).normal(size=(2, 3, 45, 64)).astype(np.float32)
    _compare(resnet, peer, images, tmp_path)


@pytest.mark.parametrize("config", [{}, {"qkv_bias": False, "image_size": 18, "num_labels": 5}], ids=str)
def test_vit_is_that_of_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
        "image_size": 16, "patch_size": 4,
    }  # fmt: skip
    sizes |= config
    peer = randomised(transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)))
    images = np.random.default_rng(0).normal(size=(2, 3, sizes["image_size"], sizes["image_size"])).astype(np.float32)
    _compare(vit, peer, images, tmp_path)


def _compare(module: Any, peer: Any, images: Any, folder: Path) -> None:
    (got,) = gc.InferenceSession().load(module.build(*saved(peer, folder)))(images)
    with torch.no_grad():
        want = peer(torch.tensor(images)).logits.numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).max() < TOLERANCE * max(1, np.abs(want).max())
