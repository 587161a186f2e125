"""The running batch: texts join and leave between steps, each in a row of one cache of keys and values.

The first rows are in use, so that a step computes no others; when a text leaves, the last row moves to its place. A
prompt is read in its row, alone or with others, after the running rows.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError
from graphcore.models.streams.sampling import DRAFT_TOKENS, Decoder, Text

_MAX_PADDING = 32
"""Number of tokens that a call reads in little more time than one, and thus the allowed padding."""


@dataclass(slots=True)
class Counts:
    """The numbers of calls and tokens so far.

    Attributes:
        calls: Calls of the model.
        read: Tokens of prompts that were computed.
        reused: Tokens of prompts whose keys and values were copied instead.
        made: New tokens.
        proposed: Tokens that were looked up or drafted.
        accepted: Those of them that were right.
    """

    calls: int = 0
    read: int = 0
    reused: int = 0
    made: int = 0
    proposed: int = 0
    accepted: int = 0


class Running:
    """Texts that a decoder generates in one batch. Not thread-safe."""

    def __init__(
        self,
        decoder: Decoder,
        slots: int,
        piece: int | None = None,
        prefix_tokens: int = 0,
        draft: Decoder | None = None,
    ) -> None:
        """Create the cache.

        slots: the maximum number of texts. piece: the number of tokens of prompts to read between two steps; None for
        all. prefix_tokens: the number of tokens of ended texts whose keys and values are kept; 0 to share none.
        draft: proposes the next tokens of a text that runs alone.
        """
        self._draft = None if draft is None else Draft(draft)
        self._slots = decoder.model.slots(slots)
        self._piece = piece
        self._prefixes = Prefixes(prefix_tokens) if prefix_tokens else None
        self._rows: list[Text] = []
        self._joined: deque[Text] = deque()
        self._reading: Text | None = None  # the first text in `_joined`, once its row has some tokens
        self._at = 0  # the row in which prompts are read
        self._tokens = np.zeros((slots, 1), np.int64)
        self._lengths = np.zeros(slots, np.int64)
        self._last = [np.array(count, np.int64) for count in range(2)] if decoder.takes_last else None
        self.counts = Counts()

    @property
    def free_slots(self) -> int:
        """The number of texts that can join."""
        return len(self._slots) - len(self._rows) - len(self._joined)

    @property
    def texts(self) -> list[Text]:
        """The texts that have not left."""
        return [*self._rows, *self._joined]

    def join(self, text: Text) -> None:
        """Add a text, whose prompt is read after those of the others."""
        self._joined.append(text)

    def read(self) -> bool:
        """Read up to `piece` tokens of prompts, and generate the first token of completed ones. Returns True if there
        were prompts.

        Prompts are read in order, in pieces whose sizes do not depend on other texts. Here and in `step`, a text whose
        call fails ends with the error, and the others continue.
        """
        self._leave()
        if not self._joined:
            return False
        self._read()
        self._leave()
        return True

    def step(self) -> None:
        """Generate a token of each running text; of a single one with lookup or a draft possibly several."""
        texts = list(self._rows)
        if len(texts) == 1 and (texts[0].lookup or self._draft is not None) and self._look_up(texts[0]):
            texts = []
        for row, text in enumerate(texts):
            self._tokens[row, 0] = text.last
            self._lengths[row] = text.count
        start = 0
        for _, group in itertools.groupby(texts, key=lambda text: id(text.adapter)):
            neighbours = list(group)
            rows = slice(start, start + len(neighbours))
            self._advance(start, neighbours, self._tokens[rows], self._lengths[rows])
            start = rows.stop
        self._leave()

    # Steps

    def _advance(self, start: int, texts: Sequence[Text], tokens: Array, lengths: Array) -> None:
        """Run a call on rows from `start`, and add the next token of each text."""
        try:
            logits = self._logits(start, texts[0], tokens, lengths)[:, -1]
            chosen = _choose_tokens(texts, logits)
        except Exception as error:
            if len(texts) == 1:
                texts[0].fail(error)
                return
            for row, text in enumerate(texts):  # run each alone: one of them causes the error
                self._advance(start + row, [text], tokens[row : row + 1], lengths[row : row + 1])
            return
        for text, token, row in zip(texts, chosen, logits, strict=True):
            text.add(token, row)
        self.counts.made += len(texts)

    def _logits(self, start: int, text: Text, tokens: Array, lengths: Array) -> Array:
        """Run a call on rows from `start`, the first of which is that of a text, and score its prompt if it is read."""
        scores = text.scores_prompt and not text.new_tokens
        logits = self._call(start, tokens, lengths, text.adapter, tokens.shape[1] if scores else 1)
        if scores:
            text.score(logits[0])
        return logits

    def _look_up(self, text: Text) -> bool:
        """Generate tokens of a single text by checking proposals. Returns True if there are any.

        Each token is chosen by its logits as usual; the next one counts only if the chosen token is the proposed one.
        """
        before = len(text.new_tokens)
        guess: list[int] = []
        try:
            guess = self._guess(text)
            if not guess:
                return False
            tokens, lengths = np.array([[text.last, *guess]], np.int64), np.array([text.count + len(guess)], np.int64)
            logits = self._call(0, tokens, lengths, text.adapter, len(guess) + 1)[0]
            for row, token in enumerate([*guess, None]):
                (new_token,) = _choose_tokens([text], logits[row : row + 1])
                text.add(new_token, logits[row])
                if new_token != token or text.is_done:
                    break
        except Exception as error:
            text.fail(error)
        accepted = max(len(text.new_tokens) - before - 1, 0)
        text.reach = (
            min(text.lookup or DRAFT_TOKENS, 2 * text.reach)
            if accepted == len(guess)
            else max(1, min(text.reach, 2 * accepted))
        )
        self.counts.proposed += len(guess)
        self.counts.accepted += accepted
        self.counts.made += len(text.new_tokens) - before
        return True

    def _guess(self, text: Text) -> list[int]:
        """Return the proposed next tokens of a text: from its own tokens, or else by the draft model."""
        limit = min(text.reach, text.remaining - 1)
        guess = propose(text.tokens, limit) if text.lookup else []
        return guess if guess or self._draft is None else self._draft.propose(text.tokens, limit)

    def _call(
        self, start: int, tokens: Array, lengths: Array, adapter: Mapping[str, Array] | None, last: int = 1
    ) -> Array:
        """Return the logits of the last tokens of each row from `start`: [rows, last, vocabulary]."""
        self.counts.calls += 1
        stop = start + len(tokens)
        named = adapter or {}
        if self._last is None:
            return np.asarray(self._slots.run(start, stop, tokens, lengths, **named)[0])[:, None]
        count = self._last[1] if last == 1 else np.array(last, np.int64)
        return np.asarray(self._slots.run(start, stop, tokens, lengths, count, **named)[0])

    # Prompts

    def _read(self) -> None:
        read = 0
        while self._joined:
            text = self._joined[0]
            if text.is_done:
                self._reading = None
                self._joined.popleft()
                continue
            if text is not self._reading or not text.cached:  # rows may have left since it was postponed
                self._begin(text)
            remaining = text.count - text.cached
            if remaining == 1:  # the next step reads it with the others
                self._settle([text])
                continue
            group = self._group(remaining)
            size = max(t.count - t.cached for t in group)
            size = size if self._piece is None else min(size, self._piece)
            if self._piece is not None and read and read + size * len(group) > self._piece:
                return
            read += size * len(group)
            self._read_piece(group, size)

    def _begin(self, text: Text) -> None:
        """Assign a row to a text, and copy the keys and values of a known prefix."""
        self._reading, self._at = text, len(self._rows)
        count, row, prefix = self._source(text)
        if count < MIN_SHARED:
            return
        if prefix is None:
            self._copy(row, self._at, count)
        elif self._prefixes is not None:
            self._prefixes.use(prefix)
            for name, array in self._slots.arrays.items():
                array[self._at, :, :count] = prefix.rows[name][:, :count]
        text.cached = count
        self.counts.reused += count

    def _source(self, text: Text) -> tuple[int, int, Prefix | None]:
        """Return the longest known prefix of a prompt: the number of tokens, and the row of a running text or a Prefix.

        The last token is excluded, since its logits are needed.
        """
        if self._prefixes is None or text.scores_prompt or text.count <= MIN_SHARED:
            return 0, 0, None
        prompt = text.tokens[:-1]
        count, prefix = self._prefixes.find(prompt, text.adapter)
        row = 0
        for number, other in enumerate(self._rows):
            if other.adapter is not text.adapter:
                continue
            same = shared_count(other.tokens[: other.cached], prompt)
            if same > count or (same == count and prefix is not None):
                count, row, prefix = same, number, None
        return count, row, prefix

    def _group(self, remaining: int) -> list[Text]:
        """Return the texts of the next call: the first one, and those after it that need little padding."""
        group = [self._joined[0]]
        if group[0].cached or group[0].scores_prompt or (self._piece is not None and remaining > self._piece):
            return group
        max_length = total = remaining
        for text in list(self._joined)[1:]:
            if text.adapter is not group[0].adapter or text.scores_prompt:
                break
            max_length, total = max(max_length, text.count), total + text.count
            padded = max_length * (len(group) + 1)
            if padded > max(_MAX_PADDING, total * 5 // 4) or (self._piece is not None and padded > self._piece):
                break
            if text.is_done or self._source(text)[0] >= MIN_SHARED or self._shares(text, group):
                break
            group.append(text)
        return group

    def _shares(self, text: Text, group: Sequence[Text]) -> bool:
        """Return True if a text can copy a prefix once the group is read."""
        prompt = text.tokens[:-1]
        return self._prefixes is not None and any(shared_count(prompt, other.tokens) >= MIN_SHARED for other in group)

    def _read_piece(self, group: list[Text], size: int) -> None:
        """Read the next `size` tokens of a prompt, or all tokens of several prompts."""
        begin = group[0].cached
        tokens = np.zeros((len(group), size), np.int64)
        for row, text in zip(tokens, group, strict=True):
            piece = text.tokens[begin : begin + size]
            row[: len(piece)] = piece
        lengths = np.array([min(text.count, begin + size) for text in group], np.int64)
        self.counts.read += int(lengths.sum()) - begin * len(group)
        if group[0].count <= begin + size:
            self._advance(self._at, group, tokens, lengths)
            self._settle(group)
            return
        try:
            self._logits(self._at, group[0], tokens, lengths)
            group[0].cached = begin + size
        except Exception as error:
            group[0].fail(error)

    # Rows

    def _settle(self, group: list[Text]) -> None:
        """Move texts whose prompts are read to the running rows."""
        for row, text in enumerate(group, self._at):
            self._joined.popleft()
            if text.error is None:
                self._copy(row, len(self._rows), text.cached)
                self._rows.append(text)
        self._reading = None

    def _leave(self) -> None:
        """Remove the texts that have ended."""
        for row in range(len(self._rows) - 1, -1, -1):
            text = self._rows[row]
            if not text.is_done:
                continue
            if self._prefixes is not None and text.cached >= MIN_SHARED:
                rows = {name: array[row] for name, array in self._slots.arrays.items()}
                self._prefixes.keep(text.tokens[: text.cached], rows, text.adapter)
            last = self._rows.pop()
            if row < len(self._rows):
                self._copy(len(self._rows), row, last.cached)
                self._rows[row] = last

    def _copy(self, source: int, target: int, count: int) -> None:
        """Copy the keys and values of the first `count` tokens of a row."""
        if source == target or not count:
            return
        for array in self._slots.arrays.values():
            array[target, :, :count] = array[source, :, :count]


def _choose_tokens(texts: Sequence[Text], logits: Array) -> list[int]:
    """Return the next token of each text. logits: [texts, vocabulary]."""
    if any(text.rules for text in texts):
        logits = _apply_rules(texts, logits)
    if all(text.choice.generator is None for text in texts):
        return [int(token) for token in texts[0].choice.of(logits).tolist()]
    return [
        int(text.choice.of(row, None if text.choice.generator is None else np.array([[text.number()]]))[0])
        for text, row in zip(texts, logits[:, None], strict=True)
    ]


def _apply_rules(texts: Sequence[Text], logits: Array) -> Array:
    """Return logits changed by the rules of each text. Raises `FeedError` if no token is allowed."""
    logits = logits.copy()
    for text, row in zip(texts, logits, strict=True):
        for rule in text.rules:
            rule.apply(row)
        if row.max() == -np.inf:
            raise FeedError(
                f"generate: the constraints of a text allow no token after {len(text.new_tokens)} new ones",
                help="use one grammar, and no bias that forbids all of its tokens",
            )
    return logits


# Prefix sharing: keys and values of ended texts, for prompts that start with the same tokens.

MIN_SHARED = 16
"""Minimum number of tokens to share: fewer are computed in the time of finding and copying them."""


def shared_count(one: Array, other: Array) -> int:
    """Return the length of the common prefix of two texts."""
    count = min(len(one), len(other))
    differs = one[:count] != other[:count]
    first = int(differs.argmax()) if count else 0
    return first if count and differs[first] else count


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens, and their keys and values by the names of buffers, computed with an adapter: [kv_heads, tokens, size]."""

    tokens: Array
    rows: Mapping[str, Array]
    adapter: Mapping[str, Array] | None = None


