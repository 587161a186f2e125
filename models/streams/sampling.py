"""The arguments of generation, checked; and the choice of a token by its logits: the likeliest, or one drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime import Model


Seed: TypeAlias = "int | np.random.Generator | None"


@dataclass(frozen=True, slots=True)
class Choice:
    """The sampling options. generator: None for the likeliest token."""

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: np.random.Generator | None

    def of(self, logits: Array, numbers: Array | None = None) -> Array:
        """Return a token for each row: int64[batch]. logits: [batch, vocabulary].

        numbers: from 0 to 1, float64[batch, 1], which tell what is drawn; by default the generator's next.
        """
        likeliest = np.asarray(logits.argmax(-1), np.int64)  # NaN counts as the largest
        if not np.isfinite(logits[np.arange(len(logits)), likeliest]).all():
            raise RunError(
                "generate: the model gives logits that are no numbers",
                help="check the weights: model.debug shows values",
            )
        if self.generator is None:
            return likeliest
        totals = np.cumsum(self.probabilities(logits), -1)
        drawn = (self.generator.random((len(totals), 1)) if numbers is None else numbers) * totals[:, -1:]
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

    def numbers(self, texts: int = 1) -> list[Iterator[float]]:
        """Return for each of some texts the numbers that tell what it draws: all from the one generator, a number for
        each text at each token, so that a text that has ended changes nothing for the others."""
        rows: list[list[float]] = []
        return [self._numbers(rows, texts, place) for place in range(texts)]

    def _numbers(self, rows: list[list[float]], texts: int, place: int) -> Iterator[float]:
        token = 0
        while self.generator is not None:
            if token == len(rows):
                rows.append(self.generator.random(texts).tolist())
            yield rows[token][place]
            token += 1


def choice(asked: str, temperature: float, top_k: int | None, top_p: float | None, seed: Seed) -> Choice:
    """Return the choice of options that make sense. Raises `FeedError`."""
    if not _is_number(temperature) or not 0 <= temperature < np.inf:
        raise FeedError(
            f"{asked}: temperature={temperature!r:.80}", help="give a number of 0 or above, 0 for the likeliest"
        )
    if top_k is not None:
        whole(asked, "top_k", top_k, 1)
    if top_p is not None and not (_is_number(top_p) and 0 < top_p <= 1):
        raise FeedError(f"{asked}: top_p={top_p!r:.80}", help="give a probability above 0, and 1 at most")
    if not temperature and (top_k is not None or top_p is not None):
        raise FeedError(
            f"{asked}: top_k and top_p choose what is drawn from, and temperature=0 draws nothing",
            help="give a temperature, such as temperature=1.0",
        )
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise FeedError(
            f"{asked}: seed={seed!r:.80}", help="give a whole number of 0 or above, or a Generator"
        ) from None
    if not temperature:
        return Choice(0.0, None, None, None)
    return Choice(float(temperature), top_k, top_p, generator)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


# A text that is being generated: its tokens, and what ends it.


class Text:
    """A prompt and the tokens made after it.

    made: the new tokens so far. held: of how many tokens the keys and values are in the row of the text, while it is
    read; from then on those of all but the last. is_done: no token will follow. error: why it ended early, or None.
    """

    __slots__ = (
        "_drawn",
        "_ends",
        "_most",
        "_tokens",
        "choice",
        "count",
        "error",
        "held",
        "is_done",
        "last",
        "lookup",
        "made",
        "numbers",
        "reach",
    )  # fmt: skip

    def __init__(
        self,
        prompt: Array,
        most: int,
        ends: Collection[int],
        choice: Choice,
        numbers: Iterator[float],
        lookup: int = 0,
    ) -> None:
        """most: new tokens. numbers: what `choice` draws with, one for each token. lookup: tokens that are looked up at
        once, at most."""
        self.choice = choice
        self.numbers = numbers
        self.lookup = self.reach = lookup
        self.made: list[int] = []
        self.count = len(prompt)
        self.held = 0
        self.last = int(prompt[-1])
        self.is_done = not most
        self.error: BaseException | None = None
        self._tokens = np.empty(len(prompt) + most, np.int64)
        self._tokens[: len(prompt)] = prompt
        self._most = most
        self._ends = frozenset(ends)
        self._drawn: float | None = None

    @property
    def tokens(self) -> Array:
        """Return the prompt and what was made: a view."""
        return self._tokens[: self.count]

    @property
    def left(self) -> int:
        """Return how many tokens may still be made."""
        return self._most - len(self.made)

    def number(self) -> float:
        """Return the number that tells the next token, the same until that is added."""
        if self._drawn is None:
            self._drawn = next(self.numbers)
        return self._drawn

    def add(self, token: int) -> None:
        """Add a token, unless the text was ended meanwhile."""
        if self.is_done:
            return
        self._tokens[self.count] = self.last = token
        self.held = self.count
        self.count += 1
        self._drawn = None
        self.made.append(token)
        if token in self._ends or len(self.made) == self._most:  # another thread may have ended it: never back to False
            self.is_done = True

    def fail(self, error: BaseException) -> None:
        """End the text for an error, unless it has ended."""
        if not self.is_done:
            self.error = error
            self.is_done = True


# The arguments of generating, checked before the first token: models, prompts, stop tokens and numbers.

Prompts: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | Sequence[Array] | Array"

_BOOLS = (bool, np.bool_)

_INPUTS = {"tokens": (DType.int64, 2), "lengths": (DType.int64, 1)}
_LAST = {"last_tokens": (DType.int64, 0)}
"""The inputs of a decoder, dtypes and ranks, and the one more of a decoder that can look tokens up."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model that is a decoder. vocabulary: tokens. cache: tokens of a text. takes_last: it has logits of several."""

    model: Model
    vocabulary: int
    cache: int
    takes_last: bool

    def check(self, asked: str, prompts: Sequence[Array], most: int, ends: Iterable[int]) -> None:
        """Raise `FeedError` for tokens that the model does not know, and for texts longer than its cache."""
        longest = max(map(len, prompts))
        if longest + most - 1 > self.cache:
            raise FeedError(
                f"{asked}: a prompt of {longest} tokens and {most} new ones do not fit into a cache of {self.cache}",
                help=f"build the model with cache={longest + most - 1} or more, or ask for fewer tokens",
            )
        for token in (*(bound for prompt in prompts for bound in (prompt.min(), prompt.max())), *ends):
            if not 0 <= token < self.vocabulary:
                raise FeedError(f"{asked}: {token} is no token", help=f"tokens are 0 to {self.vocabulary - 1}")

    def check_lookup(self, asked: str, lookup: Any) -> int:
        """Return how many tokens are looked up at most. Raises `FeedError`, and `ModelError` for other models."""
        count = whole(asked, "lookup", lookup, 0)
        if count and not self.takes_last:
            raise ModelError(
                f"{asked}: lookup={count} wants logits of several tokens, and {self.model.name} gives the last ones",
                help="build the model with last_tokens=True",
            )
        return count


