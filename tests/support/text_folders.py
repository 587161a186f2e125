"""Folders of tiny models that take text, with a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from graphcore import save_tensors
from graphcore.models import llama
from tests.support.decoders import LLAMA_FIELDS, some

END = 256
FIELDS = LLAMA_FIELDS | {"vocab_size": 257, "max_position_embeddings": 256, "eos_token_id": END}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tokenizer() -> Tokenizer:
    """A token for each byte, and one that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    result = Tokenizer(BPE({character: number for number, character in enumerate(alphabet)} | {"<end>": END}, []))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens(["<end>"])
    return result


def folder(path: Path, fields: dict[str, Any] = FIELDS, template: str | None = TEMPLATE, **generation: Any) -> Path:
    """Write a Llama with random weights, its tokenizer and chat template."""
    tokenizer().save(str(path / "tokenizer.json"))
    texts = {"chat_template": template, "eos_token": {"content": "<end>"}, "bos_token": "<s>"}
    for name, content in (("", fields), ("generation_", generation)):
        (path / f"{name}config.json").write_text(json.dumps(content))
    (path / "tokenizer_config.json").write_text(json.dumps(texts))
    save_tensors(path / "model.safetensors", some(llama.shapes(llama.Config.read(fields))))
    return path
