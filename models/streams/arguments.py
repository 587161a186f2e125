"""The arguments of generating, checked before the first token: models, prompts, stop tokens and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array, is_masked
from graphcore.errors import FeedError, ModelError
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime import Model

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
