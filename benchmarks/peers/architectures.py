"""Architectures that `exported.CASES` has not: small models of transformers, timm and torchvision, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.exported import (
    HEADS,
    INNER,
    LAYERS,
    MAX_LENGTH,
    SIDE,
    VOCABULARY,
    WIDTH,
    Case,
    _hf,
    _nn,
)

_TOKENS = {"input_ids": ("b", "s"), "attention_mask": ("b", "s")}
_IDS = {"input_ids": ("b", "s")}
_BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "max_position_embeddings": MAX_LENGTH + 2,
}  # fmt: skip
_ROBERTA = {**_BERT, "pad_token_id": 1}
_LLAMA = {**_BERT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BART: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER,
    "decoder_ffn_dim": INNER, "max_position_embeddings": MAX_LENGTH, "pad_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip
_BOTH = {**_TOKENS, "decoder_input_ids": ("b", "t")}
_ONCE = {"use_cache": False}
_LOGITS: dict[str, Any] = {"takes": "logits", "more": _ONCE}
_VIT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
_SPEECH: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
    "conv_dim": [64] * 7,
}  # fmt: skip
_IMAGE = {"pixel_values": ("b", 3, SIDE, SIDE)}
_WAVE = {"input_values": ("b", 32000)}


def _timm(name: str, **fields: Any) -> Callable[[str], Any]:
    def make(attention: str) -> Any:
        import timm

        return _positional(timm.create_model(name, pretrained=False, exportable=True, **fields))

    return make


def _vision(name: str) -> Callable[[str], Any]:
    def make(attention: str) -> Any:
        import torchvision

        return _positional(getattr(torchvision.models, name)(weights=None))

    return make


def _positional(model: Any) -> Any:
    """Return a module that takes images under the name that those of transformers give them."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.own = model

        def forward(self, pixel_values: Any) -> Any:
            return self.own(pixel_values)

    return Module()


def _images(side: int) -> dict[str, tuple[Any, ...]]:
    return {"pixel_values": ("b", 3, side, side)}


