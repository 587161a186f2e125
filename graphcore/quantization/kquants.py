"""Writing GGUF's blocks: Q4_0 as the format's own tools do, K-quants by a search for what loses least.

The layouts are those that `blocks.py` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from graphcore.errors import ModelError
from graphcore.quantization.tensors import Array

_AT_ONCE = 1 << 11
"""Blocks that are encoded at once."""


def encoded(x: Array, encoding: str, block: int, size: int) -> Array:
    """float32[..., k] as blocks, uint8[..., k / block * size]. Raises `ModelError` for a scale beyond float16."""
    blocks = x.reshape(-1, block)
    made = np.empty((len(blocks), size), np.uint8)
    with np.errstate(all="ignore"):  # steps of 0, and those that turn out to be too large
        for start in range(0, len(blocks), _AT_ONCE):
            made[start : start + _AT_ONCE] = _WRITERS[encoding](blocks[start : start + _AT_ONCE])
    return made.reshape(*x.shape[:-1], x.shape[-1] // block * size)


def _q4_0(x: Array) -> Array:
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1)
    step = far / np.float32(-8)
    over = np.where(step == 0, np.float32(0), np.float32(1) / step)
    # Halves go up, and not to even.
    q = np.trunc(x * over + np.float32(8.5)).astype(np.uint8)
    return np.concatenate([_half(step, x), _packed(np.minimum(q, 15), 16, 4)], 1)


def _q4_k(x: Array) -> Array:
    head, q = _in_steps(x, 15)
    return np.concatenate([head, _packed(q, 32, 4)], 1)


def _q5_k(x: Array) -> Array:
    head, q = _in_steps(x, 31)
    return np.concatenate([head, _packed(q >> 4, 32, 1), _packed(q & 15, 32, 4)], 1)


def _in_steps(x: Array, most: int) -> tuple[Array, Array]:
    """d, dmin and the steps and minima of 6 bits in 16 bytes; the numbers from 0 to `most`."""
    groups = x.reshape(len(x), 8, 32)
    steps, minima = (s.reshape(len(x), 8) for s in ranged(groups.reshape(-1, 32), most))
    d, dmin = (_rounded(s.max(-1, keepdims=True) / np.float32(63), x) for s in (steps, minima))
    pairs = [
        (d * s, dmin * m, s, m) for s in _near(_ratio(steps, d), 0, 63) for m in _near(_ratio(minima, dmin), 0, 63)
    ]
    step, minimum, s, m = _least(groups, pairs, 0, most)
    q = numbers(groups, step, minimum, 0, most).astype(np.uint8)
    s, m = s.astype(np.uint8), m.astype(np.uint8)
    first = s[:, :4] | s[:, 4:] >> 4 << 6
    second = m[:, :4] | m[:, 4:] >> 4 << 6
    last = s[:, 4:] & 15 | m[:, 4:] << 4
    return np.concatenate([_half(d, x), _half(dmin, x), first, second, last], 1), q.reshape(len(x), -1)


def _q6_k(x: Array) -> Array:
    groups = x.reshape(len(x), 16, 16)
    steps = centred(groups.reshape(-1, 16), -32, 31).reshape(len(x), 16)
    far = np.take_along_axis(steps, np.abs(steps).argmax(-1)[:, None], -1)
    d = _rounded(far / np.float32(-128), x)
    none = np.zeros_like(steps)
    step, _, s, _ = _least(groups, [(d * s, none, s, s) for s in _near(_ratio(steps, d), -128, 127)], -32, 31)
    q = (numbers(groups, step, none, -32, 31) + 32).astype(np.uint8).reshape(len(x), -1)
    scales = s.astype(np.int8).view(np.uint8)
    return np.concatenate([_packed(q & 15, 64, 4), _packed(q >> 4, 32, 2), scales, _half(d, x)], 1)


_WRITERS: dict[str, Callable[[Array], Array]] = {"Q4_0": _q4_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}


def _least(groups: Array, pairs: Iterable[tuple[Array, Array, Array, Array]], least: int, most: int) -> list[Array]:
    """Of steps and minima, and what says them, those of each group that lose least."""
    # As parts of the greatest magnitude, whose squares neither overflow nor vanish.
    scale = np.abs(groups).max((1, 2), keepdims=True)[..., 0]
    scale = np.where(scale == 0, np.float32(1), scale)
    scaled = groups / scale[..., None]
    best: list[Array] = []
    lost = np.zeros(0)
    for pair in pairs:
        found = loss(scaled, pair[0] / scale, pair[1] / scale, least, most)
        if not best:
            best, lost = list(pair), found
            continue
        better = found < lost
        best = [np.where(better, new, old) for new, old in zip(pair, best, strict=True)]
        lost = np.where(better, found, lost)
    return best


def _near(ratio: Array, least: int, most: int) -> list[Array]:
    """The whole number next to a ratio, and its neighbours."""
    whole = np.rint(ratio)
    return [np.clip(whole + by, least, most) for by in (0, -1, 1)]


def _ratio(x: Array, d: Array) -> Array:
    return np.divide(x, d, out=np.zeros_like(x), where=d != 0)


def _rounded(d: Array, x: Array) -> Array:
    """A scale as float16 has it, in float32. Raises `ModelError` where it has not."""
    made = d.astype(np.float16).astype(np.float32)
    if not np.isfinite(made).all():
        raise ModelError(
            f"encode: the numbers reach {np.abs(x).max():.3g}, and their scale {np.abs(d).max():.3g} overflows float16",
            help="scale them down, or encode them as int4 or int8, whose scales are float32",
        )
    return made


def _half(d: Array, x: Array) -> Array:
    """A column of scales as two bytes each."""
    return _rounded(d, x).astype("<f2").view(np.uint8)


def _packed(numbers: Array, run: int, bits: int) -> Array:
    """Fields of some bits in bytes: a run of them in the lowest bits, the next in those above."""
    per = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = numbers.reshape(len(numbers), -1, per, run) << shifts
    made: Array = np.bitwise_or.reduce(fields, axis=2).reshape(len(numbers), -1)
    return made


# Steps that lose least: several are tried for each group of numbers, and refined by least squares.

_SPREAD = np.linspace(-0.2, 0.2, 21, dtype=np.float32)
"""By which part a step is tried that is shorter or longer than what holds the extremes."""

_ROUNDS = 2
_ROWS_AT_ONCE = 1 << 14
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
    for start in range(0, len(x), _ROWS_AT_ONCE):
        at = slice(start, start + _ROWS_AT_ONCE)
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