class Prefixes:
    """A store of up to `max_tokens` tokens, which evicts the least recently used prefix."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._prefix_list: list[Prefix] = []  # the most recently used last

    @property
    def tokens(self) -> int:
        """The number of tokens in the store."""
        return sum(len(prefix.tokens) for prefix in self._prefix_list)

    def find(self, prompt: Array, adapter: Mapping[str, Array] | None = None) -> tuple[int, Prefix | None]:
        """Return the number of tokens of the longest common prefix with a prompt, and its Prefix."""
        counts = [
            shared_count(prefix.tokens, prompt) if prefix.adapter is adapter else 0 for prefix in self._prefix_list
        ]
        best = max(counts, default=0)
        return best, self._prefix_list[len(counts) - 1 - counts[::-1].index(best)] if best else None

    def use(self, prefix: Prefix) -> None:
        """Mark a prefix as most recently used."""
        self._prefix_list.remove(prefix)
        self._prefix_list.append(prefix)

    def keep(self, tokens: Array, rows: Mapping[str, Array], adapter: Mapping[str, Array] | None = None) -> None:
        """Store a copy of a text's prefix. rows: by the names of buffers, [kv_heads, cache, size]."""
        tokens = tokens[: self._max_tokens]
        count = len(tokens)
        if count < MIN_SHARED:
            return
        shared, prefix = self.find(tokens, adapter)
        if prefix is not None and shared == count:
            self.use(prefix)
            return
        self._prefix_list = [
            each
            for each in self._prefix_list
            if each.adapter is not adapter or shared_count(each.tokens, tokens) < len(each.tokens)
        ]
        budget = self._max_tokens - count
        while self.tokens > budget:
            del self._prefix_list[0]
        copies = {name: row[:, :count].copy() for name, row in rows.items()}
        self._prefix_list.append(Prefix(tokens.copy(), copies, adapter))


