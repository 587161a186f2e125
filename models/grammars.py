"""Constraints on the tokens of texts: grammars by llguidance, and penalties. See docs/howto/text_generation.md."""

from __future__ import annotations

import importlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_CHARACTERS = 1 << 15
"""Maximum length of a grammar."""

_LIMITS = {"max_grammar_size": 20_000, "max_items_in_row": 2000, "max_lexer_states": 50_000, "verbose_errors": False}
"""Limits of llguidance. A grammar of `MAX_CHARACTERS` is compiled or refused within about a second, and its states take
up to 100 MB."""

_JSON = {"whitespace_pattern": r"[ \t\r\n]{0,40}"}
"""Without a bound a model could generate spaces to its last token."""

_STACK_BYTES = 64 << 20
"""The stack of the thread that compiles: llguidance recurses once for each rule of a chain, and an overflow would end
the process. Seen up to release 1.9.1, with 3,300 rules in 8 MiB."""

_STACKS = threading.Lock()

_MASKS = np.where(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, bitorder="little"), 0, -np.inf).astype("f4")
"""What is added to eight logits, by the byte of their bits. NumPy's masked assignment takes ten times as long."""


class Grammars:
    """Makes grammars for the tokens of a tokenizer: JSON schemas, regular expressions and Lark grammars.

    A grammar is a constraint: `models.generate(model, tokens, 50, constraints=[grammar])`. Each text begins it anew,
    and ends with a token of `eos` where the grammar ends. Thread-safe; making Grammars takes a second for a
    large vocabulary, so make them once.
    """

    def __init__(self, tokenizer: Tokenizer, eos: Collection[int], vocabulary: int | None = None) -> None:
        """Read the vocabulary.

        Args:
            tokenizer: Of the package tokenizers.
            eos: The tokens that end a text.
            vocabulary: The number of tokens of the model, if it has more than the tokenizer.

        Raises:
            MissingExtraError: The package llguidance is not installed.
            ModelError: llguidance does not support the tokenizer, or no token ends a text.
        """
        try:
            self._library: Any = importlib.import_module("llguidance")
        except ImportError:
            raise MissingExtraError(
                "Grammars: the package llguidance is not installed", help="pip install 'graphcore-engine[models]'"
            ) from None
        self._eos = frozenset(eos)
        if not self._eos:
            raise ModelError("Grammars: no token ends a text", help="give eos=[2], the end token of the tokenizer")
        try:
            self._tokenizer = self._library.LLTokenizer(_json_of(tokenizer), n_vocab=vocabulary, eos_token=[*eos])
        except ValueError as error:
            raise ModelError(
                f"Grammars: llguidance does not support the tokenizer: {error!s:.300}",
                help="use a tokenizer of bytes, such as BPE with a ByteLevel decoder or byte fallback, or Unigram",
            ) from None

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """Return the grammar of JSON values that a schema accepts; `{"type": "object"}` for any object.

        Raises:
            FeedError: The schema is invalid, too large, or has keywords that llguidance does not support.
        """
        return self._compile(
            "json_schema", schema, lambda text: self._library.LLMatcher.grammar_from_json_schema(text, defaults=_JSON)
        )

    def regex(self, pattern: str) -> Grammar:
        """Return the grammar of texts that match a regular expression as a whole. Raises `FeedError`.

        The syntax is that of Rust's crate regex, without look-around and references.
        """
        return self._compile("regex", pattern, self._library.LLMatcher.grammar_from_regex)

    def lark(self, grammar: str) -> Grammar:
        """Return a grammar in the syntax of Lark, as llguidance reads it, from its rule `start`. Raises `FeedError`."""
        return self._compile("lark", grammar, self._library.LLMatcher.grammar_from_lark)

    def _compile(self, kind: str, source: Any, grammar_of: Callable[[str], str]) -> Grammar:
        results: list[Any] = []

        def compile() -> None:
            try:
                matcher = self._library.LLMatcher(
                    self._tokenizer, grammar_of(text), log_level=0, limits=self._library.LLParserLimits(**_LIMITS)
                )
                probe = matcher.deep_copy()
                if not probe.is_error():  # some limits are those of a mask
                    probe.compute_bitmask()
                results.append(probe.get_error() or matcher)
            except BaseException as error:  # a panic of Rust is not an Exception
                results.append(str(error))

        try:
            text = source if kind != "json_schema" else json.dumps(source, separators=(",", ":"))
            if not isinstance(text, str):
                raise TypeError(f"not a str but {type(source).__name__}")
            text.encode()
            if len(text) > MAX_CHARACTERS:
                raise ValueError(f"it has {len(text)} characters, more than {MAX_CHARACTERS}")
        except (TypeError, ValueError, RecursionError) as error:
            results.append(str(error))
        else:
            with _STACKS:
                size = threading.stack_size(_STACK_BYTES)
                try:
                    thread = threading.Thread(target=compile, name="graphcore grammar", daemon=True)
                    thread.start()
                finally:
                    threading.stack_size(size)
            thread.join()
        if isinstance(results[0], str):
            reason = " ".join(f"{line.strip():.80}" for line in results[0].splitlines()[:8])
            raise FeedError(f"{kind}: the grammar is invalid or too large: {reason}", help="correct or simplify it")
        return Grammar(results[0], self._eos)


