"""TextDecoder: a decoder with its tokenizer and chat template. Every text is a request of one Streams."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.models.grammars import Grammars
from graphcore.models.streams.sampling import Constraint, Seed, decoder_of, prompt_of, require_integer
from graphcore.models.streams.scheduler import Streams
from graphcore.models.text.request import Output, TextPiece, TextRequest, TextResult

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphcore.models.text.chat import ChatTemplate
    from graphcore.runtime import Model

Message: TypeAlias = "Mapping[str, Any]"
"""A message of a chat, such as {"role": "user", "content": "Hello"}."""

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Message]"
"""A text, tokens, or the messages of a chat."""


class TextDecoder:
    """A decoder that takes and gives text, from `models.load`. Thread-safe.

    Texts run together, each with the result as alone: `submit` returns at once, `generate` and `chat` wait, `stream`
    yields text as it is generated. A thread runs the model from the first text until `close`.

    Attributes:
        name: The name of the model.
        model: The loaded decoder.
        tokenizer: The tokenizer, of the package tokenizers.
        context: The maximum number of tokens of a prompt and its text.
        eos: The tokens that end a text.
        adapters: Arrays of `model.adapter(...)` by name, to add to: `decoder.generate("Hi", adapter="name")`.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        tokenizer: Tokenizer,
        *,
        template: ChatTemplate | None = None,
        eos: Collection[int] = (),
        sampling: Mapping[str, Any] | None = None,
        slots: int = 8,
        max_waiting: int = 64,
        draft: TextDecoder | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            sampling: The defaults of temperature, top_k and top_p for texts that are sampled.
            draft: A smaller decoder with the same tokenizer, which proposes tokens, as in `models.generate`.

        Raises:
            ModelError: The draft has another tokenizer.
        """
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        decoder = decoder_of("TextDecoder", model)
        if draft is not None and draft.tokenizer.get_vocab() != tokenizer.get_vocab():
            raise ModelError(
                f"{name}: the tokenizer of the draft {draft.name} has other tokens", help="use models of one family"
            )
        self.context = decoder.cache
        self.eos = frozenset(eos)
        self._template = template
        self._sampling = dict(sampling or {})
        self.adapters: dict[str, Mapping[str, Array]] = {}
        self._vocabulary = decoder.vocabulary
        self._options: dict[str, Any] = {
            "slots": slots, "max_waiting": max_waiting, "draft": None if draft is None else draft.model
        }  # fmt: skip
        self._streams: Streams | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def streams(self) -> Streams:
        """The Streams of all texts, created at the first one."""
        with self._lock:
            if self._streams is None:
                if self._is_closed:
                    raise RunError(f"{self.name}: the decoder is closed", help="load it again: models.load(folder)")
                self._streams = Streams(self.model, **self._options)
            return self._streams

    @functools.cached_property
    def grammars(self) -> Grammars:
        """Makes constraints for `submit`: JSON schemas, regular expressions and Lark grammars."""
        return Grammars(self.tokenizer, self.eos, self._vocabulary)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text.

        Args:
            add_special_tokens: Add what the tokenizer puts around a text, such as a start token. A text of
                `chat_prompt` has them already.

        Raises:
            FeedError: The text is not a string of Unicode characters.
        """
        try:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeError) as error:
            raise FeedError(f"{self.name}: {text!r:.80} is not a text: {error}", help="give a str") from None
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        text: str = self.tokenizer.decode([int(token) for token in tokens])
        return text

    def chat_prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Return the text of messages by the chat template of the model.

        Args:
            messages: Such as [{"role": "user", "content": "Hello"}], for the roles that the template supports.
            tools: Descriptions of functions, as in the OpenAI API.
            add_generation_prompt: End with the beginning of the model's answer.
            variables: Further variables of the template, such as enable_thinking.

        Raises:
            FeedError: The model has no template, or the template refuses the messages or exceeds its limits.
        """
        if self._template is None:
            raise FeedError(
                f"{self.name}: the model has no chat template", help="give a text to generate, not messages"
            )
        is_list = isinstance(messages, Sequence) and not isinstance(messages, (str, bytes))
        if not is_list or not messages or not all(isinstance(m, Mapping) and "role" in m for m in messages):
            raise FeedError(
                f"{self.name}: messages must be a list of dicts with a role, got {messages!r:.80}",
                help='give [{"role": "user", "content": "Hello"}]',
            )
        variables |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        return self._template.render(**variables)

    def submit(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float | None = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: Seed = None,
        stop: str | Sequence[str] = (),
        logprobs: int = 0,
        prompt_logprobs: bool = False,
        timeout: float | None = None,
        lookup: int = 0,
        constraints: Sequence[Constraint] = (),
        adapter: str | None = None,
    ) -> TextRequest:
        """Return a request for the text after a prompt.

        Args:
            prompt: A text, tokens, or the messages of a chat.
            max_tokens: The maximum number of new tokens; by default as many as fit in the context.
            temperature: 0 for the likeliest token, above 0 to sample, None to sample as `generation_config.json` says.
            top_k: Sample from the k likeliest tokens; by default as `generation_config.json` says.
            top_p: Then sample from the fewest tokens whose probabilities reach this sum; the same default.
            seed: The seed of this text. Its tokens do not depend on other texts.
            stop: Strings that end the text before them.
            logprobs: The number of likeliest tokens whose log-probabilities to return; 0 for none.
            prompt_logprobs: Compute those of the tokens of the prompt too: `request.prompt_logprobs`.
            timeout: The number of seconds after which the request ends with a `RunTimeoutError`.
            lookup: The maximum number of tokens to look up and check in one call, as in `models.generate`.
            constraints: Such as [decoder.grammars.json_schema({...})].
            adapter: A name in `adapters`.

        Raises:
            FeedError: An argument is invalid, or the text does not fit in the context.
            BusyError: Too many requests wait already.
            RunError: The decoder is closed.
        """
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(each, str) and each for each in stops):
            raise FeedError(f"{self.name}: stop must be strings, got {stop!r:.80}", help='give stop=["\\n"]')
        tokens = self._tokens(prompt)
        room = self.context - len(tokens) + 1
        if not 0 < len(tokens) <= self.context:
            raise FeedError(
                f"{self.name}: a prompt of {len(tokens)} tokens does not fit in a context of {self.context}",
                help="give at least one token, and at most those of the context",
            )
        count = room if max_tokens is None else require_integer("submit", "max_tokens", max_tokens, 0)
        if temperature is None or temperature:
            temperature = self._sampling.get("temperature", 1.0) if temperature is None else temperature
            top_k = self._sampling.get("top_k") if top_k is None else top_k
            top_p = self._sampling.get("top_p") if top_p is None else top_p
        if adapter is not None and adapter not in self.adapters:
            raise FeedError(
                f"{self.name}: there is no adapter {adapter!r:.80}", help=f"add it: adapters[{adapter!r:.80}]"
            )
        output = Output(self.tokenizer, tokens, self.eos, stops)
        request = self.streams.submit(
            tokens, count, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=self.eos, lookup=lookup,
            timeout=timeout, logprobs=logprobs, prompt_logprobs=prompt_logprobs, until=output.add,
            constraints=constraints, adapter=None if adapter is None else self.adapters[adapter],
        )  # fmt: skip
        return TextRequest(output, request, len(tokens))

    def generate(self, prompt: Prompt, **options: Any) -> TextResult:
        """Return the text after a prompt. Options and errors are those of `submit` and `TextRequest.result`."""
        request = self.submit(prompt, **options)
        try:
            return request.result()
        finally:
            request.cancel()  # after an interrupt

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[TextPiece]:
        """Yield the text after a prompt in pieces; options and errors are those of `submit`.

        Closing or deleting the iterator cancels the text.
        """
        request = self.submit(prompt, **options)

        def pieces() -> Iterator[TextPiece]:
            try:
                yield from request
            finally:
                request.cancel()

        return pieces()

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> TextResult:
        """Return the answer to messages. Options and errors are those of `chat_prompt` and `submit`."""
        prompt = self.chat_prompt(messages, tools=tools)
        return self.generate(self.encode(prompt, add_special_tokens=False), **options)

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Cancel all texts, or wait for them, and free the cache, as `Streams.close`. Later texts are refused."""
        with self._lock:
            self._is_closed = True
        return self._streams is None or self._streams.close(drain=drain, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TextDecoder {self.name}: {self.context} tokens>"

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.encode(prompt)
        if isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
            messages: Any = prompt
            return self.encode(self.chat_prompt(messages), add_special_tokens=False)
        tokens: list[int] = prompt_of("submit", prompt).tolist()
        return tokens
