"""Text generation with decoders: one call reads the prompt, and each further call generates a token."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import (
    Constraint,
    Prompts,
    Seed,
    Text,
    choice_of,
    decoder_of,
    prompts_of,
    require_integer,
    start_rules,
    stop_tokens,
)
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption, display_for

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
    draft: Model | None = None,
    constraints: Sequence[Constraint] = (),
    adapter: Mapping[str, Array] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Any:
    """Generate the tokens after prompts with a decoder. The buffers of the model do not change.

    Args:
        model: A loaded `llama.build` or `gpt2.build`, also quantised or from a file.
        tokens: A prompt, or several of any lengths, each with the same result as alone.
        max_new_tokens: The maximum number of new tokens of each text. With the prompt they must fit in the cache.
        temperature: 0 for the likeliest token; above 0 to sample from the softmax of logits / temperature.
        top_k: Sample from the k likeliest tokens.
        top_p: Then sample from the fewest tokens whose probabilities reach this sum.
        seed: A number, or a `numpy.random.Generator`.
        stop: Tokens that end a text, as its last token.
        lookup: The maximum number of tokens to look up in a single text and check in one call: fewer calls for
            repetitive texts, with the same tokens. The model must be built with last_tokens=True.
        draft: A smaller decoder with the same tokens, which proposes tokens of a single text to check in one call:
            fewer calls of the model, with the same tokens. The model must be built with last_tokens=True.
        constraints: Grammars and other constraints on the new tokens of each text. See `models.constraints`.
        adapter: The arrays of a LoRA adapter: `model.adapter(...)`.
        timeout: The maximum number of seconds of all calls together. `stream` yields the tokens until then.
        progress: True for a line on stderr, or a function that gets the numbers of new tokens and of the maximum.

    Returns:
        An int64 array, or a list of them for several prompts.

    Raises:
        RunTimeoutError: The timeout is over.
        FeedError: A prompt is empty, invalid or too long for the cache, or an option is invalid.
        ModelError: The model is not a decoder, or the draft model does not fit it.
        RunError: The logits contain NaN.
    """
    prompts, is_single = prompts_of("generate", tokens)
    columns = list(
        stream(
            model, prompts, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            lookup=lookup, draft=draft, constraints=constraints, adapter=adapter, timeout=timeout, progress=progress,
        )
    )  # fmt: skip
    array = np.array(columns, np.int64).reshape(len(columns), len(prompts)).T
    texts = [row[: int((row != ENDED).sum())].copy() for row in array]
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
    draft: Model | None = None,
    constraints: Sequence[Constraint] = (),
    adapter: Mapping[str, Array] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Generator[Array, None, None]:
    """Generate token by token: return an iterator of int64[prompts] arrays, one for each step.

    Arguments and errors are those of `generate`; invalid arguments raise before the first token. A text that has ended
    has -1 from then on; the iterator ends with the last text. Closing or deleting it frees its cache.

    Args:
        timeout: Counts from the request of the first token.
    """
    prompts, _ = prompts_of("generate", tokens)
    decoder = decoder_of("generate", model)
    limit = Limit(model.name, None if timeout is None else seconds_of("generate", timeout))
    max_tokens = require_integer("generate", "max_new_tokens", max_new_tokens, 0)
    ends = stop_tokens("generate", stop)
    decoder.check("generate", prompts, max_tokens, ends)
    lookup = decoder.check_lookup("generate", lookup)
    choice = choice_of("generate", temperature, top_k, top_p, seed)
    draft_decoder, arrays = decoder.check_draft("generate", draft), decoder.check_adapter("generate", adapter)
    texts = [
        Text(prompt, max_tokens, ends, choice, n, lookup, 0, None, start_rules("generate", constraints), arrays)
        for prompt, n in zip(prompts, choice.numbers(len(prompts)), strict=True)
    ]
    return _steps(Running(decoder, len(texts), draft=draft_decoder), texts, max_tokens, limit, progress)


def _steps(
    running: Running, texts: list[Text], max_tokens: int, limit: Limit, progress: ProgressOption
) -> Generator[Array, None, None]:
    if not max_tokens:
        return
    limit.restart()
    bar = display_for(progress, max_tokens, "tokens")
    for text in sorted(texts, key=lambda text: text.count):  # prompts of the same length are read together
        running.join(text)
    yielded = 0
    try:
        for make in itertools.cycle((running.read, running.step)):
            with limit:
                make()
            for text in texts:
                if text.error is not None:
                    raise text.error
            # Each running text gets a token; a single one may get several by lookup.
            counts = [len(text.new_tokens) for text in texts if not text.is_done]
            available = min(counts) if counts else max(len(text.new_tokens) for text in texts)
            for number in range(yielded, available):
                if bar is not None:
                    bar.show(number + 1)
                yield np.array([t.new_tokens[number] if number < len(t.new_tokens) else ENDED for t in texts], np.int64)
            yielded = max(available, yielded)
            if not counts:
                return
    finally:
        if bar is not None:
            bar.close()


def cache_scales(model: Model, prompts: Prompts) -> dict[str, Array]:
    """Return the steps of int8 caches, 1/127 of the greatest keys and values: float32[kv_heads, 1, size] by buffer.

    Args:
        model: The decoder with float32 caches, quantised or not.
        prompts: Texts like those to come, and as long: greater keys and values will be clipped.

    Raises:
        FeedError: A prompt is not a list of tokens.
        ModelError: The model is not a decoder.
        RunError: A prompt does not fit in the cache.
    """
    named = {"last_tokens": np.array(1)} if decoder_of("cache_scales", model).takes_last else {}
    slots, greatest = model.slots(1), dict[str, Array]()
    for prompt in prompts_of("cache_scales", prompts)[0]:
        slots.run(0, 1, prompt[None], np.array([len(prompt)]), **named)
        for name, array in slots.arrays.items():
            peaks = np.abs(array[0, :, : len(prompt)]).max(1, keepdims=True)
            greatest[name] = np.maximum(greatest.get(name, peaks), peaks)
    return {name: np.where(peaks > 0, peaks, 127) / np.float32(127) for name, peaks in greatest.items()}