_TRANSFORMERS: tuple[Case, ...] = (
    Case("Longformer", _hf("LongformerModel", **_ROBERTA, attention_window=[64] * LAYERS), _TOKENS),
    Case("Mamba 2", _hf("Mamba2ForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2,
                        num_heads=12, head_dim=64, state_size=64, n_groups=1, chunk_size=64), _IDS, **_LOGITS),
    Case("LayoutLMv3", _hf("LayoutLMv3Model", **_ROBERTA, visual_embed=False, max_2d_position_embeddings=128,
                           coordinate_size=64, shape_size=64), _TOKENS),
    Case("LayoutLM", _hf("LayoutLMModel", **_BERT), _TOKENS),
    Case("DeBERTa", _hf("DebertaModel", **_BERT, relative_attention=True, pos_att_type=["p2c", "c2p"]), _TOKENS),
    Case("Funnel", _hf("FunnelModel", vocab_size=VOCABULARY, d_model=WIDTH, n_head=HEADS, d_head=64, d_inner=INNER,
                       block_sizes=[2, 2]), _TOKENS),
    Case("BigBird", _hf("BigBirdModel", **_BERT, attention_type="original_full"), _TOKENS),
    Case("Nystromformer", _hf("NystromformerModel", **_BERT, num_landmarks=16, segment_means_seq_len=16), _TOKENS),
    Case("FNet", _hf("FNetModel", **{k: v for k, v in _BERT.items() if "heads" not in k}), _IDS),
    Case("SqueezeBERT", _hf("SqueezeBertModel", **_BERT, embedding_size=WIDTH), _TOKENS),
    Case("MobileBERT", _hf("MobileBertModel", **{**_BERT, "num_attention_heads": 4, "intermediate_size": 512},
                           embedding_size=128), _TOKENS),
    Case("ConvBERT", _hf("ConvBertModel", **_BERT, embedding_size=WIDTH), _TOKENS),
    Case("XLNet", _hf("XLNetModel", vocab_size=VOCABULARY, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS,
                      d_inner=INNER), _TOKENS),
    Case("XLM", _hf("XLMModel", vocab_size=VOCABULARY, n_words=VOCABULARY, emb_dim=WIDTH, n_layers=LAYERS,
                    n_heads=HEADS), _TOKENS),
    Case("RoFormer", _hf("RoFormerModel", **_BERT, embedding_size=WIDTH), _TOKENS),
    Case("ERNIE", _hf("ErnieModel", **_BERT), _TOKENS),
    Case("NomicBERT", _hf("NomicBertModel", **_BERT), _TOKENS),
    Case("ESM", _hf("EsmModel", **_BERT, pad_token_id=1, mask_token_id=3, position_embedding_type="rotary"), _TOKENS),
    Case("I-BERT", _hf("IBertModel", **_ROBERTA), _TOKENS),
    Case("Splinter", _hf("SplinterModel", **_BERT), _TOKENS),
    Case("Pegasus", _hf("PegasusModel", **_BART), _BOTH, more=_ONCE),
    Case("Marian", _hf("MarianModel", **_BART), _BOTH, more=_ONCE),
    Case("M2M-100", _hf("M2M100Model", **_BART), _BOTH, more=_ONCE),
    Case("mT5 encoder", _hf("MT5EncoderModel", vocab_size=VOCABULARY, d_model=WIDTH, d_kv=64, d_ff=INNER,
                            num_layers=LAYERS, num_heads=HEADS), _TOKENS),
    Case("UMT5 encoder", _hf("UMT5EncoderModel", vocab_size=VOCABULARY, d_model=WIDTH, d_kv=64, d_ff=INNER,
                             num_layers=LAYERS, num_heads=HEADS), _TOKENS),
    Case("ProphetNet encoder", _hf("ProphetNetEncoder", vocab_size=VOCABULARY, hidden_size=WIDTH,
                                   num_encoder_layers=LAYERS, num_encoder_attention_heads=HEADS,
                                   encoder_ffn_dim=INNER), _TOKENS),
    Case("GPT-Neo", _hf("GPTNeoForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, num_layers=LAYERS,
                        num_heads=HEADS, attention_types=[[["global", "local"], LAYERS // 2]], window_size=64),
         _TOKENS, **_LOGITS),
    Case("GPT BigCode", _hf("GPTBigCodeForCausalLM", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS,
                            n_head=HEADS), _TOKENS, **_LOGITS),
    Case("CodeGen", _hf("CodeGenForCausalLM", vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=8,
                        rotary_dim=32), _TOKENS, **_LOGITS),
    Case("MPT", _hf("MptForCausalLM", vocab_size=VOCABULARY, d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS), _TOKENS,
         **_LOGITS),
    Case("StarCoder 2", _hf("Starcoder2ForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("StableLM", _hf("StableLmForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("Cohere", _hf("CohereForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("Granite", _hf("GraniteForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("GLM", _hf("GlmForCausalLM", **_LLAMA, head_dim=64), _TOKENS, **_LOGITS),
    Case("Nemotron", _hf("NemotronForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("SmolLM 3", _hf("SmolLM3ForCausalLM", **_LLAMA), _TOKENS, **_LOGITS),
    Case("Gemma", _hf("GemmaForCausalLM", **_LLAMA, head_dim=64), _TOKENS, **_LOGITS),
    Case("Persimmon", _hf("PersimmonForCausalLM", **_BERT), _TOKENS, **_LOGITS),
    Case("BioGPT", _hf("BioGptForCausalLM", **_BERT), _TOKENS, **_LOGITS),
    Case("RWKV", _hf("RwkvForCausalLM", vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2), _IDS,
         **_LOGITS),
    Case("HuBERT", _hf("HubertModel", **_SPEECH), _WAVE),
    Case("WavLM", _hf("WavLMModel", **_SPEECH), _WAVE),
    Case("Data2Vec audio", _hf("Data2VecAudioModel", **_SPEECH), _WAVE),
    Case("SEW", _hf("SEWModel", **{**_SPEECH, "conv_dim": [64] * 13}), _WAVE),
    Case("AST", _hf("ASTModel", **{k: v for k, v in _VIT.items() if k not in ("image_size", "patch_size")},
                    max_length=256), {"input_values": ("b", 256, 128)}),
    Case("YOLOS", _hf("YolosModel", **{**_VIT, "image_size": [SIDE, SIDE]}), _IMAGE),
    Case("DPT", _hf("DPTModel", **_VIT), _IMAGE),
    Case("ViT-MSN", _hf("ViTMSNModel", **_VIT), _IMAGE),
    Case("I-JEPA", _hf("IJepaModel", **_VIT), _IMAGE),
    Case("DINOv3", _hf("DINOv3ViTModel", **_VIT), _IMAGE),
    Case("PVT", _hf("PvtModel", image_size=SIDE), _IMAGE),
    Case("CvT", _hf("CvtModel"), _IMAGE),
    Case("GLPN", _hf("GLPNModel"), _IMAGE),
    Case("DETR decoder layers", _nn(lambda torch: torch.nn.Transformer(WIDTH, HEADS, 2, 2, INNER, batch_first=True)),
         {"src": ("b", "s", WIDTH), "tgt": ("b", "t", WIDTH)}),
)  # fmt: skip

_NAMES: tuple[tuple[str, str, int], ...] = (
    ("MobileNetV3", "mobilenetv3_large_100", 160), ("MNASNet", "mnasnet_100", 160), ("LCNet", "lcnet_100", 160),
    ("GhostNet", "ghostnet_100", 160), ("RegNetX", "regnetx_004", 160), ("RegNetY", "regnety_004", 160),
    ("DenseNet", "densenet121", 128), ("HRNet", "hrnet_w18_small", 128), ("RepVGG", "repvgg_a0", 128),
    ("Res2Net", "res2net50_26w_4s", 128), ("ResNeSt", "resnest14d", 128), ("VoVNet", "ese_vovnet19b_dw", 128),
    ("DLA", "dla34", 128), ("TinyNet", "tinynet_a", 160), ("ConvNeXt V2", "convnextv2_atto", 128),
    ("MobileOne", "mobileone_s0", 128), ("MobileViT", "mobilevit_xxs", 128), ("MobileViT 2", "mobilevitv2_050", 128),
    ("FastViT", "fastvit_t8", 128), ("EdgeNeXt", "edgenext_xx_small", 128), ("PoolFormer", "poolformer_s12", 128),
    ("CaiT", "cait_xxs24_224", 224), ("XCiT", "xcit_nano_12_p16_224", 224), ("LeViT", "levit_128s", 224),
    ("PVT v2", "pvt_v2_b0", 128), ("Twins", "twins_svt_small", 128), ("MLP-Mixer", "mixer_s32_224", 224),
    ("gMLP", "gmlp_s16_224", 224), ("ResMLP", "resmlp_12_224", 224), ("DaViT", "davit_tiny", 128),
    ("EVA-02", "eva02_tiny_patch14_224", 224), ("Hiera", "hiera_tiny_224", 224), ("TinyViT", "tiny_vit_5m_224", 224),
    ("FocalNet", "focalnet_tiny_srf", 128), ("Inception v3", "inception_v3", 160), ("CoAtNet", "coatnet_0_rw_224", 224),
    ("EfficientViT", "efficientvit_b0", 128), ("RepViT", "repvit_m0_9", 128), ("StarNet", "starnet_s1", 128),
    ("MobileNetV4", "mobilenetv4_conv_small", 128), ("Swin v2", "swinv2_cr_tiny_224", 224),
    ("GCViT", "gcvit_xxtiny", 224), ("CSPNet", "cspresnet50", 128), ("NFNet", "nf_resnet50", 128),
)  # fmt: skip

_TIMM = tuple(Case(name, _timm(model), _images(side)) for name, model, side in _NAMES)

_TORCHVISION = tuple(
    Case(name, _vision(model), _images(160))
    for name, model in (
        ("ShuffleNet v2", "shufflenet_v2_x1_0"), ("SqueezeNet", "squeezenet1_1"), ("GoogLeNet", "googlenet"),
        ("VGG", "vgg11"), ("AlexNet", "alexnet"),
    )
)  # fmt: skip

CASES: tuple[Case, ...] = (*_TRANSFORMERS, *_TIMM, *_TORCHVISION)
