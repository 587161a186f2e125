"""Texts from decoders: a prompt is read in one call, and each later token made in another."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.errors import GraphError, ModelError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import Prompts, Seed, Text, choice, decoder, prompts_of, stops, whole
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption, shown_by
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Any:
    """The tokens that a decoder puts after prompts: an int64 array, or a list of them for several prompts.

    model: a loaded `llama.build` or `gpt2.build`, also quantised or from a file. tokens: a prompt, or several of any
    lengths at once; each gets the same tokens as alone. max_new_tokens: the limit for each; together with the prompt
    they must fit into the cache. temperature: 0 takes the likeliest token, above 0 it is drawn from the softmax of
    logits / temperature; top_k: among the k likeliest; top_p: then among the fewest whose probabilities reach this sum.
    seed: a number, or a `numpy.random.Generator`. stop: tokens that end a text, as its last. lookup: where a text is
    alone, up to so many tokens are looked up in it and checked in one call, which gives the same tokens in fewer calls
    where texts repeat themselves; the model must be built with last_tokens=True. timeout: seconds that all calls may
    take together; `stream` gives the tokens made until then. progress: True shows a line on stderr; a function is told
    how many tokens are made, and how many at most.

    The model's own buffers stay as they are. Raises `RunTimeoutError` where the time is over, `FeedError` for prompts
    that are empty, invalid, or too long for the cache, and for invalid options, `ModelError` for a model that is no
    decoder, and `RunError` for NaN among the logits.
    """
    prompts, is_single = prompts_of("generate", tokens)
    columns = list(
        stream(
            model, prompts, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            lookup=lookup, timeout=timeout, progress=progress,
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
    lookup: int = 0,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Generator[Array, None, None]:
    """Generate token by token: return an iterator of int64[prompts] arrays, one for each step.

    An item that has ended has -1 from then on; the iterator ends with the last item. Closing or dropping it frees its
    cache and changes nothing else. timeout: seconds from the first token asked for to the last one. Raises as
    `generate` does, before the first token.
    """
    prompts, _ = prompts_of("generate", tokens)
    known = decoder("generate", model)
    limit = Limit(model.name, None if timeout is None else seconds_of("generate", timeout))
    most = whole("generate", "max_new_tokens", max_new_tokens, 0)
    ends = stops("generate", stop)
    known.check("generate", prompts, most, ends)
    lookup = known.check_lookup("generate", lookup)
    chosen = choice("generate", temperature, top_k, top_p, seed)
    numbers = chosen.numbers(len(prompts))
    texts = [Text(prompt, most, ends, chosen, n, lookup) for prompt, n in zip(prompts, numbers, strict=True)]
    return _steps(Running(known, len(texts)), texts, most, limit, progress)


def _steps(
    running: Running, texts: list[Text], most: int, limit: Limit, progress: ProgressOption
) -> Generator[Array, None, None]:
    if not most:
        return
    limit.restart()
    bar = shown_by(progress, most, "tokens")
    for text in sorted(texts, key=lambda text: text.count):  # those of one length are read together
        running.join(text)
    shown = 0
    try:
        for make in itertools.cycle((running.read, running.step)):
            with limit:
                make()
            for text in texts:
                if text.error is not None:
                    raise text.error
            # Texts that run make a token each; one that is alone may make several.
            made = min((len(t.made) for t in texts if not t.is_done), default=max(len(t.made) for t in texts))
            for number in range(shown, made):
                if bar is not None:
                    bar.show(number + 1)
                yield np.array([t.made[number] if number < len(t.made) else ENDED for t in texts], np.int64)
            shown = max(made, shown)
            if all(text.is_done for text in texts):
                return
    finally:
        if bar is not None:
            bar.close()


# Shared parts of decoders: tokens and lengths as inputs, keys and values in buffers, logits as output.

MICROSOFT = "com.microsoft"

USUAL = 1024
"""Tokens that a cache holds, if the model is made for so many."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The heads of a decoder. positions: the greatest number of tokens that it supports."""

    layers: int
    heads: int
    kv_heads: int
    size: int
    positions: int


