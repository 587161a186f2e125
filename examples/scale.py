"""Embeddings of sentences on a cluster: on the processors of this machine, or on those of RAY_ADDRESS.

python examples/scale.py
RAY_ADDRESS=10.0.0.1:6379 python examples/scale.py
"""

from typing import Any

import ray
import ray.data

import graphcore as gc
from graphcore.models import minilm


def embedded(texts: list[str], **options: Any) -> Any:
    """Return a Dataset of the texts with their embeddings."""
    rows = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    return gc.scale.map_batches(rows, minilm.Embedding(), **options)


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    for row in embedded([f"{sentence} ({i})" for i in range(20) for sentence in minilm.SENTENCES]).take(3):
        print(row["id"], row["text"], row["embedding"][:3])