def _json_of(tokenizer: Tokenizer) -> str:
    """Return the JSON of a tokenizer. Of Unigram, llguidance reads only this decoder: seen up to release 1.9.1."""
    text: str = tokenizer.to_str()
    if type(tokenizer.model).__name__ != "Unigram":
        return text
    fields = json.loads(text)
    parts = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}]
    return json.dumps({**fields, "decoder": {"type": "Sequence", "decoders": parts}})


class Grammar:
    """A grammar that new tokens must follow, from `Grammars`, and its state in one text."""

    def __init__(self, matcher: Any, eos: Collection[int]) -> None:
        self._matcher = matcher
        self._eos = eos

    def start(self) -> Grammar:
        """Return the state at the beginning of a text."""
        return Grammar(self._matcher.deep_copy(), self._eos)

    def apply(self, logits: Array) -> None:
        """Forbid the tokens that do not follow. logits: float32[vocabulary], changed in place."""
        mask = _MASKS.take(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), 0).reshape(-1)
        self._check()
        logits[: len(mask)] += mask[: len(logits)]
        logits[len(mask) :] = -np.inf

    def advance(self, token: int) -> bool:
        """Receive a token. Returns True if it ends the text."""
        if token in self._eos:
            return True
        self._matcher.consume_token(token)
        self._check()
        return False

    def _check(self) -> None:
        if self._matcher.is_error():
            raise FeedError(
                f"generate: the grammar failed: {self._matcher.get_error():.300}", help="use a simpler grammar"
            )


class Penalties:
    """Changes of the logits by the new tokens so far, as in the OpenAI API: another constraint."""

    def __init__(
        self, *, frequency: float = 0.0, presence: float = 0.0, bias: Mapping[int, float] | None = None
    ) -> None:
        """Keep the numbers.

        Args:
            frequency: Subtracted from the logit of a token for each time that it is in the new text.
            presence: Subtracted once, if it is there.
            bias: Added to the logits of tokens.

        Raises:
            FeedError: A number is not finite, or a token is negative.
        """
        self._numbers, self._bias = (frequency, presence), dict(bias or {})
        self._counts: Counter[int] = Counter()
        if not np.isfinite([*self._numbers, *self._bias.values()]).all() or min(self._bias, default=0) < 0:
            raise FeedError(
                f"Penalties: {frequency!r:.40}, {presence!r:.40}, {bias!r:.80}",
                help="give finite numbers, and tokens of at least 0",
            )

    def start(self) -> Penalties:
        """Return the state at the beginning of a text."""
        return Penalties(frequency=self._numbers[0], presence=self._numbers[1], bias=self._bias)

    def apply(self, logits: Array) -> None:
        """Change float32[vocabulary] in place."""
        frequency, presence = self._numbers
        for token, bias in self._bias.items():
            logits[token : token + 1] += bias  # a token beyond the vocabulary has no logit
        for token, count in self._counts.items():
            logits[token] -= count * frequency + presence

    def advance(self, token: int) -> bool:
        """Count a token."""
        self._counts[token] += 1
        return False