# Prompt lookup: propose the tokens that followed an earlier occurrence of the last tokens.
#
# Source: Saxena 2023, "Prompt Lookup Decoding". The check of several tokens in one call is that of Leviathan et al.
# 2023, arXiv:2211.17192, for deterministic proposals.

_LENGTHS = (3, 2)
"""Numbers of equal tokens to look for, longest first. A single token would propose too many wrong ones."""


def propose(tokens: Array, max_tokens: int) -> list[int]:
    """Return up to `max_tokens` proposed tokens: those after the latest earlier occurrence of the last tokens.

    Prefers an occurrence with `max_tokens` tokens after it, which in a repetitive text is some periods back. tokens:
    int64[count], the whole text.
    """
    if max_tokens < 1:
        return []
    for length in _LENGTHS:
        starts = len(tokens) - length
        if starts < 1:
            continue
        same = tokens[:starts] == tokens[-length]
        for place in range(1, length):
            same &= tokens[place : place + starts] == tokens[place - length]
        matches = np.flatnonzero(same)
        if matches.size:
            complete = matches[matches <= starts - max_tokens]
            begin = int(complete[-1] if complete.size else matches[0]) + length
            return [int(token) for token in tokens[begin : begin + max_tokens]]
    return []


_DRAFT_PIECE = 512
"""Number of tokens of a prompt that a draft model reads in one call."""


