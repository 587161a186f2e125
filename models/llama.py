"""Llama and decoders like it, by the blocks of `models.decoder`."""

from graphcore.models.decoder import angles, build, named, shapes
from graphcore.models.families import Config

__all__ = ["Config", "angles", "build", "named", "shapes"]
