"""The running batch: texts join it and leave it between steps, each in a row of one cache of keys and values.

The rows in use are the first ones, so that a step computes no other; the last row moves to the place of one that has
left. A prompt is read in its row, alone or with others beside it, before or after the rows that run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.models.streams.sampling import Decoder, Text

_FEW = 32
"""Tokens that a call reads in little more time than one: that many may be padding."""


@dataclass(slots=True)
class Counts:
    """The calls and tokens so far.

    calls: of the model. read: tokens of prompts. reused: those whose keys and values were copied instead. made: new
    tokens. proposed, accepted: tokens that were looked up, and those of them that were right.
    """

    calls: int = 0
    read: int = 0
    reused: int = 0
    made: int = 0
    proposed: int = 0
    accepted: int = 0


class Running:
    """Texts that a decoder generates side by side. One thread at a time uses it."""

    def __init__(self, decoder: Decoder, slots: int, piece: int | None = None, prefix_tokens: int = 0) -> None:
        """slots: texts at once. piece: tokens of prompts that are read between two steps; None for all.
        prefix_tokens: tokens of texts that have ended whose keys and values are kept; 0 shares none at all."""
        self._slots = decoder.model.slots(slots)
        self._piece = piece
        self._prefixes = Prefixes(prefix_tokens) if prefix_tokens else None
        self._rows: list[Text] = []
        self._joined: deque[Text] = deque()
        self._reading: Text | None = None  # the first that has joined, once its row has something of it
        self._at = 0  # the row where prompts are read
        self._tokens = np.zeros((slots, 1), np.int64)
        self._lengths = np.zeros(slots, np.int64)
        self._last = [np.array(count, np.int64) for count in range(2)] if decoder.takes_last else None
        self.counts = Counts()

    @property
    def room(self) -> int:
        """Return how many texts may join."""
        return len(self._slots) - len(self._rows) - len(self._joined)

    @property
    def texts(self) -> list[Text]:
        """Return the texts that have not left."""
        return [*self._rows, *self._joined]

    def join(self, text: Text) -> None:
        """Let a text join, whose prompt is read after those of the others."""
        self._joined.append(text)

    def read(self) -> bool:
        """Read prompts, `piece` tokens at most, and make the first token of each that was read to its end; return
        whether there were any.

        Prompts are read in the order in which they have joined, and in pieces of the same sizes whoever is beside them.
        A text whose call fails ends with the error, here and in `step`, and the others go on.
        """
        self._leave()
        if not self._joined:
            return False
        self._read()
        self._leave()
        return True

    def step(self) -> None:
        """Make a token of each text that was read; of one that is alone, and looks tokens up, maybe several."""
        self._step()
        self._leave()

    # Steps

    def _step(self) -> None:
        texts = self._rows
        if len(texts) == 1 and texts[0].lookup and self._look_up(texts[0]):
            return
        for row, text in enumerate(texts):
            self._tokens[row, 0] = text.last
            self._lengths[row] = text.count
        if texts:
            self._advance(0, texts, self._tokens[: len(texts)], self._lengths[: len(texts)])

    def _advance(self, start: int, texts: Sequence[Text], tokens: Array, lengths: Array) -> None:
        """Run a call on rows from `start`, and add to each text its next token."""
        try:
            made = _chosen(texts, self._call(start, tokens, lengths)[:, -1])
        except Exception as error:
            if len(texts) == 1:
                texts[0].fail(error)
                return
            for row, text in enumerate(texts):  # again, and alone: the error is of one of them
                self._advance(start + row, [text], tokens[row : row + 1], lengths[row : row + 1])
            return
        for text, token in zip(texts, made, strict=True):
            text.add(token)
        self.counts.made += len(texts)

    def _look_up(self, text: Text) -> bool:
        """Make tokens of the only text by checking what its own tokens propose; return whether they propose any.

        Each token is chosen by its logits as ever, and those after it count as long as it is the proposed one.
        """
        guess = proposed(text.tokens, min(text.reach, text.left - 1))
        if not guess:
            return False
        before = len(text.made)
        try:
            tokens, lengths = np.array([[text.last, *guess]], np.int64), np.array([text.count + len(guess)], np.int64)
            logits = self._call(0, tokens, lengths, len(guess) + 1)[0]
            for row, token in enumerate([*guess, None]):
                (made,) = _chosen([text], logits[row : row + 1])
                text.add(made)
                if made != token or text.is_done:
                    break
        except Exception as error:
            text.fail(error)
        right = max(len(text.made) - before - 1, 0)
        text.reach = min(text.lookup, 2 * text.reach) if right == len(guess) else max(1, min(text.reach, 2 * right))
        self.counts.proposed += len(guess)
        self.counts.accepted += right
        self.counts.made += len(text.made) - before
        return True

    def _call(self, start: int, tokens: Array, lengths: Array, last: int = 1) -> Array:
        """Return the logits of the last tokens of each row from `start`: [rows, last, vocabulary]."""
        self.counts.calls += 1
        stop = start + len(tokens)
        if self._last is None:
            return np.asarray(self._slots.run(start, stop, tokens, lengths)[0])[:, None]
        count = self._last[1] if last == 1 else np.array(last, np.int64)
        return np.asarray(self._slots.run(start, stop, tokens, lengths, count)[0])

    # Prompts

    def _read(self) -> None:
        read = 0
        while self._joined:
            text = self._joined[0]
            if text.is_done:
                self._reading = None
                self._joined.popleft()
                continue
            if text is not self._reading or not text.held:  # rows may have left since it was put off
                self._begin(text)
            left = text.count - text.held
            if left == 1:  # the next step reads it beside the others
                self._settle([text])
                continue
            group = self._group(left)
            size = max(t.count - t.held for t in group)
            size = size if self._piece is None else min(size, self._piece)
            if self._piece is not None and read and read + size * len(group) > self._piece:
                return
            read += size * len(group)
            self._read_piece(group, size)

    def _begin(self, text: Text) -> None:
        """Give a text a row, and copy there what an earlier text has of its beginning."""
        self._reading, self._at = text, len(self._rows)
        count, row, prefix = self._source(text)
        if count < LEAST:
            return
        if prefix is None:
            self._copy(row, self._at, count)
        elif self._prefixes is not None:
            self._prefixes.use(prefix)
            for name, array in self._slots.arrays.items():
                array[self._at, :, :count] = prefix.rows[name][:, :count]
        text.held = count
        self.counts.reused += count

    def _source(self, text: Text) -> tuple[int, int, Prefix | None]:
        """Return how many tokens of a prompt are the beginning of a running text or of a kept one, and which: the row
        of it, or the prefix. The last token is not among them, for its logits are wanted."""
        if self._prefixes is None or text.count <= LEAST:
            return 0, 0, None
        prompt = text.tokens[:-1]
        count, prefix = self._prefixes.longest(prompt)
        row = 0
        for number, other in enumerate(self._rows):
            same = shared(other.tokens[: other.held], prompt)
            if same > count or (same == count and prefix is not None):
                count, row, prefix = same, number, None
        return count, row, prefix

    def _group(self, left: int) -> list[Text]:
        """Return the texts whose prompts are read in the next call: the first, and those after it that pad little."""
        group = [self._joined[0]]
        if group[0].held or (self._piece is not None and left > self._piece):
            return group
        longest = total = left
        for text in list(self._joined)[1:]:
            longest, total = max(longest, text.count), total + text.count
            padded = longest * (len(group) + 1)
            if padded > max(_FEW, total * 5 // 4) or (self._piece is not None and padded > self._piece):
                break
            if text.is_done or self._source(text)[0] >= LEAST or self._shares(text, group):
                break
            group.append(text)
        return group

    def _shares(self, text: Text, group: Sequence[Text]) -> bool:
        """Return whether a text begins with tokens that it can copy once the group was read."""
        own = text.tokens[:-1]
        return self._prefixes is not None and any(shared(own, other.tokens) >= LEAST for other in group)

    def _read_piece(self, group: list[Text], size: int) -> None:
        """Read tokens of prompts: of one the next ones, of several all."""
        begin = group[0].held
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
            self._call(self._at, tokens, lengths)
            group[0].held = begin + size
        except Exception as error:
            group[0].fail(error)

    # Rows

    def _settle(self, group: list[Text]) -> None:
        """Let texts that were read run: their rows follow those that run."""
        for row, text in enumerate(group, self._at):
            self._joined.popleft()
            if text.error is None:
                self._copy(row, len(self._rows), text.held)
                self._rows.append(text)
        self._reading = None

    def _leave(self) -> None:
        """Take out the texts that have ended."""
        for row in range(len(self._rows) - 1, -1, -1):
            text = self._rows[row]
            if not text.is_done:
                continue
            if self._prefixes is not None and text.held >= LEAST:
                rows = {name: array[row] for name, array in self._slots.arrays.items()}
                self._prefixes.keep(text.tokens[: text.held], rows)
            last = self._rows.pop()
            if row < len(self._rows):
                self._copy(len(self._rows), row, last.held)
                self._rows[row] = last

    def _copy(self, source: int, target: int, count: int) -> None:
        """Copy the keys and values of the first tokens of a row."""
        if source == target or not count:
            return
        for array in self._slots.arrays.values():
            array[target, :, :count] = array[source, :, :count]


def _chosen(texts: Sequence[Text], logits: Array) -> list[int]:
    """Return the next token of each text. logits: [texts, vocabulary]."""
    if all(text.choice.generator is None for text in texts):
        return [int(token) for token in texts[0].choice.of(logits).tolist()]
    return [
        int(text.choice.of(row, None if text.choice.generator is None else np.array([[text.number()]]))[0])
        for text, row in zip(texts, logits[:, None], strict=True)
    ]


# Beginnings of texts whose keys and values were computed before, kept for prompts that begin with the same tokens.

LEAST = 16
"""Tokens that a prompt has to share: fewer are read in the time that finding and copying them takes."""


def shared(one: Array, other: Array) -> int:
    """Return how many tokens two texts begin with that are the same."""
    count = min(len(one), len(other))
    differs = one[:count] != other[:count]
    first = int(differs.argmax()) if count else 0
    return first if count and differs[first] else count


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens, and by the names of the buffers their keys and values: [kv_heads, tokens, size]."""

    tokens: Array
    rows: Mapping[str, Array]


