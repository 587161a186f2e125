"""What a JSON schema adds to a step of a decoder, with a vocabulary of 32,000 tokens.

    python -m benchmarks.bench_constraints

The processor time of a mask and a token as a part of that of a step, for a decoder of 11 million weights, most of which
are the vocabulary's, and for one of 100 million. Random weights, and a tokenizer trained on random words.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

import graphcore as gc
from benchmarks.bench_decode import CONFIG
from benchmarks.timing import Bounds
from graphcore import Model, models
from graphcore.models import llama
from graphcore.models.grammars import Grammar, Grammars

VOCABULARY, TOKENS, ROUNDS, BOUND = 32_000, 100, 5, 5.0
SMALL = llama.Config(vocabulary=VOCABULARY)
LARGE = CONFIG
ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "kind": {"enum": ["red", "green", "blue"]},
    },
    "required": ["name", "age", "tags", "kind"],
    "additionalProperties": False,
}


def tokenizer() -> Tokenizer:
    random = np.random.default_rng(0)
    letters = np.array(list('etaoinshrdlucmfwypvbgkqjxz{}[]:,"0123456789'))
    words = ["".join(random.choice(letters[: 20 + 2 * i % 23], random.integers(2, 10))) for i in range(60_000)]
    result = Tokenizer(BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["</s>"], initial_alphabet=alphabet, show_progress=False
    )
    result.train_from_iterator([" ".join(words[i : i + 100]) for i in range(0, len(words), 100)], trainer)
    return result


def constraint_seconds(grammar: Grammar) -> float:
    """Return the median of texts of the processor time that a constraint takes for each token."""
    seconds = []
    for seed in range(ROUNDS):
        random, rule, taken = np.random.default_rng(seed), grammar.start(), 0.0
        for _ in range(TOKENS):
            logits = random.standard_normal((1, VOCABULARY)).astype(np.float32)
            start = time.process_time()
            (row,) = logits.copy()
            rule.apply(row)
            assert row.max() > -np.inf
            taken += time.process_time() - start
            token = int(row.argmax())
            start = time.process_time()
            rule.advance(token)
            taken += time.process_time() - start
        seconds.append(taken / TOKENS)
    return statistics.median(seconds)


def step_seconds(model: Model) -> float:
    """Return the median of texts of the processor time of each token without a constraint."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        models.generate(model, [1, 2, 3], TOKENS)
        seconds.append((time.process_time() - start) / TOKENS)
    return statistics.median(seconds)


def main() -> int:
    bounds = Bounds()
    grammar = Grammars(tokenizer(), [0], VOCABULARY).json_schema({"type": "array", "items": ITEM, "minItems": TOKENS})
    for name, config in (("11 million weights", SMALL), ("100 million weights", LARGE)):
        model = gc.InferenceSession(intra_op_num_threads=1).load(llama.build(config, cache=128))
        added, step = constraint_seconds(grammar), step_seconds(model)
        detail = f"{added * 1e6:.0f} us of {step * 1e3:.2f} ms"
        bounds.figure(f"a schema in a step, {name}", 100 * added / step, BOUND, " %", detail)
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main())