class Step:
    """A call of a decoder, on the tokens after those that the cache has.

    The cache of a layer is two buffers, `keys0` and `values0`, of [batch, kv_heads, cache, size]. `lengths` says how
    many tokens there are then of each item; what lies after them has no meaning. A first call, on prompts that are
    padded on the right, begins where the longest of them has as many tokens as the call.
    """

    def __init__(self, name: str, attention: Attention, cache: int | None, last_tokens: bool = False) -> None:
        """last_tokens: whether an input tells of how many tokens of each item the logits are."""
        cache = min(USUAL, attention.positions) if cache is None else cache
        if type(cache) is not int or cache < 1:
            raise GraphError(f"{name}: cache={cache!r:.80} is no number of tokens", help="give a whole number above 0")
        if cache > attention.positions:
            raise ModelError(
                f"{name}: a cache of {cache} tokens, and the model was made for {attention.positions} positions",
                help=f"give cache={attention.positions} or less",
            )
        self.attention = attention
        self.cache = cache
        buffer = Buffer(DType.float32, ["batch", attention.kv_heads, cache, attention.size], in_place=True)
        buffers = {f"{kind}{i}": buffer for i in range(attention.layers) for kind in ("keys", "values")}
        self.graph = Graph(
            name,
            {
                "tokens": TensorType(DType.int64, ["batch", "sequence"]),
                "lengths": TensorType(DType.int64, ["batch"]),
                **({"last_tokens": TensorType(DType.int64, [])} if last_tokens else {}),
                **buffers,
            },
        )
        self.tokens, self.lengths = self.graph.inputs[:2]
        self.last_tokens = self.graph["last_tokens"] if last_tokens else None
        with self.graph.layer("lengths"):
            self._count = ops.shape_of(self.tokens)[1]
            total = ops.max(ops.max(self.lengths, axis=0), self._count)
            self._before = ops.where(total == self._count, 0, self.lengths - self._count)
            # A length outside of the cache has no row, so that the run fails.
            is_none = (self.lengths < 1) | (self._before < 0)
            rows = self.graph.constant(np.arange(-1, cache, dtype=np.int32))
            self._last_keys = ops.gather(rows, ops.where(is_none, cache + 1, self.lengths))
            self._total = total.cast(DType.int32)

    def embedded(self, words: Symbol) -> Symbol:
        """Return the rows of the tokens in an embedding of [vocabulary, width]; a token without a row fails the run."""
        has_none = self.tokens < 0  # Gather would count from the end
        return ops.gather(words, ops.where(has_none, int(words.shape[0]), self.tokens))

    def rows(self, x: Symbol) -> Symbol:
        """Merge batch and sequence into rows: dense layers are then plain matrix products."""
        batch, sequence = self.tokens.shape
        return x.reshape(batch * sequence, x.shape[-1])

    def positions(self) -> Symbol:
        """Return the position of each token: int64[batch, sequence]."""
        sequence = self.tokens.shape[1]
        with self.graph:
            return self._before.unsqueeze(-1) + ops.range(0, sequence, dtype=DType.int64, out_dim=sequence)

    def attend(
        self, layer: int, query: Symbol, key: Symbol, value: Symbol, angles: tuple[Symbol, Symbol] | None = None
    ) -> Symbol:
        """Return what each token takes from those before it and itself, whose keys and values are kept: rows again.

        query: rows of heads * size; key, value: rows of kv_heads * size. angles: cosine and sine of the rotation of
        queries and keys by position, float32[positions, size / 2]; None without rotation.
        """
        batch, sequence = self.tokens.shape
        own = self.attention
        q, k, v = (x.reshape(batch, sequence, x.shape[-1]) for x in (query, key, value))
        past = [self.graph.buffers[f"{kind}{layer}"] for kind in ("keys", "values")]
        # The kernel writes after what the cache has, reads no more than there is, and turns queries and keys itself.
        # The kernel appends to the cache, reads only its valid rows, and rotates queries and keys itself.
        mixed, *present = self.graph.op(
            "GroupQueryAttention",
            (q, k, v, *past, self._last_keys, self._total, *(angles or ())),
            {"num_heads": own.heads, "kv_num_heads": own.kv_heads, "do_rotary": int(angles is not None)},
            [q.type, past[0].type, past[1].type],
            domain=MICROSOFT,
        )
        for buffer, value_now in zip(past, present, strict=True):
            ops.buffer_store(buffer, value_now)
        return self.rows(mixed)

    def last(self, rows: Symbol) -> Symbol:
        """Return the row of the last token of each item: [batch, width]."""
        batch, sequence = self.tokens.shape
        at = self.lengths - self._before - 1
        return ops.gather_nd(rows.reshape(batch, sequence, rows.shape[-1]), at.unsqueeze(-1), batch_dims=1)

    def last_rows(self, rows: Symbol, count: Symbol) -> Symbol:
        """Return the rows of so many last tokens of each item: [batch * count, width]. More than there are fail."""
        batch, sequence = self.tokens.shape
        each = ops.range(0, count, dtype=DType.int64, out_dim="last_tokens")
        at = (self.lengths - self._before - count).unsqueeze(-1) + each
        at = ops.where(at < 0, self._count, at)  # GatherND would count from the end
        found = ops.gather_nd(rows.reshape(batch, sequence, rows.shape[-1]), at.unsqueeze(-1), batch_dims=1)
        return found.reshape(batch * Dim("last_tokens"), rows.shape[-1])

    def output(self, rows: Symbol, head: Symbol, every_token: bool) -> Graph:
        """Output the logits of the last token of each item, of its last, or of all. head: [vocabulary, width]."""
        batch, sequence = self.tokens.shape
        with self.graph.layer("head"):
            if every_token:
                logits = ops.linear(rows, head).reshape(batch, sequence, head.shape[0])
            elif self.last_tokens is not None:
                last = ops.linear(self.last_rows(rows, self.last_tokens), head)
                logits = last.reshape(batch, "last_tokens", head.shape[0])
            else:
                logits = ops.linear(self.last(rows), head)
            self.graph.output(logits=logits)
        return self.graph
