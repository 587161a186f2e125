"""A decoder from a checkpoint: streamed tokens, sampled ones, several prompts at once, and weights of 4 bits.

python examples/generate.py
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import graphcore as gc
from graphcore import models
from graphcore.models import llama

CONFIG = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}  # fmt: skip


def checkpoint(folder: Path) -> None:
    """Write a checkpoint as the hub has it, with random weights."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(0)
    shapes = llama.shapes(llama.Config.read(CONFIG))
    weights = {name: random.standard_normal(shape, np.float32) * np.float32(0.1) for name, shape in shapes.items()}
    gc.save_tensors(folder / "model.safetensors", weights)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint(folder)
        graph = llama.build(folder / "config.json", folder / "model.safetensors", cache=64)
        model = gc.InferenceSession().load(graph)

        print("likeliest", *(token for (token,) in models.stream(model, [1, 15, 7], 8)))
        print("drawn    ", *models.generate(model, [1, 15, 7], 8, temperature=0.9, top_k=50, top_p=0.95, seed=1))
        alone = models.generate(model, [4], 8)
        together = models.generate(model, [[1, 15, 7], [4]], 8)
        print("together ", *together[1], "as alone:", np.array_equal(together[1], alone))

        small = gc.InferenceSession().load(gc.quantize(graph, "int4", block_size=32).graph)
        print("4 bits   ", *models.generate(small, [1, 15, 7], 8))
        del model, small  # they map the file
