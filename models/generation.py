"""Texts from decoders: a prompt is read in one call, and each later token made in another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.support.progress import Progress
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime import Model

Prompts: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | Sequence[Array] | Array"
Seed: TypeAlias = "int | np.random.Generator | None"

ENDED = -1
"""The token of an item that has ended."""


_BOOLS = (bool, np.bool_)

_DECODER = {"tokens": (DType.int64, 2), "lengths": (DType.int64, 1), "logits": (DType.float32, 2)}
"""The inputs and outputs of a decoder: dtypes and ranks."""


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
    progress: bool = False,
) -> Any:
    """The tokens that a decoder puts after prompts: an int64 array, or a list of them for several prompts.

    model: a loaded `llama.build` or `gpt2.build`, also quantised or from a file. tokens: a prompt, or several of any
    lengths at once; each gets the same tokens as alone. max_new_tokens: the limit for each; together with the prompt
    they must fit into the cache. temperature: 0 takes the likeliest token, above 0 it is drawn from the softmax of
    logits / temperature; top_k: among the k likeliest; top_p: then among the fewest whose probabilities reach this sum.
    seed: a number, or a `numpy.random.Generator`. stop: tokens that end a text, as its last. progress: show a line on
    stderr.

    The model's own buffers stay as they are. Raises `FeedError` for prompts that are empty, invalid, or too long for
    the cache, and for invalid options, `ModelError` for a model that is no decoder, and `RunError` for NaN among the
    logits.
    """
    prompts, is_single = _prompts(tokens)
    columns = list(
        stream(
            model, prompts, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            progress=progress,
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
    progress: bool = False,
) -> Generator[Array, None, None]:
    """Generate token by token: return an iterator of int64[prompts] arrays, one for each step.

    An item that has ended has -1 from then on; the iterator ends with the last item. Closing or dropping it frees its
    cache and changes nothing else. Raises as `generate` does, before the first token.
    """
    prompts, _ = _prompts(tokens)
    vocabulary, cache = _sizes(model)
    most = _whole("max_new_tokens", max_new_tokens, 0)
    longest = max(map(len, prompts))
    if longest + most - 1 > cache:
        raise FeedError(
            f"generate: a prompt of {longest} tokens and {most} new ones do not fit into a cache of {cache}",
            help=f"build the model with cache={longest + most - 1} or more, or ask for fewer tokens",
        )
    ends = _ends(stop)
    for token in (*itertools.chain.from_iterable((prompt.min(), prompt.max()) for prompt in prompts), *ends):
        if not 0 <= token < vocabulary:
            raise FeedError(f"generate: {token} is no token", help=f"tokens are 0 to {vocabulary - 1}")
    choice = _choice(temperature, top_k, top_p, seed)
    return _steps(model, prompts, most, choice, np.array(ends, np.int64), progress)


def _steps(
    model: Model, prompts: list[Array], most: int, choice: Choice, ends: Array, progress: bool
) -> Generator[Array, None, None]:
    if not most:
        return
    state = model.state()
    bar = Progress(most, "tokens") if progress else None
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    fed = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in zip(fed, prompts, strict=True):
        row[: len(prompt)] = prompt
    has_ended = np.zeros(len(prompts), bool)
    try:
        for number in range(most):
            (logits,) = state(fed, lengths)
            made = choice.of(logits)
            # Ended items stay in the batch, which is computed as a whole.
            fed = made[:, None].copy()  # the caller may write to the array it gets
            lengths += 1
            if ends.size:
                ended, has_ended = has_ended, has_ended | np.isin(made, ends)
                made[ended] = ENDED
            if bar is not None:
                bar.show(number + 1)
            yield made
            if ends.size and has_ended.all():
                return
    finally:
        if bar is not None:
            bar.close()


# Sampling


@dataclass(frozen=True, slots=True)
class Choice:
    """The sampling options. generator: None for the likeliest token."""

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: np.random.Generator | None

    def of(self, logits: Array) -> Array:
        """Return a token for each row: int64[batch]. logits: [batch, vocabulary]."""
        likeliest = np.asarray(logits.argmax(-1), np.int64)  # NaN counts as the largest
        if not all(math.isfinite(row[at]) for row, at in zip(logits, likeliest.tolist(), strict=True)):
            raise RunError(
                "generate: the model gives logits that are no numbers",
                help="check the weights: model.debug shows values",
            )
        if self.generator is None:
            return likeliest
        totals = np.cumsum(self.probabilities(logits), -1)
        drawn = self.generator.random((len(totals), 1)) * totals[:, -1:]
        at = np.minimum(drawn, np.nextafter(totals[:, -1:], 0))  # a product may be rounded up to the total
        return np.asarray((totals > at).argmax(-1), np.int64)

    def probabilities(self, logits: Array) -> Array:
        """Return the probability of each token to be drawn: float64[batch, vocabulary], rows that sum to nearly 1."""
        scores = logits.astype(np.float64)
        with np.errstate(over="ignore"):
            scores = (scores - scores.max(-1, keepdims=True)) / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            least = np.partition(scores, -self.top_k, axis=-1)[:, -self.top_k, None]
            scores = np.where(scores < least, -np.inf, scores)
        chances = np.exp(scores)
        chances /= chances.sum(-1, keepdims=True)
        if self.top_p is None or self.top_p == 1:
            return np.asarray(chances)
        order = np.argsort(-chances, axis=-1, kind="stable")
        likeliest = np.take_along_axis(chances, order, -1)
        before = np.cumsum(likeliest, -1) - likeliest
        likeliest[(before >= self.top_p) & (np.arange(likeliest.shape[-1]) > 0)] = 0
        np.put_along_axis(chances, order, likeliest, -1)
        return np.asarray(chances / chances.sum(-1, keepdims=True))


def _choice(temperature: float, top_k: int | None, top_p: float | None, seed: Seed) -> Choice:
    if not _is_number(temperature) or not 0 <= temperature < np.inf:
        raise FeedError(
            f"generate: temperature={temperature!r:.80}", help="give a number of 0 or above, 0 for the likeliest"
        )
    if top_k is not None:
        _whole("top_k", top_k, 1)
    if top_p is not None and not (_is_number(top_p) and 0 < top_p <= 1):
        raise FeedError(f"generate: top_p={top_p!r:.80}", help="give a probability above 0, and 1 at most")
    if not temperature and (top_k is not None or top_p is not None):
        raise FeedError(
            "generate: top_k and top_p choose what is drawn from, and temperature=0 draws nothing",
            help="give a temperature, such as temperature=1.0",
        )
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise FeedError(
            f"generate: seed={seed!r:.80}", help="give a whole number of 0 or above, or a Generator"
        ) from None
    if not temperature:
        return Choice(0.0, None, None, None)
    return Choice(float(temperature), top_k, top_p, generator)


# Arguments


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _whole(name: str, value: object, least: int) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise FeedError(f"generate: {name}={value!r:.80}", help=f"give a whole number of {least} or above")
    return int(value)


def _ends(stop: Any) -> list[int]:
    if isinstance(stop, (str, bytes)) or not np.iterable(stop):
        raise FeedError(f"generate: stop={stop!r:.80}", help="give a list of tokens: stop=[2]")
    return [_whole("stop", token, 0) for token in stop]


def _prompts(tokens: Any) -> tuple[list[Array], bool]:
    """Return the prompts, and whether a single one was given without a list."""
    if not _is_list(tokens):
        raise _no_tokens(tokens)
    is_single = not len(tokens) or not _is_list(tokens[0])
    return [_prompt(prompt) for prompt in ([tokens] if is_single else tokens)], is_single


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _prompt(tokens: Any) -> Array:
    try:
        array = np.asarray(tokens)
    except (ValueError, OverflowError):
        raise _no_tokens(tokens) from None
    if array.ndim == 1 and not array.size:
        raise FeedError(
            "generate: a prompt is empty", help="give a token to begin with, the model's own for beginnings"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max:
        raise _no_tokens(tokens)
    if is_masked(tokens) or (not isinstance(tokens, np.ndarray) and any(isinstance(t, _BOOLS) for t in tokens)):
        raise _no_tokens(tokens)
    return np.array(array, np.int64)  # a copy: a stream reads it later


def _no_tokens(given: object) -> FeedError:
    return FeedError(
        f"generate: {given!r:.80} is no prompt", help="give token ids, [1, 5, 9], or a list of such lists for several"
    )


def _sizes(model: Model) -> tuple[int, int]:
    """Return a decoder's vocabulary size, and the capacity of its cache in tokens."""
    if not hasattr(model, "state"):
        raise ModelError(
            f"generate: a {type(model).__name__} is no Model", help="load it: gc.InferenceSession().load(graph)"
        )
    types = {**model.inputs, **model.outputs}
    is_decoder = [*types] == [*_DECODER] and all(_is_tensor(types[name], *_DECODER[name]) for name in types)
    cache, vocabulary = _cache(model), types.get("logits")
    if not is_decoder or cache is None or not isinstance(vocabulary, TensorType) or not vocabulary.shape[1].is_static:
        raise ModelError(
            f"generate: {model.name} is no decoder",
            operands={name: str(type_) for name, type_ in types.items()},
            help="load what llama.build or gpt2.build give, without every_token",
        )
    return int(vocabulary.shape[1]), cache


def _is_tensor(type_: Type, dtype: DType, rank: int) -> bool:
    return isinstance(type_, TensorType) and type_.dtype is dtype and type_.shape.is_ranked and type_.rank == rank


def _cache(model: Model) -> int | None:
    """Return the capacity of the first layer's buffers in tokens; None where there are none."""
    try:
        keys = model.state().buffers["keys0"]
    except (ModelError, FeedError):
        return None
    return int(keys.shape[2]) if keys.ndim == 4 else None


__all__ = ["ENDED", "generate", "stream"]
