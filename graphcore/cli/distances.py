"""Inputs for a comparison, and the differences between results."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.cli import arrays
from graphcore.errors import DTypeError, FeedError
from graphcore.support.escaping import suggestion
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """The differences of an array from a first one; None for a measure that dtypes or shapes do not have.

    Attributes:
        size: The number of elements.
        differing: How many are not equal; NaNs are equal.
        beyond: How many differ by more than the tolerances.
        absolute: The largest absolute difference.
        relative: The largest difference relative to a nonzero value of the first array.
        ulp: The largest difference in units in the last place, if both have one float dtype.
        cosine: The cosine similarity of the arrays as vectors.
        first: The index of the first element beyond the tolerances.
        values: Both values at `first`.
        reason: Why the arrays cannot be compared, or "".
    """

    size: int
    differing: int = 0
    beyond: int = 0
    absolute: float | None = None
    relative: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    first: tuple[int, ...] | None = None
    values: tuple[float, float] | None = None
    reason: str = ""

    @property
    def is_far(self) -> bool:
        """True if the arrays differ by more than the tolerances."""
        return bool(self.beyond or self.reason)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON."""
        return asdict(self)


def distance(a: Any, b: Any, atol: float = 0.0, rtol: float = 0.0) -> OutputDistance:
    """Return the distance of `b` from `a`: arrays, lists of them, or None for both.

    Elements within `atol + rtol * |a|` are equal.
    """
    if isinstance(a, list) and isinstance(b, list):
        return _of_sequences(a, b, atol, rtol)
    if a is None and b is None:
        return OutputDistance(0)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return OutputDistance(0, reason="one of them is not an array")
    if a.shape != b.shape:
        return OutputDistance(a.size, reason=f"their shapes differ: {list(a.shape)} and {list(b.shape)}")
    if not _is_number(a.dtype) or not _is_number(b.dtype):
        is_other = np.asarray(a != b, bool)
        count = int(np.count_nonzero(is_other))
        return OutputDistance(a.size, count, count, first=_first(is_other))
    if not a.size:
        return OutputDistance(0, absolute=0.0, relative=0.0)
    is_wide = a.dtype.kind in "iu" and b.dtype.kind in "iu" and max(a.itemsize, b.itemsize) == 8
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        is_same = (a == b) if is_wide else (x == y)
        is_same |= np.isnan(x) & np.isnan(y)
        gaps = np.where(is_same, 0.0, np.abs(x - y))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)  # NaN against a number, and infinities of two signs
        if is_wide:
            gaps = np.where(is_same, 0.0, np.maximum(gaps, 1.0))  # float64 may not distinguish them
        is_far = ~is_same & ~(gaps <= atol + rtol * np.abs(x))
        sizes = np.abs(x)
        ratios = np.divide(gaps, sizes, out=np.zeros_like(gaps), where=(sizes != 0) & (gaps != 0))
    first = _first(is_far)
    return OutputDistance(
        a.size,
        int(np.count_nonzero(~is_same)),
        int(np.count_nonzero(is_far)),
        float(gaps.max()),
        float(np.where(np.isnan(ratios), np.inf, ratios).max()),
        _ulp(a, b),
        1.0 if is_same.all() else cosine(x, y),
        first,
        None if first is None else (float(x[first]), float(y[first])),
    )


def _of_sequences(a: list[Any], b: list[Any], atol: float, rtol: float) -> OutputDistance:
    """Return the distance of two lists of arrays, the largest of their elements. `first` starts with the position."""
    if len(a) != len(b):
        return OutputDistance(len(a), reason=f"their lengths differ: {len(a)} and {len(b)}")
    parts = [distance(x, y, atol, rtol) for x, y in zip(a, b, strict=True)]
    far = next((i for i, part in enumerate(parts) if part.first is not None), None)
    ulps = [part.ulp for part in parts]
    return OutputDistance(
        sum(part.size for part in parts),
        sum(part.differing for part in parts),
        sum(part.beyond for part in parts),
        max((part.absolute for part in parts if part.absolute is not None), default=None),
        max((part.relative for part in parts if part.relative is not None), default=None),
        None if None in ulps else max((ulp for ulp in ulps if ulp is not None), default=None),
        min((part.cosine for part in parts if part.cosine is not None), default=None),
        None if far is None else (far, *(parts[far].first or ())),
        None if far is None else parts[far].values,
        next((part.reason for part in parts if part.reason), ""),
    )


