"""Small models of transformers and PyTorch with random weights, and both of PyTorch's exporters to ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, LAYERS, INNER, VOCABULARY, MAX_LENGTH = 384, 6, 4, 1536, 1000, 512
SIDE = 96
"""Pixels of an image along either side."""

EXPORTERS = ("dynamo", "script")


@dataclass(frozen=True, slots=True)
class Case:
    """A model.

    make: a function of the attention's implementation, None where there is only one. inputs: dims by name, of which
    letters vary (b: the batch, s and t: lengths). takes: the field of the model's result.
    """

    name: str
    make: Callable[[str], Any]
    inputs: Mapping[str, tuple[Any, ...]]
    takes: str = "last_hidden_state"
    more: Mapping[str, Any] | None = None


def feeds(case: Case, batch: int, length: int, mask: str = "whole", seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays for a case. mask: "whole", "padded" (shorter rows) or "empty" (padded, the last row all masked)."""
    rng = np.random.default_rng(seed)
    sizes = {"b": batch, "s": length, "t": max(1, length // 2)}
    results: dict[str, np.ndarray[Any, Any]] = {}
    for name, dims in case.inputs.items():
        shape = [sizes.get(d, d) for d in dims]
        if name.endswith("mask"):
            array = np.ones(shape, np.int64)
            if mask != "whole":
                array[::2, max(1, shape[1] * 2 // 3) :] = 0
            if mask == "empty":
                array[-1] = 0
            results[name] = array
        elif name.endswith("ids"):
            results[name] = rng.integers(3, VOCABULARY, shape)
        else:
            results[name] = rng.standard_normal(shape).astype(np.float32)
    return results


def export(case: Case, exporter: str, attention: str, path: Path) -> None:
    """Write the file. Raises the exporter's errors."""
    import torch

    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # ONNX has no operator for it
    module = _wrapped(case, attention)
    arrays = tuple(torch.from_numpy(a) for a in feeds(case, 2, 16).values())
    names = [*case.inputs]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "script":
            axes = {n: {i: d for i, d in enumerate(dims) if isinstance(d, str)} for n, dims in case.inputs.items()}
            torch.onnx.export(
                module, arrays, str(path), input_names=names, output_names=["result"], dynamic_axes=axes,
                opset_version=18, dynamo=False,
            )  # fmt: skip
            return
        dims = {
            name: {i: torch.export.Dim.DYNAMIC for i, d in enumerate(dims) if isinstance(d, str)}
            for name, dims in case.inputs.items()
        }
        torch.onnx.export(
            module, arrays, str(path), input_names=names, output_names=["result"],
            dynamic_shapes=(tuple(dims.values()),), dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip


def _wrapped(case: Case, attention: str) -> Any:
    import torch

    class Alone(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = case.make(attention)
            for name, parameter in self.model.named_parameters():
                if parameter.dim() == 1 and "norm" in name.lower():  # so that scales and biases matter
                    torch.nn.init.normal_(parameter, float(parameter.mean()), 0.1)
                elif parameter.dim() == 2 and "embed" not in name:  # so that attention prefers some keys
                    gain = 0.15 if "Attention.q." in name else 1.2  # T5 does not divide scores by the size of heads
                    torch.nn.init.normal_(parameter, 0.0, gain / parameter.shape[1] ** 0.5)

        def forward(self, *arrays: Any) -> Any:
            result = self.model(**dict(zip(case.inputs, arrays, strict=True)), **(case.more or {}))
            return result if isinstance(result, torch.Tensor) else getattr(result, case.takes)

    return Alone().eval()


def _hf(name: str, part: str = "", **fields: Any) -> Callable[[str], Any]:
    """Return a model of transformers. name: of the class, which names its configuration class. part: a module in it."""

    def make(attention: str) -> Any:
        import transformers

        kind = getattr(transformers, name)
        config = kind.config_class(**fields)
        config._attn_implementation = attention if kind._supports_sdpa else "eager"
        result = kind(config)
        return getattr(result, part) if part else result

    return make


def _nn(build: Callable[[Any], Any]) -> Callable[[str], Any]:
    def make(attention: str) -> Any:
        import torch

        return build(torch)

    return make


_BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "max_position_embeddings": MAX_LENGTH + 2,
}  # fmt: skip
_TOKENS = {"input_ids": ("b", "s"), "attention_mask": ("b", "s")}
_LLAMA = {**_BERT, "num_key_value_heads": 2}
_IMAGE = {"pixel_values": ("b", 3, SIDE, SIDE)}
_VIT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 64, "d_ff": INNER, "num_layers": LAYERS, "num_heads": HEADS,
}  # fmt: skip
_BART: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER, "max_position_embeddings": MAX_LENGTH,
}  # fmt: skip
_WHISPER = {**_BART, "max_source_positions": 64, "num_mel_bins": 80, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
_CROSS = {**_TOKENS, "encoder_hidden_states": ("b", "t", WIDTH), "encoder_attention_mask": ("b", "t")}
_LOGITS: dict[str, Any] = {"takes": "logits", "more": {"use_cache": False}}
_ONCE = {"use_cache": False}


class _Self:
    """Modules of torch.nn, made if torch is installed."""

    @staticmethod
    def attention(torch: Any) -> Any:
        class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.own = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

            def forward(self, x: Any) -> Any:
                return self.own(x, x, x, need_weights=False)[0]

        return Module()

    @staticmethod
    def encoder(torch: Any) -> Any:
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True, activation="gelu")
        result = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

        class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.own = result

            def forward(self, x: Any) -> Any:
                return self.own(x)

        return Module()

    @staticmethod
    def decoder(torch: Any) -> Any:
        layer = torch.nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, batch_first=True, norm_first=True)
        result = torch.nn.TransformerDecoder(layer, LAYERS)

        class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.own = result

            def forward(self, x: Any, memory: Any) -> Any:
                return self.own(x, memory)

        return Module()

    @staticmethod
    def recurrent(kind: str) -> Callable[[Any], Any]:
        def build(torch: Any) -> Any:
            class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
                def __init__(self) -> None:
                    super().__init__()
                    self.own = getattr(torch.nn, kind)(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True)

                def forward(self, x: Any) -> Any:
                    return self.own(x)[0]

            return Module()

        return build

    @staticmethod
    def convolutions(torch: Any) -> Any:
        nn = torch.nn

        class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.down = nn.Sequential(
                    nn.Conv2d(3, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 128, 3, 2, 1),
                    nn.GroupNorm(8, 128), nn.GELU("tanh"), nn.Conv2d(128, 128, 3, 1, 1), nn.BatchNorm2d(128), nn.ReLU(),
                )  # fmt: skip
                self.up = nn.ConvTranspose2d(128, 64, 2, 2)
                self.last = nn.Conv2d(64, 3, 1)

            def forward(self, pixel_values: Any) -> Any:
                x = self.up(self.down(pixel_values))
                x = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
                return torch.sigmoid(self.last(nn.functional.interpolate(x, size=(SIDE, SIDE), mode="nearest")))

        return Module()


_ROWS = {"x": ("b", "s", WIDTH)}

CASES: tuple[Case, ...] = (
    Case("BERT", _hf("BertModel", **_BERT), _TOKENS),
    Case("RoBERTa", _hf("RobertaModel", **_BERT), _TOKENS),
    Case("XLM-R", _hf("XLMRobertaModel", **_BERT), _TOKENS),
    Case("DistilBERT", _hf("DistilBertModel", vocab_size=VOCABULARY, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS,
                           hidden_dim=INNER), _TOKENS),
    Case("ALBERT", _hf("AlbertModel", **_BERT, embedding_size=128), _TOKENS),
    Case("ELECTRA", _hf("ElectraModel", **_BERT, embedding_size=128), _TOKENS),
    Case("MPNet", _hf("MPNetModel", **_BERT), _TOKENS),
    Case("DeBERTa-v2", _hf("DebertaV2Model", **_BERT, relative_attention=True, pos_att_type=["p2c", "c2p"],
                           position_buckets=64, norm_rel_ebd="layer_norm", share_att_key=True), _TOKENS),
    Case("ModernBERT", _hf("ModernBertModel", **_BERT, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                           sep_token_id=2), _TOKENS),
    Case("T5 encoder", _hf("T5EncoderModel", **_T5), _TOKENS),
    Case("T5 decoder", _hf("T5ForConditionalGeneration", "decoder", **_T5), _CROSS, more=_ONCE),
    Case("BART encoder", _hf("BartModel", "encoder", **_BART), _TOKENS),
    Case("BART", _hf("BartModel", **_BART), {**_TOKENS, "decoder_input_ids": ("b", "t")}, more=_ONCE),
    Case("Whisper", _hf("WhisperModel", **_WHISPER),
         {"input_features": ("b", 80, 128), "decoder_input_ids": ("b", "s")}, more=_ONCE),
    Case("CLIP text", _hf("CLIPTextModel", **_BERT), _TOKENS),
    Case("CLIP vision", _hf("CLIPVisionModel", **_VIT), _IMAGE),
    Case("SigLIP vision", _hf("SiglipVisionModel", **_VIT), _IMAGE),
    Case("ViT", _hf("ViTModel", **_VIT), _IMAGE),
    Case("DeiT", _hf("DeiTModel", **_VIT), _IMAGE),
    Case("DINOv2", _hf("Dinov2Model", **_VIT), _IMAGE),
    Case("BEiT", _hf("BeitModel", **_VIT, use_relative_position_bias=True), _IMAGE),
    Case("Swin", _hf("SwinModel", image_size=SIDE, patch_size=4, embed_dim=96, depths=[2, 2, 2], num_heads=[3, 6, 12],
                     window_size=6), _IMAGE),
    Case("SegFormer", _hf("SegformerModel"), _IMAGE),
    Case("SAM vision", _hf("SamVisionModel", **_VIT, output_channels=64, window_size=7, global_attn_indexes=[1, 3]),
         _IMAGE),
    Case("ConvNeXt", _hf("ConvNextModel", depths=[2, 2, 4, 2]), _IMAGE),
    Case("ResNet", _hf("ResNetModel", depths=[2, 2, 2, 2]), _IMAGE),
    Case("MobileNetV2", _hf("MobileNetV2Model"), _IMAGE),
    Case("EfficientNet", _hf("EfficientNetModel", width_coefficient=1.0, depth_coefficient=1.0, image_size=SIDE,
                             hidden_dim=1280), _IMAGE),
    Case("GPT-2", _hf("GPT2LMHeadModel", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS), _TOKENS,
         **_LOGITS),
    Case("GPT-NeoX", _hf("GPTNeoXForCausalLM", **_BERT), _TOKENS, **_LOGITS),
    Case("OPT", _hf("OPTForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS,
                    num_attention_heads=HEADS, ffn_dim=INNER, word_embed_proj_dim=WIDTH), _TOKENS, **_LOGITS),
    Case("Bloom", _hf("BloomForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS),
         _TOKENS, **_LOGITS),
    Case("Falcon", _hf("FalconForCausalLM", **{k: _BERT[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers",
                       "num_attention_heads")}), _TOKENS, **_LOGITS),
    Case("Llama", _hf("LlamaForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("Mistral", _hf("MistralForCausalLM", **_LLAMA, sliding_window=64), _TOKENS, **_LOGITS),
    Case("Qwen2", _hf("Qwen2ForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("Qwen3", _hf("Qwen3ForCausalLM", **_LLAMA, head_dim=64), _TOKENS, **_LOGITS),
    Case("Gemma 2", _hf("Gemma2ForCausalLM", **_LLAMA, head_dim=64, query_pre_attn_scalar=64, sliding_window=64),
         _TOKENS, **_LOGITS),
    Case("Gemma 3", _hf("Gemma3ForCausalLM", **_LLAMA, head_dim=64, query_pre_attn_scalar=64, sliding_window=64),
         _TOKENS, **_LOGITS),
    Case("Phi", _hf("PhiForCausalLM", **_BERT), _TOKENS, **_LOGITS),
    Case("Phi-3", _hf("Phi3ForCausalLM", **_LLAMA, pad_token_id=0), _TOKENS, **_LOGITS),
    Case("OLMo-2", _hf("Olmo2ForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("GPT-J", _hf("GPTJForCausalLM", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                      rotary_dim=32), _TOKENS, **_LOGITS),
    Case("Mamba", _hf("MambaForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2),
         {"input_ids": ("b", "s")}, **_LOGITS),
    Case("wav2vec 2", _hf("Wav2Vec2Model", **{k: _BERT[k] for k in ("hidden_size", "num_hidden_layers",
                          "num_attention_heads", "intermediate_size")}, conv_dim=[64] * 7),
         {"input_values": ("b", 32000)}),
    Case("nn.MultiheadAttention", _nn(_Self.attention), _ROWS),
    Case("nn.TransformerEncoder", _nn(_Self.encoder), _ROWS),
    Case("nn.TransformerDecoder", _nn(_Self.decoder), {**_ROWS, "memory": ("b", "t", WIDTH)}),
    Case("nn.LSTM", _nn(_Self.recurrent("LSTM")), _ROWS),
    Case("nn.GRU", _nn(_Self.recurrent("GRU")), _ROWS),
    Case("convolutions, GroupNorm, interpolate", _nn(_Self.convolutions), _IMAGE),
)  # fmt: skip