def decoder(asked: str, model: Model) -> Decoder:
    """Return what generating needs to know of a model. Raises `ModelError` for one that is no decoder."""
    if not hasattr(model, "state"):
        raise ModelError(
            f"{asked}: a {type(model).__name__} is no Model", help="load it: gc.InferenceSession().load(graph)"
        )
    inputs, outputs = model.inputs, model.outputs
    takes_last = "last_tokens" in inputs
    logits = {"logits": (DType.float32, 3 if takes_last else 2)}
    are_inputs = _are(inputs, _INPUTS | _LAST if takes_last else _INPUTS)
    cache, type_ = _cache(model), outputs.get("logits")
    is_decoder = are_inputs and _are(outputs, logits) and cache is not None
    if not is_decoder or not isinstance(type_, TensorType) or not type_.shape[-1].is_static:
        raise ModelError(
            f"{asked}: {model.name} is no decoder",
            operands={name: str(type_) for name, type_ in {**inputs, **outputs}.items()},
            help="load what llama.build or gpt2.build give, without every_token",
        )
    assert cache is not None
    return Decoder(model, int(type_.shape[-1]), cache, takes_last)


def _are(types: dict[str, Type], wanted: dict[str, tuple[DType, int]]) -> bool:
    return [*types] == [*wanted] and all(_is_tensor(types[name], *wanted[name]) for name in types)


def _is_tensor(type_: Type, dtype: DType, rank: int) -> bool:
    return isinstance(type_, TensorType) and type_.dtype is dtype and type_.shape.is_ranked and type_.rank == rank


def _cache(model: Model) -> int | None:
    """Return the capacity of the first layer's buffers in tokens; None where there are none."""
    try:
        keys = model.state().buffers["keys0"]
    except (ModelError, FeedError):
        return None
    return int(keys.shape[2]) if keys.ndim == 4 else None


def whole(asked: str, name: str, value: object, least: int) -> int:
    """Return a whole number. Raises `FeedError` for anything else, and below the least."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise FeedError(f"{asked}: {name}={value!r:.80}", help=f"give a whole number of {least} or above")
    return int(value)


def stops(asked: str, stop: Any) -> list[int]:
    """Return the tokens that end a text. Raises `FeedError`."""
    if isinstance(stop, (str, bytes)) or not np.iterable(stop):
        raise FeedError(f"{asked}: stop={stop!r:.80}", help="give a list of tokens: stop=[2]")
    return [whole(asked, "stop", token, 0) for token in stop]


def prompts_of(asked: str, tokens: Any) -> tuple[list[Array], bool]:
    """Return the prompts, and whether a single one was given without a list. Raises `FeedError`."""
    if not _is_list(tokens):
        raise _no_tokens(asked, tokens)
    is_single = not len(tokens) or not _is_list(tokens[0])
    return [prompt_of(asked, prompt) for prompt in ([tokens] if is_single else tokens)], is_single


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def prompt_of(asked: str, tokens: Any) -> Array:
    """Return one prompt, a copy: int64[tokens]. Raises `FeedError`."""
    try:
        array = np.asarray(tokens)
    except (ValueError, OverflowError):
        raise _no_tokens(asked, tokens) from None
    if array.ndim == 1 and not array.size:
        raise FeedError(
            f"{asked}: a prompt is empty", help="give a token to begin with, the model's own for beginnings"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max:
        raise _no_tokens(asked, tokens)
    if is_masked(tokens) or (not isinstance(tokens, np.ndarray) and any(isinstance(t, _BOOLS) for t in tokens)):
        raise _no_tokens(asked, tokens)
    return np.array(array, np.int64)  # a copy: a stream reads it later


def _no_tokens(asked: str, given: object) -> FeedError:
    return FeedError(
        f"{asked}: {given!r:.80} is no prompt", help="give token ids, [1, 5, 9], or a list of such lists for several"
    )
