"""A text that is being generated: its tokens become text piece by piece, up to a stop string."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcore.models.streams.sampling import TokenLogprob
from graphcore.models.streams.scheduler import Request

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text that follows that of the piece before.

    Attributes:
        text: The text; only the last piece may be empty.
        tokens: The tokens generated since the piece before.
        logprobs: Their log-probabilities, if they were requested.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextResult:
    """A generated text.

    Attributes:
        text: The text after the prompt, without the stop string.
        tokens: The generated tokens, with the end token if there is one.
        finish_reason: "stop" for an end token or a stop string, "length" for the maximum number of tokens.
        stop: The stop string that ended the text, or None.
        logprobs: The log-probabilities of the tokens, if they were requested.
        prompt_tokens: The number of tokens of the prompt.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    stop: str | None
    logprobs: tuple[TokenLogprob, ...]
    prompt_tokens: int


class TextRequest:
    """A text that is being generated, from `TextDecoder.submit`. Thread-safe.

    `for piece in request` yields each `TextPiece` as soon as its text is certain. Text is held back while it could
    begin a stop string or continue as another character: incomplete UTF-8, and emoji and letters beyond ASCII, to which
    the next token may add a mark. An error of the request is raised after the pieces before it.
    """

    def __init__(self, output: Output, request: Request, prompt_tokens: int) -> None:
        self._output = output
        self._request = request
        self._prompt_tokens = prompt_tokens

    @property
    def done(self) -> bool:
        """True if no token will follow."""
        return self._request.done

    @property
    def prompt_logprobs(self) -> list[TokenLogprob]:
        """The log-probabilities of the tokens of the prompt after the first, if they were requested. Does not wait."""
        return self._request.prompt_logprobs

    def __iter__(self) -> Iterator[TextPiece]:
        """Yield each piece. Raises as `result` does."""
        place, start, tokens = 0, 0, iter(self._request)
        is_last = False
        while not is_last:
            is_last = next(tokens, None) is None
            if is_last:
                self._output.finish()
            while place < len(self._output.pieces):
                text, end = self._output.pieces[place]
                yield TextPiece(text, tuple(self._output.tokens[start:end]), tuple(self._request.logprobs[start:end]))
                place, start = place + 1, end

    def result(self, timeout: float | None = None) -> TextResult:
        """Wait for the end of the text. The argument and errors are those of `Request.result`."""
        tokens = tuple(self._request.result(timeout).tolist())
        output = self._output
        output.finish()
        return TextResult(
            "".join(text for text, _ in output.pieces),
            tokens,
            "stop" if output.is_ended else "length",
            output.stop,
            tuple(self._request.logprobs),
            self._prompt_tokens,
        )

    def cancel(self) -> bool:
        """Cancel the request at once. Returns True if it had not ended before."""
        return self._request.cancel()


_MAX_PENDING = 8
"""Number of tokens after which text is certain although it ends with U+FFFD: a character has at most 4 bytes."""

_PREFIX_TOKENS = 5
"""Number of tokens of the prompt that are decoded with the new ones: tokenizers may drop the first space."""

_MAX_CLUSTER = 32
"""Maximum number of characters that are held back as one grapheme."""


class Output:
    """The text of new tokens, and what ended it.

    pieces: each text with the number of tokens up to it. is_ended: by an end token or a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], ends: frozenset[int], stops: Sequence[str]) -> None:
        self._decode: Callable[[list[int]], str] = tokenizer.decode
        self._ends = ends
        self._stops = stops
        self._context = list(prompt[-_PREFIX_TOKENS:])  # tokens whose text is known, for that of those after them
        self._pending: list[int] = []
        self._text = ""
        self._is_finished = False
        self._lock = threading.Lock()
        self.tokens: list[int] = []
        self.pieces: list[tuple[str, int]] = []
        self.is_ended = False
        self.stop: str | None = None

    def add(self, token: int) -> bool:
        """Add a token. Returns True if its text completes a stop string."""
        self.tokens.append(token)
        if token in self._ends:
            self.is_ended = True
            return False
        self._pending.append(token)
        self._read()
        self._find_stop()
        if self.is_ended:
            self._emit(len(self._text))
            return True
        self._emit(len(self._text) - self._uncertain())
        return False

    def finish(self) -> None:
        """Emit the text that was held back, when no token will follow."""
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = True
            if self.stop is None:
                self._read(is_last=True)
                self._find_stop()
            done = self.pieces[-1][1] if self.pieces else 0
            if self._text or done < len(self.tokens):
                self.pieces.append((self._text, len(self.tokens)))

    def _read(self, is_last: bool = False) -> None:
        """Decode the pending tokens, if their text is certain."""
        before = self._decode(self._context)
        text = self._decode(self._context + self._pending)
        if is_last or not text.endswith("\ufffd") or len(self._pending) >= _MAX_PENDING:
            self._text += text[len(before) :]
            self._context, self._pending = self._pending or self._context, []

    def _find_stop(self) -> None:
        places = [(self._text.find(stop), stop) for stop in self._stops]
        place, stop = min(((place, stop) for place, stop in places if place >= 0), default=(0, None))
        if stop is not None:
            self._text, self.stop, self.is_ended = self._text[:place], stop, True

    def _emit(self, count: int) -> None:
        if count > 0:
            self.pieces.append((self._text[:count], len(self.tokens)))
            self._text = self._text[count:]

    def _uncertain(self) -> int:
        """Return the number of characters at the end that may begin a stop string or continue as another character."""
        text = self._text
        lengths = [
            n for stop in self._stops for n in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:n])
        ]
        return max([_cluster(text), *lengths])


def _cluster(text: str) -> int:
    """Return the number of characters of the last grapheme; 0 if it is ASCII."""
    if not text or text[-1].isascii():
        return 0
    count = 1
    while count < min(len(text), _MAX_CLUSTER) and (_joins(text[-count]) or text[-count - 1] == "\u200d"):
        count += 1
    return count


def _joins(character: str) -> bool:
    """Return True if a character continues the one before: marks, joiners, modifiers of emoji, letters of flags."""
    code = ord(character)
    is_emoji_part = 0x1F3FB <= code <= 0x1F3FF or 0x1F1E6 <= code <= 0x1F1FF or 0xE0020 <= code <= 0xE007F
    return is_emoji_part or code == 0x200D or unicodedata.category(character).startswith("M")
