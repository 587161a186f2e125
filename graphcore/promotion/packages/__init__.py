"""The promotion of array packages: NumPy, JAX and PyTorch, each as its documentation and its release have it."""

from __future__ import annotations

from graphcore.promotion.packages.jax import Jax
from graphcore.promotion.packages.numpy import NumPy
from graphcore.promotion.packages.torch import Torch

__all__ = ["Jax", "NumPy", "Torch"]
