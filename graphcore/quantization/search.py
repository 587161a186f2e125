"""Steps that lose least: several are tried for each group of numbers, and refined by least squares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphcore.quantization.tensors import Array

_SPREAD = np.linspace(-0.2, 0.2, 21, dtype=np.float32)
"""By which part a step is tried that is shorter or longer than what holds the extremes."""

_ROUNDS = 2
_AT_ONCE = 1 << 14
"""Groups that are looked at together: what is computed on the way stays in the cache."""


def centred(x: Array, least: int, most: int) -> Array:
    """The step of each group, x ~ step * q with q from `least` to `most`, where -least is `most` + 1.

    x: float32[n, elements]. Returns float32[n]. The number without an opposite is that of the greatest magnitude, so
    that steps may be negative; groups of zeros have the step 0.
    """
    (steps,) = _in_parts(x, 1, lambda part: (_centred(part, least, most),))
    return steps


def ranged(x: Array, most: int) -> tuple[Array, Array]:
    """The step and the minimum of each group, x ~ step * q - minimum with q from 0 to `most` and neither below 0.

    x: float32[n, elements]. Returns float32[n] twice.
    """
    steps, minima = _in_parts(x, 2, lambda part: _ranged(part, most))
    return steps, minima


def numbers(x: Array, step: Array, minimum: Array, least: int, most: int) -> Array:
    """The nearest q of each element, in float32."""
    over = _divided(np.ones_like(step), step)
    made: Array = np.clip(np.rint((x + minimum[..., None]) * over[..., None]), least, most)
    return made


def loss(x: Array, step: Array, minimum: Array, least: int, most: int) -> Array:
    """The sum of the squares of what a step loses, of each group."""
    q = numbers(x, step, minimum, least, most)
    return np.asarray(np.square(step[..., None] * q - minimum[..., None] - x).sum(-1))


def _in_parts(x: Array, results: int, search: Callable[[Array], tuple[Array, ...]]) -> tuple[Array, ...]:
    """The search of groups scaled to 1 at most, so that squares neither overflow nor vanish."""
    made = tuple(np.empty(len(x), np.float32) for _ in range(results))
    for start in range(0, len(x), _AT_ONCE):
        at = slice(start, start + _AT_ONCE)
        scale = np.abs(x[at]).max(-1, initial=0)
        found = search(x[at] / np.where(scale == 0, np.float32(1), scale)[:, None])
        for whole, part in zip(made, found, strict=True):
            whole[at] = part * scale
    return made


def _centred(x: Array, least: int, most: int) -> Array:
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1)[:, 0]
    none = np.zeros_like(far)
    best, lost = none, np.square(x).sum(-1)
    for spread in _SPREAD:
        step = far / np.float32(least) * (1 + spread)
        for _ in range(_ROUNDS):
            q = numbers(x, step, none, least, most)
            step = _divided((x * q).sum(-1), (q * q).sum(-1))
        found = loss(x, step, none, least, most)
        best, lost = np.where(found < lost, step, best), np.minimum(found, lost)
    return best


def _ranged(x: Array, most: int) -> tuple[Array, Array]:
    low, high = x.min(-1, initial=0), x.max(-1, initial=0)
    whole = (high - low) / np.float32(most)
    best_step, best_minimum = whole, -low
    lost = loss(x, whole, -low, 0, most)
    mean = x.mean(-1)
    for spread in _SPREAD:
        step, minimum = whole * (1 + spread), -low
        for _ in range(_ROUNDS):
            q = numbers(x, step, minimum, 0, most)
            middle = q.mean(-1)
            about = q - middle[:, None]
            step = _divided((x * about).sum(-1), (about * about).sum(-1))
            minimum = step * middle - mean
            below = minimum < 0  # which cannot be said: the step alone then
            step = np.where(below, _divided((x * q).sum(-1), (q * q).sum(-1)), step)
            minimum = np.where(below, np.float32(0), minimum)
        found = np.where(step > 0, loss(x, step, minimum, 0, most), np.inf)
        better = found < lost
        best_step, best_minimum = np.where(better, step, best_step), np.where(better, minimum, best_minimum)
        lost = np.where(better, found, lost)
    return best_step, best_minimum


def _divided(x: Array, y: Array) -> Array:
    return np.divide(x, y, out=np.zeros_like(x), where=y != 0)
