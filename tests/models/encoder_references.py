"""Small random encoders, and their vectors by transformers: tests/data/encoder_embeddings.json.

    python -m tests.models.encoder_references

writes the file. It needs PyTorch, transformers and sentence-transformers; the tests do not, since the weights come from
a seed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

Array = np.ndarray[Any, Any]

FILE = Path(__file__).parents[1] / "data" / "encoder_embeddings.json"
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
}
DISTILBERT = {"vocab_size": 61, "dim": 32, "hidden_dim": 48, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 40}
TOKENS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
MODERNBERT = SIZES | TOKENS | {"num_hidden_layers": 5, "local_attention": 8}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "bert, another gelu": ("Bert", SIZES | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 1}),
    "roberta": ("Roberta", SIZES | {"pad_token_id": 1}),
    "xlm-roberta": ("XLMRoberta", SIZES | {"pad_token_id": 4, "hidden_act": "relu"}),
    "camembert": ("Camembert", SIZES | {"pad_token_id": 1}),
    "distilbert": ("DistilBert", DISTILBERT),
    "mpnet": ("MPNet", SIZES | {"pad_token_id": 1, "max_position_embeddings": 210}),
    "modernbert": ("ModernBert", MODERNBERT),
    "modernbert, all biases": (
        "ModernBert",
        MODERNBERT | {"attention_bias": True, "norm_bias": True, "mlp_bias": True, "local_attention": 5},
    ),
    "nomic_bert": ("NomicBert", SIZES),
}
"""The class in transformers without "Model", and the fields of its configuration."""


def weights(shapes: dict[str, list[int]], seed: int) -> dict[str, Array]:
    """Return random weights by name, of a size at which each of them counts."""
    generator = np.random.default_rng(seed)
    result = {}
    for name, shape in shapes.items():
        array = generator.standard_normal(shape)
        is_scale = len(shape) == 1 and name.endswith("weight")
        result[name] = (1 + array * 0.2 if is_scale else array * (0.2 if len(shape) == 1 else 0.3)).astype(np.float32)
    return result


def tokens(config: dict[str, Any]) -> tuple[Array, Array]:
    """Return tokens and their mask for three texts of different lengths."""
    longest = config["max_position_embeddings"] - 8
    lengths = np.array([longest, 3, longest // 2])
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = np.random.default_rng(0).integers(5, config["vocab_size"], mask.shape)
    return np.where(mask == 1, ids, config.get("pad_token_id", 0)), mask


def pooled(hidden: Array) -> dict[str, Array]:
    """Return the vector of a text by the name of the pooling."""
    return {"mean": hidden.mean(axis=0), "cls": hidden[0], "max": hidden.max(axis=0), "lasttoken": hidden[-1]}


TEXTS = ["word7", "word1 word2 Word3", "", "word50 word40 word30 word20 word10 word9 other", "WORD5 word5"]
POOLING = "1_Pooling/config.json"
QUERY = {"prompts": {"query": "word8 word8", "document": ""}, "default_prompt_name": "query"}
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("distilbert", {}),
    "first token, normalised": (
        "bert",
        {POOLING: {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "2_Normalize": {}},
    ),
    "prompts": ("roberta", {POOLING: {"pooling_mode": "lasttoken"}, "config_sentence_transformers.json": QUERY}),
    "few tokens": (
        "mpnet",
        {
            POOLING: {"pooling_mode_max_tokens": True},
            "sentence_bert_config.json": {"max_seq_length": 5, "do_lower_case": True},
        },
    ),
    "gated": ("modernbert", {POOLING: {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}}),
}
"""Folders of sentence-transformers: the case of the model, and the files beside it."""


def folder(path: Path, case: dict[str, Any], files: dict[str, Any]) -> None:
    """Write a model with its weights, a tokenizer of words, and the files of sentence-transformers."""
    from graphcore import save_tensors

    names = [{0: "[UNK]", 1: "[PAD]", 2: "[CLS]", 3: "[SEP]"}.get(i, f"word{i}") for i in range(61)]
    tokenizer = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(path / "tokenizer.json"))
    save_tensors(path / "model.safetensors", weights(case["shapes"], case["seed"]))
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for name in (name for name in files if name[0].isdigit()):
        kind = "Pooling" if name == POOLING else "Normalize"
        modules += [
            {"idx": 0, "name": kind, "path": f"{name[:1]}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        ]
    contents = {
        **({"modules.json": modules} if files else {}),
        "config.json": case["config"],
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"},
        **{
            name: content | {"word_embedding_dimension": 32} if name == POOLING else content
            for name, content in files.items()
        },
    }
    for name, content in contents.items():
        (path / name).parent.mkdir(exist_ok=True)
        if name != "2_Normalize":
            (path / name).write_text(json.dumps(content))


def _write() -> None:
    import sentence_transformers
    import torch
    import transformers

    cases: dict[str, Any] = {}
    for seed, (name, (kind, fields)) in enumerate(CASES.items()):
        config = getattr(transformers, f"{kind}Config")(**fields, attn_implementation="eager")
        model = getattr(transformers, f"{kind}Model")(config)
        shapes = {n: list(t.shape) for n, t in model.state_dict().items() if t.is_floating_point()}
        model.load_state_dict({n: torch.from_numpy(a) for n, a in weights(shapes, seed).items()}, strict=False)
        texts = [torch.from_numpy(ids[mask == 1])[None] for ids, mask in zip(*tokens(fields), strict=True)]
        with torch.no_grad():  # one by one: padding that sees no token is NaN there
            results = [pooled(model.double().eval()(text).last_hidden_state[0].numpy()) for text in texts]
        vectors = {mode: [np.round(result[mode], 7).tolist() for result in results] for mode in results[0]}
        cases[name] = {"seed": seed, "config": config.to_diff_dict(), "shapes": shapes, "vectors": vectors}
    for name, (kind, files) in FOLDERS.items():
        with tempfile.TemporaryDirectory() as path:
            folder(Path(path), cases[kind], files)
            model = sentence_transformers.SentenceTransformer(path, device="cpu").double()
            cases[f"folder: {name}"] = np.round(model.encode(TEXTS), 7).tolist()
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    FILE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    _write()
