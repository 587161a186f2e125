"""Encode GGUF's blocks: Q4_0 as ggml does, K-quants by a search for the least error.

The layouts are those that `tensors.py` decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from graphcore.errors import ModelError
from graphcore.quantization.tensors import Array

_CHUNK_BLOCKS = 1 << 11
"""Blocks that are encoded at once."""


def encode_blocks(x: Array, encoding: str, block: int, size: int) -> Array:
    """Encode float32[..., k] as uint8[..., k / block * size]. Raises `ModelError` for a scale beyond float16."""
    blocks = x.reshape(-1, block)
    encoded_blocks = np.empty((len(blocks), size), np.uint8)
    with np.errstate(all="ignore"):  # steps may be 0 or overflow
        for start in range(0, len(blocks), _CHUNK_BLOCKS):
            encoded_blocks[start : start + _CHUNK_BLOCKS] = _WRITERS[encoding](blocks[start : start + _CHUNK_BLOCKS])
    return encoded_blocks.reshape(*x.shape[:-1], x.shape[-1] // block * size)


def _q4_0(x: Array) -> Array:
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1)
    step = far / np.float32(-8)
    over = np.where(step == 0, np.float32(0), np.float32(1) / step)
    # Halves round up, not to even.
    q = np.trunc(x * over + np.float32(8.5)).astype(np.uint8)
    return np.concatenate([_half(step, x), _pack(np.minimum(q, 15), 16, 4)], 1)


def _q4_k(x: Array) -> Array:
    head, q = _steps_and_minima(x, 15)
    return np.concatenate([head, _pack(q, 32, 4)], 1)


def _q5_k(x: Array) -> Array:
    head, q = _steps_and_minima(x, 31)
    return np.concatenate([head, _pack(q >> 4, 32, 1), _pack(q & 15, 32, 4)], 1)


def _steps_and_minima(x: Array, q_max: int) -> tuple[Array, Array]:
    """Return 16 bytes of d, dmin and the steps and minima of 6 bits, and the numbers from 0 to `q_max`."""
    groups = x.reshape(len(x), 8, 32)
    steps, minima = (s.reshape(len(x), 8) for s in search_steps_and_minima(groups.reshape(-1, 32), q_max))
    d, dmin = (_round_to_half(s.max(-1, keepdims=True) / np.float32(63), x) for s in (steps, minima))
    pairs = [
        (d * s, dmin * m, s, m)
        for s in _neighbours(_divide(steps, d), 0, 63)
        for m in _neighbours(_divide(minima, dmin), 0, 63)
    ]
    step, minimum, s, m = _best_pairs(groups, pairs, 0, q_max)
    q = numbers(groups, step, minimum, 0, q_max).astype(np.uint8)
    s, m = s.astype(np.uint8), m.astype(np.uint8)
    first = s[:, :4] | s[:, 4:] >> 4 << 6
    second = m[:, :4] | m[:, 4:] >> 4 << 6
    last = s[:, 4:] & 15 | m[:, 4:] << 4
    return np.concatenate([_half(d, x), _half(dmin, x), first, second, last], 1), q.reshape(len(x), -1)


def _q6_k(x: Array) -> Array:
    groups = x.reshape(len(x), 16, 16)
    steps = search_steps(groups.reshape(-1, 16), -32, 31).reshape(len(x), 16)
    far = np.take_along_axis(steps, np.abs(steps).argmax(-1)[:, None], -1)
    d = _round_to_half(far / np.float32(-128), x)
    none = np.zeros_like(steps)
    step, _, s, _ = _best_pairs(
        groups, [(d * s, none, s, s) for s in _neighbours(_divide(steps, d), -128, 127)], -32, 31
    )
    q = (numbers(groups, step, none, -32, 31) + 32).astype(np.uint8).reshape(len(x), -1)
    scales = s.astype(np.int8).view(np.uint8)
    return np.concatenate([_pack(q & 15, 64, 4), _pack(q >> 4, 32, 2), scales, _half(d, x)], 1)


_WRITERS: dict[str, Callable[[Array], Array]] = {"Q4_0": _q4_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}


def _best_pairs(
    groups: Array, pairs: Iterable[tuple[Array, Array, Array, Array]], q_min: int, q_max: int
) -> list[Array]:
    """Return the steps and minima of each group with the least error, and their encoded values."""
    # Scaled to a greatest magnitude of 1, so that squares neither overflow nor underflow.
    scale = np.abs(groups).max((1, 2), keepdims=True)[..., 0]
    scale = np.where(scale == 0, np.float32(1), scale)
    scaled = groups / scale[..., None]
    best: list[Array] = []
    best_losses = np.zeros(0)
    for pair in pairs:
        losses = loss(scaled, pair[0] / scale, pair[1] / scale, q_min, q_max)
        if not best:
            best, best_losses = list(pair), losses
            continue
        better = losses < best_losses
        best = [np.where(better, new, old) for new, old in zip(pair, best, strict=True)]
        best_losses = np.where(better, losses, best_losses)
    return best


def _neighbours(ratio: Array, low: int, high: int) -> list[Array]:
    """Return the integer nearest to a ratio, and its neighbours."""
    whole = np.rint(ratio)
    return [np.clip(whole + by, low, high) for by in (0, -1, 1)]


def _round_to_half(d: Array, x: Array) -> Array:
    """Round a scale to float16, returned in float32. Raises `ModelError` if it overflows."""
    rounded = d.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ModelError(
            f"encode: values reach {np.abs(x).max():.3g}, and their scale {np.abs(d).max():.3g} overflows float16",
            help="scale them down, or encode them as int4 or int8, whose scales are float32",
        )
    return rounded


def _half(d: Array, x: Array) -> Array:
    """Return scales as a column of two bytes each."""
    return _round_to_half(d, x).astype("<f2").view(np.uint8)


def _pack(numbers: Array, run: int, bits: int) -> Array:
    """Pack fields of some bits in bytes: a run of them in the lowest bits, the next run in the bits above."""
    per = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = numbers.reshape(len(numbers), -1, per, run) << shifts
    packed: Array = np.bitwise_or.reduce(fields, axis=2).reshape(len(numbers), -1)
    return packed


# Search for steps of the least error: several are tried for each group, and refined by least squares.

_SPREAD = np.linspace(-0.2, 0.2, 21, dtype=np.float32)
"""Relative changes of the step that covers the extremes of a group to try."""

_ROUNDS = 2
_CHUNK_GROUPS = 1 << 14
"""Groups that are searched at once, so that intermediate results stay in the cache."""


def search_steps(x: Array, q_min: int, q_max: int) -> Array:
    """Return the step of each group, x ~ step * q with q from `q_min` to `q_max`, where -q_min is `q_max` + 1.

    x: float32[n, elements]. Returns float32[n]. The greatest magnitude maps to the number without an opposite, so steps
    may be negative; groups of zeros have the step 0.
    """
    (steps,) = _search_in_chunks(x, 1, lambda part: (_search_steps(part, q_min, q_max),))
    return steps


def search_steps_and_minima(x: Array, q_max: int) -> tuple[Array, Array]:
    """Return the step and minimum of each group, x ~ step * q - minimum with q from 0 to `q_max`; neither is below 0.

    x: float32[n, elements]. Returns float32[n] twice.
    """
    steps, minima = _search_in_chunks(x, 2, lambda part: _search_steps_and_minima(part, q_max))
    return steps, minima


def numbers(x: Array, step: Array, minimum: Array, q_min: int, q_max: int) -> Array:
    """Return the nearest q of each element, in float32."""
    over = _divide(np.ones_like(step), step)
    q: Array = np.clip(np.rint((x + minimum[..., None]) * over[..., None]), q_min, q_max)
    return q


def loss(x: Array, step: Array, minimum: Array, q_min: int, q_max: int) -> Array:
    """Return the sum of squared errors of each group."""
    q = numbers(x, step, minimum, q_min, q_max)
    return np.asarray(np.square(step[..., None] * q - minimum[..., None] - x).sum(-1))


def _search_in_chunks(x: Array, results: int, search: Callable[[Array], tuple[Array, ...]]) -> tuple[Array, ...]:
    """Search in chunks of groups scaled to at most 1, so that squares neither overflow nor underflow."""
    outputs = tuple(np.empty(len(x), np.float32) for _ in range(results))
    for start in range(0, len(x), _CHUNK_GROUPS):
        at = slice(start, start + _CHUNK_GROUPS)
        scale = np.abs(x[at]).max(-1, initial=0)
        chunk_results = search(x[at] / np.where(scale == 0, np.float32(1), scale)[:, None])
        for whole, part in zip(outputs, chunk_results, strict=True):
            whole[at] = part * scale
    return outputs


def _search_steps(x: Array, q_min: int, q_max: int) -> Array:
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1)[:, 0]
    none = np.zeros_like(far)
    best, best_losses = none, np.square(x).sum(-1)
    for spread in _SPREAD:
        step = far / np.float32(q_min) * (1 + spread)
        for _ in range(_ROUNDS):
            q = numbers(x, step, none, q_min, q_max)
            step = _divide((x * q).sum(-1), (q * q).sum(-1))
        losses = loss(x, step, none, q_min, q_max)
        best, best_losses = np.where(losses < best_losses, step, best), np.minimum(losses, best_losses)
    return best


def _search_steps_and_minima(x: Array, q_max: int) -> tuple[Array, Array]:
    low, high = x.min(-1, initial=0), x.max(-1, initial=0)
    whole = (high - low) / np.float32(q_max)
    best_step, best_minimum = whole, -low
    best_losses = loss(x, whole, -low, 0, q_max)
    mean = x.mean(-1)
    for spread in _SPREAD:
        step, minimum = whole * (1 + spread), -low
        for _ in range(_ROUNDS):
            q = numbers(x, step, minimum, 0, q_max)
            middle = q.mean(-1)
            about = q - middle[:, None]
            step = _divide((x * about).sum(-1), (about * about).sum(-1))
            minimum = step * middle - mean
            below = minimum < 0  # not representable: fit the step alone
            step = np.where(below, _divide((x * q).sum(-1), (q * q).sum(-1)), step)
            minimum = np.where(below, np.float32(0), minimum)
        losses = np.where(step > 0, loss(x, step, minimum, 0, q_max), np.inf)
        better = losses < best_losses
        best_step, best_minimum = np.where(better, step, best_step), np.where(better, minimum, best_minimum)
        best_losses = np.where(better, losses, best_losses)
    return best_step, best_minimum


def _divide(x: Array, y: Array) -> Array:
    return np.divide(x, y, out=np.zeros_like(x), where=y != 0)