class Prefixes:
    """The store, of so many tokens at most: what was used least recently goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Prefix] = []  # the most recently used last

    @property
    def tokens(self) -> int:
        """Return how many tokens are kept."""
        return sum(len(prefix.tokens) for prefix in self._kept)

    def longest(self, prompt: Array) -> tuple[int, Prefix | None]:
        """Return the prefix that has the most tokens of the beginning of a prompt, and how many."""
        counts = [shared(prefix.tokens, prompt) for prefix in self._kept]
        best = max(counts, default=0)
        return best, self._kept[len(counts) - 1 - counts[::-1].index(best)] if best else None

    def use(self, prefix: Prefix) -> None:
        """Note that a prefix was used."""
        self._kept.remove(prefix)
        self._kept.append(prefix)

    def keep(self, tokens: Array, rows: Mapping[str, Array]) -> None:
        """Keep a copy of the beginning of a text. rows: by the names of the buffers, [kv_heads, cache, size]."""
        tokens = tokens[: self._most]
        count = len(tokens)
        if count < LEAST:
            return
        found, prefix = self.longest(tokens)
        if prefix is not None and found == count:
            self.use(prefix)
            return
        self._kept = [kept for kept in self._kept if shared(kept.tokens, tokens) < len(kept.tokens)]
        room = self._most - count
        while self.tokens > room:
            del self._kept[0]
        self._kept.append(Prefix(tokens.copy(), {name: row[:, :count].copy() for name, row in rows.items()}))


# Prompt look-up: what followed the last tokens where they stood before in a text is proposed to follow them again.
#
# Saxena 2023, "Prompt Lookup Decoding"; the check of several tokens in one call is that of Leviathan et al. 2023,
# arXiv:2211.17192, for proposals that are certain.

_LENGTHS = (3, 2)
"""Tokens that must be the same, the longer first. One alone would propose too much that does not come."""


def proposed(tokens: Array, most: int) -> list[int]:
    """Return up to `most` tokens that may follow: those after the latest place where the last tokens stood before.

    A place with `most` tokens after it is preferred, which in a text that repeats itself is some periods back. tokens:
    int64[count], the whole text.
    """
    if most < 1:
        return []
    for length in _LENGTHS:
        starts = len(tokens) - length
        if starts < 1:
            continue
        same = tokens[:starts] == tokens[-length]
        for place in range(1, length):
            same &= tokens[place : place + starts] == tokens[place - length]
        found = np.flatnonzero(same)
        if found.size:
            whole = found[found <= starts - most]
            begin = int(whole[-1] if whole.size else found[0]) + length
            return [int(token) for token in tokens[begin : begin + most]]
    return []
