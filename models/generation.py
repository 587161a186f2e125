"""Text generation with decoders: one call reads the prompt, and each further call generates a token."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Generator, Mapping, Sequence
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
from graphcore.models.streams.sampling import (
    Constraint,
    Prompts,
    Seed,
    Text,
    choice_of,
    decoder_of,
    prompts_of,
    require_integer,
    start_rules,
    stop_tokens,
)
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption, display_for
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
    draft: Model | None = None,
    constraints: Sequence[Constraint] = (),
    adapter: Mapping[str, Array] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Any:
    """Generate the tokens after prompts with a decoder. The buffers of the model do not change.

    Args:
        model: A loaded `llama.build` or `gpt2.build`, also quantised or from a file.
        tokens: A prompt, or several of any lengths, each with the same result as alone.
        max_new_tokens: The maximum number of new tokens of each text. With the prompt they must fit in the cache.
        temperature: 0 for the likeliest token; above 0 to sample from the softmax of logits / temperature.
        top_k: Sample from the k likeliest tokens.
        top_p: Then sample from the fewest tokens whose probabilities reach this sum.
        seed: A number, or a `numpy.random.Generator`.
        stop: Tokens that end a text, as its last token.
        lookup: The maximum number of tokens to look up in a single text and check in one call: fewer calls for
            repetitive texts, with the same tokens. The model must be built with last_tokens=True.
        draft: A smaller decoder with the same tokens, which proposes tokens of a single text to check in one call:
            fewer calls of the model, with the same tokens. The model must be built with last_tokens=True.
        constraints: Grammars and other constraints on the new tokens of each text. See `models.constraints`.
        adapter: The arrays of a LoRA adapter: `model.adapter(...)`.
        timeout: The maximum number of seconds of all calls together. `stream` yields the tokens until then.
        progress: True for a line on stderr, or a function that gets the numbers of new tokens and of the maximum.

    Returns:
        An int64 array, or a list of them for several prompts.

    Raises:
        RunTimeoutError: The timeout is over.
        FeedError: A prompt is empty, invalid or too long for the cache, or an option is invalid.
        ModelError: The model is not a decoder, or the draft model does not fit it.
        RunError: The logits contain NaN.
    """
    prompts, is_single = prompts_of("generate", tokens)
    columns = list(
        stream(
            model, prompts, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop,
            lookup=lookup, draft=draft, constraints=constraints, adapter=adapter, timeout=timeout, progress=progress,
        )
    )  # fmt: skip
    array = np.array(columns, np.int64).reshape(len(columns), len(prompts)).T
    texts = [row[: int((row != ENDED).sum())].copy() for row in array]
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
    draft: Model | None = None,
    constraints: Sequence[Constraint] = (),
    adapter: Mapping[str, Array] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
) -> Generator[Array, None, None]:
    """Generate token by token: return an iterator of int64[prompts] arrays, one for each step.

    Arguments and errors are those of `generate`; invalid arguments raise before the first token. A text that has ended
    has -1 from then on; the iterator ends with the last text. Closing or deleting it frees its cache.

    Args:
        timeout: Counts from the request of the first token.
    """
    prompts, _ = prompts_of("generate", tokens)
    decoder = decoder_of("generate", model)
    limit = Limit(model.name, None if timeout is None else seconds_of("generate", timeout))
    max_tokens = require_integer("generate", "max_new_tokens", max_new_tokens, 0)
    ends = stop_tokens("generate", stop)
    decoder.check("generate", prompts, max_tokens, ends)
    lookup = decoder.check_lookup("generate", lookup)
    choice = choice_of("generate", temperature, top_k, top_p, seed)
    draft_decoder, arrays = decoder.check_draft("generate", draft), decoder.check_adapter("generate", adapter)
    texts = [
        Text(prompt, max_tokens, ends, choice, n, lookup, 0, None, start_rules("generate", constraints), arrays)
        for prompt, n in zip(prompts, choice.numbers(len(prompts)), strict=True)
    ]
    return _steps(Running(decoder, len(texts), draft=draft_decoder), texts, max_tokens, limit, progress)


def _steps(
    running: Running, texts: list[Text], max_tokens: int, limit: Limit, progress: ProgressOption
) -> Generator[Array, None, None]:
    if not max_tokens:
        return
    limit.restart()
    bar = display_for(progress, max_tokens, "tokens")
    for text in sorted(texts, key=lambda text: text.count):  # prompts of the same length are read together
        running.join(text)
    yielded = 0
    try:
        for make in itertools.cycle((running.read, running.step)):
            with limit:
                make()
            for text in texts:
                if text.error is not None:
                    raise text.error
            # Each running text gets a token; a single one may get several by lookup.
            available = min(
                (len(t.new_tokens) for t in texts if not t.is_done), default=max(len(t.new_tokens) for t in texts)
            )
            for number in range(yielded, available):
                if bar is not None:
                    bar.show(number + 1)
                yield np.array([t.new_tokens[number] if number < len(t.new_tokens) else ENDED for t in texts], np.int64)
            yielded = max(available, yielded)
            if all(text.is_done for text in texts):
                return
    finally:
        if bar is not None:
            bar.close()


# Common parts of decoders: tokens and lengths as inputs, keys and values in buffers, logits as output.

MICROSOFT = "com.microsoft"

DEFAULT_CACHE = 1024
"""The default number of tokens of a cache."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a decoder. size: the size of a head. positions: the maximum number of tokens."""

    layers: int
    heads: int
    kv_heads: int
    size: int
    positions: int


