"""A tokenizer for tests: BPE of bytes, trained on a few texts."""

from __future__ import annotations

import functools
from typing import Any

import pytest

TEXTS = [
    '{"name": "Anna", "age": 31, "tags": ["red", "green"]}',
    "the quick brown fox jumps over the lazy dog",
    "0123456789",
]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
EOS = SPECIAL.index("</s>")


@functools.cache
def build_tokenizer(size: int = 320) -> Any:
    """Return a tokenizer of at most `size` tokens, the first of which are `SPECIAL`."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: the extra models")
    result = tokenizers.Tokenizer(tokenizers.models.BPE())
    result.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    result.train_from_iterator(TEXTS * 3, trainer)
    return result
