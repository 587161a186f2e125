"""Texts from decoders: a prompt is read in one call, and each later token made in another."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.models.streams.arguments import Prompts, decoder, prompts_of, stops, whole
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import Seed, Text, choice
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption, shown_by

if TYPE_CHECKING:
    from graphcore.runtime import Model

ENDED = -1
"""The token of an item that has ended."""


def generate(
    model: Model,
    tokens: Prompts,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: Seed = None,
    stop: Collection[int] | Array = (),
    lookup: int = 0,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Any:
    """The tokens that a decoder puts after prompts: an int64 array, or a list of them for several prompts.

    model: a loaded `llama.build` or `gpt2.build`, also quantised or from a file. tokens: a prompt, or several of any
    lengths at once; each gets the same tokens as alone. max_new_tokens: the limit for each; together with the prompt
    they must fit into the cache. temperature: 0 takes the likeliest token, above 0 it is drawn from the softmax of
    logits / temperature; top_k: among the k likeliest; top_p: then among the fewest whose probabilities reach this sum.
    seed: a number, or a `numpy.random.Generator`. stop: tokens that end a text, as its last. lookup: where a text is
    alone, up to so many tokens are looked up in it and checked in one call, which gives the same tokens in fewer calls
    where texts repeat themselves; the model must be built with last_tokens=True. timeout: seconds that all calls may
    take together; `stream` gives the tokens made until then. progress: True shows a line on stderr; a function is told
    how many tokens are made, and how many at most.

    The model's own buffers stay as they are. Raises `RunTimeoutError` where the time is over, `FeedError` for prompts
    that are empty, invalid, or too long for the cache, and for invalid options, `ModelError` for a model that is no
    decoder, and `RunError` for NaN among the logits.
    """
    prompts, is_single = prompts_of("generate", tokens)
    columns = list(
        stream(
            model, prompts, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            lookup=lookup, timeout=timeout, progress=progress,
        )
    )  # fmt: skip
    made = np.array(columns, np.int64).reshape(len(columns), len(prompts)).T
    texts = [row[: int((row != ENDED).sum())].copy() for row in made]
    return texts[0] if is_single else texts


def stream(
    model: Model,
    tokens: Prompts,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: Seed = None,
    stop: Collection[int] | Array = (),
    lookup: int = 0,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Generator[Array, None, None]:
    """Generate token by token: return an iterator of int64[prompts] arrays, one for each step.

    An item that has ended has -1 from then on; the iterator ends with the last item. Closing or dropping it frees its
    cache and changes nothing else. timeout: seconds from the first token asked for to the last one. Raises as
    `generate` does, before the first token.
    """
    prompts, _ = prompts_of("generate", tokens)
    known = decoder("generate", model)
    limit = Limit(model.name, None if timeout is None else seconds_of("generate", timeout))
    most = whole("generate", "max_new_tokens", max_new_tokens, 0)
    ends = stops("generate", stop)
    known.check("generate", prompts, most, ends)
    lookup = known.check_lookup("generate", lookup)
    chosen = choice("generate", temperature, top_k, top_p, seed)
    numbers = chosen.numbers(len(prompts))
    texts = [Text(prompt, most, ends, chosen, n, lookup) for prompt, n in zip(prompts, numbers, strict=True)]
    return _steps(Running(known, len(texts)), texts, most, limit, progress)


def _steps(
    running: Running, texts: list[Text], most: int, limit: Limit, progress: ProgressOption
) -> Generator[Array, None, None]:
    if not most:
        return
    limit.begin()
    bar = shown_by(progress, most, "tokens")
    for text in sorted(texts, key=lambda text: text.count):  # those of one length are read together
        running.join(text)
    shown = 0
    try:
        for make in itertools.cycle((running.read, running.step)):
            with limit:
                make()
            for text in texts:
                if text.error is not None:
                    raise text.error
            # Texts that run make a token each; one that is alone may make several.
            made = min((len(t.made) for t in texts if not t.is_done), default=max(len(t.made) for t in texts))
            for number in range(shown, made):
                if bar is not None:
                    bar.show(number + 1)
                yield np.array([t.made[number] if number < len(t.made) else ENDED for t in texts], np.int64)
            shown = max(made, shown)
            if all(text.is_done for text in texts):
                return
    finally:
        if bar is not None:
            bar.close()
