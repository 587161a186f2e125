"""GPT-2: learnt position embeddings, LayerNorm before each block, GELU, and a head tied to the embedding."""

from typing import Any

from graphcore.models._config import require
from graphcore.models.decoder import build, named, shapes
from graphcore.models.families import GPT2, Config

__all__ = ["Config", "build", "config", "named", "shapes"]


def config(width: int = 256, heads: int = 8, inner: int = 1024, positions: int = 1024, **values: Any) -> Config:
    """Return the configuration of a GPT-2, by default of a small one with 3.5 million weights.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
    """
    require(width % heads == 0, f"width {width} is not a multiple of heads {heads}")
    sizes = {"width": width, "inner": inner, "heads": heads, "kv_heads": heads, "size": width // heads}
    return Config(**{**GPT2, **sizes, "positions": positions, **values})
