"""Small decoders for tests of running batches, and what each prompt gives alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import Model, models
from graphcore.models import gpt2, llama
from graphcore.models.streams.arguments import decoder
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import choice
from graphcore.models.streams.text import Text
from tests.support.model_references import some

WORDS, CACHE = 41, 96
LLAMA = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=128)
BODY = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=1, heads=4, kv_heads=2, size=8, positions=128)
GPT2 = gpt2.Config(vocabulary=WORDS, width=32, inner=48, layers=2, heads=2, positions=128)
KINDS = ("llama", "gpt2", "llama, int4", "gpt2, int4", "llama that no kernel takes")

_ROUNDING = 0.15


@functools.cache
def made(kind: str) -> Model:
    """Return a decoder with logits of the last tokens."""
    if kind.startswith("gpt2"):
        graph = gpt2.build(GPT2, some(gpt2.shapes(GPT2)), cache=CACHE, last_tokens=True)
    else:
        config = BODY if "no kernel" in kind else LLAMA
        graph = llama.build(config, some(llama.shapes(config)), cache=CACHE, last_tokens=True)
    if kind.endswith("int4"):
        graph = gc.quantize(graph, "int4", block_size=16).graph
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@functools.cache
def alone(kind: str, prompt: tuple[int, ...], most: int, temperature: float = 0.0, seed: int = 0) -> list[int]:
    """Return the tokens after a prompt that nothing runs beside."""
    options: dict[str, Any] = {"temperature": temperature, "seed": seed} if temperature else {}
    return [int(token) for token in models.generate(made(kind), prompt, most, **options)]


def is_alone(kind: str, prompt: tuple[int, ...], got: list[int], most: int) -> bool:
    """Return whether these are the first tokens after a prompt that nothing runs beside: the same ones, or with 4 bits
    such as the model finds as likely but for its rounding. The kernel rounds what it multiplies to 8 bits, where a last
    bit, which another number of rows may change, can become one of those steps."""
    if not kind.endswith("int4"):
        return got == alone(kind, prompt, most)[: len(got)]
    if not got:
        return True
    whole = np.array([[*prompt, *got[:-1]]])
    (logits,) = made(kind).state()(whole, np.array([whole.size]), np.array(len(got)))
    chosen = logits[0][np.arange(len(got)), got]
    return bool((logits[0].max(-1) - chosen <= _ROUNDING * logits[0].std()).all())


def drawn(seed: int, length: int, words: int = WORDS) -> tuple[int, ...]:
    """Return a prompt."""
    return tuple(int(token) for token in np.random.default_rng(seed).integers(0, words, length))


def text(
    prompt: Sequence[int], most: int, stop: Sequence[int] = (), temperature: float = 0.0, seed: int = 0, lookup: int = 0
) -> Text:
    chosen = choice("test", temperature, None, None, seed)
    return Text(np.array(prompt, np.int64), most, stop, chosen, chosen.numbers()[0], lookup)


def batch(kind: str, slots: int, piece: int | None = 8, prefix_tokens: int = 0) -> Running:
    return Running(decoder("test", made(kind)), slots, piece, prefix_tokens)


def run(running: Running, texts: Sequence[Text]) -> list[list[int]]:
    """Run texts, as far as there is room in their order, until all have ended; return their tokens."""
    waiting = list(texts)
    while waiting or running.texts:
        while waiting and running.room:
            running.join(waiting.pop(0))
        running.read()
        running.step()
    return [each.made for each in texts]