class Draft:
    """A smaller decoder that proposes the likeliest next tokens of one text at a time.

    Source: Leviathan et al. 2023, arXiv:2211.17192, with the check of the proposals as above.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._slots = decoder.model.slots(1)
        self._last = [np.array(1, np.int64)] if decoder.takes_last else []
        self._cached = np.zeros(0, np.int64)  # the tokens whose keys and values are in the cache

    def propose(self, tokens: Array, max_tokens: int) -> list[int]:
        """Return up to `max_tokens` tokens after a text, fewer at the end of the cache. tokens: int64[count]."""
        guess: list[int] = []
        count, cached = len(tokens), min(shared_count(self._cached, tokens), len(tokens) - 1)
        self._cached = self._cached[:0]  # while a call may fail
        new = tokens[cached:]
        for _ in range(min(max_tokens, self._decoder.cache + 1 - count)):
            for start in range(0, len(new), _DRAFT_PIECE):
                piece = new[start : start + _DRAFT_PIECE]
                cached += len(piece)
                logits = self._slots.run(0, 1, piece[None], np.array([cached]), *self._last)[0]
            guess.append(int(np.argmax(logits)))
            new = np.array(guess[-1:], np.int64)
        if guess:
            self._cached = np.concatenate([tokens, guess[:-1]]).astype(np.int64)
        return guess
