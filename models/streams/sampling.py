"""Check the arguments of generation, and choose tokens by logits: the likeliest, or a sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.runtime.stopping.limit import is_number
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime import Model


Seed: TypeAlias = "int | np.random.Generator | None"


@dataclass(frozen=True, slots=True)
class Choice:
    """Sampling options. generator: None for the likeliest token."""

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: np.random.Generator | None

    def of(self, logits: Array, numbers: Array | None = None) -> Array:
        """Return a token for each row: int64[batch]. logits: [batch, vocabulary].

        numbers: random numbers from 0 to 1, float64[batch, 1]; by default from the generator.
        """
        likeliest = np.asarray(logits.argmax(-1), np.int64)  # NaN counts as the largest
        if not np.isfinite(logits[np.arange(len(logits)), likeliest]).all():
            raise RunError(
                "generate: the logits of the model are not finite",
                help="check the weights: model.debug prints values",
            )
        if self.generator is None:
            return likeliest
        totals = np.cumsum(self.probabilities(logits), -1)
        drawn = (self.generator.random((len(totals), 1)) if numbers is None else numbers) * totals[:, -1:]
        at = np.minimum(drawn, np.nextafter(totals[:, -1:], 0))  # a product may be rounded up to the total
        return np.asarray((totals > at).argmax(-1), np.int64)

    def probabilities(self, logits: Array) -> Array:
        """Return the probability of each token: float64[batch, vocabulary], with rows that sum to nearly 1."""
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
        """Return the random numbers of each text.

        The generator makes a number for each text at each token, so that a text that ends does not change the others.
        """
        rows: list[list[float]] = []
        return [self._numbers(rows, texts, place) for place in range(texts)]

    def _numbers(self, rows: list[list[float]], texts: int, place: int) -> Iterator[float]:
        token = 0
        while self.generator is not None:
            if token == len(rows):
                rows.append(self.generator.random(texts).tolist())
            yield rows[token][place]
            token += 1


def choice_of(caller: str, temperature: float, top_k: int | None, top_p: float | None, seed: Seed) -> Choice:
    """Return the Choice for options. Raises `FeedError` if they are invalid."""
    if not is_number(temperature) or not 0 <= temperature < np.inf:
        raise FeedError(
            f"{caller}: temperature must be a number of at least 0, got {temperature!r:.80}",
            help="0 is for the likeliest token",
        )
    if top_k is not None:
        require_integer(caller, "top_k", top_k, 1)
    if top_p is not None and not (is_number(top_p) and 0 < top_p <= 1):
        raise FeedError(f"{caller}: top_p must be a probability, got {top_p!r:.80}", help="give a number in (0, 1]")
    if not temperature and (top_k is not None or top_p is not None):
        raise FeedError(
            f"{caller}: top_k and top_p need sampling, but temperature=0 takes the likeliest token",
            help="give a temperature, such as temperature=1.0",
        )
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise FeedError(
            f"{caller}: seed must be an integer of at least 0 or a Generator, got {seed!r:.80}", help="give seed=0"
        ) from None
    if not temperature:
        return Choice(0.0, None, None, None)
    return Choice(float(temperature), top_k, top_p, generator)


# A text that is being generated.


class Constraint(Protocol):
    """Changes the logits of a text before each token is chosen, such as a grammar of `models.Grammars`."""

    def start(self) -> Constraint:
        """Return the state at the beginning of a text."""

    def apply(self, logits: Array) -> None:
        """Change float32[vocabulary] in place: -inf forbids a token."""

    def advance(self, token: int) -> bool:
        """Receive a new token. Returns True if it ends the text."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a token, by the softmax of the logits without temperature.

    Attributes:
        token: The token.
        logprob: The natural logarithm of its probability.
        top: The likeliest tokens with theirs, the likeliest first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprob(token: int, logits: Array, count: int) -> TokenLogprob:
    """Return the log-probabilities of a token and of the `count` likeliest ones. logits: [vocabulary]."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    top = (
        np.flatnonzero(scores >= np.partition(scores, -count)[-count])
        if count < len(scores)
        else np.arange(len(scores))
    )
    top = top[np.argsort(-scores[top], kind="stable")][:count]
    return TokenLogprob(token, float(scores[token]), tuple(zip(top.tolist(), scores[top].tolist(), strict=True)))


DRAFT_TOKENS = 6
"""The maximum number of tokens that a draft model proposes for one call."""


@dataclass(slots=True, eq=False)
class Text:
    """A prompt and the tokens after it.

    numbers: a random number for each token. lookup: the maximum number of tokens to look up. top_count: the number
    of likeliest tokens in `logprobs`; 0 for no `logprobs`. until: gets each token, True ends the text.
    rules: applied in order. adapter: values of inputs with defaults; texts of one object share calls and prefixes.
    scores_prompt: `prompt_logprobs` gets those of the tokens of the prompt after the first.

    new_tokens: the new tokens so far. cached: the number of tokens whose keys and values are in the cache, which are
    all but the last once the prompt is read. is_done: no token will follow. error: why it ended early, or None.
    logprobs: the log-probabilities of the new tokens, if they were requested.
    """

    prompt: InitVar[Array]
    max_new_tokens: int
    ends: Collection[int]
    choice: Choice
    numbers: Iterator[float]
    lookup: int = 0
    top_count: int = 0
    until: Callable[[int], bool] | None = None
    rules: Sequence[Constraint] = ()
    adapter: Mapping[str, Array] | None = None
    scores_prompt: bool = False
    new_tokens: list[int] = field(init=False, default_factory=list)
    logprobs: list[TokenLogprob] = field(init=False, default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(init=False, default_factory=list)
    count: int = field(init=False)
    cached: int = field(init=False, default=0)
    last: int = field(init=False)
    reach: int = field(init=False)
    is_done: bool = field(init=False)
    error: BaseException | None = field(init=False, default=None)
    _tokens: Array = field(init=False)
    _next_number: float | None = field(init=False, default=None)

    def __post_init__(self, prompt: Array) -> None:
        self.count = len(prompt)
        self.last = int(prompt[-1])
        self.reach = self.lookup or DRAFT_TOKENS
        self.is_done = not self.max_new_tokens and not self.scores_prompt
        self._tokens = np.empty(len(prompt) + self.max_new_tokens, np.int64)
        self._tokens[: len(prompt)] = prompt

    @property
    def tokens(self) -> Array:
        """The prompt and the new tokens: a view."""
        return self._tokens[: self.count]

    @property
    def remaining(self) -> int:
        """The maximum number of tokens that can follow."""
        return self.max_new_tokens - len(self.new_tokens)

    def number(self) -> float:
        """Return the random number of the next token, the same until that token is added."""
        if self._next_number is None:
            self._next_number = next(self.numbers)
        return self._next_number

    def score(self, logits: Array) -> None:
        """Keep the log-probabilities of tokens of the prompt, by the logits of those before: [tokens, vocabulary]."""
        for token, row in zip(self.tokens[self.cached + 1 :].tolist(), logits, strict=False):
            self.prompt_logprobs.append(token_logprob(token, row, self.top_count))

    def add(self, token: int, logits: Array) -> None:
        """Add a token, unless another thread has ended the text. logits: [vocabulary]."""
        if self.is_done or not self.max_new_tokens:  # for none, the prompt has been scored
            self.is_done = True
            return
        is_last = token in self.ends
        if self.top_count:
            self.logprobs.append(token_logprob(token, logits, self.top_count))
        try:
            is_last |= self.until is not None and self.until(token)
            for rule in self.rules:
                is_last |= rule.advance(token)
        except Exception as error:  # of this text alone
            self.fail(error)
            return
        self._tokens[self.count] = self.last = token
        self.cached = self.count
        self.count += 1
        self._next_number = None
        self.new_tokens.append(token)
        if is_last or len(self.new_tokens) == self.max_new_tokens:  # another thread may end it: never set False
            self.is_done = True

    def fail(self, error: BaseException) -> None:
        """End the text with an error, unless it has ended."""
        if not self.is_done:
            self.error = error
            self.is_done = True


# Arguments of generation, checked before the first token: models, prompts, stop tokens and numbers.

Prompts: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | Sequence[Array] | Array"

_BOOLS = (bool, np.bool_)

_INPUTS = (("tokens", DType.int64, 2), ("lengths", DType.int64, 1))
_LAST = ("last_tokens", DType.int64, 0)
"""The inputs of a decoder with dtypes and ranks, and the additional input for lookup."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder. vocabulary: the number of tokens. cache: the maximum number of tokens of a text. takes_last: it can
    output the logits of several tokens."""

    model: Model
    vocabulary: int
    cache: int
    takes_last: bool

    def check(self, caller: str, prompts: Sequence[Array], max_new_tokens: int, ends: Iterable[int]) -> None:
        """Raise `FeedError` for tokens outside the vocabulary, and for texts longer than the cache."""
        prompt_length = max(map(len, prompts))
        if prompt_length + max_new_tokens - 1 > self.cache:
            raise FeedError(
                f"{caller}: a prompt of {prompt_length} tokens and {max_new_tokens} new ones do not fit into a cache "
                f"of {self.cache}",
                help=f"build the model with cache={prompt_length + max_new_tokens - 1} or more, or fewer tokens",
            )
        for token in (*(bound for prompt in prompts for bound in (prompt.min(), prompt.max())), *ends):
            if not 0 <= token < self.vocabulary:
                raise FeedError(f"{caller}: {token} is not a token", help=f"tokens are 0 to {self.vocabulary - 1}")

    def check_lookup(self, caller: str, lookup: Any) -> int:
        """Return `lookup` as an integer. Raises `FeedError`, or `ModelError` for a model without last_tokens."""
        count = require_integer(caller, "lookup", lookup, 0)
        if count:
            self.require_last_tokens(f"{caller}: lookup={count}")
        return count

    def require_last_tokens(self, what: str) -> None:
        if not self.takes_last:
            raise ModelError(
                f"{what} needs logits of several tokens, but {self.model.name} outputs the last ones",
                help="build the model with last_tokens=True",
            )

    def check_draft(self, caller: str, draft: Model | None) -> Decoder | None:
        """Return the decoder of a draft model. Raises `ModelError` if it has another vocabulary."""
        if draft is None:
            return None
        self.require_last_tokens(f"{caller}: draft={draft.name}")
        decoder = decoder_of(f"{caller}: draft", draft)
        if decoder.vocabulary != self.vocabulary:
            raise ModelError(
                f"{caller}: the draft model {draft.name} has {decoder.vocabulary} tokens, but {self.model.name} has "
                f"{self.vocabulary}",
                help="use a draft model with the same tokenizer",
            )
        return decoder

    def check_adapter(self, caller: str, adapter: Any) -> Mapping[str, Array] | None:
        """Return the argument, None for an empty one. Raises `FeedError` for arrays that do not fit the model."""
        if adapter is None or (isinstance(adapter, Mapping) and not adapter):
            return None
        optional = self.model.inputs.optional
        if not isinstance(adapter, Mapping) or not adapter.keys() <= optional.keys():
            unknown = sorted(set(adapter) - set(optional)) if isinstance(adapter, Mapping) else [adapter]
            raise FeedError(
                f"{caller}: {self.model.name} has no adapter {unknown[0]!r:.80}",
                help="give arrays of model.adapter(...), and build the model with inputs for them: adapters=[...]",
            )
        self.model.adapter(adapter)
        return adapter


def start_rules(caller: str, constraints: Any) -> list[Constraint]:
    """Return new rules of constraints. Raises `FeedError` for other objects."""
    if not isinstance(constraints, Sequence) or not all(hasattr(each, "start") for each in constraints):
        raise FeedError(
            f"{caller}: constraints must be a list of constraints, got {constraints!r:.80}",
            help="give constraints=[grammars.json_schema({...})]",
        )
    return [each.start() for each in constraints]


def decoder_of(caller: str, model: Model) -> Decoder:
    """Return the Decoder of a model. Raises `ModelError` if the model is not a decoder."""
    if not hasattr(model, "state"):
        raise ModelError(
            f"{caller}: model must be a Model, got {type(model).__name__}",
            help="load it: gc.InferenceSession().load(graph)",
        )
    inputs, outputs = model.inputs, model.outputs
    takes_last = "last_tokens" in inputs
    are_types = _ranks(inputs) == [*_INPUTS, *([_LAST] if takes_last else [])]
    are_types &= _ranks(outputs) == [("logits", DType.float32, 3 if takes_last else 2)]
    type_, caches = outputs.get("logits"), [k.type.shape for k in model._model_buffers if k.name == "keys0"]
    has_cache = len(caches) == 1 and caches[0].rank == 4 and caches[0][2].is_static
    if not are_types or not has_cache or not isinstance(type_, TensorType) or not type_.shape[-1].is_static:
        raise ModelError(
            f"{caller}: {model.name} is not a decoder",
            operands={name: str(type_) for name, type_ in {**inputs, **outputs}.items()},
            help="load a graph of llama.build or gpt2.build, without every_token",
        )
    return Decoder(model, int(type_.shape[-1]), int(caches[0][2]), takes_last)


def _ranks(types: Mapping[str, Type]) -> list[tuple[str, DType | None, int]]:
    """Return names, dtypes and ranks; no dtype for a sequence, or a tensor of any rank."""
    tensors = {n: t for n, t in types.items() if isinstance(t, TensorType) and t.shape.is_ranked}
    return [(name, tensors[name].dtype, tensors[name].rank) if name in tensors else (name, None, 0) for name in types]


def require_integer(caller: str, name: str, value: object, least: int) -> int:
    """Return an int. Raises `FeedError` unless `value` is an integer of at least `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise FeedError(
            f"{caller}: {name} must be an integer of at least {least}, got {value!r:.80}", help=f"give {least} or more"
        )
    return int(value)


def stop_tokens(caller: str, stop: Any) -> frozenset[int]:
    """Return the tokens that end a text. Raises `FeedError`."""
    if isinstance(stop, (str, bytes)) or not np.iterable(stop):
        raise FeedError(f"{caller}: stop must be a list of tokens, got {stop!r:.80}", help="give stop=[2]")
    return frozenset(require_integer(caller, "stop", token, 0) for token in stop)


def prompts_of(caller: str, tokens: Any) -> tuple[list[Array], bool]:
    """Return the prompts, and True if a single one was given without a list. Raises `FeedError`."""
    if not _is_list(tokens):
        raise _prompt_error(caller, tokens)
    is_single = not len(tokens) or not _is_list(tokens[0])
    return [prompt_of(caller, prompt) for prompt in ([tokens] if is_single else tokens)], is_single


def _is_list(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def prompt_of(caller: str, tokens: Any) -> Array:
    """Return one prompt, a copy: int64[tokens]. Raises `FeedError`."""
    try:
        array = np.asarray(tokens)
    except (ValueError, OverflowError):
        raise _prompt_error(caller, tokens) from None
    if array.ndim == 1 and not array.size:
        raise FeedError(f"{caller}: a prompt is empty", help="give at least one token, such as the model's start token")
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.max() > np.iinfo(np.int64).max:
        raise _prompt_error(caller, tokens)
    if is_masked(tokens) or (not isinstance(tokens, np.ndarray) and any(isinstance(t, _BOOLS) for t in tokens)):
        raise _prompt_error(caller, tokens)
    return np.array(array, np.int64)  # a copy: a stream reads it later


def _prompt_error(caller: str, value: object) -> FeedError:
    return FeedError(
        f"{caller}: {value!r:.80} is not a prompt", help="give token ids, [1, 5, 9], or a list of such lists"
    )