def adapted_layers(
    shapes: Mapping[str, tuple[int, ...]], ends: Collection[str], *, transposed: bool = False
) -> dict[str, tuple[int, int]]:
    """Return the numbers of inputs and outputs of the dense layers whose names end so. Raises `ModelError` if none do.

    shapes: of weights by name, [outputs, inputs]; the other way if `transposed`.
    """
    dense = {
        name.removesuffix(".weight"): shape if transposed else shape[::-1]
        for name, shape in shapes.items()
        if len(shape) == 2
        and re.search(r"\.\d+\.", name)
        and ".experts." not in name  # no embeddings and stacked weights
    }
    unknown = [end for end in ends if not any(name.endswith(f".{end}") for name in dense)]
    if unknown or isinstance(ends, str):
        names = sorted({name.rpartition(".")[2] for name in dense})
        raise ModelError(f"adapters: no layer's name ends with {ends!r:.80}", help=f"the ends are {', '.join(names)}")
    return {n: (s[0], s[1]) for n, s in dense.items() if n.endswith(tuple(f".{end}" for end in ends))}


class DecoderStep:
    """A call of a decoder, on the tokens after those in the cache.

    The cache of a layer is two buffers, such as `keys0` and `values0`, of [batch, kv_heads, cache, size]. `lengths` has
    the number of tokens of each item after the call; rows of the cache beyond are undefined. A call is the first one,
    on prompts padded on the right, if the longest item has as many tokens as the call.
    """

    def __init__(
        self,
        name: str,
        attention: Attention,
        cache: int | None,
        last_tokens: bool = False,
        adapters: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Create the graph.

        last_tokens: add an input for the number of last tokens whose logits are output. adapters: the numbers of inputs
        and outputs of dense layers by name, for which to add the inputs of a LoRA adapter.
        """
        cache = min(DEFAULT_CACHE, attention.positions) if cache is None else cache
        if type(cache) is not int or cache < 1:
            raise GraphError(
                f"{name}: cache must be an integer above 0, got {cache!r:.80}",
                help="give a number of tokens: cache=1024",
            )
        if cache > attention.positions:
            raise ModelError(
                f"{name}: cache={cache} tokens, but the model has {attention.positions} positions",
                help=f"give cache={attention.positions} or less",
            )
        self.attention = attention
        self.cache = cache
        buffer = Buffer(DType.float32, ["batch", attention.kv_heads, cache, attention.size], in_place=True)
        low_rank = {}
        for number, (module, (into, out)) in enumerate((adapters or {}).items()):
            low_rank[f"{module}.lora_A"] = TensorType(DType.float32, [into, f"rank{number}"])
            low_rank[f"{module}.lora_B"] = TensorType(DType.float32, [f"rank{number}", out])
        sizes = {n: tuple(int(dim) if dim.is_static else 0 for dim in t.shape) for n, t in low_rank.items()}
        buffers = {f"{kind}{i}": buffer for i in range(attention.layers) for kind in ("keys", "values")}
        self.graph = Graph(
            name,
            {
                "tokens": TensorType(DType.int64, ["batch", "sequence"]),
                "lengths": TensorType(DType.int64, ["batch"]),
                **({"last_tokens": TensorType(DType.int64, [])} if last_tokens else {}),
                **buffers,
                **low_rank,
            },
            defaults={n: np.zeros(size, np.float32) for n, size in sizes.items()},
        )
        self._adapted = frozenset(adapters or ())
        self.tokens, self.lengths = self.graph.inputs[:2]
        self.last_tokens = self.graph["last_tokens"] if last_tokens else None
        with self.graph.layer("lengths"):
            self._count = ops.shape_of(self.tokens)[1]
            total = ops.max(ops.max(self.lengths, axis=0), self._count)
            self._before = ops.where(total == self._count, 0, self.lengths - self._count)
            # A length outside the cache becomes an index out of range, so that the run fails.
            is_outside = (self.lengths < 1) | (self._before < 0)
            rows = self.graph.constant(np.arange(-1, cache, dtype=np.int32))
            self._last_keys = ops.gather(rows, ops.where(is_outside, cache + 1, self.lengths))
            self._total = total.cast(DType.int32)

    def embed_tokens(self, words: Symbol) -> Symbol:
        """Return the rows of tokens in an embedding of [vocabulary, width]. The run fails for an invalid token."""
        is_negative = self.tokens < 0  # Gather would count from the end
        return ops.gather(words, ops.where(is_negative, int(words.shape[0]), self.tokens))

    def adapt(self, y: Symbol, x: Symbol, module: str) -> Symbol:
        """Add the part of an adapter to the output of a dense layer: x @ A @ B. The default of rank 0 adds zeros."""
        if module not in self._adapted:
            return y
        return y + x @ self.graph[f"{module}.lora_A"] @ self.graph[f"{module}.lora_B"]

    def rows(self, x: Symbol) -> Symbol:
        """Merge batch and sequence into rows, so that dense layers are matrix products."""
        batch, sequence = self.tokens.shape
        return x.reshape(batch * sequence, x.shape[-1])

    def positions(self) -> Symbol:
        """Return the position of each token: int64[batch, sequence]."""
        sequence = self.tokens.shape[1]
        with self.graph:
            return self._before.unsqueeze(-1) + ops.range(0, sequence, dtype=DType.int64, out_dim=sequence)

    def attend(
        self,
        layer: int,
        query: Symbol,
        key: Symbol,
        value: Symbol,
        angles: tuple[Symbol, Symbol] | None = None,
        *,
        window: int = 0,
        softcap: float = 0.0,
        scale: float | None = None,
    ) -> Symbol:
        """Return the causal attention of a layer as rows, and store keys and values in the cache.

        query: rows of heads * size. key, value: rows of kv_heads * size. angles: cosine and sine of the rotation of
        queries and keys by position, float32[positions, rotated / 2]; None without rotation. window: the number of last
        tokens to attend to; 0 for all. softcap: the limit of scores; 0 for none. scale: their factor, 1 / sqrt(size).
        """
        batch, sequence = self.tokens.shape
        attention = self.attention
        q, k, v = (x.reshape(batch, sequence, x.shape[-1]) for x in (query, key, value))
        past = [self.graph.buffers[f"{kind}{layer}"] for kind in ("keys", "values")]
        # The kernel appends to the cache, reads only its valid rows, and rotates queries and keys itself.
        mixed, *present = self.graph.op(
            "GroupQueryAttention",
            (q, k, v, *past, self._last_keys, self._total, *(angles or ())),
            {"num_heads": attention.heads, "kv_num_heads": attention.kv_heads, "do_rotary": int(angles is not None)}
            | ({"local_window_size": window} if window else {})
            | ({"softcap": softcap} if softcap else {})
            | ({} if scale is None else {"scale": scale}),
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
        """Return the rows of the last `count` tokens of each item: [batch * count, width]. The run fails for fewer."""
        batch, sequence = self.tokens.shape
        each = ops.range(0, count, dtype=DType.int64, out_dim="last_tokens")
        at = (self.lengths - self._before - count).unsqueeze(-1) + each
        at = ops.where(at < 0, self._count, at)  # GatherND would count from the end
        last_rows = ops.gather_nd(rows.reshape(batch, sequence, rows.shape[-1]), at.unsqueeze(-1), batch_dims=1)
        return last_rows.reshape(batch * Dim("last_tokens"), rows.shape[-1])

    def output(self, rows: Symbol, head: Symbol, every_token: bool, softcap: float = 0.0) -> Graph:
        """Output the logits of the last token of each item, of several last tokens, or of all.

        head: [vocabulary, width]. softcap: the limit of logits; 0 for none.
        """
        batch, sequence = self.tokens.shape
        with self.graph.layer("head"):
            if every_token:
                logits = ops.linear(rows, head).reshape(batch, sequence, head.shape[0])
            elif self.last_tokens is not None:
                last = ops.linear(self.last_rows(rows, self.last_tokens), head)
                logits = last.reshape(batch, "last_tokens", head.shape[0])
            else:
                logits = ops.linear(self.last(rows), head)
            self.graph.output(logits=ops.tanh(logits / softcap) * softcap if softcap else logits)
        return self.graph