def cosine(x: Array, y: Array) -> float | None:
    """Return the cosine similarity of two arrays as vectors; None if one is all zeros or not finite."""
    x, y = x.reshape(-1), y.reshape(-1)
    with np.errstate(all="ignore"):
        scale = max(float(np.abs(x).max(initial=0)), float(np.abs(y).max(initial=0)))
        if not 0 < scale < np.inf:
            return None
        x, y = x / scale, y / scale
        lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
        return float(np.clip(np.dot(x, y) / lengths, -1.0, 1.0)) if lengths else None


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "USOcMm"


def _first(is_other: Array) -> tuple[int, ...] | None:
    flat = is_other.reshape(-1)
    if not flat.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(flat.argmax()), is_other.shape))


def _ulp(a: Array, b: Array) -> int | None:
    """Return the largest distance in units in the last place; None unless both have one float dtype."""
    try:
        dtype = DType.of(a.dtype)
    except DTypeError:
        return None
    if a.dtype != b.dtype or not dtype.is_float or dtype is DType.float8_e8m0:
        return None
    x, y = _ordered(a, dtype.bits), _ordered(b, dtype.bits)
    gaps = np.where(x > y, x - y, y - x)
    with np.errstate(invalid="ignore"):
        is_number = ~(np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64)))
    return int(gaps[is_number].max(initial=0))


def _ordered(array: Array, bits: int) -> Array:
    """Return unsigned integers in the order of the floats; both zeros are equal."""
    plain = np.ascontiguousarray(array)
    raw = plain.view(f"u{plain.dtype.itemsize}").astype(np.uint64)
    sign = np.uint64(1 << (bits - 1))
    magnitude = raw & np.uint64(int(sign) - 1)
    return np.where(raw & sign, sign - magnitude, sign + magnitude)


# Inputs of models: arrays from files and from the command line, and random ones.


def feeds_of(
    what: str, model: str, inputs: Mapping[str, Type], args: argparse.Namespace, *, fills: bool
) -> dict[str, Any]:
    """Return an array for each input of a model.

    Args:
        what: The command, for errors.
        model: The name of the model, for errors.
        inputs: The types of the inputs.
        args: The arguments of `options.add_feeds`.
        fills: Use random arrays for inputs without `--input`.

    Raises:
        FeedError: An argument does not fit, or an input has no array.
    """
    if args.seed < 0:
        raise FeedError(f"{what}: --seed {args.seed} is negative", help="give a seed of 0 or more")
    sizes = dict(args.dim)
    feeds = _feeds_of_args(what, model, inputs, args.input, sizes)
    missing = [name for name in inputs if name not in feeds]
    if missing and not fills:
        raise FeedError(
            f"{what}: no array is given for {', '.join(missing)}",
            operands={name: str(inputs[name]) for name in missing},
            help=f"--input {missing[0]}=FILE.npy, or --random",
        )
    require_dims(what, inputs, sizes)
    feeds.update(random_feeds({name: inputs[name] for name in missing}, sizes, args.seed, what))
    return feeds


