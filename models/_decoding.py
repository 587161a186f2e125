"""Shared parts of decoders: tokens and lengths as inputs, keys and values in buffers, logits as output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore import ops
from graphcore.errors import GraphError, ModelError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