def _feeds_of_args(
    what: str,
    model: str,
    inputs: Mapping[str, Type],
    input_args: Sequence[tuple[str, str]],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    types = {**inputs, **getattr(inputs, "optional", {})}
    for name, text in input_args:
        if not name and len(inputs) == 1:
            name = next(iter(inputs))
        if name not in types:
            problem = f"no input {name!r}" if name else f"{len(inputs)} inputs, and --input {text} names none of them"
            raise FeedError(
                f"{what}: {model} has {problem}", help=f"its inputs: {', '.join(inputs) or 'none'}; --input NAME=FILE"
            )
        if name in feeds:
            raise FeedError(f"{what}: input {name!r} is given twice", help="give one file for each input")
        value = None if os.path.exists(text) else _literal(text)
        if value is None:
            feeds[name] = arrays.read(text, name, types[name])
        else:
            feeds[name] = _from_literal(what, value, name, types[name], sizes)
    return feeds


def _literal(text: str) -> Any:
    """Return the number or list that a text is in JSON, or None."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, (int, float, list)) else None


def _from_literal(what: str, value: Any, name: str, type_: Type, sizes: Mapping[str, int]) -> Any:
    if not isinstance(type_, TensorType):
        raise FeedError(
            f"{what}: input {name!r} is {type_}, which cannot be a number or list", help="run it from Python"
        )
    try:
        array = np.array(value)
        if array.dtype == object or not np.array_equal(array.astype(type_.dtype.numpy).astype(array.dtype), array):
            if not type_.dtype.is_float or array.dtype.kind not in "if":
                raise ValueError(f"{type_.dtype.name} cannot represent it")
        array = array.astype(type_.dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise FeedError(
            f"{what}: {value!r:.60} for input {name!r} is not a valid array: {reason}",
            operands={name: str(type_)},
            help=f"give a number, a list of the input's shape, or a .npy file: --input {name}=FILE.npy",
        ) from None
    if array.ndim or not type_.shape.is_ranked:
        return array
    return np.full(lengths(what, name, type_, sizes), array)


def require_dims(what: str, inputs: Mapping[str, Type], sizes: Mapping[str, int]) -> None:
    """Raise `FeedError` if a size is given for a dim that no input has."""
    typed = {name: t.shape for name, t in inputs.items() if isinstance(t, TensorType) and t.shape.is_ranked}
    named = {p for shape in typed.values() for d in shape for p in d.parameters}
    named |= {f"{name}.{axis}" for name, shape in typed.items() for axis, d in enumerate(shape) if d.is_dynamic}
    unknown = [name for name in sizes if name not in named]
    if unknown:
        raise FeedError(
            f"{what}: no dim of an input is called {unknown[0]!r}",
            help=f"{suggestion(unknown[0], sorted(named))}its dims: {', '.join(sorted(named)) or 'none has a name'}",
        )


def random_feeds(types: Mapping[str, Type], sizes: Mapping[str, int], seed: int, what: str = "run") -> dict[str, Array]:
    """Return random arrays for inputs. sizes: sizes of dims by name, by default 1. Raises `FeedError`."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for name, type_ in types.items():
        if not isinstance(type_, TensorType):
            raise FeedError(f"{what}: input {name!r} is {type_}, which cannot be random", help="run it from Python")
        feeds[name] = arrays.random(rng, type_.dtype, lengths(what, name, type_, sizes))
    return feeds


def lengths(what: str, name: str, type_: TensorType, sizes: Mapping[str, int]) -> list[int]:
    """Return the length of each axis of an input. Raises `FeedError` if a dim cannot be evaluated.

    sizes: sizes by the names of dims, and by `input.axis` for dims without a name; by default 1.
    """
    if not type_.shape.is_ranked:
        raise FeedError(f"{what}: input {name!r} has no known rank", help=f"give an array: --input {name}=FILE.npy")
    return [_length(what, f"{name}.{axis}", name, dim, sizes) for axis, dim in enumerate(type_.shape)]


def _length(what: str, place: str, name: str, dim: Dim, sizes: Mapping[str, int]) -> int:
    if dim.is_dynamic:
        return sizes.get(place, 1)
    try:
        size = dim.evaluate({p: sizes.get(p, 1) for p in dim.parameters})
    except (ValueError, ZeroDivisionError) as error:
        raise FeedError(
            f"{what}: input {name!r}: {dim} cannot be evaluated: {error}", help="give other sizes: --dim NAME=SIZE"
        ) from None
    if size < 0:
        raise FeedError(f"{what}: input {name!r}: {dim} evaluates to {size}", help="give other sizes: --dim NAME=SIZE")
    return size
